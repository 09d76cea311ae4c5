// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/event"
	terms "github.com/divvy-gpu/divvy/internal/share"
)

// commandRun is a holder as the command of `divvy run`.
type commandRun struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	lines  *bufio.Scanner
	stderr heard
}

// heard is what a program says, while it says it.
type heard struct {
	mutex sync.Mutex
	text  bytes.Buffer
}

func (h *heard) Write(text []byte) (int, error) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return h.text.Write(text)
}

func (h *heard) String() string {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return h.text.String()
}

// startRun runs a holder under flags, behind the words of wrapper.
func (h *host) startRun(t *testing.T, flags string, wrapper ...string) *commandRun {
	t.Helper()
	args := append([]string{"run", "--agent", h.AgentSocket}, strings.Fields(flags)...)
	args = append(append(append(args, "--"), wrapper...), filepath.Join(h.ToolsDirectory, "holder"))
	r := &commandRun{t: t, cmd: exec.Command(divvy(t), args...)}
	r.cmd.Env = h.Unheld()
	r.cmd.Stderr = &r.stderr
	out, err := r.cmd.StdoutPipe()
	if err == nil {
		r.stdin, err = r.cmd.StdinPipe()
	}
	if err == nil {
		err = r.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.stdin.Close(); _ = r.cmd.Process.Kill(); _ = r.cmd.Wait() }) // the command may outlive it
	r.lines = bufio.NewScanner(out)
	r.answer("ready")
	return r
}

// answer reads a line that begins so.
func (r *commandRun) answer(want string) {
	r.t.Helper()
	if !r.lines.Scan() || !strings.HasPrefix(r.lines.Text(), want) {
		r.t.Fatalf("%q, want %s\n%s", r.lines.Text(), want, r.stderr.String())
	}
}

func (r *commandRun) do(command string) {
	r.t.Helper()
	if _, err := fmt.Fprintln(r.stdin, command); err != nil {
		r.t.Fatal(err)
	}
	r.answer("ok")
}

// code waits for the end.
func (r *commandRun) code() int {
	_ = r.cmd.Wait()
	return r.cmd.ProcessState.ExitCode()
}

// wantLevel waits for the level that a share is shown at, and returns it.
func (h *host) wantLevel(t *testing.T, name string, level terms.Enforcement) (found api.Share) {
	t.Helper()
	eventually(t, fmt.Sprintf("share %s at level %s", name, level), func() (err error) {
		if found, err = h.client.Share(t.Context(), name); err == nil && found.Enforcement != level {
			err = errors.New(string(found.Enforcement))
		}
		return err
	}, h.agent)
	return found
}

// withoutFront is a wrapper that takes the library away, as a sandbox does.
func (h *host) withoutFront() []string {
	return []string{"env", "-u", "LD_PRELOAD", "LD_LIBRARY_PATH=" + h.DriverDirectory}
}

// TestDemandedLevelIsSeenTo: a program that the library is not loaded into lowers the level
// that its share is shown at, and ends its run where the level was demanded. The same
// program with the library does not, and one that is of no run lives on.
func TestDemandedLevelIsSeenTo(t *testing.T) {
	t.Parallel()
	h := newHost(t, hostOptions{})
	others := h.holderIn(t, h.Unheld())
	do(t, others, "start")
	alloc(t, others, 256*mib)

	held := h.startRun(t, "--name held --mem 1GiB --enforce front")
	held.do("start")
	held.do(fmt.Sprintf("alloc %d", 512*mib))

	boxed := h.startRun(t, "--name boxed --mem 1GiB --enforce front --enforce-grace 2s", h.withoutFront()...)
	boxed.do("start")
	boxed.do(fmt.Sprintf("alloc %d", 5000*mib)) // which nothing refuses
	share := h.wantLevel(t, "boxed", terms.Booked)
	if !strings.Contains(share.EnforcementWhy, "(holder) holds 4.9GiB of the GPU past Divvy's library") {
		t.Error(share.EnforcementWhy)
	}
	if e := h.event(t, event.NotEnforced, "boxed"); e.PID == 0 || e.Bytes < 5000*mib || !strings.Contains(e.Message, `level "booked"`) {
		t.Errorf("%+v", e)
	}
	if code := boxed.code(); code != 125 || !strings.Contains(boxed.stderr.String(), "--enforce front: process") {
		t.Errorf("exit code %d: %s", code, boxed.stderr.String())
	}

	alloc(t, others, mib)
	held.do(fmt.Sprintf("alloc %d", mib))
	h.wantLevel(t, "held", terms.EnforcedFront)
	if err := held.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if code := held.code(); code != 0 {
		t.Errorf("exit code %d: %s", code, held.stderr.String())
	}
	if told := h.events(t, event.NotEnforced, "held"); len(told) != 0 {
		t.Errorf("%+v", told)
	}
}

// TestSeenThoughItEndedByItself: a run whose program was seen to bypass what was demanded
// ends with 125 also if it ends before it is made to.
func TestSeenThoughItEndedByItself(t *testing.T) {
	t.Parallel()
	h := newHost(t, hostOptions{})
	boxed := h.startRun(t, "--name boxed --mem 1GiB --enforce front --enforce-grace 1h", h.withoutFront()...)
	boxed.do("start")
	h.wantLevel(t, "boxed", terms.Booked)
	if err := boxed.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if code := boxed.code(); code != 125 {
		t.Errorf("exit code %d: %s", code, boxed.stderr.String())
	}
}

// TestLevelThatWasNotDemanded: without a demand the run is told, and goes on. The level
// comes back when the program has gone, also one whose parents have, as a daemon's.
func TestLevelThatWasNotDemanded(t *testing.T) {
	t.Parallel()
	h := newHost(t, hostOptions{})
	if _, err := h.client.CreateShare(t.Context(), api.ShareSpec{Name: "loose", MemoryBytes: 1024 * mib}); err != nil {
		t.Fatal(err)
	}
	loose := h.startRun(t, "--share loose", h.withoutFront()...)
	loose.do("start")
	h.wantLevel(t, "loose", terms.Booked)
	eventually(t, "the run is told", func() error { // before it ends
		if !strings.Contains(loose.stderr.String(), "past Divvy's library: level booked") {
			return errors.New(loose.stderr.String())
		}
		return nil
	})
	if err := loose.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if code := loose.code(); code != 0 {
		t.Errorf("exit code %d: %s", code, loose.stderr.String())
	}
	h.wantLevel(t, "loose", terms.EnforcedFront)

	// The run ends and what it has started stays, until it ends too.
	daemon := h.startRun(t, "--share loose", append([]string{"sh", "-c", `exec 3<&0; "$@" <&3 & exec sleep 1000`, "sh"}, h.withoutFront()...)...)
	daemon.do("start")
	h.wantLevel(t, "loose", terms.Booked)
	if err := daemon.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if state, err := daemon.cmd.Process.Wait(); err != nil || state.ExitCode() != 128+int(syscall.SIGTERM) {
		t.Fatalf("%v, %v: %s", state, err, daemon.stderr.String())
	}
	h.wantLevel(t, "loose", terms.Booked)
	if err := daemon.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	h.wantLevel(t, "loose", terms.EnforcedFront)
}
