// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/divvy-gpu/divvy/internal/process"
)

// SchemaStorm names the version of StormReport.
const SchemaStorm = "divvy.bench.storm/v1"

// StormOptions says how many processes attach.
type StormOptions struct {
	Target
	Clients int    // at once; 0: 300
	Crowd   int    // one after the other, to stay; 0: none
	Runs    int    // commands under divvy run at once; 0: none
	Program string // divvy
}

// StormReport says how long it took.
type StormReport struct {
	Schema      string    `json:"schema"`
	Simulated   bool      `json:"simulated"`
	Clients     int       `json:"clients"`
	Failed      int       `json:"failed"`
	AllMs       float64   `json:"allMs"`       // from the first cuInit to the last context
	UnheldAllMs float64   `json:"unheldAllMs"` // of as many without Divvy
	AttachMs    Quantiles `json:"attachMs"`    // of each process, cuInit and context
	Attached    int       `json:"attached"`    // by the agent's account, when all are there
	Crowd       *Crowd    `json:"crowd,omitempty"`
	Runs        *Runs     `json:"runs,omitempty"`
}

// Crowd is what many attached processes that do nothing cost.
type Crowd struct {
	Clients          int       `json:"clients"`
	AttachMs         Quantiles `json:"attachMs"` // of each, one after the other: cuInit and context
	UnheldAttachMs   Quantiles `json:"unheldAttachMs"`
	AgentBytes       uint64    `json:"agentBytes"`       // resident
	AgentIdlePercent float64   `json:"agentIdlePercent"` // of a core, while nobody does anything
}

const (
	crowdSettle = 1500 * time.Millisecond // the agent compares its account with the driver's
	crowdIdle   = 20 * time.Second        // what attaching left behind is done in the first of them
)

// Storm starts many processes, lets all of them attach to one share and make a
// context at the same moment, and waits for the last. Then it does so with a crowd,
// one after the other, and looks at what the agent uses.
func Storm(ctx context.Context, o StormOptions) (StormReport, error) {
	report := StormReport{Schema: SchemaStorm, Simulated: true}
	if err := o.Validate(); err != nil {
		return report, err
	}
	if o.Clients == 0 {
		o.Clients = 300
	}
	report.Clients = o.Clients
	unheld, err := o.spawnAll(ctx, o.Unheld(), o.Clients)
	defer unheld.kill()
	if err != nil {
		return report, fmt.Errorf("control without Divvy: %w", err)
	}
	start := time.Now()
	startAll(unheld)
	report.UnheldAllMs = milliseconds(time.Since(start))
	unheld.kill()

	share, remove, err := o.roomFor(ctx, "bench-storm", o.Clients)
	if err != nil {
		return report, err
	}
	defer remove()
	clients, err := o.spawnAll(ctx, o.Environ(share), o.Clients)
	defer clients.kill()
	if err != nil {
		return report, err
	}
	start = time.Now()
	took, failed := startAll(clients)
	report.AllMs, report.AttachMs, report.Failed = milliseconds(time.Since(start)), quantiles(took), len(failed)
	seen, err := o.client().Share(ctx, "bench-storm")
	if err != nil {
		return report, fmt.Errorf("count the attached: %w", err)
	}
	report.Attached = seen.Clients
	clients.kill()
	remove() // the card has no room for both
	if o.Crowd > 0 {
		report.Crowd = &Crowd{Clients: o.Crowd}
		if err := o.crowd(ctx, report.Crowd); err != nil {
			return report, err
		}
	}
	if o.Runs > 0 {
		report.Runs = &Runs{}
		if err := o.runs(ctx, report.Runs); err != nil {
			return report, fmt.Errorf("divvy run: %w", err)
		}
	}
	return report, nil
}

// crowd lets processes attach one after the other, without Divvy and with it.
func (o StormOptions) crowd(ctx context.Context, report *Crowd) error {
	unheld, err := o.spawnAll(ctx, o.Unheld(), o.Crowd)
	defer unheld.kill()
	if err == nil {
		report.UnheldAttachMs, err = unheld.inTurn()
	}
	if err != nil {
		return fmt.Errorf("control without Divvy: %w", err)
	}
	unheld.kill()
	account, err := openAccount(ctx, o.SimulatorSocket)
	if err != nil {
		return err
	}
	defer account.close()
	if err := account.awaitEmpty(ctx); err != nil {
		return err
	}
	share, remove, err := o.roomFor(ctx, "bench-crowd", o.Crowd)
	if err != nil {
		return err
	}
	defer remove()
	clients, err := o.spawnAll(ctx, o.Environ(share), o.Crowd)
	defer clients.kill()
	if err != nil {
		return err
	}
	if report.AttachMs, err = clients.inTurn(); err != nil {
		return err
	}
	version, err := o.client().Version(ctx)
	if err != nil {
		return fmt.Errorf("find the agent: %w", err)
	}
	if err := pause(ctx, crowdSettle); err != nil {
		return err
	}
	table := process.New("/proc")
	before, err := table.CPU(version.PID)
	if err != nil {
		return err
	}
	if err := pause(ctx, crowdIdle); err != nil {
		return err
	}
	after, err := table.CPU(version.PID)
	if err != nil {
		return err
	}
	report.AgentIdlePercent = 100 * (after - before).Seconds() / crowdIdle.Seconds()
	report.AgentBytes, err = table.Resident(version.PID)
	return err
}

// roomFor makes a share with room for the contexts of so many processes, and returns
// its socket.
func (o StormOptions) roomFor(ctx context.Context, name string, clients int) (socket string, remove func(), err error) {
	devices, err := o.client().Devices(ctx)
	if err != nil {
		return "", nil, err
	}
	if len(devices.Cards) == 0 {
		return "", nil, errors.New("the agent has no GPU")
	}
	share, remove, err := o.share(ctx, name, uint64(clients)*devices.Cards[0].ContextBytes+mib)
	return share.Socket, remove, err
}

// holders are holder programs.
type holders []*Holder

// spawnAll starts programs, none of which attaches yet. Kill what it returns, also
// with an error.
func (t Target) spawnAll(ctx context.Context, env []string, n int) (holders, error) {
	var all holders
	for range n {
		h, err := t.spawnHolder(ctx, env)
		if err != nil {
			return all, err
		}
		all = append(all, h)
	}
	for _, h := range all {
		if err := h.greeting(); err != nil {
			return all, err
		}
	}
	return all, nil
}

func (all *holders) kill() {
	for _, h := range *all {
		h.Kill()
	}
	*all = nil // their numbers may be another's now
}

// inTurn lets one after the other attach.
func (all holders) inTurn() (Quantiles, error) {
	var took []time.Duration
	for _, h := range all {
		start := time.Now()
		if _, err := h.Do("start"); err != nil {
			return Quantiles{}, err
		}
		took = append(took, time.Since(start))
	}
	return quantiles(took), nil
}

// startAll tells all holders to start and waits for them.
func startAll(holders []*Holder) (took []time.Duration, failed []error) {
	type outcome struct {
		took time.Duration
		err  error
	}
	outcomes := make(chan outcome, len(holders))
	for _, h := range holders {
		go func() {
			start := time.Now()
			_, err := h.Do("start")
			outcomes <- outcome{took: time.Since(start), err: err}
		}()
	}
	for range holders {
		o := <-outcomes
		if o.err != nil {
			failed = append(failed, o.err)
			continue
		}
		took = append(took, o.took)
	}
	return took, failed
}
