// SPDX-License-Identifier: Apache-2.0

package core

import (
	"container/list"
	"time"

	"github.com/divvy-gpu/divvy/internal/size"
)

// balance is what a client has of one GPU of its share.
type balance struct {
	*client
	slot    *slot
	granted uint64
	own     uint64 // of a client that others were merged into: what it was granted itself
	gone    bool   // the client ends, and the driver holds nothing for it on this GPU
	moved   int64  // of memory with names, was handed to it (or taken off) while it is awaited: it does not know

	granteds uint64 // the most that was ever granted
	peak     uint64
	reading  Reading // the last good one
	work     work
	kept     SavedWork // as given to be saved last
	still    still
	driver   *uint64 // held, by the driver's account

	member      int           // its place in the pool
	ender       *list.Element // among those of the card that have ended
	lively      bool          // is in the slot's list of those
	livelyUntil time.Time
}

func (b *balance) contextBytes() uint64 { return min(b.reading.ContextBytes, b.granted) }

// agrees is true of a reading that is in line with what the client has been granted.
func (b *balance) agrees(r Reading) bool {
	return r.GrantedBytes == b.granted && r.CreditBytes <= b.granted
}

func (b *balance) launches() uint64 { return b.work.told.launches }

// number is the GPU's inside the share.
func (b *balance) number() int { return b.slot.number }

// granted is what a client has been granted on all its GPUs together.
func (cl *client) granted() (sum uint64) {
	for _, b := range cl.balances {
		sum += b.granted
	}
	return sum
}

func (cl *client) peak() (sum uint64) {
	for _, b := range cl.balances {
		sum += b.peak
	}
	return sum
}

// balance is what a client has in a slot; nil: its share has no such slot.
func (cl *client) balance(number int) *balance {
	if cl == nil || number < 0 || number >= len(cl.balances) {
		return nil
	}
	return cl.balances[number]
}

// balanceOf finds what a client has in a slot; nil: there is no such client, or slot.
func (c *Core) balanceOf(id ClientID, number int) *balance { return c.clients[id].balance(number) }

// BalanceView is what a client holds of one GPU of its share.
type BalanceView struct {
	CardUUID     string
	UsedBytes    uint64
	ContextBytes uint64
	GrantedBytes uint64
	PeakBytes    uint64
	DriverBytes  *uint64
	Allocations  uint64
	Launches     uint64
	CardTimeNs   uint64 // that it measured
	WaitNs       uint64 // that its launches waited
	KernelNs     uint64 // the longest that it launches lately; 0: unknown
	// StuckSince is since when nothing that it launched has ended, where that was told; zero:
	// it was not.
	StuckSince time.Time
}

func (c *Core) viewBalance(b *balance) BalanceView {
	used := c.usedBy(b)
	v := BalanceView{
		CardUUID: b.slot.card.UUID, UsedBytes: used, ContextBytes: min(b.contextBytes(), used), GrantedBytes: b.granted,
		PeakBytes: b.peak, DriverBytes: b.driver, Allocations: b.reading.Allocations, Launches: b.launches(),
		CardTimeNs: b.work.told.busy, WaitNs: b.work.told.wait,
	}
	if b.state == Attached {
		v.KernelNs = min(b.reading.KernelNs, mostNanoseconds)
	}
	if b.still.told {
		v.StuckSince = b.still.since
	}
	return v
}

// amounts are the bytes of each GPU of a share: their sum, which events have.
type amounts []uint64

func (a amounts) of(number int) uint64 {
	if number < len(a) {
		return a[number]
	}
	return 0
}

func (a amounts) sum() (sum uint64) {
	for _, n := range a {
		sum += n
	}
	return sum
}

func (a amounts) String() string { return size.Short(a.sum()) }
