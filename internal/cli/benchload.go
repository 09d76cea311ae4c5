// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/bench"
)

// underLoad runs a measurement on a simulated card and an agent of its own.
func (a *app) underLoad(ctx context.Context, measure func(context.Context, bench.Target) error) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	session, err := a.ownSession(ctx, defaultCards, defaultDriver)
	if err != nil {
		return err
	}
	defer session.end(ctx)
	return measure(ctx, session.target())
}

func milliseconds(of float64) string { return strconv.FormatFloat(of, 'f', 2, 64) + " ms" }

func quantilesText(q bench.Quantiles) string {
	return "p50 " + milliseconds(q.P50) + ", p99 " + milliseconds(q.P99)
}

func delaysText(d bench.Delays) string {
	return quantilesText(d.Quantiles) + ", most " + milliseconds(d.Most)
}

func (a *app) benchRecoveryCommand() *cobra.Command {
	var asJSON bool
	o := bench.RecoveryOptions{Rounds: 200, Clients: 20, Restarts: 3}
	cmd := &cobra.Command{
		Use:   "recovery",
		Short: "How soon a killed client's memory and time are usable, and what an agent's death costs",
		Long: `Kills clients that hold most of a share and measures when another process has the
memory; kills and stops processes that have the card and measures when another
share has it; then kills the agent under running clients and counts failed calls
and bytes over quota. On a simulated card of its own.`,
		Example: `  divvy bench recovery --json`,
		Args:    noArguments,
	}
	cmd.RunE = a.action(func(cmd *cobra.Command, _ []string) error {
		if o.Rounds < 1 || o.Clients < 1 || o.Clients > 1000 || o.Restarts < 1 {
			return usage(fmt.Errorf("%d rounds, %d clients, %d restarts: each at least 1", o.Rounds, o.Clients, o.Restarts))
		}
		return a.underLoad(cmd.Context(), func(ctx context.Context, target bench.Target) error {
			o.Target = target
			r, err := bench.Recovery(ctx, o)
			if err != nil {
				return err
			}
			if asJSON {
				return a.writeJSON(r)
			}
			rows := newTable("WHAT", "SEEN", "TARGET")
			rows.add("memory returned, from the kill", quantilesText(r.MemoryReturnedMs), "p99 20 ms")
			rows.add("memory returned, from the driver's release", quantilesText(r.FromDriverReleaseMs), "5 ms")
			rows.add("grants before the driver's release", strconv.Itoa(r.EarlyGrants), "0")
			late := fmt.Sprintf("at most %v ms", 2*r.LeaseHolders.QuantumMs)
			rows.add("another share has the card, from the kill of its holder", delaysText(r.LeaseHolders.KilledMs), late)
			rows.add("the same, from when its holder was stopped", delaysText(r.LeaseHolders.StoppedMs), late)
			rows.add("failed calls over agent restarts", strconv.FormatUint(r.AgentRestart.FailedCalls, 10), "0")
			rows.add("bytes over quota meanwhile", strconv.FormatUint(r.AgentRestart.OverQuotaBytes, 10), "0")
			rows.add("all clients attached again after", milliseconds(r.AgentRestart.ReconnectMs), "")
			return rows.write(a.stdout)
		})
	})
	cmd.Flags().IntVar(&o.Rounds, "rounds", o.Rounds, "killed clients")
	cmd.Flags().IntVar(&o.Clients, "clients", o.Clients, "clients that run while the agent dies")
	cmd.Flags().IntVar(&o.Restarts, "restarts", o.Restarts, "deaths of the agent")
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) benchRacesCommand() *cobra.Command {
	var asJSON bool
	o := bench.RacesOptions{Rounds: 50000, Racers: 2}
	cmd := &cobra.Command{
		Use:   "races",
		Short: "Whether exactly one process gets a share's last room, every time",
		Long: `Lets processes of one share ask for its last room at the same moment, again and
again. Exit code 1 unless exactly one got it in every round.`,
		Example: `  divvy bench races --rounds 5000`,
		Args:    noArguments,
	}
	cmd.RunE = a.action(func(cmd *cobra.Command, _ []string) error {
		if o.Rounds < 1 || o.Racers < 2 || o.Racers > 64 {
			return usage(fmt.Errorf("%d rounds of %d racers: at least 1, of 2 to 64", o.Rounds, o.Racers))
		}
		return a.underLoad(cmd.Context(), func(ctx context.Context, target bench.Target) error {
			o.Target = target
			r, err := bench.Races(ctx, o)
			if err != nil {
				return err
			}
			if asJSON {
				err = a.writeJSON(r)
			} else {
				rows := newTable("ROUNDS", "ONE WINNER", "NONE", "MORE", "ERRORS")
				rows.add(strconv.Itoa(r.Rounds), strconv.Itoa(r.One), strconv.Itoa(r.None), strconv.Itoa(r.More), strconv.Itoa(r.Errors))
				err = rows.write(a.stdout)
			}
			if err == nil && r.One != r.Rounds {
				err = &exitError{code: exitFailed}
			}
			return err
		})
	})
	cmd.Flags().IntVar(&o.Rounds, "rounds", o.Rounds, "rounds")
	cmd.Flags().IntVar(&o.Racers, "racers", o.Racers, "processes that race")
	cmd.Flags().BoolVar(&o.Unheld, "control", false, "without Divvy in between: then everybody wins")
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) benchStormCommand() *cobra.Command {
	var asJSON bool
	o := bench.StormOptions{Clients: 300}
	cmd := &cobra.Command{
		Use:     "storm",
		Short:   "How long many processes take to attach to one share at the same moment",
		Example: `  divvy bench storm --clients 100`,
		Args:    noArguments,
	}
	cmd.RunE = a.action(func(cmd *cobra.Command, _ []string) error {
		if o.Clients < 1 || o.Clients > 1000 {
			return usage(fmt.Errorf("--clients: %d is not between 1 and 1000", o.Clients))
		}
		return a.underLoad(cmd.Context(), func(ctx context.Context, target bench.Target) error {
			o.Target = target
			r, err := bench.Storm(ctx, o)
			if err != nil {
				return err
			}
			if asJSON {
				return a.writeJSON(r)
			}
			rows := newTable("CLIENTS", "ALL ATTACHED AFTER", "EACH", "FAILED")
			rows.add(strconv.Itoa(r.Clients), milliseconds(r.AllMs), quantilesText(r.AttachMs), strconv.Itoa(r.Failed))
			return rows.write(a.stdout)
		})
	})
	cmd.Flags().IntVar(&o.Clients, "clients", o.Clients, "processes")
	jsonFlag(cmd, &asJSON)
	return cmd
}
