// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/share"
	"github.com/divvy-gpu/divvy/internal/simgpu"
)

// fixedShares are two shares of a fixed part of the first GPU each, with a program that
// takes all it gets of it.
type fixedShares struct {
	*host
	truth   *simgpu.Truth
	parts   map[string]int
	burners map[string]*burner
}

func (h *host) fixed(t *testing.T) *fixedShares {
	t.Helper()
	f := &fixedShares{host: h, truth: h.truth(t), parts: map[string]int{"forty": 40, "thirty": 30}, burners: map[string]*burner{}}
	for name, percent := range f.parts {
		s, err := h.client.CreateShare(t.Context(), api.ShareSpec{Name: name, MemoryBytes: 1 << 30, CoresPercent: percent, Policy: share.Fixed})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = h.client.DeleteShare(context.Background(), name, true) })
		f.burners[name] = h.burnerIn(t, h.Environ(s.Socket), "--us", "1000")
		f.burners[name].start()
	}
	eventually(t, "both launch", func() error {
		times := h.cardTimes(t, f.truth)
		for name, b := range f.burners {
			if times[b.pid].BusyNS == 0 {
				return fmt.Errorf("share %s has had nothing", name)
			}
		}
		return nil
	}, h.agent)
	return f
}

// want checks that each has its part for a while, and never more. A busy host leaves the GPU
// idle: then it looks again.
func (f *fixedShares) want(t *testing.T, state string, span time.Duration) {
	t.Helper()
	var short error
	for range 10 {
		had := f.busyOver(t, f.truth, span)
		short = nil
		for name, percent := range f.parts {
			p := had[f.burners[name].pid]
			if p > float64(percent)+2 {
				t.Errorf("%s: share %s had %.1f %% of the GPU", state, name, p)
			}
			if p < float64(percent)-3 {
				short = fmt.Errorf("%s: share %s had %.1f %% of the GPU", state, name, p)
			}
		}
		if short == nil {
			return
		}
	}
	t.Error(short)
}

// What a call may take while the agent does not answer: the front notices after a second or two,
// an allocation waits three; a program that begins waits ten for its WELCOME. A busy host takes
// time of its own.
const (
	promptly    = 5 * time.Second
	beginsUntil = 15 * time.Second
)

// stopAgent stops the agent: its worker, which may end at once instead, and its supervisor. It
// returns what has them go on.
func (h *host) stopAgent(t *testing.T, killed bool) (goOn func()) {
	t.Helper()
	worker, err := h.client.Version(t.Context())
	if err != nil || worker.PID == h.agent.pid {
		t.Fatalf("the agent's worker is process %d, its supervisor %d: %v", worker.PID, h.agent.pid, err)
	}
	halt(t, h.agent.pid)
	if killed {
		if err := syscall.Kill(worker.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	} else {
		halt(t, worker.PID)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := h.client.Version(ctx); err == nil {
		t.Fatal("the agent answers")
	}
	return func() {
		t.Helper()
		pids := []int{h.agent.pid}
		if !killed {
			pids = append(pids, worker.PID)
		}
		for _, pid := range pids {
			if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// An agent that is stopped counts as one that is away, and so does one whose worker is killed
// while its supervisor, which holds its sockets, is stopped: after a second or two fixed shares
// go on at their rates, what is left of a promise can be allocated and no more, and no call takes
// long. When it goes on the ledger is what the driver says, and nobody has had more than his part.
// The control: programs without the front have more, of time and memory.
func TestStoppedAgent(t *testing.T) {
	for name, killed := range map[string]bool{"stopped": false, "killed, and its supervisor stopped": true} {
		t.Run(name, func(t *testing.T) { stoppedAgent(t, killed) })
	}
}

func stoppedAgent(t *testing.T, killed bool) {
	h := newHost(t, hostOptions{})
	f := h.fixed(t)
	const limit = 512 * mib
	share := h.share(t, "held", limit)
	held, late := h.holder(t, share), h.holder(t, share)
	do(t, held, "start")
	alloc(t, held, 64*mib)
	f.want(t, "before", 2*time.Second)

	h.resetPeak(t)
	goOn := h.stopAgent(t, killed)
	had := h.cardTimes(t, f.truth)
	stopped, begun := time.Now(), make(chan error, 1)
	go func() {
		_, err := late.Do("start")
		begun <- err
	}()
	eventually(t, "both go on", func() error {
		times := h.cardTimes(t, f.truth)
		for name, b := range f.burners {
			if n := times[b.pid].Kernels - had[b.pid].Kernels; n < 100 {
				return fmt.Errorf("share %s has had %d kernels", name, n)
			}
		}
		return nil
	})
	if took := time.Since(stopped); took > promptly {
		t.Errorf("the shares went on after %v", took)
	}
	f.want(t, "while it is away", 3*time.Second)
	timed := func(what string, call func()) {
		t.Helper()
		begun := time.Now()
		call()
		if took := time.Since(begun); took > promptly {
			t.Errorf("%s took %v", what, took)
		}
	}
	var within uint64
	timed("what is left of the promise", func() { within = alloc(t, held, 256*mib) })
	timed("more than that", func() { refused(t, held, outOfMemory, "alloc %d", limit) })
	timed("to free", func() { do(t, held, "free %d", within) })
	timed("again", func() { alloc(t, held, 320*mib) })
	timed("a little too much", func() { refused(t, held, outOfMemory, "alloc %d", limit-320*mib-64*mib-contextBytes+512) })
	timed("all of the rest", func() { alloc(t, held, limit-320*mib-64*mib-contextBytes) })
	select {
	case err := <-begun:
		if err == nil || !strings.Contains(err.Error(), fmt.Sprint(systemNotReady)) {
			t.Errorf("a program that begins while the agent is away: %v", err)
		}
	case <-time.After(beginsUntil - time.Since(stopped)):
		t.Errorf("a program that begins while the agent is away waits for more than %v", beginsUntil)
	}
	late.Kill()
	bare := h.holderIn(t, h.Unheld())
	do(t, bare, "start")
	alloc(t, bare, limit) // the control
	bare.Kill()

	goOn()
	eventually(t, "the ledger is what the driver says", func() error {
		s, err := h.client.Share(t.Context(), "held")
		if err == nil && (s.UsedBytes != limit || s.Clients != 1) {
			err = fmt.Errorf("%d bytes of %d clients, want %d", s.UsedBytes, s.Clients, limit)
		}
		return err
	})
	refused(t, held, outOfMemory, "alloc 512")
	eventually(t, "both are attached", func() error {
		for name := range f.parts {
			if s, err := h.client.Share(t.Context(), name); err != nil || s.Clients != 1 {
				return fmt.Errorf("%d clients of share %s: %v", s.Clients, name, err)
			}
		}
		return nil
	})
	f.want(t, "when it is back", 3*time.Second)
	for name, b := range f.burners {
		b.kill()
		delete(f.burners, name)
	}
	free := h.burner(t, "--us", "1000")
	free.start()
	eventually(t, "it launches", func() error {
		if h.cardTimes(t, f.truth)[free.pid].BusyNS == 0 {
			return errors.New("it has had nothing")
		}
		return nil
	})
	if p := h.busyOver(t, f.truth, time.Second)[free.pid]; p < 50 {
		t.Errorf("control: a program without the front had %.1f %% of the GPU", p)
	}
}
