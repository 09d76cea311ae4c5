// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
)

func entry(uid int, verb string) Entry {
	return Entry{AuditLine: api.AuditLine{Actor: api.AuditActor{UID: uid, Via: "share"}, Verb: verb, Outcome: Done}, User: uid, Counted: true}
}

// takeAll takes what waits, as often as there is something.
func takeAll(p *Pending, now time.Time) (all []api.AuditLine) {
	for p.Count() > 0 || !p.Next().IsZero() && !now.Before(p.Next()) {
		lines := p.Take(now)
		p.Done(len(lines))
		all = append(all, lines...)
	}
	return all
}

// One user who never ceases adds 10,000 lines a day, and what is left out is counted exactly; others are told
// one by one meanwhile.
func TestOneUserIsBounded(t *testing.T) {
	var p Pending
	now := november
	lines, summed, told := 0, uint64(0), uint64(0)
	const done = 24 * 3600 * 5
	for n := range done {
		now = now.Add(time.Second / 5)
		p.Add(now, entry(1000, "attach"))
		if n%3600 == 0 {
			p.Add(now, entry(1001, "attach"))
		}
		for _, l := range takeAll(&p, now) {
			switch {
			case l.Verb == Summed:
				var by map[string]uint64
				if json.Unmarshal(l.Detail, &by) != nil || by["attach done"] != l.Count {
					t.Fatalf("%+v", l)
				}
				summed += l.Count
				lines++
			case l.Actor.UID == 1001:
				told++
			default:
				lines++
				summed++
			}
		}
	}
	for _, l := range takeAll(&p, now.Add(time.Hour)) {
		summed += l.Count
	}
	if told != done/3600 {
		t.Errorf("of the other user %d lines", told)
	}
	if summed != done {
		t.Errorf("%d of %d are accounted for", summed, done)
	}
	if lines > userLines+24*3600/10+24*60 {
		t.Errorf("%d lines in a day", lines)
	}
}

// The same again within a minute is one line with a number.
func TestRepeats(t *testing.T) {
	var p Pending
	now, denied := november, entry(0, "deny")
	denied.Counted, denied.Repeats = false, true
	counts := []uint64{}
	for n := range 5 * 60 {
		now = now.Add(time.Second)
		if n < 100 {
			p.Add(now, denied)
		}
		for _, l := range takeAll(&p, now) {
			counts = append(counts, l.Count)
		}
	}
	if len(counts) != 3 || counts[0] != 0 || counts[1]+counts[2] != 99 {
		t.Errorf("%v", counts)
	}
	if len(p.repeats) > 0 || !p.Next().IsZero() {
		t.Errorf("something is left: %+v", p.repeats)
	}
}

// What waits is bounded, and how much is lost is told in its place.
func TestLost(t *testing.T) {
	var p Pending
	e := entry(0, "share.create")
	e.Counted = false
	tickets := 0
	for range MostPending + 77 {
		if p.Add(november, e) > 0 {
			tickets++
		}
	}
	if tickets != MostPending {
		t.Errorf("%d wait", tickets)
	}
	if n := len(p.Take(november)); n != MostPending { // and cannot be written
		t.Errorf("%d lines", n)
	}
	all := takeAll(&p, november)
	if len(all) != MostPending+1 || all[MostPending].Verb != Gap || all[MostPending].Count != 77 {
		t.Errorf("%d lines, the last %+v", len(all), all[len(all)-1])
	}
	if ticket := p.Add(november, e); ticket != MostPending+2 {
		t.Errorf("the next has ticket %d", ticket)
	}
}

// However many users and processes there are, what is known of them is bounded.
func TestManyUsers(t *testing.T) {
	var p Pending
	for uid := range 3 * mostUsers {
		e := entry(uid, "deny")
		e.Repeats = true
		e.User = uid
		p.Add(november.Add(time.Duration(uid)*time.Millisecond), e)
		takeAll(&p, november)
	}
	if len(p.users) > mostUsers+1 || len(p.repeats) > mostRepeats {
		t.Errorf("%d users, %d repeats", len(p.users), len(p.repeats))
	}
}
