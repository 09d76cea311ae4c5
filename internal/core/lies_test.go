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
		w := c.Work(now, at, "s")
		if most := now.Sub(time.Unix(1000, 0)); w.Busy != most+4e8 || w.Late != most || w.Span != most || w.Gap != most {
			t.Errorf("after %v: %+v", most, w)
		}
		pass(time.Second)
	}
	busy := c.Work(now, at, "s").Busy
	c.Died(now, 2)
	c.ReleaseEnded(now, "GPU-a", Account{At: now})
	v, err := c.Share("s")
	if err != nil || v.CardTimeNs != 4e8 || v.WaitNs != 1e8 || v.Launches != 100 {
		t.Errorf("after it left: GPU time %d, waits %d, launches %d, %v", v.CardTimeNs, v.WaitNs, v.Launches, err)
	}
	pass(time.Second)
	pages.pages[1].BusyNs += 3e8
	if got := c.Work(now, at, "s").Busy - busy; got != 3e8 {
		t.Errorf("the owner's next 300 ms count as %v", got)
	}
}
