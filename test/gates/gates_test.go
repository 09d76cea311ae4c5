// SPDX-License-Identifier: Apache-2.0

package gates

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/arbiter"
	"github.com/divvy-gpu/divvy/internal/share"
)

const (
	us = time.Microsecond
	ms = time.Millisecond

	program = "../../build/test/gates"
	warmUp  = 5 // moments, of 100 ms, that are not counted
)

var (
	quick = Host{}
	// As a virtual machine of two processors was seen, with nothing else running.
	slow = Host{Usual: 100 * us, Rare: 2 * ms, Most: 5 * ms, Launch: 60 * us}
	// As with as many programs that spin as there are processors.
	spun = Host{Usual: ms, Rare: 8 * ms, Most: 20 * ms, Launch: 20 * us}
)

// shares are fixed ones with a program each.
func shares(c Case, kernel time.Duration, pattern string, cores ...int) Case {
	c.Slice = 2 * ms
	for i, n := range cores {
		name := string(rune('a' + i))
		c.Terms = append(c.Terms, arbiter.Terms{Name: name, Policy: share.Fixed, CoresPercent: n})
		c.Programs = append(c.Programs, Program{Share: name, Kernel: kernel, Pattern: pattern})
	}
	return c
}

func play(t *testing.T, c Case, look func(what string, now time.Duration, process int, l *Leader)) []Moment {
	t.Helper()
	if _, err := os.Stat(program); err != nil {
		t.Fatalf("%v: make test-programs makes it", err)
	}
	moments, err := Run(program, c, look)
	if err != nil {
		t.Fatal(err)
	}
	return moments
}

// result is what came of a case in a time.
type result struct {
	used  float64   // percent of the time that the card was busy
	got   []float64 // percent of the time, by share
	off   []float64 // percent by which the account of that is off
	idle  float64   // percent of the time that the account gives causes for
	ratio []float64 // of what was promised
}

func between(c Case, from, to Moment) result {
	of := float64(to.Now - from.Now)
	r := result{used: 100 * float64(to.Used-from.Used) / of}
	for _, s := range c.Terms {
		had := time.Duration(0)
		for i, p := range c.Programs {
			if p.Share == s.Name {
				had += to.Busy[i] - from.Busy[i]
			}
		}
		charged := to.Charged[s.Name] - from.Charged[s.Name]
		got := 100 * float64(had) / of
		r.got = append(r.got, got)
		r.ratio = append(r.ratio, got/float64(s.CoresPercent))
		r.off = append(r.off, 100*float64(charged-had)/float64(max(had, 1)))
	}
	for cause := range to.Account.Idle {
		r.idle += 100 * float64(to.Account.Idle[cause]-from.Account.Idle[cause]) / of
	}
	return r
}

func (r result) String() string {
	return fmt.Sprintf("card %.2f %%, shares %.2f %%, accounts off by %+.2f %%, idle %.2f %%", r.used, r.got, r.off, r.idle)
}

// Three shares that were promised the whole card and want it get it, each its part, on a
// quick host and on a slow one, and the account of it is exact. The first case is the one
// that a slow host failed: kernels of 1 ms, slices of 2 ms, 60 us for a launch, 2 ms in
// which work of two shares runs interleaved.
func TestExactOnAnyHost(t *testing.T) {
	for _, test := range []struct {
		name    string
		host    Host
		kernel  time.Duration
		pattern string
		least   float64 // percent of the card
		apart   float64 // points between what a share gets and what it was promised, at most
		off     float64 // percent of that by which its account may be off
	}{
		{"slow, 1 ms", slow, ms, "async", 99.5, 0.5, 0.3},
		{"slow, 200 us", slow, 200 * us, "async", 99.5, 0.5, 0.5},
		{"slow, mixed", slow, ms, "mixed", 99, 0.7, 0.5},
		{"quick, 1 ms", quick, ms, "async", 99.5, 0.5, 0.3},
		{"quick, 50 us", quick, 50 * us, "async", 99.5, 0.5, 0.3},
		{"quick, 20 ms", quick, 20 * ms, "async", 98.5, 1, 1},
		{"quick, mixed", quick, ms, "mixed", 99.5, 0.5, 0.5},
	} {
		for _, schedule := range []int{1, 3, 5} {
			t.Run(fmt.Sprintf("%s (%d)", test.name, schedule), func(t *testing.T) {
				c := shares(Case{Seconds: 10, Schedule: schedule, Host: test.host}, test.kernel, test.pattern, 20, 30, 50)
				ticks := 0
				moments := play(t, c, func(what string, _ time.Duration, _ int, _ *Leader) {
					if what == "tick" {
						ticks++
					}
				})
				r := between(c, moments[warmUp], moments[len(moments)-1])
				t.Log(r)
				if r.used < test.least {
					t.Errorf("the card was busy for %.2f %%, want %v", r.used, test.least)
				}
				for i, s := range c.Terms {
					if math.Abs(r.got[i]-float64(s.CoresPercent)) > test.apart {
						t.Errorf("share %s got %.2f %%, promised %d", s.Name, r.got[i], s.CoresPercent)
					}
					if math.Abs(r.off[i]) > test.off {
						t.Errorf("the account of share %s is off by %.2f %%", s.Name, r.off[i])
					}
				}
				if idle := 100 - r.used; math.Abs(r.idle-idle) > 0.5 {
					t.Errorf("the card was idle for %.2f %%, and causes are given for %.2f %%", idle, r.idle)
				}
				if ticks > 5000 { // the agent would spin
					t.Errorf("the arbiter was woken %d times in 10 s", ticks)
				}
			})
		}
	}
}

// The control: where the gates do not know when others' work may have run beside their
// own, and nothing corrects what they measure then, the accounts are off.
func TestInexactWithoutTurns(t *testing.T) {
	c := shares(Case{Seconds: 5, Schedule: 1, Host: slow, Blind: true}, ms, "async", 20, 30, 50)
	moments := play(t, c, nil)
	first, last := moments[warmUp], moments[len(moments)-1]
	for i := range c.Programs {
		had, said := last.Busy[i]-first.Busy[i], last.Page[i].Busy-first.Page[i].Busy
		off := 100 * float64(said-had) / float64(had)
		if off < 3 {
			t.Errorf("the gate of share %s is off by %.2f %% only", c.Terms[i].Name, off)
		}
	}
}

// Where the host stalls for longer than what is in flight lasts, every share falls
// short by the same part.
func TestEachFallsShortByTheSamePart(t *testing.T) {
	for _, pattern := range []string{"async", "sync"} { // those that wait for each kernel leave much of the card
		for _, schedule := range []int{1, 2, 3} {
			c := shares(Case{Seconds: 20, Schedule: schedule, Host: spun}, ms, pattern, 20, 30, 50)
			moments := play(t, c, nil)
			r := between(c, moments[warmUp], moments[len(moments)-1])
			t.Log(pattern, r)
			if pattern == "async" && r.used < 98 {
				t.Errorf("the card was busy for %.2f %%", r.used)
			}
			for i := range r.ratio {
				if math.Abs(r.ratio[i]-r.used/100) > 0.015 {
					t.Errorf("%s: share %s got %.2f %%, others another part of what they were promised: %.3f", pattern, c.Terms[i].Name, r.got[i], r.ratio)
				}
			}
		}
	}
}

// Whoever is beside whom on whatever host: over any time of a second or more the charges
// of all shares are no more than passed, and no less than the card was busy, but for what
// is in flight at both ends and what estimates may be apart.
func TestChargesAreWhatPassed(t *testing.T) {
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 4))
		c := Case{Seconds: 6, Schedule: 1 + random.IntN(1000), Slice: []time.Duration{ms, 2 * ms, 5 * ms}[random.IntN(3)]}
		c.Host = []Host{quick, slow, spun}[random.IntN(3)]
		left := 100
		for i := range 2 + random.IntN(4) {
			s := arbiter.Terms{Name: string(rune('a' + i)), Policy: share.Equal, Weight: 1}
			if random.IntN(2) == 0 && left > 10 {
				s.Policy, s.CoresPercent = share.Fixed, 5+random.IntN(min(left, 60)-5)
				left -= s.CoresPercent
			}
			c.Terms = append(c.Terms, s)
			for range 1 + random.IntN(2) {
				kernel := []time.Duration{100 * us, 300 * us, ms, 3 * ms}[random.IntN(4)]
				c.Programs = append(c.Programs, Program{s.Name, kernel, []string{"async", "sync", "mixed", "stop"}[random.IntN(4)]})
			}
		}
		moments := play(t, c, nil)
		apart := 10*ms + time.Duration(len(c.Programs))*12*ms
		for i, from := range moments {
			for _, to := range moments[min(i+10, len(moments)):] {
				charged := time.Duration(0)
				for share := range to.Charged {
					charged += to.Charged[share] - from.Charged[share]
				}
				passed, used := to.Now-from.Now, to.Used-from.Used
				if charged > passed+apart {
					t.Fatalf("seed %d: from %v %v were charged in %v", seed, from.Now, charged, passed)
				}
				if charged < used-used*3/1000-apart {
					t.Fatalf("seed %d: from %v %v were charged, and the card was busy for %v", seed, from.Now, charged, used)
				}
			}
		}
	}
}
