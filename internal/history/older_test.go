// SPDX-License-Identifier: Apache-2.0

package history

import (
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/usage"
)

// fileOf is a file as an older agent left it.
func fileOf(t *testing.T, name, statements string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("PRAGMA journal_mode = WAL;" + statements); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

const firstUsage = `
CREATE TABLE hour (hour INTEGER, share TEXT, tenant TEXT, owner INTEGER, card TEXT, ms INTEGER, bookedKiBMs INTEGER, bookedPercentMs INTEGER,
	usedKiBMs INTEGER, cardTimeNs INTEGER, waitNs INTEGER, energyUJ INTEGER, PRIMARY KEY (hour, share, tenant, owner, card)) WITHOUT ROWID;
CREATE TABLE card (hour INTEGER, card TEXT, model TEXT, memoryKiB INTEGER, ms INTEGER, energyUJ INTEGER, PRIMARY KEY (hour, card)) WITHOUT ROWID;
CREATE TABLE open (share TEXT, created INTEGER, card TEXT, ms INTEGER, bookedKiBMs INTEGER, bookedPercentMs INTEGER, usedKiBMs INTEGER,
	cardTimeNs INTEGER, waitNs INTEGER, promisedKiB INTEGER, promisedPercent INTEGER, PRIMARY KEY (share, created, card)) WITHOUT ROWID;
CREATE TABLE energy (card TEXT PRIMARY KEY, energyUJ INTEGER) WITHOUT ROWID;
CREATE TABLE mark (one INTEGER PRIMARY KEY CHECK (one = 1), life TEXT, wallNs INTEGER, monotonicNs INTEGER, hour INTEGER);
CREATE TABLE gap (fromNs INTEGER, toNs INTEGER);
CREATE TABLE closed (hour INTEGER PRIMARY KEY, digest TEXT);
INSERT INTO hour VALUES (1793527200, 'a', 't', 5, 'GPU-a', 60000, 60000, 0, 0, 7000000, 0, 0);
INSERT INTO card VALUES (1793527200, 'GPU-a', 'A100', 41943040, 60000, 0);
INSERT INTO open VALUES ('a', 1793527200000000000, 'GPU-a', 0, 0, 0, 0, 7000000, 0, 1, 0);
INSERT INTO mark VALUES (1, 'old', 1793527260000000000, 3600000000000, 1793527200);
PRAGMA application_id = 1146508633; PRAGMA user_version = 1;
`

// What agents before have written is read, and gone on from.
func TestOlderUsage(t *testing.T) {
	path := fileOf(t, "usage.db", firstUsage)
	u := openUsage(t, path)
	c := Counters{Share: "a", Tenant: "t", Owner: 5, Card: "GPU-a", Created: begin, CardTimeNs: 9_000_000, PromisedKiB: 1}
	m := Moment{Life: "new", Time: begin.Add(time.Minute), MonotonicNs: int64(time.Hour), BeganNs: int64(time.Hour), Cards: []CardCounters{{UUID: "GPU-a", Model: "A100", MemoryKiB: 40 << 20, EnergyUJ: -1}}}
	for range 5 {
		m.Time, m.MonotonicNs = m.Time.Add(10*time.Second), m.MonotonicNs+int64(10*time.Second)
		m.FromNs = m.MonotonicNs
		c.Ms, c.BookedKiBMs = c.Ms+10_000, c.BookedKiBMs+10_000
		m.Shares = []Counters{c}
		if err := u.Add(m); err != nil {
			t.Fatal(err)
		}
	}
	rows, _, gaps, err := u.Read(t.Context(), begin, begin.Add(time.Hour))
	want := usage.Quantities{Ms: 110_000, BookedKiBMs: 110_000, CardTimeNs: 9_000_000}
	if err != nil || len(rows) != 1 || rows[0].Quantities != want || len(gaps) != 0 {
		t.Errorf("%+v %v %v", rows, gaps, err)
	}
}

const firstFigures = `
PRAGMA auto_vacuum = INCREMENTAL;
CREATE TABLE series (id INTEGER PRIMARY KEY, share TEXT, tenant TEXT, card TEXT, until INTEGER, UNIQUE (share, tenant, card));
CREATE TABLE point (step INTEGER, time INTEGER, series INTEGER, ms NUMERIC, seenMs NUMERIC, usedBytes NUMERIC, usedBytesMin NUMERIC, usedBytesMax NUMERIC, bookedBytes NUMERIC, bookedBytesMin NUMERIC,
	bookedBytesMax NUMERIC, busyPercent NUMERIC, busyPercentMin NUMERIC, busyPercentMax NUMERIC, powerWatts NUMERIC, powerWattsMin NUMERIC, powerWattsMax NUMERIC, temperatureC NUMERIC, temperatureCMin NUMERIC,
	temperatureCMax NUMERIC, clients NUMERIC, clientsMin NUMERIC, clientsMax NUMERIC, cardTimeNs NUMERIC, waitNs NUMERIC, launches NUMERIC, denials NUMERIC, overruns NUMERIC, energyUJ NUMERIC,
	PRIMARY KEY (step, time, series)) WITHOUT ROWID;
CREATE TABLE open (share TEXT, created INTEGER, card TEXT, cardTimeNs INTEGER, waitNs INTEGER, launches INTEGER, denials INTEGER, overruns INTEGER, energyUJ INTEGER, PRIMARY KEY (share, created, card)) WITHOUT ROWID;
CREATE TABLE mark (one INTEGER PRIMARY KEY CHECK (one = 1), life TEXT, wallNs INTEGER, monotonicNs INTEGER);
CREATE TABLE event (timeNs INTEGER, life TEXT, sequence INTEGER, kind TEXT, share TEXT, card TEXT, event TEXT, PRIMARY KEY (timeNs, life, sequence)) WITHOUT ROWID;
INSERT INTO series VALUES (1, 'a', 't', 'GPU-a', 1793530800);
INSERT INTO mark VALUES (1, 'old', 1793527210000000000, 3600000000000);
PRAGMA application_id = 1146508872; PRAGMA user_version = 1;
`

func TestOlderFigures(t *testing.T) {
	statements := firstFigures
	for _, at := range []string{"10, 1793527200", "10, 1793527210", "60, 1793527200", "3600, 1793527200"} {
		statements += "INSERT INTO point (step, time, series, ms, seenMs, usedBytes, cardTimeNs) VALUES (" + at + ", 1, 10000, 10000, 7, 5);"
	}
	m := newMachine(t, DefaultBounds())
	m.f = openFigures(t, fileOf(t, "history.db", statements), DefaultBounds())
	m.restartRecorder()
	m.Time = begin.Add(10 * time.Second)
	m.share("a", false).UsedBytes = 7
	for range 3 {
		m.tick()
	}
	points := m.read(Query{Share: "a"}, "memory-used", Finest)[0].Points
	if len(points) != 5 || !points[0].Time.Equal(begin) || *points[0].Mean != 7 || *points[4].Mean != 7 {
		t.Errorf("%+v", points)
	}
}
