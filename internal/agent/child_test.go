// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/gpu"
)

// The test binary also plays the programs under a share and a supervised
// worker, in processes of their own.
func TestMain(m *testing.M) {
	switch {
	case os.Getenv("AGENT_TEST_PROGRAM") != "":
		program(os.Getenv("AGENT_TEST_PROGRAM"))
	case os.Getenv("AGENT_TEST_IDS") != "":
		manyIDs(os.Getenv("AGENT_TEST_IDS"))
	case os.Getenv("AGENT_TEST_HOLDER") != "":
		holder()
	case os.Getenv("AGENT_TEST_WORKER") != "":
		worker(os.Getenv("AGENT_TEST_WORKER"))
	default:
		os.Exit(m.Run())
	}
}

// program attaches to the share at path and does what its input says:
// "alloc N", "free N", "lease N" (has one, and N ns in flight), "busy N" (ns it has measured), "heir" (a child that maps the page, and goes with the
// input), each answered with one line.
func program(path string) {
	f, err := attachFront(&front{path: path, keepFile: true})
	if err != nil {
		// Taken from the queue by a worker that died: a library asks again.
		f, err = attachFront(&front{path: path, keepFile: true})
	}
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	fmt.Println("ready", os.Getpid())
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		verb, argument, _ := strings.Cut(lines.Text(), " ")
		n, _ := strconv.ParseUint(argument, 10, 64)
		err = nil
		switch verb {
		case "alloc":
			err = f.alloc(n)
		case "free":
			f.free(n)
		case "lease":
			if f.lease() == 0 {
				err = errors.New("no lease")
			}
			f.work(0, time.Duration(n))
		case "busy":
			f.work(time.Duration(n), 0)
		case "heir":
			fmt.Println(heir(f))
			continue
		}
		switch {
		case errors.Is(err, errDenied):
			fmt.Println("denied")
		case err != nil:
			fmt.Println("error", err)
		default:
			fmt.Println("ok")
		}
	}
}

// heir starts a child that keeps the page, and returns its number.
func heir(f *front) int {
	page := os.NewFile(uintptr(f.page.Load().File()), "page")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "AGENT_TEST_PROGRAM=", "AGENT_TEST_HOLDER=1")
	cmd.Stdin, cmd.ExtraFiles = os.Stdin, []*os.File{page}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return 0
	}
	_, _ = bufio.NewReader(out).ReadString('\n') // it is ready
	return cmd.Process.Pid
}

func holder() {
	if _, err := unix.Mmap(3, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		os.Exit(1)
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// child is such a program.
type child struct {
	t     testing.TB
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines *bufio.Scanner
	pid   int
}

func startChild(t testing.TB, path string, prepare ...func(*exec.Cmd)) *child {
	t.Helper()
	c := &child{t: t, cmd: exec.Command(os.Args[0])}
	c.cmd.Env = append(os.Environ(), "AGENT_TEST_PROGRAM="+path)
	c.cmd.Stderr = os.Stderr
	for _, f := range prepare {
		f(c.cmd)
	}
	var err error
	c.stdin, err = c.cmd.StdinPipe()
	must(t, err)
	out, err := c.cmd.StdoutPipe()
	must(t, err)
	c.lines = bufio.NewScanner(out)
	must(t, c.cmd.Start())
	t.Cleanup(c.kill)
	if got := c.read(); !strings.HasPrefix(got, "ready ") {
		t.Fatalf("child: %s", got)
	}
	c.pid = c.cmd.Process.Pid
	return c
}

func (c *child) read() string {
	if !c.lines.Scan() {
		c.t.Fatalf("child ended: %v", c.lines.Err())
	}
	return c.lines.Text()
}

func (c *child) do(verb string, n uint64) string {
	if _, err := fmt.Fprintf(c.stdin, "%s %d\n", verb, n); err != nil {
		c.t.Fatal(err)
	}
	return c.read()
}

func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

// fileSource is a driver whose account is in a file, for workers in processes
// of their own. A process that is gone holds nothing.
type fileSource struct{ path string }

func (s fileSource) Cards() ([]gpu.Card, error) { return newFakeSource().Cards() }
func (s fileSource) Close() error               { return nil }

func (s fileSource) Health(string) (gpu.Health, error) { return gpu.Health{State: gpu.Well}, nil }

func (s fileSource) Telemetry(string) (gpu.Telemetry, error) { return gpu.Telemetry{}, nil }

func (s fileSource) Activity(string, time.Time) (gpu.Activity, error) {
	return gpu.Activity{}, gpu.ErrNotSupported
}

func (s fileSource) Faults(time.Duration) ([]gpu.Fault, error) { return nil, gpu.ErrNotSupported }

func (s fileSource) Account(string) (gpu.Account, error) {
	raw, err := os.ReadFile(s.path)
	if err != nil {
		return gpu.Account{}, err
	}
	held := map[string]uint64{}
	if err := json.Unmarshal(raw, &held); err != nil {
		return gpu.Account{}, err
	}
	var a gpu.Account
	for text, bytes := range held {
		pid, _ := strconv.Atoi(text)
		if unix.Kill(pid, 0) == nil {
			a.UsedBytes += bytes
			a.Processes = append(a.Processes, gpu.Process{PID: pid, Bytes: bytes, Known: true})
		}
	}
	return a, nil
}

func (s fileSource) Processes(uuid string) ([]gpu.Process, error) {
	a, err := s.Account(uuid)
	return a.Processes, err
}

// worker is Run with a driver in a file.
func worker(configuration string) {
	var w workerConfig
	if err := json.Unmarshal([]byte(configuration), &w); err != nil {
		panic(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	store, kept, err := openStore()
	if err != nil {
		panic(err)
	}
	cfg := Private(w.Directory, w.Directory)
	cfg.IdleExit = w.IdleExit
	l, err := newLoop(ctx, cfg, fileSource{w.Account}, store, kept)
	if err != nil {
		_ = store.Leave(leaveFailed + err.Error())
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := serve(ctx, l); err != nil && !errors.Is(err, ErrIdle) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
