// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/internal/placement"
	"github.com/divvy-gpu/divvy/internal/plan/trace"
)

// Inflation runs the public protocol: jobs arrive, without departures, until
// their requests reach a percent of the fleet; each is tried once.
type Inflation struct {
	Fleet
	Rules
	Workloads     []*trace.Jobs
	Policies      []string
	Seeds         []int64
	ArrivePercent float64
	Weights       *placement.Weights // of the divvy policy; nil: its own
}

// Validate reports settings that make no run.
func (i *Inflation) Validate() error {
	if err := checkRuns(i.Fleet, i.Policies, i.Seeds); err != nil {
		return err
	}
	if len(i.Workloads) == 0 {
		return fmt.Errorf("no list of jobs")
	}
	if !(i.ArrivePercent > 0 && i.ArrivePercent <= 1000) {
		return fmt.Errorf("arrive: %g percent, want more than 0 and at most 1000", i.ArrivePercent)
	}
	return nil
}

func checkRuns(f Fleet, policies []string, seeds []int64) error {
	switch {
	case len(f.Nodes) == 0:
		return fmt.Errorf("no nodes")
	case f.KeepPercent < 0 || f.KeepPercent > 100:
		return fmt.Errorf("keep-nodes: %g percent, want more than 0 and at most 100", f.KeepPercent)
	case len(policies) == 0:
		return fmt.Errorf("no policy")
	case len(seeds) == 0:
		return fmt.Errorf("no seed")
	}
	return placement.CheckPolicies(policies)
}

// Row is the result of one policy on one workload.
type Row struct {
	Workload          string    `json:"workload"`
	Policy            string    `json:"policy"`
	Seeds             int       `json:"seeds"`
	Allocation        Spread    `json:"allocationPercent"`
	UnallocatedGPUs   float64   `json:"unallocatedGpus"`
	FragmentationAt90 *float64  `json:"fragmentationPercentAt90"` // nil: less than 90 % arrived
	FailedTasks       float64   `json:"failedTasks"`
	Decision          Decisions `json:"decisionMicros"`
	Tasks             float64   `json:"tasks"`
	ArrivedPercent    float64   `json:"arrivedPercent"`
	Curve             []Point   `json:"curve"`
	nodes             []NodeState
}

// Nodes returns the fleet as the first seed left it.
func (r *Row) Nodes() []NodeState { return r.nodes }

// Decisions is how long the placement of one task took.
type Decisions struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
}

// Point is the fleet when so much had arrived, as a mean over seeds.
type Point struct {
	ArrivedPercent       float64 `json:"arrivedPercent"`
	AllocatedPercent     float64 `json:"allocatedPercent"`
	FragmentationPercent float64 `json:"fragmentationPercent"` // of the idle cards
}

// inflated is one run.
type inflated struct {
	allocation, unallocated float64
	arrived                 float64
	tasks, failed           int
	curve                   []Point // one a percent
	nanos                   []int32
	nodes                   []NodeState
}

// Run returns a row per policy and workload, in the order of both.
func (i *Inflation) Run(ctx context.Context, progress Progress) ([]Row, error) {
	if err := i.Validate(); err != nil {
		return nil, err
	}
	sorted, products := make([][]group, len(i.Workloads)), placement.ProductsOf(i.Nodes)
	for w, jobs := range i.Workloads {
		sorted[w] = groups(byName(jobs.Jobs), products)
	}
	perPolicy := len(i.Workloads) * len(i.Seeds)
	runs := make([]inflated, len(i.Policies)*perPolicy)
	err := runAll(ctx, len(runs), progress, func(ctx context.Context, n int) error {
		policy, w, seed := i.Policies[n/perPolicy], n%perPolicy/len(i.Seeds), n%len(i.Seeds)
		run, err := i.one(ctx, policy, i.Workloads[w].Jobs, sorted[w], i.Seeds[seed])
		if err != nil {
			return fmt.Errorf("%s, policy %s, seed %d: %w", i.Workloads[w].File, policy, i.Seeds[seed], err)
		}
		if seed > 0 {
			run.nodes = nil
		}
		runs[n] = run
		return nil
	})
	if err != nil {
		return nil, err
	}
	var rows []Row
	for n := 0; n < len(runs); n += len(i.Seeds) {
		rows = append(rows, rowOf(runs[n:n+len(i.Seeds)]))
		r := &rows[len(rows)-1]
		r.Policy, r.Workload = i.Policies[n/perPolicy], i.Workloads[n%perPolicy/len(i.Seeds)].Workload()
	}
	return rows, nil
}

// one runs one seed.
func (i *Inflation) one(ctx context.Context, policy string, jobs []trace.Job, sorted []group, seed int64) (inflated, error) {
	engine, workload, err := newEngine(i.keep(seed), policy, jobs, seed)
	if err != nil {
		return inflated{}, err
	}
	fleet := engine.Fleet()
	if i.Weights != nil && policy == "divvy" {
		engine = placement.NewEngine(fleet, placement.NewDivvyWeights(workload, *i.Weights), seed)
	}
	capacity := fleet.Total().GPUMilli
	order, err := inflate(sorted, capacity, i.ArrivePercent, seed)
	if err != nil {
		return inflated{}, err
	}
	quotas := placement.NewQuotas(fleet.Products(), i.QuotaMilli)
	run := inflated{nanos: make([]int32, 0, len(order))}
	var arrived int64
	next := 1.0
	for n, at := range order {
		if n%256 == 0 && ctx.Err() != nil {
			return inflated{}, ctx.Err()
		}
		g := &sorted[at]
		arrived += g.demand
		run.tasks += len(g.jobs)
		begin := time.Now()
		ok := quotas.Take(g.requests()...) == nil
		if ok {
			if _, ok = g.place(engine, &i.Rules); !ok {
				quotas.GiveBack(g.requests()...)
			}
		}
		run.nanos = append(run.nanos, int32(min(time.Since(begin), math.MaxInt32)))
		if !ok {
			run.failed += len(g.jobs)
		}
		if capacity == 0 {
			continue
		}
		percent := 100 * float64(arrived) / float64(capacity)
		if percent >= next {
			p := Point{percent, allocated(fleet), 100 * workload.Fragmentation()}
			for ; next <= percent; next++ { // a large task may pass several
				p.ArrivedPercent = next
				run.curve = append(run.curve, p)
			}
		}
		run.arrived = percent
	}
	run.allocation, run.unallocated = allocated(fleet), float64(fleet.Free().GPUMilli)/placement.WholeCard
	run.nodes = nodeStates(fleet)
	return run, nil
}

func allocated(f *placement.Fleet) float64 {
	if f.Total().GPUMilli == 0 {
		return 0
	}
	return 100 * (1 - float64(f.Free().GPUMilli)/float64(f.Total().GPUMilli))
}

// rowOf joins the seeds of one policy and workload.
func rowOf(runs []inflated) Row {
	var allocation, unallocated, failed, tasks, arrived []float64
	var nanos []int32
	points := len(runs[0].curve)
	for _, run := range runs {
		allocation = append(allocation, run.allocation)
		unallocated = append(unallocated, run.unallocated)
		failed = append(failed, float64(run.failed))
		tasks = append(tasks, float64(run.tasks))
		arrived = append(arrived, run.arrived)
		nanos = append(nanos, run.nanos...)
		points = min(points, len(run.curve))
	}
	row := Row{
		Seeds: len(runs), Allocation: spreadOf(allocation), UnallocatedGPUs: mean(unallocated),
		FailedTasks: mean(failed), Tasks: mean(tasks), ArrivedPercent: mean(arrived), nodes: runs[0].nodes,
	}
	for p := range points {
		var sum Point
		for _, run := range runs {
			sum.AllocatedPercent += run.curve[p].AllocatedPercent
			sum.FragmentationPercent += run.curve[p].FragmentationPercent
		}
		n := float64(len(runs))
		row.Curve = append(row.Curve, Point{runs[0].curve[p].ArrivedPercent, sum.AllocatedPercent / n, sum.FragmentationPercent / n})
	}
	if points >= 90 {
		row.FragmentationAt90 = &row.Curve[89].FragmentationPercent
	}
	slices.Sort(nanos)
	var sum float64
	for _, n := range nanos {
		sum += float64(n)
	}
	if len(nanos) > 0 {
		row.Decision = Decisions{sum / float64(len(nanos)) / 1000, float64(quantile(nanos, 0.5)) / 1000, float64(quantile(nanos, 0.99)) / 1000}
	}
	return row
}
