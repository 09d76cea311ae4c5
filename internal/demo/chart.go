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
	fmt.Fprintf(w, "card %s, %s\n\n", r.Card.Name, size.Short(r.Card.MemoryBytes))
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
	}
}
