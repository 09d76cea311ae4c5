// SPDX-License-Identifier: Apache-2.0

package tool_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/divvy-gpu/divvy/internal/gpu/sysfs"
	"github.com/divvy-gpu/divvy/internal/partition/tool"
)

// machine is one with a program of the given text in usr/lib/tool.
func machine(t *testing.T, script string) (tool.Machine, string) {
	t.Helper()
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "usr/lib"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "usr/lib/tool"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	tree, err := sysfs.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tree.Close(); err != nil {
			t.Error(err)
		}
	})
	return tool.Machine{Tree: tree}, root
}

// TestRun: a program gets its arguments and a small environment, and what it
// prints is in the error.
func TestRun(t *testing.T) {
	m, root := machine(t, `echo "$# $1 $2 $HOME" >"$(dirname "$0")/ran"`)
	if err := m.Run(t.Context(), "usr/lib/tool", "-e", "0000:41:00.0"); err != nil {
		t.Fatal(err)
	}
	if raw, err := os.ReadFile(filepath.Join(root, "usr/lib/ran")); err != nil || string(raw) != "2 -e 0000:41:00.0 \n" {
		t.Errorf("%q, %v", raw, err)
	}
	if err := os.Symlink("/usr/lib/tool", filepath.Join(root, "usr/lib/called")); err != nil {
		t.Fatal(err)
	}
	if err := m.Run(t.Context(), "usr/lib/called"); err != nil {
		t.Errorf("by a link to an absolute path, which is one below the root: %v", err)
	}
	m, _ = machine(t, "echo 'Cannot obtain\n\033[1munbindLock' >&2; exit 3\n")
	if err := m.Run(t.Context(), "usr/lib/tool"); err == nil || !strings.Contains(err.Error(), "exit status 3: Cannot obtain [1munbindLock") {
		t.Errorf("%v", err)
	}
	m, _ = machine(t, "head -c 20000000 /dev/zero | tr '\\0' a; exit 1\n")
	if err := m.Run(t.Context(), "usr/lib/tool"); err == nil || len(err.Error()) > 5000 || !strings.HasPrefix(err.Error(), "exit status 1: aaaa") {
		t.Errorf("%.100v", err)
	}
}

// TestWhatIsNotRun: what is not there, leads out of the root, or is recorded.
func TestWhatIsNotRun(t *testing.T) {
	m, root := machine(t, "exit 0\n")
	if err := os.Symlink("/bin/true", filepath.Join(root, "usr/lib/out")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"usr/lib/missing", "usr/lib/out", "../tool", "usr/lib"} {
		if err := m.Run(t.Context(), name); err == nil {
			t.Errorf("%s was run", name)
		}
	}
	recorded := tool.Machine{Tree: sysfs.Of(fstest.MapFS{"usr/lib/tool": {Data: []byte("#!/bin/sh\n"), Mode: 0o755}})}
	if err := recorded.Run(t.Context(), "usr/lib/tool"); err == nil {
		t.Error("a program of a recorded machine was run")
	}
}

// TestInterrupted: a program is let go on when its caller is interrupted or is no
// more to read what it prints, and ended when it takes too long.
func TestInterrupted(t *testing.T) {
	m, _ := machine(t, "[ ! -p /dev/stdout ] && [ ! -p /dev/stderr ]\n")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.Run(ctx, "usr/lib/tool"); err != nil {
		t.Error(err)
	}
	m, _ = machine(t, "echo half; tail -f /dev/null\n")
	m.Longest = 200 * time.Millisecond
	if err := m.Run(t.Context(), "usr/lib/tool"); err == nil || !strings.Contains(err.Error(), "longer than 200ms and was killed") {
		t.Errorf("%v", err)
	}
}

// TestHeld: the lock that is handed to a program lasts while it runs, whatever
// becomes of who started it.
func TestHeld(t *testing.T) {
	m, root := machine(t, `flock -n "$(dirname "$0")/lock" true && exit 1; exec 4<"/proc/self/fd/3"`)
	lock, err := os.Create(filepath.Join(root, "usr/lib/lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := lock.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	m.Held = lock
	if err := m.Run(t.Context(), "usr/lib/tool"); err != nil {
		t.Error(err)
	}
}
