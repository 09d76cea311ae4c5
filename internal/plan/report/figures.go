// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/divvy-gpu/divvy/internal/placement"
	"github.com/divvy-gpu/divvy/internal/plan"
)

// figure is one plot with its size and what it shows.
type figure struct {
	name, section, caption string
	width, height          vg.Length
	plot                   *plot.Plot
}

func (f *figure) render(format string) ([]byte, error) {
	canvas, err := draw.NewFormattedCanvas(f.width, f.height, format)
	if err != nil {
		return nil, err
	}
	margin := vg.Points(6)
	f.plot.Draw(draw.Crop(draw.New(canvas), margin, -2*margin, margin, -margin))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return nil, err
	}
	if format != "svg" {
		return b.Bytes(), nil
	}
	// Readers without the font fall back to one of its kind.
	return bytes.ReplaceAll(b.Bytes(), []byte("font-family:Liberation Sans;"), []byte("font-family:'Liberation Sans',Arial,Helvetica,sans-serif;")), nil
}

// palette has colours that people who see fewer of them can tell apart
// (Okabe and Ito); lines differ in their dashes too.
var palette = []color.RGBA{
	{0x00, 0x72, 0xb2, 255}, {0xd5, 0x5e, 0x00, 255}, {0x00, 0x9e, 0x73, 255}, {0xcc, 0x79, 0xa7, 255},
	{0xe6, 0x9f, 0x00, 255}, {0x56, 0xb4, 0xe9, 255}, {0x40, 0x40, 0x40, 255},
}

// styleOf is the same for a policy in every plot.
func styleOf(policy string) draw.LineStyle {
	i := max(0, slices.Index(placement.Policies(), policy)) % len(palette)
	style := draw.LineStyle{Color: palette[i], Width: vg.Points(1.4)}
	if i == 0 {
		style.Width = vg.Points(2.4)
	}
	if i >= 3 {
		style.Dashes = []vg.Length{vg.Points(6 - float64(i-3)), vg.Points(2)}
	}
	return style
}

func newPlot(title, x, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	sans := func(f *font.Font, size float64) {
		f.Typeface, f.Variant, f.Size = "Liberation", "Sans", vg.Points(size)
	}
	sans(&p.Title.TextStyle.Font, 12)
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		sans(&axis.Label.TextStyle.Font, 10)
		sans(&axis.Tick.Label.Font, 9)
		axis.Label.Padding = vg.Points(4)
		axis.Tick.Marker = plainTicks{}
	}
	sans(&p.Legend.TextStyle.Font, 9)
	p.Legend.ThumbnailWidth = vg.Points(26)
	p.Legend.Padding = vg.Points(2)
	p.Title.Padding = vg.Points(8)
	p.BackgroundColor = color.White
	return p
}

// plainTicks labels the library's ticks without superfluous zeros.
type plainTicks struct{}

func (plainTicks) Ticks(least, most float64) []plot.Tick {
	ticks := plot.DefaultTicks{}.Ticks(least, most)
	for i := range ticks {
		if ticks[i].Label != "" {
			ticks[i].Label = strconv.FormatFloat(math.Round(ticks[i].Value*1e6)/1e6, 'f', -1, 64)
		}
	}
	return ticks
}

func grid() *plotter.Grid {
	g := plotter.NewGrid()
	g.Vertical.Color = color.Gray{0xe4}
	g.Horizontal.Color = color.Gray{0xe4}
	return g
}

const (
	plotWidth  = 6.4 * vg.Inch
	plotHeight = 3.9 * vg.Inch
)

// figures draws everything that the report has rows for.
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

func addLine(p *plot.Plot, name string, points plotter.XYs) {
	line, err := plotter.NewLine(points)
	if err != nil {
		return // no points: nothing to draw
	}
	line.LineStyle = styleOf(name)
	p.Add(line)
	p.Legend.Add(name, line)
}

// curves shows allocation and fragmentation over what arrived.
func curves(workload string, rows []plan.Row) []figure {
	allocation := newPlot("Allocated GPUs: "+workload, "arrived requests, % of the fleet's GPUs", "allocated, % of the fleet's GPUs")
	fragmentation := newPlot("Fragmented part of idle GPUs: "+workload, "arrived requests, % of the fleet's GPUs", "fragmented, % of idle GPUs")
	allocation.Add(grid())
	fragmentation.Add(grid())
	ideal := plotter.XYs{{X: 0, Y: 0}, {X: 100, Y: 100}}
	if line, err := plotter.NewLine(ideal); err == nil {
		line.LineStyle = draw.LineStyle{Color: color.Gray{0x99}, Width: vg.Points(0.8), Dashes: []vg.Length{vg.Points(2), vg.Points(2)}}
		allocation.Add(line)
		allocation.Legend.Add("all that arrived", line)
	}
	least := 100.0
	for _, row := range rows {
		var a, f plotter.XYs
		for _, point := range row.Curve {
			a = append(a, plotter.XY{X: point.ArrivedPercent, Y: point.AllocatedPercent})
			f = append(f, plotter.XY{X: point.ArrivedPercent, Y: point.FragmentationPercent})
			if point.ArrivedPercent >= 75 {
				least = min(least, point.AllocatedPercent)
			}
		}
		addLine(allocation, row.Policy, a)
		addLine(fragmentation, row.Policy, f)
	}
	// The policies part where the fleet fills up.
	last := 0.0
	for _, row := range rows {
		last = max(last, row.ArrivedPercent)
	}
	allocation.X.Min, allocation.X.Max = 0, max(1, last)
	if last > 90 {
		allocation.X.Min, allocation.Y.Min = 60, math.Floor(min(70, least))
	} else {
		allocation.Y.Min = 0
	}
	allocation.Y.Max = 100
	fragmentation.X.Min, fragmentation.X.Max, fragmentation.Y.Min, fragmentation.Y.Max = 0, max(1, last), 0, 100
	fragmentation.Legend.Top, fragmentation.Legend.Left = true, true
	fragmentation.Legend.XOffs = vg.Points(8)
	allocation.Legend.XOffs = -vg.Points(8)
	allocation.Legend.YOffs = vg.Points(8)
	return []figure{
		{"allocation-" + fileName(workload), workload, "Mean over seeds. Until the fleet fills up, all that arrives is placed; the policies part where room is left that fits nothing.", plotWidth, plotHeight, allocation},
		{"fragmentation-" + fileName(workload), workload, "The part of idle GPU cores that a task drawn from the workload could not use, as a mean over seeds. Lower is better.", plotWidth, plotHeight, fragmentation},
	}
}

// bars draws horizontal bars with their values.
func bars(p *plot.Plot, names []string, values []float64, colours []color.RGBA, label func(i int) string) {
	most := 0.0
	for i := range values {
		at := len(values) - 1 - i // first on top
		bar, err := plotter.NewBarChart(plotter.Values{values[i]}, vg.Points(15))
		if err != nil {
			continue
		}
		bar.Horizontal, bar.XMin = true, float64(at)
		bar.Color, bar.LineStyle.Width = colours[i], 0
		p.Add(bar)
		most = max(most, values[i])
		text, err := plotter.NewLabels(plotter.XYLabels{XYs: plotter.XYs{{X: values[i], Y: float64(at)}}, Labels: []string{label(i)}})
		if err != nil {
			continue
		}
		text.Offset.X = vg.Points(4)
		for j := range text.TextStyle {
			f := &text.TextStyle[j].Font
			f.Typeface, f.Variant, f.Size = "Liberation", "Sans", vg.Points(9)
			text.TextStyle[j].YAlign = -0.4
		}
		p.Add(text)
	}
	reversed := slices.Clone(names)
	slices.Reverse(reversed)
	p.NominalY(reversed...)
	p.X.Min, p.X.Max = 0, max(1, most*1.18)
	p.Y.Min, p.Y.Max = -0.6, float64(len(names))-0.4
}

func barHeight(n int) vg.Length { return vg.Points(70 + 24*float64(n)) }

func unallocated(workload string, rows []plan.Row) figure {
	p := newPlot("GPUs left idle at the end: "+workload, "GPUs without work, mean over seeds", "")
	var names []string
	var values []float64
	var colours []color.RGBA
	for _, row := range rows {
		names, values = append(names, row.Policy), append(values, row.UnallocatedGPUs)
		colours = append(colours, styleOf(row.Policy).Color.(color.RGBA))
	}
	bars(p, names, values, colours, func(i int) string {
		return fmt.Sprintf("%.0f  (%.2f %% allocated)", rows[i].UnallocatedGPUs, rows[i].Allocation.Mean)
	})
	p.X.Max *= 1.2
	return figure{"unallocated-" + fileName(workload), workload, "Fewer is better: what requests could not be put on although they kept coming.", plotWidth, barHeight(len(rows)), p}
}

// waits shows which part of the jobs waited longer than so long.
func waits(workload string, rows []plan.ReplayRow) figure {
	p := newPlot("Waiting times: "+workload, "waited longer than, seconds", "% of all jobs")
	p.Add(grid())
	most := 1.0
	for _, row := range rows {
		sorted := row.Waits()
		var points plotter.XYs
		n := len(sorted)
		longest := 0.0
		if n > 0 {
			longest = sorted[n-1]
		}
		most = max(most, longest)
		const steps = 200
		for s := range steps + 1 {
			t := math.Pow(max(2, longest), float64(s)/steps)
			i, _ := slices.BinarySearchFunc(sorted, t, func(a, b float64) int {
				if a <= b {
					return -1
				}
				return 1
			})
			points = append(points, plotter.XY{X: t, Y: 100 * float64(n-i) / float64(max(1, n))})
		}
		addLine(p, row.Policy, points)
	}
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.X.Min, p.X.Max, p.Y.Min = 1, max(10, most), 0
	p.Y.Max = max(p.Y.Max, 1)
	p.Legend.Top = true
	p.Legend.XOffs = -vg.Points(8)
	return figure{"waits-" + fileName(workload), workload, "All seeds together. A lower curve means that fewer jobs waited that long.", plotWidth, plotHeight, p}
}

func timeline(workload string, rows []plan.ReplayRow, queue bool) figure {
	title, y, name := "Allocated GPUs over time: ", "allocated, % of the fleet's GPUs", "load-"
	if queue {
		title, y, name = "Queue over time: ", "jobs waiting", "queue-"
	}
	p := newPlot(title+workload, "hours since the first job", y)
	p.Add(grid())
	for _, row := range rows {
		var points plotter.XYs
		for _, m := range row.Timeline[:busyPart(row.Timeline)] {
			value := m.AllocatedPercent
			if queue {
				value = float64(m.Queued)
			}
			points = append(points, plotter.XY{X: (m.Seconds - row.Timeline[0].Seconds) / 3600, Y: value})
		}
		addLine(p, row.Policy, points)
	}
	p.Y.Min = 0
	p.Y.Max = max(p.Y.Max, 1)
	p.Legend.Top = true
	p.Legend.XOffs = -vg.Points(8)
	return figure{name + fileName(workload), workload, "The first seed, until few long jobs are left. Each point is the highest value of a stretch of time.", plotWidth, plotHeight, p}
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
	p := newPlot("GPUs needed for all jobs at once: "+workload, "GPUs, mean over seeds", "")
	var names []string
	var values []float64
	var colours []color.RGBA
	policies := map[string]bool{}
	for _, row := range rows {
		policies[row.Policy] = true
	}
	for _, row := range rows {
		name := string(row.Mode)
		if len(policies) > 1 {
			name += ", " + row.Policy
		}
		names, values = append(names, name), append(values, row.Needed)
		colours = append(colours, palette[slices.Index(plan.Modes(), string(row.Mode))])
	}
	bars(p, names, values, colours, func(i int) string {
		text := fmt.Sprintf("%.0f", rows[i].Needed)
		if rows[i].Beyond {
			text = "more than " + text
		}
		if rows[i].Fewer != 0 {
			text += fmt.Sprintf("  (%s fewer)", strconv.Itoa(int(math.Round(rows[i].Fewer))))
		}
		return text
	})
	p.X.Max *= 1.1
	return figure{"sharing-" + fileName(workload), workload, "The smallest fleet of like nodes that takes every job that fits some node at all.", plotWidth, barHeight(len(rows)), p}
}
