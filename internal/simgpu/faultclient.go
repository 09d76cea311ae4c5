// SPDX-License-Identifier: Apache-2.0

package simgpu

import (
	"context"
	"errors"
	"fmt"

	"github.com/divvy-gpu/divvy/internal/simgpu/condition"
	"github.com/divvy-gpu/divvy/internal/simgpu/simwire"
)

// ErrDenied says that the simulator belongs to another user.
var ErrDenied = errors.New("the simulator belongs to another user")

// refusal is why a fault cannot be, in the simulator's words. It is one of
// condition's errors.
type refusal struct {
	status simwire.Status
	text   string
}

func (r *refusal) Error() string { return r.text }

func (r *refusal) Is(target error) bool {
	switch r.status {
	case simwire.Invalid:
		return target == condition.ErrInvalid
	case simwire.NotFound:
		return target == condition.ErrNotFound
	case simwire.Denied:
		return target == ErrDenied
	}
	return false
}

// Injection is what Inject asks for.
type Injection struct {
	condition.Fault
	PID int // of the victim, for faults that hit one process; 0: the only one
}

// Inject makes a fault happen. It returns its number and how many processes it
// hit.
func (t *Truth) Inject(ctx context.Context, what Injection) (number uint64, hit int, err error) {
	if what.Count > 1<<31 {
		return 0, 0, fmt.Errorf("%d errors at once: %w", what.Count, condition.ErrInvalid)
	}
	h, _, err := t.ask(ctx, simwire.Header{Type: simwire.FaultInject, Card: uint32(what.Card), Kind: uint32(what.Kind),
		Bytes: uint64(what.XID), Count: uint32(what.Count), Process: uint64(what.PID)})
	return h.Object, int(h.Count), err
}

// ClearFaults resets a card, or all with -1. It returns how many faults were in
// force.
func (t *Truth) ClearFaults(ctx context.Context, card int) (int, error) {
	index := uint32(simwire.AllCards)
	if card >= 0 {
		index = uint32(card)
	}
	h, _, err := t.ask(ctx, simwire.Header{Type: simwire.FaultClear, Card: index})
	return int(h.Count), err
}

// Faults lists what was injected, oldest first.
func (t *Truth) Faults(ctx context.Context) ([]condition.Record, error) {
	return pages(ctx, t, simwire.FaultList, 0, func(f simwire.FaultInfo) condition.Record {
		return condition.Record{Number: f.Number, TimeNS: int64(f.TimeNS), Card: int(f.Card), Kind: condition.Kind(f.Kind), XID: f.XID,
			Party: condition.Party{Process: f.Process, PID: int(f.PID)}, Hit: int(f.Hit), Error: f.Error, Active: f.Flags&simwire.FaultActive != 0,
			Reported: f.Flags&simwire.FaultReported != 0}
	})
}

// Now is the simulator's time, to compare others with.
func (t *Truth) Now(ctx context.Context) (int64, error) {
	h, _, err := t.ask(ctx, simwire.Header{Type: simwire.Times, Card: 0})
	return int64(h.Offset), err
}

// Condition is how a card is, as of now.
func (t *Truth) Condition(ctx context.Context, card int) (condition.Reading, error) {
	_, payload, err := t.ask(ctx, simwire.Header{Type: simwire.Health, Card: uint32(card)})
	if err != nil {
		return condition.Reading{}, err
	}
	list, err := simwire.DecodeEntries[simwire.HealthInfo](payload, 1)
	if err != nil {
		return condition.Reading{}, fmt.Errorf("ask the simulator: condition of GPU %d: %w", card, err)
	}
	i := list[0]
	return condition.Reading{
		Counters: condition.Counters{
			CorrectedVolatile: i.ECC[0], CorrectedAggregate: i.ECC[1], UncorrectedVolatile: i.ECC[2], UncorrectedAggregate: i.ECC[3],
			RetiredSingle: i.RetiredSingle, RetiredDouble: i.RetiredDouble, RetiredPending: i.RetiredPending != 0,
			RemappedCorrectable: i.RemappedCorrectable, RemappedUncorrected: i.RemappedUncorrectable,
			RemapPending: i.RemapPending != 0, RemapFailed: i.RemapFailed != 0, PCIeReplays: i.PCIeReplays,
		},
		Lost: i.Flags&simwire.HealthLost != 0, NeedsReset: i.Flags&simwire.HealthReset != 0, Percent: int(i.GPUPercent), MemoryPercent: int(i.MemoryPercent),
		Celsius: int(i.Temperature), MemoryCelsius: int(i.MemoryTemperature), PowerMW: i.PowerMW, EnergyMJ: i.EnergyMJ, SMClockMHz: i.SMClockMHz,
		MemoryClockMHz: i.MemoryClockMHz, Performance: int(i.Performance), FanPercent: int(i.FanPercent), Reasons: i.Reasons,
		SlowPercent: int(i.SlowPercent), LastIncident: i.LastIncident,
	}, nil
}
