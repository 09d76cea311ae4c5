// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/placement"
	"github.com/divvy-gpu/divvy/internal/plan/trace"
)

// Fits asks whether one job more fits now, and if not, what blocks it and
// which one change would unblock it.
type Fits struct {
	Fleet
	Rules
	Jobs   *trace.Jobs // what is there: jobs that run somewhere, else all
	Policy string
	Seed   int64
	Job    placement.Request
}

// Answer says where the job would go, or why nowhere.
type Answer struct {
	Job       string    `json:"job"`
	Fits      bool      `json:"fits"`
	Node      string    `json:"node,omitempty"`
	Cards     []int     `json:"cards,omitempty"`
	Start     *int      `json:"partitionStart,omitempty"`
	Placed    int       `json:"placedJobs"`  // that were there before
	Unplaced  int       `json:"waitingJobs"` // that found no room themselves
	Blockers  []Blocker `json:"blockers,omitempty"`
	Changes   []string  `json:"changes,omitempty"` // each one alone makes the job fit
	Misplaced []string  `json:"misplaced,omitempty"`
}

// Blocker is one reason with the number of nodes where it holds.
type Blocker struct {
	Reason string `json:"reason"`
	Nodes  int    `json:"nodes"`
	Alone  int    `json:"onlyReasonOnNodes"`
}

// Run places what is there and asks for the job.
func (q *Fits) Run() (*Answer, error) {
	if err := checkRuns(q.Fleet, []string{q.Policy}, []int64{q.Seed}); err != nil {
		return nil, err
	}
	if err := q.Job.Validate(); err != nil {
		return nil, err
	}
	engine, _, err := newEngine(q.keep(q.Seed), q.Policy, q.Jobs.Jobs, q.Seed)
	if err != nil {
		return nil, err
	}
	quotas := placement.NewQuotas(engine.Fleet().Products(), q.QuotaMilli)
	a := &Answer{Job: q.Job.Name}
	running := q.fill(engine, quotas, a)
	overQuota := quotas.Take(q.Job)
	spot, room := engine.Find(q.Job)
	if room && overQuota == nil {
		a.Fits, a.Node = true, engine.Fleet().Nodes()[spot.Node].Name
		for c := range placement.MaxCards {
			if spot.Cards>>c&1 == 1 {
				a.Cards = append(a.Cards, c)
			}
		}
		if q.Job.Profile != "" {
			start := int(spot.Start)
			a.Start = &start
		}
		return a, nil
	}
	if overQuota != nil {
		a.Blockers = append(a.Blockers, Blocker{Reason: "quota: " + overQuota.Error(), Nodes: len(engine.Fleet().Nodes())})
		if room {
			a.Changes = append(a.Changes, fmt.Sprintf("raise the quota of tenant %s to %.2f GPUs", q.Job.Tenant,
				float64(quotas.Used(q.Job.Tenant)+engine.Fleet().Products().Demand(q.Job))/placement.WholeCard))
			return a, nil
		}
	}
	for _, o := range engine.Fleet().Obstacles(q.Job) {
		a.Blockers = append(a.Blockers, Blocker{string(o.Reason), o.Nodes, o.Alone})
	}
	if overQuota == nil {
		a.Changes = q.changes(engine, running)
	}
	return a, nil
}

// fill places what is there. Jobs that run somewhere go to that node, whatever
// the policy thinks; when some do, those that do not are only waiting.
func (q *Fits) fill(engine *placement.Engine, quotas *placement.Quotas, a *Answer) (running []placement.Running) {
	numbers := map[string]int{}
	for i, n := range engine.Fleet().Nodes() {
		numbers[n.Name] = i
	}
	live := slices.ContainsFunc(q.Jobs.Jobs, func(j trace.Job) bool { return j.Node != "" })
	for _, g := range groups(q.Jobs.Jobs, engine.Fleet().Products()) {
		if slices.ContainsFunc(g.jobs, func(j trace.Job) bool { return j.Name != "" && j.Name == q.Job.Name }) {
			continue // the one that is asked about
		}
		if live {
			for _, j := range g.jobs {
				i, known := numbers[j.Node]
				if j.Node != "" && !known {
					a.Misplaced = append(a.Misplaced, fmt.Sprintf("job %s runs on node %s, which is not in the list", j.Name, j.Node))
				}
				if !known {
					continue
				}
				spot, placed := engine.PlaceOn(j.Request, i)
				if !placed {
					a.Misplaced = append(a.Misplaced, fmt.Sprintf("job %s runs on node %s, which has no room for it by the list", j.Name, j.Node))
					continue
				}
				_ = quotas.Take(j.Request) // it runs, whatever its quota
				running = append(running, placement.Running{Request: j.Request, Spot: spot, Gang: j.Gang})
				a.Placed++
			}
			continue
		}
		var spots []placement.Spot
		ok := quotas.Take(g.requests()...) == nil
		if ok {
			if spots, ok = g.place(engine, &q.Rules); !ok {
				quotas.GiveBack(g.requests()...)
			}
		}
		if !ok {
			a.Unplaced += len(g.jobs)
			continue
		}
		a.Placed += len(g.jobs)
		for i, spot := range spots {
			running = append(running, placement.Running{Request: g.jobs[i].Request, Spot: spot, Gang: g.gang})
		}
	}
	return running
}

// changes lists single changes of the job or the fleet after which the job
// fits, each tried.
func (q *Fits) changes(engine *placement.Engine, running []placement.Running) (out []string) {
	r := q.Job
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if len(r.Models) > 0 {
		other := r
		other.Models = nil
		if spot, ok := engine.Find(other); ok {
			say("allow GPU model %s", engine.Fleet().Nodes()[spot.Node].Model)
		}
	}
	room := engine.Fleet().Room(r)
	if room.CPUMilli >= 0 && room.CPUMilli < r.CPUMilli {
		say("ask for at most %s cores of CPU instead of %s", trim(float64(room.CPUMilli)/1000), trim(float64(r.CPUMilli)/1000))
	}
	if room.MemoryMiB >= 0 && room.MemoryMiB < r.MemoryMiB {
		say("ask for at most %d MiB of memory instead of %d", room.MemoryMiB, r.MemoryMiB)
	}
	if room.GPUs > 0 && room.GPUs < r.GPUs {
		say("ask for %d GPUs instead of %d", room.GPUs, r.GPUs)
	}
	if r.GPUs == 1 && room.GPUMilli > 0 && room.GPUMilli < r.GPUMilli {
		say("ask for at most %s %% of a GPU instead of %s %%", trim(float64(room.GPUMilli)/10), trim(float64(r.GPUMilli)/10))
	}
	if room.GPUMemoryMiB >= 0 && room.GPUMemoryMiB < r.GPUMemoryMiB {
		say("ask for at most %d MiB of device memory instead of %d", room.GPUMemoryMiB, r.GPUMemoryMiB)
	}
	if r.Linked {
		other := r
		other.Linked = false
		if _, ok := engine.Find(other); ok {
			say("take GPUs that are not linked")
		}
	}
	if r.Profile != "" {
		if smaller := smallerProfile(engine, r); smaller != "" {
			say("ask for partition %s instead of %s", smaller, r.Profile)
		}
	}
	urgent := r
	urgent.Priority = math.MaxInt
	if victims, node, ok := engine.Preempt(urgent, running); ok {
		var names []string
		for _, v := range victims {
			names = append(names, running[v].Name)
		}
		rest := ""
		if len(names) > 5 {
			rest = fmt.Sprintf(" and %d more", len(names)-5)
			names = names[:5]
		}
		say("end %s%s on node %s", strings.Join(names, ", "), rest, engine.Fleet().Nodes()[node].Name)
	}
	if n, ok := q.smallestNode(); ok {
		say("add a node like %s (%s cores of CPU, %d MiB, %d GPUs %s)", n.Name, trim(float64(n.CPUMilli)/1000), n.MemoryMiB, len(n.Cards), n.Model)
	}
	return out
}

func trim(x float64) string {
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.3f", x), "0"), ".")
}

// smallerProfile is the largest partition below the one asked for that fits.
func smallerProfile(engine *placement.Engine, r placement.Request) string {
	best, bestSlices := "", int64(0)
	demand := engine.Fleet().Products().Demand
	asked := demand(r)
	for _, n := range engine.Fleet().Nodes() {
		for _, c := range n.Cards {
			if c.MIG == nil {
				continue
			}
			for _, p := range c.MIG.Profiles {
				other := r
				other.Profile = p.Name
				if d := demand(other); d >= asked || d <= bestSlices || !p.Plain() {
					continue
				}
				if _, ok := engine.Find(other); ok {
					best, bestSlices = p.Name, demand(other)
				}
			}
			break
		}
	}
	return best
}

// smallestNode is the smallest of the fleet's nodes that could take the job
// when empty.
func (q *Fits) smallestNode() (placement.Node, bool) {
	nodes := slices.Clone(q.Nodes)
	slices.SortStableFunc(nodes, func(a, b placement.Node) int {
		if len(a.Cards) != len(b.Cards) {
			return len(a.Cards) - len(b.Cards)
		}
		return int(a.CPUMilli/1000 - b.CPUMilli/1000)
	})
	for _, n := range nodes {
		engine, _, err := newEngine([]placement.Node{n}, "bestfit", nil, 0)
		if err != nil {
			continue
		}
		if _, ok := engine.Find(q.Job); ok {
			return n, true
		}
	}
	return placement.Node{}, false
}
