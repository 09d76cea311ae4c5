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
	"github.com/divvy-gpu/divvy/internal/share"
)

// errWeaker refuses a process that is not held as its share demands.
var errWeaker = errors.New("not held as the share demands")

// admitted is how strongly a process is held that attaches.
type admitted struct {
	grip    grip
	level   share.Enforcement // now
	pending []enforce.Means   // that can be looked at once its driver runs
	why     string            // it is held less than its share
}

// inspect looks at a process before its driver starts: what holds the share may
// not hold it, as a container's, and what would keep it waiting for ever is said.
func (c *connection) inspect(pid, uid int) (admitted, error) {
	var a admitted
	if err := c.do(c.quit, func(time.Time) { a.grip = c.grips[c.share] }); err != nil {
		return a, err
	}
	a.level = a.grip.base.level
	ctx, cancel := context.WithTimeout(context.Background(), c.cfg.HandshakeDeadline)
	defer cancel()
	could := a.level
	for _, m := range a.grip.means {
		err := m.Admit(ctx, a.grip.share, pid, uid)
		if errors.Is(err, enforce.ErrBlocked) {
			return a, err
		}
		if err != nil {
			a.why = joinReason(a.why, fmt.Sprintf("%s: %v", m.Level(), err))
			continue
		}
		could = strongest([]enforce.Means{m}, could)
		if m.Level() == share.EnforcedMPS {
			a.pending = append(a.pending, m)
		} else {
			a.level = strongest([]enforce.Means{m}, a.level)
		}
	}
	if !could.Meets(a.grip.demanded) {
		return a, fmt.Errorf("%w: at level %q, not %q: %s", errWeaker, could, a.grip.demanded, joinReason(a.why, a.grip.missing()))
	}
	return a, nil
}

func joinReason(before, reason string) string {
	switch {
	case before == "":
		return reason
	case reason == "":
		return before
	}
	return before + "; " + reason
}

// verify looks whether a process is held once its driver runs, and says what
// came out. Without the level that its share demands it gets nothing more.
func (c *connection) verify(id core.ClientID, pid int, a admitted) {
	for _, m := range a.pending {
		if err := c.awaitVerified(m, a.grip.share, pid); err != nil {
			a.why = joinReason(a.why, fmt.Sprintf("%s: %v", m.Level(), err))
			continue
		}
		a.level = strongest([]enforce.Means{m}, a.level)
	}
	_ = c.do(c.quit, func(now time.Time) {
		m := c.members[id]
		if m == nil {
			return // it has ended
		}
		m.level = a.level
		if a.why == "" {
			return
		}
		c.log(core.Event{Time: now, Kind: event.NotEnforced, Share: c.share, Card: a.grip.share.CardUUID, PID: pid,
			Message: fmt.Sprintf("held at level %q: %s", a.level, a.why)})
		if !a.level.Meets(a.grip.demanded) {
			c.core.Withhold(now, id)
		}
	})
}

// verifyAgain looks at the processes that MPS held before it had gone from a share:
// they need not be clients of the daemon that is there now.
func (d *daemon) verifyAgain(g grip) {
	m, under := g.by(share.EnforcedMPS)
	if !under {
		return
	}
	for _, v := range d.core.Clients() {
		was := d.members[v.ID]
		if v.Share != g.share.Name || was == nil || was.level != share.EnforcedMPS {
			continue
		}
		was.level = g.base.level
		if c := was.conn; c != nil {
			d.task(func() {
				c.verify(v.ID, v.PID, admitted{grip: g, level: g.base.level, pending: []enforce.Means{m}})
			})
		}
	}
}

// awaitVerified asks again until the process is held, is gone, or has had time
// enough.
func (c *connection) awaitVerified(m enforce.Means, s enforce.Share, pid int) error {
	ctx, cancel := context.WithTimeout(context.Background(), verifyFor)
	defer cancel()
	wait := verifyFirst
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-c.quit:
			return errStopped
		case <-c.ended:
			return errStopped
		}
		err := m.Verify(ctx, s, pid)
		if err == nil || ctx.Err() != nil || !errors.Is(err, enforce.ErrOutside) {
			return err
		}
		wait = min(2*wait, verifyLast)
		timer.Reset(wait)
	}
}
