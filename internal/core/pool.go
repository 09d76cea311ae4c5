// SPDX-License-Identifier: Apache-2.0

package core

import (
	"math"
	"time"
)

// pool is memory that clients draw on.
type pool struct {
	card    *card
	slot    *slot  // nil: what the card has left over
	granted uint64 // sum over members, and what is parked
	parked  uint64 // charged to no client, but to slots
	members crowd[*balance]
	// those that are
	attached map[*balance]bool
	looks    looks
}

func newPool(k *card, t *slot) *pool {
	return &pool{card: k, slot: t, members: crowd[*balance]{at: func(b *balance) *int { return &b.member }}, attached: map[*balance]bool{}}
}

// limit of an overfull card's rest is 0, never negative. What is less than a
// Unit is nobody's.
func (p *pool) limit(c *Core) uint64 {
	if p.slot != nil {
		return p.slot.limit
	}
	return less(p.card.UsableBytes, c.booked(p.card))
}

// room is how much more can be granted, in whole Units.
func (p *pool) room(c *Core) uint64 { return down(less(p.limit(c), p.granted)) }

func down(bytes uint64) uint64 { return bytes - bytes%Unit }

// up rounds up to whole Units; what would not fit the word rounds down.
func up(bytes uint64) uint64 { return down(min(bytes, math.MaxUint64-Unit+1) + Unit - 1) }

type takenCredit struct {
	from  *balance
	bytes uint64
}

// Reason says why an allocation was denied.
type Reason string

// Reasons of denials.
const (
	OverQuota Reason = "over-quota" // the share's limit
	CardFull  Reason = "card-full"  // no promise, and the card has no more left over
	Shrinking Reason = "shrinking"  // the limit was lowered under what is in use
	Revoked   Reason = "revoked"    // the share was deleted
	NoClient  Reason = "no-client"  // detached, dead, or never attached
	Broken    Reason = "broken"     // the client has destroyed its page
	Unheld    Reason = "unheld"     // the client is not held as its share demands
)

// Answer to a charge.
type Answer struct {
	Client    ClientID
	Waiting   bool // comes later, in Orders.Answers
	Granted   bool
	Reason    Reason // when denied
	Slot      int
	FreeBytes uint64 // when denied: exactly what would have been granted
	UsedBytes uint64 // when denied: by all processes of the share, in the slot
}

// Charge is what a process asks for.
type Charge struct {
	Slot  int
	Bytes uint64
	Call  string // what it is for
	// Final: when it is denied, so is the program. Else the process makes room and asks again.
	Final bool
}

// Charge asks for memory for a client, rounded up to Units: from what its pool
// has left and what the pool's clients do not use, its own credit first. Either
// all of it is granted and counts as in use, or nothing is.
func (c *Core) Charge(now time.Time, id ClientID, wanted Charge) Answer {
	b := c.balanceOf(id, wanted.Slot)
	if b == nil {
		return Answer{Client: id, Slot: wanted.Slot, Reason: NoClient}
	}
	wanted.Bytes = up(wanted.Bytes)
	w := waiting{Charge: wanted, id: id}
	if !c.graceEnd.IsZero() {
		c.waiting = append(c.waiting, w)
		return Answer{Client: id, Slot: w.Slot, Waiting: true}
	}
	w.until = now.Add(comingFor)
	c.pass++
	return c.charge(now, b, w)
}

func (c *Core) charge(now time.Time, b *balance, w waiting) Answer {
	bytes := w.Bytes
	t, p := b.slot, b.slot.pool
	c.squeeze(now, t)
	switch _, whole := c.read(now, b); {
	case t.share.revoked:
		return c.deny(now, b, w, 0, Revoked)
	case !whole:
		return c.deny(now, b, w, 0, Broken)
	case b.state != Attached:
		return c.deny(now, b, w, 0, NoClient)
	case b.unheld:
		return c.deny(now, b, w, 0, Unheld)
	case t.tight:
		return c.deny(now, b, w, 0, Shrinking)
	}
	room := p.room(c)
	short, lately := c.tooLittle(now, p, less(bytes, room))
	if lately && !now.Before(w.until) {
		short = false // it has waited for long enough
	}
	if short {
		room += p.looks.unused
	} else if room = c.collect(b, bytes); room < bytes {
		p.looks.at, p.looks.pass, p.looks.unused = now, c.pass, c.giveBack()
	}
	if room < bytes {
		until := c.comes(now, p, bytes-room)
		if short && lately {
			until = later(until, p.looks.at.Add(lookAgain))
		}
		if now.Before(w.until) && now.Before(until) {
			w.until = earlier(w.until, until)
			c.waiting = append(c.waiting, w)
			return Answer{Client: b.id, Slot: w.Slot, Waiting: true}
		}
		reason := OverQuota
		if p.slot == nil {
			reason = CardFull
		}
		return c.deny(now, b, w, room, reason)
	}
	for _, taken := range c.taken {
		c.clientChanged(taken.from.client)
	}
	c.book(b, b.granted+bytes)
	c.credits.Charge(b.id, w.Slot, bytes)
	c.clientChanged(b.client)
	if len(t.clients()) <= observedClients {
		c.observe(t)
	}
	return Answer{Client: b.id, Slot: w.Slot, Granted: true}
}

// collect takes what a charge lacks from what the members of its pool do not use, its own
// first, and returns what the pool has left then.
func (c *Core) collect(b *balance, bytes uint64) (room uint64) {
	c.taken = c.taken[:0]
	take := func(from *balance, most uint64) uint64 {
		n := c.recallFrom(from, most)
		if n > 0 {
			c.taken = append(c.taken, takenCredit{from, n})
		}
		return n
	}
	p := b.slot.pool
	take(b, bytes)
	room = p.room(c)
	all, first := p.members.all, 0
	if len(all) > observedClients { // whom it took from last have nothing left
		first = p.looks.turn
	}
	for i := range all {
		if room >= bytes {
			break
		}
		p.looks.turn = (first + i) % len(all)
		if other := all[p.looks.turn]; other != b {
			room += take(other, bytes-room)
		}
	}
	return room
}

// giveBack undoes collect, and returns how much that was.
func (c *Core) giveBack() (bytes uint64) {
	for _, taken := range c.taken {
		c.grant(taken.from, taken.bytes)
		bytes += taken.bytes
	}
	return bytes
}

// observedClients bounds the pages that are read for the sake of the peak on
// each charge; with more clients the peak is what SYNC and readers saw.
const observedClients = 64

// recall takes back at most bytes of unused credit from the members of a pool.
func (c *Core) recall(p *pool, bytes uint64) {
	for _, b := range p.members.all {
		if bytes == 0 {
			return
		}
		if n := c.recallFrom(b, bytes); n > 0 {
			bytes = less(bytes, n)
			c.clientChanged(b.client)
		}
	}
}

// settle gives a client that is alone in its pool all there is: its
// allocations then need nobody's leave. Any later client takes from it.
func (c *Core) settle(p *pool) {
	if len(p.attached) != 1 || !c.graceEnd.IsZero() {
		return
	}
	var alone *balance
	for alone = range p.attached {
	}
	if alone == nil || alone.frozen || alone.unheld || !alone.page || alone.slot.tight || alone.share.revoked {
		return
	}
	if room := p.room(c); room > 0 {
		c.grant(alone, room)
		c.clientChanged(alone.client)
	}
}

// move puts a slot and its clients into another pool.
func (c *Core) move(t *slot, to *pool, limit uint64) {
	from := t.pool
	from.park(-int64(t.parked))
	to.park(int64(t.parked))
	for b := range t.balances {
		from.granted -= b.granted
		to.granted += b.granted
		from.members.remove(b)
		to.members.add(b)
		if from.attached[b] {
			delete(from.attached, b)
			to.attached[b] = true
		}
	}
	t.pool, t.limit = to, limit
}

// recallFrom takes back at most bytes of what a client does not use, and returns
// how many it was.
func (c *Core) recallFrom(b *balance, bytes uint64) uint64 {
	if !b.page || b.frozen {
		return 0
	}
	most := min(bytes, b.granted)
	if most == 0 {
		return 0
	}
	n := min(c.credits.Recall(b.id, b.number(), b.granted, up(most)), b.granted)
	c.book(b, b.granted-n)
	return n
}

// grant gives a client bytes that it does not use yet.
func (c *Core) grant(b *balance, bytes uint64) {
	c.book(b, b.granted+bytes)
	c.credits.Grant(b.id, b.number(), bytes)
}

// hold enters that a client has been granted bytes, and uses them.
func (c *Core) hold(b *balance, bytes uint64) {
	c.book(b, bytes)
	if b.page {
		c.credits.Hold(b.id, b.number(), bytes)
	}
	c.clientChanged(b.client)
}

// book enters what a client has been granted.
func (c *Core) book(b *balance, bytes uint64) {
	b.slot.pool.granted += bytes - b.granted
	b.granted = bytes
	b.granteds = max(b.granteds, bytes)
}

// used is what all members of a pool use.
func (c *Core) used(p *pool) uint64 {
	sum := p.parked
	for _, b := range p.members.all {
		sum += c.usedBy(b)
	}
	return sum
}

func (c *Core) usedIn(t *slot) uint64 {
	sum := t.parked
	for b := range t.balances {
		sum += c.usedBy(b)
	}
	return sum
}

// knownIn is usedIn without clients of an earlier life that are not back: what they use is not
// known, and usedIn has all that they were granted.
func (c *Core) knownIn(t *slot) uint64 {
	sum := t.parked
	for b := range t.balances {
		if !b.unseen {
			sum += c.usedBy(b)
		}
	}
	return sum
}

// observe sums what a slot's share uses there and keeps the peak of what is known: pages are read
// once.
func (c *Core) observe(t *slot) uint64 {
	sum := c.usedIn(t)
	known := sum
	for b := range t.balances {
		if b.unseen {
			known -= b.granted
		}
	}
	t.peak = max(t.peak, known)
	for b := range t.balances {
		t.peak = max(t.peak, b.peak) // they used at least what one of them did for a moment
	}
	return sum
}

// usedNow is usedBy, and freezes a client whose page is destroyed.
func (c *Core) usedNow(now time.Time, b *balance) uint64 {
	r, ok := c.read(now, b)
	if !ok || !b.page || b.merged.any {
		return c.usedBy(b)
	}
	b.peak = max(b.peak, min(r.PeakBytes, b.granteds), b.granted-r.CreditBytes)
	return b.granted - r.CreditBytes
}

// usedBy is what a client uses by its own account, within its grant.
func (c *Core) usedBy(b *balance) uint64 {
	used := b.granted
	if b.page && !b.frozen && !b.merged.any {
		if r, ok := c.credits.Read(b.id, b.number()); ok && b.agrees(r) {
			b.observe(r)
			used -= r.CreditBytes
			b.peak = max(b.peak, min(r.PeakBytes, b.granteds))
		}
	}
	if !b.unseen {
		b.peak = max(b.peak, used)
	}
	return used
}
