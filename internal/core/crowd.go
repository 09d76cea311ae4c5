// SPDX-License-Identifier: Apache-2.0

package core

import (
	"cmp"
	"container/list"
	"slices"
	"time"
)

// What the ledger does for one client must not take longer because of others: whoever is
// many could slow everybody down. This file has what is known without looking through all.

// crowd is clients, or what they have of a card, in no order; each knows where it is.
type crowd[T comparable] struct {
	all []T
	at  func(T) *int
}

func (c *crowd[T]) add(one T) {
	*c.at(one) = len(c.all)
	c.all = append(c.all, one)
}

func (c *crowd[T]) remove(one T) {
	var none T
	i, last := *c.at(one), c.all[len(c.all)-1]
	c.all[i] = last
	*c.at(last) = i
	c.all[len(c.all)-1] = none
	c.all = c.all[:len(c.all)-1]
}

// due are moments of clients, in order, because each comes the same time after it is set.
type due struct{ all []moment }

type moment struct {
	at time.Time
	cl *client
}

func (d *due) add(at time.Time, cl *client) { d.all = append(d.all, moment{at, cl}) }

// next is the first moment that still counts; zero: there is none.
func (d *due) next(counts func(moment) bool) time.Time {
	for len(d.all) > 0 && !counts(d.all[0]) {
		d.all = d.all[1:]
	}
	if len(d.all) == 0 {
		d.all = nil
		return time.Time{}
	}
	return d.all[0].at
}

// take returns of whom a moment has come, in the order of their attachment.
func (d *due) take(now time.Time, counts func(moment) bool) (come []*client) {
	for at := d.next(counts); !at.IsZero() && !now.Before(at); at = d.next(counts) {
		come = append(come, d.all[0].cl)
		d.all = d.all[1:]
	}
	slices.SortFunc(come, func(a, b *client) int { return cmp.Compare(a.order, b.order) })
	return slices.Compact(come)
}

func noticed(m moment) bool { return m.cl.noticeAt.Equal(m.at) }

// enders are the clients of a card that have ended, or live on without their socket, in the
// order in which they did, and of those that have ended who holds their memory nobody has
// looked for.
type enders struct {
	dead, detached list.List
	unsearched     []*balance
	lookedAt       time.Time
}

func (e *enders) of(b *balance) *list.List {
	if b.state == Dead {
		return &e.dead
	}
	return &e.detached
}

// ends enters that a client ends, and the driver may hold something for it on the card.
func (b *balance) ends() {
	e := &b.slot.card.enders
	b.gone = false
	b.ender = e.of(b).PushBack(b)
	b.slot.ending++
	if b.state == Dead {
		e.unsearched = append(e.unsearched, b)
	}
}

// endsNoMore must come before the state changes.
func (b *balance) endsNoMore() {
	if b.ender != nil {
		b.slot.card.enders.of(b).Remove(b.ender)
		b.ender = nil
		b.slot.ending--
	}
}

// setState keeps count of what depends on the state of a client. On a card on which the
// driver holds nothing for it any more, it does not end again.
func (c *Core) setState(cl *client, state State, page bool) {
	c.uncount(cl)
	cl.state, cl.page = state, page
	if state == Attached {
		cl.share.attached++
		for _, b := range cl.balances {
			b.gone = false
			b.slot.pool.attached[b] = true
		}
	}
	if cl.awaited() {
		c.awaited++
	}
	if cl.ending() {
		for _, b := range cl.balances {
			if b.slot.card.absent {
				c.book(b, 0)
				b.gone = true
			}
			if !b.gone {
				b.ends()
			}
		}
	}
}

// uncount takes a client out of the counts.
func (c *Core) uncount(cl *client) {
	for _, b := range cl.balances {
		b.endsNoMore()
		delete(b.slot.pool.attached, b)
	}
	switch {
	case cl.state == "": // it is new
	case cl.state == Attached:
		cl.share.attached--
	case cl.awaited():
		c.awaited--
	}
}

// lookEvery is how old what a share uses may be that has more than observedClients.
const lookEvery = 2 * time.Millisecond

// stale says whether the pages of a slot's share are to be looked through again, which
// were at that time, and takes note of it.
func (t *slot) stale(now time.Time, at *time.Time) bool {
	if len(t.clients()) <= observedClients {
		return true
	}
	if age := now.Sub(*at); age >= 0 && age < lookEvery {
		return false
	}
	*at = now
	return true
}

// observeLately is observe, of a share with many clients not each time.
func (c *Core) observeLately(now time.Time, t *slot) uint64 {
	if t.stale(now, &t.observedAt) {
		t.usedLately = c.observe(t)
	}
	return t.usedLately
}

// Of a share with more clients, the pages of so many that may have work on the card are read
// at a time, and of so many others in turns.
const (
	livelyClients = 64
	otherClients  = 16
	livelyFor     = 100 * time.Millisecond
)

// Asked: launches of a client in a slot wait.
func (c *Core) Asked(now time.Time, id ClientID, number int) {
	if b := c.balanceOf(id, number); b != nil {
		c.enliven(now, b)
	}
}

func (c *Core) enliven(now time.Time, b *balance) {
	b.livelyUntil = now.Add(livelyFor)
	if !b.lively {
		b.lively = true
		b.slot.lively = append(b.slot.lively, b)
	}
}

// readLively reads the pages that matter most for what a share has in flight on a card.
func (c *Core) readLively(now time.Time, t *slot, each func(Reading)) {
	for range min(len(t.lively), livelyClients) {
		b := t.lively[0]
		t.lively = t.lively[1:]
		b.lively = false
		if c.clients[b.id] != b.client {
			continue // it has gone
		}
		if r, ok := c.read(now, b); ok && b.state == Attached && (r.InFlightNs > 0 || now.Before(b.livelyUntil)) {
			each(r)
			b.lively = true
			t.lively = append(t.lively, b)
		}
	}
	for range min(otherClients, len(t.clients())) {
		t.turn++
		b := t.of(t.clients()[t.turn%len(t.clients())])
		if r, ok := c.read(now, b); ok && b.state == Attached && !b.lively && r.InFlightNs > 0 {
			each(r)
			c.enliven(now, b)
		}
	}
}
