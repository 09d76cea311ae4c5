// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/divvy-gpu/divvy/internal/core"
	"github.com/divvy-gpu/divvy/internal/enforce"
	"github.com/divvy-gpu/divvy/internal/event"
)

const (
	verifyFor   = 30 * time.Second // for a program to initialise its driver
	verifyFirst = 50 * time.Millisecond
	verifyLast  = 2 * time.Second
)

// inspect looks at a process before its driver starts, and says how it is held.
func (c *connection) inspect(ctx context.Context, pid, uid int) (admitted, error) {
	var g enforcement
	if err := c.do(ctx, func(l *loop) { g = l.enforcements[c.share] }); err != nil {
		return admitted{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.HandshakeDeadline)
	defer cancel()
	return g.admit(ctx, pid, uid)
}

// verify looks whether a process is held once its driver runs, and says what
// came out. Without the level that its share demands it gets nothing more.
func (c *connection) verify(ctx context.Context, id core.ClientID, pid int, a admitted) {
	for _, m := range a.pending {
		if err := c.awaitVerified(ctx, m, a.enforcement.share, pid); err != nil {
			a.why = joinReason(a.why, fmt.Sprintf("%s: %v", m.Level(), err))
			continue
		}
		a.level = strongest([]enforce.Enforcer{m}, a.level)
	}
	_ = c.do(ctx, func(l *loop) {
		m := l.members[id]
		if m == nil {
			return // it has ended
		}
		m.level = a.level
		if a.why == "" {
			return
		}
		l.logBounded(core.Event{Time: l.now, Kind: event.NotEnforced, Share: c.share, Card: a.enforcement.share.CardUUIDs[0], PID: pid,
			Message: fmt.Sprintf("held at level %q: %s", a.level, a.why)})
		if !a.level.Meets(a.enforcement.demanded) {
			l.core.Withhold(l.now, id)
		}
	})
}

// awaitVerified asks again until the process is held, is gone, or has had time
// enough.
func (c *connection) awaitVerified(ctx context.Context, m enforce.Enforcer, s enforce.Share, pid int) error {
	asking, cancel := context.WithTimeout(ctx, verifyFor)
	defer cancel()
	wait := verifyFirst
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return errStopped
		case <-c.ended:
			return errStopped
		}
		err := m.Verify(asking, s, pid)
		if err == nil || asking.Err() != nil || !errors.Is(err, enforce.ErrOutside) {
			return err
		}
		wait = min(2*wait, verifyLast)
		timer.Reset(wait)
	}
}
