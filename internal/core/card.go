// SPDX-License-Identifier: Apache-2.0

package core

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/internal/placement"
	"github.com/divvy-gpu/divvy/internal/selector"
	terms "github.com/divvy-gpu/divvy/internal/share"
	"github.com/divvy-gpu/divvy/internal/size"
)

// Card is what the ledger has to know of a card.
type Card struct {
	UUID         string // GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx
	UUIDBytes    [16]byte
	Name         string
	PCIAddress   string
	UsableBytes  uint64
	ContextBytes uint64 // what one context costs
	Island       int    // cards of one number are linked (NVLink, XGMI)
}

type card struct {
	Card
	rest *pool // of the shares without a promise

	absent bool // the driver does not show it any more

	// by the driver's account, when it was last asked
	driverUsed  uint64
	drift       int64
	unaccounted unaccounted
	named       bool      // it has named a process of ours
	unseen      time.Time // since when it names none, though they use memory
	blind       bool      // it cannot: what it does not name may be there

	condition Condition
	detail    string
	wellSince time.Time // of a condition of well
	enders    enders

	cordon  *Cordon           // nil: none
	faulted time.Time         // when a fault cordoned it last, or would have
	faults  map[string]uint64 // by class
	xids    map[uint64]uint64 // how often each was told
	lastXID uint64            // 0: none was, or it is not known
}

// CardView is a card and what is promised of it.
type CardView struct {
	Card
	DriverUsedBytes uint64
	BookedBytes     uint64
	FreeToBookBytes uint64
	CoresBooked     int
	Shares          int
	UnledgeredBytes uint64
	DriftBytes      int64
	Condition       Condition
	Detail          string // why it is not well
	Cordon          *Cordon
	Faults          map[string]uint64 // by class
	XIDs            map[uint64]uint64 // how often each was told
	LastXID         uint64            // 0: none was, or it is not known
}

// Cards lists the cards in their order.
func (c *Core) Cards() []CardView {
	views := make([]CardView, len(c.cards))
	for i, k := range c.cards {
		v := CardView{
			Card: k.Card, DriverUsedBytes: k.driverUsed, UnledgeredBytes: k.unaccounted.bytes, DriftBytes: k.drift,
			BookedBytes: c.booked(k), FreeToBookBytes: c.vacancy(k, nil).MemoryBytes, CoresBooked: c.coresBooked(k, nil),
			Condition: k.condition, Detail: k.detail, Cordon: k.cordon, Faults: maps.Clone(k.faults), XIDs: maps.Clone(k.xids), LastXID: k.lastXID,
		}
		for _, s := range c.shares {
			if s.slotOn(k) != nil {
				v.Shares++
			}
		}
		if c.exclusive(k) != nil {
			v.BookedBytes = k.UsableBytes
		}
		views[i] = v
	}
	return views
}

// booked is what shares hold of a card by promise: their quota, or what they
// were granted while that is more (a quota that was lowered, a share that was
// deleted under its clients).
func (c *Core) booked(k *card) uint64 {
	var sum uint64
	for t := range c.slotsOn(k) {
		if t.promised() {
			sum += max(t.limit, t.pool.granted)
		}
	}
	return sum
}

// inTheWay is what of a card cannot be promised to a new share, or to one that has a slot there:
// what others are promised, and what those use that have no promise. Their unused credit can.
func (c *Core) inTheWay(k *card, except *slot) (booked, inUse uint64) {
	booked, inUse = c.booked(k), c.used(k.rest)
	switch {
	case except == nil:
	case except.promised():
		booked -= max(except.limit, except.pool.granted)
	default:
		inUse -= c.usedIn(except)
	}
	return booked, inUse
}

// vacancy is what a new share can be promised of a card, or one that has a slot there. Memory
// that no ledger knows is in its way.
func (c *Core) vacancy(k *card, except *slot) placement.Vacancy {
	v := placement.Vacancy{GPUMilli: percentMilli(100 - c.coresBooked(k, except)), Island: k.Island, Model: k.Name}
	if booked, inUse := c.inTheWay(k, except); c.exclusive(k) == nil {
		v.MemoryBytes = less(k.UsableBytes, booked+inUse+k.unaccounted.unpromised)
	}
	return v
}

func (c *Core) coresBooked(k *card, except *slot) int {
	sum := 0
	for t := range c.slotsOn(k) {
		switch s := t.share; {
		case t == except || s.revoked:
		case s.Exclusive:
			return 100
		case s.Policy == terms.Fixed:
			sum += s.CoresPercent
		}
	}
	return sum
}

// exclusive is the share that has a card for itself; nil: none has. One that is deleted
// has it until its last program has ended.
func (c *Core) exclusive(k *card) *share {
	for t := range c.slotsOn(k) {
		if t.share.Exclusive {
			return t.share
		}
	}
	return nil
}

// checkExclusive says who stands in the way of one more share on a card, if somebody does.
func (c *Core) checkExclusive(k *card, spec *Spec) *Failure {
	if holder := c.exclusive(k); holder != nil {
		return noRoom(Missing{MemoryBytes: spec.MemoryBytes, CoresPercent: spec.CoresPercent}, "share %q has the whole of %s", holder.Name, k.Name).
			hint("divvy share list")
	}
	if !spec.Exclusive {
		return nil
	}
	for t := range c.slotsOn(k) {
		return noRoom(Missing{MemoryBytes: less(k.UsableBytes, c.vacancy(k, nil).MemoryBytes), CoresPercent: c.coresBooked(k, nil)},
			"share %q is on %s: an exclusive one is made where none is", t.share.Name, k.Name).hint("divvy share list")
	}
	return nil
}

// milli is what a share is promised of a card's cores, in thousandths.
func (s Spec) milli() int64 {
	if s.Policy != terms.Fixed {
		return 0
	}
	return percentMilli(s.CoresPercent)
}

func percentMilli(percent int) int64 { return int64(percent) * placement.WholeCard / 100 }

// find looks a card up by UUID, a prefix of it, or PCI address.
func (c *Core) find(word string) (*card, *Failure) {
	var found []*card
	for _, k := range c.cards {
		switch selector.Names(word, k.UUID, k.PCIAddress) {
		case selector.Whole:
			return k, nil
		case selector.Part:
			found = append(found, k)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		f := refuse(NotFound, "no GPU %q", word)
		if _, err := strconv.Atoi(word); err == nil && len(word) < 4 {
			f = refuse(NotFound, "no GPU %q: GPUs go by UUID or PCI address, never by number", word)
		}
		return nil, f.hint("divvy devices")
	}
	return nil, refuse(Usage, "%q means %d GPUs", word, len(found)).hint("divvy devices shows their full UUIDs")
}

// checkRoom says why a card cannot promise so much more, if it cannot: to a new share, or to one
// that has a slot there.
func (c *Core) checkRoom(k *card, milli int64, bytes uint64, except *slot) *Failure {
	v := c.vacancy(k, except)
	if v.Hosts(milli, bytes) {
		return nil
	}
	if v.GPUMilli < milli {
		percent, left := int(milli*100/placement.WholeCard), int(v.GPUMilli*100/placement.WholeCard)
		return noRoom(Missing{CoresPercent: percent - left}, "%s has %d%% of its cores left to promise, not %d%%", k.Name, left, percent).
			hint("ask for at most %d%%, or for another policy than fixed", left)
	}
	return c.lacksMemory(k, bytes, except)
}

// lacksMemory says why a card cannot promise need bytes more.
func (c *Core) lacksMemory(k *card, need uint64, except *slot) *Failure {
	if need > k.UsableBytes {
		return refuse(NotAllowed, "a share of %s is larger than the GPU: %s has %s", size.Short(need), k.Name, size.Short(k.UsableBytes)).
			hint("ask for at most %s", size.Format(k.UsableBytes/size.MiB*size.MiB))
	}
	booked, inUse := c.inTheWay(k, except)
	unledgered := k.unaccounted.unpromised
	why, who := "", "end those programs"
	room := less(k.UsableBytes, booked)
	switch {
	case need > room:
		who = "see who holds the rest: divvy share list"
	case unledgered > 0:
		room = less(room, inUse+unledgered)
		why = fmt.Sprintf(": %s of it are held and on no ledger (%s)", size.Short(unledgered), k.unaccounted.largest())
	default:
		room = less(room, inUse)
		why = fmt.Sprintf(": shares without a quota use %s (%s)", size.Short(inUse), c.holders(k.rest, except))
	}
	return noRoom(Missing{MemoryBytes: need - room}, "%s has %s left to promise, not %s%s", k.Name, size.Short(room), size.Short(need), why).
		hint("ask for at most %s, or %s", size.Format(room/size.MiB*size.MiB), who)
}

// holders names the largest users of a pool.
func (c *Core) holders(p *pool, except *slot) string {
	type holder struct {
		b    *balance
		used uint64
	}
	var all []holder
	for _, b := range p.members.all {
		if n := c.usedBy(b); n > 0 && b.slot != except {
			all = append(all, holder{b, n})
		}
	}
	slices.SortStableFunc(all, func(a, b holder) int { return cmp.Compare(b.used, a.used) })
	var names []string
	for _, h := range all {
		names = append(names, fmt.Sprintf("process %d in share %s: %s", h.b.PID, h.b.share.Name, size.Short(h.used)))
	}
	return few(names)
}

// few lists the first of some names, and counts the others.
func few(names []string) string {
	const most = 3
	if more := len(names) - most; more > 0 {
		names = append(names[:most:most], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

// less is a-b, and 0 where that would be negative.
func less(a, b uint64) uint64 {
	if b >= a {
		return 0
	}
	return a - b
}
