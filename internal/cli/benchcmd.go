// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/bench"
	"github.com/divvy-gpu/divvy/internal/share"
)

func (a *app) benchCommand() *cobra.Command {
	return a.group("bench", "Measure what Divvy costs and how it keeps its promises",
		`  divvy bench calls --json`,
		a.benchCallsCommand(), a.benchQuotaCommand(), a.benchFairnessCommand(), a.benchPriorityCommand(), a.benchIsolationCommand(), a.benchChangeCommand(),
		a.benchRecoveryCommand(), a.benchRacesCommand(), a.benchStormCommand(), a.benchTruthCommand(), a.benchObserveCommand(), a.benchInterpreterCommand(), a.benchRemoteCommand())
}

func (a *app) benchCallsCommand() *cobra.Command {
	var asJSON bool
	rounds, pauses := 400, 10
	cmd := &cobra.Command{
		Use:   "calls",
		Short: "What the front adds to driver calls, over a driver that does nothing",
		Long: `Measures launches, allocations, passed-through calls and memory queries over the
null driver, bare and with the front before it, in interleaved rounds, and after
pauses of a second; prints medians in nanoseconds per call.`,
		Example: `  divvy bench calls`,
		Args:    noArguments,
	}
	cmd.RunE = a.action(func(cmd *cobra.Command, _ []string) error {
		if rounds < 200 || rounds > 1000000 {
			return usage(fmt.Errorf("--rounds: %d is not between 200 and 1000000", rounds))
		}
		if pauses < 0 || pauses > 1000 {
			return usage(fmt.Errorf("--pauses: %d is not between 0 and 1000", pauses))
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		report, err := a.benchCalls(ctx, rounds, pauses)
		if err != nil {
			return err
		}
		if asJSON {
			return a.writeJSON(report)
		}
		rows := newTable("CALL", "BARE", "FRONT", "ADDED", "TARGET")
		nanoseconds := func(ns float64) string { return fmt.Sprintf("%.1f ns", ns) }
		row := func(name string, of func(bench.CallCosts) float64, target string) {
			rows.add(name, nanoseconds(of(report.Bare)), nanoseconds(of(report.Front)), nanoseconds(of(report.Added)), target)
		}
		row("launch", func(c bench.CallCosts) float64 { return c.LaunchNs }, "5 ns")
		rows.add("launch with a lease", nanoseconds(report.Bare.LaunchNs), nanoseconds(report.Gated.LaunchNs), nanoseconds(report.Gated.AddedNs), "40 ns")
		row("alloc + free", func(c bench.CallCosts) float64 { return c.AllocFreeNs }, "150 ns")
		if c := report.AfterPause; c != nil {
			rows.add("the same after a pause of 1 s", nanoseconds(c.Bare.AllocFreeNs), nanoseconds(c.Front.AllocFreeNs), nanoseconds(c.Added.AllocFreeNs), "150 ns")
		}
		row("pass-through", func(c bench.CallCosts) float64 { return c.PassThroughNs }, "3 ns")
		row("memory info", func(c bench.CallCosts) float64 { return c.MemInfoNs }, "20 ns")
		return rows.write(a.stdout)
	})
	cmd.Flags().IntVar(&rounds, "rounds", rounds, "interleaved rounds, at least 200")
	cmd.Flags().IntVar(&pauses, "pauses", pauses, "rounds after a pause of a second each; 0: none")
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) benchCalls(ctx context.Context, rounds, pauses int) (bench.CallsReport, error) {
	session, err := a.ownSession(ctx, "", "")
	if err != nil {
		return bench.CallsReport{}, err
	}
	defer session.end(ctx)
	plain, err := session.client.CreateShare(ctx, api.ShareSpec{Name: "bench-calls", MemoryBytes: 8 << 30})
	if err != nil {
		return bench.CallsReport{}, err
	}
	o := bench.CallsOptions{
		Program: session.tool("calls"), Rounds: rounds, Pauses: pauses, Bare: session.target().Unheld(), Front: session.target().Environ(plain.Socket),
	}
	report, err := bench.Calls(ctx, o)
	if err != nil {
		return report, err
	}
	// From here on all launches on the card need a lease.
	leased, err := session.client.CreateShare(ctx, api.ShareSpec{Name: "bench-calls-gated", MemoryBytes: 8 << 30,
		Policy: share.Fixed, CoresPercent: 99})
	if err != nil {
		return report, err
	}
	o.Front = session.target().Environ(leased.Socket)
	gated, err := bench.CallsGated(ctx, o)
	report.Gated = &gated
	return report, err
}
