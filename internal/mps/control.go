// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

const (
	askFor         = 5 * time.Second // the longest that one command may take
	maxAnswerBytes = 64 << 10
	maxProcesses   = 4096
)

// errAnswer says that the daemon answered something else than it should. A
// command that it refuses is told on standard output, with exit status 0.
var errAnswer = errors.New("the MPS control daemon answers something else")

// ask gives the daemon one command and returns what it answers. A stop is only
// limited by ctx: it ends with the last client.
func (d *Daemon) ask(ctx context.Context, command string) (string, error) {
	path, err := d.program()
	if err != nil {
		return "", err
	}
	if !strings.HasPrefix(command, "quit") {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, askFor)
		defer cancel()
	}
	return d.run(ctx, path, nil, command)
}

// run runs the program with its variables set, and a command on its input.
func (d *Daemon) run(ctx context.Context, path string, args []string, command string) (string, error) {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = d.daemonEnvironment(os.Environ())
	if command != "" {
		cmd.Stdin = strings.NewReader(command + "\n")
	}
	var out, trouble capped
	cmd.Stdout, cmd.Stderr = &out, &trouble
	cmd.WaitDelay = time.Second // a daemon may keep the pipes
	err := cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) && cmd.ProcessState.Success() {
		err = nil
	}
	if err != nil {
		return "", fmt.Errorf("%w: %s: %w: %s", ErrNotRunning, command, err, strings.TrimSpace(out.String()+" "+trouble.String()))
	}
	return strings.TrimSpace(out.String()), nil
}

// daemonEnvironment is env with what a control daemon reads replaced: it sees
// one card, by its UUID, and no limits but those that it is told.
func (d *Daemon) daemonEnvironment(env []string) []string {
	return replaced(env, []string{
		pipeVariable + "=" + d.PipeDirectory(),
		logVariable + "=" + d.LogDirectory(),
		visibleVariable + "=" + d.cfg.UUID,
	})
}

// capped keeps the start of what is written to it. It hides how else a buffer can be
// filled.
type capped struct{ kept bytes.Buffer }

func (c *capped) Write(p []byte) (int, error) {
	c.kept.Write(p[:min(len(p), maxAnswerBytes-c.kept.Len())])
	return len(p), nil
}

func (c *capped) String() string { return c.kept.String() }

// ActiveThreadPercentage is what clients of later servers get of the card's
// threads at most.
func (d *Daemon) ActiveThreadPercentage(ctx context.Context) (int, error) {
	answer, err := d.ask(ctx, "get_default_active_thread_percentage")
	if err != nil {
		return 0, err
	}
	percent, err := parsePercent(answer)
	if err != nil {
		return 0, fmt.Errorf("active thread percentage: %w: %w", errAnswer, err)
	}
	return percent, nil
}

func (d *Daemon) pinned(ctx context.Context, command string) (uint64, error) {
	answer, err := d.ask(ctx, command)
	if err != nil {
		return 0, err
	}
	bytes, err := parseBytes(answer)
	if err != nil {
		return 0, nil // it says in words that none is set
	}
	return bytes, nil
}

func (d *Daemon) pids(ctx context.Context, command string) ([]int, error) {
	answer, err := d.ask(ctx, command)
	if err != nil {
		return nil, err
	}
	pids, err := parsePIDs(answer)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", command, errAnswer, err)
	}
	return pids, nil
}

// parsePercent reads 50 or 50.0.
func parsePercent(text string) (int, error) {
	percent, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || percent < 0 || percent > 100 {
		return 0, fmt.Errorf("%.60q is no percentage", text)
	}
	return int(percent), nil
}

// parseBytes reads an amount as MPS writes it: an integer, and K, M, G or T with
// or without a B, in steps of 1024.
func parseBytes(text string) (uint64, error) {
	text = strings.TrimSpace(text)
	digits := strings.TrimRight(text, "bBkKmMgGtT")
	number, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%.60q is no amount of memory", text)
	}
	shift, ok := map[string]int{"": 0, "B": 0, "K": 10, "KB": 10, "M": 20, "MB": 20, "G": 30, "GB": 30, "T": 40, "TB": 40}[strings.ToUpper(text[len(digits):])]
	if !ok || number<<shift>>shift != number {
		return 0, fmt.Errorf("%.60q is no amount of memory", text)
	}
	return number << shift, nil
}

// formatBytes writes whole MiB as MPS reads them; less than one is a limit of one.
func formatBytes(bytes uint64) string { return strconv.FormatUint(max(bytes>>20, 1), 10) + "M" }

// parsePIDs reads one process a line.
func parsePIDs(text string) ([]int, error) {
	pids := []int{}
	for _, word := range strings.Fields(text) {
		pid, err := strconv.Atoi(word)
		if err != nil || pid <= 0 || len(pids) == maxProcesses {
			return nil, fmt.Errorf("%.60q is no list of processes", text)
		}
		pids = append(pids, pid)
	}
	return pids, nil
}
