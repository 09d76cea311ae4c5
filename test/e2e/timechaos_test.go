// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/arbiter"
	"github.com/divvy-gpu/divvy/internal/bench"
	terms "github.com/divvy-gpu/divvy/internal/share"
)

// startGrace is for how long after the death of an agent a program may find none.
const startGrace = 10 * time.Second

// timeMonkey does random things with programs that want a card's time, and with
// the shares that they run under.
type timeMonkey struct {
	t       *testing.T
	host    *host
	random  *rand.Rand
	shares  []api.Share
	burners []*bench.Burner
	agentAt time.Time // when the agent was killed last
	done    map[string]int
}

func (m *timeMonkey) begin() {
	share := m.shares[m.random.IntN(len(m.shares))]
	kernel := []time.Duration{20 * time.Microsecond, 300 * time.Microsecond, 2 * time.Millisecond, 15 * time.Millisecond}[m.random.IntN(4)]
	pattern := []string{bench.PatternAsync, bench.PatternSync, bench.PatternGraph, bench.PatternStreams}[m.random.IntN(4)]
	b, err := bench.StartBurner(m.t.Context(), filepath.Join(m.host.ToolsDirectory, "burn"), m.host.Environ(share.Socket), pattern, kernel)
	if err == nil {
		err = b.Begin()
	}
	switch {
	case err == nil:
		m.burners = append(m.burners, b)
	case time.Since(m.agentAt) < startGrace:
		m.done["refused without an agent"]++ // cuInit says so
	default:
		m.t.Errorf("start: %v", err)
	}
}

// end kills one, which must not have ended by itself.
func (m *timeMonkey) end(i int) {
	b := m.burners[i]
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(b.PID) + "/stat")
	if err != nil || bytes.Contains(stat, []byte(") Z ")) {
		m.t.Errorf("a program has ended by itself (%v)", err)
	}
	b.Kill()
	m.burners[i] = m.burners[len(m.burners)-1]
	m.burners = m.burners[:len(m.burners)-1]
}

func (m *timeMonkey) change() {
	var c api.ShareChange
	number := func(n int) *int { return &n }
	switch m.random.IntN(4) {
	case 0:
		policy := terms.Policy([]string{"best-effort", "equal", "weighted"}[m.random.IntN(3)])
		c.Policy, c.Weight = &policy, number(1+m.random.IntN(5))
	case 1:
		policy := terms.Fixed
		c.Policy, c.CoresPercent = &policy, number(1+m.random.IntN(33))
	case 2:
		c.Priority = number(m.random.IntN(3))
	default:
		pause := m.random.IntN(2) == 0
		c.Paused = &pause
	}
	// An agent that has just been killed answers nobody.
	_, _ = m.host.client.ChangeShare(m.t.Context(), m.shares[m.random.IntN(len(m.shares))].Name, c)
}

func (m *timeMonkey) step() {
	dice := m.random.IntN(100)
	switch {
	case len(m.burners) == 0, dice < 20 && len(m.burners) < 8:
		m.done["start"]++
		m.begin()
	case dice < 35:
		m.done["kill"]++
		m.end(m.random.IntN(len(m.burners)))
	case dice < 50:
		m.done["stop or continue"]++
		signal := syscall.SIGSTOP
		if m.random.IntN(2) == 0 {
			signal = syscall.SIGCONT
		}
		_ = m.burners[m.random.IntN(len(m.burners))].Signal(signal)
	case dice < 95:
		m.done["change"]++
		m.change()
	default:
		m.done["kill the agent"]++
		if v, err := m.host.client.Version(m.t.Context()); err == nil {
			_ = syscall.Kill(v.PID, syscall.SIGKILL)
			m.agentAt = time.Now()
		}
	}
}

// Programs that want the card's time start, stop and are killed, their shares
// change under them, and the agent is killed: no program fails, and afterwards
// nothing is stuck: each share has its part again.
func TestTimeChaos(t *testing.T) {
	seconds := fromEnvironment(t, "DIVVY_CHAOS_SECONDS", 3)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d, %d seconds", seed, seconds)
	trace := filepath.Join(t.TempDir(), "leases")
	h := newHost(t, hostOptions{agentFlags: []string{"--lease-trace", trace}})
	defer replayLeases(t, trace)
	m := &timeMonkey{t: t, host: h, random: rand.New(rand.NewPCG(seed, 7)), done: map[string]int{}}
	for i := range 3 {
		share, err := h.client.CreateShare(t.Context(), api.ShareSpec{Name: fmt.Sprintf("chaos-%d", i), MemoryBytes: 2 << 30, Policy: terms.Equal})
		if err != nil {
			t.Fatal(err)
		}
		m.shares = append(m.shares, share)
	}
	for end := time.Now().Add(time.Duration(seconds) * time.Second); time.Now().Before(end) && !t.Failed(); {
		m.step()
	}
	for len(m.burners) > 0 {
		m.end(0)
	}
	eventually(t, "an agent answers", func() error {
		_, err := h.client.Version(t.Context())
		return err
	}, h.agent)
	t.Logf("%v", m.done)

	parts := []int{20, 30, 50}
	pids := make([]int, len(parts))
	for i, share := range m.shares {
		eventually(t, "the share changes", func() error {
			fixed, no, priority, cores := terms.Fixed, false, 0, 1
			// All small first: they may not promise more than the card.
			_, err := h.client.ChangeShare(t.Context(), share.Name, api.ShareChange{Policy: &fixed, CoresPercent: &cores, Paused: &no, Priority: &priority})
			return err
		}, h.agent)
		b := h.burnerIn(t, h.Environ(share.Socket), "--us", "1000")
		b.start()
		pids[i] = b.pid
	}
	for i, share := range m.shares {
		if _, err := h.client.ChangeShare(t.Context(), share.Name, api.ShareChange{CoresPercent: &parts[i]}); err != nil {
			t.Fatal(err)
		}
	}
	truth := h.truth(t)
	eventually(t, "each share has its part", func() error {
		had := h.busyOver(t, truth, 500*time.Millisecond)
		sum := had[pids[0]] + had[pids[1]] + had[pids[2]]
		for i, part := range parts {
			if of := 100 * had[pids[i]] / max(sum, 1); of < 0.75*float64(part) || of > 1.25*float64(part) {
				return fmt.Errorf("share %d had %.1f %% of what all had (%.1f %% of the card), promised %d %%", i, of, sum, part)
			}
		}
		return nil
	}, h.simulator, h.agent)
}

// replayLeases leads the pure arbiter through what the agents decided: it decides the
// same, so that a failure here can be looked at without a card, a clock or a process.
func replayLeases(t *testing.T, trace string) {
	t.Helper()
	file, err := os.Open(trace)
	if err != nil {
		t.Error(err)
		return
	}
	defer file.Close()
	calls, err := arbiter.Replay(file, nil)
	if err != nil || calls == 0 {
		t.Errorf("%d calls of the arbiters were replayed: %v", calls, err)
	}
	t.Logf("replayed %d calls of the arbiters", calls)
	if keep := os.Getenv("DIVVY_KEEP_TRACES"); t.Failed() && keep != "" {
		kept := filepath.Join(keep, fmt.Sprintf("leases-%d", time.Now().UnixNano()))
		if err := exec.Command("cp", trace, kept).Run(); err != nil {
			t.Error(err)
		}
		t.Logf("the trace is kept: %s", kept)
	}
}
