// SPDX-License-Identifier: Apache-2.0

// Package tool runs the programs by which vendors have cards changed where no
// file of the kernel does it. A program is looked up below the machine's root and
// is given a bounded time. It decides nothing.
package tool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/divvy-gpu/divvy/internal/gpu/sysfs"
)

const (
	longest   = 5 * time.Minute // that a program may take
	maxOutput = 4 << 10         // of a program, kept for its error
)

// Machine is a machine whose files are written and whose programs are run.
type Machine struct {
	*sysfs.Tree
	// Held is given to programs open: a lock on it lasts as long as one runs, also
	// when this process is killed before. nil: nothing is.
	Held *os.File
	// Longest is what a program may take; 0: five minutes.
	Longest time.Duration
}

// Run runs a program below the root to its end: one that is killed between may
// leave a card without a driver, so ctx does not end it. What it prints is in the
// error when it fails.
func (m Machine) Run(ctx context.Context, program string, arguments ...string) error {
	path, err := m.Path(program)
	if err != nil {
		return err
	}
	limit := m.Longest
	if limit == 0 {
		limit = longest
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, arguments...)
	cmd.Args[0] = "/" + program // what it is called by: modprobe may be a link to kmod
	cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt at the terminal is not for it
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second // what it started may keep the pipe
	if m.Held != nil {
		cmd.ExtraFiles = []*os.File{m.Held}
	}
	var out capped
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay) && cmd.ProcessState.Success():
		return nil
	case ctx.Err() != nil:
		err = fmt.Errorf("it took longer than %s and was killed", limit)
	}
	if said := out.line(); said != "" {
		err = fmt.Errorf("%w: %s", err, said)
	}
	return err
}

// capped keeps the start of what is written to it. It hides how else a buffer can be
// filled.
type capped struct{ kept bytes.Buffer }

func (c *capped) Write(p []byte) (int, error) {
	c.kept.Write(p[:min(len(p), maxOutput-c.kept.Len())])
	return len(p), nil
}

func (c *capped) String() string { return c.kept.String() }

// line is what was written, on one line of printable characters.
func (c *capped) line() string {
	text := strings.Map(func(r rune) rune {
		if r >= ' ' && r <= '~' || r == '\n' || r == '\t' {
			return r
		}
		return -1
	}, c.String())
	return strings.Join(strings.Fields(text), " ")
}
