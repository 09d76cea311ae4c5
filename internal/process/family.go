// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	maxAncestors   = 4096
	maxEnvironment = 4 << 20
)

// Parent returns the number of a process's parent, 0 when it has none that we see.
func (t Table) Parent(pid int) (int, error) {
	raw, err := t.read(pid, "stat")
	if err != nil {
		return 0, err
	}
	fields, err := statFields(raw)
	if err != nil {
		return 0, fmt.Errorf("parent of process %d: %w", pid, err)
	}
	return strconv.Atoi(fields[parentField])
}

// Ancestor returns the nearest of a process and its ancestors that is wanted; false:
// none is.
func (t Table) Ancestor(pid int, wanted func(pid int) bool) (int, bool) {
	for range maxAncestors {
		if wanted(pid) {
			return pid, true
		}
		parent, err := t.Parent(pid)
		if err != nil || parent <= 0 {
			return 0, false
		}
		pid = parent
	}
	return 0, false
}

// Descendants lists all that descend from a process, itself not.
func (t Table) Descendants(pid int) []int {
	entries, err := os.ReadDir(t.root)
	if err != nil {
		return nil
	}
	children := map[int][]int{}
	for _, entry := range entries {
		child, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if parent, err := t.Parent(child); err == nil {
			children[parent] = append(children[parent], child)
		}
	}
	all := slices.Clone(children[pid])
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i]]...)
		delete(children, all[i]) // numbers that changed hands meanwhile make no circle
	}
	return all
}

// Owner returns the user of a process.
func (t Table) Owner(pid int) (uid int, err error) {
	info, err := os.Stat(t.path(pid, ""))
	if err != nil {
		return 0, fmt.Errorf("user of process %d: %w", pid, err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, fmt.Errorf("user of process %d: the system gives none", pid)
	}
	return int(stat.Uid), nil
}

// Environment is what a process was given when its program started, each variable ended by a
// zero byte. One that is longer than it can be is an error: a process may say that anything
// in its memory is its environment.
func (t Table) Environment(pid int) ([]byte, error) {
	file, err := os.Open(t.path(pid, "environ"))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	raw, err := io.ReadAll(io.LimitReader(file, maxEnvironment+1))
	if err == nil && len(raw) > maxEnvironment {
		err = errors.New("it is longer than one can be")
	}
	return raw, err
}

// Signal sends a signal to the process that started then, and to no other that has
// its number by now.
func (t Table) Signal(pid int, start uint64, signal syscall.Signal) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ENOSYS) {
		if t.Running(pid, start) {
			return unix.Kill(pid, signal)
		}
		return ErrGone
	}
	if err != nil {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	defer unix.Close(fd)
	if !t.Running(pid, start) {
		return fmt.Errorf("process %d: %w", pid, ErrGone)
	}
	return unix.PidfdSendSignal(fd, signal, nil, 0)
}
