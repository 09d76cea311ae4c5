// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"math/rand/v2"
	"testing"
)

// A process whose kernels are ended leaves the card to the others at once, its
// markers and gates go on, and its later kernels run as ever.
func TestAbort(t *testing.T) {
	line := model(2)
	long := submit(t, line, 1, Item{Kind: Kernel, DurationNS: 500 * ms})
	behind := submit(t, line, 1, Item{Kind: Kernel, DurationNS: 5 * ms, After: [4]uint64{long}})
	marker := submit(t, line, 1, Item{Kind: Marker, After: [4]uint64{behind}})
	gate := submit(t, line, 1, Item{Kind: Gate, After: [4]uint64{behind}})
	gated := submit(t, line, 1, Item{Kind: Kernel, DurationNS: 5 * ms, After: [4]uint64{gate}})
	elsewhere := submit(t, line, 1, Item{Kind: Kernel, Card: 1, DurationNS: 30 * ms})
	other := submit(t, line, 2, Item{Kind: Kernel, DurationNS: 10 * ms})
	now := int64(4*ms + 1)
	line.Advance(now)
	ends := map[ProcessID]map[uint64]int64{1: {}, 2: {}}
	collect(t, line, ends)
	line.Abort(1, 0, now)
	collect(t, line, ends)
	for _, seq := range []uint64{long, behind, marker} {
		if ends[1][seq] != now {
			t.Errorf("item %d ends at %d, not at %d", seq, ends[1][seq], now)
		}
	}
	if _, ended := ends[1][gated]; ended {
		t.Error("what hangs on a host function has ended before it")
	}
	if err := line.Signal(1, gate, now+7); err != nil {
		t.Fatal(err)
	}
	later := submit(t, line, 1, Item{Kind: Kernel, DurationNS: ms, StampNS: now + 20*ms})
	line.Advance(100 * ms)
	collect(t, line, ends)
	// It had the slices 0-2 and 4-6 of which a nanosecond was used; the other 2-4.
	if want := now + 8*ms; ends[2][other] != want {
		t.Errorf("the other process's kernel ends at %d, not at %d", ends[2][other], want)
	}
	if ends[1][gated] != now+7 {
		t.Errorf("the kernel behind the gate ends at %d", ends[1][gated])
	}
	if ends[1][elsewhere] != 30*ms {
		t.Errorf("on the other GPU it ends at %d", ends[1][elsewhere])
	}
	if ends[1][later] != now+21*ms {
		t.Errorf("a later kernel ends at %d", ends[1][later])
	}
	if u, _ := line.Usage(1, 0); u.BusyNS != 3*ms+1 || u.Kernels != 1 || u.Queued != 0 {
		t.Errorf("the process had %+v", u)
	}
	if floor, _ := line.Floor(1); floor != later {
		t.Errorf("decided up to %d of %d", floor, later)
	}
	line.Abort(9, 0, now) // nobody
	line.Abort(2, 1, now) // never there
}

// Whatever is ended when: everything gets an end, nobody has more of the card
// than there is, and a process that is not hit gets all it asked for.
func TestAbortAtRandom(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 2))
		line := New(Config{Cards: 1, SliceNS: 1 + random.Int64N(30), SwitchNS: random.Int64N(3), Queued: 1000})
		ends := map[ProcessID]map[uint64]int64{1: {}, 2: {}}
		count, asked, now := map[ProcessID]uint64{}, int64(0), int64(0)
		for range 50 {
			now += random.Int64N(40)
			line.Advance(now)
			collect(t, line, ends)
			id := 1 + ProcessID(random.IntN(2))
			w := Item{Kind: Kernel, DurationNS: 1 + random.Int64N(60), StampNS: now}
			if last := count[id]; last > 0 && random.IntN(2) == 0 {
				w.After[0] = last
			}
			count[id] = submit(t, line, id, w)
			if id == 2 {
				asked += w.DurationNS
			}
			if random.IntN(5) == 0 {
				line.Abort(1, 0, now)
				collect(t, line, ends)
			}
		}
		now += 10_000
		line.Advance(now)
		collect(t, line, ends)
		for id, n := range count {
			if uint64(len(ends[id])) != n {
				t.Fatalf("seed %d: process %d has %d ends of %d", seed, id, len(ends[id]), n)
			}
		}
		one, _ := line.Usage(1, 0)
		two, _ := line.Usage(2, 0)
		if busy, _ := line.Card(0); busy != one.BusyNS+two.BusyNS || two.BusyNS != asked || one.BusyNS < 0 || busy > now {
			t.Fatalf("seed %d: the GPU was busy for %d of %d, the processes %d and %d (asked for %d)",
				seed, busy, now, one.BusyNS, two.BusyNS, asked)
		}
	}
}

// A slow card takes longer for what waits, for the rest of what runs and for what
// comes; and no longer than it should once it is well again.
func TestSlow(t *testing.T) {
	line := model(2)
	first := submit(t, line, 1, Item{Kind: Kernel, DurationNS: 10 * ms})
	second := submit(t, line, 1, Item{Kind: Kernel, DurationNS: 10 * ms})
	line.Advance(3 * ms) // decided to 4 ms
	line.Slow(0, 200)
	third := submit(t, line, 1, Item{Kind: Kernel, DurationNS: 10 * ms})
	other := submit(t, line, 1, Item{Kind: Kernel, Card: 1, DurationNS: 10 * ms, StampNS: 3 * ms})
	ends := map[ProcessID]map[uint64]int64{1: {}}
	line.Advance(20 * ms)
	collect(t, line, ends)
	if ends[1][first] != 16*ms || ends[1][other] != 13*ms {
		t.Errorf("ends: %v", ends)
	}
	line.Slow(0, Normal) // 6 ms of the second have run in 20-16 ms at half speed: 2 ms of 10
	line.Advance(100 * ms)
	collect(t, line, ends)
	if ends[1][second] != 28*ms || ends[1][third] != 38*ms {
		t.Errorf("ends after it is well again: %v", ends)
	}
	line.Slow(1, 1<<60)
	line.Slow(1, -5)
	if got := scale(maxDuration, MaxSlow, Normal); got != maxDuration*MaxSlow/Normal {
		t.Errorf("the longest kernel at the slowest: %d", got)
	}
	if got := scale(1, Normal, MaxSlow); got != 1 {
		t.Errorf("the shortest: %d", got)
	}
}
