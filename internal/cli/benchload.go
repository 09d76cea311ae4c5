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
	"github.com/divvy-gpu/divvy/internal/size"
)

// underLoad runs a measurement on a simulated card and an agent of its own.
func (a *app) underLoad(ctx context.Context, measure func(context.Context, bench.Target) error) error {
	return a.underLoadOn(ctx, defaultCards, measure)
}

// underLoadOn does so on these cards.
func (a *app) underLoadOn(ctx context.Context, cards string, measure func(context.Context, bench.Target) error) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	session, err := a.ownSession(ctx, cards, defaultDriver)
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
memory; kills and stops processes that have the GPU and measures when another
share has it; then kills the agent under running clients and counts failed calls
and bytes over quota. On a simulated GPU of its own.`,
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
			rows.add("memory returned, from the driver's release", quantilesText(r.FromDriverReleaseMs), "p50 0.5 ms, p99 5 ms")
			rows.add("grants before the driver's release", strconv.Itoa(r.EarlyGrants), "0")
			late := fmt.Sprintf("at most %v ms", 2*r.LeaseHolders.QuantumMs)
			rows.add("another share has the GPU, from the kill of its holder", delaysText(r.LeaseHolders.KilledMs), late)
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
	o := bench.StormOptions{Clients: 300, Crowd: 1000, Runs: 100}
	cmd := &cobra.Command{
		Use:   "storm",
		Short: "How long many processes take to start under shares, and what they cost the agent",
		Long: `Lets processes attach to one share at the same moment, and as many start without
Divvy. Then a crowd attaches, one after the other, and does nothing: what the agent uses.
Then commands that do nothing are started at once, each under divvy run, beside as many
alone and as many programs that attach without it: where the time goes.`,
		Example: `  divvy bench storm --clients 100`,
		Args:    noArguments,
	}
	cmd.RunE = a.action(func(cmd *cobra.Command, _ []string) error {
		if o.Clients < 1 || o.Clients > 1000 {
			return usage(fmt.Errorf("--clients: %d is not between 1 and 1000", o.Clients))
		}
		if o.Crowd < 0 || o.Crowd > 1000 {
			return usage(fmt.Errorf("--crowd: %d is not between 0 and 1000", o.Crowd))
		}
		if o.Runs < 0 || o.Runs > 500 {
			return usage(fmt.Errorf("--runs: %d is not between 0 and 500", o.Runs))
		}
		var err error
		if o.Program, err = self(); err != nil {
			return err
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
			rows := newTable("WHAT", "SEEN", "TARGET", "WITHOUT DIVVY")
			rows.add(fmt.Sprintf("%d at once: all attached after", r.Clients), milliseconds(r.AllMs), "1000 ms", milliseconds(r.UnheldAllMs))
			rows.add("each", quantilesText(r.AttachMs), "", "")
			rows.add("failed", strconv.Itoa(r.Failed), "0", "")
			if c := r.Crowd; c != nil {
				rows.add(fmt.Sprintf("%d one after the other: each", c.Clients), quantilesText(c.AttachMs), "p99 20 ms", quantilesText(c.UnheldAttachMs))
				rows.add("the agent then takes", size.Short(c.AgentBytes), "100MiB", "")
				rows.add("and of a core, while they are idle", percentText(c.AgentIdlePercent), "1%", "")
			}
			if c := r.Runs; c != nil {
				rows.add("one divvy run -- true", milliseconds(c.OneMs.Run), fmt.Sprintf("%.2f ms", c.OneMs.Bare+10), milliseconds(c.OneMs.Bare))
				rows.add("of which the start of divvy", milliseconds(c.OneMs.Start), "", "")
				rows.add(fmt.Sprintf("%d at once", c.Commands), milliseconds(c.AllMs.Run), "600 ms", milliseconds(c.AllMs.Bare))
				rows.add("as many that attach without divvy run", milliseconds(c.AllMs.Attach), "", milliseconds(c.AllMs.Unheld))
				rows.add("a run's time of the processors", milliseconds(c.ProcessorMs.Run), "", milliseconds(c.ProcessorMs.Bare))
				rows.add("of which the start of divvy", milliseconds(c.ProcessorMs.Start), "", "")
				rows.add("and the agent's", milliseconds(c.ProcessorMs.Agent), "", "")
			}
			return rows.write(a.stdout)
		})
	})
	cmd.Flags().IntVar(&o.Clients, "clients", o.Clients, "processes at once")
	cmd.Flags().IntVar(&o.Crowd, "crowd", o.Crowd, "processes one after the other; 0: none")
	cmd.Flags().IntVar(&o.Runs, "runs", o.Runs, "commands under divvy run at once; 0: none")
	jsonFlag(cmd, &asJSON)
	return cmd
}
