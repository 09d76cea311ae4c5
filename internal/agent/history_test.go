// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/event"
	"github.com/divvy-gpu/divvy/internal/history"
)

// keeping is a keeper of a history in a folder, that sees a GPU.
type keeping struct {
	*testing.T
	historyKeeper
	cfg Config
	log *eventLog
	at  api.Snapshot
}

func newKeeping(t *testing.T) *keeping {
	k := &keeping{T: t, cfg: Config{JournalDirectory: t.TempDir(), History: history.PrivateBounds(), MaxEvents: 8}, log: newEventLog(8)}
	k.at = api.Snapshot{Life: "a", Time: time.Date(2026, 11, 1, 10, 0, 0, 0, time.UTC), MonotonicNs: uint64(time.Hour), Cards: []api.SnapshotCard{{UUID: testUUID}}}
	t.Cleanup(func() {
		if k.db != nil {
			k.db.Close()
		}
	})
	return k
}

// tick passes ten seconds, in which shares used one of the GPU.
func (k *keeping) tick() outcome {
	k.Helper()
	k.at.Time, k.at.MonotonicNs = k.at.Time.Add(history.Finest), k.at.MonotonicNs+uint64(history.Finest)
	k.at.Cards[0].ShareTimeNs += uint64(time.Second)
	s := k.at
	s.Cards = append([]api.SnapshotCard(nil), k.at.Cards...)
	if !k.add(k.cfg, &s) {
		k.Error("ten seconds are not enough")
	}
	return k.write(k.cfg, k.log, &s)
}

func (k *keeping) want(is outcome, changed, failed, aside bool) {
	k.Helper()
	if is.changed != changed || (is.err != nil) != failed || (is.aside != "") != aside {
		k.Fatalf("%+v", is)
	}
	if shown, bytes := k.state(); shown != failed || bytes == 0 {
		k.Errorf("failed is shown as %v, %d bytes", shown, bytes)
	}
}

func (k *keeping) cardTime() (sum time.Duration) {
	k.Helper()
	figure, err := history.ParseFigure("card-time")
	must(k, err)
	answer, err := k.database().Read(k.Context(), history.Query{Figure: figure, From: k.at.Time.Add(-time.Hour), To: k.at.Time.Add(time.Hour), Step: history.Finest})
	must(k, err)
	for _, s := range answer.Series {
		for _, p := range s.Points {
			sum += time.Duration(*p.Sum)
		}
	}
	return sum
}

// What cannot be written waits; that it fails, and that it does no more, is told once each.
func TestHistoryWaits(t *testing.T) {
	k := newKeeping(t)
	k.want(k.tick(), false, false, false)
	must(t, k.db.Close()) // from now on it cannot be written
	k.want(k.tick(), true, true, false)
	k.want(k.tick(), false, true, false)
	k.db = nil
	k.want(k.tick(), true, false, false)
	k.want(k.tick(), false, false, false)
	if got := k.cardTime(); got != 4*time.Second {
		t.Errorf("%v", got)
	}
}

// A disk that takes nothing when the agent starts is no reason to keep nothing later.
func TestHistoryCannotBeOpened(t *testing.T) {
	k := newKeeping(t)
	inTheWay := k.cfg.historyFile()
	must(t, os.Mkdir(inTheWay, 0o700))
	if is := k.tick(); !is.changed || is.err == nil {
		t.Errorf("%+v", is)
	}
	k.tick()
	must(t, os.Remove(inTheWay))
	k.want(k.tick(), true, false, false)
	if got := k.cardTime(); got != 2*time.Second {
		t.Errorf("%v", got)
	}
}

// A damaged file is kept aside and another one begun, whoever finds it so; one of a newer version is left.
func TestDamagedHistory(t *testing.T) {
	k := newKeeping(t)
	k.want(k.tick(), false, false, false)
	must(t, k.db.Close())
	k.db = nil
	must(t, os.WriteFile(k.cfg.historyFile(), []byte(strings.Repeat("damaged ", 1000)), 0o600))
	is := k.tick()
	k.want(is, false, false, true)
	if raw, err := os.ReadFile(k.cfg.historyFile() + ".damaged"); err != nil || !strings.HasPrefix(string(raw), "damaged") || !strings.Contains(is.aside, ".damaged") {
		t.Errorf("%v: %.20s", err, raw)
	}
	k.want(k.tick(), false, false, false)
	if got := k.cardTime(); got != 2*time.Second {
		t.Errorf("%v", got)
	}
	k.damaged = errors.New("a reader's word")
	k.want(k.tick(), false, false, true)
	k.want(k.tick(), false, false, false)
}

func withHistory(c *Config) { c.History = history.PrivateBounds() }

// An agent answers how figures were, to who looks, and tells what is not understood.
func TestHistoryOfAnAgent(t *testing.T) {
	r := newRig(t, withHistory)
	r.share(api.ShareSpec{Name: "a", MemoryBytes: gib, Tenant: "uni"})
	f := r.front("a")
	must(t, f.alloc(300*mib))
	f.work(3*time.Second, 0)
	now := time.Now()
	ask := func(figure string, of url.Values) (api.History, error) {
		known, err := history.ParseFigure(figure)
		must(t, err)
		return r.client.History(t.Context(), history.Query{Figure: known, From: now.Add(-time.Hour), To: now.Add(time.Hour), Step: time.Hour, Share: of.Get("share"), Card: of.Get("card"), Tenant: of.Get("tenant")}.Values())
	}
	eventually(t, "it is in a snapshot", func() bool {
		s, err := r.client.Snapshot(t.Context())
		must(t, err)
		return len(s.Shares) == 1 && s.Shares[0].Cards[0].CardTimeNs != nil && *s.Shares[0].Cards[0].CardTimeNs == uint64(3*time.Second)
	})
	must(t, r.stop()) // it writes the last one
	r.start()
	eventually(t, "the next agent tells", func() bool {
		_, err := ask("card-time", nil)
		return err == nil
	})
	for _, of := range []url.Values{{"share": {"a"}}, {"tenant": {"uni"}}, {"card": {testUUID[:8]}}, {}} {
		h, err := ask("card-time", of)
		must(t, err)
		sum := int64(0)
		for _, s := range h.Series {
			for _, p := range s.Points {
				sum += *p.Sum
			}
		}
		if len(h.Series) != 1 || sum != int64(3*time.Second) {
			t.Errorf("%v: %+v", of, h)
		}
	}
	h, err := ask("memory-used", url.Values{"share": {"a"}})
	must(t, err)
	if most := *h.Series[0].Points[len(h.Series[0].Points)-1].Max; most < 300*mib || h.Unit != "bytes" || h.KeptSince == nil {
		t.Errorf("%v %+v", most, h)
	}
	_, err = ask("card-time", url.Values{"share": {"b"}})
	wantCode(t, err, api.CodeNotFound)
	for _, bad := range []string{"figure=power&share=a", "figure=memory", "figure=wait&step=7", "from=yesterday", "share=a&card=b"} {
		values := history.Query{Figure: history.Figures()[0], From: now.Add(-time.Hour), To: now, Step: time.Minute}.Values()
		more, err := url.ParseQuery(bad)
		must(t, err)
		for name, value := range more {
			values[name] = value
		}
		_, err = r.client.History(t.Context(), values)
		wantCode(t, err, api.CodeUsage)
	}
	_, err = r.client.History(t.Context(), history.Query{Figure: history.Figures()[0], From: now.Add(-300 * 24 * time.Hour), To: now, Step: time.Minute}.Values())
	wantCode(t, err, api.CodeUsage)
	if e, is := errors.AsType[*api.Error](err); !is || e.Hint != "--step 1h" {
		t.Errorf("%+v", e)
	}
	if _, err := os.Stat(filepath.Join(r.cfg.JournalDirectory, "history.db")); err != nil {
		t.Error(err)
	}
}

// Who wants no history has none, and is told so.
func TestNoHistory(t *testing.T) {
	r := newRig(t)
	s, err := r.client.Snapshot(t.Context())
	must(t, err)
	if s.Agent.HistoryBytes != nil || s.Agent.HistoryFailed {
		t.Errorf("%+v", s.Agent)
	}
	now := time.Now()
	_, err = r.client.History(t.Context(), history.Query{Figure: history.Figures()[0], From: now.Add(-time.Hour), To: now, Step: time.Minute}.Values())
	wantCode(t, err, api.CodeNotFound)
	if _, err := os.Stat(filepath.Join(r.cfg.JournalDirectory, "history.db")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// A foreign file is left alone, and programs go on.
func TestForeignHistory(t *testing.T) {
	r := newRig(t, withHistory)
	must(t, r.stop())
	path := filepath.Join(r.cfg.JournalDirectory, "history.db")
	for _, suffix := range []string{"", "-wal", "-shm"} {
		_ = os.Remove(path + suffix)
	}
	db, err := history.OpenUsage(path) // a database that is another's
	must(t, err)
	must(t, db.Close())
	before, err := os.ReadFile(path)
	must(t, err)
	r.start()
	r.share(api.ShareSpec{Name: "a", MemoryBytes: gib})
	must(t, r.front("a").alloc(mib))
	if e := r.awaitEvent(event.HistoryFailed); !strings.Contains(e.Message, "not Divvy's") {
		t.Errorf("%+v", e)
	}
	s, err := r.client.Snapshot(t.Context())
	must(t, err)
	eventually(t, "it is in the snapshot", func() bool {
		s, err = r.client.Snapshot(t.Context())
		must(t, err)
		return s.Agent.HistoryFailed
	})
	if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
		t.Errorf("it was changed: %v", err)
	}
}
