// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
)

// What a user may add: so many lines at once, and one in so long after that; what is more is told as
// numbers, in one line in so long. A user who never ceases adds 10,000 lines a day.
const (
	userLines     = 10_000
	userLineEvery = 10 * time.Second
	sumEvery      = time.Minute
	forgetEvery   = time.Second
	mostUsers     = 4096
	mostRepeats   = 4096
	// MostPending is how many lines wait while none can be written; more are counted.
	MostPending = 1000
)

// others are users for whom there is no room to be counted apart.
const others = -1

// Entry is a line and whose it counts as.
type Entry struct {
	api.AuditLine
	User    int  // to whose lines it counts: who made the user namespace, where there is one
	Counted bool // it counts; else it is always told
	// Repeats says that the same again within a minute is told as a number.
	Repeats bool
}

// Pending is what is to be written: lines, bounded by user and in all. It is pure, and safe for nobody
// but its owner.
type Pending struct {
	Agent api.AuditActor // in whose name sums are told

	lines    []api.AuditLine
	taken    uint64 // that were, before the first of lines
	lost     uint64
	lostAt   time.Time // the first of them
	users    map[int]*user
	forgetAt time.Time // not before
	repeats  map[repeated]*repeat
	sumAt    time.Time // zero: nothing is summed
}

// user is what one adds.
type user struct {
	lines float64 // that may be added at once
	at    time.Time
	sums  map[string]uint64 // by verb and outcome
	since time.Time         // of the sums
}

// repeated is what lines have in common that are told as one.
type repeated struct {
	actor                         api.AuditActor
	verb, object, outcome, reason string
}

type repeat struct {
	until time.Time
	more  uint64
	entry Entry
}

// Add adds a line, and returns how many lines have to be taken until it is; 0: it is told as a number, or is lost.
func (p *Pending) Add(now time.Time, e Entry) (ticket uint64) {
	if e.Repeats {
		key := repeated{e.Actor, e.Verb, e.Object, e.Outcome, e.Reason}
		if r := p.repeats[key]; r != nil {
			r.more++
			p.sum(now)
			return 0
		}
		if len(p.repeats) < mostRepeats {
			if p.repeats == nil {
				p.repeats = map[repeated]*repeat{}
			}
			p.repeats[key] = &repeat{until: now.Add(sumEvery), entry: e}
			p.sum(now)
		}
	}
	return p.add(now, e)
}

func (p *Pending) add(now time.Time, e Entry) (ticket uint64) {
	if e.Counted && !p.mayAdd(now, e) {
		return 0
	}
	if len(p.lines) >= MostPending {
		if p.lost == 0 {
			p.lostAt = now
		}
		p.lost += max(e.Count, 1)
		return 0
	}
	e.Time = now
	p.lines = append(p.lines, e.AuditLine)
	return p.taken + uint64(len(p.lines))
}

// sum has sums told after a while.
func (p *Pending) sum(now time.Time) {
	if p.sumAt.IsZero() {
		p.sumAt = now.Add(sumEvery)
	}
}

// mayAdd takes one of a user's lines, or counts what it would have been.
func (p *Pending) mayAdd(now time.Time, e Entry) bool {
	if p.users == nil {
		p.users = map[int]*user{}
	}
	u := p.users[e.User]
	if u == nil {
		who := e.User
		if len(p.users) >= mostUsers && !now.Before(p.forgetAt) {
			p.forget(now)
		}
		if len(p.users) >= mostUsers {
			who = others
		}
		if u = p.users[who]; u == nil {
			u = &user{lines: userLines, at: now}
			p.users[who] = u
		}
	}
	u.refill(now)
	if u.lines >= 1 {
		u.lines--
		return true
	}
	if u.sums == nil {
		u.sums, u.since = map[string]uint64{}, now
	}
	u.sums[e.Verb+" "+e.Outcome] += max(e.Count, 1)
	p.sum(now)
	return false
}

func (u *user) refill(now time.Time) {
	u.lines = min(u.lines+max(now.Sub(u.at).Seconds(), 0)/userLineEvery.Seconds(), userLines)
	u.at = now
}

// forget forgets users who may add as much as those who never did.
func (p *Pending) forget(now time.Time) {
	p.forgetAt = now.Add(forgetEvery) // it looks at all of them
	for who, u := range p.users {
		if u.refill(now); u.lines >= userLines && u.sums == nil {
			delete(p.users, who)
		}
	}
}

// tellSums adds what was counted as lines. What finds no room stays counted.
func (p *Pending) tellSums(now time.Time) {
	p.sumAt = time.Time{}
	for key, r := range p.repeats {
		if now.Before(r.until) {
			p.sum(now)
			continue
		}
		if r.more == 0 {
			delete(p.repeats, key)
			continue
		}
		e := r.entry
		e.Count, e.Repeats = r.more, false
		r.until, r.more = now.Add(sumEvery), 0
		p.sum(now)
		p.add(now, e)
	}
	for _, who := range slices.Sorted(maps.Keys(p.users)) {
		u := p.users[who]
		if u.sums == nil {
			continue
		}
		if len(p.lines) >= MostPending {
			p.sum(now)
			return
		}
		sum := uint64(0)
		for _, n := range u.sums {
			sum += n
		}
		detail, _ := json.Marshal(u.sums) // of numbers
		user := fmt.Sprintf("uid %d", who)
		switch {
		case who < others:
			user = fmt.Sprintf("user namespace %d", -who)
		case who == others:
			user = "too many users"
		}
		reason := fmt.Sprintf("%s did more than is recorded one by one, since %s", user, u.since.UTC().Format(time.RFC3339))
		u.sums = nil
		p.lines = append(p.lines, api.AuditLine{Time: now, Actor: p.Agent, Verb: Summed, Outcome: Done, Count: sum, Reason: reason, Detail: detail})
	}
}

// Next is when lines come into being that wait for nobody; zero: never.
func (p *Pending) Next() time.Time { return p.sumAt }

// Count is how many lines wait; that some were lost is one.
func (p *Pending) Count() int { return len(p.lines) + int(min(p.lost, 1)) }

// Take is all that waits. It waits on until Done.
func (p *Pending) Take(now time.Time) []api.AuditLine {
	if !p.sumAt.IsZero() && !now.Before(p.sumAt) {
		p.tellSums(now)
	}
	if p.lost > 0 && len(p.lines) < MostPending {
		detail, _ := json.Marshal(map[string]any{"since": p.lostAt.UTC()}) // of a time
		p.lines = append(p.lines, api.AuditLine{Time: now, Actor: p.Agent, Verb: Gap, Outcome: Failed, Count: p.lost, Detail: detail,
			Reason: fmt.Sprintf("%d lines are missing: while the audit could not be written no more than %d wait", p.lost, MostPending)})
		p.lost = 0
	}
	return slices.Clone(p.lines)
}

// Done says that the first of those that Take gave are written, and returns the ticket of the last of them.
func (p *Pending) Done(written int) (ticket uint64) {
	p.lines = slices.Delete(p.lines, 0, written)
	p.taken += uint64(written)
	return p.taken
}
