// SPDX-License-Identifier: Apache-2.0

package history

import (
	"database/sql"
	"maps"
	"slices"
	"strings"
)

// What stays as it was has no row of its own for each time: the row of when it began so is true until
// another time, and has been measured at each tick before that. So one row goes on for all that stay as they
// were, and where no agent was there is no tick, and no figure.
const runsSchema = `
CREATE TABLE tick (step INTEGER, time INTEGER, ms NUMERIC, seenMs NUMERIC, PRIMARY KEY (step, time)) WITHOUT ROWID;
CREATE INDEX run ON point (step, until) WHERE until IS NOT NULL;
`

// figuresRuns makes a file of version 1 one of version 2.
const figuresRuns = "ALTER TABLE point ADD COLUMN until INTEGER;" + runsSchema

// runSpan is how many seconds a run is in at most: it ends with its hour.
const runSpan = 3600

// points are the rows of a level from one time on until before another: ms and seenMs, and columns of pointColumns.
// It wants pointArgs.
func points(columns []string) string {
	arm := func(of, time string) string {
		return "SELECT " + time + ".time AS time, p.series AS series, " + time + ".ms AS ms, " + time + ".seenMs AS seenMs" + of
	}
	list := ""
	for _, c := range columns {
		list += ", p." + c + " AS " + c
	}
	return "(" + arm(list, "p") + " FROM point p WHERE p.step = ? AND p.time >= ? AND p.time < ? UNION ALL " +
		arm(list, "t") + ` FROM point p CROSS JOIN tick t WHERE p.step = ? AND p.until > ? AND p.until <= ? AND p.time < ?
		AND t.step = p.step AND t.time > max(p.time, ? - 1) AND t.time < min(p.until, ?))`
}

func pointArgs(l level, from, to int64) []any {
	return []any{l.seconds, from, to, l.seconds, from, to + runSpan, to, from, to}
}

// tail is what the file has of a level at its end.
type tail struct {
	known  bool
	begin  int64             // that was written last
	newest int64             // the last that the file has; after begin, the clock was set back
	rows   map[Series]runRow // of begin; nil: it is not the newest
}

// runRow is a row, and since when it was so: it is the row of then that the file has.
type runRow struct {
	Row
	since int64
}

// longest is for how long those were seen that were there all the time.
func (b bucketRows) longest() (ms, seenMs int64) {
	for _, row := range b.rows {
		ms, seenMs = max(ms, row.Ms), max(seenMs, row.SeenMs)
	}
	return ms, seenMs
}

// has is what the file has of a time of a level.
func (f *FiguresFile) has(tx *sql.Tx, t tail, l level, begin int64) (bucketRows, error) {
	switch {
	case t.known && begin > t.newest:
		return bucketRows{begin: begin, rows: map[Series]Row{}}, nil
	case t.rows != nil && begin == t.begin:
		b := bucketRows{begin: begin, rows: make(map[Series]Row, len(t.rows))}
		for name, row := range t.rows {
			b.rows[name] = row.Row
		}
		return b, nil
	}
	return loadBucket(tx, l, begin)
}

// writeBucket writes what a level has of a time, as far as the file has it otherwise, and returns what the
// file has then.
func (f *FiguresFile) writeBucket(tx *sql.Tx, t tail, l level, b bucketRows) (tail, error) {
	if len(b.rows) == 0 {
		return t, nil
	}
	if !t.known || b.begin < t.begin {
		var err error
		if t, err = endRuns(tx, l, b.begin); err != nil {
			return t, err
		}
	}
	w := runWriter{tx: tx, step: l.seconds, points: inserter{tx: tx, into: "INSERT OR REPLACE INTO point (step, time, series, " + strings.Join(pointColumns(), ", ") + ")", columns: 3 + len(pointColumns())}}
	next := tail{known: true, begin: b.begin, newest: max(t.newest, b.begin)}
	if next.newest == b.begin {
		next.rows = make(map[Series]runRow, len(b.rows))
	}
	again := t.rows != nil && t.begin == b.begin
	goesOn := t.rows != nil && l.seconds < runSpan && bucket(t.begin, runSpan) == bucket(b.begin, runSpan)
	ms, seenMs := b.longest()
	ticks := false
	names := make(map[int64]Series, len(b.rows))
	for name := range b.rows {
		id, err := f.id(tx, name)
		if err != nil {
			return t, err
		}
		names[id] = name
	}
	values := make([]any, 0, w.points.columns)
	for _, id := range slices.Sorted(maps.Keys(names)) { // as the file has them: each is written behind the last
		name := names[id]
		row := b.rows[name]
		was, is := t.rows[name]
		runs := is && was.since < t.begin // the file has it by its run alone
		stays := is && goesOn && row.Ms == ms && row.SeenMs == seenMs && row.Gauges == was.Gauges && row.Counters == was.Counters
		since := b.begin
		switch {
		case again && is && !runs && row == was.Row:
		case stays && (runs || !again):
			if !runs {
				if err := w.until(bucket(b.begin, runSpan)+runSpan, was.since, id); err != nil {
					return t, err
				}
			}
			since, ticks = was.since, true
		default:
			if runs && goesOn {
				if err := w.until(b.begin, was.since, id); err != nil {
					return t, err
				}
			}
			values = row.values(append(values[:0], l.seconds, b.begin, id))
			if err := w.points.insert(values...); err != nil {
				return t, err
			}
		}
		if next.rows != nil {
			next.rows[name] = runRow{row, since}
		}
	}
	for name, was := range t.rows {
		if _, is := b.rows[name]; is || was.since == t.begin || !goesOn {
			continue
		}
		id, err := f.id(tx, name)
		if err != nil {
			return t, err
		}
		if err := w.until(b.begin, was.since, id); err != nil {
			return t, err
		}
	}
	if ticks {
		if _, err := tx.Exec("INSERT OR REPLACE INTO tick VALUES (?, ?, ?, ?)", l.seconds, b.begin, ms, seenMs); err != nil {
			return t, err
		}
	}
	return next, w.points.flush()
}

// runWriter writes rows of a level, and until when those are true that it has.
type runWriter struct {
	tx     *sql.Tx
	step   int64
	points inserter
	ends   *sql.Stmt // nil: not needed yet
}

func (w *runWriter) until(end, since, id int64) error {
	if w.ends == nil {
		ends, err := w.tx.Prepare("UPDATE point SET until = ? WHERE step = ? AND time = ? AND series = ?")
		if err != nil {
			return err
		}
		w.ends = ends // ends with its transaction
	}
	_, err := w.ends.Exec(end, w.step, since, id)
	return err
}

// endRuns ends all runs of a level before a time: what is after that has rows of its own.
func endRuns(tx *sql.Tx, l level, before int64) (tail, error) {
	columns := pointColumns()[2:]
	for _, of := range []struct {
		statement string
		args      []any
	}{
		{"INSERT OR IGNORE INTO point (step, time, series, ms, seenMs, " + strings.Join(columns, ", ") + ") SELECT p.step, t.time, p.series, t.ms, t.seenMs, p." + strings.Join(columns, ", p.") +
			" FROM tick t CROSS JOIN point p WHERE t.step = ? AND t.time >= ? AND p.step = t.step AND p.until > t.time AND +p.time < t.time", []any{l.seconds, before}}, // by until: of a level there are many before
		{"DELETE FROM tick WHERE step = ? AND time >= ?", []any{l.seconds, before}},
		{"UPDATE point SET until = CASE WHEN time < ? THEN ? END WHERE step = ? AND until > ?", []any{before, before, l.seconds, before}},
	} {
		if _, err := tx.Exec(of.statement, of.args...); err != nil {
			return tail{}, err
		}
	}
	t := tail{known: true, begin: before}
	err := tx.QueryRow("SELECT max((SELECT coalesce(max(time), -1) FROM point WHERE step = ?), (SELECT coalesce(max(time), -1) FROM tick WHERE step = ?))", l.seconds, l.seconds).Scan(&t.newest)
	return t, err
}

// cutRuns lets what a level has before a time go, and what goes on then begin at its first tick.
func cutRuns(tx *sql.Tx, t *tail, l level, before int64) error {
	var first sql.NullInt64
	if err := tx.QueryRow("SELECT min(time) FROM tick WHERE step = ? AND time >= ?", l.seconds, before).Scan(&first); err != nil {
		return err
	}
	if first.Valid {
		if _, err := tx.Exec("UPDATE point SET (time, ms, seenMs) = (SELECT time, ms, seenMs FROM tick WHERE step = ? AND time = ?) WHERE step = ? AND time < ? AND until > ?",
			l.seconds, first, l.seconds, before, first); err != nil {
			return err
		}
		for name, row := range t.rows {
			if row.since < before {
				t.rows[name] = runRow{row.Row, first.Int64}
			}
		}
	}
	for _, table := range []string{"point", "tick"} {
		if _, err := tx.Exec("DELETE FROM "+table+" WHERE step = ? AND time < ?", l.seconds, before); err != nil {
			return err
		}
	}
	return nil
}
