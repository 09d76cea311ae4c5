// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/share"
)

// Schemas of the reports on latency.
const (
	SchemaPriority  = "divvy.bench.priority/v1"
	SchemaIsolation = "divvy.bench.isolation/v1"
)

const (
	probeKernel     = 200 * time.Microsecond
	probeEvery      = 10 * time.Millisecond
	neighbourKernel = time.Millisecond
	probeSettle     = 20 // first launches that are not counted: nobody knew of them
)

// LatencyOptions says how often to look.
type LatencyOptions struct {
	Target
	Count int // launches; 0: 1000
}

func (o *LatencyOptions) check() error {
	if o.Count == 0 {
		o.Count = 1000
	}
	if o.Count < 1 {
		return fmt.Errorf("%d launches are none", o.Count)
	}
	return o.Validate()
}

// MicroQuantiles are two points of a distribution, in microseconds.
type MicroQuantiles struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

func microQuantiles(all []time.Duration) MicroQuantiles {
	q := quantiles(all)
	return MicroQuantiles{q.P50 * 1e3, q.P99 * 1e3}
}

// PriorityReport says how long launches of a share of high priority wait beside
// a busy one of low priority.
type PriorityReport struct {
	Schema    string         `json:"schema"`
	Simulated bool           `json:"simulated"`
	WaitUs    MicroQuantiles `json:"waitUs"`   // beyond the kernel's own time
	KernelUs  float64        `json:"kernelUs"` // of the low one
	// FutexP99Us is what waking a thread took on this host meanwhile.
	FutexP99Us float64 `json:"futexP99Us"`
	// Without Divvy, and under it without a priority.
	UnheldWaitUs MicroQuantiles `json:"unheldWaitUs"`
	EqualWaitUs  MicroQuantiles `json:"equalWaitUs"`
	// What the low one had of the card meanwhile.
	LowPercent float64 `json:"lowPercent"`
}

// Priority measures it.
func Priority(ctx context.Context, o LatencyOptions) (PriorityReport, error) {
	report := PriorityReport{Schema: SchemaPriority, Simulated: true, KernelUs: float64(neighbourKernel.Microseconds())}
	if err := o.check(); err != nil {
		return report, err
	}
	// Without Divvy comes last: an agent that nobody needs for that long leaves.
	for _, c := range []struct {
		priority int
		held     bool
		to       *MicroQuantiles
	}{{10, true, &report.WaitUs}, {0, true, &report.EqualWaitUs}, {0, false, &report.UnheldWaitUs}} {
		waits, low, futex, err := o.beside(ctx, c.held, c.priority)
		if err != nil {
			return report, err
		}
		*c.to = microQuantiles(waits)
		if c.priority > 0 {
			report.FutexP99Us, report.LowPercent = microQuantiles(futex).P99, low
		}
	}
	return report, nil
}

// beside measures the launches of one share beside a busy one, and what the busy
// one had of the card, and wake-ups of the host.
func (o *LatencyOptions) beside(ctx context.Context, held bool, priority int) (waits []time.Duration, low float64, futex []time.Duration, err error) {
	quick, busy := o.Unheld(), o.Unheld()
	if held {
		shares, remove, err := o.pair(ctx, priority)
		defer remove()
		if err != nil {
			return nil, 0, nil, err
		}
		quick, busy = o.Environ(shares[0].Socket), o.Environ(shares[1].Socket)
	}
	account, err := openAccount(ctx, o.SimulatorSocket)
	if err != nil {
		return nil, 0, nil, err
	}
	defer account.close()
	neighbour, err := o.burnerIn(ctx, busy, neighbourKernel)
	if err != nil {
		return nil, 0, nil, err
	}
	defer neighbour.Kill()
	before, err := account.busy(ctx, neighbour.PID, 0)
	if err != nil {
		return nil, 0, nil, err
	}
	waits, took, futex, err := o.measure(ctx, quick)
	if err != nil {
		return nil, 0, nil, err
	}
	after, err := account.busy(ctx, neighbour.PID, 0)
	if err != nil {
		return nil, 0, nil, err
	}
	return waits, 100 * float64(after[0]-before[0]) / float64(took), futex, nil
}

// measure takes the launches of one program, and wake-ups of the host beside it.
func (o *LatencyOptions) measure(ctx context.Context, env []string) (waits []time.Duration, took time.Duration, futex []time.Duration, err error) {
	count := o.Count + probeSettle
	host, err := o.probe(ctx, o.Bare(), 0, probeEvery, count)
	if err != nil {
		return nil, 0, nil, err
	}
	program, err := o.probe(ctx, env, probeKernel, probeEvery, count)
	if err != nil {
		host.kill()
		return nil, 0, nil, err
	}
	wakes := make(chan error, 1)
	go func() { // ends with the program it reads from
		var err error
		futex, _, err = host.latencies()
		wakes <- err
	}()
	waits, took, err = program.latencies()
	if err != nil {
		host.kill()
		<-wakes
		return nil, 0, nil, err
	}
	if err := <-wakes; err != nil {
		return nil, 0, nil, err
	}
	return waits[probeSettle:], took, futex, nil
}

// pair makes a share for the program that is looked at, and one for its
// neighbour.
func (t Target) pair(ctx context.Context, priority int) (shares [2]api.Share, remove func(), err error) {
	var names []string
	remove = func() {
		for _, name := range names {
			_ = t.client().DeleteShare(context.WithoutCancel(ctx), name, true)
		}
	}
	moment, err := now()
	if err != nil {
		return shares, remove, err
	}
	for i, priority := range [2]int{priority, 0} {
		name := fmt.Sprintf("bench-pair-%d-%d", i, moment)
		shares[i], err = t.client().CreateShare(ctx, api.ShareSpec{Name: name, MemoryBytes: 1 << 30, Policy: share.Equal, Priority: priority})
		if err != nil {
			return shares, remove, fmt.Errorf("create share %s: %w", name, err)
		}
		names = append(names, name)
	}
	return shares, remove, nil
}

// burnerIn starts a program that wants all the time of the card.
func (t Target) burnerIn(ctx context.Context, env []string, kernel time.Duration) (*Burner, error) {
	b, err := StartBurner(ctx, t.burn(), env, PatternAsync, kernel)
	if err != nil {
		return nil, err
	}
	if err := b.Begin(); err != nil {
		b.Kill()
		return nil, err
	}
	return b, nil
}

// IsolationReport says what a share with a high priority, that launches now and
// then, notices of a neighbour that takes all it can get.
type IsolationReport struct {
	Schema                  string  `json:"schema"`
	Simulated               bool    `json:"simulated"`
	ThroughputChangePercent float64 `json:"throughputChangePercent"`
	P99Us                   Beside  `json:"p99Us"` // of a launch, beyond its kernel
	NeighbourKernelUs       float64 `json:"neighbourKernelUs"`
	// Without Divvy the same neighbour costs this.
	UnheldP99Us                   Beside  `json:"unheldP99Us"`
	UnheldThroughputChangePercent float64 `json:"unheldThroughputChangePercent"`
	FutexP99Us                    float64 `json:"futexP99Us"`
}

// Beside is a figure without and with a neighbour.
type Beside struct {
	Alone  float64 `json:"alone"`
	Beside float64 `json:"beside"`
}

// Isolation measures it.
func Isolation(ctx context.Context, o LatencyOptions) (IsolationReport, error) {
	report := IsolationReport{Schema: SchemaIsolation, Simulated: true, NeighbourKernelUs: float64(neighbourKernel.Microseconds())}
	if err := o.check(); err != nil {
		return report, err
	}
	for _, held := range []bool{true, false} {
		quick, busy := o.Unheld(), o.Unheld()
		if held {
			shares, remove, err := o.pair(ctx, 10)
			defer remove()
			if err != nil {
				return report, err
			}
			quick, busy = o.Environ(shares[0].Socket), o.Environ(shares[1].Socket)
		}
		alone, took, _, err := o.measure(ctx, quick)
		if err != nil {
			return report, err
		}
		neighbour, err := o.burnerIn(ctx, busy, neighbourKernel)
		if err != nil {
			return report, err
		}
		beside, tookBeside, futex, err := o.measure(ctx, quick)
		neighbour.Kill()
		if err != nil {
			return report, err
		}
		p99 := Beside{microQuantiles(alone).P99, microQuantiles(beside).P99}
		change := 100 * (float64(took)/float64(tookBeside) - 1)
		if held {
			report.P99Us, report.ThroughputChangePercent = p99, change
			report.FutexP99Us = microQuantiles(futex).P99
		} else {
			report.UnheldP99Us, report.UnheldThroughputChangePercent = p99, change
		}
	}
	return report, nil
}
