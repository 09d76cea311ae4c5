// SPDX-License-Identifier: Apache-2.0

package core

import (
	"fmt"
	"time"

	"github.com/divvy-gpu/divvy/internal/event"
)

// still is since when a client has had work in flight of which none ended.
type still struct {
	since         time.Time
	busy, lastEnd uint64 // as it said then
	told          bool
}

// look compares with what a client says now.
func (s *still) look(now time.Time, r Reading) {
	if r.InFlightNs == 0 || s.since.IsZero() || r.BusyNs != s.busy || r.LastEndNs != s.lastEnd {
		*s = still{since: now, busy: r.BusyNs, lastEnd: r.LastEndNs}
	}
	if r.InFlightNs == 0 {
		s.since = time.Time{}
	}
}

// Stuck is a client that has had work in flight for long of which none ended.
type Stuck struct {
	ID   ClientID
	Slot int
	PID  int
	Card string
	For  time.Duration
}

// StuckFor lists, of these clients, those of which nothing has ended for so long and of whom that
// was not told. Whether the card works for them is for others to find out: a program that does nothing
// else does not look whether its work has ended.
func (c *Core) StuckFor(now time.Time, ids []ClientID, long time.Duration) (all []Stuck) {
	for _, id := range ids {
		cl := c.clients[id]
		if cl == nil || cl.state != Attached {
			continue
		}
		for _, b := range cl.balances {
			if s := &b.still; !s.told && !s.since.IsZero() && now.Sub(s.since) >= long {
				all = append(all, Stuck{ID: id, Slot: b.number(), PID: cl.PID, Card: b.slot.card.UUID, For: now.Sub(s.since)})
			}
		}
	}
	return all
}

// TellStuck tells of one, once until something of it ends.
func (c *Core) TellStuck(now time.Time, s Stuck) {
	cl := c.clients[s.ID]
	if cl == nil || s.Slot >= len(cl.balances) || cl.balances[s.Slot].still.told {
		return
	}
	b := cl.balances[s.Slot]
	b.still.told = true
	c.event(now, Event{Kind: event.ClientStuck, Share: cl.share.Name, Card: b.slot.card.UUID, PID: cl.PID, Bytes: c.usedBy(b),
		Message: fmt.Sprintf("%s: nothing that it launched has ended for %v, and the GPU works for it", cl.Name, s.For.Round(time.Second))})
}
