// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/internal/process"
)

// Runs is what divvy run adds to a command that does nothing, one and many at once:
// by the clock, and by the processors.
type Runs struct {
	Commands int `json:"commands"` // at once
	Rounds   int `json:"rounds"`   // of many at once; medians
	// One after the other, medians: the command alone, divvy that only starts (divvy
	// version), and divvy run.
	OneMs struct {
		Bare  float64 `json:"bare"`
		Start float64 `json:"start"`
		Run   float64 `json:"run"`
		Added float64 `json:"added"` // by the run to the bare command
	} `json:"oneMs"`
	// From the first start to the last end of all: of the command alone, of programs that
	// make a context without Divvy, of the same that attach to one share, of divvy run.
	AllMs struct {
		Bare   float64 `json:"bare"`
		Unheld float64 `json:"unheld"`
		Attach float64 `json:"attach"`
		Run    float64 `json:"run"`
	} `json:"allMs"`
	// Of each of many at once, the processors' time: of the command alone, of divvy that
	// only starts, of divvy run with its command, and of the agent for it.
	ProcessorMs struct {
		Bare  float64 `json:"bare"`
		Start float64 `json:"start"`
		Run   float64 `json:"run"`
		Agent float64 `json:"agent"`
	} `json:"processorMs"`
}

const (
	runsRounds = 5
	runsSingle = 40
)

// runs measures divvy run with so many commands.
func (o StormOptions) runs(ctx context.Context, report *Runs) error {
	nothing, err := exec.LookPath("true")
	if err != nil {
		return fmt.Errorf("find a command that does nothing: %w", err)
	}
	share, remove, err := o.roomFor(ctx, "bench-runs", o.Runs)
	if err != nil {
		return err
	}
	defer remove()
	version, err := o.client().Version(ctx)
	if err != nil {
		return fmt.Errorf("find the agent: %w", err)
	}
	holder := filepath.Join(o.ToolsDirectory, "holder")
	attach := func(env []string) *exec.Cmd {
		c := exec.CommandContext(ctx, holder)
		c.Env, c.Stdin = env, strings.NewReader("start\nexit\n")
		return c
	}
	bare := func() *exec.Cmd { return exec.CommandContext(ctx, nothing) }
	start := func() *exec.Cmd { return exec.CommandContext(ctx, o.Program, "version") }
	run := func() *exec.Cmd {
		return exec.CommandContext(ctx, o.Program, "run", "--agent", o.AgentSocket, "--", nothing)
	}
	report.Commands, report.Rounds = o.Runs, runsRounds
	for _, one := range []struct {
		of func() *exec.Cmd
		to *float64
	}{{bare, &report.OneMs.Bare}, {start, &report.OneMs.Start}, {run, &report.OneMs.Run}} {
		if *one.to, _, err = median(runsSingle, func() (time.Duration, time.Duration, error) { return atOnce(1, one.of) }); err != nil {
			return err
		}
	}
	report.OneMs.Added = math.Round(1000*(report.OneMs.Run-report.OneMs.Bare)) / 1000
	table := process.New("/proc")
	for _, many := range []struct {
		of       func() *exec.Cmd
		to, each *float64
	}{
		{bare, &report.AllMs.Bare, &report.ProcessorMs.Bare},
		{start, new(float64), &report.ProcessorMs.Start},
		{func() *exec.Cmd { return attach(o.Unheld()) }, &report.AllMs.Unheld, new(float64)},
		{func() *exec.Cmd { return attach(o.Environ(share)) }, &report.AllMs.Attach, new(float64)},
		{run, &report.AllMs.Run, &report.ProcessorMs.Run},
	} {
		before, err := table.CPU(version.PID)
		if err != nil {
			return err
		}
		var sum float64
		if *many.to, sum, err = median(runsRounds, func() (time.Duration, time.Duration, error) { return atOnce(o.Runs, many.of) }); err != nil {
			return err
		}
		after, err := table.CPU(version.PID)
		if err != nil {
			return err
		}
		*many.each = sum / float64(o.Runs)
		report.ProcessorMs.Agent = milliseconds(after-before) / float64(o.Runs*runsRounds) // of the last: divvy run
	}
	return nil
}

// median measures again and again, and returns the median time of the clock and of
// the processors, in milliseconds.
func median(rounds int, measure func() (took, processors time.Duration, err error)) (float64, float64, error) {
	var all, used []time.Duration
	for range rounds {
		took, processors, err := measure()
		if err != nil {
			return 0, 0, err
		}
		all, used = append(all, took), append(used, processors)
	}
	slices.Sort(all)
	slices.Sort(used)
	return milliseconds(all[rounds/2]), milliseconds(used[rounds/2]), nil
}

// atOnce starts n commands and waits for the last: how long that took, and how much of
// the processors they used.
func atOnce(n int, command func() *exec.Cmd) (took, processors time.Duration, err error) {
	commands := make([]*exec.Cmd, 0, n)
	complaints := make([]strings.Builder, n)
	begun := time.Now()
	for i := range n {
		c := command()
		c.Stderr = &complaints[i]
		if err = c.Start(); err != nil {
			break
		}
		commands = append(commands, c)
	}
	for i, c := range commands {
		if failed := c.Wait(); failed != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w: %s", c, failed, strings.TrimSpace(complaints[i].String())))
		}
		processors += c.ProcessState.UserTime() + c.ProcessState.SystemTime()
	}
	return time.Since(begun), processors, err
}
