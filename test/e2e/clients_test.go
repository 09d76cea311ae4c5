// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
)

// Programs of the public registries, unmodified: `make test-clients` installs them and
// says by this variable where.
const clientsVariable = "DIVVY_CLIENTS"

// clientsFolder is where the programs are; it skips the test where they are not, and
// says why.
func clientsFolder(t testing.TB, programs ...string) string {
	t.Helper()
	folder := os.Getenv(clientsVariable)
	if folder == "" {
		t.Skip("programs of the registries are run by make test-clients")
	}
	skipped, err := os.ReadFile(filepath.Join(folder, "skipped"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(skipped)) {
		for _, program := range programs {
			if strings.HasPrefix(line, program+": ") {
				t.Skipf("skipped: %s", strings.TrimSpace(line))
			}
		}
	}
	return folder
}

// clientProgram is one with a workload in test/clients.
type clientProgram struct {
	name, script string
	ask          uint64 // does not fit into smallQuota
	says         string // part of what its library says to that
}

const (
	smallQuota = 256 * mib
	holdBytes  = 96 * mib
)

var clientPrograms = []clientProgram{
	{name: "tinygrad", script: "use_tinygrad.py", ask: 300 * mib, says: "MemoryError"},
	{name: "numba-cuda", script: "use_numba.py", ask: 300 * mib, says: "CUDA_ERROR_OUT_OF_MEMORY"},
	{name: "drjit", script: "use_drjit.py", ask: 300 * mib, says: "out of memory"},
	{name: "cuda-python", script: "use_cuda_core.py", ask: 300 * mib, says: "CUDA_ERROR_OUT_OF_MEMORY"},
}

// clientResult is the line that a workload prints.
type clientResult struct {
	Same    *bool
	Differ  float64
	Most    float64
	Name    string
	Total   uint64
	Held    uint64
	Refused string
}

// clients is the machine that they run on.
type clients struct {
	*host
	folder, home string
}

// newClients is a machine whose driver reads the PTX that the installed toolkit makes.
func newClients(t testing.TB, programs ...string) *clients {
	t.Helper()
	folder := clientsFolder(t, programs...)
	generation := generations[0]
	for _, g := range generations {
		if g.name == "13.0" {
			generation = g
		}
	}
	return &clients{host: newHost(t, hostOptions{cards: "A100-40GB", generation: generation}), folder: folder, home: t.TempDir()}
}

// clientMost is how long a program may take.
const clientMost = 5 * time.Minute

// bounded is a program that fails the test when it takes too long: a hang says so itself.
func bounded(t testing.TB, program string, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), clientMost)
	t.Cleanup(cancel)
	command := exec.CommandContext(ctx, program, args...)
	command.Cancel = func() error {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			t.Errorf("%.200s hangs: it was killed after %v", command, clientMost)
		}
		return command.Process.Kill()
	}
	return command
}

// command is one way of a workload; what programs cache is the test's own.
func (c *clients) command(t testing.TB, env []string, p clientProgram, args ...string) *exec.Cmd {
	t.Helper()
	python := filepath.Join(c.folder, "python", "bin", "python")
	command := bounded(t, python, append([]string{filepath.Join(root(t), "test", "clients", p.script)}, args...)...)
	command.Env = append(env, "HOME="+c.home, "XDG_CACHE_HOME="+c.home, "DEV=CUDA:PTX", "PYTHONDONTWRITEBYTECODE=1")
	return command
}

func (c *clients) run(t testing.TB, env []string, p clientProgram, args ...string) (clientResult, error) {
	t.Helper()
	command := c.command(t, env, p, args...)
	return readClient(finish(t, command, command.Env), p.name)
}

func readClient(got outcome, name string) (clientResult, error) {
	var r clientResult
	line, _, _ := strings.Cut(got.stdout, "\n")
	if err := json.Unmarshal([]byte(line), &r); err != nil || got.code != 0 {
		return r, fmt.Errorf("%s: code %d, %q: %s", name, got.code, tail(got.stdout, 300), tail(got.stderr, 3000))
	}
	return r, nil
}

// right says what is wrong with the result of a workload.
func (r clientResult) right(name string, quota uint64) error {
	switch {
	case r.Same == nil || !*r.Same:
		return fmt.Errorf("%s: GPU and CPU differ by %g, at most %g is right", name, r.Differ, r.Most)
	case r.Total != quota:
		return fmt.Errorf("%s: sees a GPU of %d bytes, its share has %d", name, r.Total, quota)
	case !strings.Contains(r.Name, "A100"):
		return fmt.Errorf("%s: sees a GPU %q", name, r.Name)
	}
	return nil
}

func TestClientPrograms(t *testing.T) {
	for _, p := range clientPrograms {
		t.Run(p.name, func(t *testing.T) {
			c := newClients(t, "python", p.name)
			t.Run("alone", func(t *testing.T) { c.alone(t, p) })
			t.Run("together", func(t *testing.T) { c.together(t, p) })
			t.Run("too small", func(t *testing.T) { c.tooSmall(t, p) })
			t.Run("killed", func(t *testing.T) { c.killed(t, p) })
			t.Run("elsewhere", func(t *testing.T) { c.elsewhere(t, p) })
		})
	}
}

// alone: the right numbers, computed by kernels, within the share.
func (c *clients) alone(t *testing.T, p clientProgram) {
	const quota = 1024 * mib
	share := c.share(t, "alone", quota)
	c.resetPeak(t)
	start := time.Now()
	got, err := c.run(t, c.Environ(share.Socket), p, "work")
	if err == nil {
		err = got.right(p.name, quota)
	}
	if err != nil {
		t.Fatal(err)
	}
	c.figures(t, p.name, time.Since(start), quota)
}

// figures shows what a run cost, and fails if there was none.
func (c *clients) figures(t *testing.T, name string, took time.Duration, quota uint64) {
	t.Helper()
	times, err := c.truth(t).CardTime(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var kernels uint64
	var busy time.Duration
	for _, s := range times {
		kernels += s.Kernels
		busy += time.Duration(s.BusyNS)
	}
	peak, instructions := c.peak(t), c.instructions(t)
	t.Logf("FIGURES | %s | %.1f s | %d | %d | %v | %d MiB |", name, took.Seconds(), kernels, instructions, busy.Round(time.Microsecond), peak/mib)
	if kernels == 0 || instructions < kernels || peak == 0 || peak > quota {
		t.Errorf("%s: %d kernels, %d instructions, at most %d bytes of %d", name, kernels, instructions, peak, quota)
	}
}

// together: two shares at once, and neither notices.
func (c *clients) together(t *testing.T, p clientProgram) {
	const quota = 768 * mib
	var wait sync.WaitGroup
	for _, name := range []string{"first", "second"} {
		share := c.share(t, name, quota)
		wait.Go(func() {
			got, err := c.run(t, c.Environ(share.Socket), p, "work")
			if err == nil {
				err = got.right(p.name, quota)
			}
			if err != nil {
				t.Errorf("share %s: %v", name, err)
			}
		})
	}
	wait.Wait()
}

// tooSmall: the library's own way of saying that there is no memory, and a control.
func (c *clients) tooSmall(t *testing.T, p clientProgram) {
	share := c.share(t, "small", smallQuota)
	c.resetPeak(t)
	got, err := c.run(t, c.Environ(share.Socket), p, "ask", fmt.Sprint(p.ask))
	switch {
	case err != nil:
		t.Error(err)
	case !strings.Contains(got.Refused, p.says):
		t.Errorf("%s under %d MiB: %+v, want %q", p.name, smallQuota/mib, got, p.says)
	}
	if peak := c.peak(t); peak > smallQuota {
		t.Errorf("%s held %d bytes", p.name, peak)
	}
	if control, err := c.run(t, c.Unheld(), p, "ask", fmt.Sprint(p.ask)); err != nil || control.Held != p.ask {
		t.Errorf("control without a share: %+v, %v", control, err)
	}
}

// elsewhere: the same numbers and the same refusal on a machine without a GPU.
func (c *clients) elsewhere(t *testing.T, p clientProgram) {
	const quota = 1024 * mib
	s := serveOn(t, c.host)
	env, end := s.open(t, "--mem", mem(quota))
	start := time.Now()
	got, err := c.run(t, env, p, "work")
	if err == nil {
		err = got.right(p.name, quota)
	}
	if err != nil {
		t.Error(err)
	}
	t.Logf("FIGURES | %s, elsewhere | %.1f s |", p.name, time.Since(start).Seconds())
	end()
	small, _ := s.open(t, "--mem", mem(smallQuota))
	if got, err := c.run(t, small, p, "ask", fmt.Sprint(p.ask)); err != nil || !strings.Contains(got.Refused, p.says) {
		t.Errorf("%s under %d MiB: %+v, %v, want %q", p.name, smallQuota/mib, got, err, p.says)
	}
}

// killed: its memory is accounted as the simulator has it, and is back when it is gone.
func (c *clients) killed(t *testing.T, p clientProgram) {
	share := c.share(t, "killed", 512*mib)
	command := c.command(t, c.Environ(share.Socket), p, "hold", fmt.Sprint(uint64(holdBytes)))
	input, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer input.Close()
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	command.Stderr = &said
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(output).ReadString('\n')
	if err == nil {
		c.accounted(t, share, command.Process.Pid, holdBytes)
	}
	_ = command.Process.Kill()
	_ = command.Wait()
	if err != nil {
		t.Errorf("%s holds nothing: %q, %v: %v: %s", p.name, line, err, command.ProcessState, tail(said.String(), 3000))
	}
	c.memoryBack(t, share)
}

// accounted waits until a process holds so much, and compares what its share is charged
// with what the simulator counts, to 1 %.
func (c *clients) accounted(t *testing.T, share api.Share, pid int, least uint64) {
	t.Helper()
	truth := c.truth(t)
	eventually(t, "the account agrees with the simulator", func() error {
		states, err := truth.Processes(t.Context())
		if err != nil {
			return err
		}
		var held uint64
		for _, s := range states {
			if s.PID == pid {
				held += s.Bytes
			}
		}
		used := c.look(t, share.Name).UsedBytes
		if held < least || max(used, held)-min(used, held) > held/100 {
			return fmt.Errorf("the share is charged %d bytes, the simulator counts %d, of at least %d", used, held, least)
		}
		return nil
	})
}

// memoryBack waits until nothing of a share is in use.
func (c *clients) memoryBack(t *testing.T, share api.Share) {
	t.Helper()
	truth := c.truth(t)
	eventually(t, "the memory is back", func() error {
		states, err := truth.Processes(t.Context())
		if err != nil {
			return err
		}
		if look := c.look(t, share.Name); look.UsedBytes != 0 || look.Clients != 0 || len(states) != 0 {
			return fmt.Errorf("%d bytes of %d processes are in use, the simulator has %d", look.UsedBytes, look.Clients, len(states))
		}
		return nil
	})
}
