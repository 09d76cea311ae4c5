// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/bench"
)

const (
	maxProbes  = 100000
	maxChanges = 10000
)

func microseconds(of float64) string { return strconv.FormatFloat(of, 'f', 0, 64) + " us" }

func microText(q bench.MicroQuantiles) string {
	return "p50 " + microseconds(q.P50) + ", p99 " + microseconds(q.P99)
}

func (a *app) benchFairnessCommand() *cobra.Command {
	var asJSON bool
	seconds, shares := 10, []int{4, 16}
	cmd := &cobra.Command{
		Use:   "fairness",
		Short: "How evenly equal shares divide a GPU, and how soon idle time is lent",
		Long: `Keeps a simulated GPU busy under equal shares, and compares what each had by the
simulator's own account (Jain's index: 1 is even). Then stops one of two busy
programs again and again: how soon the other has the whole GPU.`,
		Example: `  divvy bench fairness --json`,
		Args:    noArguments,
	}
	cmd.RunE = a.action(func(cmd *cobra.Command, _ []string) error {
		if seconds < 1 || seconds > maxQuotaSeconds {
			return usage(fmt.Errorf("--seconds: %d is not between 1 and %d", seconds, maxQuotaSeconds))
		}
		return a.underLoad(cmd.Context(), func(ctx context.Context, target bench.Target) error {
			r, err := bench.Fairness(ctx, bench.FairnessOptions{Target: target, Shares: shares, Duration: time.Duration(seconds) * time.Second})
			if err != nil {
				return err
			}
			if asJSON {
				return a.writeJSON(r)
			}
			rows := newTable("WHAT", "SEEN", "TARGET")
			for _, row := range r.Rows {
				what := strconv.Itoa(row.Shares) + " equal shares: "
				rows.add(what+"Jain's index", fmt.Sprintf("%.5f", row.Jain), "0.999")
				rows.add(what+"of the GPU in all", percentText(row.TotalPercent), fmt.Sprintf("97 %% of %s without Divvy", percentText(row.ControlPercent)))
			}
			rows.add("the whole GPU is lent after", delaysText(r.LentMs), "20 ms")
			return rows.write(a.stdout)
		})
	})
	cmd.Flags().IntVar(&seconds, "seconds", seconds, "how long each is measured")
	cmd.Flags().IntSliceVar(&shares, "shares", shares, "how many equal shares at once, one after the other")
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) benchPriorityCommand() *cobra.Command {
	var asJSON bool
	count := 1000
	cmd := &cobra.Command{
		Use:   "priority",
		Short: "How long launches of high priority wait beside a busy share of low priority",
		Long: `Under one share a program launches a kernel of 200 us every 10 ms or so and waits
for it; under another, one keeps the GPU busy with kernels of 1 ms. Measured is
what a launch takes beyond its kernel: without Divvy, under equal shares, and with
a higher priority; and what waking a thread takes on this host meanwhile.`,
		Example: `  divvy bench priority --json`,
		Args:    noArguments,
	}
	cmd.RunE = a.action(func(cmd *cobra.Command, _ []string) error {
		if count < 1 || count > maxProbes {
			return usage(fmt.Errorf("--count: %d is not between 1 and %d", count, maxProbes))
		}
		return a.underLoad(cmd.Context(), func(ctx context.Context, target bench.Target) error {
			r, err := bench.Priority(ctx, bench.LatencyOptions{Target: target, Count: count})
			if err != nil {
				return err
			}
			if asJSON {
				return a.writeJSON(r)
			}
			rows := newTable("A LAUNCH WAITS", "SEEN", "TARGET")
			rows.add("with a higher priority", microText(r.WaitUs), fmt.Sprintf("p50 %s, p99 %s",
				microseconds(r.KernelUs+300), microseconds(r.KernelUs+1000+r.FutexP99Us)))
			rows.add("under equal shares", microText(r.EqualWaitUs), "")
			rows.add("without Divvy", microText(r.UnheldWaitUs), "")
			rows.add("a thread of this host, to be woken", "p99 "+microseconds(r.FutexP99Us), "")
			rows.add("meanwhile the busy share had of the GPU", percentText(r.LowPercent), "")
			return rows.write(a.stdout)
		})
	})
	cmd.Flags().IntVar(&count, "count", count, "launches")
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) benchIsolationCommand() *cobra.Command {
	var asJSON bool
	count := 1000
	cmd := &cobra.Command{
		Use:   "isolation",
		Short: "What a share that needs answers soon notices of a noisy neighbour",
		Long: `Under a share of high priority a program launches a kernel of 200 us every 10 ms or
so and waits for it: first alone, then beside a share that keeps the GPU busy with
kernels of 1 ms. The same without Divvy for comparison.`,
		Example: `  divvy bench isolation --json`,
		Args:    noArguments,
	}
	cmd.RunE = a.action(func(cmd *cobra.Command, _ []string) error {
		if count < 1 || count > maxProbes {
			return usage(fmt.Errorf("--count: %d is not between 1 and %d", count, maxProbes))
		}
		return a.underLoad(cmd.Context(), func(ctx context.Context, target bench.Target) error {
			r, err := bench.Isolation(ctx, bench.LatencyOptions{Target: target, Count: count})
			if err != nil {
				return err
			}
			if asJSON {
				return a.writeJSON(r)
			}
			rows := newTable("WHAT", "ALONE", "BESIDE", "TARGET")
			rows.add("p99 of a launch beyond its kernel", microseconds(r.P99Us.Alone), microseconds(r.P99Us.Beside),
				"at most "+microseconds(r.P99Us.Alone+r.NeighbourKernelUs+1000))
			rows.add("the same without Divvy", microseconds(r.UnheldP99Us.Alone), microseconds(r.UnheldP99Us.Beside), "")
			rows.add("launches per second", "", fmt.Sprintf("%+.1f%%", r.ThroughputChangePercent), "within 3%")
			return rows.write(a.stdout)
		})
	})
	cmd.Flags().IntVar(&count, "count", count, "launches, alone and beside the neighbour")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// changeWords tells what is looked at after a change.
var changeWords = map[string]struct{ change, sign, target string }{
	bench.ChangeNothing:  {"nothing is changed", "its last kernel ends", ""},
	bench.ChangePriority: {"another has a higher priority", "its last kernel ends", "nothing, or what that one leaves"},
	bench.ChangePause:    {"paused", "its last kernel ends", "nothing"},
	bench.ChangeResume:   {"resumed", "its first kernel begins", ""},
}

func (a *app) benchChangeCommand() *cobra.Command {
	var asJSON bool
	rounds := 50
	cmd := &cobra.Command{
		Use:   "change",
		Short: "How soon a change of a share holds",
		Long: `Of two busy shares one is given a higher priority, paused and resumed, again and
again: how long until the simulator's record shows it. Then the part of a fixed share
is raised and lowered: what it has of the GPU from 10 ms and one kernel after that on.`,
		Example: `  divvy bench change --json`,
		Args:    noArguments,
	}
	cmd.RunE = a.action(func(cmd *cobra.Command, _ []string) error {
		if rounds < 1 || rounds > maxChanges {
			return usage(fmt.Errorf("--rounds: %d is not between 1 and %d", rounds, maxChanges))
		}
		return a.underLoad(cmd.Context(), func(ctx context.Context, target bench.Target) error {
			r, err := bench.Change(ctx, bench.ChangeOptions{Target: target, Rounds: rounds})
			if err != nil {
				return err
			}
			if asJSON {
				return a.writeJSON(r)
			}
			rows := newTable("WHAT", "SEEN", "TARGET")
			bound := fmt.Sprintf("%.0f ms", 10+r.KernelUs/1000)
			for _, c := range r.Changes {
				what := changeWords[c.Change]
				rows.add(what.change+": "+what.sign, fmt.Sprintf("p50 %.1f ms, p99 %.1f ms", c.Ms.P50, c.Ms.P99), "")
				rows.add("from "+bound+" on it has of the GPU", fmt.Sprintf("%s, at most %s", percentText(c.AfterPercent), percentText(c.MostPercent)), what.target)
			}
			for _, p := range r.Parts {
				rows.add(fmt.Sprintf("%d %% becomes %d %%: from %s on it has", p.FromPercent, p.ToPercent, bound),
					fmt.Sprintf("%s, at worst %.1f points off", percentText(p.GotPercent), p.WorstPoints), fmt.Sprintf("%d%%", p.ToPercent))
			}
			return rows.write(a.stdout)
		})
	})
	cmd.Flags().IntVar(&rounds, "rounds", rounds, "how often each")
	jsonFlag(cmd, &asJSON)
	return cmd
}
