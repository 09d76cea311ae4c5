// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/core"
	"github.com/divvy-gpu/divvy/internal/socket"
	"github.com/divvy-gpu/divvy/internal/wire"
)

// theSlot is the only slot of a share's table of cards: a share has one card.
const theSlot = 0

// member is what the agent holds of one client besides its place in the core.
// It belongs to the loop.
type member struct {
	share     string
	turn      uint64           // of its launches, among those of other processes
	page      *wire.ClientPage // nil until a client of an earlier life is back
	inode     uint64           // of the page, 0 without one
	conn      *connection      // nil while it is detached
	process   *socket.Process
	insidePID int    // in its own pid namespace
	namespace string // its pid namespace
	waiter    *waiter
	scanned   bool // for holders of its memory
	level     api.Enforcement
}

// waiter is a connection that waits for the answer to a charge.
type waiter struct {
	sequence uint32
	answer   chan core.Answer // of one
}

// pages are the pages of all members, as the core reads and writes them.
type pages map[core.ClientID]*member

var _ core.Credits = pages{}

func (p pages) page(id core.ClientID) *wire.ClientPage {
	if m := p[id]; m != nil {
		return m.page
	}
	return nil
}

func (p pages) Take(id core.ClientID, most uint64) uint64 {
	if page := p.page(id); page != nil {
		return page.TakeUpTo(theSlot, most)
	}
	return 0
}

func (p pages) Give(id core.ClientID, bytes uint64) {
	if page := p.page(id); page != nil {
		page.Give(theSlot, bytes)
	}
}

func (p pages) SetGranted(id core.ClientID, bytes uint64) {
	if page := p.page(id); page != nil {
		page.SetGranted(theSlot, bytes)
	}
}

func (p pages) Read(id core.ClientID) (core.Reading, bool) {
	page := p.page(id)
	if page == nil {
		return core.Reading{}, true
	}
	n := page.Counters(theSlot)
	return core.Reading{
		CreditBytes: n.CreditBytes, ContextBytes: n.ContextBytes, PeakBytes: n.PeakBytes,
		Allocations: n.Allocations, Denials: n.Denials, Launches: n.Launches,
		BusyNs: n.BusyNs, WaitNs: n.WaitNs, LateNs: n.LateNs, InFlightNs: n.InFlightNs, DrainNs: n.DrainNs, LastEndNs: n.LastEndNs,
		KernelNs: n.KernelNs,
	}, page.Valid()
}

// words are what the limits page of a share says.
func words(v core.ShareView) wire.Words {
	w := wire.Words{
		State: wire.StateActive, Clients: uint32(v.Clients), Policy: policies[v.Policy],
		Priority: uint32(v.Priority), Weight: uint32(v.Weight), Cards: 1,
	}
	card := &w.Card[theSlot]
	*card = wire.CardWords{
		UUID: v.CardUUIDBytes, LimitBytes: v.LimitBytes, UsedBytes: v.UsedBytes, ContextBytes: v.CardContextBytes,
		TotalBytes: v.CardBytes, CoresPercent: uint32(v.CoresPercent),
	}
	if v.Tight {
		card.Flags |= wire.CardTight
	}
	if v.Unlimited {
		card.Flags |= wire.CardUnlimited
	}
	if v.Paused {
		w.State = wire.StatePaused
	}
	if v.State == core.StateRevoked {
		// Its quota is nothing; the page still needs a number that makes sense.
		w.State, card.LimitBytes = wire.StateRevoked, max(v.UsedBytes, wire.AllocationUnit)
	}
	return w
}

var policies = map[core.Policy]uint32{
	core.BestEffort: wire.PolicyBestEffort, core.Equal: wire.PolicyEqual, core.Fixed: wire.PolicyFixed, core.Weighted: wire.PolicyWeighted,
}
