// SPDX-License-Identifier: Apache-2.0

// Command placementbench writes docs/bench/placement.md: every policy on the
// public workloads by the public protocol beside the published numbers, on
// members of the same families that are not published, decision times, and
// waiting times with departures. `make bench-placement` runs it.
package main

import (
	"context"
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/internal/placement"
	"github.com/divvy-gpu/divvy/internal/plan"
	"github.com/divvy-gpu/divvy/internal/plan/trace"
)

// workloads are those of data/traces/openb, in the order of the report.
var workloads = []string{"default", "cpu050", "cpu100", "gpushare40", "gpushare80", "gpuspec10", "gpuspec25", "multigpu20", "multigpu40"}

func main() {
	folder := flag.String("traces", "data/traces/openb", "folder of the public lists")
	seeds := flag.Int("seeds", 10, "how many seeds, from 42")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	b := &bench{folder: *folder}
	for s := range *seeds {
		b.seeds = append(b.seeds, int64(42+s))
	}
	if err := b.run(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "placementbench: error: %v\n", err)
		os.Exit(1)
	}
}

type bench struct {
	folder string
	seeds  []int64
	nodes  []placement.Node
	lists  []*trace.Jobs
	out    strings.Builder
}

func (b *bench) say(format string, args ...any) { fmt.Fprintf(&b.out, format+"\n", args...) }

func (b *bench) run(ctx context.Context) error {
	nodes, err := trace.ReadNodes(filepath.Join(b.folder, "openb_node_list_gpu_node.csv"))
	if err != nil {
		return err
	}
	b.nodes = nodes.Nodes
	for _, w := range workloads {
		jobs, err := trace.ReadJobs(filepath.Join(b.folder, "openb_pod_list_"+w+".csv.gz"))
		if err != nil {
			return err
		}
		b.lists = append(b.lists, jobs)
	}
	published, err := readPublished(filepath.Join(b.folder, "fgd-artifact-results.csv"))
	if err != nil {
		return err
	}
	b.say("# Placement benchmark\n")
	b.say("Written by `make bench-placement`. Computed from the public lists in `data/traces/openb`; nothing here was measured on GPUs.")
	b.say("Decision times were taken on %s, %d processors, %s.\n", cpuName(), runtime.NumCPU(), runtime.Version())
	for _, part := range []func(context.Context) error{
		func(ctx context.Context) error { return b.public(ctx, published) }, b.unpublished, b.decisions, b.waiting,
	} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	_, err = fmt.Print(b.out.String())
	return err
}

func (b *bench) inflate(ctx context.Context, lists []*trace.Jobs, policies []string) ([]plan.Row, error) {
	run := plan.Inflation{Fleet: plan.Fleet{Nodes: b.nodes}, Workloads: lists, Policies: policies, Seeds: b.seeds, ArrivePercent: 130}
	return run.Run(ctx, nil)
}

// find returns the row of a policy and workload.
func find(rows []plan.Row, policy, workload string) *plan.Row {
	i := slices.IndexFunc(rows, func(r plan.Row) bool { return r.Policy == policy && r.Workload == workload })
	return &rows[i]
}

// published numbers by "workload policy arrived".
type published map[string][3]float64 // allocation, unallocated, fragmentation

func readPublished(file string) (published, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return nil, err
	}
	out := published{}
	for _, row := range rows[1:] {
		var x [3]float64
		var errs error
		for i, column := range []int{4, 6, 7} {
			value, err := strconv.ParseFloat(row[column], 64)
			x[i], errs = value, errors.Join(errs, err)
		}
		if errs != nil {
			return nil, errs
		}
		out[row[0]+" "+row[1]+" "+row[3]] = x
	}
	return out, nil
}

// public compares with what is published.
func (b *bench) public(ctx context.Context, known published) error {
	begin := time.Now()
	rows, err := b.inflate(ctx, b.lists, placement.Policies())
	if err != nil {
		return err
	}
	took := time.Since(begin)
	b.say("## Public workloads, %d seeds, 130 %% arrived\n", len(b.seeds))
	b.say("Allocated cards in percent (mean over seeds, standard deviation of ours); A is the published result of the FGD artifact.")
	b.say("Our `pack` breaks ties by how full the node is, so it is not the artifact's GpuPacking and is not compared.\n")
	b.say("| workload | divvy | fgd | A: fgd | bestfit | A: bestfit | dotprod | A: dotprod | random | A: random | pack | spread |")
	b.say("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, w := range workloads {
		cell := func(policy string) string {
			r := find(rows, policy, w)
			return fmt.Sprintf("%.2f (%.2f)", r.Allocation.Mean, r.Allocation.SD)
		}
		a := func(policy string) string { return fmt.Sprintf("%.2f", known[w+" "+policy+" 130"][0]) }
		b.say("| %s | **%s** | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |", w, cell("divvy"), cell("fgd"), a("fgd"), cell("bestfit"), a("bestfit"),
			cell("dotprod"), a("dotprod"), cell("random"), a("random"), cell("pack"), cell("spread"))
	}
	b.say("\nCards left idle at 130 %%, and fragmented percent of idle cards when 90 %% had arrived:\n")
	b.say("| workload | idle: divvy | fgd | bestfit | dotprod | random | fragmented: divvy | fgd | A: fgd | bestfit | A: bestfit |")
	b.say("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, w := range workloads {
		idle := func(policy string) string { return fmt.Sprintf("%.0f", find(rows, policy, w).UnallocatedGPUs) }
		frag := func(policy string) string { return fmt.Sprintf("%.1f", *find(rows, policy, w).FragmentationAt90) }
		a := func(policy string) string { return fmt.Sprintf("%.1f", known[w+" "+policy+" 90"][2]) }
		b.say("| %s | **%s** | %s | %s | %s | %s | **%s** | %s | %s | %s | %s |", w, idle("divvy"), idle("fgd"), idle("bestfit"), idle("dotprod"), idle("random"),
			frag("divvy"), frag("fgd"), a("fgd"), frag("bestfit"), a("bestfit"))
	}
	var worst = map[string]float64{}
	for _, w := range workloads {
		for _, policy := range []string{"fgd", "bestfit", "dotprod", "random"} {
			difference := find(rows, policy, w).Allocation.Mean - known[w+" "+policy+" 130"][0]
			if difference < 0 {
				difference = -difference
			}
			worst[policy] = max(worst[policy], difference)
		}
	}
	b.say("\nLargest difference from the artifact over all workloads, in points: fgd %.2f, bestfit %.2f, dotprod %.2f, random %.2f.", worst["fgd"], worst["bestfit"], worst["dotprod"], worst["random"])
	b.say("All %d runs took %.0f s on %d processors.\n", len(workloads)*len(placement.Policies())*len(b.seeds), took.Seconds(), runtime.GOMAXPROCS(0))
	return nil
}

// unpublished runs the members of the families that are not in the repository.
func (b *bench) unpublished(ctx context.Context) error {
	f := newFamily(b.lists[0], b.lists[6])
	lists := []*trace.Jobs{f.cpu(0), f.cpu(200), f.cpu(250), f.gpushare(60), f.gpushare(100), f.gpuspec(20), f.gpuspec(33), f.multigpu(30), f.multigpu(50)}
	rows, err := b.inflate(ctx, lists, []string{"divvy", "fgd", "bestfit"})
	if err != nil {
		return err
	}
	b.say("## Other members of the families\n")
	b.say("Lists that are not published here, drawn by us as the published ones are described (`tools/placementbench/families.go`); allocated percent.\n")
	b.say("| workload | jobs | divvy | fgd | bestfit | divvy less fgd |")
	b.say("| --- | --- | --- | --- | --- | --- |")
	for _, list := range lists {
		w := list.Workload()
		d, g, best := find(rows, "divvy", w), find(rows, "fgd", w), find(rows, "bestfit", w)
		b.say("| %s | %d | **%.2f** | %.2f | %.2f | %+.2f |", strings.TrimSuffix(w, "*"), len(list.Jobs), d.Allocation.Mean, g.Allocation.Mean, best.Allocation.Mean, d.Allocation.Mean-g.Allocation.Mean)
	}
	b.say("")
	return nil
}

// decisions times one seed at a time, so that seeds do not disturb each other.
func (b *bench) decisions(ctx context.Context) error {
	b.say("## Decision time\n")
	b.say("Default workload, one run at a time, microseconds per task; the larger fleet is the public one eight times.\n")
	b.say("| nodes | policy | tasks | mean | p50 | p99 |")
	b.say("| --- | --- | --- | --- | --- | --- |")
	for _, times := range []int{1, 8} {
		var nodes []placement.Node
		for c := range times {
			for _, n := range b.nodes {
				n.Name = fmt.Sprintf("%s-%d", n.Name, c)
				nodes = append(nodes, n)
			}
		}
		for _, policy := range []string{"divvy", "fgd", "bestfit"} {
			run := plan.Inflation{Fleet: plan.Fleet{Nodes: nodes}, Workloads: b.lists[:1], Policies: []string{policy}, Seeds: b.seeds[:1], ArrivePercent: 130}
			rows, err := run.Run(ctx, nil)
			if err != nil {
				return err
			}
			d := rows[0].Decision
			b.say("| %d | %s | %.0f | %.1f | %.1f | %.1f |", len(nodes), policy, rows[0].Tasks, d.Mean, d.P50, d.P99)
		}
	}
	begin := time.Now()
	if _, err := b.inflate(ctx, b.lists[:1], []string{"divvy"}); err != nil {
		return err
	}
	b.say("\n%d seeds of the default workload under divvy took %.1f s.\n", len(b.seeds), time.Since(begin).Seconds())
	return nil
}

// waiting replays the default list with departures on 70 % of the nodes.
func (b *bench) waiting(ctx context.Context) error {
	b.say("## Waiting with departures\n")
	b.say("The default list from creation to deletion on 70 %% of the nodes (drawn by the seed), backfill queue, seconds. As traced its jobs hold at most 66")
	b.say("of the 6,212 cards at a time, so nobody ever waits; arrivals are therefore also replayed faster, until the fleet overflows.\n")
	b.say("| arrivals | policy | wait: mean | p95 | p99 | longest | jobs that waited | peak allocated %% |")
	b.say("| --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, speed := range []float64{1, 3000, 5000, 10000, 20000} {
		run := plan.Replay{Fleet: plan.Fleet{Nodes: b.nodes, KeepPercent: 70}, Workloads: b.lists[:1], Policies: []string{"divvy", "fgd", "bestfit"},
			Seeds: b.seeds, Queue: plan.QueueBackfill, SpeedUp: speed}
		rows, err := run.Run(ctx, nil)
		if err != nil {
			return err
		}
		for _, r := range rows {
			b.say("| %g times as fast | %s | %.1f | %.1f | %.1f | %.0f | %.0f | %.1f |", speed, r.Policy, r.Wait.Mean, r.Wait.P95, r.Wait.P99, r.Wait.Max, r.Waited, r.Peak)
		}
	}
	return nil
}

func cpuName() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "an unknown processor"
	}
	_, rest, _ := strings.Cut(string(text), "model name\t: ")
	name, _, _ := strings.Cut(rest, "\n")
	return name
}
