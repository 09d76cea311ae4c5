// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/partition"
	"github.com/divvy-gpu/divvy/internal/partition/machine"
)

func (a *app) partitionApply() *cobra.Command {
	var in partitionInput
	var dry bool
	var path string
	cmd := &cobra.Command{
		Use:   "apply FILE",
		Short: "Make GPUs what a file says, or leave them as they are",
		Long: `Plans as "plan" does and carries the steps out: looks whether they led where they
should, goes back when one fails or you interrupt it, and first ends what an apply
began that was killed. Refuses all when one GPU is refused. A second time it does
nothing.`,
		Example: `  divvy partition apply goal.yaml --dry-run`,
		Args:    oneFile,
	}
	cmd.RunE = a.action(func(cmd *cobra.Command, args []string) (err error) {
		if path == "" {
			path = machine.DefaultJournal
		}
		goal, err := a.readGoal(args[0], in.selected)
		if err != nil {
			return err
		}
		var log *machine.Journal
		if !dry {
			if log, err = a.openJournal(path); err != nil {
				return err
			}
			defer func() { err = errors.Join(err, log.Close()) }()
			in.lock = log.Lock
		}
		cards, closeCards, err := a.openCards(in)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, closeCards()) }()
		planner := partition.Planner{Techniques: cards.Techniques, Force: in.force}
		if dry {
			state, err := a.observeCards(cmd.Context(), cards)
			if err != nil {
				return err
			}
			return a.tellPlan(planner.Plan(state, goal), in.asJSON)
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		defer context.AfterFunc(ctx, func() {
			stop()
			a.note("interrupted: it goes back when the step that it is at has ended; a second time ends it at once")
		})()
		return a.applyGoal(ctx, cards, planner, goal, log, in.asJSON)
	})
	in.driverFlag(cmd)
	a.agentFlag(cmd)
	a.selectFlag(cmd, &in)
	cmd.Flags().BoolVar(&in.force, "force", false, "destroy even what is in use, and take the console's GPU")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "show the steps only")
	cmd.Flags().StringVar(&path, "journal", "", "`file` for the way back after a crash; default: under /var/lib/divvy")
	complete(cmd, "journal", fileCompletion)
	jsonFlag(cmd, &in.asJSON)
	return cmd
}

// openJournal opens the journal of changes, which one apply at a time has.
func (a *app) openJournal(path string) (*machine.Journal, error) {
	log, err := machine.OpenJournal(path)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return nil, withHint(&codedError{code: exitNotAllowed, cause: err}, "run as root")
	case errors.Is(err, machine.ErrBusy):
		return nil, withHint(&codedError{code: exitNotAllowed, cause: err}, "fuser -v "+path+".lock")
	case err == nil && log.Lost > 0:
		a.note("%d bytes at the end of %s were no record", log.Lost, path)
	}
	return log, err
}

func (a *app) applyGoal(ctx context.Context, cards *machine.Machine, planner partition.Planner, goal partition.Goal, log *machine.Journal, asJSON bool) error {
	outcomes, err := cards.Recover(ctx, log)
	for id, outcome := range outcomes {
		a.note("an interrupted apply on %s is %s", id, outcome)
	}
	if errors.Is(err, partition.ErrLog) {
		err = withHint(fmt.Errorf("%s: %w", log.Path, err), "--journal FILE, one that only divvy partition apply writes")
	}
	if errors.Is(err, gpu.ErrNoCard) {
		err = withHint(err, "where that GPU is gone for good: rm "+log.Path)
	}
	if err != nil {
		return applyError(err)
	}
	state, err := a.observeCards(ctx, cards)
	if err != nil {
		return err
	}
	plan := planner.Plan(state, goal)
	if err := a.tellPlan(plan, asJSON); err != nil {
		return err
	}
	steps := 0
	for _, band := range plan.Bands() {
		taken, err := cards.Apply(ctx, log, band...)
		if err != nil && steps > 0 {
			a.note("%d steps on GPUs before it are done and verified", steps)
		}
		if err != nil {
			return applyError(err)
		}
		planned := 0
		for _, card := range band {
			planned += len(card.Steps)
		}
		if more := taken[planned:]; len(more) > 0 && !asJSON {
			fmt.Fprintf(a.stdout, "GPU %d, then:\n", band[0].Index)
			a.printSteps(more, planned)
		}
		steps += len(taken)
	}
	if steps > 0 && !asJSON {
		fmt.Fprintf(a.stdout, "done: %d steps, verified\n", steps)
	}
	return nil
}

// applyError gives what is in use its exit code.
func applyError(err error) error {
	if errors.Is(err, partition.ErrInUse) || errors.Is(err, partition.ErrChanged) {
		return &codedError{code: exitNotAllowed, cause: err}
	}
	return err
}
