// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/divvy-gpu/divvy/internal/bench"
)

// Two users of one machine, each with a share, each held to his own.
func TestTwoUsers(t *testing.T) {
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

// publicCopy copies what a user's process loads to a place everybody can read.
func publicCopy(t *testing.T, h *host) bench.Target {
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
