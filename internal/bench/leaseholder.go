// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
)

// leaseQuantum is the agent's default.
const leaseQuantum = 10 * time.Millisecond

// Delays are how long the others waited, in milliseconds.
type Delays struct {
	Quantiles
	Most float64 `json:"most"`
}

// LeaseHolders says how long a share waits for the card when the process that
// has it is killed or stopped, by the simulator's own account.
type LeaseHolders struct {
	Rounds    int     `json:"rounds"`
	QuantumMs float64 `json:"quantumMs"`
	KilledMs  Delays  `json:"killedMs"`
	StoppedMs Delays  `json:"stoppedMs"`
	// Delays of more than two quanta: there should be none.
	Late int `json:"late"`
}

func delays(all []time.Duration) Delays {
	if len(all) == 0 {
		return Delays{}
	}
	return Delays{Quantiles: quantiles(all), Most: milliseconds(slices.Max(all))}
}

// leaseHolders kills, or stops, one process after the other of a share while it
// has the card, beside a share that wants it, too. They are equal shares: a fixed
// one would also wait for its own rate.
func leaseHolders(ctx context.Context, o RecoveryOptions) (LeaseHolders, error) {
	report := LeaseHolders{Rounds: o.Rounds, QuantumMs: milliseconds(leaseQuantum)}
	account, err := openAccount(ctx, o.SimulatorSocket)
	if err != nil {
		return report, err
	}
	defer account.close()
	shares, remove, err := o.pair(ctx, 0)
	defer remove()
	if err != nil {
		return report, err
	}
	other, err := o.burnerIn(ctx, o.Environ(shares[1].Socket), time.Millisecond)
	if err != nil {
		return report, err
	}
	defer other.Kill()
	for _, kind := range []struct {
		signal syscall.Signal
		to     *Delays
	}{{syscall.SIGKILL, &report.KilledMs}, {syscall.SIGSTOP, &report.StoppedMs}} {
		var all []time.Duration
		for range o.Rounds {
			delay, err := o.takeHolder(ctx, account, shares[0], other.PID, kind.signal)
			if err != nil {
				return report, fmt.Errorf("signal %v to a process that has the GPU: %w", kind.signal, err)
			}
			all = append(all, delay)
			if delay > 2*leaseQuantum {
				report.Late++
			}
		}
		*kind.to = delays(all)
	}
	return report, nil
}

// takeHolder sends a signal to a program of the share while it has the card, and
// says how long it took until the other had it.
func (t Target) takeHolder(ctx context.Context, account *account, share api.Share, other int, signal syscall.Signal) (time.Duration, error) {
	if err := account.reset(ctx); err != nil {
		return 0, err
	}
	victim, err := t.burnerIn(ctx, t.Environ(share.Socket), time.Millisecond)
	if err != nil {
		return 0, err
	}
	defer victim.Kill()
	// It has the card when only its time grows.
	var before [2]time.Duration
	for held := 0; held < 3; {
		after, err := account.busy(ctx, victim.PID, other)
		if err != nil {
			return 0, err
		}
		switch {
		case after[1] > before[1]:
			held = 0
		case after[0] > before[0]:
			held++
		}
		before = after
	}
	sent, err := now()
	if err != nil {
		return 0, err
	}
	if err := victim.Signal(signal); err != nil {
		return 0, err
	}
	for {
		after, err := account.busy(ctx, victim.PID, other)
		if err != nil {
			return 0, err
		}
		at, err := now()
		if err != nil {
			return 0, err
		}
		if after[1] > before[1] {
			return at - sent, nil
		}
		if at-sent > 10*time.Second {
			return 0, errors.New("the other share never got the GPU")
		}
	}
}

// busy is how long two processes have had the card so far.
func (a *account) busy(ctx context.Context, one, other int) ([2]time.Duration, error) {
	var sum [2]time.Duration
	states, err := a.truth.CardTime(ctx)
	for _, s := range states {
		switch s.PID {
		case one:
			sum[0] += time.Duration(s.BusyNS)
		case other:
			sum[1] += time.Duration(s.BusyNS)
		}
	}
	return sum, err
}
