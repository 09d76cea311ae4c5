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
	case s.revoked:
		c.removeShare(now, s, "deleted, its last process has ended")
	case s.Ephemeral && s.everUsed && s.holders == 0 && s.lonelyEnd.IsZero():
		c.removeShare(now, s, "went with its last process")
	}
}

func (c *Core) removeShare(now time.Time, s *share, why string) {
	c.dropShare(s)
	c.orders.SaveShares = append(c.orders.SaveShares, s.Name)
	c.orders.GoneShares = append(c.orders.GoneShares, s.Name)
	c.event(now, Event{Kind: event.ShareDeleted, Share: s.Name, Card: s.card.UUID, Bytes: s.limit, Message: why})
	c.settle(s.card.rest)
}

func (c *Core) dropShare(s *share) {
	delete(c.byName, s.Name)
	c.shares = slices.DeleteFunc(c.shares, func(other *share) bool { return other == s })
}

// tickShare ends what time ends: the wait for a first holder, and the state of
// being over a lowered limit.
func (c *Core) tickShare(now time.Time, s *share) {
	if !s.lonelyEnd.IsZero() && !now.Before(s.lonelyEnd) {
		s.lonelyEnd = time.Time{}
		if s.holders == 0 && len(s.clients.all) == 0 {
			c.removeShare(now, s, "nobody came to use it")
			return
		}
	}
	if s.sweepNext.IsZero() || now.Before(s.sweepNext) {
		return
	}
	c.squeeze(now, s)
	if s.revoked {
		s.sweepNext = now.Add(sweepLast)
		c.settle(s.card.rest)
		return
	}
	c.settle(s.pool)
	if !s.tight {
		return
	}
	if !s.overdueTold && now.Sub(s.tightSince) >= c.config.ShrinkDeadline {
		s.overdueTold = true
		c.event(now, Event{Kind: event.ShrinkOverdue, Share: s.Name, Card: s.card.UUID, Bytes: s.pool.granted - s.limit,
			Message: fmt.Sprintf("still %s over its limit of %s after %v (%s)", size.Short(s.pool.granted-s.limit),
				size.Short(s.limit), c.config.ShrinkDeadline, c.holders(s.pool, nil))})
	}
	s.sweepEvery = min(2*s.sweepEvery, sweepLast)
	s.sweepNext = now.Add(s.sweepEvery)
}

// squeeze brings a share under its limit as far as unused credit goes, and
// keeps its state: tight as long as more is in use than the limit allows.
func (c *Core) squeeze(now time.Time, s *share) {
	if s.revoked {
		c.recall(s.pool, s.pool.granted)
		return
	}
	if !s.promised() {
		return
	}
	if (s.pool.granted > s.limit || s.tight) && (!s.tight || s.stale(now, &s.squeezedAt)) {
		// A tight share has no credit: each free counts at once.
		c.recall(s.pool, s.pool.granted)
	}
	tight := s.pool.granted > s.limit
	if tight == s.tight {
		return
	}
	s.tight = tight
	c.limitsChanged(s)
	if tight {
		s.tightSince, s.overdueTold = now, false
		s.sweepEvery, s.sweepNext = sweepFirst, now.Add(sweepFirst)
		c.event(now, Event{Kind: event.ShareShrinking, Share: s.Name, Card: s.card.UUID, Bytes: s.pool.granted - s.limit,
			Message: fmt.Sprintf("%s in use over the limit of %s: nothing is granted until it is freed",
				size.Short(s.pool.granted-s.limit), size.Short(s.limit))})
		return
	}
	s.sweepNext = time.Time{}
	c.event(now, Event{Kind: event.ShareShrunk, Share: s.Name, Card: s.card.UUID, Bytes: s.limit,
		Message: fmt.Sprintf("under its limit of %s after %v", size.Short(s.limit), now.Sub(s.tightSince).Round(time.Millisecond))})
}
