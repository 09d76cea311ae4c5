// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"fmt"
	"math"
	"math/rand"
	"slices"
	"testing"

	"github.com/divvy-gpu/divvy/internal/placement"
	"github.com/divvy-gpu/divvy/internal/plan/trace"
)

// TestNobodyWaitsLongerThanElsewhere cuts the public fleet to 70 % of its
// nodes. As traced, at most 66 of its cards are asked for at a time and nobody
// waits; so the jobs also arrive fast enough to queue.
func TestNobodyWaitsLongerThanElsewhere(t *testing.T) {
	for _, speed := range []float64{1, 10000} {
		run := Replay{
			Fleet: Fleet{Nodes: publicNodes(t), KeepPercent: 70}, Workloads: []*trace.Jobs{publicJobs(t, "default")},
			Policies: []string{"divvy", "fgd", "bestfit"}, Seeds: []int64{42}, Queue: QueueBackfill, SpeedUp: speed,
		}
		rows, err := run.Run(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, other := range rows[1:] {
			t.Logf("speed %g, %s: %+v; divvy: %+v", speed, other.Policy, other.Wait, rows[0].Wait)
			if rows[0].Wait.Mean > other.Wait.Mean || rows[0].Wait.P95 > other.Wait.P95 {
				t.Errorf("speed %g: divvy waits %+v, %s %+v", speed, rows[0].Wait, other.Policy, other.Wait)
			}
			if queued := other.Wait.Max > 0; queued != (speed > 1) || len(other.Waits()) != 8152 {
				t.Errorf("speed %g, %s: longest wait %g of %d jobs", speed, other.Policy, other.Wait.Max, len(other.Waits()))
			}
		}
	}
}

// randomJobs makes jobs of all kinds: shares, cards, gangs, priorities.
func randomJobs(r *rand.Rand, n int) *trace.Jobs {
	list := &trace.Jobs{File: "random"}
	for i := range n {
		j := trace.Job{Timed: true, Created: float64(r.Intn(500)), Line: i, Request: placement.Request{
			Name: fmt.Sprint("job-", i), CPUMilli: int64(r.Intn(4000)), Priority: r.Intn(3), Tenant: []string{"a", "b"}[r.Intn(2)],
		}}
		j.Deleted = j.Created + float64(r.Intn(200))
		if r.Intn(4) > 0 {
			j.GPUs, j.GPUMilli = 1, int64(1+r.Intn(1000))
		}
		if r.Intn(6) == 0 {
			j.GPUs, j.GPUMilli = 1+r.Intn(4), placement.WholeCard
		}
		if r.Intn(5) == 0 {
			j.Gang, j.Priority = fmt.Sprint("gang-", i/8), 1
		}
		list.Jobs = append(list.Jobs, j)
	}
	return list
}

// TestReplayKeepsItsBooks runs random jobs under every rule and adds up at the
// end: each job ran or never could, and the fleet is empty again.
func TestReplayKeepsItsBooks(t *testing.T) {
	var nodes []placement.Node
	for i := range 6 {
		nodes = append(nodes, placement.Node{Name: fmt.Sprint("n", i), Rack: fmt.Sprint("r", i/3), CPUMilli: 16000, Cards: make([]placement.Card, []int{1, 2, 4}[i%3])})
	}
	seeds, preempted := int64(30), 0
	if testing.Short() {
		seeds = 6 // each preference with each requirement
	}
	for seed := range seeds {
		jobs := randomJobs(rand.New(rand.NewSource(seed)), 200)
		for _, queue := range []Queue{QueueBackfill, QueueFIFO} {
			for _, preempt := range []bool{false, true} {
				r := &Replay{
					Fleet: Fleet{Nodes: nodes}, Workloads: []*trace.Jobs{jobs}, Policies: []string{"divvy"}, Seeds: []int64{seed}, Queue: queue, Preempt: preempt, SpeedUp: 2,
					Rules: Rules{QuotaMilli: map[string]int64{"a": 6000}, Prefer: placement.Closeness(seed % 3), Requires: placement.Closeness(seed % 2)},
				}
				run, err := r.start(jobs.Jobs, "divvy", seed)
				if err != nil {
					t.Fatal(err)
				}
				if err := run.run(context.Background()); err != nil {
					t.Fatal(err)
				}
				fleet := run.engine.Fleet()
				if fleet.Free() != fleet.Total() || run.quotas.Used("a") != 0 || run.quotas.Used("b") != 0 {
					t.Fatalf("seed %d %s: %+v of %+v free at the end, quota used %d and %d", seed, queue, fleet.Free(), fleet.Total(), run.quotas.Used("a"), run.quotas.Used("b"))
				}
				if len(run.waits)+run.neverStarted != 200 {
					t.Fatalf("seed %d %s: %d jobs ran and %d never, of 200", seed, queue, len(run.waits), run.neverStarted)
				}
				if slices.ContainsFunc(run.waits, func(w float64) bool { return w < 0 || math.IsNaN(w) }) {
					t.Fatalf("seed %d: negative wait", seed)
				}
				if !preempt && run.preemptions != 0 {
					t.Fatalf("seed %d: %d preemptions though not asked for", seed, run.preemptions)
				}
				if run.neverStarted > 20 {
					t.Errorf("seed %d: %d of 200 never started", seed, run.neverStarted)
				}
				preempted += run.preemptions
			}
		}
	}
	if preempted == 0 {
		t.Error("nothing was ever preempted: the test proves nothing")
	}
}

// TestFIFOEqualsTheObviousWay replays on one card, where the waits can be told
// by hand: each job starts when the one before it ends.
func TestFIFOEqualsTheObviousWay(t *testing.T) {
	r := rand.New(rand.NewSource(4))
	list := &trace.Jobs{File: "one GPU"}
	for i := range 300 {
		j := trace.Job{Timed: true, Created: float64(r.Intn(3000)), Request: placement.Request{Name: fmt.Sprint(i), GPUs: 1, GPUMilli: 501}}
		j.Deleted = j.Created + float64(1+r.Intn(20))
		list.Jobs = append(list.Jobs, j)
	}
	run := Replay{
		Fleet: Fleet{Nodes: []placement.Node{{Name: "n", Cards: make([]placement.Card, 1)}}}, Workloads: []*trace.Jobs{list},
		Policies: []string{"fgd"}, Seeds: []int64{1}, Queue: QueueFIFO,
	}
	rows, err := run.Run(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	jobs := slices.Clone(list.Jobs)
	slices.SortStableFunc(jobs, func(a, b trace.Job) int { return int(a.Created - b.Created) })
	free, want := 0.0, []float64{}
	for _, j := range jobs {
		begin := max(free, j.Created)
		want = append(want, begin-j.Created)
		free = begin + j.Deleted - j.Created
	}
	slices.Sort(want)
	if !slices.Equal(rows[0].Waits(), want) {
		t.Errorf("waits %v, want %v", rows[0].Waits(), want)
	}
}
