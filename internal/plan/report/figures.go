// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/divvy-gpu/divvy/internal/placement"
	"github.com/divvy-gpu/divvy/internal/plan"
	"github.com/divvy-gpu/divvy/internal/plan/chart"
)

// figure is one plot and what it shows.
type figure struct {
	name, section, caption string
	chart                  chart.Chart
}

// colourOf is the same for a policy in every plot.
func colourOf(policy string) int { return max(0, slices.Index(placement.Policies(), policy)) }

// figures shows everything that the report has rows for.
func (r *Report) figures() (out []figure) {
	for _, w := range workloads(r.Inflation, func(x *plan.Row) string { return x.Workload }) {
		rows := slices.DeleteFunc(slices.Clone(r.Inflation), func(x plan.Row) bool { return x.Workload != w })
		out = append(out, curves(w, rows)...)
		out = append(out, unallocated(w, rows))
		out = append(out, nodeMaps(w, "Fleet at the end of the first seed", rows, func(x *plan.Row) (string, []plan.NodeState) { return x.Policy, x.Nodes() })...)
	}
	for _, w := range workloads(r.Replay, func(x *plan.ReplayRow) string { return x.Workload }) {
		rows := slices.DeleteFunc(slices.Clone(r.Replay), func(x plan.ReplayRow) bool { return x.Workload != w })
		out = append(out, waits(w, rows), timeline(w, rows, false), timeline(w, rows, true))
		out = append(out, nodeMaps(w, "Fleet at the first seed's fullest moment", rows, func(x *plan.ReplayRow) (string, []plan.NodeState) { return x.Policy, x.Nodes() })...)
	}
	for _, w := range workloads(r.Sharing, func(x *plan.SharingRow) string { return x.Workload }) {
		rows := slices.DeleteFunc(slices.Clone(r.Sharing), func(x plan.SharingRow) bool { return x.Workload != w })
		out = append(out, needed(w, rows))
	}
	return out
}

// most is the highest value of all lines, at least 1.
func most(lines []chart.Line) float64 {
	top := 1.0
	for _, l := range lines {
		for _, p := range l.Points {
			top = max(top, p.Y)
		}
	}
	return top
}

// curves shows allocation and fragmentation over what arrived.
func curves(workload string, rows []plan.Row) []figure {
	allocated := []chart.Line{{Name: "all that arrived", Colour: chart.Reference, Points: []chart.Point{{X: 0, Y: 0}, {X: 100, Y: 100}}}}
	var fragmented []chart.Line
	least, last := 100.0, 0.0
	for _, row := range rows {
		a, f := chart.Line{Name: row.Policy, Colour: colourOf(row.Policy)}, chart.Line{Name: row.Policy, Colour: colourOf(row.Policy)}
		for _, point := range row.Curve {
			a.Points = append(a.Points, chart.Point{X: point.ArrivedPercent, Y: point.AllocatedPercent})
			f.Points = append(f.Points, chart.Point{X: point.ArrivedPercent, Y: point.FragmentationPercent})
			if point.ArrivedPercent >= 75 {
				least = min(least, point.AllocatedPercent)
			}
		}
		allocated, fragmented = append(allocated, a), append(fragmented, f)
		last = max(last, row.ArrivedPercent)
	}
	x := chart.Axis{Label: "arrived requests, % of the fleet's GPUs", Min: 0, Max: max(1, last)}
	allocation := chart.Chart{Title: "Allocated GPUs: " + workload, X: x, Y: chart.Axis{Label: "allocated, % of the fleet's GPUs", Max: 100}, Lines: allocated}
	// The policies part where the fleet fills up.
	if last > 90 {
		allocation.X.Min, allocation.Y.Min = 60, math.Floor(min(70, least))
	}
	fragmentation := chart.Chart{
		Title: "Fragmented part of idle GPUs: " + workload, X: x, Y: chart.Axis{Label: "fragmented, % of idle GPUs", Max: 100},
		Legend: chart.Corner{Top: true, Left: true}, Lines: fragmented,
	}
	return []figure{
		{"allocation-" + fileName(workload), workload, "Mean over seeds. Until the fleet fills up, all that arrives is placed; the policies part where room is left that fits nothing.", allocation},
		{"fragmentation-" + fileName(workload), workload, "The part of idle GPU cores that a task drawn from the workload could not use, as a mean over seeds. Lower is better.", fragmentation},
	}
}

// barChart leaves room for labels, given as a part of the longest bar.
func barChart(title, label string, bars []chart.Bar, room float64) chart.Chart {
	longest := 0.0
	for _, b := range bars {
		longest = max(longest, b.Value)
	}
	return chart.Chart{Title: title, X: chart.Axis{Label: label, Max: max(1, longest*1.18) * (1 + room)}, Bars: bars}
}

func unallocated(workload string, rows []plan.Row) figure {
	var bars []chart.Bar
	for _, row := range rows {
		label := fmt.Sprintf("%.0f  (%.2f %% allocated)", row.UnallocatedGPUs, row.Allocation.Mean)
		bars = append(bars, chart.Bar{Name: row.Policy, Colour: colourOf(row.Policy), Value: row.UnallocatedGPUs, Label: label})
	}
	return figure{
		"unallocated-" + fileName(workload), workload, "Fewer is better: what requests could not be put on although they kept coming.",
		barChart("GPUs left idle at the end: "+workload, "GPUs without work, mean over seeds", bars, 0.2),
	}
}

// waits shows which part of the jobs waited longer than so long.
func waits(workload string, rows []plan.ReplayRow) figure {
	var lines []chart.Line
	longestOfAll := 1.0
	for _, row := range rows {
		sorted := row.Waits()
		line := chart.Line{Name: row.Policy, Colour: colourOf(row.Policy)}
		n := len(sorted)
		longest := 0.0
		if n > 0 {
			longest = sorted[n-1]
		}
		longestOfAll = max(longestOfAll, longest)
		const steps = 200
		for s := range steps + 1 {
			t := math.Pow(max(2, longest), float64(s)/steps)
			i, _ := slices.BinarySearchFunc(sorted, t, func(a, b float64) int {
				if a <= b {
					return -1
				}
				return 1
			})
			line.Points = append(line.Points, chart.Point{X: t, Y: 100 * float64(n-i) / float64(max(1, n))})
		}
		lines = append(lines, line)
	}
	return figure{"waits-" + fileName(workload), workload, "All seeds together. A lower curve means that fewer jobs waited that long.", chart.Chart{
		Title: "Waiting times: " + workload, Legend: chart.Corner{Top: true}, Lines: lines,
		X: chart.Axis{Label: "waited longer than, seconds", Min: 1, Max: max(10, longestOfAll), Logarithmic: true},
		Y: chart.Axis{Label: "% of all jobs", Max: most(lines)},
	}}
}

func timeline(workload string, rows []plan.ReplayRow, queue bool) figure {
	title, y, name := "Allocated GPUs over time: ", "allocated, % of the fleet's GPUs", "load-"
	if queue {
		title, y, name = "Queue over time: ", "jobs waiting", "queue-"
	}
	var lines []chart.Line
	last := 0.0
	for _, row := range rows {
		line := chart.Line{Name: row.Policy, Colour: colourOf(row.Policy)}
		for _, m := range row.Timeline[:busyPart(row.Timeline)] {
			value := m.AllocatedPercent
			if queue {
				value = float64(m.Queued)
			}
			hours := (m.Seconds - row.Timeline[0].Seconds) / 3600
			last = max(last, hours)
			line.Points = append(line.Points, chart.Point{X: hours, Y: value})
		}
		lines = append(lines, line)
	}
	return figure{name + fileName(workload), workload, "The first seed, until few long jobs are left. Each point is the highest value of a stretch of time.", chart.Chart{
		Title: title + workload, Legend: chart.Corner{Top: true}, Lines: lines,
		X: chart.Axis{Label: "hours since the first job", Max: last}, Y: chart.Axis{Label: y, Max: most(lines)},
	}}
}

// busyPart is how many moments there are until the queue is empty for good and
// the last few long jobs run alone.
func busyPart(timeline []plan.Moment) int {
	peak := 0.0
	for _, m := range timeline {
		peak = max(peak, m.AllocatedPercent)
	}
	last := 0
	for i, m := range timeline {
		if m.Queued > 0 || m.AllocatedPercent > peak/4 {
			last = i
		}
	}
	return min(len(timeline), last+2)
}

func needed(workload string, rows []plan.SharingRow) figure {
	policies := map[string]bool{}
	for _, row := range rows {
		policies[row.Policy] = true
	}
	var bars []chart.Bar
	for _, row := range rows {
		bar := chart.Bar{Name: string(row.Mode), Colour: slices.Index(plan.Modes(), string(row.Mode)), Value: row.Needed, Label: fmt.Sprintf("%.0f", row.Needed)}
		if len(policies) > 1 {
			bar.Name += ", " + row.Policy
		}
		if row.Beyond {
			bar.Label = "more than " + bar.Label
		}
		if row.Fewer != 0 {
			bar.Label += fmt.Sprintf("  (%s fewer)", strconv.Itoa(int(math.Round(row.Fewer))))
		}
		bars = append(bars, bar)
	}
	return figure{
		"sharing-" + fileName(workload), workload, "The smallest fleet of like nodes that takes every job that fits some node at all.",
		barChart("GPUs needed for all jobs at once: "+workload, "GPUs, mean over seeds", bars, 0.1),
	}
}
