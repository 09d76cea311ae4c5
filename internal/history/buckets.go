// SPDX-License-Identifier: Apache-2.0

package history

import (
	"database/sql"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"
)

// tails are of each level.
type tails [len(levels)]tail

// buckets are one time of each level; the finest has none.
type buckets [len(levels)]bucketRows

// bucketRows are the rows of a time of a level, from begin on, unix seconds.
type bucketRows struct {
	begin int64
	rows  map[Series]Row
}

// addRows adds rows to those that each level has of their times, and returns what the coarser ones
// have of the last.
func (f *FiguresFile) addRows(tx *sql.Tx, tails *tails, all map[int64]map[Series]Row) (*buckets, error) {
	open, err := f.opened(tx)
	if err != nil {
		return nil, err
	}
	for _, begin := range slices.Sorted(maps.Keys(all)) {
		for i := 1; i < len(levels); i++ {
			at := &open[i]
			if is := bucket(begin, levels[i].seconds); at.begin != is {
				if tails[i], err = f.writeBucket(tx, tails[i], levels[i], *at); err != nil {
					return nil, err
				}
				if *at, err = f.has(tx, tails[i], levels[i], is); err != nil {
					return nil, err
				}
			}
			if i == len(levels)-1 {
				if err := f.expect(tx, *at, all[begin]); err != nil {
					return nil, err
				}
			}
			at.merge(all[begin])
		}
		finest, err := f.has(tx, tails[0], levels[0], begin)
		if err != nil {
			return nil, err
		}
		if len(finest.rows) == 0 {
			finest.rows = all[begin] // nobody changes it
		} else {
			finest.merge(all[begin])
		}
		if tails[0], err = f.writeBucket(tx, tails[0], levels[0], finest); err != nil {
			return nil, err
		}
	}
	return open, nil
}

// expect notes until when series have something, of those that a time has not had yet.
func (f *FiguresFile) expect(tx *sql.Tx, coarsest bucketRows, rows map[Series]Row) error {
	var note *sql.Stmt // ends with its transaction
	for name := range rows {
		if _, is := coarsest.rows[name]; is {
			continue
		}
		if note == nil {
			var err error
			if note, err = tx.Prepare(upsertSeries); err != nil {
				return err
			}
		}
		if err := f.noteSeries(note, name, coarsest.begin+levels[len(levels)-1].seconds); err != nil {
			return err
		}
	}
	return nil
}

// opened is what the coarser levels have, to be changed. At first that is what the file has of the
// times of the last row: an agent that was killed has not written all of it, but into the finer levels.
func (f *FiguresFile) opened(tx *sql.Tx) (*buckets, error) {
	open := &buckets{}
	if last := f.open.Load(); last != nil {
		for i, b := range last {
			open[i] = bucketRows{b.begin, maps.Clone(b.rows)}
		}
		return open, nil
	}
	var wallNs int64
	if err := tx.QueryRow("SELECT wallNs FROM mark").Scan(&wallNs); err != nil {
		if errors.Is(err, sql.ErrNoRows) { // it is new
			return open, nil
		}
		return nil, err
	}
	for i := 1; i < len(levels); i++ {
		b, err := loadBucket(tx, levels[i], bucket(wallNs/int64(time.Second), levels[i].seconds))
		if err != nil {
			return nil, err
		}
		var finer bucketRows
		for at := b.begin; at < b.begin+levels[i].seconds; at += levels[i-1].seconds {
			of := open[i-1]
			if i == 1 || of.begin != at {
				if of, err = loadBucket(tx, levels[i-1], at); err != nil {
					return nil, err
				}
			}
			finer.merge(of.rows)
		}
		for name, row := range finer.rows {
			if row.Ms > b.rows[name].Ms {
				b.rows[name] = row
			}
		}
		open[i] = b
	}
	return open, nil
}

// merge adds rows of later.
func (b *bucketRows) merge(rows map[Series]Row) {
	if b.rows == nil {
		b.rows = map[Series]Row{}
	}
	for name, row := range rows {
		if before, is := b.rows[name]; is {
			row = merge(before, row)
		}
		b.rows[name] = row
	}
}

// writeBuckets writes what the coarser levels have, to the last of them.
func (f *FiguresFile) writeBuckets(tx *sql.Tx, tails *tails, open *buckets, last int) (err error) {
	for i := 1; i <= last; i++ {
		if tails[i], err = f.writeBucket(tx, tails[i], levels[i], open[i]); err != nil {
			return err
		}
	}
	return nil
}

// loadBucket reads what a level has of a time.
func loadBucket(tx *sql.Tx, l level, begin int64) (bucketRows, error) {
	b := bucketRows{begin: begin, rows: map[Series]Row{}}
	rows, err := tx.Query("SELECT share, tenant, card, "+strings.Join(pointColumns(), ", ")+" FROM "+points(pointColumns()[2:])+" JOIN series ON id = series", pointArgs(l, begin, begin+1)...)
	if err != nil {
		return b, err
	}
	defer rows.Close()
	for rows.Next() {
		var name Series
		var row Row
		var gauges [gaugeCount]scanned
		var counters scannedCounters
		into := []any{&name.Share, &name.Tenant, &name.Card, &row.Ms, &row.SeenMs}
		for i := range gauges {
			into = append(into, &gauges[i].mean, &gauges[i].least, &gauges[i].most)
		}
		if err := rows.Scan(counters.behind(into...)...); err != nil {
			return b, err
		}
		for i, g := range gauges {
			row.Gauges[i] = g.gauge()
		}
		row.Counters = counters.totals()
		b.rows[name] = row
	}
	return b, rows.Err()
}
