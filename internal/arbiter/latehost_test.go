// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"testing"
	"time"

	terms "github.com/divvy-gpu/divvy/internal/share"
)

// stall has the host stand still for a while: what runs on the card ends meanwhile.
func (c *card) stall(at, d time.Duration) {
	c.at(at, func() {
		c.stalled = c.now + d
		all := c.events
		c.events = nil
		for _, e := range all {
			c.happens(e)
		}
	})
}

// longestPause is for how long a share used nothing between two instants.
func (l *load) longestPause(from, to time.Duration) (longest time.Duration) {
	last := from
	for _, s := range l.ran {
		if s.from > last && s.from <= to {
			longest = max(longest, s.from-last)
		}
		last = max(last, s.to)
	}
	return max(longest, to-last)
}

// On a host where timers and programs wake late the card does not run dry
// between two shares: the next one is admitted earlier. Without that it does.
func TestLateHost(t *testing.T) {
	const seconds = 10
	all := []Terms{
		{Name: "a", Policy: terms.Fixed, CoresPercent: 20}, {Name: "b", Policy: terms.Fixed, CoresPercent: 30}, {Name: "c", Policy: terms.Fixed, CoresPercent: 50},
	}
	busy := func(adapt bool) float64 {
		c := newCard(7, 3*time.Millisecond)
		if !adapt {
			c.arbiter.handover.most = c.arbiter.handover.least
		}
		var loads []*load
		for _, s := range all {
			loads = append(loads, program(s.Name, 1, time.Millisecond, 0))
		}
		c.run(t, all, loads, seconds*time.Second)
		sum := 0.0
		for i, l := range loads {
			got := 100 * l.busy.Seconds() / seconds
			t.Logf("%s: %.2f %%", l.name, got)
			if promised := float64(all[i].CoresPercent); adapt && (got < promised-1 || got > promised+0.5) {
				t.Errorf("%s got %.2f %%, promised %v %%", l.name, got, promised)
			}
			sum += got
		}
		return sum
	}
	with, without := busy(true), busy(false)
	if with < 98 || without > 90 {
		t.Errorf("the GPU was busy for %.2f %%, and %.2f %% without admitting earlier", with, without)
	}
}

// A share that is alone on a host where timers and programs wake as late as a lease is long
// makes up for that with longer ones.
func TestLateHostAlone(t *testing.T) {
	const seconds = 20
	for _, cores := range []int{5, 30, 60} {
		c := newCard(uint64(cores), 30*time.Millisecond)
		l := program("a", 1, time.Millisecond, 0)
		c.run(t, []Terms{{Name: "a", Policy: terms.Fixed, CoresPercent: cores}}, []*load{l}, seconds*time.Second)
		got, most := 100*l.busy.Seconds()/seconds, l.mostOf(time.Second)
		t.Logf("%.2f %%, at most %v in a second", got, most)
		if got < 0.85*float64(cores) || most > time.Duration(cores)*10*time.Millisecond+time.Millisecond {
			t.Errorf("it got %.2f %% of the GPU, promised %d %%, and %v in one second", got, cores, most)
		}
	}
}

// The host stands still now and then. A share makes up for that, as far as there is room in any
// second; but what it had to wait for once it does not wait for a second later again, and again,
// until all such pauses have become a long one.
func TestPausesDoNotComeAgain(t *testing.T) {
	const (
		stall    = 100 * time.Millisecond
		from, to = 4 * time.Second, 30 * time.Second
		after    = 8 * time.Second
	)
	for _, beside := range []bool{false, true} {
		c := newCard(3, 300*time.Microsecond)
		all, loads := []Terms{{Name: "a", Policy: terms.Fixed, CoresPercent: 30}}, []*load{program("a", 1, time.Millisecond, 0)}
		if beside {
			all = append(all, Terms{Name: "b", Policy: terms.Fixed, CoresPercent: 30}, Terms{Name: "c", Policy: terms.Equal})
			loads = append(loads, program("b", 1, time.Millisecond, 0), program("c", 2, time.Millisecond, 0))
		}
		for at := from; at < to; at += 1300 * time.Millisecond {
			c.stall(at, stall)
		}
		c.run(t, all, loads, to+after+from)
		l := loads[0]
		before, then := l.longestPause(time.Second, from), l.longestPause(to+after, c.now)
		got, most := 100*l.busy.Seconds()/c.now.Seconds(), l.mostOf(time.Second)
		t.Logf("beside others %v: pauses of %v before, %v after; %.2f %%, at most %v in a second", beside, before, then, got, most)
		if then > 2*before {
			t.Errorf("beside others %v: it pauses for %v, and did for %v before the host stood still", beside, then, before)
		}
		if got < 29 || got > 30 {
			t.Errorf("beside others %v: it got %.2f %%", beside, got)
		}
	}
}
