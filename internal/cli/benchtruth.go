// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/bench"
)

// errUntrue ends bench truth where a figure was off: what it printed says which.
var errUntrue = errors.New("not all that was shown is true")

func (a *app) benchTruthCommand() *cobra.Command {
	var asJSON, all bool
	seconds := 20
	cmd := &cobra.Command{
		Use:   "truth",
		Short: "Whether the figures that Divvy shows are true",
		Long: `Runs known loads on three simulated GPUs: shares that nothing holds, shares that
wait for their turn, with long and short kernels, and memory that is held and denied;
kills programs, and the agent. Compares what snapshot, metrics and the list of shares
show with the simulator's own account: bytes and counts exactly, time and launches
within 1% or one launch; and the GPU time of usage. The control gives each share what
its GPU was busy, and must be wrong. Exit code 1: a figure was off, two views differ, or
the control is right.`,
		Example: `  divvy bench truth --seconds 60 --json`,
		Args:    noArguments,
	}
	cmd.RunE = a.action(func(cmd *cobra.Command, _ []string) error {
		if least := int(bench.TruthLeast.Seconds()); seconds < least || seconds > maxQuotaSeconds {
			return usage(fmt.Errorf("--seconds: %d is not between %d and %d", seconds, least, maxQuotaSeconds))
		}
		return a.underLoadOn(cmd.Context(), strconv.Itoa(bench.TruthCards)+"xA100-40GB", func(ctx context.Context, target bench.Target) error {
			r, err := bench.Truth(ctx, bench.TruthOptions{Target: target, Duration: time.Duration(seconds) * time.Second})
			if err != nil {
				return err
			}
			if asJSON {
				err = a.writeJSON(r)
			} else {
				err = a.writeTruth(r, all)
			}
			if err == nil && !r.Pass {
				err = errUntrue
			}
			return err
		})
	})
	cmd.Flags().IntVar(&seconds, "seconds", seconds, "how long the loads run")
	cmd.Flags().BoolVar(&all, "all", false, "every figure, not only those that are off and the control")
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) writeTruth(r bench.TruthReport, all bool) error {
	rows := newTable("FIGURE", "OF", "WHEN", "SHOWN", "SAID", "TRUE", "ERROR", "MISSED")
	missed := 0
	add := func(row bench.TruthRow, how string) {
		said, off := "-", "-"
		if row.Said != nil {
			said = strconv.FormatFloat(*row.Said, 'f', -1, 64)
		}
		if row.ErrorPercent != nil {
			off = fmt.Sprintf("%+.2f%%", *row.ErrorPercent)
		}
		rows.add(row.Figure, row.Of, row.When, row.Shown, said, strconv.FormatFloat(row.True, 'f', -1, 64), off, how)
	}
	for _, row := range r.Rows {
		how := "-"
		if row.Missed {
			missed++
			how = "missed"
		}
		if all || row.Missed {
			add(row, how)
		}
	}
	for _, row := range r.Control {
		how := "control"
		if !row.Missed {
			how = "control is right"
		}
		add(row, how)
	}
	if err := rows.write(a.stdout); err != nil {
		return err
	}
	for _, differ := range r.Differ {
		fmt.Fprintln(a.stdout, "differ "+strings.TrimSpace(differ))
	}
	_, err := fmt.Fprintf(a.stdout, "%d of %d figures are true; views of one snapshot differ in %d\n", len(r.Rows)-missed, len(r.Rows), len(r.Differ))
	return err
}
