// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/journal"
	"github.com/divvy-gpu/divvy/internal/partition"
)

// defaultPartitionJournal is where an interrupted apply is taken up from.
const defaultPartitionJournal = "/var/lib/divvy/partition.journal"

func (a *app) partitionApply() *cobra.Command {
	var in partitionInput
	var dry bool
	var path string
	cmd := &cobra.Command{
		Use:   "apply FILE",
		Short: "Make cards what a file says, or leave them as they are",
		Long: `Plans as "plan" does and carries the steps out: looks whether they led where they
should, goes back when one fails or you interrupt it, and first ends what an apply
began that was killed. Refuses all when one card is refused. A second time it does
nothing.`,
		Example: `  divvy partition apply goal.yaml --dry-run`,
		Args:    oneFile,
	}
	cmd.RunE = a.action(func(cmd *cobra.Command, args []string) (err error) {
		if path == "" {
			path = defaultPartitionJournal
		}
		goal, err := a.readGoal(args[0], in.selected)
		if err != nil {
			return err
		}
		if !dry {
			if in.lock, err = lockFile(path + ".lock"); err != nil {
				return err
			}
			defer func() { err = errors.Join(err, in.lock.Close()) }()
		}
		cards, all, closeCards, err := a.openCards(in)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, closeCards()) }()
		planner := partition.Planner{Techniques: all, Force: in.force}
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
		return a.applyGoal(ctx, cards, planner, goal, path, in.asJSON)
	})
	in.driverFlag(cmd)
	a.agentFlag(cmd)
	a.selectFlag(cmd, &in)
	cmd.Flags().BoolVar(&in.force, "force", false, "destroy even what is in use, and take the console's card")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "show the steps only")
	cmd.Flags().StringVar(&path, "journal", "", "`file` for the way back after a crash; default: under /var/lib/divvy")
	complete(cmd, "journal", fileCompletion)
	jsonFlag(cmd, &in.asJSON)
	return cmd
}

// partitionLog keeps records on disk before a card changes.
type partitionLog struct{ journal *journal.Journal }

func (l partitionLog) Append(record []byte) error {
	if err := l.journal.Append(record); err != nil {
		return err
	}
	return l.journal.Sync()
}

// lockFile lets one apply run at a time; it goes with the process, and with the
// programs that it is handed to.
func lockFile(name string) (*os.File, error) {
	err := os.MkdirAll(filepath.Dir(name), 0o700)
	var file *os.File
	if err == nil {
		file, err = os.OpenFile(name, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	}
	switch {
	case errors.Is(err, fs.ErrPermission):
		return nil, withHint(&codedError{code: exitNotAllowed, cause: err}, "run as root")
	case err != nil:
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		busy := errors.New("another divvy partition apply is running, or a program that one started")
		return nil, errors.Join(withHint(&codedError{code: exitNotAllowed, cause: busy}, "fuser -v "+name), file.Close())
	}
	return file, nil
}

func (a *app) applyGoal(ctx context.Context, driver partitionCards, planner partition.Planner, goal partition.Goal, path string, asJSON bool) (err error) {
	kept, records, lost, err := journal.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, kept.Close()) }()
	if lost > 0 {
		a.note("%d bytes at the end of %s were no record", lost, path)
	}
	log := partitionLog{kept}
	outcomes, err := partition.Recover(ctx, planner.Techniques, driver, log, records)
	for id, outcome := range outcomes {
		a.note("an interrupted apply on %s is %s", id, outcome)
	}
	if errors.Is(err, partition.ErrLog) {
		err = withHint(fmt.Errorf("%s: %w", path, err), "--journal FILE, one that only divvy partition apply writes")
	}
	if errors.Is(err, gpu.ErrNoCard) {
		err = withHint(err, "where that card is gone for good: rm "+path)
	}
	if err != nil {
		return applyError(err)
	}
	if err := kept.Replace(nil); err != nil {
		return err
	}
	state, err := a.observeCards(ctx, driver)
	if err != nil {
		return err
	}
	plan := planner.Plan(state, goal)
	if err := a.tellPlan(plan, asJSON); err != nil {
		return err
	}
	steps := 0
	for _, band := range plan.Bands() {
		taken, err := partition.Apply(ctx, planner.Techniques, driver, log, band...)
		if err != nil && steps > 0 {
			a.note("%d steps on cards before it are done and verified", steps)
		}
		if err != nil {
			return applyError(err)
		}
		planned := 0
		for _, card := range band {
			planned += len(card.Steps)
		}
		if more := taken[planned:]; len(more) > 0 && !asJSON {
			fmt.Fprintf(a.stdout, "card %d, then:\n", band[0].Index)
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
