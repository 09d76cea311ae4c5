// SPDX-License-Identifier: Apache-2.0

// Command placementtune searches weights of the divvy policy: it changes some
// of the best ones so far at random and keeps what allocates more, as a mean
// over the lists and seeds. The weights in internal/placement were found by such
// a search, from others, and rounded:
//
//	go run ./tools/placementtune -seeds 142-147 -trials 150 default gpuspec25
//
// Keep seeds 42 to 51 and all other lists for reports.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"reflect"

	"github.com/divvy-gpu/divvy/internal/placement"
	"github.com/divvy-gpu/divvy/internal/plan"
	"github.com/divvy-gpu/divvy/internal/plan/trace"
)

func main() {
	folder := flag.String("traces", "data/traces/openb", "folder of the public lists")
	seeds := flag.String("seeds", "142-147", "first and last seed")
	trials := flag.Int("trials", 150, "how many weights to try")
	chance := flag.Int64("chance", 1, "seed of the search itself")
	flag.Parse()
	if err := tune(*folder, *seeds, flag.Args(), *trials, *chance); err != nil {
		fmt.Fprintf(os.Stderr, "placementtune: error: %v\n", err)
		os.Exit(1)
	}
}

func tune(folder, seeds string, workloads []string, trials int, chance int64) error {
	var first, last int64
	if _, err := fmt.Sscanf(seeds, "%d-%d", &first, &last); err != nil {
		return fmt.Errorf("seeds %q: %w", seeds, err)
	}
	nodes, err := trace.ReadNodes(filepath.Join(folder, "openb_node_list_gpu_node.csv"))
	if err != nil {
		return err
	}
	run := plan.Inflation{Fleet: plan.Fleet{Nodes: nodes.Nodes}, Policies: []string{"divvy"}, ArrivePercent: 130}
	for s := first; s <= last; s++ {
		run.Seeds = append(run.Seeds, s)
	}
	for _, w := range workloads {
		jobs, err := trace.ReadJobs(filepath.Join(folder, "openb_pod_list_"+w+".csv.gz"))
		if err != nil {
			return err
		}
		run.Workloads = append(run.Workloads, jobs)
	}
	rate := func(w placement.Weights) (mean float64, err error) {
		run.Weights = &w
		rows, err := run.Run(context.Background(), nil)
		for _, r := range rows {
			mean += r.Allocation.Mean / float64(len(rows))
		}
		return mean, err
	}
	best := placement.DefaultWeights()
	most, err := rate(best)
	if err != nil {
		return err
	}
	fmt.Printf("%.4f %+v\n", most, best)
	random := rand.New(rand.NewSource(chance))
	for t := range trials {
		tried := change(best, random, max(0.1, 0.5-float64(t)/400))
		mean, err := rate(tried)
		if err != nil {
			return err
		}
		if mean > most {
			most, best = mean, tried
			fmt.Printf("%.4f %+v\n", most, best)
		}
	}
	return nil
}

// change scales about a third of the weights; the one of islands stays, as the
// lists have none.
func change(w placement.Weights, random *rand.Rand, scale float64) placement.Weights {
	v := reflect.ValueOf(&w).Elem()
	for i := range v.NumField() {
		if v.Type().Field(i).Name != "Split" && random.Intn(3) == 0 {
			v.Field(i).SetFloat(v.Field(i).Float() * (1 + scale*random.NormFloat64()))
		}
	}
	return w
}
