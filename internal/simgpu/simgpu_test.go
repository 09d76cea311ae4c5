// SPDX-License-Identifier: Apache-2.0

package simgpu

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	patience = 20 * time.Second
	mib      = 1 << 20
)

// builder compiles testdata/simclient.c with the stand-in's client code, once
// for each set of options.
type builder struct {
	mu    sync.Mutex
	dir   string
	built map[string]string // options to program
}

// clients is the tests' builder; TestMain removes what it made.
var clients = &builder{built: map[string]string{}}

func (b *builder) program(t *testing.T, options ...string) string {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	key := strings.Join(options, " ")
	if path, ok := b.built[key]; ok {
		return path
	}
	if b.dir == "" {
		dir, err := os.MkdirTemp("", "divvy-simclient-")
		if err != nil {
			t.Fatal(err)
		}
		b.dir = dir
	}
	out := filepath.Join(b.dir, fmt.Sprint("simclient", len(b.built)))
	root := filepath.Join("..", "..", "clib")
	arguments := []string{"-std=gnu17", "-O1", "-g", "-Wall", "-Wextra", "-Wstrict-prototypes", "-Werror", "-D_GNU_SOURCE",
		"-DSIM_GENERATION=12020", `-DSIM_DRIVER_VERSION="test"`, "-I" + filepath.Join(root, "include"), "-I" + filepath.Join(root, "standin", "sim"),
		"-o", out, filepath.Join("testdata", "simclient.c"), filepath.Join(root, "standin", "sim", "sim.c"),
		filepath.Join(root, "standin", "sim", "calls.c"),
		filepath.Join(root, "standin", "sim", "health.c"), filepath.Join(root, "standin", "sim", "generation.c"), "-lpthread"}
	if text, err := exec.Command("gcc", append(arguments, options...)...).CombinedOutput(); err != nil {
		t.Fatalf("build the client with %q: %v\n%s", key, err, text)
	}
	b.built[key] = out
	return out
}

func TestMain(m *testing.M) {
	if library := os.Getenv(versionsOf); library != "" {
		printVersions(library)
		return
	}
	code := m.Run()
	if clients.dir != "" {
		_ = os.RemoveAll(clients.dir)
	}
	os.Exit(code)
}

// serve starts a simulator for one test and returns its socket and a
// connection for the truth.
func serve(t *testing.T, config Config) (string, *Truth) {
	t.Helper()
	if config.Socket == "" {
		config.Socket = filepath.Join(t.TempDir(), "sim.sock")
	}
	server, err := Listen(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
		if _, err := os.Lstat(config.Socket); err == nil {
			t.Errorf("%s is left behind", config.Socket)
		}
	})
	truth, err := Dial(t.Context(), config.Socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = truth.Close() })
	return config.Socket, truth
}

// process is a simclient.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
	ended bool
}

func start(t *testing.T, socket string, options ...string) *process {
	t.Helper()
	cmd := exec.Command(clients.program(t, options...))
	cmd.Env = append(os.Environ(), "DIVVY_SIMULATOR="+socket)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, cmd: cmd, in: in, out: bufio.NewReader(out)}
	t.Cleanup(p.kill)
	return p
}

func startCompute(t *testing.T, socket string) *process {
	t.Helper()
	p := start(t, socket)
	p.want("open compute", "0")
	return p
}

// do sends one line and returns the answer.
func (p *process) do(format string, args ...any) string {
	p.t.Helper()
	line := fmt.Sprintf(format, args...)
	if _, err := fmt.Fprintln(p.in, line); err != nil {
		p.t.Fatalf("%s: %v", line, err)
	}
	answer, err := p.out.ReadString('\n')
	if err != nil {
		p.t.Fatalf("%s: %v", line, err)
	}
	return strings.TrimSpace(answer)
}

func (p *process) want(line, answer string) {
	p.t.Helper()
	if got := p.do("%s", line); got != answer {
		p.t.Fatalf("%s: got %q, want %q", line, got, answer)
	}
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) kill() {
	if !p.ended {
		p.ended = true
		_ = p.cmd.Process.Kill()
		_ = p.in.Close()
		_, _ = io.Copy(io.Discard, p.out)
		_ = p.cmd.Wait()
	}
}

// eventually waits for a state of the simulator.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
		<-tick.C
	}
}

func used(t *testing.T, truth *Truth) uint64 {
	t.Helper()
	cards, err := truth.Cards(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return cards[0].UsedBytes
}

func freed(t *testing.T, truth *Truth) {
	t.Helper()
	eventually(t, "all memory is free", func() bool { return used(t, truth) == 0 })
}

// of returns what the truth says of a process on card 0.
func of(t *testing.T, truth *Truth, pid int) (ProcessState, bool) {
	t.Helper()
	list, err := truth.Processes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list {
		if p.PID == pid {
			return p, true
		}
	}
	return ProcessState{}, false
}

func TestChargeAndTruth(t *testing.T) {
	socket, truth := serve(t, Config{Cards: "T4,L4"})
	p := startCompute(t, socket)
	p.want("cards", "2 Tesla T4 (simulated)")
	p.want("charge 0 4 67108864", "0") // a context
	p.want("charge 0 0 1048576", "0")
	p.want("charge 0 0 2097152", "0")
	p.want("release 0 0 1048576", "0")
	p.want("adjust 0 2 33554432", "0")
	p.want(fmt.Sprint("charge 0 0 ", 15102*mib), "-12")
	p.want("charge 2 0 512", "-2")
	p.want("charge 0 7 512", "-22")
	cards, err := truth.Cards(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	held := uint64(64+2+32) * mib
	if len(cards) != 2 || cards[0].UsedBytes != held || cards[1].UsedBytes != 0 || cards[0].Processes != 1 || cards[0].UsableBytes != 15102*mib {
		t.Errorf("GPUs %+v", cards)
	}
	p.want("memory 0", fmt.Sprintf("0 %d %d", 15102*mib-held, 15102*mib))
	p.want("list 0", fmt.Sprintf("1 %d:%d", p.pid(), held))
	p.want("list 1", "0")
	state, ok := of(t, truth, p.pid())
	if !ok || state.Bytes != held || state.PeakBytes != held || state.Contexts != 1 || state.Allocations != 3 ||
		state.Live != 2 || state.Denials != 1 || !state.Alive || state.Detached || state.KindBytes[0] != 2*mib {
		t.Errorf("state %+v", state)
	}
	p.kill()
	freed(t, truth)
	if peak, err := truth.PeakBytes(t.Context(), p.pid(), 0); err != nil || peak != held {
		t.Errorf("peak of the dead: %d, %v", peak, err)
	}
	if err := truth.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	if dead, err := truth.Dead(t.Context()); err != nil || len(dead) != 0 {
		t.Errorf("dead after a reset: %+v, %v", dead, err)
	}
}

// TestDeath measures how soon a killed process's memory is free, on the
// simulator's own clock.
func TestDeath(t *testing.T) {
	socket, truth := serve(t, Config{Cards: "T4"})
	for _, how := range []string{"kill", "exit", "exec"} {
		p := startCompute(t, socket)
		p.want("charge 0 0 1073741824", "0")
		p.want("arena 0 17179869184", "0 17179869184")
		p.want("fill 8388608", "0")
		if err := truth.Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
		before := nowNS()
		switch how {
		case "kill":
			p.kill()
		case "exit":
			_, _ = fmt.Fprintln(p.in, "exit")
		case "exec":
			_, _ = fmt.Fprintln(p.in, "exec")
		}
		freed(t, truth)
		releases, err := truth.Releases(t.Context(), 0)
		if err != nil || len(releases) != 1 || releases[0].PID != p.pid() || releases[0].Bytes != 1<<30 {
			t.Fatalf("%s: releases %+v, %v", how, releases, err)
		}
		took := time.Duration(releases[0].TimeNS - before)
		t.Logf("%s: free after %v", how, took)
		if took < 0 || took > patience {
			t.Errorf("%s: free after %v", how, took)
		}
		if how == "exec" {
			p.want("open compute", "0") // the new program is a new process here
		}
		p.kill()
		freed(t, truth)
	}
}

// A forked child that inherits the descriptor keeps the memory after its
// parent's death, cannot use CUDA itself, and can look.
func TestForkKeepsMemory(t *testing.T) {
	socket, truth := serve(t, Config{Cards: "T4"})
	p := startCompute(t, socket)
	p.want("charge 0 0 1048576", "0")
	answer := p.do("fork")
	word, rest, _ := strings.Cut(answer, " ")
	child, err := strconv.Atoi(word)
	if err != nil || rest != "forked=1 compute=-130 observe=0 memory=0" {
		t.Fatalf("the child says %q", answer)
	}
	t.Cleanup(func() { _ = unix.Kill(child, unix.SIGKILL) })
	p.want("charge 0 0 1048576", "0") // the parent goes on
	p.ended = true                    // its stdout stays open in the child
	_ = p.cmd.Process.Kill()
	_, _ = p.cmd.Process.Wait()
	state, ok := of(t, truth, p.pid())
	if !ok || state.Bytes != 2*mib || state.Alive || state.Detached {
		t.Errorf("after the parent's death: %+v, %v", state, ok)
	}
	if err := unix.Kill(child, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	freed(t, truth)
}

// A program that closes all its descriptors lives on and keeps its memory, and
// the library finds its way back.
func TestCloseAll(t *testing.T) {
	socket, truth := serve(t, Config{Cards: "T4"})
	p := startCompute(t, socket)
	p.want("charge 0 0 1048576", "0")
	p.want("closeall", "0")
	eventually(t, "the simulator noticed", func() bool {
		state, ok := of(t, truth, p.pid())
		return ok && state.Detached
	})
	if state, _ := of(t, truth, p.pid()); state.Bytes != mib || !state.Alive {
		t.Errorf("detached: %+v", state)
	}
	p.want("charge 0 0 1048576", "0")
	p.want("release 0 0 1048576", "0")
	state, _ := of(t, truth, p.pid())
	if state.Bytes != mib || state.Detached || state.Allocations != 2 {
		t.Errorf("back again: %+v", state)
	}
	p.want("closeall", "0")
	p.want("charge 0 0 1048576", "0") // at once, before its end is noticed
	p.want("closeall", "0")
	p.kill()
	freed(t, truth)
	events, err := truth.Events(t.Context(), 0)
	if err != nil || len(events) == 0 || events[0].Kind != 4 {
		t.Errorf("events %+v, %v", events, err)
	}
}

func TestObserver(t *testing.T) {
	socket, truth := serve(t, Config{Cards: "H200", PlainNames: true})
	p := start(t, socket)
	p.want("memory 0", "-1 0 0")
	p.want("open observe", "0")
	p.want("open observe", "0")
	p.want("cards", "1 NVIDIA H200")
	p.want("charge 0 0 512", "-1")
	p.want("unobserve", "0")
	p.want("list 0", "0")
	if list, err := truth.Processes(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("an observer is shown: %+v, %v", list, err)
	}
	p.want("open compute", "0")
	p.want("unobserve", "0")
	p.want("charge 0 0 512", "0")
	if list, err := truth.Processes(t.Context()); err != nil || len(list) != 1 || list[0].PID != p.pid() {
		t.Errorf("after it computes: %+v, %v", list, err)
	}
}

func TestObjectsBetweenProcesses(t *testing.T) {
	socket, truth := serve(t, Config{Cards: "T4"})
	a, b := startCompute(t, socket), startCompute(t, socket)
	created := strings.Fields(a.do("create 0 2097152 77"))
	if created[0] != "0" || created[2] == "-1" {
		t.Fatalf("create: %v", created)
	}
	exported := strings.Fields(a.do("export %s", created[1]))
	if exported[0] != "0" {
		t.Fatalf("export: %v", exported)
	}
	imported := strings.Fields(b.do("import %s", exported[1]))
	if imported[0] != "0" || imported[1] != created[1] || imported[2] != "2097152" || imported[3] != "77" || imported[4] == "-1" {
		t.Fatalf("import: %v", imported)
	}
	if state, _ := of(t, truth, b.pid()); state.Bytes != 0 {
		t.Errorf("the importer pays: %+v", state)
	}
	b.want("import /dev/null", "-2 0 0 0 -1")
	a.want("drop "+created[1], "0")
	a.want("close "+exported[2], "0")
	a.kill()
	eventually(t, "the importer shows it", func() bool {
		state, ok := of(t, truth, b.pid())
		return ok && state.Bytes == 2*mib && state.KindBytes[7] == 2*mib
	})
	b.want("drop "+created[1], "0")
	if u := used(t, truth); u != 0 {
		t.Errorf("%d bytes after the last drop", u)
	}

	// An open descriptor alone keeps it too.
	created = strings.Fields(b.do("create 0 4096 0"))
	exported = strings.Fields(b.do("export %s", created[1]))
	b.want("drop "+created[1], "0")
	if u := used(t, truth); u != 4096 {
		t.Errorf("%d bytes while a descriptor is open", u)
	}
	if again := strings.Fields(b.do("import %s", exported[1])); again[0] != "0" {
		t.Errorf("import by the descriptor: %v", again)
	}
	b.want("drop "+created[1], "0")
	b.want("close "+exported[2], "0")
	freed(t, truth)
}

func TestIPC(t *testing.T) {
	socket, truth := serve(t, Config{Cards: "T4"})
	a, b := startCompute(t, socket), startCompute(t, socket)
	a.want("ipcexport 0 0 512", "-22") // nothing there yet
	a.want("arena 0 1000000", "0 1003520")
	a.want("charge 0 0 1024", "0")
	a.want("poke 512 99", "0")
	handle := a.do("ipcexport 0 512 512")
	a.want("ipcopen "+handle, "-114 0 0 0 -1")
	b.want("ipcopen "+handle, "0 512 512 42 99")
	b.want("ipcopen "+strings.Repeat("00", 64), "-2 0 0 0 -1")
	a.want("ipcrevoke 0 512", "0")
	b.want("ipcopen "+handle, "-2 0 0 0 -1")
	if handle = a.do("ipcexport 0 512 512"); len(handle) != 128 {
		t.Fatalf("export again: %q", handle)
	}
	a.kill()
	freed(t, truth)
	b.want("ipcopen "+handle, "-2 0 0 0 -1")
}

// The host's budget is not the card: the refusal has its own name and event.
func TestHostBudget(t *testing.T) {
	socket, truth := serve(t, Config{Cards: "T4", HostBudgetBytes: 16 * mib})
	p := startCompute(t, socket)
	p.want("arena 0 1073741824", "0 1073741824")
	p.want("charge 0 0 1073741824", "0") // capacity costs no host memory
	p.want("touch 8388608", "0")
	p.want("fill 8388608", "0")
	p.want("touch 33554432", "-105")
	p.want("touch 7340032", "0")
	p.want("fill 33554432", "0") // did not ask
	p.want("touch 4194304", "-105")
	p.want("charge 0 0 512", "-105")
	events, err := truth.Events(t.Context(), 0)
	if err != nil || len(events) != 3 || events[0].Kind != 1 || !strings.Contains(events[0].Text, "host memory") || events[0].PID != p.pid() {
		t.Errorf("events %+v, %v", events, err)
	}
}

func TestMismatch(t *testing.T) {
	socket, truth := serve(t, Config{Driver: "13.0"})
	if truth.Driver().Version != "580.65.06" {
		t.Errorf("driver %+v", truth.Driver())
	}
	p := start(t, socket)
	p.want("open compute", "-80")
	p.want("open observe", "-80")
	nobody := start(t, socket+".none")
	nobody.want("open compute", "-19")
}

// The client code under the compiler's sanitizers: threads, a fork, descriptors
// closed under it.
func TestClientUnderSanitizers(t *testing.T) {
	for _, options := range []string{"", "-fsanitize=address,undefined -fno-sanitize-recover=all", "-fsanitize=thread"} {
		t.Run(strings.ReplaceAll(options, " ", "_"), func(t *testing.T) {
			socket, truth := serve(t, Config{Cards: "2xT4"})
			p := start(t, socket, strings.Fields(options)...)
			p.want("open compute", "0")
			p.want("storm 8", "0")
			if u := used(t, truth); u != 0 {
				t.Errorf("%d bytes are left after balanced threads", u)
			}
			p.want("charge 0 0 1048576", "0")
			p.want("closeall", "0")
			p.want("storm 4", "0")
			if answer := p.do("fork"); !strings.HasSuffix(answer, "forked=1 compute=-130 observe=0 memory=0") {
				t.Errorf("the child says %q", answer)
			} else if child, err := strconv.Atoi(strings.Fields(answer)[0]); err != nil || unix.Kill(child, unix.SIGKILL) != nil {
				t.Errorf("the child %d is not there, %v", child, err)
			}
			if _, err := fmt.Fprintln(p.in, "exit"); err != nil {
				t.Fatal(err)
			}
			p.ended = true
			if err := p.cmd.Wait(); err != nil {
				t.Errorf("the client ends with %v", err)
			}
			freed(t, truth)
		})
	}
}
