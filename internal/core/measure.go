// SPDX-License-Identifier: Apache-2.0

package core

import (
	"maps"
	"slices"
	"time"
)

// SavedWork is what a client said of itself on one card. It is saved while the client
// lives: one that ends while no agent is there keeps what was seen.
type SavedWork struct{ Peak, BusyNs, WaitNs, Launches uint64 }

// Correction is what is known of a slot's time on its card besides what its clients say.
// The core keeps it over the lives of an agent, and decides nothing by it.
type Correction struct {
	OvercountNs int64  `json:",omitempty"` // by how much they said more than can have been; less than 0: less
	Overruns    uint64 `json:",omitempty"`
	SaidNs      uint64 `json:",omitempty"` // the most card time that anybody was told
	// AtNs is until when OvercountNs is true, by the clock of the pages, where the card took
	// turns between programs by itself; 0: it did not.
	AtNs uint64 `json:",omitempty"`
}

// and is what two lives together know.
func (k Correction) and(since Correction) Correction {
	return Correction{
		OvercountNs: k.OvercountNs + since.OvercountNs, Overruns: k.Overruns + since.Overruns, SaidNs: max(k.SaidNs, since.SaidNs), AtNs: since.AtNs,
	}
}

// SavedFigures are a share's own figures, without what was promised.
type SavedFigures struct {
	Share string
	Slots []SavedSlot
}

// figures are those that Measure compares.
type figures struct {
	peak, denials uint64
	Correction
}

func (t *slot) figures() figures {
	f := figures{peak: t.peak, Correction: t.before.and(t.since)}
	for _, n := range t.denials {
		f.denials += n
	}
	return f
}

func (t *slot) saved() SavedSlot {
	return SavedSlot{CardUUID: t.card.UUID, Peak: t.peak, Denials: t.denials, Launches: t.launches, BusyNs: t.busy, WaitNs: t.wait,
		Correction: t.before.and(t.since)}
}

func (b *balance) savedWork() SavedWork {
	return SavedWork{Peak: b.peak, BusyNs: b.work.told.busy, WaitNs: b.work.told.wait, Launches: b.work.told.launches}
}

// recoverWork takes over what a client said to an agent before.
func (b *balance) recoverWork(saved SavedWork) {
	b.peak = max(b.peak, saved.Peak)
	b.work.told = told{busy: saved.BusyNs, wait: saved.WaitNs, launches: saved.Launches}
	b.kept = saved
}

// Correct notes what is known of a slot since this agent began.
func (c *Core) Correct(of Slot, since Correction) {
	if t := c.slot(of.Share, of.Number); t != nil {
		t.since = since
	}
}

// SlotWork is what the processes of a share say that they used of a card.
type SlotWork struct {
	Of         Slot
	MeasuredNs uint64 // gone ones included
	Processes  []int  // that use it, or whose memory the driver still holds
	Awaited    bool   // one of them is of an earlier life and not back yet
	Before     Correction
}

// SlotWorks lists it for all shares on a card that have or had processes; more true: so many processes are there that
// nobody reads what all of them say.
func (c *Core) SlotWorks(cardUUID string, most int) (works []SlotWork, more bool) {
	k := c.cardOf(cardUUID)
	if k == nil {
		return nil, false
	}
	if c.Programs(cardUUID) > most {
		return nil, true
	}
	for t := range c.slotsOn(k) {
		if len(t.clients()) == 0 && t.busy == 0 {
			continue
		}
		w := SlotWork{Of: Slot{Share: t.share.Name, Number: t.number}, Before: t.before}
		for b := range t.balances {
			c.usedBy(b)
			w.Processes = append(w.Processes, b.PID)
			w.Awaited = w.Awaited || b.awaited()
		}
		w.MeasuredNs = t.measured()
		works = append(works, w)
	}
	return works, false
}

// Doings is a mark that changes with who is on a card, and with what they launch and measure. It is
// still where nobody of them has anything in flight or is awaited; and not where so many processes
// are there that nobody reads what all of them say.
func (c *Core) Doings(cardUUID string, most int) (mark uint64, still bool) {
	k := c.cardOf(cardUUID)
	if k == nil || c.Programs(cardUUID) > most {
		return 0, false
	}
	mark = 14695981039346656037 // FNV-1a, of words
	mix := func(words ...uint64) {
		for _, w := range words {
			mark = (mark ^ w) * 1099511628211
		}
	}
	for t := range c.slotsOn(k) {
		if len(t.clients()) == 0 {
			continue // when they were there, the mark had them
		}
		mix(uint64(t.share.created.UnixNano()), t.busy)
		for b := range t.balances {
			c.usedBy(b)
			if b.reading.InFlightNs > 0 || b.awaited() {
				return mark, false
			}
			mix(uint64(b.id), b.reading.Launches, b.reading.BusyNs)
		}
	}
	return mark, true
}

// Programs is how many clients the shares on a card have.
func (c *Core) Programs(cardUUID string) (n int) {
	if k := c.cardOf(cardUUID); k != nil {
		for t := range c.slotsOn(k) {
			n += len(t.clients())
		}
	}
	return n
}

// measured is what a slot's processes have said last that they used, gone ones included.
func (t *slot) measured() uint64 {
	sum := t.busy
	for b := range t.balances {
		sum += b.work.told.busy
	}
	return sum
}

// MeasuredNs is what the processes of a slot have said last that they used of its card.
func (c *Core) MeasuredNs(of Slot) uint64 {
	if t := c.slot(of.Share, of.Number); t != nil {
		return t.measured()
	}
	return 0
}

// ClientIDs lists all clients, in no order.
func (c *Core) ClientIDs() []ClientID {
	ids := make([]ClientID, 0, len(c.clients))
	return slices.AppendSeq(ids, maps.Keys(c.clients))
}

// Measure reads what these clients say of themselves, and orders to save what has changed.
// It reads what they say, not what is asked of them: an agent that is killed has lost what came since.
// It returns the names of their shares, and whether something has in them.
func (c *Core) Measure(now time.Time, ids []ClientID) (busy map[string]bool) {
	busy = map[string]bool{}
	for _, id := range ids {
		cl := c.clients[id]
		if cl == nil {
			continue
		}
		changed := false
		for _, b := range cl.balances {
			c.usedNow(now, b)
			b.still.look(now, b.reading)
			if saved := b.savedWork(); saved != b.kept {
				b.kept, changed = saved, true
			}
		}
		if changed {
			c.orders.SaveWork = append(c.orders.SaveWork, id)
		}
		busy[cl.share.Name] = busy[cl.share.Name] || changed
	}
	return busy
}

// MeasureShare does the same with a share's own figures. What all of its clients use together is
// looked at if one of them is busy.
func (c *Core) MeasureShare(now time.Time, name string, busy bool) {
	s := c.byName[name]
	if s == nil {
		return
	}
	changed := false
	c.billAll(now, s) // what it holds changes
	for _, t := range s.slots {
		if busy {
			c.observeLately(now, t)
		}
		if f := t.figures(); f != t.kept {
			t.kept, changed = f, true
		}
	}
	if changed {
		c.orders.SaveFigures = append(c.orders.SaveFigures, name)
	}
}

// SavedWork returns what to save of what a client said, by slot; false: it is gone.
func (c *Core) SavedWork(id ClientID) ([]SavedWork, bool) {
	cl := c.clients[id]
	if cl == nil {
		return nil, false
	}
	work := make([]SavedWork, 0, len(cl.balances))
	for _, b := range cl.balances {
		work = append(work, b.savedWork())
	}
	return work, true
}

// SavedFigures returns a share's own figures; false: it is gone.
func (c *Core) SavedFigures(name string) (SavedFigures, bool) {
	s := c.byName[name]
	if s == nil {
		return SavedFigures{}, false
	}
	saved := SavedFigures{Share: name}
	for _, t := range s.slots {
		saved.Slots = append(saved.Slots, t.saved())
	}
	return saved, true
}

// SetFigures is the reverse, of slots that are still the same.
func (s *SavedShare) SetFigures(f SavedFigures) {
	for i, slot := range f.Slots {
		switch {
		case i == 0 && slot.CardUUID == s.CardUUID:
			s.SavedSlot = slot
		case i > 0 && i <= len(s.More) && slot.CardUUID == s.More[i-1].CardUUID:
			s.More[i-1] = slot
		}
	}
}
