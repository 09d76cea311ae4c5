// SPDX-License-Identifier: Apache-2.0

package core

import (
	"container/list"
	"slices"
	"time"
)

// waiting is a charge that may be granted soon.
type waiting struct {
	Charge
	id    ClientID
	until time.Time // the latest it waits for what others have who have just ended; zero: for the end of a grace
}

const (
	// comingFor is how long after the end of a process a charge waits for its memory: as a
	// rule the driver has released it by then, and who starts a program when another has
	// ended does not have to try twice.
	comingFor = 20 * time.Millisecond
	// lookAgain is how long a pool of more than observedClients is not looked through again
	// for what they do not use, when that was too little: a charge waits for so long.
	lookAgain = 10 * time.Millisecond
)

// looks are what is known of the members of a pool without looking through all of them.
type looks struct {
	at     time.Time // of the last look that found too little
	pass   uint64    // it was in
	unused uint64    // by all members then

	comingPass  uint64
	coming      uint64 // what members have that have just ended
	comingUntil time.Time

	turn  int  // where the next look begins
	freed bool // since charges that wait were asked again
}

// tooLittle says that a pool's members do not leave so much unused: they were looked through in
// the same pass or, where they are many, lately.
func (c *Core) tooLittle(now time.Time, p *pool, bytes uint64) (is, lately bool) {
	l := &p.looks
	if bytes <= l.unused {
		return false, false
	}
	if l.pass == c.pass {
		return true, false
	}
	age := now.Sub(l.at)
	lately = len(p.members.all) > observedClients && age >= 0 && age < lookAgain
	return lately, lately
}

// comes says until when the driver may release so much of a pool: its holders have
// just ended, or closed their sockets, as those do that end. Zero: it is not expected.
func (c *Core) comes(now time.Time, p *pool, bytes uint64) time.Time {
	if l := &p.looks; l.comingPass != c.pass {
		l.comingPass, l.coming, l.comingUntil = c.pass, 0, time.Time{}
		for _, ended := range []*list.List{&p.card.enders.dead, &p.card.enders.detached} {
			for e := ended.Back(); e != nil && !p.card.blind; e = e.Prev() {
				b := e.Value.(*balance)
				if !now.Before(b.ended.Add(comingFor)) {
					break
				}
				if end := b.left.Add(comingFor); b.slot.pool == p && now.Before(end) {
					l.coming += b.granted
					l.comingUntil = later(l.comingUntil, end)
				}
			}
		}
	}
	if p.looks.coming < bytes {
		return time.Time{}
	}
	return p.looks.comingUntil
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// freed says that a pool may have more for charges that wait. They are asked again once, when
// all has happened that frees something: many may end at once.
func (c *Core) freed(now time.Time, p *pool) {
	c.freedAt = now
	if !p.looks.freed {
		p.looks.freed = true
		c.freedPools = append(c.freedPools, p)
	}
}

// askAgain asks again for charges that wait where something was freed, and for all that have
// waited long enough.
func (c *Core) askAgain(now time.Time) {
	if c.graceEnd.IsZero() {
		c.pass++
		all := c.waiting
		c.waiting = all[:0]
		for _, w := range all {
			b := c.balanceOf(w.id, w.Slot)
			if b == nil {
				continue
			}
			if !b.slot.pool.looks.freed && now.Before(w.until) {
				c.waiting = append(c.waiting, w)
			} else if a := c.charge(now, b, w); !a.Waiting {
				c.orders.Answers = append(c.orders.Answers, a)
			}
		}
		clear(all[len(c.waiting):])
	}
	for _, p := range c.freedPools {
		p.looks.freed = false
	}
	c.freedPools = c.freedPools[:0]
}

func (c *Core) dropWaiting(id ClientID) {
	c.waiting = slices.DeleteFunc(c.waiting, func(w waiting) bool { return w.id == id })
}
