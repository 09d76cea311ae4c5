// SPDX-License-Identifier: Apache-2.0

package core

import (
	"maps"
	"time"
)

// slot is one GPU of a share. Its place in share.slots is the GPU's number inside the
// share, and everything is promised, held and counted by slot.
type slot struct {
	share  *share
	number int
	card   *card
	pool   *pool  // its own, or card.rest
	limit  uint64 // of its own pool

	tight       bool      // over its limit
	tightSince  time.Time // for the deadline
	overdueTold bool
	sweepNext   time.Time
	sweepEvery  time.Duration

	parked  uint64            // charged to no client: what descriptors keep
	named   int               // memory that it has made and others may hold
	holds   map[uint64]*named // that, and what it holds of others
	watched map[string]bool   // its descriptors whose end is told

	ending int
	lively []*balance // whose client may have work on the card, in turns
	turn   int        // of the others

	peak     uint64
	denials  map[Reason]uint64
	launches uint64 // of clients that are gone
	busy     uint64 // of clients that are gone, as the next two
	wait     uint64
	counted  uint64
	before   Correction    // of earlier lives of the agent
	since    Correction    // besides, in this one
	kept     figures       // as given to be saved last
	sum      sums          // of clients that are there
	lastEnd  time.Duration // of a share with many clients

	billed billed

	usedLately             uint64
	uses                   []ClientView
	usesAt                 time.Time
	observedAt, squeezedAt time.Time // of a share with many clients
}

func (t *slot) promised() bool { return t.pool.slot == t }

// clients are those of its share: each has a balance in each of the share's slots.
func (t *slot) clients() []*client { return t.share.clients.all }

// of is what a client has in the slot.
func (t *slot) of(cl *client) *balance { return cl.balances[t.number] }

// balances are those of all clients of its share.
func (t *slot) balances(yield func(*balance) bool) {
	for _, cl := range t.clients() {
		if !yield(t.of(cl)) {
			return
		}
	}
}

// slotOn is a share's slot on a card; nil: it has none there, or there is no share.
func (s *share) slotOn(k *card) *slot {
	if s == nil {
		return nil
	}
	for _, t := range s.slots {
		if t.card == k {
			return t
		}
	}
	return nil
}

// slotsOn are all slots on a card, in the order in which their shares were made.
func (c *Core) slotsOn(k *card) func(yield func(*slot) bool) {
	return func(yield func(*slot) bool) {
		for _, s := range c.shares {
			if t := s.slotOn(k); t != nil && !yield(t) {
				return
			}
		}
	}
}

// slot finds a slot of a share by number; nil: there is none.
func (c *Core) slot(name string, number int) *slot {
	s := c.byName[name]
	if s == nil || number < 0 || number >= len(s.slots) {
		return nil
	}
	return s.slots[number]
}

// Slot names one GPU of a share.
type Slot struct {
	Share  string
	Number int
}

// CardsOf lists the UUIDs of a share's cards by number; none: there is no such share.
func (c *Core) CardsOf(name string) (uuids []string) {
	if s := c.byName[name]; s != nil {
		for _, t := range s.slots {
			uuids = append(uuids, t.card.UUID)
		}
	}
	return uuids
}

// CardOf is the UUID of the card of a slot; empty: there is no such slot.
func (c *Core) CardOf(of Slot) string {
	if t := c.slot(of.Share, of.Number); t != nil {
		return t.card.UUID
	}
	return ""
}

// SlotOn is the number that a card has inside a share; false: the share is not on it.
func (c *Core) SlotOn(name, cardUUID string) (number int, on bool) {
	if t := c.byName[name].slotOn(c.cardOf(cardUUID)); t != nil {
		return t.number, true
	}
	return 0, false
}

// SlotView is one GPU of a share, and what became of it.
type SlotView struct {
	CardUUID, CardName string
	CardUUIDBytes      [16]byte
	CardBytes          uint64 // usable, of the card
	CardContextBytes   uint64
	Condition          Condition // of the card
	Tight, Unlimited   bool
	LimitBytes         uint64
	UsedBytes          uint64
	ContextBytes       uint64
	PeakBytes          uint64
	Denials            uint64
	Launches           uint64
	ParkedBytes        uint64     // of those used: what descriptors keep, and no process
	CardTimeNs         uint64     // that its processes measured
	WaitNs             uint64     // that their launches waited
	Before             Correction // of earlier lives of the agent
	DenialsBy          map[Reason]uint64
	Bill               Bill
}

func (c *Core) viewSlot(t *slot, used uint64) SlotView {
	v := SlotView{
		CardUUID: t.card.UUID, CardName: t.card.Name, CardUUIDBytes: t.card.UUIDBytes,
		CardBytes: t.card.UsableBytes, CardContextBytes: t.card.ContextBytes, Condition: t.card.condition,
		Tight: t.tight || t.share.revoked, Unlimited: !t.promised(),
		LimitBytes: c.limitOf(t), UsedBytes: used, ParkedBytes: t.parked, PeakBytes: t.peak, Before: t.before, Bill: t.billed.Bill,
	}
	return v
}

// count adds what the clients have done.
func (v *SlotView) count(t *slot) {
	v.Launches, v.CardTimeNs, v.WaitNs = t.launches, t.busy, t.wait
	for b := range t.balances {
		v.ContextBytes += b.contextBytes()
		v.Launches += b.launches()
		v.CardTimeNs += b.work.told.busy
		v.WaitNs += b.work.told.wait
	}
	for _, n := range t.denials {
		v.Denials += n
	}
	v.DenialsBy = maps.Clone(t.denials)
}

// limitOf is the quota of a slot, or the card's total.
func (c *Core) limitOf(t *slot) uint64 {
	if t.promised() {
		return t.limit
	}
	return t.card.UsableBytes
}
