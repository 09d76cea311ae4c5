// SPDX-License-Identifier: Apache-2.0

package history

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
)

const (
	figuresID      = 0x44565648 // application_id of the file
	figuresVersion = 2

	eventsKept = 7 * 24 * time.Hour
	mostEvents = 100_000
	// eventBytes is what an event is taken to need of a small bound.
	eventBytes = 2 << 10
	// logBytes is what is left for the log beside the file.
	logBytes = 2 << 20
	// leastBytes is a bound that has room for some minutes of a thousand shares.
	leastBytes = 8 << 20
	longest    = 400 // days
	readAtOnce = 2
	// hourEvery is after how many minutes what the hour has is written: a killed agent's comes from the
	// finer levels, of which spared is more.
	hourEvery = 5
)

// Bounds are how much is kept at most.
type Bounds struct {
	Bytes int64 // of the file, the log beside it included; 0: nothing is kept
	Days  int   // 0: nothing is kept
}

// DefaultBounds are those of a machine's agent, and PrivateBounds of a user's own.
func DefaultBounds() Bounds { return Bounds{200 << 20, longest} }

// PrivateBounds are those of a user's own agent.
func PrivateBounds() Bounds { return Bounds{16 << 20, 1} }

// Off says that nothing is kept.
func (b Bounds) Off() bool { return b.Bytes == 0 || b.Days == 0 }

// Validate says what is wrong with bounds.
func (b Bounds) Validate() error {
	if b.Bytes != 0 && b.Bytes < leastBytes {
		return fmt.Errorf("a history of %d bytes is not 0 and less than %d MiB", b.Bytes, leastBytes>>20)
	}
	if b.Days < 0 || b.Days > longest {
		return fmt.Errorf("a history of %d days is not between 0 and %d", b.Days, longest)
	}
	return nil
}

// limit is what tables may fill: the rest is for the log of a transaction.
func (b Bounds) limit() int64 { return b.Bytes - max(b.Bytes/8, logBytes) }

func (b Bounds) events() int64 { return min(mostEvents, b.Bytes/eventBytes) }

// level is how finely is kept what is no older than so.
type level struct {
	seconds int64
	keep    time.Duration
}

// levels are from the finest on: each step is a multiple of the one before.
var levels = [...]level{{10, 24 * time.Hour}, {60, 7 * 24 * time.Hour}, {3600, longest * 24 * time.Hour}}

// oldest is the time before which a level has nothing, unix seconds.
func (b Bounds) oldest(l level, now time.Time) int64 {
	return now.Add(-min(l.keep, time.Duration(b.Days)*24*time.Hour)).Unix()
}

var (
	gaugeColumns   = [gaugeCount]string{"usedBytes", "bookedBytes", "busyPercent", "powerWatts", "temperatureC", "clients"}
	counterColumns = [counterCount]string{"cardTimeNs", "waitNs", "launches", "denials", "overruns", "energyUJ"}
)

// pointColumns are those of a row besides its key. Least and most are null where they are the mean.
func pointColumns() []string {
	all := []string{"ms", "seenMs"}
	for _, name := range gaugeColumns {
		all = append(all, name, name+"Min", name+"Max")
	}
	return append(all, counterColumns[:]...)
}

func figuresSchema() string {
	return `
CREATE TABLE series (id INTEGER PRIMARY KEY, share TEXT, tenant TEXT, card TEXT, until INTEGER, UNIQUE (share, tenant, card));
CREATE TABLE point (step INTEGER, time INTEGER, series INTEGER, ` + strings.Join(pointColumns(), " NUMERIC, ") + ` NUMERIC, until INTEGER, PRIMARY KEY (step, time, series)) WITHOUT ROWID;
CREATE TABLE open (share TEXT, created INTEGER, card TEXT, ` + strings.Join(counterColumns[:], " INTEGER, ") + ` INTEGER, PRIMARY KEY (share, created, card)) WITHOUT ROWID;
CREATE TABLE mark (one INTEGER PRIMARY KEY CHECK (one = 1), life TEXT, wallNs INTEGER, monotonicNs INTEGER);
CREATE TABLE event (timeNs INTEGER, life TEXT, sequence INTEGER, kind TEXT, share TEXT, card TEXT, event TEXT, PRIMARY KEY (timeNs, life, sequence)) WITHOUT ROWID;
` + runsSchema
}

// FiguresFile is the database of figures.
type FiguresFile struct {
	db      *sql.DB
	path    string
	bounds  Bounds
	reading chan struct{} // holds one for each that reads

	// open is what each level but the finest has of the time that gets more, which the file
	// has once a minute and when that time is over; nil: not known yet. Only who writes
	// replaces it, when the file has what it goes on from; nothing of it changes.
	open atomic.Pointer[buckets]

	// What follows is of the one who writes.
	ids   map[Series]int64
	tails tails
	left  map[slot]totals // as the file has them; nil: not known
	kept  int64           // the minute in which all was written, and what is too old went
}

// OpenFigures opens the database, or makes it. One that is not ours or of a newer version is left
// alone.
func OpenFigures(path string, bounds Bounds) (*FiguresFile, error) {
	db, err := open(path, format{id: figuresID, version: figuresVersion, schema: figuresSchema(), later: figuresRuns, begin: "PRAGMA auto_vacuum = INCREMENTAL; ",
		pragmas: "&_pragma=synchronous(NORMAL)&_pragma=wal_autocheckpoint(256)&_pragma=journal_size_limit(1048576)"})
	if err != nil {
		return nil, err
	}
	f := &FiguresFile{db: db, path: path, bounds: bounds, reading: make(chan struct{}, readAtOnce)}
	f.forget()
	return f, nil
}

// Close writes what the coarser levels have, and closes it. An agent that is killed has the
// next one find that in the finer ones.
func (f *FiguresFile) Close() error {
	var err error
	if open := f.open.Load(); open != nil {
		err = inTransaction(f.db, func(tx *sql.Tx) error { return f.writeBuckets(tx, &f.tails, open, len(levels)-1) })
	}
	return errors.Join(err, f.db.Close())
}

// SetAside takes a damaged database out of the way, for another one, and says where it is kept.
func SetAside(path string) (kept string, err error) {
	kept = path + ".damaged"
	for _, of := range []string{"", "-wal", "-shm"} {
		if failed := os.Rename(path+of, kept+of); failed != nil && !errors.Is(failed, fs.ErrNotExist) {
			err = errors.Join(err, failed)
		}
	}
	return kept, err
}

// forget lets go of what the file may have otherwise.
func (f *FiguresFile) forget() { f.ids, f.left, f.tails = map[Series]int64{}, nil, tails{} }

// Left is what the recorder of the agent before knew last.
func (f *FiguresFile) Left() (Left, error) {
	left := Left{had: map[slot]totals{}}
	err := f.db.QueryRow("SELECT life, wallNs, monotonicNs FROM mark").Scan(&left.life, &left.wallNs, &left.monotonicNs)
	if errors.Is(err, sql.ErrNoRows) {
		return left, nil
	}
	if err != nil {
		return left, fmt.Errorf("read history: %w", err)
	}
	rows, err := f.db.Query("SELECT share, created, card, " + strings.Join(counterColumns[:], ", ") + " FROM open")
	if err != nil {
		return left, fmt.Errorf("read history: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var key slot
		var counters scannedCounters
		if err := rows.Scan(counters.behind(&key.share, &key.created, &key.card)...); err != nil {
			return left, fmt.Errorf("read history: %w", err)
		}
		left.had[key] = counters.totals()
	}
	if err := rows.Err(); err != nil {
		return left, fmt.Errorf("read history: %w", err)
	}
	return left, nil
}

// Write adds what a recorder has, and events that the file has not. When it fails nothing has changed.
// Once a minute what is too old or too much goes.
func (f *FiguresFile) Write(b Batch, events []api.Event, now time.Time) error {
	minute := now.Unix() / 60
	if minute != f.kept { // before anything is written: what fails then has changed nothing
		if err := f.shrink(); err != nil {
			return err
		}
	}
	var open *buckets
	ends := f.tails
	err := inTransaction(f.db, func(tx *sql.Tx) (err error) {
		if open, err = f.addRows(tx, &ends, b.rows); err != nil {
			return err
		}
		if err := f.writeLeft(tx, b.Left); err != nil {
			return err
		}
		if err := writeEvents(tx, events); err != nil {
			return err
		}
		if minute == f.kept {
			return nil
		}
		last := len(levels) - 1
		if minute%hourEvery != 0 && f.kept != 0 {
			last--
		}
		if err := f.writeBuckets(tx, &ends, open, last); err != nil {
			return err
		}
		return f.prune(tx, &ends, now)
	})
	if err != nil {
		f.forget()
		f.kept = 0
		return fmt.Errorf("write history: %w", err)
	}
	f.open.Store(open)
	f.kept, f.tails = minute, ends
	if b.wallNs != 0 {
		f.left = maps.Clone(b.had)
	}
	return nil
}

// values are a row's, as pointColumns names them, behind others.
func (r Row) values(all []any) []any {
	all = append(all, r.Ms, r.SeenMs)
	for _, g := range r.Gauges {
		switch {
		case !g.Known:
			all = append(all, nil, nil, nil)
		case g.Min == g.Mean && g.Max == g.Mean:
			all = append(all, g.Mean, nil, nil)
		default:
			all = append(all, g.Mean, g.Min, g.Max)
		}
	}
	return r.Counters.values(all)
}

// values are those of counters, behind others.
func (t totals) values(all []any) []any {
	for _, c := range t {
		if c.Known {
			all = append(all, c.Sum)
		} else {
			all = append(all, nil)
		}
	}
	return all
}

// scanned is a gauge or a counter as the file has it.
type scanned struct{ mean, least, most sql.NullFloat64 }

func (s scanned) gauge() Gauge {
	g := Gauge{s.mean.Valid, s.mean.Float64, s.mean.Float64, s.mean.Float64}
	if s.least.Valid {
		g.Min = s.least.Float64
	}
	if s.most.Valid {
		g.Max = s.most.Float64
	}
	return g
}

// scannedCounters are a row's counters as the file has them.
type scannedCounters [counterCount]sql.NullInt64

// behind is where a row is scanned to: the counters come last.
func (s *scannedCounters) behind(into ...any) []any {
	for i := range s {
		into = append(into, &s[i])
	}
	return into
}

func (s *scannedCounters) totals() (t totals) {
	for i, n := range s {
		t[i] = Count{n.Valid, n.Int64}
	}
	return t
}

// id is a series' number in the file.
func (f *FiguresFile) id(tx *sql.Tx, name Series) (int64, error) {
	if id, known := f.ids[name]; known {
		return id, nil
	}
	note, err := tx.Prepare(upsertSeries)
	if err != nil {
		return 0, err
	}
	defer note.Close()
	err = f.noteSeries(note, name, 0)
	return f.ids[name], err
}

const upsertSeries = `INSERT INTO series (share, tenant, card, until) VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET until = max(until, excluded.until) RETURNING id`

// noteSeries gives a series its number, and says until when it has something at least.
func (f *FiguresFile) noteSeries(note *sql.Stmt, name Series, until int64) error {
	if len(f.ids) > pendingRows {
		clear(f.ids)
	}
	var id int64
	err := note.QueryRow(name.Share, name.Tenant, name.Card, until).Scan(&id)
	if err == nil {
		f.ids[name] = id
	}
	return err
}

// writeLeft notes what the recorder knew last: of counters, those that the file has otherwise.
func (f *FiguresFile) writeLeft(tx *sql.Tx, left Left) error {
	if left.wallNs == 0 {
		return nil
	}
	if f.left == nil {
		if _, err := tx.Exec("DELETE FROM open"); err != nil {
			return err
		}
	}
	for key := range f.left {
		if _, is := left.had[key]; is {
			continue
		}
		if _, err := tx.Exec("DELETE FROM open WHERE share = ? AND created = ? AND card = ?", key.share, key.created, key.card); err != nil {
			return err
		}
	}
	counters := inserter{tx: tx, into: "INSERT OR REPLACE INTO open", columns: 3 + int(counterCount)}
	for key, t := range left.had {
		if was, is := f.left[key]; is && was == t {
			continue
		}
		if err := counters.insert(t.values([]any{key.share, key.created, key.card})...); err != nil {
			return err
		}
	}
	if err := counters.flush(); err != nil {
		return err
	}
	_, err := tx.Exec("INSERT OR REPLACE INTO mark VALUES (1, ?, ?, ?)", left.life, left.wallNs, left.monotonicNs)
	return err
}

func writeEvents(tx *sql.Tx, events []api.Event) error {
	rows := inserter{tx: tx, into: "INSERT OR IGNORE INTO event", columns: 7}
	for _, e := range events {
		if e.Life == "" { // it stands for others
			continue
		}
		raw, err := json.Marshal(e)
		if err != nil {
			return err
		}
		if err := rows.insert(e.Time.UnixNano(), e.Life, e.Sequence, string(e.Kind), e.Share, e.CardUUID, string(raw)); err != nil {
			return err
		}
	}
	return rows.flush()
}

// prune lets go of what is too old, and of what is too much.
func (f *FiguresFile) prune(tx *sql.Tx, ends *tails, now time.Time) error {
	for _, l := range levels {
		before := f.bounds.oldest(l, now)
		if _, err := tx.Exec("DELETE FROM point WHERE step = ? AND time < ? AND (until IS NULL OR until <= ?)", l.seconds, before, before); err != nil {
			return err
		}
		if _, err := tx.Exec("DELETE FROM tick WHERE step = ? AND time < ?", l.seconds, before); err != nil {
			return err
		}
	}
	if _, err := tx.Exec("DELETE FROM event WHERE timeNs < ?", now.Add(-min(eventsKept, time.Duration(f.bounds.Days)*24*time.Hour)).UnixNano()); err != nil {
		return err
	}
	if _, err := tx.Exec("DELETE FROM event WHERE (timeNs, life, sequence) IN (SELECT timeNs, life, sequence FROM event ORDER BY timeNs DESC LIMIT -1 OFFSET ?)", f.bounds.events()); err != nil {
		return err
	}
	for range 1000 { // each time less is left
		used, err := usedPages(tx)
		if err != nil {
			return err
		}
		if used <= f.bounds.limit() {
			break
		}
		var spans [len(levels)]span
		for i, l := range levels {
			if err := tx.QueryRow("SELECT coalesce(min(time), 0), coalesce(max(time), 0) FROM point WHERE step = ?", l.seconds).Scan(&spans[i].oldest, &spans[i].newest); err != nil {
				return err
			}
		}
		i, before, ok := nextToGo(spans, now.Unix())
		if !ok {
			break
		}
		if err := cutRuns(tx, &ends[i], levels[i], before); err != nil {
			return err
		}
	}
	result, err := tx.Exec("DELETE FROM series WHERE until < (SELECT coalesce(min(time), 0) FROM point WHERE step = ?)", levels[len(levels)-1].seconds)
	if err != nil {
		return err
	}
	if gone, err := result.RowsAffected(); err != nil || gone > 0 {
		clear(f.ids)
	}
	return nil
}

// span is from when until when a level has something, unix seconds.
type span struct{ oldest, newest int64 }

// spared is how many times of a level are left when more than there is room for is kept.
const spared = 6

// nextToGo says of which level what is before which time goes first: the oldest of the finest that
// has more than a few. What is said to be of the future, by a clock that was set, counts for nothing.
func nextToGo(spans [len(levels)]span, now int64) (level int, before int64, ok bool) {
	for i, s := range spans {
		seconds := levels[i].seconds
		if steps := (min(s.newest, now) - s.oldest) / seconds; steps >= spared {
			return i, s.oldest + max(steps/32, 1)*seconds, true
		}
	}
	return 0, 0, false
}

// usedPages is how much of the file is in use, in bytes.
func usedPages(q interface {
	QueryRow(query string, args ...any) *sql.Row
}) (int64, error) {
	var size, count, free int64
	err := errors.Join(q.QueryRow("PRAGMA page_size").Scan(&size), q.QueryRow("PRAGMA page_count").Scan(&count), q.QueryRow("PRAGMA freelist_count").Scan(&free))
	return size * (count - free), err
}

// shrink gives back what is free, of a file that is larger than it may be.
func (f *FiguresFile) shrink() error {
	info, err := os.Stat(f.path)
	if err != nil || info.Size() <= f.bounds.limit() {
		return err
	}
	for _, do := range []string{"PRAGMA incremental_vacuum(4096)", "PRAGMA wal_checkpoint(PASSIVE)"} {
		rows, err := f.db.Query(do)
		if err != nil {
			return fmt.Errorf("shrink history: %w", err)
		}
		for rows.Next() { // it works while it is read
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return fmt.Errorf("shrink history: %w", err)
		}
	}
	return nil
}

// Bytes is how large the file is, with the log beside it.
func (f *FiguresFile) Bytes() (int64, error) {
	info, err := os.Stat(f.path)
	if err != nil {
		return 0, fmt.Errorf("size of history: %w", err)
	}
	size := info.Size()
	if log, err := os.Stat(f.path + "-wal"); err == nil {
		size += log.Size()
	}
	return size, nil
}
