// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	proc "github.com/divvy-gpu/divvy/internal/process"
)

// A share goes with its command, whatever was stopped by then: the command alone, or
// `divvy run` by a signal that it cannot see. The controls: as long as the command
// lives, stopped or not, the share stays, and the bare command is as stopped.
func TestStoppedRun(t *testing.T) {
	t.Parallel()
	h := newHost(t, hostOptions{})
	table := proc.New("/proc")
	start := func(name string) (run *exec.Cmd, command int) {
		t.Helper()
		file := filepath.Join(h.directory, name)
		run = exec.Command(divvy(t), "run", "--agent", h.AgentSocket, "--name", name, "--mem", "1GiB", "--",
			"sh", "-c", "echo $$ > "+file+"~; mv "+file+"~ "+file+"; sleep 600 & wait")
		run.Env = append(os.Environ(), "DIVVY_LIBDIR="+built(t, "lib", "divvy"))
		run.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := run.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Kill(-run.Process.Pid, syscall.SIGKILL) })
		eventually(t, "the command says its number", func() error {
			text, err := os.ReadFile(file)
			if err == nil {
				command, err = strconv.Atoi(strings.TrimSpace(string(text)))
			}
			return err
		})
		if command < 2 {
			t.Fatalf("no command: %d", command)
		}
		return run, command
	}
	state := func(pid int, stopped bool) {
		t.Helper()
		eventually(t, fmt.Sprintf("process %d stopped: %v", pid, stopped), func() error {
			if table.Stopped(pid) != stopped {
				return errors.New("it is not so")
			}
			return nil
		})
	}
	gone := func(name string) {
		t.Helper()
		eventually(t, "the share is gone", func() error {
			shares, err := h.client.Shares(t.Context())
			if err != nil {
				return err
			}
			for _, s := range shares.Shares {
				if s.Name == name {
					return errors.New("it is there")
				}
			}
			return nil
		})
	}
	t.Run("the command alone", func(t *testing.T) {
		run, command := start("alone")
		for range 2 {
			_ = syscall.Kill(command, syscall.SIGSTOP)
			state(run.Process.Pid, true)
			h.look(t, "alone")
			_ = syscall.Kill(command, syscall.SIGCONT)
			state(run.Process.Pid, false)
		}
		_ = syscall.Kill(command, syscall.SIGSTOP)
		state(run.Process.Pid, true)
		_ = syscall.Kill(command, syscall.SIGKILL)
		_ = run.Wait()
		if code := run.ProcessState.ExitCode(); code != 137 {
			t.Errorf("exit code %d, want 137", code)
		}
		gone("alone")
	})
	t.Run("both at once", func(t *testing.T) {
		run, command := start("both")
		_ = syscall.Kill(-run.Process.Pid, syscall.SIGSTOP)
		state(run.Process.Pid, true)
		state(command, true)
		h.look(t, "both")
		_ = syscall.Kill(command, syscall.SIGKILL)
		gone("both")
		state(run.Process.Pid, true) // nobody has continued it
		_ = syscall.Kill(run.Process.Pid, syscall.SIGCONT)
		_ = run.Wait()
		if code := run.ProcessState.ExitCode(); code != 137 {
			t.Errorf("exit code %d, want 137", code)
		}
	})
}
