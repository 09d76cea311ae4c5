// SPDX-License-Identifier: Apache-2.0

// Package report turns the planner's results into files: CSV, plots as SVG and
// PNG, and one HTML page that opens without a network. It computes nothing.
package report

import (
	"encoding/csv"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/internal/plan"
	"github.com/divvy-gpu/divvy/internal/plan/chart"
)

// Report is what one run of the planner found; unused parts are empty.
type Report struct {
	Command   string // that made it
	Fleet     string // the fleet in words
	Notes     []string
	Inflation []plan.Row
	Replay    []plan.ReplayRow
	Sharing   []plan.SharingRow
}

// CSV writes the rows with a header.
func (r *Report) CSV(w io.Writer) error {
	c := csv.NewWriter(w)
	number := func(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }
	rounded := func(x float64) string { return strconv.FormatFloat(x, 'f', 4, 64) }
	var rows [][]string
	if len(r.Inflation) > 0 {
		rows = append(rows, strings.Split("workload,policy,seeds,arrived_percent,allocation_percent_mean,allocation_percent_sd,"+
			"unallocated_gpus,fragmentation_percent_at_90,tasks,failed_tasks,decision_us_mean,decision_us_p50,decision_us_p99", ","))
	}
	for _, x := range r.Inflation {
		at90 := ""
		if x.FragmentationAt90 != nil {
			at90 = rounded(*x.FragmentationAt90)
		}
		rows = append(rows, []string{x.Workload, x.Policy, strconv.Itoa(x.Seeds), rounded(x.ArrivedPercent), rounded(x.Allocation.Mean), rounded(x.Allocation.SD),
			rounded(x.UnallocatedGPUs), at90, rounded(x.Tasks), rounded(x.FailedTasks), rounded(x.Decision.Mean), rounded(x.Decision.P50), rounded(x.Decision.P99)})
	}
	if len(r.Replay) > 0 {
		rows = append(rows, strings.Split("workload,policy,seeds,jobs,wait_s_mean,wait_s_p50,wait_s_p95,wait_s_p99,wait_s_max,waited_jobs,never_started_jobs,"+
			"preemptions,lost_gpu_s,makespan_s,gpu_allocated_percent,peak_gpu_allocated_percent", ","))
	}
	for _, x := range r.Replay {
		rows = append(rows, []string{x.Workload, x.Policy, strconv.Itoa(x.Seeds), number(x.Jobs), rounded(x.Wait.Mean), rounded(x.Wait.P50), rounded(x.Wait.P95),
			rounded(x.Wait.P99), rounded(x.Wait.Max), rounded(x.Waited), rounded(x.NeverStarted), rounded(x.Preempted), rounded(x.LostSeconds),
			rounded(x.Makespan), rounded(x.Utilisation), rounded(x.Peak)})
	}
	if len(r.Sharing) > 0 {
		rows = append(rows, strings.Split("workload,policy,mode,seeds,jobs,impossible_jobs,placed_jobs,cards,cards_used,cards_needed,beyond_search,cards_fewer,cards_fewer_percent", ","))
	}
	for _, x := range r.Sharing {
		rows = append(rows, []string{x.Workload, x.Policy, string(x.Mode), strconv.Itoa(x.Seeds), strconv.Itoa(x.Jobs), strconv.Itoa(x.Impossible), rounded(x.Placed),
			strconv.Itoa(x.Cards), rounded(x.CardsUsed), rounded(x.Needed), strconv.FormatBool(x.Beyond), rounded(x.Fewer), rounded(x.FewerPart)})
	}
	return c.WriteAll(rows)
}

// Drawing is a plot of the report as it was drawn.
type Drawing struct {
	figure
	chart.Drawing
}

// Drawings has all plots drawn.
func (r *Report) Drawings(draw chart.Draw) ([]Drawing, error) {
	figures := r.figures()
	charts := make([]chart.Chart, len(figures))
	for i := range figures {
		charts[i] = figures[i].chart
	}
	drawn, err := draw(charts)
	if err != nil {
		return nil, err
	}
	out := make([]Drawing, len(figures))
	for i := range figures {
		out[i] = Drawing{figures[i], drawn[i]}
	}
	return out, nil
}

// Plots writes each plot into the folder, as SVG and as PNG (which were asked for), and
// returns the names of the files.
func Plots(folder string, drawn []Drawing) ([]string, error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, err
	}
	var names []string
	for _, d := range drawn {
		for _, file := range []struct {
			format string
			text   []byte
		}{{"svg", []byte(d.SVG)}, {"png", d.PNG}} {
			name := filepath.Join(folder, d.name+"."+file.format)
			if err := os.WriteFile(name, file.text, 0o644); err != nil {
				return names, err
			}
			names = append(names, name)
		}
	}
	return names, nil
}

// workloads lists the workloads of rows in their order.
func workloads[T any](rows []T, name func(*T) string) (out []string) {
	seen := map[string]bool{}
	for i := range rows {
		if n := name(&rows[i]); !seen[n] {
			seen[n] = true
			out = append(out, n)
		}
	}
	return out
}

// fileName keeps what is harmless in a name.
func fileName(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_':
			return r
		}
		return '_'
	}, text)
}
