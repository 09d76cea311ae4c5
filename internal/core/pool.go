// SPDX-License-Identifier: Apache-2.0

package core

import (
	"math"
	"slices"
	"time"
)

// pool is memory that clients draw on.
type pool struct {
	card    *card
	share   *share // nil: what the card has left over
	granted uint64 // sum over members
	members crowd
	// those that are
	attached map[*client]bool
}

func newPool(k *card, s *share) *pool {
	return &pool{card: k, share: s, members: crowd{at: func(cl *client) *int { return &cl.member }}, attached: map[*client]bool{}}
}

// limit of an overfull card's rest is 0, never negative. What is less than a
// Unit is nobody's.
func (p *pool) limit(c *Core) uint64 {
	if p.share != nil {
		return p.share.limit
	}
	return less(p.card.UsableBytes, c.booked(p.card))
}

// room is how much more can be granted, in whole Units.
func (p *pool) room(c *Core) uint64 { return down(less(p.limit(c), p.granted)) }

func down(bytes uint64) uint64 { return bytes - bytes%Unit }

// up rounds up to whole Units; what would not fit the word rounds down.
func up(bytes uint64) uint64 { return down(min(bytes, math.MaxUint64-Unit+1) + Unit - 1) }

type takenCredit struct {
	cl    *client
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
	FreeBytes uint64 // when denied: exactly what would have been granted
	UsedBytes uint64 // when denied: by all processes of the share
}

// Charge is what a process asks for.
type Charge struct {
	Bytes uint64
	Call  string // what it is for
	// Final: when it is denied, so is the program. Else the process makes room and asks again.
	Final bool
}

// waiting is a charge that may be granted soon.
type waiting struct {
	Charge
	id    ClientID
	until time.Time // the latest it waits for what others have who have just ended; zero: for the end of a grace
}

// comingFor is how long after the end of a process a charge waits for its memory: as a
// rule the driver has released it by then, and who starts a program when another has
// ended does not have to try twice.
const comingFor = 20 * time.Millisecond

// Charge asks for memory for a client, rounded up to Units: from what its pool
// has left and what the pool's clients do not use, its own credit first. Either
// all of it is granted and counts as in use, or nothing is.
func (c *Core) Charge(now time.Time, id ClientID, wanted Charge) Answer {
	cl := c.clients[id]
	if cl == nil {
		return Answer{Client: id, Reason: NoClient}
	}
	wanted.Bytes = up(wanted.Bytes)
	w := waiting{Charge: wanted, id: id}
	if !c.graceEnd.IsZero() {
		c.waiting = append(c.waiting, w)
		return Answer{Client: id, Waiting: true}
	}
	w.until = now.Add(comingFor)
	return c.charge(now, cl, w)
}

// comes says until when the driver may release so much of a pool: its holders have
// just ended, or closed their sockets, as those do that end. Zero: it is not expected.
func (p *pool) comes(now time.Time, bytes uint64) (until time.Time) {
	var sum uint64
	for _, cl := range p.members.all {
		if end := cl.left.Add(comingFor); cl.ending() && now.Before(end) && !p.card.blind {
			sum += cl.granted
			if until.Before(end) {
				until = end
			}
		}
	}
	if sum < bytes {
		return time.Time{}
	}
	return until
}

// chargeAgain asks again for those of a pool that wait for what others had, and for
// all who have waited long enough.
func (c *Core) chargeAgain(now time.Time, p *pool) {
	if !c.graceEnd.IsZero() {
		return
	}
	waiting := c.waiting
	c.waiting = nil
	for _, w := range waiting {
		cl := c.clients[w.id]
		if cl.share.pool != p && now.Before(w.until) {
			c.waiting = append(c.waiting, w)
		} else if a := c.charge(now, cl, w); !a.Waiting {
			c.orders.Answers = append(c.orders.Answers, a)
		}
	}
}

func (c *Core) charge(now time.Time, cl *client, w waiting) Answer {
	bytes := w.Bytes
	s, p := cl.share, cl.share.pool
	c.squeeze(now, s)
	switch _, whole := c.read(now, cl); {
	case s.revoked:
		return c.deny(now, cl, w, 0, Revoked)
	case !whole:
		return c.deny(now, cl, w, 0, Broken)
	case cl.state != Attached:
		return c.deny(now, cl, w, 0, NoClient)
	case cl.unheld:
		return c.deny(now, cl, w, 0, Unheld)
	case s.tight:
		return c.deny(now, cl, w, 0, Shrinking)
	}
	c.taken = c.taken[:0]
	take := func(from *client, most uint64) uint64 {
		n := c.recallFrom(from, most)
		if n > 0 {
			c.taken = append(c.taken, takenCredit{from, n})
		}
		return n
	}
	take(cl, bytes)
	room := p.room(c)
	for _, other := range p.members.all {
		if room >= bytes {
			break
		}
		if other != cl {
			room += take(other, bytes-room)
		}
	}
	if room < bytes {
		for _, t := range c.taken {
			c.grant(t.cl, t.bytes)
		}
		if until := p.comes(now, bytes-room); now.Before(w.until) && now.Before(until) {
			if until.Before(w.until) {
				w.until = until
			}
			c.waiting = append(c.waiting, w)
			return Answer{Client: cl.id, Waiting: true}
		}
		reason := OverQuota
		if p.share == nil {
			reason = CardFull
		}
		return c.deny(now, cl, w, room, reason)
	}
	for _, t := range c.taken {
		c.clientChanged(t.cl)
	}
	c.book(cl, cl.granted+bytes)
	c.credits.Charge(cl.id, bytes)
	c.clientChanged(cl)
	if len(s.clients.all) <= observedClients {
		c.observe(s)
	}
	return Answer{Client: cl.id, Granted: true}
}

// observedClients bounds the pages that are read for the sake of the peak on
// each charge; with more clients the peak is what SYNC and readers saw.
const observedClients = 64

// recall takes back at most bytes of unused credit from the members of a pool.
func (c *Core) recall(p *pool, bytes uint64) {
	for _, cl := range p.members.all {
		if bytes == 0 {
			return
		}
		if n := c.recallFrom(cl, bytes); n > 0 {
			bytes = less(bytes, n)
			c.clientChanged(cl)
		}
	}
}

// settle gives a client that is alone in its pool all there is: its
// allocations then need nobody's leave. Any later client takes from it.
func (c *Core) settle(p *pool) {
	if len(p.attached) != 1 || !c.graceEnd.IsZero() {
		return
	}
	var alone *client
	for alone = range p.attached {
	}
	if alone == nil || alone.frozen || alone.unheld || !alone.page || alone.share.tight || alone.share.revoked {
		return
	}
	if room := p.room(c); room > 0 {
		c.grant(alone, room)
		c.clientChanged(alone)
	}
}

// move puts a share and its clients into another pool.
func (c *Core) move(s *share, to *pool, limit uint64) {
	from := s.pool
	for _, cl := range s.clients.all {
		from.granted -= cl.granted
		to.granted += cl.granted
		from.members.remove(cl)
		to.members.add(cl)
		if from.attached[cl] {
			delete(from.attached, cl)
			to.attached[cl] = true
		}
	}
	s.pool, s.limit = to, limit
}

// recallFrom takes back at most bytes of what a client does not use, and returns
// how many it was.
func (c *Core) recallFrom(cl *client, bytes uint64) uint64 {
	if !cl.page || cl.frozen {
		return 0
	}
	most := min(bytes, cl.granted)
	if most == 0 {
		return 0
	}
	n := min(c.credits.Recall(cl.id, cl.granted, up(most)), cl.granted)
	c.book(cl, cl.granted-n)
	return n
}

// grant gives a client bytes that it does not use yet.
func (c *Core) grant(cl *client, bytes uint64) {
	c.book(cl, cl.granted+bytes)
	c.credits.Grant(cl.id, bytes)
}

// hold enters that a client has been granted bytes, and uses them.
func (c *Core) hold(cl *client, bytes uint64) {
	c.book(cl, bytes)
	if cl.page {
		c.credits.Hold(cl.id, bytes)
	}
	c.clientChanged(cl)
}

// book enters what a client has been granted.
func (c *Core) book(cl *client, bytes uint64) {
	cl.share.pool.granted += bytes - cl.granted
	cl.granted = bytes
	cl.granteds = max(cl.granteds, bytes)
}

// used is what all members of a pool use.
func (c *Core) used(p *pool) uint64 {
	var sum uint64
	for _, cl := range p.members.all {
		sum += c.usedBy(cl)
	}
	return sum
}

func (c *Core) usedOf(s *share) uint64 {
	var sum uint64
	for _, cl := range s.clients.all {
		sum += c.usedBy(cl)
	}
	return sum
}

// observe sums what a share uses and keeps its peak. What a client of an
// earlier life uses is not known: all it was granted counts, for no peak.
func (c *Core) observe(s *share) uint64 {
	sum := c.usedOf(s)
	if slices.ContainsFunc(s.clients.all, (*client).awaited) {
		return sum
	}
	s.peak = max(s.peak, sum)
	if len(s.clients.all) == 1 {
		s.peak = max(s.peak, s.clients.all[0].peak)
	}
	return sum
}

// usedNow is usedBy, and freezes a client whose page is destroyed.
func (c *Core) usedNow(now time.Time, cl *client) uint64 {
	r, ok := c.read(now, cl)
	if !ok || !cl.page || cl.merged.any {
		return c.usedBy(cl)
	}
	cl.peak = max(cl.peak, min(r.PeakBytes, cl.granteds), cl.granted-r.CreditBytes)
	return cl.granted - r.CreditBytes
}

// usedBy is what a client uses by its own account, within its grant.
func (c *Core) usedBy(cl *client) uint64 {
	used := cl.granted
	if cl.page && !cl.frozen && !cl.merged.any {
		if r, ok := c.credits.Read(cl.id); ok && cl.agrees(r) {
			cl.observe(r)
			used -= r.CreditBytes
			cl.peak = max(cl.peak, min(r.PeakBytes, cl.granteds))
		}
	}
	if !cl.awaited() {
		cl.peak = max(cl.peak, used)
	}
	return used
}
