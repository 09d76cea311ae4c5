// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const systemNotReady = 802

// refusedAtStart runs a program whose cuInit must answer 802 after exactly one
// line on stderr, which says what is wrong.
func refusedAtStart(t *testing.T, h *host, env []string, says string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), filepath.Join(h.ToolsDirectory, "holder"))
	command.Stdin = strings.NewReader("start\nstart\n")
	got := finish(t, command, env)
	lines := strings.Split(strings.TrimSpace(got.stdout), "\n")
	want := fmt.Sprintf("error %d", systemNotReady)
	if len(lines) != 3 || lines[1] != want || lines[2] != want {
		t.Errorf("got %q (code %d), want %q twice\n%s", lines, got.code, want, got.stderr)
	}
	if strings.Count(got.stderr, "\n") != 1 || !strings.HasPrefix(got.stderr, "divvy: ") || !strings.Contains(got.stderr, says) {
		t.Errorf("stderr %q, want one line that says %q", got.stderr, says)
	}
}

// without drops variables from an environment.
func without(env []string, names ...string) []string {
	var kept []string
	for _, entry := range env {
		name, _, _ := strings.Cut(entry, "=")
		drop := false
		for _, n := range names {
			drop = drop || n == name
		}
		if !drop {
			kept = append(kept, entry)
		}
	}
	return kept
}

func TestAgentAwayAtStart(t *testing.T) {
	t.Parallel()
	h := newHost(t, hostOptions{})
	refusedAtStart(t, h, h.Environ(filepath.Join(h.directory, "nobody.sock")), "nobody.sock")
}

// A front that finds itself where the driver should be must not call itself.
func TestFrontOpensItself(t *testing.T) {
	t.Parallel()
	h := newHost(t, hostOptions{})
	share := h.share(t, "self", 256*mib)
	env := append(without(h.Environ(share.Socket), "DIVVY_DRIVER_DIR"), "DIVVY_DRIVER_DIR="+h.FrontDirectory)
	refusedAtStart(t, h, env, h.FrontDirectory)
	h.event(t, "front-opened-itself", share.Name)
	// A copy of it is the same front.
	copied := filepath.Join(h.directory, "copy")
	if err := os.CopyFS(copied, os.DirFS(h.FrontDirectory)); err != nil {
		t.Fatal(err)
	}
	env = append(without(h.Environ(share.Socket), "DIVVY_DRIVER_DIR"), "DIVVY_DRIVER_DIR="+copied)
	refusedAtStart(t, h, env, copied)
}

func TestNoDriver(t *testing.T) {
	t.Parallel()
	h := newHost(t, hostOptions{})
	share := h.share(t, "nodriver", 256*mib)
	env := append(without(h.Environ(share.Socket), "DIVVY_DRIVER_DIR"), "DIVVY_DRIVER_DIR="+h.directory)
	refusedAtStart(t, h, env, h.directory)
}

// A front of another wire version, built from the same sources.
func TestLibraryAndAgentOfDifferentVersions(t *testing.T) {
	t.Parallel()
	h := newHost(t, hostOptions{})
	share := h.share(t, "versions", 256*mib)
	front := h.FrontDirectory
	h.FrontDirectory = built(t, "build", "test", "front-other")
	env := h.Environ(share.Socket)
	h.FrontDirectory = front
	refusedAtStart(t, h, env, "version")
	if share := h.look(t, share.Name); share.Clients != 0 || share.UsedBytes != 0 {
		t.Errorf("the refused client is on the ledger: %+v", share)
	}
}

// A share that has no room for a context refuses its programs at start.
func TestShareSmallerThanAContext(t *testing.T) {
	t.Parallel()
	h := newHost(t, hostOptions{})
	got := run(t, cliEnv(t, h.directory), divvy(t), "run", "--simulate", "--mem", "32MiB", "--", "true")
	if got.code != 4 || !strings.Contains(got.stderr, "divvy: error: ") || !strings.Contains(got.stderr, "64 MiB") && !strings.Contains(got.stderr, "64MiB") ||
		!strings.Contains(got.stderr, "divvy: hint: ") {
		t.Errorf("code %d, %q, want 4, an error that names the 64 MiB of a context, and a hint", got.code, got.stderr)
	}
}

// cliEnv is the environment of a command line whose private daemons live under
// directory; they are stopped when the test ends.
func cliEnv(t testing.TB, directory string) []string {
	t.Helper()
	runtime, err := os.MkdirTemp(directory, "run")
	if err != nil {
		t.Fatal(err)
	}
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + runtime, "XDG_RUNTIME_DIR=" + runtime,
		"XDG_CACHE_HOME=" + runtime, "DIVVY_LIBDIR=" + built(t, "lib", "divvy")}
	t.Cleanup(func() {
		command := exec.Command(divvy(t), "cleanup", "--force")
		command.Env = env
		if text, err := command.CombinedOutput(); err != nil {
			t.Errorf("divvy cleanup: %v\n%s", err, text)
		}
	})
	return env
}

// What a command line says when it cannot do what it is asked: a message, an
// exit code that scripts can tell apart, nothing on stdout.
func TestCommandLineRefusals(t *testing.T) {
	t.Parallel()
	directory, err := os.MkdirTemp("/tmp", "dv-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(directory) })
	h := newHost(t, hostOptions{})
	env := append(cliEnv(t, directory), "DIVVY_AGENT="+h.AgentSocket)
	taken := h.share(t, "taken", 256*mib)
	for _, c := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"larger than the card", []string{"run", "--mem", "900GiB", "--", "true"}, 4, "900"},
		{"unknown card", []string{"run", "--gpu", "GPU-nobody", "--", "true"}, 3, "GPU-nobody"},
		{"unknown share", []string{"run", "--share", "nobody", "--", "true"}, 3, "nobody"},
		{"duplicate name", []string{"run", "--name", taken.Name, "--mem", "128MiB", "--", "true"}, 4, taken.Name},
		{"duplicate share", []string{"share", "create", taken.Name, "--mem", "128MiB"}, 4, taken.Name},
		{"delete unknown", []string{"share", "delete", "nobody"}, 3, "nobody"},
		{"share and size", []string{"run", "--share", taken.Name, "--mem", "1GiB", "--", "true"}, 2, "--share"},
		{"no size", []string{"run", "--mem", "lots", "--", "true"}, 2, "lots"},
		{"no command", []string{"run", "--mem", "1GiB"}, 2, ""},
		{"not found", []string{"run", "--mem", "1GiB", "--", "divvy-no-such-program"}, 127, "divvy-no-such-program"},
		{"not executable", []string{"run", "--mem", "1GiB", "--", "/etc/hostname"}, 126, "/etc/hostname"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := run(t, env, divvy(t), c.args...)
			if got.code != c.code || !strings.Contains(got.stderr, "divvy: error: ") || !strings.Contains(got.stderr, c.says) || got.stdout != "" {
				t.Errorf("divvy %v: code %d, want %d; %q should say %q; stdout %q", c.args, got.code, c.code, got.stderr, c.says, got.stdout)
			}
		})
	}
	t.Run("agent away", func(t *testing.T) {
		away := append(without(env, "DIVVY_AGENT"), "DIVVY_AGENT="+filepath.Join(directory, "nobody.sock"))
		for _, args := range [][]string{{"ps"}, {"share", "list"}, {"devices"}, {"events"}} {
			got := run(t, away, divvy(t), args...)
			if got.code != 5 || !strings.Contains(got.stderr, "divvy: error: ") {
				t.Errorf("divvy %v: code %d, want 5: %q", args, got.code, got.stderr)
			}
		}
	})
}
