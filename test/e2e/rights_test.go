// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/bench"
	"github.com/divvy-gpu/divvy/internal/event"
)

// asUser runs a copy of the product's command as a user, and returns its output and
// exit code.
func asUser(t *testing.T, h *host, uid string, args ...string) (string, int) {
	t.Helper()
	return asMember(t, h, uid, "", args...)
}

// asMember is asUser for one who is in a group besides, if that is not empty.
func asMember(t *testing.T, h *host, uid, group string, args ...string) (string, int) {
	t.Helper()
	groups := []string{"--clear-groups"}
	if group != "" {
		groups = []string{"--groups", group}
	}
	program := filepath.Join(h.directory, "divvy")
	if _, err := os.Stat(program); err != nil {
		binary, err := os.ReadFile(divvy(t))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(program, binary, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	command := exec.Command("setpriv", slices.Concat([]string{"--reuid", uid, "--regid", uid}, groups, []string{program}, args)...)
	command.Dir = "/"
	command.Env = []string{"PATH=" + os.Getenv("PATH"), "DIVVY_AGENT=" + h.AgentSocket}
	output, err := command.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(output), command.ProcessState.ExitCode()
}

// A user may give shares the priority that the operator lets him give and no more,
// when they are made and later; root may give any. The control is an agent that lets
// everybody.
func TestPriorityLimit(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be two users")
	}
	const allowed, notAllowed, wrong = 0, 4, 2
	for _, c := range []struct {
		name  string
		flags []string
		most  map[string]int // by user
	}{
		{"by default", nil, map[string]int{"12001": 0, "12002": 0}},
		{"one user", []string{"--priority-limit", "12001=10"}, map[string]int{"12001": 10, "12002": 0}},
		{"all but one", []string{"--priority-limit", "all=5", "--priority-limit", "12002=0"}, map[string]int{"12001": 5, "12002": 0}},
		{"the control", []string{"--priority-limit", "all=1000"}, map[string]int{"12001": 1000, "12002": 1000}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t, hostOptions{agentFlags: c.flags})
			if err := os.Chmod(h.directory, 0o755); err != nil {
				t.Fatal(err)
			}
			for user, most := range c.most {
				name := "share-of-" + user
				for _, asked := range []struct{ command, priority string }{
					{"create", "1"}, {"create", "10"}, {"create", "1000"}, {"create", "1001"}, {"create", "0"},
					{"set", "1"}, {"set", "10"}, {"set", "1000"}, {"set", "1001"}, {"set", "0"},
				} {
					priority, err := strconv.Atoi(asked.priority)
					if err != nil {
						t.Fatal(err)
					}
					want := allowed
					switch {
					case priority > 1000:
						want = wrong
					case priority > most:
						want = notAllowed
					}
					args := []string{"share", asked.command, name, "--priority", asked.priority}
					if asked.command == "create" {
						args = append(args, "--mem", "1GiB")
					}
					said, code := asUser(t, h, user, args...)
					if code != want {
						t.Errorf("uid %s, at most %d: %s --priority %s: exit code %d, want %d: %s", user, most, asked.command, asked.priority, code, want, said)
					}
					if want == notAllowed && !strings.Contains(said, "--priority-limit "+user+"="+asked.priority) {
						t.Errorf("the refusal does not say what helps: %s", said)
					}
					if asked.command == "create" && code == allowed && asked.priority != "0" {
						if said, code := asUser(t, h, user, "share", "delete", name); code != 0 {
							t.Fatal(said)
						}
					}
				}
				if said, code := asUser(t, h, "0", "share", "set", name, "--priority", "1000"); code != 0 {
					t.Errorf("root: %s", said)
				}
			}
		})
	}
}

// Others' processes are shown by their names; one's own, and to root all, with what
// stands on their command lines. The control is an agent that shows all to everybody.
func TestOthersCommandLines(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can be two users")
	}
	const secret = "libcuda.so.1" // the holder's argument
	for _, c := range []struct {
		name  string
		flags []string
		sees  map[string]bool // by user
		event bool            // has it
	}{
		{"by default", nil, map[string]bool{"0": true, "12001": true, "12002": false}, false},
		{"the control", []string{"--command-lines", "all"}, map[string]bool{"0": true, "12001": true, "12002": true}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t, hostOptions{agentFlags: c.flags})
			if err := os.Chmod(h.directory, 0o755); err != nil {
				t.Fatal(err)
			}
			visible := publicCopy(t, h)
			share := h.share(t, "shown", 256*mib)
			holder, err := bench.HolderOf(exec.Command("setpriv", "--reuid", "12001", "--regid", "12001", "--clear-groups",
				filepath.Join(visible.ToolsDirectory, "holder"), secret), visible.Environ(share.Socket))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(holder.Kill)
			if err := holder.Greeting(); err != nil {
				t.Fatal(err)
			}
			do(t, holder, "start")
			for user, sees := range c.sees {
				said, code := asUser(t, h, user, "ps", "--json")
				if code != 0 || !strings.Contains(said, "holder") || strings.Contains(said, secret) != sees {
					t.Errorf("uid %s sees the command line: want %v: exit code %d, %s", user, sees, code, said)
				}
			}
			events, err := h.client.Events(t.Context(), 0)
			if err != nil {
				t.Fatal(err)
			}
			told := false
			for _, e := range events.Events {
				if e.Kind == event.ClientAttached {
					told = true
					if !strings.Contains(e.Message, "holder") || strings.Contains(e.Message, secret) != c.event {
						t.Errorf("event %+v", e)
					}
				}
			}
			if !told {
				t.Error("no event tells of the process")
			}
		})
	}
}

// Who is in the group of operators does what root may, of that group alone or among others; others do not, whatever
// they claim. Each line in the audit says who it was.
func TestOperators(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can be two users")
	}
	h := newHost(t, hostOptions{agentFlags: []string{"--creation", "ephemeral", "--operators", "12009"}})
	if err := os.Chmod(h.directory, 0o755); err != nil {
		t.Fatal(err)
	}
	h.share(t, "roots", 64*mib)
	devices, err := h.client.Devices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	card := devices.Cards[0].UUID
	many := "12010"
	for n := 12011; n < 12100; n++ { // more than are asked for at first
		many += "," + strconv.Itoa(n)
	}
	for _, who := range []struct {
		user, groups string
		may          bool
	}{{"12001", "", false}, {"12001", "12008", false}, {"12001", many, false}, {"12001", "12009", true}, {"12001", many + ",12009", true}, {"12009", "", true}} {
		for _, args := range [][]string{
			{"devices", "cordon", card}, {"devices", "uncordon", card}, {"share", "set", "roots", "--priority", "9"}, {"share", "pause", "roots"}, {"share", "resume", "roots"},
			{"share", "create", "declared", "--mem", "64MiB"}, {"audit", "list"},
		} {
			want := 4
			if who.may {
				want = 0
			}
			if output, code := asMember(t, h, who.user, who.groups, args...); code != want {
				t.Errorf("%+v: %q: exit code %d, want %d: %s", who, args, code, want, output)
			}
		}
		if who.may {
			if output, code := asMember(t, h, who.user, who.groups, "share", "delete", "declared"); code != 0 {
				t.Errorf("%s", output)
			}
		}
		if output, code := asMember(t, h, who.user, who.groups, "audit", "head"); code != 0 {
			t.Errorf("everybody may keep the head: %s", output)
		}
	}
	if output, code := asUser(t, h, "12001", "audit", "verify"); code != 4 {
		t.Errorf("the files are root's: exit code %d: %s", code, output)
	}
	output, code := asUser(t, h, "0", "audit", "list", "--verb", "card.cordon")
	if code != 0 || !strings.Contains(output, " 12001 ") || !strings.Contains(output, " refused ") || !strings.Contains(output, " done ") {
		t.Errorf("exit code %d: %s", code, output)
	}
	if output, code := asUser(t, h, "0", "audit", "verify"); code != 0 || !strings.Contains(output, "right: ") {
		t.Errorf("exit code %d: %s", code, output)
	}
}
