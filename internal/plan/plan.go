// SPDX-License-Identifier: Apache-2.0

// Package plan answers what a fleet can carry. It runs lists of jobs against
// the placement policies: by the public inflation protocol (Inflation), in
// virtual time with arrivals, departures, queues, gangs and preemption
// (Replay), with whole cards, shares or partitions (Sharing), or for one job
// more (Fits). Every decision is internal/placement's; nothing here chooses a
// node.
//
// Results are computed from lists, not measured on hardware. All but decision
// times are the same for the same input and seeds.
package plan

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/divvy-gpu/divvy/internal/placement"
	"github.com/divvy-gpu/divvy/internal/plan/trace"
)

// Fleet is what the jobs run on.
type Fleet struct {
	Nodes       []placement.Node
	KeepPercent float64 // of the nodes, drawn by the seed; 0 or 100: all
}

// Rules hold for every way to run jobs.
type Rules struct {
	QuotaMilli map[string]int64    // per tenant, in thousandths of a card
	Prefer     placement.Closeness // of gangs
	Requires   placement.Closeness
}

// Progress is told how many of all runs are done; it is called by one
// goroutine at a time.
type Progress func(done, total int)

// keep returns the seed's draw of the fleet's nodes.
func (f Fleet) keep(seed int64) []placement.Node {
	if f.KeepPercent == 0 || f.KeepPercent == 100 {
		return f.Nodes
	}
	n := int(float64(len(f.Nodes))*f.KeepPercent/100 + 0.5)
	return shuffled(f.Nodes, seed)[:max(1, n)]
}

// newEngine makes the engine of one run.
func newEngine(nodes []placement.Node, policy string, jobs []trace.Job, seed int64) (*placement.Engine, *placement.Workload, error) {
	fleet, err := placement.NewFleet(nodes)
	if err != nil {
		return nil, nil, err
	}
	requests := make([]placement.Request, len(jobs))
	for i := range jobs {
		requests[i] = jobs[i].Request
	}
	workload := placement.NewWorkload(fleet, requests)
	p, err := placement.NewPolicy(policy, workload)
	if err != nil {
		return nil, nil, err
	}
	return placement.NewEngine(fleet, p, seed), workload, nil
}

// group is what starts together: one job, or all jobs of a gang.
type group struct {
	gang    string
	jobs    []trace.Job
	demand  int64 // thousandths of a card
	created float64
	seconds float64 // how long it runs
}

// groups joins the jobs of each gang, at the place of its first job. A gang is
// there when its last job is, and runs as long as its longest.
func groups(jobs []trace.Job, products placement.Products) []group {
	var out []group
	ofGang := map[string]int{}
	for _, j := range jobs {
		i, known := ofGang[j.Gang]
		if j.Gang == "" || !known {
			i = len(out)
			out = append(out, group{gang: j.Gang})
			if j.Gang != "" {
				ofGang[j.Gang] = i
			}
		}
		g := &out[i]
		g.jobs = append(g.jobs, j)
		g.demand += products.Demand(j.Request)
		g.created = max(g.created, j.Created)
		g.seconds = max(g.seconds, j.Deleted-j.Created)
	}
	return out
}

func (g *group) requests() []placement.Request {
	out := make([]placement.Request, len(g.jobs))
	for i := range g.jobs {
		out[i] = g.jobs[i].Request
	}
	return out
}

// place puts the group on the fleet, all of it or nothing.
func (g *group) place(e *placement.Engine, rules *Rules) ([]placement.Spot, bool) {
	if g.gang == "" {
		spot, ok := e.Place(g.jobs[0].Request)
		return []placement.Spot{spot}, ok
	}
	spots, err := e.PlaceGang(placement.Gang{Name: g.gang, Members: g.requests(), Prefer: rules.Prefer, Requires: rules.Requires})
	return spots, err == nil
}

// NodeState is one node at the end of a run.
type NodeState struct {
	Name         string  `json:"name"`
	Model        string  `json:"model"`
	CPUPercent   float64 `json:"cpuUsedPercent"`
	CardsPercent []int   `json:"cardsUsedPercent"`
}

func nodeStates(f *placement.Fleet) []NodeState {
	out := make([]NodeState, len(f.Nodes()))
	for i, d := range f.Nodes() {
		out[i] = NodeState{Name: d.Name, Model: d.Model}
		if d.CPUMilli > 0 {
			out[i].CPUPercent = 100 * (1 - float64(f.CPUMilli(i))/float64(d.CPUMilli))
		}
		for _, milli := range f.CardMilli(i) {
			out[i].CardsPercent = append(out[i].CardsPercent, 100-milli/10)
		}
	}
	return out
}

// runAll calls run for 0..n-1 on as many goroutines as there are processors.
// It returns the first error by number, after all that began have ended.
func runAll(ctx context.Context, n int, progress Progress, run func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	todo := make(chan int)
	type outcome struct {
		i   int
		err error
	}
	done := make(chan outcome)
	var workers sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		workers.Go(func() {
			for i := range todo {
				done <- outcome{i, run(ctx, i)}
			}
		})
	}
	go func() {
		defer close(done)
		defer workers.Wait()
		defer close(todo)
		for i := range n {
			select {
			case todo <- i:
			case <-ctx.Done():
				return
			}
		}
	}()
	errs := make([]error, n)
	finished := 0
	for o := range done {
		errs[o.i] = o.err
		finished++
		if o.err != nil {
			cancel()
		} else if progress != nil {
			progress(finished, n)
		}
	}
	for i, err := range errs {
		if err != nil && ctx.Err() != nil && err == ctx.Err() {
			errs[i] = nil // stopped because of another
		}
	}
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
		return errs[i]
	}
	if finished < n {
		return fmt.Errorf("plan: %w", context.Cause(ctx))
	}
	return nil
}
