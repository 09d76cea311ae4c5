// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/socket"
)

const (
	card       = "GPU-11111111-2222-3333-4444-555555555555"
	otherCard  = "GPU-99999999-2222-3333-4444-555555555555"
	clientMark = "DIVVY_TEST_MPS_CLIENT"
)

// TestMain is a client of MPS when it is started as one: it connects as the
// driver does, tells what it got, and stays until its input ends.
func TestMain(m *testing.M) {
	if os.Getenv(clientMark) == "" {
		os.Exit(m.Run())
	}
	conn, err := net.Dial("unix", filepath.Join(os.Getenv(pipeVariable), "control"))
	if err != nil {
		fmt.Println("without MPS") // as the driver: no error
	} else {
		line, _ := bufio.NewReader(conn).ReadString('\n')
		fmt.Println(strings.TrimSpace(line))
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// fake builds the fake control daemon and describes one in a new directory,
// whose path is short enough for sockets.
func fake(t *testing.T, multi bool) *Daemon {
	t.Helper()
	directory, err := os.MkdirTemp("/tmp", "divvy-mps-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(directory) })
	path := filepath.Join(directory, "nvidia-cuda-mps-control")
	if out, err := exec.Command("go", "build", "-o", path, "../../test/fakemps").CombinedOutput(); err != nil {
		t.Fatalf("build the fake: %v: %s", err, out)
	}
	d, err := New(Config{UUID: card, Directory: filepath.Join(directory, "card"), Program: path, Multiuser: multi})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if pid, ok := d.alive(); ok {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	return d
}

func start(t *testing.T, d *Daemon) {
	t.Helper()
	if err := d.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// client starts a client and returns its process and what the server told it.
func client(t *testing.T, env []string) (pid int, told string, end func()) {
	t.Helper()
	program := exec.Command(os.Args[0], "-test.run=^$")
	program.Env = append(slices.Clone(env), clientMark+"=1")
	in, err := program.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := program.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	ended := false
	end = func() {
		if !ended {
			ended = true
			_ = in.Close()
			_ = program.Wait()
		}
	}
	t.Cleanup(end)
	return program.Process.Pid, strings.TrimSpace(line), end
}

func TestLifecycle(t *testing.T) {
	d := fake(t, false)
	if _, err := d.Status(t.Context()); !errors.Is(err, ErrNotRunning) {
		t.Fatalf("before the start: %v", err)
	}
	if err := d.Stop(t.Context(), false); err != nil {
		t.Fatalf("stop of what does not run: %v", err)
	}
	start(t, d)
	first, err := d.Status(t.Context())
	if err != nil || first.PID == 0 || first.UID != os.Geteuid() || first.Multiuser || first.ActiveThreadPercentage != 100 || first.PinnedBytes != 0 {
		t.Fatalf("status %+v, %v", first, err)
	}
	start(t, d) // leaves it as it is
	if again, err := d.Status(t.Context()); err != nil || again.PID != first.PID {
		t.Fatalf("a second start: %+v, %v", again, err)
	}
	limits := Limits{ActiveThreadPercentage: 30, PinnedBytes: 4 << 30}
	if err := d.SetDefaults(t.Context(), limits); err != nil {
		t.Fatal(err)
	}
	pid, told, end := client(t, d.ClientEnvironment(os.Environ(), Limits{ActiveThreadPercentage: 20, PinnedBytes: 1 << 30}))
	if told != fmt.Sprintf("30 %d", uint64(4<<30)) {
		t.Errorf("the server gave the client %q", told)
	}
	if err := d.Stop(t.Context(), false); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), fmt.Sprint(pid)) {
		t.Errorf("stop under a client: %v", err)
	}
	end()
	if err := d.Stop(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Status(t.Context()); !errors.Is(err, ErrNotRunning) {
		t.Errorf("after the stop: %v", err)
	}
}

// A daemon that is stopped leaves room for another, which its lock would not.
func TestStopWaitsForTheProcess(t *testing.T) {
	t.Setenv("FAKE_MPS_FAULT", "lingers")
	d := fake(t, false)
	start(t, d)
	if err := d.Stop(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	start(t, d)
}

func TestStopByForce(t *testing.T) {
	d := fake(t, false)
	start(t, d)
	client(t, d.ClientEnvironment(os.Environ(), Limits{}))
	if err := d.Stop(t.Context(), true); err != nil {
		t.Fatal(err)
	}
}

// A daemon that was killed leaves its sockets and its pid file.
func TestCrashAndRestart(t *testing.T) {
	d := fake(t, true)
	start(t, d)
	pid, _ := d.alive()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := d.await(t.Context(), func() bool { _, ok := d.alive(); return !ok }); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Status(t.Context()); !errors.Is(err, ErrNotRunning) {
		t.Errorf("a killed daemon: %v", err)
	}
	start(t, d)
	s, err := d.Status(t.Context())
	if err != nil || s.PID == pid || !s.Multiuser {
		t.Errorf("after the restart: %+v, %v", s, err)
	}
}

func TestFaults(t *testing.T) {
	for _, fault := range []string{"silent", "deaf"} {
		t.Run(fault, func(t *testing.T) {
			t.Setenv("FAKE_MPS_FAULT", fault)
			d := fake(t, false)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // it would hang for ever
			defer cancel()
			if err := d.Start(ctx); !errors.Is(err, ErrNotRunning) {
				t.Errorf("%v, not %v", err, ErrNotRunning)
			}
		})
	}
	t.Run("forgets", func(t *testing.T) {
		t.Setenv("FAKE_MPS_FAULT", "forgets")
		d := fake(t, false)
		start(t, d)
		if err := d.SetDefaults(t.Context(), Limits{ActiveThreadPercentage: 10}); !errors.Is(err, ErrNotInForce) {
			t.Errorf("%v, not %v", err, ErrNotInForce)
		}
	})
}

// A daemon that hangs is not given a second one beside it.
func TestStartBesideOneThatHangs(t *testing.T) {
	d := fake(t, false)
	start(t, d)
	pid, _ := d.alive()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := d.Start(ctx); err == nil || !strings.Contains(err.Error(), fmt.Sprint(pid)) {
		t.Errorf("start: %v", err)
	}
}

func TestNotInstalled(t *testing.T) {
	d, err := New(Config{UUID: card, Directory: t.TempDir(), Program: "/nonexistent"})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Start(t.Context()); !errors.Is(err, ErrNotInstalled) {
		t.Error(err)
	}
}

// A folder that another user could change is not used.
func TestUnsafeDirectory(t *testing.T) {
	d := fake(t, false)
	if err := os.Symlink(t.TempDir(), d.cfg.Directory); err != nil {
		t.Fatal(err)
	}
	if err := d.Start(t.Context()); !errors.Is(err, socket.ErrUnsafe) {
		t.Error(err)
	}
}

func TestVerify(t *testing.T) {
	d := fake(t, false)
	start(t, d)
	limits := Limits{ActiveThreadPercentage: 25, PinnedBytes: 2 << 30}
	good := d.ClientEnvironment(os.Environ(), limits)
	pid, _, _ := client(t, good)
	if err := d.Verify(t.Context(), pid, limits); err != nil {
		t.Errorf("a client as it should be: %v", err)
	}
	if err := d.Verify(t.Context(), pid, Limits{PinnedBytes: 1 << 30}); !errors.Is(err, ErrNotInForce) {
		t.Errorf("a client with a larger limit than asked: %v", err)
	}
	// The pipe directory leads elsewhere: no limit and no error, but ours.
	pid, told, _ := client(t, replaced(good, []string{pipeVariable + "=" + t.TempDir()}))
	if err := d.Verify(t.Context(), pid, limits); told != "without MPS" || !errors.Is(err, ErrNotInForce) {
		t.Errorf("wrong pipe directory: %q, %v", told, err)
	}
	// The right variables, and never a client.
	idle := exec.Command("cat")
	idle.Env = good
	in, err := idle.StdinPipe()
	if err != nil || idle.Start() != nil {
		t.Fatal(err)
	}
	if err := d.Verify(t.Context(), idle.Process.Pid, limits); !errors.Is(err, ErrNotInForce) {
		t.Errorf("no client: %v", err)
	}
	_ = in.Close()
	_ = idle.Wait()
}

// A process whose environment never comes (here a pipe that nobody writes to) is held by
// nothing, and keeps who asks no longer than a while.
func TestVerifyWithoutAnEnvironment(t *testing.T) {
	root := t.TempDir()
	environ := filepath.Join(root, "7", "environ")
	if err := errors.Join(os.Mkdir(filepath.Dir(environ), 0o700), syscall.Mkfifo(environ, 0o600)); err != nil {
		t.Fatal(err)
	}
	d, err := New(Config{UUID: card, Directory: t.TempDir(), Environments: process.NewEnvironments(process.New(root))})
	if err != nil {
		t.Fatal(err)
	}
	answer := make(chan error, 1)
	go func() { answer <- d.Verify(t.Context(), 7, Limits{}) }()
	select {
	case err := <-answer:
		if !errors.Is(err, process.ErrSlow) {
			t.Error(err)
		}
	case <-time.After(15 * environmentPatience):
		t.Error("it waits for who does not answer")
	}
	writer, err := os.OpenFile(environ, os.O_WRONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = writer.Close()
}

func TestVerifyOfAServerWithAFault(t *testing.T) {
	t.Setenv("FAKE_MPS_FAULT", "fault")
	d := fake(t, false)
	start(t, d)
	pid, _, _ := client(t, d.ClientEnvironment(os.Environ(), Limits{}))
	if err := d.Verify(t.Context(), pid, Limits{}); !errors.Is(err, ErrNotInForce) {
		t.Error(err)
	}
}

func TestVerifyAfterACrash(t *testing.T) {
	t.Setenv("FAKE_MPS_FAULT", "crashes")
	d := fake(t, false)
	start(t, d)
	pid, _, _ := client(t, d.ClientEnvironment(os.Environ(), Limits{}))
	if err := d.await(t.Context(), func() bool { _, ok := d.alive(); return !ok }); err != nil {
		t.Fatal(err)
	}
	if err := d.Verify(t.Context(), pid, Limits{}); !errors.Is(err, ErrNotRunning) {
		t.Error(err)
	}
}

func TestCheck(t *testing.T) {
	d, err := New(Config{UUID: card, Directory: "/run/divvy/mps/0"})
	if err != nil {
		t.Fatal(err)
	}
	limits := Limits{ActiveThreadPercentage: 50, PinnedBytes: 8 << 30}
	good := d.ClientEnvironment([]string{"HOME=/", pinnedVariable + "=0=1G", threadsVariable + "=99"}, limits)
	if err := d.Check(good, limits); err != nil {
		t.Errorf("%q: %v", good, err)
	}
	counted := append([]string{visibleVariable + "=0"}, good...)
	if err := d.Check(counted, limits); err != nil {
		t.Errorf("%q: %v", counted, err)
	}
	counted = append([]string{pinnedVariable + "=" + card + "=8192M," + otherCard + "=1G"}, counted...)
	if err := d.Check(counted, limits); err == nil || !strings.Contains(err.Error(), "drops all limits") {
		t.Errorf("%q: %v", counted, err)
	}
	for _, c := range []struct{ name, entry, says string }{
		{"no pipe directory", pipeVariable + "=", "without MPS"},
		{"another pipe directory", pipeVariable + "=/tmp/nvidia-mps", "without MPS"},
		{"GPU not visible", visibleVariable + "=" + otherCard, "without the GPU"},
		{"a limit for an invisible GPU", pinnedVariable + "=" + card + "=8192M," + otherCard + "=1G", "drops all limits"},
		{"a limit by number", pinnedVariable + "=0=8G", "by number"},
		{"a limit for another GPU only", pinnedVariable + "=" + otherCard + "=8G", "drops all limits"},
		{"a larger limit", pinnedVariable + "=" + card + "=9G", "not 8192M"},
		{"no limit", pinnedVariable + "=", "no amount"},
		{"more threads", threadsVariable + "=60", "not 50"},
		{"no part of the threads", threadsVariable + "=", "not 50"},
	} {
		name, _, _ := strings.Cut(c.entry, "=")
		env := append([]string{c.entry}, slices.DeleteFunc(slices.Clone(good), func(e string) bool { return strings.HasPrefix(e, name+"=") })...)
		if err := d.Check(env, limits); !errors.Is(err, ErrNotInForce) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestAdmit(t *testing.T) {
	busy := []Server{{PID: 7, UID: 1000, Clients: []int{70}}}
	for _, c := range []struct {
		name   string
		status Status
		uid    int
		ok     bool
	}{
		{"own daemon, own user", Status{UID: 1000}, 1000, true},
		{"own daemon, another user", Status{UID: 1000}, 1001, false},
		{"own daemon, root", Status{UID: 1000}, 0, false},
		{"root's, free", Status{UID: 0}, 1001, true},
		{"root's, same user", Status{UID: 0, Servers: busy}, 1000, true},
		{"root's, another user", Status{UID: 0, Servers: busy}, 1001, false},
		{"root's, another user's server without clients", Status{UID: 0, Servers: []Server{{UID: 1000}}}, 1001, true},
		{"for several users", Status{UID: 0, Multiuser: true, Servers: busy}, 1001, true},
	} {
		if err := c.status.Admit(c.uid); (err == nil) != c.ok || err != nil && !errors.Is(err, ErrOtherUser) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func FuzzAnswers(f *testing.F) {
	for _, seed := range []string{"50.0", "10G", "512MB", "1\n2\n", "No limit is set", "18446744073709551615T", "-1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if percent, err := parsePercent(text); err == nil && (percent < 0 || percent > 100) {
			t.Errorf("%q is %d%%", text, percent)
		}
		if bytes, err := parseBytes(text); err == nil && bytes%(1<<20) == 0 && bytes > 0 {
			if again, err := parseBytes(formatBytes(bytes)); err != nil || again != bytes {
				t.Errorf("%q is %d, and %d after writing: %v", text, bytes, again, err)
			}
		}
		pids, err := parsePIDs(text)
		if err == nil && slices.ContainsFunc(pids, func(pid int) bool { return pid <= 0 }) {
			t.Errorf("%q has processes %v", text, pids)
		}
	})
}
