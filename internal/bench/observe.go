// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/process"
)

// SchemaObserve names the version of ObserveReport.
const SchemaObserve = "divvy.bench.observe/v1"

// ObserveOptions says what there is to look at, and how often it is.
type ObserveOptions struct {
	Target
	Shares  int
	Clients int // programs that are attached and do nothing, one to a share
	Fresh   int // scrapes a second apart, for each of which is measured anew
	Scrapes int // at once after another, of what was measured
}

// ObserveReport is what looking costs.
type ObserveReport struct {
	Schema    string `json:"schema"`
	Simulated bool   `json:"simulated"`
	Shares    int    `json:"shares"`
	Clients   int    `json:"clients"`
	Series    int    `json:"series"` // lines of a scrape
	// ScrapeMs is of one for which all is measured anew, because a share has just changed, CachedMs of one right
	// after it, and SampleMs what the first took longer.
	ScrapeMs  Quantiles `json:"scrapeMs"`
	CachedMs  Quantiles `json:"cachedMs"`
	SampleMs  Quantiles `json:"sampleMs"`
	Bytes     int       `json:"bytes"`
	GzipBytes int       `json:"gzipBytes"`
	// The agent's memory before and after Scrapes of them, and its part of a core: while nobody looks, and while
	// somebody does once a second.
	Scrapes            int     `json:"scrapes"`
	AgentBytes         uint64  `json:"agentBytes"`
	AgentBytesAfter    uint64  `json:"agentBytesAfter"`
	AgentIdlePercent   float64 `json:"agentIdlePercent"`
	AgentLookedPercent float64 `json:"agentLookedPercent"`
	// Turns of the agent's loop in all of that.
	Turns api.Turns `json:"turns"`
}

const (
	observeQuota = 68 * mib // a context, and a little
	observePause = 1100 * time.Millisecond
)

// Observe makes shares and programs in them, and looks at all of it.
func Observe(ctx context.Context, o ObserveOptions) (ObserveReport, error) {
	report := ObserveReport{Schema: SchemaObserve, Simulated: true, Shares: o.Shares, Clients: o.Clients, Scrapes: o.Scrapes}
	if err := o.Validate(); err != nil {
		return report, err
	}
	if o.Shares < 1 || o.Clients < 0 || o.Clients > o.Shares || o.Fresh < 1 || o.Scrapes < 1 {
		return report, errors.New("at least a share and a scrape, and no more programs than shares")
	}
	var sockets []string
	defer func() {
		for n := range sockets {
			_ = o.client().DeleteShare(context.WithoutCancel(ctx), observeShare(n), true)
		}
	}()
	for n := range o.Shares {
		made, err := o.client().CreateShare(ctx, api.ShareSpec{Name: observeShare(n), MemoryBytes: observeQuota, Tenant: fmt.Sprintf("tenant-%d", n%10)})
		if err != nil {
			return report, fmt.Errorf("create share %d: %w", n, err)
		}
		sockets = append(sockets, made.Socket)
	}
	var clients holders
	defer func() { clients.kill() }()
	for _, socket := range sockets[:o.Clients] {
		h, err := o.StartHolder(ctx, o.Environ(socket))
		if err != nil {
			return report, err
		}
		clients = append(clients, h)
		if _, err := h.Do("start"); err != nil {
			return report, err
		}
	}
	version, err := o.client().Version(ctx)
	if err != nil {
		return report, fmt.Errorf("find the agent: %w", err)
	}
	load := func(while func() error) (percent float64, err error) {
		table := process.New("/proc")
		before, err := table.CPU(version.PID)
		if err != nil {
			return 0, err
		}
		begun := time.Now()
		if err := while(); err != nil {
			return 0, err
		}
		after, err := table.CPU(version.PID)
		return 100 * (after - before).Seconds() / time.Since(begun).Seconds(), err
	}
	if err := pause(ctx, crowdSettle); err != nil {
		return report, err
	}
	if report.AgentIdlePercent, err = load(func() error { return pause(ctx, crowdIdle) }); err != nil {
		return report, err
	}
	if report.AgentLookedPercent, err = load(func() error { return o.fresh(ctx, &report) }); err != nil {
		return report, err
	}
	if err := o.again(ctx, version.PID, &report); err != nil {
		return report, err
	}
	snapshot, err := o.client().Snapshot(ctx)
	if err != nil {
		return report, fmt.Errorf("read the snapshot: %w", err)
	}
	report.Turns = snapshot.Agent.Turns
	return report, nil
}

func observeShare(n int) string { return fmt.Sprintf("bench-observe-%d", n) }

// scrape is one, and what it brought.
func (o ObserveOptions) scrape(ctx context.Context) (took time.Duration, text []byte, err error) {
	begun := time.Now()
	body, _, err := o.client().Metrics(ctx, "text/plain")
	if err != nil {
		return 0, nil, err
	}
	text, err = io.ReadAll(body)
	return time.Since(begun), text, errors.Join(err, body.Close())
}

// fresh scrapes what is measured anew, and each right afterwards again.
func (o ObserveOptions) fresh(ctx context.Context, report *ObserveReport) error {
	var scrapes, cached, samples []time.Duration
	for n := range o.Fresh {
		if err := pause(ctx, observePause); err != nil {
			return err
		}
		// What is known of shares is old when one has changed: the next who looks waits until all is measured.
		if _, err := o.client().ChangeShare(ctx, observeShare(0), api.ShareChange{Weight: new(2 + n%2)}); err != nil {
			return fmt.Errorf("change a share: %w", err)
		}
		first, _, err := o.scrape(ctx)
		if err != nil {
			return err
		}
		second, text, err := o.scrape(ctx)
		if err != nil {
			return err
		}
		scrapes, cached, samples = append(scrapes, first), append(cached, second), append(samples, max(first-second, 0))
		report.Bytes, report.Series = len(text), bytes.Count(text, []byte("\n"))-bytes.Count(text, []byte("\n#"))
		var small bytes.Buffer
		w := gzip.NewWriter(&small)
		_, err = w.Write(text)
		if err = errors.Join(err, w.Close()); err != nil {
			return err
		}
		report.GzipBytes = small.Len()
	}
	report.ScrapeMs, report.CachedMs, report.SampleMs = quantiles(scrapes), quantiles(cached), quantiles(samples)
	return nil
}

// again scrapes many times, and looks whether the agent grows by it.
func (o ObserveOptions) again(ctx context.Context, pid int, report *ObserveReport) (err error) {
	table := process.New("/proc")
	if report.AgentBytes, err = table.Resident(pid); err != nil {
		return err
	}
	for range o.Scrapes {
		if _, _, err := o.scrape(ctx); err != nil {
			return err
		}
	}
	report.AgentBytesAfter, err = table.Resident(pid)
	return err
}
