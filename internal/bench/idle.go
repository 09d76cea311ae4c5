// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/client"
	"github.com/divvy-gpu/divvy/internal/lateness"
)

// Idle is for which part of a time a card had nothing to do, by cause, in percent.
type Idle struct {
	UnwantedPercent    float64 `json:"unwantedPercent"`    // no share wanted it
	IneligiblePercent  float64 `json:"ineligiblePercent"`  // those that wanted it had used up their parts
	RemainderPercent   float64 `json:"remainderPercent"`   // the next share waited for work that had ended
	AgentLatePercent   float64 `json:"agentLatePercent"`   // the next share's lease came late
	ProcessLatePercent float64 `json:"processLatePercent"` // its first launch came late after that
	RanDryPercent      float64 `json:"ranDryPercent"`      // the share that had it launched too little
}

// IdleBetween is what an agent says of a card at two moments; false: the card's time
// was not leased in between.
func IdleBetween(from, to *api.CardTime) (Idle, bool) {
	if from == nil {
		from = &api.CardTime{}
	}
	if to == nil || to.PassedNs <= from.PassedNs {
		return Idle{}, false
	}
	passed := float64(to.PassedNs - from.PassedNs)
	percent := func(from, to uint64) float64 { return 100 * float64(to-min(from, to)) / passed }
	a, b := from.Idle, to.Idle
	return Idle{
		UnwantedPercent: percent(a.UnwantedNs, b.UnwantedNs), IneligiblePercent: percent(a.IneligibleNs, b.IneligibleNs),
		RemainderPercent: percent(a.RemainderNs, b.RemainderNs), AgentLatePercent: percent(a.AgentLateNs, b.AgentLateNs),
		ProcessLatePercent: percent(a.ProcessLateNs, b.ProcessLateNs), RanDryPercent: percent(a.RanDryNs, b.RanDryNs),
	}, true
}

// Cause is one of the causes in words, and its part.
type Cause struct {
	Percent float64
	Text    string
}

// Causes are those that matter, the largest first.
func (i Idle) Causes() []Cause {
	const matters = 0.05
	all := []Cause{
		{i.UnwantedPercent, "no program wanted the GPU"},
		{i.IneligiblePercent, "the programs that wanted it had used up their parts"},
		{i.RemainderPercent, "the next program waited for work that had ended already"},
		{i.AgentLatePercent, "the host did not let the agent run in time"},
		{i.ProcessLatePercent, "the host did not let the next program run in time"},
		{i.RanDryPercent, "the program whose turn it was launched too little, or the host did not let it run"},
	}
	all = slices.DeleteFunc(all, func(c Cause) bool { return c.Percent < matters })
	slices.SortFunc(all, func(a, b Cause) int { return int(1e6 * (b.Percent - a.Percent)) })
	return all
}

// Sum is for which part of the time the card was idle.
func (i Idle) Sum() float64 {
	return i.UnwantedPercent + i.IneligiblePercent + i.RemainderPercent + i.AgentLatePercent + i.ProcessLatePercent + i.RanDryPercent
}

// TimeOfCard is what an agent says of its first card.
func TimeOfCard(ctx context.Context, agent *client.Client) (*api.CardTime, error) {
	devices, err := agent.Devices(ctx)
	if err != nil {
		return nil, err
	}
	if len(devices.Cards) == 0 {
		return nil, fmt.Errorf("the agent has no GPU")
	}
	return devices.Cards[0].Time, nil
}

// Wakes is how late this host woke a thread that slept for a millisecond again and
// again, in microseconds.
type Wakes struct {
	P50Us  float64 `json:"p50Us"`
	P99Us  float64 `json:"p99Us"`
	MostUs float64 `json:"mostUs"`
}

// WatchHost measures that until the returned function is called.
func WatchHost() func() Wakes {
	var record lateness.Record
	var watch sync.WaitGroup
	end := make(chan struct{})
	watch.Go(func() {
		runtime.LockOSThread()
		for {
			select {
			case <-end:
				return
			default:
				record.Note(oversleep(time.Millisecond))
			}
		}
	})
	return func() Wakes {
		close(end)
		watch.Wait()
		return Wakes{P50Us: us(record.Quantile(0.5)), P99Us: us(record.Quantile(0.99)), MostUs: us(record.Most())}
	}
}

// oversleep sleeps, and returns by how much longer than it should.
func oversleep(d time.Duration) time.Duration {
	var before, after unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &before)
	until := unix.NsecToTimespec(before.Nano() + int64(d))
	for unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &until, nil) == unix.EINTR {
	}
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &after)
	return max(time.Duration(after.Nano()-until.Nano()), 0)
}
