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

// crowd is clients in no order, each of which knows where it is.
type crowd struct {
	all []*client
	at  func(*client) *int
}

func (c *crowd) add(cl *client) {
	*c.at(cl) = len(c.all)
	c.all = append(c.all, cl)
}

func (c *crowd) remove(cl *client) {
	i, last := *c.at(cl), c.all[len(c.all)-1]
	c.all[i] = last
	*c.at(last) = i
	c.all[len(c.all)-1] = nil
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
	unsearched     []*client
	lookedAt       time.Time
}

func (e *enders) of(cl *client) *list.List {
	if cl.state == Dead {
		return &e.dead
	}
	return &e.detached
}

func (e *enders) add(cl *client) {
	cl.ender = e.of(cl).PushBack(cl)
	if cl.state == Dead {
		e.unsearched = append(e.unsearched, cl)
	}
}

// remove must come before the state changes.
func (e *enders) remove(cl *client) {
	if cl.ender != nil {
		e.of(cl).Remove(cl.ender)
		cl.ender = nil
	}
}

// setState keeps count of what depends on the state of a client.
func (c *Core) setState(cl *client, state State, page bool) {
	s, k := cl.share, cl.share.card
	c.uncount(cl)
	k.enders.remove(cl)
	cl.state, cl.page = state, page
	if state == Attached {
		s.attached++
		s.pool.attached[cl] = true
	}
	if cl.awaited() {
		c.awaited++
	}
	if cl.ending() {
		k.enders.add(cl)
		s.ending++
	}
}

// uncount takes a client out of the counts.
func (c *Core) uncount(cl *client) {
	switch {
	case cl.state == "": // it is new
	case cl.state == Attached:
		cl.share.attached--
		delete(cl.share.pool.attached, cl)
	case cl.awaited():
		c.awaited--
	case cl.ending():
		cl.share.ending--
	}
}

// lookEvery is how old what a share uses may be that has more than observedClients.
const lookEvery = 2 * time.Millisecond

// stale says whether the pages of a share are to be looked through again, which were at
// that time, and takes note of it.
func (s *share) stale(now time.Time, at *time.Time) bool {
	if len(s.clients.all) <= observedClients {
		return true
	}
	if age := now.Sub(*at); age >= 0 && age < lookEvery {
		return false
	}
	*at = now
	return true
}

// observeLately is observe, of a share with many clients not each time.
func (c *Core) observeLately(now time.Time, s *share) uint64 {
	if s.stale(now, &s.observedAt) {
		s.usedLately = c.observe(s)
	}
	return s.usedLately
}

// Of a share with more clients, the pages of so many that may have work on the card are read
// at a time, and of so many others in turns.
const (
	livelyClients = 64
	otherClients  = 16
	livelyFor     = 100 * time.Millisecond
)

// Asked: launches of a client wait.
func (c *Core) Asked(now time.Time, id ClientID) {
	if cl := c.clients[id]; cl != nil {
		c.enliven(now, cl)
	}
}

func (c *Core) enliven(now time.Time, cl *client) {
	cl.livelyUntil = now.Add(livelyFor)
	if !cl.lively {
		cl.lively = true
		cl.share.lively = append(cl.share.lively, cl)
	}
}

// readLively reads the pages that matter most for what a share has in flight.
func (c *Core) readLively(now time.Time, s *share, each func(Reading)) {
	for range min(len(s.lively), livelyClients) {
		cl := s.lively[0]
		s.lively = s.lively[1:]
		cl.lively = false
		if c.clients[cl.id] != cl {
			continue // it has gone
		}
		if r, ok := c.read(now, cl); ok && cl.state == Attached && (r.InFlightNs > 0 || now.Before(cl.livelyUntil)) {
			each(r)
			cl.lively = true
			s.lively = append(s.lively, cl)
		}
	}
	for range min(otherClients, len(s.clients.all)) {
		s.turn++
		cl := s.clients.all[s.turn%len(s.clients.all)]
		if r, ok := c.read(now, cl); ok && cl.state == Attached && !cl.lively && r.InFlightNs > 0 {
			each(r)
			c.enliven(now, cl)
		}
	}
}
