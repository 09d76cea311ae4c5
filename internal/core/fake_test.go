// SPDX-License-Identifier: Apache-2.0

package core

import (
	"fmt"
	"time"
)

// fakePages are the pages of clients, in memory, and the front libraries that
// use them.
type fakePages struct {
	core  *Core
	pages map[ClientID]*fakePage
}

// fakePage has one word per slot; tests of shares with one card use that of the first.
type fakePage struct {
	Reading
	more    [MaxSlots - 1]Reading
	smashed bool
}

func (p *fakePage) slot(number int) *Reading {
	if number == 0 {
		return &p.Reading
	}
	return &p.more[number-1]
}

func newFakePages() *fakePages { return &fakePages{pages: map[ClientID]*fakePage{}} }

func (f *fakePages) Recall(id ClientID, slot int, granted, most uint64) uint64 {
	p := f.pages[id].slot(slot)
	if p.GrantedBytes != granted {
		return 0
	}
	n := min(most, p.CreditBytes)
	p.GrantedBytes -= n
	p.CreditBytes -= n
	return n
}

func (f *fakePages) Grant(id ClientID, slot int, bytes uint64) {
	p := f.pages[id].slot(slot)
	p.GrantedBytes += bytes
	p.CreditBytes += bytes
}

func (f *fakePages) Charge(id ClientID, slot int, bytes uint64) {
	f.pages[id].slot(slot).GrantedBytes += bytes
}

func (f *fakePages) Hand(id ClientID, slot int, bytes uint64) { f.Charge(id, slot, bytes) }

func (f *fakePages) Discharge(id ClientID, slot int, bytes uint64) {
	f.pages[id].slot(slot).GrantedBytes -= bytes
}

func (f *fakePages) Hold(id ClientID, slot int, bytes uint64) {
	p := f.pages[id].slot(slot)
	p.GrantedBytes, p.CreditBytes = bytes, 0
}

func (f *fakePages) Read(id ClientID, slot int) (Reading, bool) {
	p := f.pages[id]
	return *p.slot(slot), !p.smashed
}

func (f *fakePages) attach(now time.Time, id ClientID, share string, process Process) error {
	f.pages[id] = &fakePage{}
	err := f.core.Attach(now, id, share, process)
	if err != nil {
		delete(f.pages, id)
	}
	return err
}

// comeBack is what a front library does after an agent restart, with a page
// that the agent makes anew.
func (f *fakePages) comeBack(now time.Time, id ClientID, share string, process Process) error {
	old := f.pages[id]
	var used []uint64
	for number := range MaxSlots {
		r := old.slot(number)
		used = append(used, r.GrantedBytes-r.CreditBytes)
	}
	if err := f.core.CheckToken(now, id, share, process); err != nil {
		return err
	}
	f.pages[id] = &fakePage{}
	return f.core.Reattach(now, id, share, process, used)
}

// alloc is the front library's way, in whole Units: credit when there is enough and the share
// is not tight, else a charge.
func (f *fakePages) alloc(now time.Time, id ClientID, bytes uint64) (Answer, string) {
	return f.allocOn(now, id, 0, bytes)
}

func (f *fakePages) allocOn(now time.Time, id ClientID, slot int, bytes uint64) (Answer, string) {
	p := f.pages[id].slot(slot)
	b := f.core.balanceOf(id, slot)
	tight := b != nil && (b.slot.tight || b.share.revoked)
	if !tight && p.CreditBytes >= up(bytes) {
		p.CreditBytes -= up(bytes)
		p.peak()
		return Answer{Client: id, Slot: slot, Granted: true}, "credit"
	}
	a := f.core.Charge(now, id, Charge{Slot: slot, Bytes: bytes, Call: "cuMemAlloc", Final: true})
	if a.Granted {
		p.peak()
	}
	return a, "asked"
}

func (r *Reading) peak() { r.PeakBytes = max(r.PeakBytes, r.GrantedBytes-r.CreditBytes) }

func (f *fakePages) free(id ClientID, bytes uint64) { f.freeOn(id, 0, bytes) }

func (f *fakePages) freeOn(id ClientID, slot int, bytes uint64) {
	f.pages[id].slot(slot).CreditBytes += bytes
}

// check says which rule of the ledger does not hold.
func (c *Core) check() error {
	pools := map[*pool]uint64{}
	for _, s := range c.shares {
		for _, t := range s.slots {
			pools[t.pool] += 0
			for b := range t.balances {
				pools[t.pool] += b.granted
				if b.slot != t || b.number() != t.number || t.promised() != s.promised() {
					return fmt.Errorf("share %s: slot %d is confused", s.Name, t.number)
				}
			}
		}
		if c.byName[s.Name] != s {
			return fmt.Errorf("share %s cannot be found", s.Name)
		}
	}
	if is := c.wakeOfShares(); c.sharesWake.known && !c.sharesWake.at.Equal(is) {
		return fmt.Errorf("the first share is thought to have something to do at %v, which is %v", c.sharesWake.at, is)
	}
	for p, sum := range pools {
		if sum != p.granted {
			return fmt.Errorf("pool says %d granted, its clients %d", p.granted, sum)
		}
		over := p.granted > p.limit(c)
		if t := p.slot; t != nil && over != t.tight && !t.share.revoked {
			return fmt.Errorf("share %s: granted %d of %d, tight %v", t.share.Name, p.granted, t.limit, t.tight)
		}
		if p.slot == nil && over {
			return fmt.Errorf("granted %d of the %d that %s has left over", p.granted, p.limit(c), p.card.Name)
		}
	}
	for _, k := range c.cards {
		if sum := c.booked(k) + k.rest.granted; sum > k.UsableBytes {
			return fmt.Errorf("%s: %d of %d given away", k.Name, sum, k.UsableBytes)
		}
	}
	return nil
}
