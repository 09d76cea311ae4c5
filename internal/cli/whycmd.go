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

	"github.com/divvy-gpu/divvy/internal/client"
	"github.com/divvy-gpu/divvy/internal/explain"
)

// For how long `divvy why` looks, in seconds.
const (
	leastLook   = 1
	defaultLook = 3
	mostLook    = 60
)

// snapshotAge is how old a snapshot may be that an agent answers with.
const snapshotAge = time.Second

func (a *app) whyCommand() *cobra.Command {
	var asJSON bool
	var look int
	cmd := &cobra.Command{
		Use:   "why SHARE|PID|GPU",
		Short: "Say what limits a share, a process or a GPU now",
		Long: `Looks twice, some seconds apart, and says what limited the share, the process or
the GPU in between, the first cause first: what shows it, and the command that
changes it. Nothing is changed. docs/why.md lists the causes.`,
		Example:           `  divvy why alice --seconds 5`,
		Args:              oneSubject,
		ValidArgsFunction: a.completeSubject,
	}
	cmd.RunE = a.action(func(cmd *cobra.Command, args []string) error {
		if look < leastLook || look > mostLook {
			return usage(fmt.Errorf("--seconds: %d is not between %d and %d", look, leastLook, mostLook))
		}
		ctx := client.Looking(cmd.Context())
		at, err := a.find(ctx)
		if err != nil {
			return err
		}
		report, err := at.why(ctx, args[0], time.Duration(look)*time.Second)
		if err != nil {
			return at.explain(err)
		}
		for i := range report.Causes {
			report.Causes[i].Command = a.sameAgent(report.Causes[i].Command)
		}
		if asJSON {
			return a.writeJSON(report)
		}
		return a.writeWhy(report)
	})
	cmd.Flags().IntVar(&look, "seconds", defaultLook, "`time` between the two looks")
	a.targetFlags(cmd)
	jsonFlag(cmd, &asJSON)
	return cmd
}

// oneSubject takes one argument.
func oneSubject(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return withHint(usage(fmt.Errorf("%d subjects are named, not one share, process or GPU", len(args))), cmd.CommandPath()+" --help")
	}
	return nil
}

// completeSubject offers shares and GPUs.
func (a *app) completeSubject(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	shares, _ := a.completeShares(cmd, args, typed)
	cards, directive := a.completeCards(cmd, args, typed)
	return append(shares, cards...), directive
}

// why asks twice: no connection is open in between.
func (p place) why(ctx context.Context, word string, look time.Duration) (explain.Report, error) {
	before, err := p.client.Snapshot(ctx)
	if err != nil {
		return explain.Report{}, err
	}
	subject, err := explain.Find(before, word)
	if _, number := strconv.Atoi(word); err != nil && number == nil {
		// What was measured within the last second does not have a process that came since.
		if err := wait(ctx, snapshotAge); err != nil {
			return explain.Report{}, err
		}
		if before, err = p.client.Snapshot(ctx); err != nil {
			return explain.Report{}, err
		}
		subject, err = explain.Find(before, word)
	}
	if err != nil {
		return explain.Report{}, notFound(err)
	}
	now := before
	// One that was begun early, because shares have changed, is too near.
	for tries := 0; tries < 3 && now.Life == before.Life && time.Duration(now.MonotonicNs-before.MonotonicNs) < look/2; tries++ {
		if err := wait(ctx, look); err != nil {
			return explain.Report{}, err
		}
		if now, err = p.client.Snapshot(ctx); err != nil {
			return explain.Report{}, err
		}
	}
	list, err := p.client.Events(ctx, 0)
	if err != nil {
		return explain.Report{}, err
	}
	return explain.Explain(explain.Look{Before: &before, Now: now, Events: list.Events}, subject), nil
}

// notFound words that nothing, or too much, is called so.
func notFound(err error) error {
	var none *explain.NotFoundError
	var several *explain.AmbiguousError
	switch {
	case errors.As(err, &none):
		hint := "divvy share list, divvy ps or divvy devices"
		if len(none.Near) > 0 {
			hint = "divvy why " + strings.Join(none.Near, " or divvy why ")
		}
		return withHint(notThere(err), hint)
	case errors.As(err, &several):
		return withHint(usage(err), "divvy devices shows their full UUIDs")
	}
	return err
}

// sameAgent lets a command that is shown ask the agent that was asked.
func (a *app) sameAgent(command string) string {
	flags := ""
	switch {
	case a.target.socket != "":
		flags = " --agent " + a.target.socket
	case a.target.simulate != "":
		flags = " --simulate=" + a.target.simulate
		if a.target.driver != defaultDriver {
			flags += " --driver " + a.target.driver
		}
	}
	// These ask no agent.
	if flags == "" || !strings.HasPrefix(command, "divvy ") || strings.HasPrefix(command, "divvy partition") {
		return command
	}
	own, program, has := strings.Cut(command, " -- ")
	if has {
		program = " -- " + program
	}
	return own + flags + program
}

func (a *app) writeWhy(r explain.Report) error {
	what := fmt.Sprintf("%s %s", r.Kind, r.Subject)
	if r.Kind == explain.Card {
		what = "GPU " + r.Subject
	}
	if r.Share != "" {
		what += " of share " + r.Share
	}
	fmt.Fprintf(a.stdout, "%s, in %g s:\n", what, r.Seconds)
	for i, c := range r.Causes {
		part := ""
		if c.Percent != nil {
			part = fmt.Sprintf(" (%g %%)", *c.Percent)
		}
		if _, err := fmt.Fprintf(a.stdout, "%d. %s%s: %s\n   %s\n", i+1, c.Cause, part, oneLine(c.Evidence), oneLine(c.Command)); err != nil {
			return err
		}
	}
	return nil
}
