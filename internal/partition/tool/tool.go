// SPDX-License-Identifier: Apache-2.0

// Package tool runs the programs by which vendors have cards changed where no
// file of the kernel does it. A program is looked up below the machine's root and
// is given a bounded time. It decides nothing.
package tool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/gpu/sysfs"
)

const (
	longest    = 5 * time.Minute // that a program may take
	maxPrinted = 16 << 20        // by a program
	maxQuoted  = 4 << 10         // of that, in its error
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
	printed, err := paper()
	if err != nil {
		return err
	}
	defer func() { _ = printed.Close() }() // read by then
	cmd := exec.CommandContext(ctx, path, arguments...)
	cmd.Args[0] = "/" + program // what it is called by: modprobe may be a link to kmod
	cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt at the terminal is not for it
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Stdout, cmd.Stderr = printed, printed
	if m.Held != nil {
		cmd.ExtraFiles = []*os.File{m.Held}
	}
	err = cmd.Run()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		err = fmt.Errorf("it took longer than %s and was killed", limit)
	}
	if said := quote(printed); said != "" {
		err = fmt.Errorf("%w: %s", err, said)
	}
	return err
}

// paper is what a program prints on: memory that has no end, as a pipe has whose
// reader was killed, which would end the program half-way. When it is full, writing
// fails.
func paper() (*os.File, error) {
	fd, err := unix.MemfdCreate("printed", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("make a file in memory: %w", err)
	}
	file := os.NewFile(uintptr(fd), "printed")
	err = file.Truncate(maxPrinted)
	if err == nil {
		_, err = unix.FcntlInt(file.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_GROW)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make a file in memory: %w", err), file.Close())
	}
	return file, nil
}

// quote is the start of what was printed, on one line of printable characters.
func quote(printed io.ReaderAt) string {
	text := make([]byte, maxQuoted)
	n, _ := printed.ReadAt(text, 0) // what can be read
	return strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		if r >= ' ' && r <= '~' || r == '\n' || r == '\t' {
			return r
		}
		return -1
	}, string(text[:n]))), " ")
}
