// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"fmt"
	"testing"
	"time"

	terms "github.com/divvy-gpu/divvy/internal/share"
)

// jain is Jain's index of fairness: 1 when all have the same.
func jain(all []float64) float64 {
	sum, squares := 0.0, 0.0
	for _, x := range all {
		sum += x
		squares += x * x
	}
	return sum * sum / (float64(len(all)) * squares)
}

func TestEqualSharesAreFair(t *testing.T) {
	const seconds = 10
	costs := []time.Duration{50 * time.Microsecond, time.Millisecond, 20 * time.Millisecond}
	for _, n := range []int{4, 16} {
		for _, mixed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d, mixed %v", n, mixed), func(t *testing.T) {
				c := newCard(uint64(n), 300*time.Microsecond)
				var all []Terms
				var loads []*load
				for i := range n {
					s := Terms{Name: fmt.Sprint("s", i), Policy: terms.Equal, CoresPercent: 100}
					cost := costs[1]
					if mixed {
						cost = costs[i%len(costs)]
					}
					all, loads = append(all, s), append(loads, program(s.Name, 1, cost, 0))
				}
				c.run(t, all, loads, seconds*time.Second)
				var got []float64
				sum := 0.0
				for _, l := range loads {
					got = append(got, l.busy.Seconds())
					sum += l.busy.Seconds()
				}
				t.Logf("%.4f, %.1f %% busy", jain(got), 100*sum/seconds)
				if jain(got) < 0.999 || sum < 0.97*seconds {
					t.Errorf("index %.4f, the GPU was busy for %.2f of %d s: %v", jain(got), sum, seconds, got)
				}
			})
		}
	}
}

// Weights hold among those that want the card; what one does not want the others
// get, in the same proportion.
func TestWeightsHold(t *testing.T) {
	const seconds = 10
	all := []Terms{
		{Name: "a", Policy: terms.Weighted, Weight: 1}, {Name: "b", Policy: terms.Weighted, Weight: 2}, {Name: "c", Policy: terms.Weighted, Weight: 5},
		{Name: "rest", Policy: terms.BestEffort},
	}
	for _, idle := range []bool{false, true} {
		c := newCard(5, 300*time.Microsecond)
		var loads []*load
		for _, s := range all {
			loads = append(loads, program(s.Name, 1, time.Millisecond, 0))
		}
		parts := []float64{1.0 / 8, 2.0 / 8, 5.0 / 8, 0}
		if idle {
			loads[2].processes = nil
			parts = []float64{1.0 / 3, 2.0 / 3, 0, 0}
		}
		c.run(t, all, loads, seconds*time.Second)
		for i, l := range loads {
			if got := l.busy.Seconds() / seconds; got < parts[i]*0.97-0.002 || got > parts[i]*1.01+0.002 {
				t.Errorf("idle %v: %s got %.3f of the GPU, not %.3f", idle, l.name, got, parts[i])
			}
		}
	}
}

// A program of a higher priority that launches now and then waits for no more
// than what runs, while the others lose next to nothing.
func TestPriorityGoesFirst(t *testing.T) {
	const seconds = 10
	for _, policy := range []terms.Policy{terms.BestEffort, terms.Fixed} {
		c := newCard(9, 100*time.Microsecond)
		high := Terms{Name: "high", Policy: policy, CoresPercent: 40, Priority: 10}
		low := Terms{Name: "low", Policy: policy, CoresPercent: 60}
		quick, busy := program("high", 1, 200*time.Microsecond, 7*time.Millisecond), program("low", 1, time.Millisecond, 0)
		c.run(t, []Terms{high, low}, []*load{quick, busy}, seconds*time.Second)
		// From the end of its last kernel it thinks for 7 ms; the rest it waits.
		var waits []time.Duration
		for i := 1; i < len(quick.ran); i++ {
			waits = append(waits, quick.ran[i].from-quick.ran[i-1].to-7*time.Millisecond)
		}
		late := 0
		const most = time.Millisecond + 500*time.Microsecond // a kernel and four messages or wake-ups
		for i, w := range waits {
			if w > most && i > 0 { // nobody knew of it before its first launch
				late++
			}
		}
		t.Logf("%s: %d of %d waits over %v", policy, late, len(waits), most)
		if len(waits) < 900 || late > len(waits)/100 {
			t.Errorf("%s: %d of %d waits over %v", policy, late, len(waits), most)
		}
		if policy == terms.BestEffort && busy.busy.Seconds() < 0.88*seconds {
			t.Errorf("the other got %v", busy.busy)
		}
	}
}
