// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"fmt"
	"io"
	"strings"

	"github.com/divvy-gpu/divvy/internal/size"
)

const chartWidth = 50

// Bars draws each share as a part of the card: # is in use, . is the rest of
// its limit, and > stands for what is over the limit.
func Bars(w io.Writer, cardBytes uint64, shares []ShareReport, use func(ShareReport) uint64) {
	for _, s := range shares {
		fmt.Fprintf(w, "  %-10s |%s| %s of %s\n", s.Name, bar(use(s), s.MemoryLimitBytes, cardBytes),
			size.Short(use(s)), size.Short(s.MemoryLimitBytes))
	}
}

// Times draws what each share has had of the card's time, in the same way.
func Times(w io.Writer, shares []ShareReport) {
	for _, s := range shares {
		fmt.Fprintf(w, "  %-10s |%s| %.2f%% of the time, promised %.0f%%\n", s.Name,
			bar(uint64(s.CoresAchievedPercent+0.5), uint64(s.CoresPercent+0.5), 100), s.CoresAchievedPercent, s.CoresPercent)
	}
}

func bar(used, limit, card uint64) string {
	cells := func(bytes uint64) int {
		if card == 0 {
			return 0
		}
		return min(chartWidth, int((float64(bytes)/float64(card))*chartWidth+0.5))
	}
	within, whole := cells(min(used, limit)), cells(limit)
	line := strings.Repeat("#", within) + strings.Repeat(".", max(0, whole-within))
	if used > limit {
		line += strings.Repeat(">", max(1, cells(used)-whole))
	}
	if len(line) > chartWidth {
		line = line[:chartWidth]
	}
	return line + strings.Repeat(" ", chartWidth-len(line))
}

// Write prints a report for people.
func Write(w io.Writer, r Report) {
	fmt.Fprintf(w, "GPU %s, %s\n\n", r.Card.Name, size.Short(r.Card.MemoryBytes))
	fmt.Fprintf(w, "  %-10s %6s %7s %8s %8s %7s  %-8s %s\n", "SHARE", "CORES", "GOT", "LIMIT", "PEAK", "DENIED", "RESULTS", "HELD")
	for _, s := range r.Shares {
		results, held := "correct", "yes"
		if !s.ResultsCorrect {
			results = "wrong"
		}
		if s.Fault != "" {
			held = "NO: " + s.Fault
		}
		fmt.Fprintf(w, "  %-10s %5.0f%% %6.2f%% %8s %8s %7d  %-8s %s\n", s.Name, s.CoresPercent, s.CoresAchievedPercent, size.Short(s.MemoryLimitBytes), size.Short(s.MemoryPeakBytes),
			s.DeniedAllocations, results, held)
	}
	fmt.Fprintln(w)
	Bars(w, r.Card.MemoryBytes, r.Shares, func(s ShareReport) uint64 { return s.MemoryPeakBytes })
	fmt.Fprintln(w)
	Times(w, r.Shares)
	fmt.Fprintln(w)
	if r.Pass {
		fmt.Fprintln(w, "pass: each share was held to its part of time and memory (by the simulator's own account)")
	} else {
		fmt.Fprintln(w, "FAIL: not every share was held to its part of time and memory (by the simulator's own account)")
		explain(w, r)
	}
}

// explain says why a card's time was not divided as promised, and what to try.
func explain(w io.Writer, r Report) {
	if r.Idle == nil || !r.MissedTime() {
		return
	}
	fmt.Fprintf(w, "\nWhy: the GPU stood idle for %.1f%% of the time.\n", r.Idle.Sum())
	for _, cause := range r.Idle.Causes() {
		fmt.Fprintf(w, "  %5.1f%%  %s\n", cause.Percent, cause.Text)
	}
	fmt.Fprintf(w, "  This host woke threads late: half of them by %.1f ms or more, 1 of 100 by %.1f, one by %.1f.\n",
		r.Host.P50Us/1e3, r.Host.P99Us/1e3, r.Host.MostUs/1e3)
	const much = 0.5 // percent
	switch host := r.Idle.AgentLatePercent + r.Idle.ProcessLatePercent + r.Idle.RanDryPercent; {
	case host > max(much, r.Idle.Sum()/2):
		fmt.Fprintln(w, "Try: end other programs that keep the processors busy (top shows them), then: divvy demo --seconds 10")
	case r.Idle.UnwantedPercent > much:
		fmt.Fprintln(w, "Try: the programs took long to begin; give them more time: divvy demo --seconds 20")
	default:
		fmt.Fprintln(w, "Try: divvy demo --seconds 10; if it fails again this is a fault of Divvy's: please report it with the output of divvy demo --json")
	}
}
