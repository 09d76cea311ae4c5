// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"fmt"
	"slices"

	"github.com/divvy-gpu/divvy/internal/mig"
	"github.com/divvy-gpu/divvy/internal/placement"
	"github.com/divvy-gpu/divvy/internal/plan/trace"
)

// Mode is how jobs that need less than a card get one.
type Mode string

const (
	ModeWhole  Mode = "whole"  // each job has its cards for itself
	ModeShares Mode = "shares" // as much of a card as asked
	ModeMIG    Mode = "mig"    // the smallest partition that holds it
)

// Modes returns the names of all modes, the one that others are compared with
// first.
func Modes() []string { return []string{string(ModeWhole), string(ModeShares), string(ModeMIG)} }

// mostFleets bounds the search for the smallest fleet: this many times the
// given one.
const mostFleets = 4

// Sharing asks what dividing cards saves: all jobs of a list at once, with
// whole cards, with shares, with partitions.
type Sharing struct {
	Fleet
	Rules
	Workloads []*trace.Jobs
	Policies  []string
	Seeds     []int64 // each is another order of arrival and of nodes
	Modes     []Mode
	MIGAs     string // product whose partitioning rules all cards follow; empty: the cards' own model
}

// SharingRow is the result of one mode.
type SharingRow struct {
	Workload   string  `json:"workload"`
	Policy     string  `json:"policy"`
	Mode       Mode    `json:"mode"`
	Seeds      int     `json:"seeds"`
	Jobs       int     `json:"jobs"`
	Impossible int     `json:"impossibleJobs"` // fit no node even when it is empty
	Placed     float64 `json:"placedJobs"`     // on the fleet as it is
	CardsUsed  float64 `json:"cardsUsed"`      // on the fleet as it is
	Cards      int     `json:"cards"`          // of the fleet as it is
	Needed     float64 `json:"cardsNeeded"`    // of the smallest fleet, of like nodes, that takes all jobs
	Beyond     bool    `json:"beyondSearch"`   // even four fleets are not enough
	Fewer      float64 `json:"cardsFewer"`     // than with whole cards, where that was asked too
	FewerPart  float64 `json:"cardsFewerPercent"`
}

// Run returns a row per policy, workload and mode.
func (s *Sharing) Run(ctx context.Context, progress Progress) ([]SharingRow, error) {
	if err := checkRuns(s.Fleet, s.Policies, s.Seeds); err != nil {
		return nil, err
	}
	for _, m := range s.Modes {
		if !slices.Contains(Modes(), string(m)) {
			return nil, fmt.Errorf("compare %q: want %s", m, Modes())
		}
	}
	table, err := mig.Default()
	if err != nil {
		return nil, err
	}
	product, err := s.product(table)
	if err != nil {
		return nil, err
	}
	type task struct {
		SharingRow
		jobs  *trace.Jobs
		seeds []SharingRow
	}
	var tasks []task
	for _, policy := range s.Policies {
		for _, jobs := range s.Workloads {
			for _, mode := range s.Modes {
				row := SharingRow{Workload: jobs.Workload(), Policy: policy, Mode: mode, Seeds: len(s.Seeds), Jobs: len(jobs.Jobs)}
				tasks = append(tasks, task{row, jobs, make([]SharingRow, len(s.Seeds))})
			}
		}
	}
	err = runAll(ctx, len(tasks)*len(s.Seeds), progress, func(ctx context.Context, n int) error {
		t, seed := &tasks[n/len(s.Seeds)], n%len(s.Seeds)
		var err error
		t.seeds[seed], err = s.one(ctx, t.jobs, t.Policy, t.Mode, table, product, s.Seeds[seed])
		return err
	})
	if err != nil {
		return nil, err
	}
	var rows []SharingRow
	whole := -1
	for i := range tasks {
		row := &tasks[i].SharingRow
		n := float64(len(s.Seeds))
		for _, one := range tasks[i].seeds {
			row.Placed += one.Placed / n
			row.CardsUsed += one.CardsUsed / n
			row.Needed += one.Needed / n
			row.Cards, row.Impossible = one.Cards, one.Impossible
			row.Beyond = row.Beyond || one.Beyond
		}
		if i%len(s.Modes) == 0 {
			whole = -1
		}
		if row.Mode == ModeWhole {
			whole = i
		} else if whole >= 0 && !row.Beyond && !tasks[whole].Beyond && tasks[whole].Needed > 0 {
			row.Fewer = tasks[whole].Needed - row.Needed
			row.FewerPart = 100 * row.Fewer / tasks[whole].Needed
		}
		rows = append(rows, *row)
	}
	return rows, nil
}

// product is what partitions are made by; nil when no mode needs it.
func (s *Sharing) product(table *mig.Table) (*mig.Product, error) {
	if !slices.Contains(s.Modes, ModeMIG) {
		return nil, nil
	}
	if s.MIGAs != "" {
		if p, ok := table.ByLabel(s.MIGAs); ok {
			return p, nil
		}
		return nil, fmt.Errorf("mig-as: no partitioning rules known for %q", s.MIGAs)
	}
	var found *mig.Product
	for _, n := range s.Nodes {
		if len(n.Cards) == 0 {
			continue
		}
		p := n.Cards[0].MIG
		if p == nil {
			p, _ = table.ByLabel(n.Model)
		}
		switch {
		case p == nil:
			return nil, fmt.Errorf("node %s: %w for GPU model %q; say with mig-as which product to suppose", n.Name, ErrNoPartitions, n.Model)
		case found != nil && found.Key != p.Key:
			return nil, fmt.Errorf("node %s: %w that fit all GPUs: there are %s and %s; say with mig-as which product to suppose",
				n.Name, ErrNoPartitions, found.Key, p.Key)
		}
		found = p
	}
	return found, nil
}

// ErrNoPartitions says that cards cannot be partitioned as asked.
var ErrNoPartitions = fmt.Errorf("no partitioning rules")

// convert returns the nodes and jobs as a mode has them.
func convert(nodes []placement.Node, jobs []trace.Job, mode Mode, table *mig.Table, product *mig.Product) ([]placement.Node, []trace.Job) {
	nodes, jobs = slices.Clone(nodes), slices.Clone(jobs)
	for i := range nodes {
		nodes[i].Cards = slices.Clone(nodes[i].Cards)
		for c := range nodes[i].Cards {
			card := &nodes[i].Cards[c]
			if card.MIG, card.OnDemand = nil, false; mode == ModeMIG {
				card.MIG, card.OnDemand = product, true
			}
		}
	}
	for i := range jobs {
		r := &jobs[i].Request
		if r.Profile != "" {
			*r = shareOf(table, *r)
		}
		if r.GPUs == 0 || r.GPUMilli == placement.WholeCard || mode == ModeShares {
			continue
		}
		profile := ""
		if mode == ModeMIG {
			profile = placement.Smallest(product, r.GPUMilli, r.GPUMemoryMiB)
		}
		if profile != "" {
			r.Profile, r.GPUMilli, r.GPUMemoryMiB = profile, 0, 0
		} else {
			r.GPUMilli = placement.WholeCard
		}
	}
	return nodes, jobs
}

// shareOf turns a partition of any known product into a part of a card.
func shareOf(table *mig.Table, r placement.Request) placement.Request {
	for _, p := range table.Products() {
		if out := placement.AsShare(p, r); out.Profile == "" {
			return out
		}
	}
	r.Profile, r.GPUMilli = "", placement.WholeCard
	return r
}

// one places a list in one mode and order, and looks for the smallest fleet.
func (s *Sharing) one(ctx context.Context, list *trace.Jobs, policy string, mode Mode, table *mig.Table, product *mig.Product, seed int64) (SharingRow, error) {
	nodes, jobs := convert(s.keep(seed), list.Jobs, mode, table, product)
	nodes = shuffled(nodes, seed)
	possible, err := possible(nodes, jobs)
	if err != nil {
		return SharingRow{}, err
	}
	row := SharingRow{Impossible: len(jobs) - len(possible)}
	order := shuffled(groups(byName(possible), placement.ProductsOf(nodes)), seed)
	try := func(nodes []placement.Node) (placed, cards int, err error) {
		engine, _, err := newEngine(nodes, policy, possible, seed)
		if err != nil {
			return 0, 0, err
		}
		for n := range order {
			if n%256 == 0 && ctx.Err() != nil {
				return 0, 0, ctx.Err()
			}
			if _, ok := order[n].place(engine, &s.Rules); ok {
				placed += len(order[n].jobs)
			}
		}
		for i := range engine.Fleet().Nodes() {
			for _, milli := range engine.Fleet().CardMilli(i) {
				if milli < placement.WholeCard {
					cards++
				}
			}
		}
		return placed, cards, nil
	}
	placed, used, err := try(nodes)
	if err != nil {
		return row, err
	}
	row.Placed, row.CardsUsed, row.Cards = float64(placed), float64(used), cardsOf(nodes)
	// Placement is not quite monotone in the fleet; the search finds a fleet
	// that takes all jobs while one node less, in this order, does not.
	wanted := copies(nodes, mostFleets)
	low, high := 0, len(wanted)
	if placed, _, err = try(wanted); err != nil {
		return row, err
	}
	if placed < len(possible) {
		row.Beyond = true
		row.Needed = float64(cardsOf(wanted))
		return row, nil
	}
	for low+1 < high {
		middle := (low + high) / 2
		placed, _, err := try(wanted[:middle])
		if err != nil {
			return row, err
		}
		if placed == len(possible) {
			high = middle
		} else {
			low = middle
		}
	}
	row.Needed = float64(cardsOf(wanted[:high]))
	return row, nil
}

// possible leaves out jobs that fit no node even when it is empty.
func possible(nodes []placement.Node, jobs []trace.Job) ([]trace.Job, error) {
	engine, _, err := newEngine(nodes, "bestfit", nil, 0)
	if err != nil {
		return nil, err
	}
	var out []trace.Job
	for _, j := range jobs {
		if _, ok := engine.Find(j.Request); ok {
			out = append(out, j)
		}
	}
	return out, nil
}

func cardsOf(nodes []placement.Node) (sum int) {
	for _, n := range nodes {
		sum += len(n.Cards)
	}
	return sum
}

// copies repeats the nodes under new names.
func copies(nodes []placement.Node, times int) []placement.Node {
	out := slices.Clone(nodes)
	for c := 2; c <= times; c++ {
		for _, n := range nodes {
			n.Name = fmt.Sprintf("%s copy %d", n.Name, c)
			out = append(out, n)
		}
	}
	return out
}
