// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/bench"
)

// Two users of one machine, each with a share, each held to his own.
func TestTwoUsers(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can be two users")
	}
	h := newHost(t, hostOptions{})
	if err := os.Chmod(h.directory, 0o755); err != nil {
		t.Fatal(err)
	}
	// The build may lie where other users cannot look.
	visible := publicCopy(t, h)
	as := func(uid string, env []string) *bench.Holder {
		t.Helper()
		command := exec.Command("setpriv", "--reuid", uid, "--regid", uid, "--clear-groups", "--no-new-privs",
			filepath.Join(visible.ToolsDirectory, "holder"))
		holder, err := bench.HolderOf(command, env)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(holder.Kill)
		if err := holder.Greeting(); err != nil {
			t.Fatal(err)
		}
		return holder
	}
	one, two := h.share(t, "user-one", 256*mib), h.share(t, "user-two", 512*mib)
	a := as("12001", visible.Environ(one.Socket))
	b := as("12002", visible.Environ(two.Socket))
	do(t, a, "start")
	do(t, b, "start")
	first, second := alloc(t, a, 192*mib), alloc(t, b, 448*mib)
	refused(t, a, outOfMemory, "alloc 512")
	refused(t, b, outOfMemory, "alloc 512")
	do(t, a, "write %d %d", first, mib)
	do(t, b, "write %d %d", second, mib)
	do(t, a, "check %d %d", first, mib)
	do(t, b, "check %d %d", second, mib)
	if _, total := room(t, a); total != 256*mib {
		t.Errorf("the first user sees %d bytes", total)
	}
	clients, err := h.client.Clients(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	uids := map[string]int{}
	for _, c := range clients.Clients {
		uids[c.Share] = c.UID
	}
	if uids["user-one"] != 12001 || uids["user-two"] != 12002 {
		t.Errorf("the agent knows the users as %v", uids)
	}
	bare := as("12001", visible.Unheld())
	do(t, bare, "start")
	alloc(t, bare, 512*mib)
}

// The path of a share's socket is no secret on a machine that users share: who
// may attach is decided by whose it is, also after the agent was restarted.
func TestOthersShare(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can be two users")
	}
	h := newHost(t, hostOptions{})
	if err := os.Chmod(h.directory, 0o755); err != nil {
		t.Fatal(err)
	}
	visible := publicCopy(t, h)
	start := func(t *testing.T, uid int, socket string) error {
		t.Helper()
		id := fmt.Sprint(uid)
		holder, err := bench.HolderOf(exec.Command("setpriv", "--reuid", id, "--regid", id, "--clear-groups", "--no-new-privs",
			filepath.Join(visible.ToolsDirectory, "holder")), visible.Environ(socket))
		if err != nil {
			t.Fatal(err)
		}
		defer holder.Kill()
		if err := holder.Greeting(); err != nil {
			t.Fatal(err)
		}
		_, err = holder.Do("start")
		return err
	}
	const one, two, root = 12001, 12002, 0
	shares := []struct {
		flags            []string
		by               int
		allowed, refused []int
	}{
		{nil, one, []int{one, root}, []int{two}},
		{[]string{"--open"}, one, []int{one, root, two}, nil},
		{[]string{"--user", "12002"}, one, []int{one, root, two}, []int{12003}},
		{nil, root, []int{one, two, root}, nil},
		{[]string{"--user", "12001"}, root, []int{one, root}, []int{two}},
	}
	sockets := make([]string, len(shares))
	for i, s := range shares {
		id, name := fmt.Sprint(s.by), fmt.Sprintf("of-%d-%d", s.by, i)
		program := append([]string{"--reuid", id, "--regid", id, "--clear-groups", filepath.Join(h.directory, "public", "divvy"),
			"share", "create", name, "--mem", "128MiB", "--agent", h.AgentSocket}, s.flags...)
		if i == 0 {
			copyProgram(t, divvy(t), program[5])
		}
		made := run(t, []string{"PATH=" + os.Getenv("PATH")}, "setpriv", program...)
		if made.code != 0 {
			t.Fatalf("share of %d with %v: code %d\n%s", s.by, s.flags, made.code, made.stderr)
		}
		sockets[i] = h.look(t, name).Socket
	}
	check := func(t *testing.T) {
		for i, s := range shares {
			for _, uid := range s.allowed {
				if err := start(t, uid, sockets[i]); err != nil {
					t.Errorf("share of %d with %v: uid %d: %v", s.by, s.flags, uid, err)
				}
			}
			for _, uid := range s.refused {
				const notReady = 802
				var call *bench.Refused
				if err := start(t, uid, sockets[i]); !errors.As(err, &call) || call.Result != notReady {
					t.Errorf("share of %d with %v: uid %d got %v, want CUresult %d", s.by, s.flags, uid, err, notReady)
				}
			}
		}
	}
	check(t)
	if told := h.event(t, "client-refused", "of-12001-0").Message; !strings.Contains(told, "uid 12001") || !strings.Contains(told, "uid 12002") {
		t.Errorf("the event says %q", told)
	}
	h.agent.stop(t)
	h.startAgent(t)
	check(t)
}

func copyProgram(t testing.TB, from, to string) {
	t.Helper()
	raw, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, raw, 0o755); err != nil {
		t.Fatal(err)
	}
}

// publicCopy copies what a user's process loads to a place everybody can read.
func publicCopy(t testing.TB, h *host) bench.Target {
	t.Helper()
	public := h.Target
	base := filepath.Join(h.directory, "public")
	for _, part := range []struct {
		from *string
		name string
	}{
		{&public.DriverDirectory, "driver"}, {&public.FrontDirectory, "front"}, {&public.ToolsDirectory, "tools"},
	} {
		to := filepath.Join(base, part.name)
		if err := os.CopyFS(to, os.DirFS(*part.from)); err != nil {
			t.Fatal(err)
		}
		*part.from = to
	}
	if err := filepath.Walk(base, func(path string, info os.FileInfo, err error) error {
		if err == nil && info.IsDir() {
			return os.Chmod(path, 0o755)
		}
		if err == nil && info.Mode().IsRegular() {
			return os.Chmod(path, 0o755)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return public
}
