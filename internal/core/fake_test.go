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

type fakePage struct {
	Reading
	smashed bool
}

func newFakePages() *fakePages { return &fakePages{pages: map[ClientID]*fakePage{}} }

func (f *fakePages) Recall(id ClientID, granted, most uint64) uint64 {
	p := f.pages[id]
	if p.GrantedBytes != granted {
		return 0
	}
	n := min(most, p.CreditBytes)
	p.GrantedBytes -= n
	p.CreditBytes -= n
	return n
}

func (f *fakePages) Grant(id ClientID, bytes uint64) {
	f.pages[id].GrantedBytes += bytes
	f.pages[id].CreditBytes += bytes
}

func (f *fakePages) Charge(id ClientID, bytes uint64) { f.pages[id].GrantedBytes += bytes }

func (f *fakePages) Hold(id ClientID, bytes uint64) {
	f.pages[id].GrantedBytes, f.pages[id].CreditBytes = bytes, 0
}

func (f *fakePages) Read(id ClientID) (Reading, bool) {
	p := f.pages[id]
	return p.Reading, !p.smashed
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
	used := old.GrantedBytes - old.CreditBytes
	if err := f.core.CheckToken(now, id, share, process); err != nil {
		return err
	}
	f.pages[id] = &fakePage{}
	return f.core.Reattach(now, id, share, process, used)
}

// alloc is the front library's way, in whole Units: credit when there is enough and the share
// is not tight, else a charge.
func (f *fakePages) alloc(now time.Time, id ClientID, bytes uint64) (Answer, string) {
	p := f.pages[id]
	cl := f.core.clients[id]
	tight := cl != nil && (cl.share.tight || cl.share.revoked)
	if !tight && p.CreditBytes >= up(bytes) {
		p.CreditBytes -= up(bytes)
		p.peak()
		return Answer{Client: id, Granted: true}, "credit"
	}
	a := f.core.Charge(now, id, Charge{Bytes: bytes, Call: "cuMemAlloc", Final: true})
	if a.Granted {
		p.peak()
	}
	return a, "asked"
}

func (p *fakePage) peak() { p.PeakBytes = max(p.PeakBytes, p.GrantedBytes-p.CreditBytes) }

func (f *fakePages) free(id ClientID, bytes uint64) { f.pages[id].CreditBytes += bytes }

// check says which rule of the ledger does not hold.
func (c *Core) check() error {
	pools := map[*pool]uint64{}
	for _, s := range c.shares {
		for _, cl := range s.clients.all {
			pools[s.pool] += cl.granted
		}
		if _, ok := pools[s.pool]; !ok {
			pools[s.pool] = 0
		}
		if c.byName[s.Name] != s {
			return fmt.Errorf("share %s cannot be found", s.Name)
		}
	}
	for p, sum := range pools {
		if sum != p.granted {
			return fmt.Errorf("pool says %d granted, its clients %d", p.granted, sum)
		}
		over := p.granted > p.limit(c)
		if p.share != nil && over != p.share.tight && !p.share.revoked {
			return fmt.Errorf("share %s: granted %d of %d, tight %v", p.share.Name, p.granted, p.share.limit, p.share.tight)
		}
		if p.share == nil && over {
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
