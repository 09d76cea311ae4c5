// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// SchemaStorm names the version of StormReport.
const SchemaStorm = "divvy.bench.storm/v1"

// StormOptions says how many processes attach at once.
type StormOptions struct {
	Target
	Clients int // 0: 300
}

// StormReport says how long it took.
type StormReport struct {
	Schema    string    `json:"schema"`
	Simulated bool      `json:"simulated"`
	Clients   int       `json:"clients"`
	Failed    int       `json:"failed"`
	AllMs     float64   `json:"allMs"`    // from the first cuInit to the last context
	AttachMs  Quantiles `json:"attachMs"` // of each process, cuInit and context
	Attached  int       `json:"attached"` // by the agent's account, when all are there
}

// Storm starts many processes, lets all of them attach to one share and make a
// context at the same moment, and waits for the last.
func Storm(ctx context.Context, o StormOptions) (StormReport, error) {
	report := StormReport{Schema: SchemaStorm, Simulated: true}
	if err := o.Validate(); err != nil {
		return report, err
	}
	if o.Clients == 0 {
		o.Clients = 300
	}
	devices, err := o.client().Devices(ctx)
	if err != nil {
		return report, err
	}
	if len(devices.Cards) == 0 {
		return report, errors.New("the agent has no card")
	}
	quota := uint64(o.Clients)*devices.Cards[0].ContextBytes + mib
	share, remove, err := o.share(ctx, "bench-storm", quota)
	if err != nil {
		return report, err
	}
	defer remove()
	holders := make([]*Holder, 0, o.Clients)
	defer func() {
		for _, h := range holders {
			h.Kill()
		}
	}()
	for range o.Clients {
		h, err := o.spawnHolder(ctx, o.Environ(share.Socket))
		if err != nil {
			return report, err
		}
		holders = append(holders, h)
	}
	for _, h := range holders {
		if err := h.greeting(); err != nil {
			return report, err
		}
	}
	report.Clients = o.Clients
	start := time.Now()
	took, failed := startAll(holders)
	report.AllMs = milliseconds(time.Since(start))
	report.AttachMs = quantiles(took)
	report.Failed = len(failed)
	share, err = o.client().Share(ctx, share.Name)
	if err != nil {
		return report, fmt.Errorf("count the attached: %w", err)
	}
	report.Attached = share.Clients
	return report, nil
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
