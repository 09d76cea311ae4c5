// SPDX-License-Identifier: Apache-2.0

// Package e2e tests the built product from outside: real processes under real
// shares of simulated cards. Every test of enforcement has a control run
// without the front library, which must exceed the limit. Run make build and
// make test-programs first.
//
// Tests run side by side (t.Parallel), but for those that look at parts of time, use
// more of the host than four others leave, or change what all of the process see.
package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/bench"
	"github.com/divvy-gpu/divvy/internal/client"
	"github.com/divvy-gpu/divvy/internal/event"
	"github.com/divvy-gpu/divvy/internal/library"
)

const (
	mib          = uint64(1) << 20
	contextBytes = 64 * mib // of a simulated card
	outOfMemory  = bench.OutOfMemory
	waitAtMost   = 30 * time.Second
)

// root is the repository; tests run in test/e2e.
func root(t testing.TB) string {
	t.Helper()
	path, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// built is the path of a file that the build makes.
func built(t testing.TB, elements ...string) string {
	t.Helper()
	path := filepath.Join(append([]string{root(t)}, elements...)...)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: run make build test-programs first", err)
	}
	return path
}

func divvy(t testing.TB) string { return built(t, "bin", "divvy") }

// generation is one driver generation that the stand-in plays.
type generation struct{ name, standin string }

var generations = []generation{
	{"11.8", "standin-11.8"},
	{"12.2", "standin"},
	{"13.0", "standin-13.0"},
	{"13.1", "standin-13.1"},
}

// frontFor is the front library, prepared for a generation's stand-in.
func frontFor(t testing.TB, g generation) string {
	t.Helper()
	front, err := library.Dir(built(t, "lib", "divvy")).FrontFor(built(t, "lib", "divvy", g.standin),
		filepath.Join(root(t), "build", "test", "fronts"))
	if err != nil {
		t.Fatal(err)
	}
	return front.Dir
}

// hostOptions says what a host looks like; the zero value is one H100 with a
// 12.2 driver.
type hostOptions struct {
	cards      string
	generation generation
	agentFlags []string
	topology   string // empty: plain
	hostMemory string // for the simulator; empty: what it takes by itself
}

// host is a simulator with an agent over it, of this test alone.
type host struct {
	directory string
	bench.Target
	client    *client.Client
	simulator *process
	agent     *process
	agentArgs []string
	simulate  []string // arguments of the simulator
}

func newHost(t testing.TB, o hostOptions) *host {
	t.Helper()
	h := newCards(t, o)
	h.begin(t, o)
	return h
}

// begin starts an agent over the cards.
func (h *host) begin(t testing.TB, o hostOptions) {
	t.Helper()
	h.agentArgs = append([]string{"agent", "--directory", h.directory, "--creation", "all",
		"--driver-dir", h.DriverDirectory, "--simulator", h.SimulatorSocket}, o.agentFlags...)
	h.startAgent(t)
}

// newCards is a host without an agent.
func newCards(t testing.TB, o hostOptions) *host {
	t.Helper()
	if o.cards == "" {
		o.cards = "H100-80GB"
	}
	if o.generation.name == "" {
		o.generation = generations[1]
	}
	// A short path: socket names have 108 bytes.
	directory, err := os.MkdirTemp("/tmp", "dv-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(directory) })
	h := &host{directory: directory, Target: bench.Target{
		AgentSocket:     filepath.Join(directory, "agent.sock"),
		SimulatorSocket: filepath.Join(directory, "simulator.sock"),
		DriverDirectory: built(t, "lib", "divvy", o.generation.standin),
		FrontDirectory:  frontFor(t, o.generation),
		ToolsDirectory:  built(t, "lib", "divvy", "tools"),
	}}
	h.client = client.New(h.AgentSocket)
	h.simulate = []string{"simulate", "--gpus", o.cards, "--socket", h.SimulatorSocket, "--driver", o.generation.name}
	if o.topology != "" {
		h.simulate = append(h.simulate, "--topology", o.topology)
	}
	if o.hostMemory != "" {
		h.simulate = append(h.simulate, "--host-memory", o.hostMemory)
	}
	h.startSimulator(t)
	return h
}

// startSimulator starts the simulator and waits until it listens.
func (h *host) startSimulator(t testing.TB) {
	t.Helper()
	h.simulator = daemon(t, h.directory, "simulator", h.simulate...)
	eventually(t, "the simulator listens", func() error { return dial(h.SimulatorSocket) }, h.simulator)
}

// startAgent starts the agent and waits until it answers.
func (h *host) startAgent(t testing.TB) {
	t.Helper()
	h.agent = daemon(t, h.directory, "agent", h.agentArgs...)
	eventually(t, "the agent answers", func() error {
		_, err := h.client.Version(t.Context())
		return err
	}, h.agent)
}

// killAgent kills the supervisor, and then its worker: it would start another one.
func (h *host) killAgent(t testing.TB) {
	t.Helper()
	worker, err := h.client.Version(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	h.agent.kill()
	if err := syscall.Kill(worker.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// killWorker kills the agent's worker, calls meanwhile if it is given, and waits until another one answers.
func (h *host) killWorker(t testing.TB, meanwhile func()) {
	t.Helper()
	worker, err := h.client.Version(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(worker.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if meanwhile != nil {
		meanwhile()
	}
	h.awaitWorker(t, worker.PID)
}

// awaitWorker waits until another worker answers than one that was killed.
func (h *host) awaitWorker(t testing.TB, killed int) {
	t.Helper()
	eventually(t, "another agent answers", func() error {
		next, err := h.client.Version(t.Context())
		if err == nil && next.PID == killed {
			err = fmt.Errorf("it is process %d still", killed)
		}
		return err
	}, h.agent)
}

// process is a daemon of the product.
type process struct {
	name  string
	pid   int
	ended chan struct{} // closed when it has ended and was reaped
}

// daemon starts a part of the product that runs until the test ends; its log is
// shown when the test fails.
func daemon(t testing.TB, directory, name string, args ...string) *process {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(directory, name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	command := exec.Command(divvy(t), args...)
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + directory, "DIVVY_LIBDIR=" + built(t, "lib", "divvy")}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{name: name, pid: command.Process.Pid, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		_ = command.Wait()
	}()
	t.Cleanup(func() {
		p.stop(t)
		if t.Failed() {
			if text, err := os.ReadFile(log.Name()); err == nil && len(text) > 0 {
				t.Logf("%s:\n%s", name, tail(string(text), 4000))
			}
		}
	})
	return p
}

// stop ends a daemon and its children in good order.
func (p *process) stop(t testing.TB) {
	t.Helper()
	select {
	case <-p.ended:
		return
	default:
	}
	_ = syscall.Kill(-p.pid, syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(10 * time.Second):
		t.Errorf("%s did not end after SIGTERM", p.name)
		p.kill()
	}
}

// kill ends it and its children at once.
func (p *process) kill() {
	_ = syscall.Kill(-p.pid, syscall.SIGKILL)
	<-p.ended
}

// eventually calls check until it succeeds; it waits for nothing any more when
// one of the daemons that it depends on has ended.
func eventually(t testing.TB, what string, check func() error, daemons ...*process) {
	t.Helper()
	deadline := time.NewTimer(waitAtMost)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-deadline.C:
			t.Fatalf("%s: not within %v: %v", what, waitAtMost, err)
		case <-tick.C:
		}
		for _, p := range daemons {
			select {
			case <-p.ended:
				t.Fatalf("%s: %s has ended: %v", what, p.name, err)
			default:
			}
		}
	}
}

// dial says whether a seqpacket socket accepts connections.
func dial(socket string) error {
	fd, err := connectPacket(socket)
	if err == nil {
		syscall.Close(fd)
	}
	return err
}

// share makes a share that lives as long as the test.
func (h *host) share(t testing.TB, name string, bytes uint64) api.Share {
	t.Helper()
	share, err := h.client.CreateShare(t.Context(), api.ShareSpec{Name: name, MemoryBytes: bytes})
	if err != nil {
		t.Fatalf("create share %s: %v", name, err)
	}
	t.Cleanup(func() {
		if err := h.client.DeleteShare(context.Background(), name, true); err != nil {
			t.Logf("delete share %s: %v", name, err)
		}
	})
	return share
}

// look reads a share as it is now.
func (h *host) look(t testing.TB, name string) api.Share {
	t.Helper()
	share, err := h.client.Share(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return share
}

// holder starts a holder under a share.
func (h *host) holder(t testing.TB, share api.Share) *bench.Holder {
	t.Helper()
	return h.holderIn(t, h.Environ(share.Socket))
}

func (h *host) holderIn(t testing.TB, env []string) *bench.Holder {
	t.Helper()
	holder, err := h.StartHolder(context.Background(), env)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(holder.Kill)
	return holder
}

// do sends a holder a command that must succeed.
func do(t testing.TB, holder *bench.Holder, format string, arguments ...any) []string {
	t.Helper()
	words, err := holder.Do(format, arguments...)
	if err != nil {
		t.Fatal(err)
	}
	return words
}

// alloc lets a holder allocate and returns the address.
func alloc(t testing.TB, holder *bench.Holder, bytes uint64) uint64 {
	t.Helper()
	address, err := holder.Number("alloc %d", bytes)
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// refused checks that a command comes to a certain CUresult.
func refused(t testing.TB, holder *bench.Holder, result int, format string, arguments ...any) {
	t.Helper()
	_, err := holder.Do(format, arguments...)
	var call *bench.Refused
	if !errors.As(err, &call) || call.Result != result {
		t.Fatalf("%s: got %v, want CUresult %d", fmt.Sprintf(format, arguments...), err, result)
	}
}

// room is free and total memory as a holder sees it.
func room(t testing.TB, holder *bench.Holder) (free, total uint64) {
	t.Helper()
	numbers, err := holder.Numbers("info")
	if err != nil || len(numbers) != 2 {
		t.Fatalf("info: %v %v", numbers, err)
	}
	return numbers[0], numbers[1]
}

// events returns the agent's events of one kind about one share, oldest first.
func (h *host) events(t testing.TB, kind event.Kind, share string) []api.Event {
	t.Helper()
	all, err := h.client.Events(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	var found []api.Event
	for _, e := range all.Events {
		if e.Kind == kind && (share == "" || e.Share == share) {
			found = append(found, e)
		}
	}
	return found
}

// event waits for an event of one kind about one share and returns the last: a
// program's events reach the agent in their own time.
func (h *host) event(t testing.TB, kind event.Kind, share string) api.Event {
	t.Helper()
	var found []api.Event
	eventually(t, "an event "+string(kind), func() error {
		if found = h.events(t, kind, share); len(found) == 0 {
			return errors.New("there is none")
		}
		return nil
	})
	return found[len(found)-1]
}

// outcome is how a command ended.
type outcome struct {
	stdout, stderr string
	code           int
}

// run runs a program to its end.
func run(t testing.TB, env []string, program string, args ...string) outcome {
	t.Helper()
	return finish(t, exec.CommandContext(t.Context(), program, args...), env)
}

func finish(t testing.TB, command *exec.Cmd, env []string) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	command.Env, command.Stdout, command.Stderr = env, &stdout, &stderr
	command.WaitDelay = 5 * time.Second
	err := command.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v", command, err)
	}
	code := command.ProcessState.ExitCode()
	if status, ok := command.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		code = 128 + int(status.Signal())
	}
	return outcome{stdout: stdout.String(), stderr: stderr.String(), code: code}
}

func tail(text string, bytes int) string {
	if len(text) > bytes {
		text = text[len(text)-bytes:]
	}
	return strings.TrimSpace(text)
}
