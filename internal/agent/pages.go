// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"time"

	"github.com/divvy-gpu/divvy/internal/core"
	"github.com/divvy-gpu/divvy/internal/share"
	"github.com/divvy-gpu/divvy/internal/socket"
	"github.com/divvy-gpu/divvy/internal/wire"
)

// member is what the loop holds of one client besides its place in the core.
type member struct {
	share     string
	turn      uint64           // of its launches, among those of other processes
	page      *wire.ClientPage // nil until a client of an earlier life is back
	inode     uint64           // of the page, 0 without one
	conn      *connection      // nil while it is detached
	process   *socket.Process
	insidePID int                         // in its own pid namespace
	namespace string                      // its pid namespace
	waiter    chan core.Answer            // of a charge, of one; nil: it waits for none
	scanned   bool                        // for holders of its memory
	refused   bool                        // for its version, which was told
	pending   [wire.MaxCards]pendingGrant // by slot
	level     share.Enforcement
}

// pendingGrant is what a client has been granted in a slot and its page does not say yet.
type pendingGrant struct {
	credit, used, less uint64 // less: what is discharged
	charged            bool
}

// dropWaiter lets go of who waits for an answer that will not come.
func (m *member) dropWaiter() {
	if m.waiter != nil {
		close(m.waiter)
		m.waiter = nil
	}
}

// pages are the pages of all members, as the core reads and writes them. What
// is taken from a client is off its page at once. What it is granted is on its
// page only after it has been saved (write): whenever the agent is killed, the
// journal knows of all that clients can use.
type pages struct {
	of        map[core.ClientID]*member
	clock     func() time.Duration
	unwritten []*member
}

var (
	_ core.Credits                              = (*pages)(nil)
	_ [core.Unit - wire.AllocationUnit]struct{} // the two are the same
	_ [wire.AllocationUnit - core.Unit]struct{}
	_ [wire.MaxCards - core.MaxSlots]struct{} // a page has room for all slots
)

// member returns whose page can be used.
func (p *pages) member(id core.ClientID) *member {
	if m := p.of[id]; m != nil && m.page != nil {
		return m
	}
	return nil
}

func (p *pages) Recall(id core.ClientID, slot int, granted, most uint64) uint64 {
	m := p.member(id)
	if m == nil {
		return 0
	}
	pending := &m.pending[slot]
	n := min(most, pending.credit)
	pending.credit -= n
	return n + m.page.Recall(slot, granted-n-pending.credit-pending.used+pending.less, most-n)
}

func (p *pages) Grant(id core.ClientID, slot int, bytes uint64) {
	p.add(id, slot, pendingGrant{credit: bytes})
}

func (p *pages) Charge(id core.ClientID, slot int, bytes uint64) {
	p.add(id, slot, pendingGrant{used: bytes, charged: true})
}

// Hand is a Charge that the process has not asked for.
func (p *pages) Hand(id core.ClientID, slot int, bytes uint64) {
	p.add(id, slot, pendingGrant{used: bytes})
}

func (p *pages) Discharge(id core.ClientID, slot int, bytes uint64) {
	p.add(id, slot, pendingGrant{less: bytes})
}

func (p *pages) add(id core.ClientID, slot int, more pendingGrant) {
	m := p.member(id)
	if m == nil {
		return
	}
	p.unwritten = append(p.unwritten, m)
	pending := &m.pending[slot]
	pending.credit += more.credit
	pending.used += more.used
	pending.less += more.less
	pending.charged = pending.charged || more.charged
}

// write puts on the pages what has been granted, and then takes off what one process has
// handed on to another: for a moment both have it, never none.
func (p *pages) write() {
	for _, m := range p.unwritten {
		for slot := range m.pending {
			if pending := &m.pending[slot]; m.page != nil && pending.credit+pending.used > 0 {
				m.page.Grant(slot, pending.credit, pending.used, pending.charged)
				*pending = pendingGrant{less: pending.less}
			}
		}
	}
	for _, m := range p.unwritten {
		for slot := range m.pending {
			if pending := &m.pending[slot]; *pending != (pendingGrant{}) {
				if m.page != nil && pending.less > 0 {
					m.page.Discharge(slot, pending.less)
				}
				*pending = pendingGrant{}
			}
		}
	}
	clear(p.unwritten)
	p.unwritten = p.unwritten[:0]
}

func (p *pages) Hold(id core.ClientID, slot int, bytes uint64) {
	if m := p.member(id); m != nil {
		m.pending[slot] = pendingGrant{}
		m.page.Hold(slot, bytes)
	}
}

func (p *pages) Read(id core.ClientID, slot int) (core.Reading, bool) {
	m := p.member(id)
	if m == nil {
		return core.Reading{}, true
	}
	page, n, pending := m.page, m.page.Counters(slot), &m.pending[slot]
	return core.Reading{
		GrantedBytes: n.GrantedBytes + pending.credit + pending.used - pending.less,
		CreditBytes:  n.CreditBytes + pending.credit, ContextBytes: n.ContextBytes, PeakBytes: n.PeakBytes,
		Allocations: n.Allocations, Launches: n.Launches,
		BusyNs: n.BusyNs, WaitNs: n.WaitNs, LateNs: n.LateNs, InFlightNs: n.InFlightNs, DrainNs: n.DrainNs, LastEndNs: n.LastEndNs,
		KernelNs: n.KernelNs, SpanNs: n.SpanNs, GapNs: n.GapNs, AtNs: uint64(p.clock()),
	}, page.Valid()
}

// words are what the limits page of a share says.
func words(v core.ShareView) wire.Words {
	w := wire.Words{Clients: uint32(v.Clients), Policy: policies[v.Policy], Cards: uint32(len(v.Slots))}
	for i, of := range v.Slots {
		if of.ParkedBytes > 0 {
			w.Clients = max(w.Clients, 1) + 1 // no page of one process is the whole truth
		}
		card := &w.Card[i]
		*card = wire.CardWords{
			UUID: of.CardUUIDBytes, LimitBytes: of.LimitBytes, UsedBytes: of.UsedBytes, ContextBytes: of.CardContextBytes,
			CoresPercent: uint32(v.CoresPercent),
		}
		if of.Tight {
			card.Flags |= wire.CardTight
		}
		if of.Unlimited {
			card.Flags |= wire.CardUnlimited
		}
		if v.State == core.StateRevoked {
			// Its quota is nothing; the page still needs a number that makes sense.
			card.LimitBytes = max(of.UsedBytes, wire.AllocationUnit)
		}
	}
	return w
}

var policies = map[share.Policy]uint32{
	share.BestEffort: wire.PolicyBestEffort, share.Equal: wire.PolicyEqual, share.Fixed: wire.PolicyFixed, share.Weighted: wire.PolicyWeighted,
}
