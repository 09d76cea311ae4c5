// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/simgpu"
)

// cardTimes is what each process had of the first card, by process id.
func (h *host) cardTimes(t testing.TB, truth *simgpu.Truth) map[int]simgpu.TimeState {
	t.Helper()
	return h.cardTimesOf(t, truth, 0)
}

// dumpSimulator ends a simulator that does not answer, and logs what it was at.
func (h *host) dumpSimulator(t testing.TB) {
	t.Helper()
	_ = syscall.Kill(h.simulator.pid, syscall.SIGQUIT) // Go's programs say where they are
	select {
	case <-h.simulator.ended:
	case <-time.After(waitAtMost):
	}
	text, _ := os.ReadFile(filepath.Join(h.directory, "simulator.log"))
	for _, routine := range strings.Split(string(text), "\n\n") {
		if strings.Contains(routine, "simgpu.(*kernel)") {
			t.Log(routine)
		}
	}
}

func (h *host) cardTimesOf(t testing.TB, truth *simgpu.Truth, card int) map[int]simgpu.TimeState {
	t.Helper()
	states, err := truth.CardTime(t.Context())
	if err != nil {
		h.dumpSimulator(t)
		t.Fatal(err)
	}
	found := map[int]simgpu.TimeState{}
	for _, s := range states {
		if int(s.Card) == card {
			found[s.PID] = s
		}
	}
	return found
}

// Streams, events, host functions, graphs and synchronisation keep modelled
// time, under the front and without it, and the simulator's account agrees with
// what was launched to the nanosecond.
func TestModelledTime(t *testing.T) {
	for _, g := range generations {
		t.Run(g.name, func(t *testing.T) {
			if testing.Short() && g != generations[1] {
				t.Skip("the generations differ in their symbols, not in how they keep time")
			}
			h := newHost(t, hostOptions{generation: g})
			share := h.share(t, "timing", 2<<30)
			for name, env := range map[string][]string{"bare": h.Unheld(), "front": h.Environ(share.Socket)} {
				t.Run(name, func(t *testing.T) {
					h.resetPeak(t)
					ended := run(t, env, built(t, "build", "test", "timing"))
					if ended.code != 0 {
						t.Fatalf("exit code %d\n%s%s", ended.code, ended.stdout, tail(ended.stderr, 2000))
					}
					var kernels uint64
					var busy int64
					lines := strings.Split(strings.TrimSpace(ended.stdout), "\n")
					if _, err := fmt.Sscanf(lines[len(lines)-1], "kernels %d busy %d", &kernels, &busy); err != nil {
						t.Fatalf("%q: %v", lines[len(lines)-1], err)
					}
					truth := h.truth(t)
					eventually(t, "the simulator knows the end", func() error {
						for _, s := range h.cardTimes(t, truth) {
							if !s.Dead || s.Kernels != kernels || s.BusyNS != busy {
								return fmt.Errorf("%+v, launched were %d kernels of %d ns", s, kernels, busy)
							}
							return nil
						}
						return fmt.Errorf("no process has had any time")
					}, h.simulator)
				})
			}
		})
	}
}

// burner is a program that keeps a card busy.
type burner struct {
	command *exec.Cmd
	pid     int
	start   func()
}

// burner starts one that no share holds.
func (h *host) burner(t testing.TB, arguments ...string) *burner {
	t.Helper()
	return h.burnerIn(t, h.Unheld(), arguments...)
}

func (h *host) burnerIn(t testing.TB, env []string, arguments ...string) *burner {
	t.Helper()
	command := exec.CommandContext(context.Background(), filepath.Join(h.ToolsDirectory, "burn"), arguments...)
	command.Env = env
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
	b := &burner{command: command, pid: command.Process.Pid, start: func() { fmt.Fprintln(in) }}
	t.Cleanup(b.kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "ready ") {
		t.Fatalf("burn says %q (%v)", line, err)
	}
	return b
}

func (b *burner) kill() {
	_ = b.command.Process.Kill()
	_ = b.command.Wait()
}

// busyOver waits until the first card is so much older, and says how much of
// that each process had.
func (h *host) busyOver(t testing.TB, truth *simgpu.Truth, span time.Duration) (percent map[int]float64) {
	t.Helper()
	before := h.cardTimes(t, truth)
	select {
	case <-time.After(span):
	case <-t.Context().Done():
		t.Fatal("the test was ended")
	}
	percent = map[int]float64{}
	for pid, s := range h.cardTimes(t, truth) {
		if b, ok := before[pid]; ok {
			percent[pid] = 100 * float64(s.BusyNS-b.BusyNS) / float64(s.AtNS-b.AtNS)
		}
	}
	return percent
}

// watch looks at what a process has of the first card for a span of more than a second.
func (h *host) watch(t testing.TB, truth *simgpu.Truth, pid int, span time.Duration) (seen []simgpu.TimeState) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for len(seen) == 0 || seen[len(seen)-1].AtNS-seen[0].AtNS < span.Nanoseconds() {
		s, ok := h.cardTimes(t, truth)[pid]
		if !ok {
			t.Fatalf("process %d has had nothing of the card", pid)
		}
		seen = append(seen, s)
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatal("the test was ended")
		}
	}
	return seen
}

// parts is what a process had of the card, in percent: of the whole time that it was
// watched, and the most of a second. It is over a second that a share of time is
// promised: who was held up at a second's beginning may have more at its end.
func parts(seen []simgpu.TimeState) (whole, most float64) {
	first := 0
	for _, s := range seen {
		for s.AtNS-seen[first].AtNS > time.Second.Nanoseconds() {
			first++
		}
		most = max(most, 100*float64(s.BusyNS-seen[first].BusyNS)/float64(time.Second))
	}
	last := seen[len(seen)-1]
	return 100 * float64(last.BusyNS-seen[0].BusyNS) / float64(last.AtNS-seen[0].AtNS), most
}

// lookAgain looks until a program has had so much, so many times at most: a busy host may starve
// it, but never feeds it.
func lookAgain(tries int, least float64, look func() (had float64)) (had float64) {
	for range tries {
		if had = look(); had >= least {
			break
		}
	}
	return had
}

// Two that want the whole card have half of it each; the death of one gives the
// other all of it at once. They launch half a second ahead, so that a busy host
// does not starve the card.
func TestBurnersShareACard(t *testing.T) {
	h := newHost(t, hostOptions{})
	truth := h.truth(t)
	one := h.burner(t, "--us", "1000", "--ahead-ms", "500")
	two := h.burner(t, "--us", "3000", "--ahead-ms", "500")
	one.start()
	two.start()
	eventually(t, "both have begun", func() error {
		times := h.cardTimes(t, truth)
		for _, b := range []*burner{one, two} {
			if times[b.pid].BusyNS == 0 {
				return fmt.Errorf("process %d has had nothing", b.pid)
			}
		}
		return nil
	}, h.simulator)
	both := h.busyOver(t, truth, 1500*time.Millisecond)
	for _, b := range []*burner{one, two} {
		if p := both[b.pid]; p < 49 || p > 51 {
			t.Errorf("one of two burners had %.2f %% of the card", p)
		}
	}
	cards, err := truth.Cards(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if cards[0].Percent < 98 {
		t.Errorf("with two burners the card was in use for %d %%", cards[0].Percent)
	}
	one.kill()
	alone := h.busyOver(t, truth, time.Second)
	if p := alone[two.pid]; p < 97 {
		t.Errorf("after the death of the other a burner had %.2f %% of the card", p)
	}
	dead := h.cardTimes(t, truth)[one.pid]
	if !dead.Dead || dead.Queued != 0 || alone[one.pid] > 1 {
		t.Errorf("the dead one: %+v, %.2f %% of the card since", dead, alone[one.pid])
	}
}
