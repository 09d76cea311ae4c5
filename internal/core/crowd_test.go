// SPDX-License-Identifier: Apache-2.0

package core

import (
	"fmt"
	"testing"
	"time"
)

// countingPages counts how often pages are looked at.
type countingPages struct {
	*fakePages
	looks int
}

func (p *countingPages) Read(id ClientID, slot int) (Reading, bool) {
	p.looks++
	return p.fakePages.Read(id, slot)
}

func (p *countingPages) Recall(id ClientID, slot int, granted, most uint64) uint64 {
	p.looks++
	return p.fakePages.Recall(id, slot, granted, most)
}

// crowded is a ledger with many clients in one share, and one that is measured in another.
type crowded struct {
	t     testing.TB
	core  *Core
	pages *countingPages
	now   time.Time
	next  ClientID
}

const (
	crowdedCard  = "GPU-a"
	crowdedBytes = 1 << 34 // of each share
)

func newCrowded(t testing.TB, attached, detached int) *crowded {
	w := &crowded{t: t, pages: &countingPages{fakePages: newFakePages()}, now: time.Unix(0, 0), next: 1}
	w.core = New(Config{MaxShares: 10, MaxClients: 20000, MaxShareClients: 20000, EphemeralGrace: time.Second,
		ShrinkDeadline: time.Second}, []Card{{UUID: crowdedCard, Name: "a", UsableBytes: 1 << 40}}, w.pages)
	w.pages.core = w.core
	for _, name := range []string{"crowd", "quiet"} {
		if _, err := w.core.CreateShare(w.now, Spec{Name: name, MemoryBytes: crowdedBytes}, 0); err != nil {
			t.Fatal(err)
		}
	}
	for range attached {
		w.attach("crowd")
	}
	for range detached {
		w.core.Detach(w.now, w.attach("crowd"))
	}
	w.attach("quiet")
	w.after(time.Minute)
	return w
}

func (w *crowded) attach(share string) ClientID {
	id := w.next
	w.next++
	if err := w.pages.attach(w.now, id, share, Process{PID: int(id), UID: int(id), Start: 1}); err != nil {
		w.t.Fatal(err)
	}
	w.pages.alloc(w.now, id, Unit)
	w.core.Drain()
	return id
}

func (w *crowded) after(d time.Duration) {
	w.now = w.now.Add(d)
	w.core.Tick(w.now)
	w.core.Drain()
}

// account is what a driver says that holds memory of all.
func (w *crowded) account() Account {
	a := Account{At: w.now}
	for id := range w.next {
		a.Processes = append(a.Processes, Holding{PID: int(id), Bytes: 1 << 30, Known: true})
	}
	return a
}

// steps are what the loop does for one client, or by itself.
func (w *crowded) steps() map[string]func() {
	last, quiet := ClientID(1), w.next-1
	return map[string]func(){
		"charge":        func() { w.core.Charge(w.now, quiet, Charge{Bytes: Unit}); w.pages.free(quiet, Unit) },
		"chargeInCrowd": func() { w.core.Charge(w.now, last, Charge{Bytes: Unit}); w.pages.free(last, Unit) },
		"sync":          func() { w.core.Sync(w.now, quiet, 0) },
		"syncInCrowd":   func() { w.core.Sync(w.now, last, 0) },
		"work":          func() { w.core.Work(w.now, 1, "quiet", 0) },
		"workOfCrowd":   func() { w.core.Work(w.now, 1, "crowd", 0) },
		"limits":        func() { _, _ = w.core.Limits(w.now, "crowd") },
		"uses":          func() { _, _ = w.core.SlotUses(w.now, last, 0) },
		"wake":          func() { w.core.NextWake() },
		"tick":          func() { w.core.Tick(w.now) },
		"ended":         func() { w.core.LastEnded(crowdedCard, w.now.Add(-time.Second)); w.core.Lingering(crowdedCard, w.now) },
		"attachAndEnd": func() {
			id := w.next
			w.next++
			w.pages.pages[id] = &fakePage{}
			_ = w.core.Attach(w.now, id, "crowd", Process{PID: int(id), UID: 1, Start: 1})
			w.core.Died(w.now, id)
			delete(w.pages.pages, id)
		},
	}
}

// However many clients a share has, what is done for one of them, or for one of another
// share, looks at a bounded number of pages.
func TestManySlowNobodyDown(t *testing.T) {
	w := newCrowded(t, 1000, 1000)
	for name, step := range w.steps() {
		w.now = w.now.Add(time.Second)
		if _, err := w.core.Limits(w.now, "crowd"); err != nil { // which looks once in a while, as does:
			t.Fatal(err)
		}
		if _, err := w.core.SlotUses(w.now, 1, 0); err != nil {
			t.Fatal(err)
		}
		w.pages.looks = 0
		step()
		w.core.Drain()
		if w.pages.looks > 2*(livelyClients+otherClients) {
			t.Errorf("%s looks at %d pages", name, w.pages.looks)
		}
	}
}

// One that asks is read at once among many, and one that does not soon.
func TestWorkAmongMany(t *testing.T) {
	w := newCrowded(t, 1000, 0)
	w.pages.pages[500].InFlightNs, w.pages.pages[500].DrainNs = 5, 7
	w.core.Asked(w.now, 500, 0)
	if got := w.core.Work(w.now, 3, "crowd", 0); got.InFlight != 5 || got.Remaining != 4 || got.Processes != 1000 {
		t.Errorf("of one that asked: %+v", got)
	}
	w.pages.pages[500].InFlightNs, w.pages.pages[500].BusyNs = 0, 5
	w.pages.pages[700].InFlightNs, w.pages.pages[700].DrainNs = 9, 9
	sum := time.Duration(0)
	for range 1000/otherClients + 2 {
		sum += w.core.Work(w.now, 3, "crowd", 0).InFlight
	}
	if got := w.core.Work(w.now, 3, "crowd", 0); got.InFlight != 9 || got.Busy != 5 || sum == 0 {
		t.Errorf("of one that did not: %+v", got)
	}
}

// waits has so many clients of a full share wait for what others have who have just ended, and
// returns the driver's account without those.
func (w *crowded) waits(wait, end int) Account {
	if rest := crowdedBytes - uint64(w.next-2)*Unit; !w.core.Charge(w.now, 1, Charge{Bytes: rest}).Granted {
		w.t.Fatalf("no %d bytes for one", rest)
	}
	account := w.account()
	account.At = w.now.Add(time.Millisecond)
	for id := ClientID(2); id < ClientID(2+end); id++ {
		w.core.Died(w.now, id)
		account.Processes[id] = Holding{}
	}
	for id := ClientID(2 + end); id < ClientID(2+end+wait); id++ {
		if !w.core.Charge(w.now, id, Charge{Bytes: Unit}).Waiting {
			w.t.Fatalf("client %d does not wait", id)
		}
	}
	w.core.Drain()
	w.pages.looks = 0
	return account
}

// However many end while many wait for their memory, each of them looks at a bounded number of
// pages, and they get what there is in the order in which they asked.
func TestManyWaitForMany(t *testing.T) {
	for _, c := range []struct{ wait, end int }{{400, 400}, {2000, 1}, {1, 2000}, {64, 1000}} {
		w := newCrowded(t, 1+c.wait+c.end, 0)
		account := w.waits(c.wait, c.end)
		for w.core.ReleaseEnded(account.At, crowdedCard, account) {
		}
		answers := w.core.Drain().Answers
		w.core.Tick(account.At.Add(lookAgain)) // who has got nothing waits for another look at most
		answers = append(answers, w.core.Drain().Answers...)
		if len(answers) != c.wait {
			t.Errorf("%+v: %d answers", c, len(answers))
		}
		for i, a := range answers {
			if a.Client != ClientID(2+c.end+i) || a.Granted != (i < c.end) {
				t.Fatalf("%+v: answer %d is %+v", c, i, a)
			}
		}
		if most := 8*(c.wait+c.end) + 4*(1+c.wait+c.end); w.pages.looks > most {
			t.Errorf("%+v: looks at %d pages, more than %d", c, w.pages.looks, most)
		}
	}
}

// Nor do they when the grace after a restart ends.
func TestManyWaitForTheGrace(t *testing.T) {
	const wait = 500
	w := newCrowded(t, 1+wait, 0)
	w.waits(0, 0)
	w.core.graceEnd = w.now.Add(time.Second)
	for id := ClientID(2); id < 2+wait; id++ {
		w.core.Charge(w.now, id, Charge{Bytes: Unit})
	}
	w.pages.free(1, Unit)
	w.after(0)
	w.core.Tick(w.core.graceEnd)
	answers := w.core.Drain().Answers
	if len(answers) != wait || !answers[0].Granted || answers[1].Granted {
		t.Errorf("%d answers", len(answers))
	}
	if most := 8 * wait; w.pages.looks > most {
		t.Errorf("looks at %d pages, more than %d", w.pages.looks, most)
	}
}

// A full share of many is not looked through for each who asks: those who ask wait a moment, and
// are answered together, by what is unused then.
func TestManyAskAFullShare(t *testing.T) {
	const ask = 500
	w := newCrowded(t, 1+ask, 0)
	w.waits(0, 0)
	for id := ClientID(2); id < 2+ask; id++ {
		a := w.core.Charge(w.now, id, Charge{Bytes: Unit, Final: true})
		if first := id == 2; a.Waiting == first || a.Granted {
			t.Fatalf("client %d: %+v", id, a)
		}
	}
	w.pages.free(1, 3*Unit)
	if next := w.core.NextWake(); !next.Equal(w.now.Add(lookAgain)) {
		t.Errorf("wakes after %v", next.Sub(w.now))
	}
	w.now = w.now.Add(lookAgain)
	w.core.Tick(w.now)
	granted := 0
	answers := w.core.Drain().Answers
	for _, a := range answers {
		if a.Granted {
			granted++
		}
	}
	if len(answers) != ask-1 || granted != 3 || !answers[0].Granted {
		t.Errorf("%d answers, %d granted", len(answers), granted)
	}
	if most := 8 * (1 + ask); w.pages.looks > most {
		t.Errorf("looks at %d pages, more than %d", w.pages.looks, most)
	}
}

// What every step of the loop costs with many clients; go test -bench Crowd.
func BenchmarkCrowd(b *testing.B) {
	for _, size := range []int{64, 4000} {
		w := newCrowded(b, size, size)
		account := w.account()
		account.Index()
		for name, step := range w.steps() {
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) {
				for b.Loop() {
					step()
					w.core.Drain()
				}
			})
		}
		b.Run(fmt.Sprintf("released/%d", size), func(b *testing.B) {
			for b.Loop() {
				for w.core.ReleaseEnded(w.now, crowdedCard, account) {
				}
			}
		})
		b.Run(fmt.Sprintf("releasedNowAndThen/%d", size), func(b *testing.B) {
			for b.Loop() {
				w.now = w.now.Add(time.Second)
				for w.core.ReleaseEnded(w.now, crowdedCard, account) {
				}
			}
		})
		b.Run(fmt.Sprintf("manyWait/%d", size), func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				w := newCrowded(b, 1+2*size, 0)
				account := w.waits(size, size)
				b.StartTimer()
				for w.core.ReleaseEnded(account.At, crowdedCard, account) {
				}
				w.core.Drain()
			}
		})
		b.Run(fmt.Sprintf("reconcile/%d", size), func(b *testing.B) {
			for b.Loop() {
				w.core.Reconcile(w.now, crowdedCard, account)
				w.core.Drain()
			}
		})
	}
}
