// SPDX-License-Identifier: Apache-2.0

package core

import (
	"fmt"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/internal/event"
	"github.com/divvy-gpu/divvy/internal/size"
)

// Hold keeps an ephemeral share while somebody needs it.
func (c *Core) Hold(name string, uid int) error {
	s, failure := c.share(name)
	if failure == nil && s.revoked {
		failure = refuse(NotFound, "share %q is deleted", name)
	}
	if failure != nil {
		return failure
	}
	if err := c.mayJoin(s, uid); err != nil {
		return err
	}
	s.holders++
	s.everUsed = true
	s.lonelyEnd = time.Time{}
	c.wakesChanged()
	return nil
}

// Release ends one Hold.
func (c *Core) Release(now time.Time, name string) {
	s := c.byName[name]
	if s == nil || s.holders == 0 {
		return
	}
	s.holders--
	c.removeIfUnused(now, s)
}

// removeIfUnused removes a share that goes with its last holder and client,
// unless its holders may still be on their way: to a new share, or back to a
// restarted agent.
func (c *Core) removeIfUnused(now time.Time, s *share) {
	switch {
	case len(s.clients.all) > 0 || c.byName[s.Name] != s:
	case s.keeps():
		// what descriptors keep is on the card, and its own
	case s.revoked:
		c.removeShare(now, s, "deleted, its last process has ended")
	case s.Ephemeral && s.everUsed && s.holders == 0 && s.lonelyEnd.IsZero():
		c.removeShare(now, s, "went with its last process")
	}
}

func (c *Core) removeShare(now time.Time, s *share, why string) {
	c.keepGone(s)
	c.keepEnded(now, s)
	c.dropShare(s)
	c.orders.SaveShares = append(c.orders.SaveShares, s.Name)
	c.orders.GoneShares = append(c.orders.GoneShares, s.Name)
	user := s.user()
	c.event(now, Event{Kind: event.ShareDeleted, Share: s.Name, Labels: s.Labels, Card: s.uuid(), Bytes: s.limit(), Message: why, user: &user})
	for _, t := range s.slots {
		c.settle(t.card.rest)
	}
}

func (c *Core) dropShare(s *share) {
	delete(c.byName, s.Name)
	c.shares = slices.DeleteFunc(c.shares, func(other *share) bool { return other == s })
	c.wakesChanged()
}

// tickShare ends what time ends: the wait for a first holder, and the state of
// being over a lowered limit.
func (c *Core) tickShare(now time.Time, s *share) {
	if !s.lonelyEnd.IsZero() && !now.Before(s.lonelyEnd) {
		s.lonelyEnd = time.Time{}
		if s.holders == 0 && len(s.clients.all) == 0 && !s.keeps() {
			c.removeShare(now, s, "no program came to use it")
			return
		}
	}
	for _, t := range s.slots {
		c.tickSlot(now, t)
	}
}

func (c *Core) tickSlot(now time.Time, t *slot) {
	if t.sweepNext.IsZero() || now.Before(t.sweepNext) {
		return
	}
	c.squeeze(now, t)
	if t.share.revoked {
		t.sweepNext = now.Add(sweepLast)
		c.settle(t.card.rest)
		return
	}
	c.settle(t.pool)
	if !t.tight {
		return
	}
	if !t.overdueTold && now.Sub(t.tightSince) >= c.config.ShrinkDeadline {
		t.overdueTold = true
		c.slotEvent(now, t, event.ShrinkOverdue, t.pool.granted-t.limit, "still %s over its limit of %s%s after %v (%s)",
			size.Short(t.pool.granted-t.limit), size.Short(t.limit), t.which(), c.config.ShrinkDeadline, c.holders(t.pool, nil))
	}
	t.sweepEvery = min(2*t.sweepEvery, sweepLast)
	t.sweepNext = now.Add(t.sweepEvery)
}

func (c *Core) slotEvent(now time.Time, t *slot, kind event.Kind, bytes uint64, format string, args ...any) {
	c.event(now, Event{Kind: kind, Share: t.share.Name, Card: t.card.UUID, Bytes: bytes, Message: fmt.Sprintf(format, args...)})
}

// squeeze brings a slot under its limit as far as unused credit goes, and
// keeps its state: tight as long as more is in use than the limit allows.
func (c *Core) squeeze(now time.Time, t *slot) {
	if t.share.revoked {
		c.recall(t.pool, t.pool.granted)
		return
	}
	if !t.promised() {
		return
	}
	if (t.pool.granted > t.limit || t.tight) && (!t.tight || t.stale(now, &t.squeezedAt)) {
		// A tight share has no credit: each free counts at once.
		c.recall(t.pool, t.pool.granted)
	}
	tight := t.pool.granted > t.limit
	if tight == t.tight {
		return
	}
	t.tight = tight
	c.wakesChanged()
	c.limitsChanged(t.share)
	if tight {
		t.tightSince, t.overdueTold = now, false
		t.sweepEvery, t.sweepNext = sweepFirst, now.Add(sweepFirst)
		c.slotEvent(now, t, event.ShareShrinking, t.pool.granted-t.limit, "%s in use over the limit of %s%s: nothing is granted until it is freed",
			size.Short(t.pool.granted-t.limit), size.Short(t.limit), t.which())
		return
	}
	t.sweepNext = time.Time{}
	c.slotEvent(now, t, event.ShareShrunk, t.limit, "under its limit of %s%s after %v",
		size.Short(t.limit), t.which(), now.Sub(t.tightSince).Round(time.Millisecond))
}
