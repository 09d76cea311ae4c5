// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/remote/network"
	"github.com/divvy-gpu/divvy/internal/simgpu"
)

// served is a host whose GPUs programs elsewhere may use. The programs of these tests
// run without any driver: what they load is clib/remote, fitted to the server's.
type served struct {
	*host
	socket    string
	server    *process
	serveArgs []string // of the server, besides
	remote    []string // flags by which a program finds it
	env       []string // of programs, besides
	account   *simgpu.Truth
	// With certificates:
	address, authority, identity string
}

// remoteGenerations are the driver generations that remote calls are tried on.
var remoteGenerations = generations[:3]

func newServed(t testing.TB, o hostOptions) *served {
	t.Helper()
	return serveOn(t, newHost(t, o))
}

// serveOn starts a server on a host.
func serveOn(t testing.TB, h *host) *served {
	t.Helper()
	s := &served{host: h, account: h.truth(t)}
	s.socket = filepath.Join(s.directory, "serve.sock")
	s.remote = []string{"--remote", "unix:" + s.socket}
	s.serve(t)
	return s
}

// serve starts the server and waits until it listens.
func (s *served) serve(t testing.TB) {
	t.Helper()
	s.server = daemon(t, s.directory, "serve", append([]string{"serve", "--agent", s.AgentSocket, "--listen", "unix:" + s.socket,
		"--audit", filepath.Join(s.directory, "serve-audit.log")}, s.serveArgs...)...)
	eventually(t, "the server listens", func() error {
		conn, err := net.Dial("unix", s.socket)
		if err == nil && s.address != "" {
			conn.Close()
			conn, err = net.Dial("tcp", s.address)
		}
		if err == nil {
			conn.Close()
		}
		return err
	}, s.server)
}

// away is the environment of a program on a machine without a GPU.
func (s *served) away(more ...string) []string {
	return slices.Concat([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.directory}, s.env, more)
}

// command is a program under divvy run --remote.
func (s *served) command(flags []string, program ...string) []string {
	return slices.Concat([]string{"run"}, s.remote, flags, []string{"--"}, program)
}

// run runs a program there to its end.
func (s *served) run(t testing.TB, flags []string, program ...string) outcome {
	t.Helper()
	return run(t, s.away(), divvy(t), s.command(flags, program...)...)
}

// open starts a run that lasts until the test ends or its end is called, and returns
// what a program of it has for environment.
func (s *served) open(t testing.TB, flags ...string) (env []string, end func()) {
	t.Helper()
	command := exec.CommandContext(context.Background(), divvy(t), s.command(flags, "sh", "-c", "env; echo end; read line")...)
	command.Env = s.away()
	command.Stderr = os.Stderr
	in, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	end = func() {
		in.Close()
		_ = command.Wait()
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "end" {
		env = append(env, lines.Text())
	}
	if lines.Text() != "end" {
		t.Fatalf("divvy %s: no environment", strings.Join(s.command(flags), " "))
	}
	return env, end
}

// mem spells a size for a command, which counts in MiB.
func mem(bytes uint64) string { return fmt.Sprintf("%dMiB", bytes/mib) }

// Every example computes what it computes beside the GPU, to the bit.
func TestRemoteExamples(t *testing.T) {
	t.Parallel()
	for _, g := range remoteGenerations {
		t.Run(g.name, func(t *testing.T) {
			s := newServed(t, hostOptions{generation: g})
			want := checksums(t, s.host)
			for _, name := range exampleNames {
				s.example(t, name, want)
			}
		})
	}
}

// carriages returns the class of each symbol in data/remote.tsv.
func carriages(t testing.TB) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), "data", "remote.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if columns := strings.Split(strings.TrimSpace(line), "\t"); !strings.HasPrefix(line, "#") && len(columns) >= 3 {
			found[columns[0]] = columns[2]
		}
	}
	return found
}

// What the library does not carry data/remote.tsv refuses: a function that no file writes
// is a weak one that says so.
func TestRemoteLibraryCarriesWhatItSays(t *testing.T) {
	t.Parallel()
	file, err := elf.Open(built(t, "lib", "divvy", "remote", "libcuda.so.1"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	exported, err := file.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	class, weak, strong := carriages(t), 0, 0
	for _, symbol := range exported {
		if symbol.Section == elf.SHN_UNDEF {
			continue
		}
		plain := strings.TrimSuffix(strings.TrimSuffix(symbol.Name, "_ptsz"), "_ptds")
		if elf.ST_BIND(symbol.Info) == elf.STB_WEAK {
			weak++
			if class[plain] != "refused" {
				t.Errorf("%s is %s in data/remote.tsv, and no file of clib/remote has it", symbol.Name, class[plain])
			}
		} else {
			strong++
			if class[plain] == "refused" {
				t.Errorf("%s is refused in data/remote.tsv, and clib/remote has it", symbol.Name)
			}
		}
	}
	if weak == 0 || strong == 0 {
		t.Errorf("%d functions refused, %d carried", weak, strong)
	}
}

// The snippets of all hooked calls say what they say beside the GPU, but for what
// data/remote.tsv refuses.
func TestRemoteSnippets(t *testing.T) {
	t.Parallel()
	areas, _ := snippetAreas(t)
	class := carriages(t)
	for _, g := range remoteGenerations {
		t.Run(g.name, func(t *testing.T) {
			s := newServed(t, hostOptions{generation: g})
			share := s.share(t, "snippets", snippetQuota)
			for _, w := range ways {
				if w.control || (g.name != "12.2" && w.name != "dlopen") {
					continue
				}
				for _, area := range areas {
					t.Run(w.name+"/"+area, func(t *testing.T) {
						args := append([]string{built(t, "build", "test", w.program), area, fmt.Sprint(snippetQuota)}, w.flags...)
						here := run(t, w.env(s.host, share.Socket), args[0], args[1:]...)
						there := s.run(t, []string{"--mem", mem(snippetQuota)}, args...)
						compareSnippets(t, here, there, class)
					})
				}
			}
		})
	}
}

func compareSnippets(t *testing.T, here, there outcome, class map[string]string) {
	t.Helper()
	said := map[string]string{}
	for line := range strings.Lines(there.stdout) {
		words := strings.SplitN(strings.TrimPrefix(strings.TrimSpace(line), "not "), " ", 3)
		said[words[1]] = strings.TrimSpace(line)
	}
	compared := 0
	for line := range strings.Lines(here.stdout) {
		line = strings.TrimSpace(line)
		_, symbol, _ := strings.Cut(line, " ")
		plain := strings.TrimSuffix(strings.TrimSuffix(symbol, "_ptsz"), "_ptds")
		refused := class[plain] == "refused"
		switch {
		case refused && strings.HasPrefix(line, "ok ") && said[symbol] == "":
			t.Errorf("%s is refused in data/remote.tsv, and nothing is said of it", symbol)
		case !refused && said[symbol] != line:
			t.Errorf("%q beside the GPU, %q elsewhere", line, said[symbol])
		case !refused:
			compared++
		}
	}
	if compared == 0 {
		t.Errorf("nothing was compared\n%s", tail(there.stderr, 2000))
	}
}

// Ninety wrong calls get the same answers, at once or at the next synchronise.
func TestRemoteWrongCalls(t *testing.T) {
	t.Parallel()
	for _, g := range remoteGenerations {
		t.Run(g.name, func(t *testing.T) {
			s := newServed(t, hostOptions{generation: g})
			share := s.share(t, "wrong", 2<<30)
			program := built(t, "build", "test", "wrongcalls")
			here := run(t, s.Environ(share.Socket), program)
			there := s.run(t, []string{"--mem", "2GiB"}, program)
			strict := s.run(t, []string{"--mem", "2GiB"}, "env", "DIVVY_REMOTE_STRICT=1", program)
			if strict.stdout != there.stdout {
				t.Errorf("waited for, calls say something else: %s", strict.stdout)
			}
			if here.code != 0 || there.code != 0 || strings.Count(here.stdout, "\n") < 90 {
				t.Fatalf("codes %d and %d\n%s%s", here.code, there.code, tail(here.stderr, 1000), tail(there.stderr, 1000))
			}
			want, got := strings.Split(here.stdout, "\n"), strings.Split(there.stdout, "\n")
			for i := range want {
				if i >= len(got) || got[i] != want[i] {
					t.Errorf("beside the GPU %q, elsewhere %q", want[i], got[min(i, len(got)-1)])
				}
			}
		})
	}
}

// Threads that share streams, events, contexts and host functions see each other's calls
// in order.
func TestRemoteThreads(t *testing.T) {
	t.Parallel()
	s := newServed(t, hostOptions{})
	rounds := "600"
	if testing.Short() {
		rounds = "200"
	}
	ended := s.run(t, []string{"--mem", "2GiB"}, built(t, "build", "test", "lanes"), rounds)
	if ended.code != 0 || !strings.HasSuffix(ended.stdout, "ok\n") {
		t.Errorf("code %d\n%s%s", ended.code, tail(ended.stdout, 2000), tail(ended.stderr, 2000))
	}
}

// All processes of a run are one share on the server: together they hold no more than its
// limit, by the simulator's account. Without the front they do.
func TestRemoteProcessesShareALimit(t *testing.T) {
	t.Parallel()
	const quota, each = 1024 * mib, 300 * mib
	s := newServed(t, hostOptions{})
	env, _ := s.open(t, "--mem", mem(quota))
	s.resetPeak(t)
	taken := 0
	for range 4 {
		holder := s.holderIn(t, env)
		if _, err := holder.Do("start"); err != nil { // its context finds no room
			refused(t, holder, outOfMemory, "start")
			continue
		}
		if _, err := holder.Number("alloc %d", each); err == nil {
			taken++
		} else {
			refused(t, holder, outOfMemory, "alloc %d", each)
		}
	}
	if peak := s.peak(t); taken != 2 || peak > quota {
		t.Errorf("%d of four processes got %d bytes each, the driver saw %d at once, the limit is %d", taken, each, peak, quota)
	}
	s.resetPeak(t)
	for range 4 {
		holder := s.holderIn(t, s.Unheld())
		do(t, holder, "start")
		alloc(t, holder, each)
	}
	if peak := s.peak(t); peak <= quota {
		t.Errorf("without the front the driver saw %d bytes: the limit cannot fail", peak)
	}
}

// When a run has ended its part of the GPU is free: the next may have all of it at once.
func TestRemoteRunsOneAfterAnother(t *testing.T) {
	t.Parallel()
	s := newServed(t, hostOptions{})
	for i := range 20 {
		if ended := s.run(t, []string{"--mem", "60GiB"}, built(t, "lib", "divvy", "examples", "vectoradd")); ended.code != 0 {
			t.Fatalf("run %d: code %d\n%s", i, ended.code, tail(ended.stderr, 1000))
		}
	}
}

// Runs of 10, 30 and 60 %, 0.1 ms of round trip away, have that of the GPU, and no more; two
// that nothing holds have half of it each.
func TestRemoteRunsKeepTheirTime(t *testing.T) {
	s := newServedTLS(t, hostOptions{})
	_, far := s.lead(t, network.Conditions{RTT: 100 * time.Microsecond})
	truth := s.truth(t)
	want := []float64{10, 30, 60}
	var burners []*burner
	for _, cores := range want {
		env, _ := far.open(t, "--mem", "1GiB", "--cores", fmt.Sprint(cores))
		b := s.burnerIn(t, env, "--us", "1000", "--ahead-ms", "50")
		burners = append(burners, b)
	}
	known := s.cardTimes(t, truth)
	for _, b := range burners {
		b.start()
	}
	eventually(t, "all have begun", func() error {
		begun := 0
		for pid, state := range s.cardTimes(t, truth) {
			if _, before := known[pid]; (!before || known[pid].BusyNS == 0) && state.BusyNS > 0 {
				begun++
			}
		}
		if begun < len(want) {
			return fmt.Errorf("%d have", begun)
		}
		return nil
	}, s.simulator)
	percent := s.busyOver(t, truth, 4*time.Second)
	var got []float64
	for _, p := range percent {
		if p > 1 {
			got = append(got, p)
		}
	}
	slices.Sort(got)
	if len(got) != len(want) {
		t.Fatalf("the GPU's time went to %v", percent)
	}
	t.Logf("%.2f %% of the GPU, of %v", got, want)
	for i, p := range got {
		if p < want[i]/2 || p > want[i]+1 { // a busy host gives each less
			t.Errorf("a run of %v %% had %.2f %% of the GPU", want[i], p)
		}
	}
	for _, b := range burners {
		b.kill()
	}
	small := s.burner(t, "--us", "1000", "--ahead-ms", "50")
	large := s.burner(t, "--us", "1000", "--ahead-ms", "50")
	small.start()
	large.start()
	eventually(t, "both have begun", func() error {
		times := s.cardTimes(t, truth)
		if times[small.pid].BusyNS == 0 || times[large.pid].BusyNS == 0 {
			return errors.New("one has had nothing")
		}
		return nil
	}, s.simulator)
	if p := s.busyOver(t, truth, time.Second)[small.pid]; p <= want[0]+1 {
		t.Errorf("without the front one of two had %.2f %%: the limit cannot fail", p)
	}
}

// running are the processes of which something is so, that is read below /proc/NUMBER.
func running(t testing.TB, is func(process string) bool) (pids []int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, process := range all {
		if pid, err := strconv.Atoi(filepath.Base(process)); err == nil && is(process) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// fileHas says whether a file can be read and has a text in it.
func fileHas(path, text string) bool {
	content, err := os.ReadFile(path)
	return err == nil && strings.Contains(string(content), text)
}

// workers are the processes that make calls for programs elsewhere.
func (s *served) workers(t testing.TB) []int {
	t.Helper()
	tool := filepath.Join(s.ToolsDirectory, "divvy-worker")
	return running(t, func(process string) bool {
		target, err := os.Readlink(process + "/exe")
		return err == nil && target == tool && fileHas(process+"/environ", s.directory)
	})
}

// unused says what still is on the GPU, or makes calls there.
func (s *served) unused(t testing.TB) error {
	if left := s.workers(t); len(left) != 0 {
		return fmt.Errorf("workers: %v", left)
	}
	cards, err := s.account.Cards(t.Context())
	if err == nil && cards[0].UsedBytes != 0 {
		err = fmt.Errorf("%d bytes are in use", cards[0].UsedBytes)
	}
	return err
}

// left says what is left of runs that have ended.
func (s *served) left(t testing.TB) error {
	if err := s.unused(t); err != nil {
		return err
	}
	shares, err := s.client.Shares(t.Context())
	if err == nil && len(shares.Shares) > 0 {
		err = fmt.Errorf("%d shares", len(shares.Shares))
	}
	return err
}

// Whoever of a run is killed, the others are told, nothing hangs, and nothing is left on
// the GPU or of the processes.
func TestRemoteDeaths(t *testing.T) {
	t.Parallel()
	const bytes = 256 * mib
	s := newServed(t, hostOptions{})
	deaths := map[string]func(client int){
		"client": func(client int) { _ = syscall.Kill(client, syscall.SIGKILL) },
		"worker": func(int) {
			for _, pid := range s.workers(t) {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		},
	}
	for who, kill := range deaths {
		t.Run(who, func(t *testing.T) {
			env, end := s.open(t, "--mem", "1GiB")
			holder := s.holderIn(t, env)
			do(t, holder, "start")
			alloc(t, holder, bytes)
			workers := s.workers(t)
			if len(workers) != 1 {
				t.Fatalf("workers: %v", workers)
			}
			if status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", workers[0])); err != nil || !strings.Contains(string(status), "\nSeccomp:\t2\n") {
				t.Errorf("the worker is not confined: %v", err)
			}
			kill(holder.PID)
			if who != "client" {
				refused(t, holder, deviceUnavailable, "alloc %d", mib)
				refused(t, holder, deviceUnavailable, "alloc %d", mib)
			}
			eventually(t, "the GPU and the workers are free", func() error { return s.unused(t) }, s.server)
			end()
			eventually(t, "the run's share is gone", func() error { return s.left(t) })
		})
	}
}

// deviceUnavailable is CUDA_ERROR_DEVICE_UNAVAILABLE.
const deviceUnavailable = 46

// freePort is an address of this machine that nothing listens at.
func freePort(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// cuGetProcAddress answers what it answers beside the GPU, for every name, version and flag.
func TestRemoteGetProcAddress(t *testing.T) {
	t.Parallel()
	names := strings.Join(baseNames(t), "\n") + "\n"
	program := built(t, "build", "test", "procaddress")
	for _, g := range remoteGenerations {
		t.Run(g.name, func(t *testing.T) {
			s := newServed(t, hostOptions{generation: g})
			ask := func(env []string, program string, args ...string) []string {
				command := exec.CommandContext(t.Context(), program, args...)
				command.Stdin = strings.NewReader(names)
				ended := finish(t, command, env)
				if ended.code != 0 {
					t.Fatalf("code %d: %s", ended.code, tail(ended.stderr, 1000))
				}
				lines := strings.Split(ended.stdout, "\n")
				for i, line := range lines { // the last word is the library's file
					lines[i] = line[:max(strings.LastIndex(line, " "), 0)]
				}
				return lines
			}
			want := ask(s.Unheld(), program)
			got := ask(s.away(), divvy(t), s.command([]string{"--mem", "1GiB"}, program)...)
			if len(want) < 1000 || len(got) != len(want) {
				t.Fatalf("%d answers beside the GPU, %d elsewhere", len(want), len(got))
			}
			for i := range want {
				if got[i] != want[i] {
					t.Errorf("beside the GPU %q, elsewhere %q", want[i], got[i])
				}
			}
		})
	}
}

// A program sees the run's GPU, or none, as CUDA_VISIBLE_DEVICES has it.
func TestRemoteVisibleDevices(t *testing.T) {
	t.Parallel()
	s := newServed(t, hostOptions{})
	tool := filepath.Join(s.ToolsDirectory, "visible")
	seen := func(list ...string) string {
		return strings.TrimSpace(run(t, s.away(list...), divvy(t), s.command([]string{"--mem", "1GiB"}, tool, "libcuda.so.1")...).stdout)
	}
	uuid := seen()
	if !strings.HasPrefix(uuid, "GPU-") || strings.Contains(uuid, "\n") {
		t.Fatalf("a run sees %q, want one GPU", uuid)
	}
	for list, want := range map[string]string{"": "", "0": uuid, "1": "", "-1": "", "0,1": uuid, uuid: uuid, uuid[:12]: uuid, "GPU-00000000": "", "x": ""} {
		if got := seen("CUDA_VISIBLE_DEVICES=" + list); got != want {
			t.Errorf("CUDA_VISIBLE_DEVICES=%q shows %q, want %q", list, got, want)
		}
	}
}
