// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
)

// answeredIn is what a command may take while a driver hangs: each question about a GPU has 3
// seconds, and a busy host time of its own. Its client would wait for 30.
const answeredIn = 10 * time.Second

// A simulator that is stopped is a driver that hangs: commands answer what is known and
// say which GPU does not answer, none makes a share there, and the agent can be ended. The
// control: before and after, all is well.
func TestHangingSimulator(t *testing.T) {
	t.Parallel()
	h := newHost(t, hostOptions{})
	env := []string{"PATH=" + os.Getenv("PATH"), "DIVVY_LIBDIR=" + built(t, "lib", "divvy")}
	ask := func(arguments ...string) outcome {
		t.Helper()
		begun := time.Now()
		o := run(t, env, divvy(t), append(arguments, "--agent", h.AgentSocket)...)
		if took := time.Since(begun); took > answeredIn {
			t.Errorf("%v took %v", arguments, took)
		}
		return o
	}
	holder := h.holder(t, h.share(t, "there", 256*mib))
	do(t, holder, "start")
	card := h.look(t, "there").CardUUID
	h.share(t, "idle", 256*mib)
	for _, command := range [][]string{{"share", "list"}, {"ps"}, {"devices"}, {"doctor"}} {
		if o := ask(command...); o.code != 0 || strings.Contains(o.stderr+o.stdout, "answer: what is shown") {
			t.Fatalf("control: %v: code %d\n%s%s", command, o.code, o.stdout, o.stderr)
		}
	}

	halt(t, h.simulator.pid)
	made := ask("share", "create", "more", "--mem", "1GiB")
	if made.code != 5 || !strings.Contains(made.stderr, card) || !strings.Contains(made.stderr, "its driver has not answered for") ||
		!strings.Contains(made.stderr, "reset") {
		t.Errorf("create: code %d\n%s", made.code, made.stderr)
	}
	for _, command := range [][]string{{"share", "list"}, {"ps"}, {"devices"}} {
		if o := ask(command...); o.code != 0 || !strings.Contains(o.stderr, "the driver of "+card[:12]+" does not answer") {
			t.Errorf("%v: code %d\n%s%s", command, o.code, o.stdout, o.stderr)
		}
		var said struct{ Unresponsive []string }
		if o := ask(append(command, "--json")...); json.Unmarshal([]byte(o.stdout), &said) != nil || len(said.Unresponsive) != 1 || said.Unresponsive[0] != card {
			t.Errorf("%v: %s", command, o.stdout)
		}
	}
	if o := ask("ps"); !strings.Contains(o.stdout, "there") {
		t.Errorf("what is known is not shown:\n%s", o.stdout)
	}
	if o := ask("share", "delete", "idle"); o.code != 0 {
		t.Errorf("delete: code %d\n%s%s", o.code, o.stdout, o.stderr)
	}
	if o := ask("share", "list"); strings.Contains(o.stdout, "idle") || !strings.Contains(o.stdout, "there") {
		t.Errorf("after one share was deleted:\n%s", o.stdout)
	}
	if o := ask("share", "delete", "there"); o.code == 0 || !strings.Contains(o.stderr, "there") {
		t.Errorf("delete of one that is in use: code %d\n%s%s", o.code, o.stdout, o.stderr)
	}
	if o := ask("doctor"); o.code != 1 || !strings.Contains(o.stdout, "its driver has not answered") {
		t.Errorf("doctor: code %d\n%s", o.code, o.stdout)
	}
	if e := h.event(t, "card-unresponsive", ""); e.CardUUID != card {
		t.Errorf("event %+v", e)
	}

	_ = syscall.Kill(-h.simulator.pid, syscall.SIGCONT)
	eventually(t, "the GPU takes shares again", func() error {
		_, err := h.client.CreateShare(t.Context(), api.ShareSpec{Name: "again", MemoryBytes: 256 * mib})
		return err
	})
	if o := ask("share", "list"); o.code != 0 || o.stderr != "" {
		t.Errorf("again: code %d\n%s", o.code, o.stderr)
	}
	_ = syscall.Kill(-h.simulator.pid, syscall.SIGSTOP)
	eventually(t, "it is noticed that nobody asks for", func() error {
		if len(h.events(t, "card-unresponsive", "")) < 2 {
			return errors.New("it is not")
		}
		return nil
	})
	h.agent.stop(t)
	_ = syscall.Kill(-h.simulator.pid, syscall.SIGCONT)
}

// halt stops a process until the test ends. Where the processors are busy its threads run on for a
// moment after the signal.
func halt(t testing.TB, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
	eventually(t, "all its threads are stopped", func() error {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		if err != nil {
			return err
		}
		for _, thread := range threads {
			stat, err := os.ReadFile(thread)
			if _, rest, _ := strings.Cut(string(stat), ") "); err == nil && !strings.HasPrefix(rest, "T") {
				return fmt.Errorf("%s: %s", thread, stat)
			}
		}
		return nil
	})
}
