// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/plan/trace"
)

const openb = "../../data/traces/openb/"

func publicNodes(t testing.TB) *trace.Nodes {
	t.Helper()
	nodes, err := trace.ReadNodes(openb + "openb_node_list_gpu_node.csv")
	if err != nil {
		t.Fatal(err)
	}
	return nodes
}

func publicJobs(t testing.TB, workload string) *trace.Jobs {
	t.Helper()
	jobs, err := trace.ReadJobs(openb + "openb_pod_list_" + workload + ".csv.gz")
	if err != nil {
		t.Fatal(err)
	}
	return jobs
}

func TestScratch(t *testing.T) {
	if os.Getenv("SCRATCH") == "" {
		t.Skip("by hand")
	}
	in := Inflation{Fleet: Fleet{Nodes: publicNodes(t).Nodes}, Workloads: []*trace.Jobs{publicJobs(t, "default")}, Policies: []string{"divvy", "fgd", "bestfit"}, Seeds: []int64{42, 43, 44, 45, 46, 47, 48, 49, 50, 51}, ArrivePercent: 130}
	begin := time.Now()
	rows, err := in.Run(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		fmt.Printf("%s %s %.2f %.2f un %.0f frag %.2f fail %.0f dec %.1f %.1f %.1f\n", r.Policy, r.Workload, r.Allocation.Mean, r.Allocation.SD, r.UnallocatedGPUs, *r.FragmentationAt90, r.FailedTasks, r.Decision.Mean, r.Decision.P50, r.Decision.P99)
	}
	fmt.Println(time.Since(begin))
}

func TestScratchReplay(t *testing.T) {
	if os.Getenv("SCRATCH") == "" {
		t.Skip("by hand")
	}
	for _, speed := range []float64{1000, 1500, 2000, 3000, 5000, 10000} {
		for _, q := range []Queue{QueueBackfill, QueueFIFO} {
			in := Replay{Fleet: Fleet{Nodes: publicNodes(t).Nodes, KeepPercent: 70}, Workloads: []*trace.Jobs{publicJobs(t, "default")}, Policies: []string{"divvy", "fgd", "bestfit"}, Seeds: []int64{42, 43, 44, 45, 46, 47, 48, 49, 50, 51}, Queue: q, SpeedUp: speed}
			begin := time.Now()
			rows, err := in.Run(context.Background(), nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range rows {
				fmt.Printf("%4.0f %-9s %s mean %.0f p50 %.0f p95 %.0f max %.0f waited %.0f never %.0f util %.1f peak %.1f\n", speed, q, r.Policy, r.Wait.Mean, r.Wait.P50, r.Wait.P95, r.Wait.Max, r.Waited, r.NeverStarted, r.Utilisation, r.Peak)
			}
			fmt.Println(time.Since(begin))
		}
	}
}
