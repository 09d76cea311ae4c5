// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Variables that daemon and clients read.
const (
	pipeVariable    = "CUDA_MPS_PIPE_DIRECTORY"
	logVariable     = "CUDA_MPS_LOG_DIRECTORY"
	threadsVariable = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
	pinnedVariable  = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
	perContext      = "CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING"
	visibleVariable = "CUDA_VISIBLE_DEVICES"
)

// Limits are what MPS holds a process to; each process of several by itself.
type Limits struct {
	ActiveThreadPercentage int    // of the card's threads, 1 to 100; 0: no limit
	PinnedBytes            uint64 // of device memory, whole MiB; 0: no limit
}

// Validate says what MPS does not take.
func (l Limits) Validate() error {
	switch {
	case l.ActiveThreadPercentage < 0 || l.ActiveThreadPercentage > 100:
		return fmt.Errorf("MPS: %d is no percentage of threads", l.ActiveThreadPercentage)
	case l.PinnedBytes%(1<<20) != 0:
		return fmt.Errorf("MPS: %d bytes are no whole number of MiB", l.PinnedBytes)
	}
	return nil
}

// SetDefaults gives clients of later servers these limits at most, and reads them
// back. No client can lift them by its environment. 0 stands for what the card has.
func (d *Daemon) SetDefaults(ctx context.Context, l Limits) error {
	if err := l.Validate(); err != nil {
		return err
	}
	percent := l.ActiveThreadPercentage
	if percent == 0 {
		percent = 100
	}
	commands := []string{fmt.Sprintf("set_default_active_thread_percentage %d", percent)}
	if l.PinnedBytes > 0 {
		commands = append(commands, fmt.Sprintf("set_default_device_pinned_mem_limit %s %s", d.cfg.UUID, formatBytes(l.PinnedBytes)))
	}
	for _, command := range commands {
		if _, err := d.ask(ctx, command); err != nil {
			return err
		}
	}
	status, err := d.Status(ctx)
	if err != nil {
		return err
	}
	if status.ActiveThreadPercentage != percent || status.PinnedBytes != l.PinnedBytes {
		return fmt.Errorf("%w: the daemon was asked for %d%% and %d bytes and answers %d%% and %d", ErrNotInForce,
			percent, l.PinnedBytes, status.ActiveThreadPercentage, status.PinnedBytes)
	}
	return nil
}

// Environment is what a client's environment must have, in a container too, which
// has the pipe directory at the same path.
func (d *Daemon) Environment(l Limits) []string {
	// By UUID: the server numbers cards anew by its own list.
	set := []string{pipeVariable + "=" + d.PipeDirectory(), visibleVariable + "=" + d.cfg.UUID}
	if l.ActiveThreadPercentage > 0 {
		set = append(set, threadsVariable+"="+strconv.Itoa(l.ActiveThreadPercentage))
	}
	if l.PinnedBytes > 0 {
		set = append(set, pinnedVariable+"="+d.cfg.UUID+"="+formatBytes(l.PinnedBytes))
	}
	return set
}

// ClientEnvironment is env changed for a client under these limits. The client
// sees the one card that its limit is for.
func (d *Daemon) ClientEnvironment(env []string, l Limits) []string {
	return replaced(env, d.Environment(l))
}

// replaced is env without any word on MPS or visible cards, and then set.
func replaced(env, set []string) []string {
	ours := []string{pipeVariable, logVariable, threadsVariable, pinnedVariable, perContext, visibleVariable}
	var out []string
	for _, entry := range env {
		if name, _, _ := strings.Cut(entry, "="); !slices.Contains(ours, name) {
			out = append(out, entry)
		}
	}
	return append(out, set...)
}

// Check says whether an environment puts a client under these limits. It finds
// what the driver would pass over in silence.
func (d *Daemon) Check(env []string, l Limits) error {
	has := map[string]string{}
	for _, entry := range env {
		name, value, _ := strings.Cut(entry, "=")
		if _, twice := has[name]; !twice { // as getenv reads it
			has[name] = value
		}
	}
	if pipe := has[pipeVariable]; filepath.Clean(pipe) != d.PipeDirectory() || pipe == "" {
		return fmt.Errorf("%w: %s is %q, where this GPU's daemon does not listen: the program runs without MPS", ErrNotInForce, pipeVariable, pipe)
	}
	visible, all := has[visibleVariable], true
	if visible != "" {
		all = false
	}
	// A number counts from the share's GPUs: a process that is attached has the front
	// library, which names them to the driver by UUID.
	sees := func(card string) bool {
		return all || card != "" && slices.ContainsFunc(strings.Split(visible, ","), func(v string) bool {
			if _, err := strconv.ParseUint(v, 10, 8); err == nil {
				v = d.cfg.UUID
			}
			return v != "" && (strings.HasPrefix(card, v) || strings.HasPrefix(v, card))
		})
	}
	if !sees(d.cfg.UUID) {
		return fmt.Errorf("%w: %s is %q, without the GPU %s", ErrNotInForce, visibleVariable, visible, d.cfg.UUID)
	}
	if l.ActiveThreadPercentage > 0 {
		percent, err := parsePercent(has[threadsVariable])
		if err != nil || percent > l.ActiveThreadPercentage || percent == 0 {
			return fmt.Errorf("%w: %s is %q, not %d", ErrNotInForce, threadsVariable, has[threadsVariable], l.ActiveThreadPercentage)
		}
	}
	if l.PinnedBytes == 0 {
		return nil
	}
	held := false
	for _, part := range strings.Split(has[pinnedVariable], ",") {
		card, amount, _ := strings.Cut(part, "=")
		bytes, err := parseBytes(amount)
		switch {
		case err != nil:
			return fmt.Errorf("%w: %s is %q: %w", ErrNotInForce, pinnedVariable, has[pinnedVariable], err)
		case strings.HasPrefix(card, "GPU-") && !sees(card):
			return fmt.Errorf("%w: %s names %s, which the program does not see: that drops all limits", ErrNotInForce, pinnedVariable, card)
		case strings.HasPrefix(card, "GPU-") && strings.HasPrefix(d.cfg.UUID, card):
			held = bytes > 0 && bytes <= l.PinnedBytes
		case !strings.HasPrefix(card, "GPU-"):
			return fmt.Errorf("%w: %s names a GPU by number, which the server may number otherwise", ErrNotInForce, pinnedVariable)
		}
	}
	if !held {
		return fmt.Errorf("%w: %s is %q, not %s for %s", ErrNotInForce, pinnedVariable, has[pinnedVariable], formatBytes(l.PinnedBytes), d.cfg.UUID)
	}
	return nil
}

// CheckProcess is Check of the environment that a process was started with.
// One that does not come, as from a file system of the process's user, is not waited for
// for long.
func (d *Daemon) CheckProcess(ctx context.Context, pid int, l Limits) error {
	reading, cancel := context.WithTimeout(ctx, environmentPatience)
	defer cancel()
	raw, err := d.cfg.Environments.Read(reading, pid)
	if err != nil {
		return fmt.Errorf("environment of process %d: %w", pid, err)
	}
	if err := d.Check(strings.Split(strings.TrimRight(string(raw), "\x00"), "\x00"), l); err != nil {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	return nil
}

// Verify says whether a process that has initialised CUDA is under these limits:
// a server of this daemon has it as a client, and it was started with them. What
// a program does to its own environment before it initialises CUDA is not seen.
func (d *Daemon) Verify(ctx context.Context, pid int, l Limits) error {
	if err := d.CheckProcess(ctx, pid, l); err != nil {
		return err
	}
	status, err := d.Status(ctx)
	if err != nil {
		return err
	}
	for _, server := range status.Servers {
		if !slices.Contains(server.Clients, pid) {
			continue
		}
		if server.State == "FAULT" {
			return fmt.Errorf("process %d: %w: its server %d has a fault", pid, ErrNotInForce, server.PID)
		}
		return nil
	}
	return fmt.Errorf("process %d: %w: no MPS server has it as a client", pid, ErrNotInForce)
}
