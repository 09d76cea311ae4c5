// SPDX-License-Identifier: Apache-2.0

package core

import (
	"time"

	terms "github.com/divvy-gpu/divvy/internal/share"
)

// Bill adds up what a share was promised of a card, and held, since this agent knows it.
type Bill struct {
	Ms              uint64 // that it was there
	BookedKiBMs     uint64
	BookedPercentMs uint64
	UsedKiBMs       uint64
}

// billed is a slot's bill, and until when it is true.
type billed struct {
	Bill
	at time.Time
}

// Ended is what a share did on a card in all that has gone.
type Ended struct {
	Name, Tenant, CardUUID string
	Owner                  int
	Unnamed                bool
	Created                time.Time
	Bill                   Bill
	CardTimeNs, WaitNs     uint64
}

// maxEnded bounds those that nobody has taken: then there is none who takes them.
const maxEnded = 50_000

// billAll brings the bills of a share up to a moment: before what it is promised changes, and
// whenever they are read. Whole milliseconds count, the rest later.
func (c *Core) billAll(now time.Time, s *share) {
	for _, t := range s.slots {
		passed := now.Sub(t.billed.at).Milliseconds()
		if passed <= 0 {
			continue
		}
		ms := uint64(passed)
		t.billed.at = t.billed.at.Add(time.Duration(passed) * time.Millisecond)
		t.billed.Ms += ms
		t.billed.UsedKiBMs += c.knownIn(t) >> 10 * ms
		if s.revoked {
			continue // it was deleted: its programs hold on, nothing is promised
		}
		if t.promised() {
			t.billed.BookedKiBMs += t.limit >> 10 * ms
		}
		switch {
		case s.Exclusive:
			t.billed.BookedKiBMs += t.card.UsableBytes >> 10 * ms
			t.billed.BookedPercentMs += 100 * ms
		case s.Policy == terms.Fixed:
			t.billed.BookedPercentMs += uint64(s.CoresPercent) * ms
		}
	}
}

// Bill brings the bills of a share up to now, for Share to tell.
func (c *Core) Bill(now time.Time, name string) {
	if s := c.byName[name]; s != nil {
		c.billAll(now, s)
	}
}

// keepEnded notes what a share did that goes.
func (c *Core) keepEnded(now time.Time, s *share) {
	c.billAll(now, s)
	for _, t := range s.slots {
		if len(c.ended) >= maxEnded {
			return
		}
		var v SlotView
		v.count(t)
		c.ended = append(c.ended, Ended{Name: s.Name, Tenant: s.Tenant, Owner: s.owner, Unnamed: s.Unnamed && s.Ephemeral, CardUUID: t.card.UUID, Created: s.created,
			Bill: t.billed.Bill, CardTimeNs: t.cardTimeOf(v), WaitNs: v.WaitNs})
	}
}

// TakeEnded returns what shares did that have gone since the last call.
func (c *Core) TakeEnded() []Ended {
	all := c.ended
	c.ended = nil
	return all
}
