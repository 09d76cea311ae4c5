// SPDX-License-Identifier: Apache-2.0

package core

import (
	"testing"
	"time"
)

// A stranger in an open share writes what it likes on its page, and leaves: the share's
// figures are its owner's again, and what the owner uses is still counted.
func TestLiesOnThePage(t *testing.T) {
	pages := newFakePages()
	c := New(Config{MaxShares: 10, MaxClients: 10, MaxShareClients: 10}, []Card{{UUID: "GPU-a", UsableBytes: 1 << 40}}, pages)
	pages.core = c
	now, at := time.Unix(1000, 0), uint64(5e9)
	pass := func(d time.Duration) {
		now, at = now.Add(d), at+uint64(d)
		for _, p := range pages.pages {
			p.AtNs = at
		}
	}
	attach := func(id ClientID, uid int) {
		pages.pages[id] = &fakePage{Reading: Reading{AtNs: at}}
		if err := c.Attach(now, id, "s", Process{PID: int(id), UID: uid, Start: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.CreateShare(now, Spec{Name: "s", Open: true}, 1000); err != nil {
		t.Fatal(err)
	}
	attach(1, 1000)
	attach(2, 7)
	pass(time.Second)
	pages.pages[1].BusyNs, pages.pages[1].WaitNs, pages.pages[1].Launches = 4e8, 1e8, 100
	liar := pages.pages[2]
	for range 3 {
		liar.BusyNs, liar.WaitNs, liar.LateNs, liar.SpanNs, liar.GapNs, liar.Launches = ^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0)
		w := c.Work(now, at, "s", 0)
		if most := now.Sub(time.Unix(1000, 0)); w.Busy != most+4e8 || w.Late != most || w.Span != most || w.Gap != most {
			t.Errorf("after %v: %+v", most, w)
		}
		pass(time.Second)
	}
	busy := c.Work(now, at, "s", 0).Busy
	c.Died(now, 2)
	for c.ReleaseEnded(now, "GPU-a", Account{At: now}) {
	}
	v, err := c.Share("s")
	if err != nil || v.CardTimeNs != 4e8 || v.WaitNs != 1e8 || v.Launches != 100 {
		t.Errorf("after it left: GPU time %d, waits %d, launches %d, %v", v.CardTimeNs, v.WaitNs, v.Launches, err)
	}
	pass(time.Second)
	pages.pages[1].BusyNs += 3e8
	if got := c.Work(now, at, "s", 0).Busy - busy; got != 3e8 {
		t.Errorf("the owner's next 300 ms count as %v", got)
	}
}

// The clock of the day is set an hour back or forward while the agent is away, or its
// journal is lost: what a program has used before is not charged again, and what it uses
// from then on is. One that says more than there was is not believed for the hour.
func TestClockIsSetWhileTheAgentIsAway(t *testing.T) {
	const ran, after = 30 * time.Minute, 9 * time.Second
	for name, test := range map[string]struct {
		jump time.Duration
		lost bool // the journal's clients
	}{"back": {-time.Hour, false}, "forward": {time.Hour, false}, "not": {0, false}, "lost": {0, true}} {
		t.Run(name, func(t *testing.T) {
			now, at := time.Unix(1e9, 0), uint64(5e9)
			pages := newFakePages()
			start := func(shares []SavedShare, clients []SavedClient) *Core {
				c := New(Config{MaxShares: 10, MaxClients: 10, MaxShareClients: 10, RestartGrace: time.Second},
					[]Card{{UUID: "GPU-a", UsableBytes: 1 << 40}}, pages)
				pages.core = c
				c.Recover(now, shares, clients)
				return c
			}
			c := start(nil, nil)
			if _, err := c.CreateShare(now, Spec{Name: "s", Open: true}, 1000); err != nil {
				t.Fatal(err)
			}
			process := Process{PID: 1, UID: 7, Start: 1} // a stranger in an open share
			pages.pages[1] = &fakePage{Reading: Reading{AtNs: at}}
			if err := c.Attach(now, 1, "s", process); err != nil {
				t.Fatal(err)
			}
			now, at = now.Add(ran), at+uint64(ran)
			page := pages.pages[1]
			page.AtNs, page.BusyNs, page.SpanNs, page.Launches = at, uint64(ran/3), uint64(ran/3), 1000
			if w := c.Work(now, at, "s", 0); w.Busy != ran/3 {
				t.Fatalf("before: %+v", w)
			}
			shares, clients := c.Saved()
			if test.lost {
				clients = nil
			}
			now = now.Add(test.jump)
			c = start(shares, clients)
			if err := c.Reattach(now, 1, "s", process, nil); err != nil {
				t.Fatal(err)
			}
			was := c.Work(now, at, "s", 0)
			for range 3 {
				now, at = now.Add(after/3), at+uint64(after/3)
				page.AtNs, page.BusyNs, page.SpanNs = at, page.BusyNs+uint64(after/9), page.SpanNs+uint64(after/9)
				c.Work(now, at, "s", 0)
			}
			if is := c.Work(now, at, "s", 0); is.Busy-was.Busy != after/3 || is.Span-was.Span != after/3 {
				t.Errorf("in %v it used %v and is charged %v (of %v)", after, after/3, is.Busy-was.Busy, is.Span-was.Span)
			}
			page.BusyNs = ^uint64(0)
			if is := c.Work(now, at, "s", 0).Busy - was.Busy; is > ran+after+time.Duration(5e9) {
				t.Errorf("a liar is believed %v", is)
			}
		})
	}
}
