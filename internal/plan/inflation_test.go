// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"math/rand"
	"reflect"
	"slices"
	"testing"

	"github.com/divvy-gpu/divvy/internal/placement"
	"github.com/divvy-gpu/divvy/internal/plan/trace"
)

const openb = "../../data/traces/openb/"

func publicNodes(t testing.TB) []placement.Node {
	t.Helper()
	nodes, err := trace.ReadNodes(openb + "openb_node_list_gpu_node.csv")
	if err != nil {
		t.Fatal(err)
	}
	return nodes.Nodes
}

func publicJobs(t testing.TB, workload string) *trace.Jobs {
	t.Helper()
	jobs, err := trace.ReadJobs(openb + "openb_pod_list_" + workload + ".csv.gz")
	if err != nil {
		t.Fatal(err)
	}
	return jobs
}

// TestInflationFollowsTheProtocol checks what is published of the sequence.
func TestInflationFollowsTheProtocol(t *testing.T) {
	const capacity, target = 6_212_000, 8_075_600
	for _, c := range []struct {
		workload string
		tasks    int // 0: not published
	}{{"default", 10866}, {"multigpu40", 0}} {
		jobs := publicJobs(t, c.workload)
		sorted := groups(byName(jobs.Jobs), nil)
		order, err := inflate(sorted, capacity, 130, 42)
		if err != nil {
			t.Fatal(err)
		}
		var sum, largest int64
		for _, i := range order {
			sum += sorted[i].demand
		}
		for i := range sorted {
			largest = max(largest, sorted[i].demand)
		}
		if c.tasks != 0 && len(order) != c.tasks {
			t.Errorf("%s: %d tasks, want %d", c.workload, len(order), c.tasks)
		}
		if sum > target || sum < target-largest {
			t.Errorf("%s: %d thousandths arrive, want just under %d", c.workload, sum, target)
		}
		again, err := inflate(sorted, capacity, 130, 42)
		if err != nil || !slices.Equal(order, again) {
			t.Errorf("%s: one seed gave two sequences, %v", c.workload, err)
		}
	}
}

// TestPruneEqualsTheObviousWay compares with removing from a slice.
func TestPruneEqualsTheObviousWay(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	for range 200 {
		n := 1 + r.Intn(60)
		sorted := make([]group, n)
		order := r.Perm(n)
		var sum int64
		for i := range sorted {
			sorted[i].demand = int64(r.Intn(3000))
			sum += sorted[i].demand
		}
		target := int64(float64(sum) * r.Float64())
		seed := r.Int63()
		got, gotSum := prune(slices.Clone(order), sorted, sum, target, rand.New(rand.NewSource(seed)))
		slow := rand.New(rand.NewSource(seed))
		for sum > target && len(order) > 0 {
			i := slow.Intn(len(order))
			sum -= sorted[order[i]].demand
			order = slices.Delete(order, i, i+1)
		}
		if !slices.Equal(got, order) || gotSum != sum {
			t.Fatalf("%v %d, want %v %d", got, gotSum, order, sum)
		}
	}
}

// TestPoliciesReachTheirNumbers runs two seeds (one if short) of two of the public
// workloads; `make bench-placement` runs all ten seeds of all nine.
func TestPoliciesReachTheirNumbers(t *testing.T) {
	run := Inflation{
		Fleet: Fleet{Nodes: publicNodes(t)}, Workloads: []*trace.Jobs{publicJobs(t, "default"), publicJobs(t, "gpuspec25")},
		Policies: []string{"divvy", "fgd", "bestfit"}, Seeds: []int64{42, 43}, ArrivePercent: 130,
	}
	if testing.Short() {
		run.Seeds = run.Seeds[:1]
	}
	steps := 0
	rows, err := run.Run(context.Background(), func(done, total int) {
		if steps++; done != steps || total != 6*len(run.Seeds) {
			t.Errorf("progress %d of %d after %d runs", done, total, steps)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	// What the published runs of the artifact reach, and what ours must add.
	least := map[string]float64{"divvy default": 96.2, "fgd default": 95.0, "bestfit default": 92.6, "divvy gpuspec25": 96.1, "fgd gpuspec25": 94.3, "bestfit gpuspec25": 92.5}
	for i, row := range rows {
		name := row.Policy + " " + row.Workload
		if want := run.Policies[i/2] + " " + run.Workloads[i%2].Workload(); name != want {
			t.Errorf("row %d is %s, want %s", i, name, want)
		}
		t.Logf("%s: %.2f %% allocated, %.1f %% of idle fragmented at 90 %%, decision %+v us", name, row.Allocation.Mean, *row.FragmentationAt90, row.Decision)
		if row.Allocation.Mean < least[name] {
			t.Errorf("%s: %.2f %% allocated, want %.2f", name, row.Allocation.Mean, least[name])
		}
		if row.Policy == "divvy" && *row.FragmentationAt90 > 50 {
			t.Errorf("%s: %.1f %% of idle fragmented at 90 %%, want at most 50", name, *row.FragmentationAt90)
		}
		if len(row.Curve) < 129 || row.Workload == "default" && row.Curve[49].AllocatedPercent < 49 || row.Curve[49].AllocatedPercent > 51 {
			t.Errorf("%s: curve of %d points, at 50 %%: %+v", name, len(row.Curve), row.Curve[49])
		}
	}
}

func TestQuotaAndGangsHoldInInflation(t *testing.T) {
	var jobs trace.Jobs
	for i := range 40 {
		j := trace.Job{Request: placement.Request{Name: string(rune('a' + i)), GPUs: 1, GPUMilli: 500, Tenant: []string{"x", "y"}[i%2]}}
		if i%4 == 0 {
			j.Gang = "g" + string(rune('a'+i/8))
		}
		jobs.Jobs = append(jobs.Jobs, j)
	}
	run := Inflation{
		Fleet: Fleet{Nodes: []placement.Node{{Name: "n", CPUMilli: 1000, Cards: make([]placement.Card, 8)}}}, Workloads: []*trace.Jobs{&jobs},
		Rules: Rules{QuotaMilli: map[string]int64{"x": 1000}, Prefer: placement.SameNode}, Policies: []string{"bestfit"}, Seeds: []int64{1}, ArrivePercent: 200,
	}
	rows, err := run.Run(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	// y fills what x may not have: 8 cards less what fits in no pair.
	if a := rows[0].Allocation.Mean; a <= 12.5 || a > 100 {
		t.Errorf("%.1f %% allocated", a)
	}
	run.QuotaMilli["y"] = 0
	if rows, err = run.Run(context.Background(), nil); err != nil || rows[0].Allocation.Mean > 12.5 {
		t.Errorf("%+v %v: tenants have 1 GPU in all", rows, err)
	}
}

func TestBadSettingsAreRefused(t *testing.T) {
	jobs := publicJobs(t, "multigpu20")
	good := Inflation{Fleet: Fleet{Nodes: publicNodes(t)}, Workloads: []*trace.Jobs{jobs}, Policies: []string{"divvy"}, Seeds: []int64{1}, ArrivePercent: 1}
	for name, spoil := range map[string]func(*Inflation){
		"policy":   func(i *Inflation) { i.Policies = []string{"best"} },
		"seeds":    func(i *Inflation) { i.Seeds = nil },
		"nodes":    func(i *Inflation) { i.Nodes = nil },
		"arrive":   func(i *Inflation) { i.ArrivePercent = -1 },
		"keep":     func(i *Inflation) { i.KeepPercent = 101 },
		"no lists": func(i *Inflation) { i.Workloads = nil },
	} {
		bad := good
		spoil(&bad)
		if _, err := bad.Run(context.Background(), nil); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := good.Run(ctx, nil); err == nil {
		t.Error("a cancelled run reports success")
	}
	replay := Replay{Fleet: good.Fleet, Workloads: []*trace.Jobs{jobs}, Policies: []string{"divvy"}, Seeds: []int64{1}, Queue: QueueFIFO}
	if _, err := replay.Run(context.Background(), nil); err == nil {
		t.Error("jobs without times are replayed")
	}
}

func TestEqualRunsAreEqual(t *testing.T) {
	run := Inflation{Fleet: Fleet{Nodes: publicNodes(t), KeepPercent: 20}, Workloads: []*trace.Jobs{publicJobs(t, "cpu050")}, Policies: []string{"divvy", "random"}, Seeds: []int64{42, 44}, ArrivePercent: 120}
	result := func() []Row {
		rows, err := run.Run(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range rows {
			rows[i].Decision = Decisions{}
		}
		return rows
	}
	if !reflect.DeepEqual(result(), result()) {
		t.Error("the same seeds gave other results")
	}
}

// BenchmarkDecision times placement on the public fleet and on one of about
// 10,000 nodes.
func BenchmarkDecision(b *testing.B) {
	for _, copiesOf := range []int{1, 8} {
		nodes := copies(publicNodes(b), copiesOf)
		b.Run(map[int]string{1: "nodes=1213", 8: "nodes=9704"}[copiesOf], func(b *testing.B) {
			run := Inflation{Fleet: Fleet{Nodes: nodes}, Workloads: []*trace.Jobs{publicJobs(b, "default")}, Policies: []string{"divvy"}, Seeds: []int64{42}, ArrivePercent: 130}
			for b.Loop() {
				rows, err := run.Run(context.Background(), nil)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(rows[0].Decision.Mean, "us-mean")
				b.ReportMetric(rows[0].Decision.P50, "us-p50")
				b.ReportMetric(rows[0].Decision.P99, "us-p99")
			}
		})
	}
}
