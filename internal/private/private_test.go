// SPDX-License-Identifier: Apache-2.0

package private

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/client"
)

// TestMain lets this binary play the two daemons.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "relaying" {
		os.Exit(playRelay(os.Args[2:]))
	}
	if len(os.Args) > 1 && (os.Args[1] == "agent" || os.Args[1] == "simulate") {
		os.Exit(playDaemon(os.Args[1:]))
	}
	os.Exit(m.Run())
}

// leaveAfter is how long a played daemon waits for somebody: so short that it
// leaves under the hands of those that come.
const leaveAfter = 30 * time.Millisecond

// playDaemon answers on its socket until nobody has come for leaveAfter.
func playDaemon(args []string) int {
	value := func(flag string) string {
		for i, arg := range args[:len(args)-1] {
			if arg == flag {
				return args[i+1]
			}
		}
		return ""
	}
	network, socket := "unix", filepath.Join(value("--private"), "agent.sock")
	if args[0] == "simulate" {
		network, socket = "unixpacket", value("--socket")
		if value("--gpus") == "broken" {
			fmt.Fprintln(os.Stderr, "no such GPU: broken")
			return 1
		}
	}
	listener, err := net.Listen(network, socket)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	came := make(chan struct{}, 1)
	go answer(args[0], listener, came)
	for {
		timer := time.NewTimer(leaveAfter)
		select {
		case <-came:
			timer.Stop()
		case <-timer.C:
			// A real one, too, takes a moment between its decision and its end.
			_ = listener.Close()
			return 0
		}
	}
}

func answer(role string, listener net.Listener, came chan<- struct{}) {
	touch := func() {
		select {
		case came <- struct{}{}:
		default:
		}
	}
	if role == "simulate" {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			touch()
			_ = c.Close()
		}
	}
	_ = http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		touch()
		switch r.URL.Path {
		case "/v1/version":
			fmt.Fprintf(w, `{"schema":"divvy.version/v1","pid":%d}`, os.Getpid())
		case "/v1/shares":
			fmt.Fprint(w, `{"schema":"divvy.shares/v1","shares":[]}`)
		}
	}))
}

// shortRoot is a root whose socket paths fit.
func shortRoot(t *testing.T) Root {
	t.Helper()
	folder, err := os.MkdirTemp("/tmp", "dv")
	if err != nil {
		t.Fatal(err)
	}
	root := Locate(folder, os.Geteuid())
	t.Cleanup(func() {
		if _, err := root.Clean(context.Background(), true); err != nil {
			t.Error(err)
		}
		_ = os.RemoveAll(folder)
	})
	return root
}

// What seems to run is there; what is gone, or lacks its simulator, is not.
func TestSeen(t *testing.T) {
	root := shortRoot(t)
	spec := Spec{Cards: "H100-80GB", Driver: "12.2", DriverDirectory: "/d"}
	if _, ok := root.Seen(spec); ok {
		t.Error("seen before it was started")
	}
	f, err := root.folder(spec.name())
	if err != nil {
		t.Fatal(err)
	}
	agent, err := net.Listen("unix", f.agentSocket())
	if err != nil {
		t.Fatal(err)
	}
	defer agent.Close()
	if _, ok := root.Seen(spec); ok {
		t.Error("seen without its simulator")
	}
	simulator, err := net.Listen("unixpacket", f.simulatorSocket())
	if err != nil {
		t.Fatal(err)
	}
	defer simulator.Close()
	if end, ok := root.Seen(spec); !ok || end != f.endpoint(spec) {
		t.Errorf("not seen: %+v", end)
	}
	if _, ok := root.Seen(Spec{Cards: "L4", DriverDirectory: "/d"}); ok {
		t.Error("another's is seen")
	}
	if err := os.Chmod(f.path, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, ok := root.Seen(spec); ok {
		t.Error("seen in a folder that is everybody's")
	}
	if err := os.Chmod(f.path, 0o700); err != nil {
		t.Fatal(err)
	}
}

// TestStartAndLeaveRace: many come at once, again and again, while the daemons
// leave all the time. Nobody ever hears of it.
func TestStartAndLeaveRace(t *testing.T) {
	root := shortRoot(t)
	spec := Spec{Cards: "H100-80GB", Driver: "12.2", DriverDirectory: "/d"}
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			for range 8 {
				if err := useOnce(root, spec); err != nil {
					t.Error(err)
					return
				}
				// Sometimes just as the daemons leave.
				_ = pause(context.Background(), leaveAfter-5*time.Millisecond)
			}
		})
	}
	all.Wait()
}

// useOnce asks the agent something, as the command line does: an agent that
// leaves in between is started again.
func useOnce(root Root, spec Spec) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var err error
	for range 20 {
		var end Endpoint
		if end, err = root.Ensure(ctx, "/proc/self/exe", spec); err != nil {
			return err
		}
		if _, err = client.New(end.AgentSocket).Shares(ctx); !errors.Is(err, client.ErrUnreachable) {
			return err
		}
	}
	return err
}

func TestFailureToStartTellsWhy(t *testing.T) {
	_, err := shortRoot(t).Ensure(context.Background(), "/proc/self/exe", Spec{Cards: "broken", DriverDirectory: "/d"})
	if !errors.Is(err, ErrNotStarted) || !strings.Contains(err.Error(), "no such GPU: broken") {
		t.Errorf("got %v, want the daemon's own words", err)
	}
}

func TestCleanLeavesNothing(t *testing.T) {
	root := shortRoot(t)
	spec := Spec{Cards: "L4", DriverDirectory: "/d"}
	if err := useOnce(root, spec); err != nil {
		t.Fatal(err)
	}
	outcomes, err := root.Clean(context.Background(), false)
	if err != nil || len(outcomes) != 1 || outcomes[0].Action == "kept" {
		t.Errorf("got %+v, %v", outcomes, err)
	}
	if _, err := os.Lstat(root.Path()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there: %v", root.Path(), err)
	}
}

func TestUnsafeFoldersAreRefused(t *testing.T) {
	for name, prepare := range map[string]func(path string) error{
		"open to others": func(path string) error { return os.Mkdir(path, 0o755) },
		"link":           func(path string) error { return os.Symlink(t.TempDir(), path) },
		"file":           func(path string) error { return os.WriteFile(path, nil, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			root := Root{path: filepath.Join(t.TempDir(), "divvy")}
			if err := prepare(root.Path()); err != nil {
				t.Fatal(err)
			}
			if _, err := root.folder("x"); !errors.Is(err, ErrUnsafe) {
				t.Errorf("got %v, want %v", err, ErrUnsafe)
			}
			if _, err := root.Clean(context.Background(), true); !errors.Is(err, ErrUnsafe) {
				t.Errorf("clean: got %v, want %v", err, ErrUnsafe)
			}
		})
	}
}

func TestLinksInsideAreNotFollowed(t *testing.T) {
	root := shortRoot(t)
	f, err := root.folder("x")
	if err != nil {
		t.Fatal(err)
	}
	victim := filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(victim, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{f.lockFile(), f.logFile("agent"), f.recordFile()} {
		if err := os.Symlink(victim, path); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.lock(context.Background()); err == nil {
		t.Error("the lock file was a link and was taken")
	}
	if _, _, err := f.start("/bin/true", "agent"); err == nil {
		t.Error("the log file was a link and was written to")
	}
	if _, err := f.readRecord(); err == nil {
		t.Error("the record was a link and was read")
	}
	if err := f.remove(); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(victim); string(text) != "mine" {
		t.Errorf("the file behind the links has changed: %q, %v", text, err)
	}
}

func TestLocate(t *testing.T) {
	mine, err := os.MkdirTemp("/tmp", "dv")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(mine)
	long := filepath.Join(mine, strings.Repeat("x", 40))
	if err := os.Mkdir(long, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		runtime string
		uid     int
		want    string
	}{
		{mine, os.Geteuid(), mine + "/divvy"},
		{mine, os.Geteuid() + 1, fmt.Sprintf("/tmp/divvy-%d", os.Geteuid()+1)}, // somebody else's, as after su
		{long, os.Geteuid(), fmt.Sprintf("/tmp/divvy-%d", os.Geteuid())},       // no socket's path would fit
		{"", 7, "/tmp/divvy-7"},
		{"relative", 7, "/tmp/divvy-7"},
		{mine + "/none", 7, "/tmp/divvy-7"},
	} {
		if got := Locate(c.runtime, c.uid).Path(); got != c.want {
			t.Errorf("Locate(%q, %d) = %s, want %s", c.runtime, c.uid, got, c.want)
		}
	}
}
