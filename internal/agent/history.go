// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/event"
	"github.com/divvy-gpu/divvy/internal/history"
)

// historyEvery is how often figures are written; a little less than they are kept apart for, so that none
// waits for another.
const historyEvery = history.Finest - time.Second/2

// historyKeeper has the database of figures. A goroutine beside the loop writes it, and who ends the
// agent when that has ended.
type historyKeeper struct {
	*door
	cfg      Config
	samples  *sampler
	events   *eventLog
	recorder *history.Recorder // of the writer alone, and what follows
	told     uint64            // number of the last event that is written
	written  uint64            // monotonic ns of the last snapshot that is

	keeper[*history.FiguresFile]
	damaged error // what a reader found; nil: nothing
	bytes   uint64
}

// outcome is what became of a write.
type outcome struct {
	changed bool // it has begun or ceased to fail
	err     error
	aside   string // what was wrong with a file that was put aside, and where it is
}

func (k *historyKeeper) state() (failed bool, bytes uint64) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	return k.failed, k.bytes
}

func (c Config) historyFile() string { return filepath.Join(c.JournalDirectory, "history.db") }

// keep writes the figures of all snapshots until ctx ends.
func (k *historyKeeper) keep(ctx context.Context) {
	if k.cfg.History.Off() {
		return
	}
	var before *api.Snapshot
	for {
		last, more := k.samples.follow()
		if last != nil && last != before {
			before = last
			if k.add(k.cfg, last) {
				k.tell(ctx, k.write(k.cfg, k.events, last))
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-more:
		}
	}
}

func (k *historyKeeper) tell(ctx context.Context, is outcome) {
	if is.aside != "" {
		_ = k.do(ctx, func(l *loop) { l.tell(event.HistoryCut, is.aside) })
	}
	if is.changed {
		k.tellWritten(ctx, "history", is.err, [2]event.Kind{event.HistoryFailed, event.HistoryWritten},
			"figures over time cannot be written", "figures over time are written again")
	}
}

// add notes what a snapshot says, and says whether it is time to write.
func (k *historyKeeper) add(cfg Config, s *api.Snapshot) (due bool) {
	if k.recorder == nil {
		// What cannot be opened now may be later: then it goes on from here.
		left := history.Left{}
		if db, err := history.OpenFigures(cfg.historyFile(), cfg.History); err == nil {
			if left, err = db.Left(); err != nil {
				left = history.Left{}
			}
			k.mutex.Lock()
			k.db = db
			k.mutex.Unlock()
		}
		k.recorder = history.NewRecorder(left)
	}
	k.recorder.Add(s)
	return s.MonotonicNs-k.written >= uint64(historyEvery)
}

// write writes what has come until the last snapshot.
func (k *historyKeeper) write(cfg Config, log *eventLog, last *api.Snapshot) (is outcome) {
	path := cfg.historyFile()
	k.mutex.Lock()
	db, found := k.db, k.damaged
	k.damaged = nil
	k.mutex.Unlock()
	if found != nil {
		db, is.aside, is.err = putAside(path, db, found)
	}
	for try := 0; is.err == nil; try++ {
		if db == nil {
			db, is.err = history.OpenFigures(path, cfg.History)
		}
		if is.err == nil {
			is.err = k.writeTo(db, log, cfg.MaxEvents, last.Time)
		}
		if try > 0 || !history.Damaged(is.err) {
			break
		}
		db, is.aside, is.err = putAside(path, db, is.err)
	}
	k.written = last.MonotonicNs
	k.mutex.Lock()
	defer k.mutex.Unlock()
	is.changed = k.wroteLocked(db, is.err)
	if db != nil {
		if bytes, err := db.Bytes(); err == nil {
			k.bytes = uint64(bytes)
		}
	}
	return is
}

func (k *historyKeeper) writeTo(db *history.FiguresFile, log *eventLog, mostEvents int, now time.Time) error {
	events, _, _ := log.after(k.told, mostEvents+1)
	if err := db.Write(k.recorder.Take(), events, now); err != nil {
		return err
	}
	k.recorder.Done()
	if n := len(events); n > 0 {
		k.told = events[n-1].Sequence
	}
	return nil
}

// putAside takes a damaged file out of the way.
func putAside(path string, db *history.FiguresFile, why error) (none *history.FiguresFile, told string, err error) {
	if db != nil {
		_ = db.Close() // it is not used any more, whatever becomes of it
	}
	kept, err := history.SetAside(path)
	if err != nil {
		return nil, "", err
	}
	return nil, fmt.Sprintf("the history was damaged, and begins anew: %v; as it was it is kept in %s", why, kept), nil
}

// last writes what came since, when all else has ended.
func (k *historyKeeper) last() {
	if last := k.samples.latest(); last != nil && !k.cfg.History.Off() {
		k.add(k.cfg, last)
		if is := k.write(k.cfg, k.events, last); is.err != nil {
			k.cfg.Logger.Warn("history", "error", is.err)
		}
	}
	if err := k.close(); err != nil {
		k.cfg.Logger.Warn("history", "error", err)
	}
}

// getHistory answers how a figure was over time.
func (h handlers) getHistory(w http.ResponseWriter, r *http.Request, _ asker) error {
	query, err := history.ParseQuery(r.URL.Query())
	if err != nil {
		return queryError(err)
	}
	return readHistory(h, w, func(db *history.FiguresFile) (api.History, error) { return db.Read(r.Context(), query) })
}

// getHistoryEvents answers what happened within a time.
func (h handlers) getHistoryEvents(w http.ResponseWriter, r *http.Request, _ asker) error {
	query, err := history.ParseEventQuery(r.URL.Query())
	if err != nil {
		return queryError(err)
	}
	return readHistory(h, w, func(db *history.FiguresFile) (api.HistoryEvents, error) { return db.Events(r.Context(), query) })
}

// readHistory answers what is read of the history, if it is kept.
func readHistory[A any](h handlers, w http.ResponseWriter, read func(*history.FiguresFile) (A, error)) error {
	if h.cfg.History.Off() {
		return &api.Error{Code: api.CodeNotFound, Message: "this agent keeps no history", Hint: "divvy agent --history-size 200MiB --history-days 400"}
	}
	db := h.history.database()
	if db == nil {
		return &api.Error{Code: api.CodeUnavailable, Message: "the history is not written", Hint: "divvy events says why"}
	}
	answer, err := read(db)
	if history.Damaged(err) {
		h.history.mutex.Lock()
		h.history.damaged = err
		h.history.mutex.Unlock()
	}
	if err != nil {
		return queryError(err)
	}
	write(w, http.StatusOK, answer)
	return nil
}

// queryError says what is wrong with a question, or with the answer.
func queryError(err error) error {
	if many, is := errors.AsType[*history.ManyPointsError](err); is {
		return &api.Error{Code: api.CodeUsage, Message: many.Error(), Hint: "--step " + history.StepText(many.Step)}
	}
	if wrong, is := errors.AsType[history.QueryError](err); is {
		return &api.Error{Code: api.CodeUsage, Message: wrong.Error()}
	}
	if unknown, is := errors.AsType[history.UnknownError](err); is {
		return &api.Error{Code: api.CodeNotFound, Message: "the history has " + unknown.Error()}
	}
	return err
}
