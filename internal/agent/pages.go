// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"github.com/divvy-gpu/divvy/internal/core"
	"github.com/divvy-gpu/divvy/internal/share"
	"github.com/divvy-gpu/divvy/internal/socket"
	"github.com/divvy-gpu/divvy/internal/wire"
)

// theSlot is the only slot of a share's table of cards: pages and messages go by slot,
// the core gives a share one card.
const theSlot = 0

// member is what the loop holds of one client besides its place in the core.
type member struct {
	share     string
	turn      uint64           // of its launches, among those of other processes
	page      *wire.ClientPage // nil until a client of an earlier life is back
	inode     uint64           // of the page, 0 without one
	conn      *connection      // nil while it is detached
	process   *socket.Process
	insidePID int              // in its own pid namespace
	namespace string           // its pid namespace
	waiter    chan core.Answer // of a charge, of one; nil: it waits for none
	scanned   bool             // for holders of its memory
	refused   bool             // for its version, which was told
	pending   pendingGrant
	level     share.Enforcement
}

// pendingGrant is what a client has been granted and its page does not say yet.
type pendingGrant struct {
	credit, used uint64
	charged      bool
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
	unwritten []*member
}

var (
	_ core.Credits                              = (*pages)(nil)
	_ [core.Unit - wire.AllocationUnit]struct{} // the two are the same
	_ [wire.AllocationUnit - core.Unit]struct{}
)

// member returns whose page can be used.
func (p *pages) member(id core.ClientID) *member {
	if m := p.of[id]; m != nil && m.page != nil {
		return m
	}
	return nil
}

func (p *pages) Recall(id core.ClientID, granted, most uint64) uint64 {
	m := p.member(id)
	if m == nil {
		return 0
	}
	n := min(most, m.pending.credit)
	m.pending.credit -= n
	return n + m.page.Recall(theSlot, granted-n-m.pending.credit-m.pending.used, most-n)
}

func (p *pages) Grant(id core.ClientID, bytes uint64) { p.add(id, pendingGrant{credit: bytes}) }

func (p *pages) Charge(id core.ClientID, bytes uint64) {
	p.add(id, pendingGrant{used: bytes, charged: true})
}

func (p *pages) add(id core.ClientID, more pendingGrant) {
	m := p.member(id)
	if m == nil {
		return
	}
	p.unwritten = append(p.unwritten, m)
	m.pending.credit += more.credit
	m.pending.used += more.used
	m.pending.charged = m.pending.charged || more.charged
}

// write puts on the pages what has been granted.
func (p *pages) write() {
	for _, m := range p.unwritten {
		if m.page != nil && m.pending != (pendingGrant{}) {
			m.page.Grant(theSlot, m.pending.credit, m.pending.used, m.pending.charged)
		}
		m.pending = pendingGrant{}
	}
	clear(p.unwritten)
	p.unwritten = p.unwritten[:0]
}

func (p *pages) Hold(id core.ClientID, bytes uint64) {
	if m := p.member(id); m != nil {
		m.pending = pendingGrant{}
		m.page.Hold(theSlot, bytes)
	}
}

func (p *pages) Read(id core.ClientID) (core.Reading, bool) {
	m := p.member(id)
	if m == nil {
		return core.Reading{}, true
	}
	page, n := m.page, m.page.Counters(theSlot)
	return core.Reading{
		GrantedBytes: n.GrantedBytes + m.pending.credit + m.pending.used,
		CreditBytes:  n.CreditBytes + m.pending.credit, ContextBytes: n.ContextBytes, PeakBytes: n.PeakBytes,
		Allocations: n.Allocations, Launches: n.Launches,
		BusyNs: n.BusyNs, WaitNs: n.WaitNs, LateNs: n.LateNs, InFlightNs: n.InFlightNs, DrainNs: n.DrainNs, LastEndNs: n.LastEndNs,
		KernelNs: n.KernelNs, SpanNs: n.SpanNs, GapNs: n.GapNs, AtNs: wire.MonotonicNs(),
	}, page.Valid()
}

// words are what the limits page of a share says.
func words(v core.ShareView) wire.Words {
	w := wire.Words{Clients: uint32(v.Clients), Policy: policies[v.Policy], Cards: 1}
	card := &w.Card[theSlot]
	*card = wire.CardWords{
		UUID: v.CardUUIDBytes, LimitBytes: v.LimitBytes, UsedBytes: v.UsedBytes, ContextBytes: v.CardContextBytes,
		CoresPercent: uint32(v.CoresPercent),
	}
	if v.Tight {
		card.Flags |= wire.CardTight
	}
	if v.Unlimited {
		card.Flags |= wire.CardUnlimited
	}
	if v.State == core.StateRevoked {
		// Its quota is nothing; the page still needs a number that makes sense.
		card.LimitBytes = max(v.UsedBytes, wire.AllocationUnit)
	}
	return w
}

var policies = map[share.Policy]uint32{
	share.BestEffort: wire.PolicyBestEffort, share.Equal: wire.PolicyEqual, share.Fixed: wire.PolicyFixed, share.Weighted: wire.PolicyWeighted,
}
