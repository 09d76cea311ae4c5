// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"
)

// SchemaCalls names the version of CallsReport.
const SchemaCalls = "divvy.bench.calls/v1"

// minCallRounds is the least number of rounds that medians are taken of.
const minCallRounds = 200

// CallsOptions says how to measure what single calls cost. The programs run
// over the null driver, whose calls return at once: what is left is the cost of
// the call itself and of what stands before it.
type CallsOptions struct {
	Program string   // lib/divvy/tools/calls
	Bare    []string // environment in which libcuda.so.1 is the null driver
	Front   []string // environment in which the front stands before it
	Rounds  int      // interleaved; at least 200
	Pauses  int      // rounds after a pause of a second each; 0: none
}

// CallCosts are nanoseconds per call.
type CallCosts struct {
	LaunchNs      float64 `json:"launchNs"`
	AllocFreeNs   float64 `json:"allocFreeNs"`
	PassThroughNs float64 `json:"passThroughNs"`
	MemInfoNs     float64 `json:"memInfoNs"`
}

// CallsReport says what calls cost, medians over all rounds. Gated is nil
// where it was not measured.
type CallsReport struct {
	Schema string     `json:"schema"`
	Rounds int        `json:"rounds"`
	Bare   CallCosts  `json:"bare"`
	Front  CallCosts  `json:"front"`
	Added  CallCosts  `json:"added"` // medians of the differences within a round
	Gated  *GatedCost `json:"gated,omitempty"`
	// The same after pauses of a second: with caches that are cold.
	AfterPause *PauseCosts `json:"afterPause,omitempty"`
}

// PauseCosts are what calls cost after a program has done nothing for a second.
type PauseCosts struct {
	Rounds int       `json:"rounds"`
	Bare   CallCosts `json:"bare"`
	Front  CallCosts `json:"front"`
	Added  CallCosts `json:"added"`
}

// GatedCost is what a launch costs where launches need a lease and there always
// is one, the driver's part included; AddedNs is without it.
type GatedCost struct {
	LaunchNs float64 `json:"launchNs"`
	AddedNs  float64 `json:"addedNs"`
}

// Calls measures.
func Calls(ctx context.Context, o CallsOptions) (CallsReport, error) {
	report := CallsReport{Schema: SchemaCalls, Rounds: o.Rounds}
	if o.Rounds < minCallRounds {
		return report, fmt.Errorf("%d rounds are too few: at least %d", o.Rounds, minCallRounds)
	}
	bare, err := startMeter(ctx, o.Program, o.Bare)
	if err != nil {
		return report, fmt.Errorf("without the front: %w", err)
	}
	defer bare.stop()
	front, err := startMeter(ctx, o.Program, o.Front)
	if err != nil {
		return report, fmt.Errorf("with the front: %w", err)
	}
	defer front.stop()
	if report.Bare, report.Front, report.Added, err = interleaved(ctx, o.Rounds, 0, bare, front); err != nil || o.Pauses == 0 {
		return report, err
	}
	cold := PauseCosts{Rounds: o.Pauses}
	cold.Bare, cold.Front, cold.Added, err = interleaved(ctx, o.Pauses, time.Second, bare, front)
	report.AfterPause = &cold
	return report, err
}

// CallsGated measures launches with the front in a share whose launches need a
// lease.
func CallsGated(ctx context.Context, o CallsOptions) (GatedCost, error) {
	bare, err := startMeter(ctx, o.Program, o.Bare)
	if err != nil {
		return GatedCost{}, fmt.Errorf("without the front: %w", err)
	}
	defer bare.stop()
	front, err := startMeter(ctx, o.Program, o.Front)
	if err != nil {
		return GatedCost{}, fmt.Errorf("in a share with a quota: %w", err)
	}
	defer front.stop()
	_, with, added, err := interleaved(ctx, o.Rounds, 0, bare, front)
	return GatedCost{LaunchNs: with.LaunchNs, AddedNs: added.LaunchNs}, err
}

// interleaved gives medians: of each meter, and of the differences within a round.
// Both rest before each round.
func interleaved(ctx context.Context, rounds int, rest time.Duration, bare, front *meter) (without, with, added CallCosts, err error) {
	var series [3][]CallCosts
	for round := range rounds {
		// Who goes first changes, so that neither always finds warm caches.
		first, second := bare, front
		if round%2 == 1 {
			first, second = front, bare
		}
		if rest > 0 {
			if err := pause(ctx, rest); err != nil {
				return without, with, added, err
			}
		}
		if err := errors.Join(first.round(), second.round()); err != nil {
			return without, with, added, err
		}
		series[0] = append(series[0], bare.last)
		series[1] = append(series[1], front.last)
		series[2] = append(series[2], front.last.minus(bare.last))
	}
	return medians(series[0]), medians(series[1]), medians(series[2]), nil
}

func (c CallCosts) minus(other CallCosts) CallCosts {
	return CallCosts{
		LaunchNs: c.LaunchNs - other.LaunchNs, AllocFreeNs: c.AllocFreeNs - other.AllocFreeNs,
		PassThroughNs: c.PassThroughNs - other.PassThroughNs, MemInfoNs: c.MemInfoNs - other.MemInfoNs,
	}
}

func medians(all []CallCosts) CallCosts {
	median := func(of func(CallCosts) float64) float64 {
		values := make([]float64, len(all))
		for i, costs := range all {
			values[i] = of(costs)
		}
		slices.Sort(values)
		middle := (values[(len(values)-1)/2] + values[len(values)/2]) / 2
		return math.Round(middle*100) / 100
	}
	return CallCosts{
		LaunchNs:      median(func(c CallCosts) float64 { return c.LaunchNs }),
		AllocFreeNs:   median(func(c CallCosts) float64 { return c.AllocFreeNs }),
		PassThroughNs: median(func(c CallCosts) float64 { return c.PassThroughNs }),
		MemInfoNs:     median(func(c CallCosts) float64 { return c.MemInfoNs }),
	}
}

// meter is a running calls program (clib/tools).
type meter struct {
	*caller
	last CallCosts
}

func startMeter(ctx context.Context, program string, env []string) (*meter, error) {
	c, err := startCaller(ctx, program, env)
	return &meter{caller: c}, err
}

// round measures once more.
func (m *meter) round() error {
	if _, err := io.WriteString(m.input, "round\n"); err != nil {
		return fmt.Errorf("ask for a round: %w", err)
	}
	line, err := m.answers.ReadString('\n')
	if err != nil {
		return fmt.Errorf("read a round: %w", err)
	}
	c := &m.last
	if _, err := fmt.Sscan(line, &c.LaunchNs, &c.AllocFreeNs, &c.PassThroughNs, &c.MemInfoNs); err != nil {
		return fmt.Errorf("read a round %q: %w", line, err)
	}
	return nil
}
