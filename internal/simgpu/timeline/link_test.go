// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"errors"
	"testing"
)

// A gate that is linked to another process's kernel ends with it, to the
// nanosecond, however late somebody looks.
func TestLink(t *testing.T) {
	line := model(2)
	work := submit(t, line, 1, Item{Kind: Kernel, DurationNS: 7 * ms})
	marker := submit(t, line, 1, Item{Kind: Marker, After: [4]uint64{work}})
	line.Advance(1)
	gate := submit(t, line, 2, Item{Kind: Gate, Card: 1})
	next := submit(t, line, 2, Item{Kind: Kernel, Card: 1, DurationNS: ms, After: [4]uint64{gate}})
	if err := line.Link(2, gate, 1, marker); err != nil {
		t.Fatal(err)
	}
	if got := line.Outlook(2, next, false); got.Decided || got.Gated || got.AtNS < 7*ms {
		t.Errorf("outlook %+v", got)
	}
	line.Advance(100 * ms)
	ends := map[ProcessID]map[uint64]int64{1: {}, 2: {}}
	collect(t, line, ends)
	if ends[1][marker] != 7*ms || ends[2][gate] != 7*ms || ends[2][next] != 8*ms {
		t.Errorf("ends: %v", ends)
	}
	// What has ended already, and what was never there, keep nobody.
	for i, seq := range []uint64{marker, 0, 99} {
		now := int64(100*ms + i)
		gate = submit(t, line, 2, Item{Kind: Gate, StampNS: now})
		if err := line.Link(2, gate, 1, seq); err != nil {
			t.Fatal(err)
		}
		line.Advance(now + 1)
		collect(t, line, ends)
		if ends[2][gate] != now {
			t.Errorf("linked to item %d the gate ends at %d", seq, ends[2][gate])
		}
	}
}

// The end of a process lets those go on that wait for it, and is not disturbed by
// what it waited for.
func TestLinkOutlivesProcesses(t *testing.T) {
	line := model(1)
	long := submit(t, line, 1, Item{Kind: Kernel, DurationNS: 500 * ms})
	gate := submit(t, line, 2, Item{Kind: Gate})
	other := submit(t, line, 3, Item{Kind: Gate})
	behind := submit(t, line, 3, Item{Kind: Kernel, DurationNS: ms, After: [4]uint64{other}})
	line.Advance(1)
	for id, g := range map[ProcessID]uint64{2: gate, 3: other} {
		if err := line.Link(id, g, 1, long); err != nil {
			t.Fatal(err)
		}
	}
	ends := map[ProcessID]map[uint64]int64{3: {}}
	if line.End(2, 1) {
		t.Error("somebody waited for the one that waited")
	}
	line.Advance(9 * ms)
	if !line.End(1, 9*ms) {
		t.Error("nobody waited")
	}
	line.Advance(20 * ms)
	collect(t, line, ends)
	if ends[3][other] != 9*ms || ends[3][behind] != 10*ms {
		t.Errorf("ends: %v", ends)
	}
}

func TestLinkNonsense(t *testing.T) {
	line := model(1)
	kernel := submit(t, line, 1, Item{Kind: Kernel, DurationNS: 500 * ms})
	mine := submit(t, line, 1, Item{Kind: Gate, After: [4]uint64{kernel}})
	theirs := submit(t, line, 2, Item{Kind: Gate})
	after := submit(t, line, 2, Item{Kind: Marker, After: [4]uint64{theirs}})
	full := submit(t, line, 2, Item{Kind: Gate, After: [4]uint64{theirs, after, theirs, after}})
	signalled := submit(t, line, 2, Item{Kind: Gate, After: [4]uint64{theirs}})
	line.Advance(1)
	if err := line.Signal(2, signalled, 1); err != nil {
		t.Fatal(err)
	}
	if err := line.Link(1, mine, 2, after); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"a circle":         line.Link(2, theirs, 1, mine),
		"one's own":        line.Link(2, theirs, 2, after),
		"a kernel":         line.Link(1, kernel, 2, after),
		"no gate":          line.Link(1, 99, 2, after),
		"nobody":           line.Link(9, 1, 2, after),
		"a full gate":      line.Link(2, full, 1, kernel),
		"a signalled gate": line.Link(2, signalled, 1, kernel),
		"a linked gate":    line.Link(1, mine, 2, after),
	} {
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
