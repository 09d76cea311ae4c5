// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFamily: a child is found from its parent and the other way round, with its owner
// and what it was given, and a signal reaches it alone.
func TestFamily(t *testing.T) {
	table := New("/proc")
	cmd := exec.Command("sh", "-c", "cat; true")
	cmd.Env = []string{"A=1", "AB=2"}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	start, err := table.Start(pid)
	if err != nil {
		t.Fatal(err)
	}
	if parent, err := table.Parent(pid); err != nil || parent != os.Getpid() {
		t.Errorf("parent %d, %v", parent, err)
	}
	if !slices.Contains(table.Descendants(os.Getpid()), pid) || slices.Contains(table.Descendants(pid), os.Getpid()) {
		t.Error("not among the descendants")
	}
	if found, is := table.Ancestor(pid, func(p int) bool { return p == os.Getpid() }); !is || found != os.Getpid() {
		t.Errorf("ancestor %d, %v", found, is)
	}
	if _, is := table.Ancestor(pid, func(int) bool { return false }); is {
		t.Error("an ancestor that is not wanted")
	}
	if uid, err := table.Owner(pid); err != nil || uid != os.Getuid() {
		t.Errorf("owner %d, %v", uid, err)
	}
	variable := func(name string) string { return NewEnvironments(table).Variable(t.Context(), pid, name) }
	if variable("A") != "1" || variable("AB") != "2" || variable("B") != "" {
		t.Error("wrong variables")
	}
	if err := table.Signal(pid, start+1, unix.SIGKILL); !errors.Is(err, ErrGone) {
		t.Errorf("another process with its number: %v", err)
	}
	if err := table.Signal(pid, start, unix.SIGKILL); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("it was not killed")
	}
	if err := table.Signal(pid, start, unix.SIGKILL); err == nil {
		t.Error("a signal to nobody")
	}
}
