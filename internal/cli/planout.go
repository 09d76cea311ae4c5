// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/placement"
	"github.com/divvy-gpu/divvy/internal/plan"
	"github.com/divvy-gpu/divvy/internal/plan/report"
)

// planDocument is the JSON of divvy plan: one schema per kind of question.
func planDocument(r *report.Report) any {
	type document[T any] struct {
		Schema   string   `json:"schema"`
		Computed bool     `json:"computed"` // from lists, not measured on hardware
		Fleet    string   `json:"fleet"`
		Notes    []string `json:"notes"`
		Rows     []T      `json:"rows"`
	}
	notes := append([]string{}, r.Notes...)
	switch {
	case len(r.Replay) > 0:
		return document[plan.ReplayRow]{"divvy.plan.replay/v1", true, r.Fleet, notes, r.Replay}
	case len(r.Sharing) > 0:
		return document[plan.SharingRow]{"divvy.plan.sharing/v1", true, r.Fleet, notes, r.Sharing}
	}
	return document[plan.Row]{"divvy.plan/v1", true, r.Fleet, notes, r.Inflation}
}

// writePlan prints the results as tables.
func writePlan(w io.Writer, r *report.Report) error {
	fmt.Fprintln(w, r.Fleet)
	fixed := func(digits int, x float64) string { return fmt.Sprintf("%.*f", digits, x) }
	var t *table
	switch {
	case len(r.Replay) > 0:
		t = newTable("WORKLOAD", "POLICY", "SEEDS", "WAIT MEAN", "P50", "P95", "P99", "MAX", "WAITED", "JOBS", "NEVER", "PREEMPTED", "PEAK")
		for _, x := range r.Replay {
			t.add(x.Workload, x.Policy, fmt.Sprint(x.Seeds), duration(x.Wait.Mean), duration(x.Wait.P50), duration(x.Wait.P95), duration(x.Wait.P99),
				duration(x.Wait.Max), fixed(0, x.Waited), fixed(0, x.Jobs), fixed(0, x.NeverStarted), fixed(0, x.Preempted), fixed(1, x.Peak)+"%")
		}
	case len(r.Sharing) > 0:
		t = newTable("WORKLOAD", "POLICY", "MODE", "JOBS", "PLACED", "GPUS USED", "OF", "GPUS NEEDED", "FEWER")
		for _, x := range r.Sharing {
			needed, fewer := fixed(0, x.Needed), ""
			if x.Beyond {
				needed = "over " + needed
			}
			if x.Fewer != 0 {
				fewer = fmt.Sprintf("%.0f (%.1f%%)", x.Fewer, x.FewerPart)
			}
			t.add(x.Workload, x.Policy, string(x.Mode), fmt.Sprint(x.Jobs), fixed(0, x.Placed), fixed(0, x.CardsUsed), fmt.Sprint(x.Cards), needed, fewer)
		}
	default:
		t = newTable("WORKLOAD", "POLICY", "SEEDS", "ALLOCATED", "SD", "IDLE GPUS", "FRAGMENTED AT 90", "FAILED", "TASKS", "DECISION", "P99")
		for _, x := range r.Inflation {
			at90 := ""
			if x.FragmentationAt90 != nil {
				at90 = fixed(1, *x.FragmentationAt90) + "%"
			}
			t.add(x.Workload, x.Policy, fmt.Sprint(x.Seeds), fixed(2, x.Allocation.Mean)+"%", fixed(2, x.Allocation.SD), fixed(0, x.UnallocatedGPUs), at90,
				fixed(0, x.FailedTasks), fixed(0, x.Tasks), fixed(1, x.Decision.Mean)+"us", fixed(0, x.Decision.P99)+"us")
		}
	}
	return t.write(w)
}

// duration prints seconds so that columns can be read.
func duration(seconds float64) string {
	switch {
	case seconds == 0:
		return "0s"
	case seconds >= 2*86400:
		return fmt.Sprintf("%.1fd", seconds/86400)
	case seconds >= 2*3600:
		return fmt.Sprintf("%.1fh", seconds/3600)
	case seconds >= 120:
		return fmt.Sprintf("%.1fm", seconds/60)
	}
	return fmt.Sprintf("%.1fs", seconds)
}

// fleetInWords tells the size of a fleet.
func fleetInWords(nodes []placement.Node, keepPercent float64) string {
	byModel := map[string]int{}
	cards, cores := 0, int64(0)
	for _, n := range nodes {
		cards += len(n.Cards)
		cores += n.CPUMilli
		if len(n.Cards) > 0 {
			byModel[n.Model] += len(n.Cards)
		}
	}
	var models []string
	for m := range byModel {
		models = append(models, m)
	}
	slices.SortFunc(models, func(a, b string) int { return cmp.Or(cmp.Compare(byModel[b], byModel[a]), cmp.Compare(a, b)) })
	var parts []string
	for i, m := range models {
		if i == 8 {
			parts = append(parts, "...")
			break
		}
		name := m
		if name == "" {
			name = "of no model"
		}
		parts = append(parts, fmt.Sprintf("%d %s", byModel[m], name))
	}
	text := fmt.Sprintf("%d nodes with %d GPUs (%s) and %d cores", len(nodes), cards, strings.Join(parts, ", "), cores/1000)
	if cards == 0 {
		text = fmt.Sprintf("%d nodes without GPUs and %d cores", len(nodes), cores/1000)
	}
	if keepPercent != 100 {
		text += fmt.Sprintf("; of the nodes %g %% are kept", keepPercent)
	}
	return text
}
