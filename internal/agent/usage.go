// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/audit"
	"github.com/divvy-gpu/divvy/internal/core"
	"github.com/divvy-gpu/divvy/internal/event"
	"github.com/divvy-gpu/divvy/internal/history"
	"github.com/divvy-gpu/divvy/internal/share"
)

const (
	// usageEvery is how often what shares booked and used is written.
	usageEvery = 10 * time.Second
	// usagePending bounds what shares that are gone did and could not be written.
	usagePending = 50_000
	// usageMost is the longest that is read at once.
	usageMost = 31 * 24 * time.Hour
)

// usageKeeper has the database of usage. A goroutine beside the loop writes it, and the loop's last
// when both have ended.
type usageKeeper struct {
	*door
	cfg     Config
	life    string
	beganNs int64
	samples *sampler
	audit   *auditKeeper
	pending []history.Counters // of the writer alone: what had ended and is not written

	keeper[*history.Usage]
	committed time.Time // zero: never
}

func (k *usageKeeper) state() (failed bool, committed time.Time) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	return k.failed, k.committed
}

// keep writes until ctx ends.
func (k *usageKeeper) keep(ctx context.Context) {
	timer := time.NewTicker(usageEvery)
	defer timer.Stop()
	for {
		k.samples.refresh(ctx)
		m := history.Moment{Life: k.life, BeganNs: k.beganNs}
		if k.read(ctx, &m) != nil {
			return
		}
		if changed, err := k.write(k.cfg.usageFile(), m); changed {
			k.tellWritten(ctx, "usage", err, [2]event.Kind{event.UsageFailed, event.UsageWritten},
				"what shares book and use cannot be written, and waits", "what shares book and use is written again; nothing is missing")
		}
		k.noteClosed(ctx)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
	}
}

// closedAtOnce is how many closed hours go into the audit at once.
const closedAtOnce = 100

// noteClosed puts the digests of hours into the audit that do not change any more. One is told
// again whose line is written and that is not noted.
func (k *usageKeeper) noteClosed(ctx context.Context) {
	db := k.database()
	if db == nil || k.cfg.Audit == AuditOff {
		return
	}
	hours, err := db.Untold(closedAtOnce)
	if err != nil {
		k.cfg.Logger.Warn("usage", "error", err)
	}
	for _, c := range hours {
		detail, _ := json.Marshal(map[string]string{"digest": c.Digest}) // of a text
		ticket := k.audit.note(audit.Entry{AuditLine: api.AuditLine{Actor: k.audit.itself(), Verb: "usage.closed", Object: c.Hour.Format(time.RFC3339), Outcome: audit.Done, Detail: detail}})
		if k.audit.noted(ctx, ticket) != nil {
			return
		}
		if err := db.Told(c.Hour); err != nil {
			k.cfg.Logger.Warn("usage", "error", err)
			return
		}
	}
}

func (c Config) usageFile() string { return filepath.Join(c.JournalDirectory, "usage.db") }

// write adds a moment, and says whether that has begun or ceased to fail.
func (k *usageKeeper) write(path string, m history.Moment) (changed bool, err error) {
	m.Ended = append(k.pending, m.Ended...)
	db := k.database()
	if db == nil {
		db, err = history.OpenUsage(path)
	}
	if err == nil {
		err = db.Add(m)
	}
	k.pending = nil
	if err != nil {
		k.pending = m.Ended[:min(len(m.Ended), usagePending)]
	}
	k.mutex.Lock()
	defer k.mutex.Unlock()
	if err == nil {
		k.committed = m.Time
	}
	return k.wroteLocked(db, err), err
}

// read reads what all shares booked and used, in portions, so that no turn of the loop takes
// long, and at last what ended meanwhile.
func (k *usageKeeper) read(ctx context.Context, m *history.Moment) error {
	m.FromNs = int64(monotonic())
	var names []string
	if err := k.do(ctx, func(l *loop) { names = l.core.ShareNames() }); err != nil {
		return err
	}
	payer := payers("/etc/passwd")
	m.Shares = make([]history.Counters, 0, len(names))
	if err := inTurns(ctx, k.door, names, sharesAtOnce, func(l *loop, some []string) { l.billShares(some, m, payer) }); err != nil {
		return err
	}
	return k.do(ctx, func(l *loop) { l.billRest(m, payer) })
}

// billShares adds what these shares did.
func (l *loop) billShares(names []string, m *history.Moment, payer func(string, int) string) {
	for _, name := range names {
		l.core.Bill(l.now, name)
		v, err := l.core.Share(name)
		if err != nil {
			continue
		}
		level := l.level(v.Name)
		for number, of := range v.Slots {
			c := history.Counters{Share: v.Name, Tenant: payer(v.Tenant, v.Owner), Owner: v.Owner, Unnamed: v.Unnamed && v.Ephemeral, Card: of.CardUUID, Created: v.Created,
				Ms: int64(of.Bill.Ms), BookedKiBMs: int64(of.Bill.BookedKiBMs), BookedPercentMs: int64(of.Bill.BookedPercentMs), UsedKiBMs: int64(of.Bill.UsedKiBMs)}
			if level != share.Booked { // nothing of ours measures its programs
				c.CardTimeNs, c.WaitNs = int64(l.cardTime(core.Slot{Share: v.Name, Number: number}, of)), int64(of.WaitNs)
			}
			if v.MemoryBytes > 0 {
				c.PromisedKiB = int64(of.LimitBytes >> 10)
			}
			switch {
			case v.Exclusive:
				c.PromisedKiB, c.PromisedPercent = int64(of.CardBytes>>10), 100
			case v.Policy == share.Fixed:
				c.PromisedPercent = int64(v.CoresPercent)
			}
			m.Shares = append(m.Shares, c)
		}
	}
}

// billRest adds GPUs, and what shares did that have gone: one that was read before is that.
func (l *loop) billRest(m *history.Moment, payer func(string, int) string) {
	m.Time, m.MonotonicNs = l.now, int64(monotonic())
	energy := map[string]int64{}
	if last := l.samples.latest(); last != nil {
		for _, c := range last.Cards {
			if c.Instruments != nil && c.Instruments.EnergyJoules != nil {
				energy[c.UUID] = int64(*c.Instruments.EnergyJoules * 1e6)
			}
		}
	}
	for _, c := range l.core.Cards() {
		k := history.CardCounters{UUID: c.UUID, Model: c.Name, MemoryKiB: int64(c.UsableBytes >> 10), EnergyUJ: -1}
		if uj, known := energy[c.UUID]; known {
			k.EnergyUJ = uj
		}
		m.Cards = append(m.Cards, k)
	}
	type name struct {
		share, card string
		created     int64
	}
	gone := map[name]bool{}
	for _, e := range l.core.TakeEnded() {
		m.Ended = append(m.Ended, history.Counters{Share: e.Name, Tenant: payer(e.Tenant, e.Owner), Owner: e.Owner, Unnamed: e.Unnamed, Card: e.CardUUID, Created: e.Created,
			Ms: int64(e.Bill.Ms), BookedKiBMs: int64(e.Bill.BookedKiBMs), BookedPercentMs: int64(e.Bill.BookedPercentMs), UsedKiBMs: int64(e.Bill.UsedKiBMs),
			CardTimeNs: int64(e.CardTimeNs), WaitNs: int64(e.WaitNs)})
		gone[name{e.Name, e.CardUUID, e.Created.UnixNano()}] = true
	}
	m.Shares = slices.DeleteFunc(m.Shares, func(c history.Counters) bool { return gone[name{c.Share, c.Card, c.Created.UnixNano()}] })
}

// lastUsage writes what came since, when the loop has ended.
func (l *loop) lastUsage() {
	m := history.Moment{Life: l.life, BeganNs: l.beganNs, FromNs: int64(monotonic())}
	payer := payers("/etc/passwd")
	l.now = time.Now()
	l.billShares(l.core.ShareNames(), &m, payer)
	l.billRest(&m, payer)
	if _, err := l.usage.write(l.cfg.usageFile(), m); err != nil {
		l.cfg.Logger.Warn("usage", "error", err)
	}
	if err := l.usage.close(); err != nil {
		l.cfg.Logger.Warn("usage", "error", err)
	}
}

// getUsage answers hours that begin within a time.
func (h handlers) getUsage(w http.ResponseWriter, r *http.Request, _ asker) error {
	var span [2]time.Time
	for i, name := range []string{"from", "to"} {
		text := r.URL.Query().Get(name)
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return &api.Error{Code: api.CodeUsage, Message: fmt.Sprintf("%s: %.40q is not a time like 2026-11-01T10:00:00Z", name, text)}
		}
		span[i] = at
	}
	if !span[0].Before(span[1]) || span[1].Sub(span[0]) > usageMost {
		return &api.Error{Code: api.CodeUsage, Message: fmt.Sprintf("from %s to %s is not a time of up to %d days", span[0].Format(time.RFC3339), span[1].Format(time.RFC3339), int(usageMost.Hours()/24))}
	}
	db := h.usage.database()
	if db == nil {
		return &api.Error{Code: api.CodeUnavailable, Message: "what shares book and use is not written", Hint: "divvy events says why"}
	}
	rows, cards, gaps, err := db.Read(r.Context(), span[0], span[1])
	switch {
	case errors.Is(err, history.ErrMany):
		return &api.Error{Code: api.CodeUsage, Message: "these are too many rows at once", Hint: "ask for a shorter time"}
	case err != nil:
		return err
	}
	answer := api.UsageHours{Schema: api.SchemaUsageHours, Rows: []api.UsageHour{}, Cards: []api.UsageCard{}, Gaps: []api.UsageGap{}}
	for _, row := range rows {
		answer.Rows = append(answer.Rows, api.UsageHour{Hour: row.Hour, Share: row.Share, Tenant: row.Tenant, OwnerUID: row.Owner, CardUUID: row.Card, Ms: row.Ms,
			BookedKiBMs: row.BookedKiBMs, BookedPercentMs: row.BookedPercentMs, UsedKiBMs: row.UsedKiBMs, CardTimeNs: row.CardTimeNs, WaitNs: row.WaitNs, EnergyUJ: row.EnergyUJ})
	}
	for _, c := range cards {
		answer.Cards = append(answer.Cards, api.UsageCard{Hour: c.Hour, UUID: c.UUID, Model: c.Model, MemoryKiB: c.MemoryKiB, Ms: c.Ms, EnergyUJ: c.EnergyUJ})
	}
	for _, g := range gaps {
		answer.Gaps = append(answer.Gaps, api.UsageGap(g))
	}
	write(w, http.StatusOK, answer)
	return nil
}
