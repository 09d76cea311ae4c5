// SPDX-License-Identifier: Apache-2.0

package history

import (
	"fmt"
	"slices"
	"strings"
)

// Figure is what is kept over time of GPUs, of shares on a GPU, or of both.
type Figure struct {
	Name  string
	Unit  string // bytes, percent, watts, celsius, count, or of a counter's differences ns, microjoules, count
	About string
	// Counter says that what is kept is by how much it went up, else mean, least and most.
	Counter           bool
	OfCards, OfShares bool
	column            int // of gauges or of counters
}

// Gauges of a Row.
const (
	usedBytes = iota
	bookedBytes
	busyPercent
	powerWatts
	temperatureC
	clients
	gaugeCount
)

// Counters of a Row.
const (
	cardTimeNs = iota
	waitNs
	launches
	denials
	overruns
	energyUJ
	counterCount
)

// DefaultFigure is what most want to see: it is known of GPUs and of shares.
const DefaultFigure = "card-time"

// Figures are all that are kept.
func Figures() []Figure {
	return []Figure{
		{Name: DefaultFigure, Unit: "ns", About: "GPU time that programs of shares used", Counter: true, OfCards: true, OfShares: true, column: cardTimeNs},
		{Name: "memory-used", Unit: "bytes", About: "memory in use: of a GPU all, of a share what its programs hold", OfCards: true, OfShares: true, column: usedBytes},
		{Name: "memory-booked", Unit: "bytes", About: "memory that shares of a GPU were promised", OfCards: true, column: bookedBytes},
		{Name: "memory-limit", Unit: "bytes", About: "a share's quota, or the GPU's memory", OfShares: true, column: bookedBytes},
		{Name: "busy", Unit: "percent", About: "of the time some kernel ran, whoever's", OfCards: true, column: busyPercent},
		{Name: "power", Unit: "watts", About: "what the GPU draws", OfCards: true, column: powerWatts},
		{Name: "energy", Unit: "microjoules", About: "what the GPU drew", Counter: true, OfCards: true, column: energyUJ},
		{Name: "temperature", Unit: "celsius", About: "how hot the GPU is", OfCards: true, column: temperatureC},
		{Name: "clients", Unit: "count", About: "processes attached to a share", OfShares: true, column: clients},
		{Name: "wait", Unit: "ns", About: "how long launches of a share waited for a turn", Counter: true, OfShares: true, column: waitNs},
		{Name: "launches", Unit: "count", About: "calls that launch kernels and graphs", Counter: true, OfShares: true, column: launches},
		{Name: "denials", Unit: "count", About: "allocations that were refused", Counter: true, OfShares: true, column: denials},
		{Name: "overruns", Unit: "count", About: "how often a share's work outlasted a turn so long that others went on", Counter: true, OfShares: true, column: overruns},
	}
}

// FigureNames are the names of all.
func FigureNames() []string {
	var names []string
	for _, f := range Figures() {
		names = append(names, f.Name)
	}
	return names
}

// ParseFigure finds a figure by its name.
func ParseFigure(name string) (Figure, error) {
	all := Figures()
	i := slices.IndexFunc(all, func(f Figure) bool { return f.Name == name })
	if i < 0 {
		return Figure{}, fmt.Errorf("no figure %.40q: there are %s", name, strings.Join(FigureNames(), ", "))
	}
	return all[i], nil
}

// Series names whose figures they are: a GPU's, or a share's on a GPU.
type Series struct {
	Share, Tenant string // empty: it is the GPU's. Shares without a name are sample.Unnamed
	Card          string // UUID
}

// Gauge is what a figure was in some time.
type Gauge struct {
	Known          bool
	Mean, Min, Max float64
}

// Count is by how much a counter went up in some time.
type Count struct {
	Known bool
	Sum   int64
}

// Row is what was in some time.
type Row struct {
	Ms       int64 // of which counters are
	SeenMs   int64 // of which gauges are: what nobody looked at counts as long as a sample is for
	Gauges   [gaugeCount]Gauge
	Counters totals
}

// merge is a row for the times of both: means by the time that was seen, counters added.
func merge(a, b Row) Row {
	sum := Row{Ms: a.Ms + b.Ms, SeenMs: a.SeenMs + b.SeenMs}
	for i := range sum.Gauges {
		sum.Gauges[i] = mergeGauge(a.Gauges[i], b.Gauges[i], a.SeenMs, b.SeenMs)
	}
	sum.Counters = added(a.Counters, b.Counters)
	return sum
}

func added(a, b totals) (sum totals) {
	for i := range sum {
		sum[i] = Count{a[i].Known || b[i].Known, a[i].Sum + b[i].Sum}
	}
	return sum
}

func mergeGauge(a, b Gauge, aMs, bMs int64) Gauge {
	switch {
	case !a.Known:
		return b
	case !b.Known:
		return a
	}
	g := Gauge{Known: true, Mean: a.Mean, Min: min(a.Min, b.Min), Max: max(a.Max, b.Max)}
	if a.Mean != b.Mean && aMs+bMs > 0 {
		part := float64(bMs) / float64(aMs+bMs)
		g.Mean = min(max(a.Mean+(b.Mean-a.Mean)*part, g.Min), g.Max)
	}
	return g
}

// beside is a row for what two series did in the same time: gauges add up, each for the part of
// the time that it was there, and least and most are not known any more.
func beside(a, b Row) Row {
	sum := Row{Ms: max(a.Ms, b.Ms), SeenMs: max(a.SeenMs, b.SeenMs)}
	part := func(g Gauge, ms int64) float64 {
		if !g.Known || sum.SeenMs == ms || sum.SeenMs <= 0 {
			return g.Mean
		}
		return g.Mean * float64(ms) / float64(sum.SeenMs)
	}
	for i := range sum.Gauges {
		x, y := a.Gauges[i], b.Gauges[i]
		mean := part(x, a.SeenMs) + part(y, b.SeenMs)
		sum.Gauges[i] = Gauge{x.Known || y.Known, mean, mean, mean}
	}
	sum.Counters = added(a.Counters, b.Counters)
	return sum
}

// bucket is the begin of the part of some seconds that a time is in, in unix seconds.
func bucket(unix, seconds int64) int64 {
	begin := unix / seconds * seconds
	if begin > unix {
		begin -= seconds // before 1970
	}
	return begin
}
