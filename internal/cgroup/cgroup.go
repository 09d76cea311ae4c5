// SPDX-License-Identifier: Apache-2.0

// Package cgroup makes control groups of version 2, puts processes into them and
// says which group a process is in. It sets no limit itself.
// https://docs.kernel.org/admin-guide/cgroup-v2.html
package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ErrNone says that version 2 of control groups is not mounted.
var ErrNone = errors.New("no control groups of version 2")

// ErrGone says that there is no such process.
var ErrGone = errors.New("no such process")

const (
	maxFileBytes = 1 << 20
	processes    = "cgroup.procs"
	folderMode   = 0o755
)

// Tree is where control groups are mounted.
type Tree struct {
	proc string // usually /proc
	root string
}

// Find finds the tree by the mounts that this process sees.
func Find(proc string) (Tree, error) {
	file, err := os.Open(filepath.Join(proc, "self", "mountinfo"))
	if err != nil {
		return Tree{}, fmt.Errorf("find control groups: %w", err)
	}
	defer file.Close()
	lines := bufio.NewScanner(io.LimitReader(file, maxFileBytes))
	for lines.Scan() {
		// id, parent, device, root, mount point, options... - type, source, options
		before, after, _ := strings.Cut(lines.Text(), " - ")
		place, kind := strings.Fields(before), strings.Fields(after)
		if len(place) > 4 && len(kind) > 0 && kind[0] == "cgroup2" && place[3] == "/" {
			return Tree{proc: proc, root: unescape(place[4])}, nil
		}
	}
	return Tree{}, fmt.Errorf("find control groups: %w", ErrNone)
}

// unescape undoes how mountinfo writes blanks: backslash and three octal digits.
func unescape(text string) string {
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+3 < len(text) {
			if n, err := strconv.ParseUint(text[i+1:i+4], 8, 8); err == nil {
				out.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		out.WriteByte(text[i])
	}
	return out.String()
}

// Path is the folder of a group by its name from the root.
func (t Tree) Path(name string) string { return filepath.Join(t.root, name) }

// Has says whether path is the folder of a group.
func (t Tree) Has(path string) bool {
	if !Within(path, t.root) {
		return false
	}
	_, err := os.Stat(filepath.Join(path, processes))
	return err == nil
}

// Of returns the folder of the group that a process is in.
func (t Tree) Of(pid int) (string, error) {
	raw, err := os.ReadFile(filepath.Join(t.proc, strconv.Itoa(pid), "cgroup"))
	if errors.Is(err, os.ErrNotExist) {
		err = ErrGone
	}
	if err != nil {
		return "", fmt.Errorf("control group of process %d: %w", pid, err)
	}
	for line := range strings.Lines(string(raw)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return t.Path(strings.TrimSuffix(name, " (deleted)")), nil
		}
	}
	return "", fmt.Errorf("control group of process %d: %w", pid, ErrNone)
}

// Within says whether a group is another one or below it.
func Within(path, group string) bool {
	return path == group || strings.HasPrefix(path, strings.TrimSuffix(group, "/")+"/")
}

// Make makes a group, and those above it; one that is there is no error.
func (t Tree) Make(name string) (string, error) {
	path := t.Path(name)
	if err := os.MkdirAll(path, folderMode); err != nil {
		return "", fmt.Errorf("make a control group: %w", err)
	}
	if !t.Has(path) {
		return "", fmt.Errorf("make a control group: %s: %w", path, ErrNone)
	}
	return path, nil
}

// Bound returns the file of a limit on memory or processors that holds a group or
// one above it, empty if there is none: a process that leaves would escape it.
func (t Tree) Bound(path string) string {
	for ; Within(path, t.root) && path != t.root; path = filepath.Dir(path) {
		for _, name := range []string{"memory.max", "memory.high", "cpu.max", "cpuset.cpus"} {
			file := filepath.Join(path, name)
			raw, err := os.ReadFile(file)
			words := strings.Fields(string(raw))
			if err == nil && len(words) > 0 && words[0] != "max" {
				return file
			}
		}
	}
	return ""
}

// Enter puts a process into a group; what it starts from then on is in it too.
func (t Tree) Enter(path string, pid int) error {
	err := os.WriteFile(filepath.Join(path, processes), []byte(strconv.Itoa(pid)), 0)
	if err != nil {
		return fmt.Errorf("put process %d into a control group: %w", pid, err)
	}
	return nil
}

// Remove removes an empty group; one that is gone is no error.
func (t Tree) Remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove a control group: %w", err)
	}
	return nil
}
