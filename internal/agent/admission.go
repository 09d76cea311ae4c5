// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"

	"github.com/divvy-gpu/divvy/internal/admission"
	"github.com/divvy-gpu/divvy/internal/core"
	"github.com/divvy-gpu/divvy/internal/event"
)

// inspect looks at a process before its driver starts, and says how it is held.
func (c *connection) inspect(ctx context.Context, pid, uid int) (admission.Admitted, error) {
	var g admission.Enforcement
	if err := c.do(ctx, func(l *loop) { g = l.enforcements[c.share] }); err != nil {
		return admission.Admitted{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.HandshakeDeadline)
	defer cancel()
	return g.Admit(ctx, pid, uid)
}

// verify looks whether a process is held once its driver runs, and says what
// came out. Without the level that its share demands it gets nothing more.
func (c *connection) verify(ctx context.Context, id core.ClientID, pid int, a admission.Admitted) {
	a.Verify(ctx, c.ended, pid)
	_ = c.do(ctx, func(l *loop) {
		m := l.members[id]
		if m == nil {
			return // it has ended
		}
		m.level = a.Level
		if a.Why == "" {
			return
		}
		l.logBounded(core.Event{Time: l.now, Kind: event.NotEnforced, Share: c.share, Card: a.Enforcement.Share.CardUUIDs[0], PID: pid,
			Message: fmt.Sprintf("held at level %q: %s", a.Level, a.Why)})
		if !a.Level.Meets(a.Enforcement.Demanded) {
			l.core.Withhold(l.now, id)
		}
	})
}
