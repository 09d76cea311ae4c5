// SPDX-License-Identifier: Apache-2.0

package history

import (
	"database/sql"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/usage"
)

var begin = time.Date(2026, 11, 1, 10, 0, 0, 0, time.UTC)

func openUsage(t testing.TB, path string) *Usage {
	t.Helper()
	u, err := OpenUsage(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { u.Close() })
	return u
}

// world is a machine with one GPU and shares, of which what they did is known.
type world struct {
	path   string
	t      testing.TB
	u      *Usage
	life   string
	wall   time.Time
	mono   time.Duration
	began  time.Duration
	shares []Counters
	ended  []Counters
	energy int64
	idle   map[string]bool // shares that use nothing
	reads  time.Duration   // how long it takes to read all shares
}

func newWorld(t testing.TB) *world {
	path := filepath.Join(t.TempDir(), "usage.db")
	w := &world{path: path, t: t, u: openUsage(t, path), life: "a", wall: begin, mono: time.Hour, began: time.Hour}
	w.tick()
	return w
}

func (w *world) add(name string) *Counters {
	w.shares = append(w.shares, Counters{Share: name, Tenant: "t", Card: "GPU-a", Owner: 5, Created: w.wall, PromisedKiB: 1 << 20, PromisedPercent: 25})
	return &w.shares[len(w.shares)-1]
}

// pass lets time pass, in which each share uses a fifth of the GPU.
func (w *world) pass(d time.Duration) {
	w.wall, w.mono = w.wall.Add(d), w.mono+d
	ms := d.Milliseconds()
	for i := range w.shares {
		c := &w.shares[i]
		c.Ms += ms
		c.BookedKiBMs += ms << 20
		c.BookedPercentMs += 25 * ms
		c.UsedKiBMs += ms << 19
		if !w.idle[c.Share] {
			c.CardTimeNs += int64(d) / 5
		}
	}
	w.energy += 100 * ms * 1000 // 100 W
}

// restart begins another life, after the agent was away.
func (w *world) restart(away time.Duration) {
	w.life += "x"
	w.wall, w.mono = w.wall.Add(away), w.mono+away
	w.began = w.mono
	for i := range w.shares {
		c := &w.shares[i]
		c.Ms, c.BookedKiBMs, c.BookedPercentMs, c.UsedKiBMs = 0, 0, 0, 0
		if !w.idle[c.Share] {
			c.CardTimeNs += int64(away) / 5 // programs go on
		}
	}
}

func (w *world) tick() {
	w.t.Helper()
	if err := w.u.Add(w.moment()); err != nil {
		w.t.Fatal(err)
	}
	w.ended = nil
}

func (w *world) moment() Moment {
	return Moment{Life: w.life, Time: w.wall, MonotonicNs: int64(w.mono), FromNs: int64(w.mono - w.reads), BeganNs: int64(w.began), Shares: w.shares, Ended: w.ended,
		Cards: []CardCounters{{UUID: "GPU-a", Model: "A100", MemoryKiB: 40 << 20, EnergyUJ: w.energy}}}
}

func (w *world) read() (map[string]usage.Quantities, []usage.Card, []Gap) {
	w.t.Helper()
	rows, cards, gaps, err := w.u.Read(w.t.Context(), begin.Add(-24*time.Hour), begin.Add(1000*time.Hour))
	if err != nil {
		w.t.Fatal(err)
	}
	all := map[string]usage.Quantities{}
	for _, r := range rows {
		q := all[r.Share]
		q.Add(r.Quantities)
		all[r.Share] = q
	}
	return all, cards, gaps
}

func TestHours(t *testing.T) {
	w := newWorld(t)
	w.add("a")
	for range 540 { // an hour and a half
		w.pass(10 * time.Second)
		w.tick()
	}
	all, cards, gaps := w.read()
	const ms = 5_400_000
	want := usage.Quantities{Ms: ms, BookedKiBMs: ms << 20, BookedPercentMs: 25 * ms, UsedKiBMs: ms << 19, CardTimeNs: ms * 200_000, EnergyUJ: 20 * ms * 1000}
	if all["a"] != want || len(gaps) != 0 {
		t.Errorf("%+v, want %+v; %v", all["a"], want, gaps)
	}
	if len(cards) != 2 || cards[0].Ms != 3_600_000 || cards[1].Ms != 1_800_000 || !cards[0].Hour.Equal(begin) || cards[0].EnergyUJ != 360_000_000_000 {
		t.Errorf("%+v", cards)
	}
}

// A share that is there for less than a moment counts whole; those without a name are added up.
func TestShortShares(t *testing.T) {
	w := newWorld(t)
	for i := range 100 {
		c := w.add("run-" + string(rune('a'+i%26)))
		c.Unnamed = true
		c.Created = w.wall.Add(time.Duration(i))
		w.pass(3 * time.Second)
		w.ended, w.shares = append(w.ended, w.shares[0]), nil
		if i%3 == 0 {
			w.tick()
		}
	}
	w.tick()
	all, _, _ := w.read()
	if q := all["-"]; len(all) != 1 || q.Ms != 300_000 || q.CardTimeNs != 60e9 {
		t.Errorf("%+v", all)
	}
}

// What the file does not keep of a life's counters is known by who writes it, whatever became of a
// write: nothing counts twice, and nothing is missing.
func TestFailedWrites(t *testing.T) {
	w := newWorld(t)
	w.add("a")
	want := usage.Quantities{}
	steps := func(n int) {
		for range n {
			w.pass(10 * time.Second)
			w.tick()
		}
		want.Ms += int64(n) * 10_000
	}
	fail := func() {
		if _, err := w.u.db.Exec("CREATE TRIGGER full BEFORE INSERT ON mark BEGIN SELECT RAISE(ABORT, 'full'); END"); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			w.pass(10 * time.Second)
			want.Ms += 10_000
			if err := w.u.Add(w.moment()); err == nil {
				t.Fatal("it is written")
			}
		}
		if _, err := w.u.db.Exec("DROP TRIGGER full"); err != nil {
			t.Fatal(err)
		}
	}
	steps(3)
	fail()
	steps(3)
	fail()
	steps(2)
	want.BookedKiBMs, want.BookedPercentMs, want.UsedKiBMs, want.CardTimeNs, want.EnergyUJ = want.Ms<<20, 25*want.Ms, want.Ms<<19, want.Ms*200_000, 20*want.Ms*1000
	if all, _, _ := w.read(); all["a"] != want {
		t.Errorf("%+v, want %+v", all["a"], want)
	}
}

// A file that is opened anew in the same life lacks one moment at most, and has nothing twice.
func TestOpenedAnew(t *testing.T) {
	w := newWorld(t)
	w.add("a")
	const steps = 5
	for range steps {
		w.pass(10 * time.Second)
		w.tick()
	}
	w.u.bases = nil
	for range steps {
		w.pass(10 * time.Second)
		w.tick()
	}
	all, _, _ := w.read()
	q, ms := all["a"], int64((2*steps-1)*10_000)
	if q.Ms != ms || q.UsedKiBMs != ms<<19 || q.CardTimeNs != 2*steps*2e9 {
		t.Errorf("%+v", q)
	}
}

// An agent that is away for a minute at most has its shares pay for it; for longer, nobody does,
// and it is listed. GPU time comes back by its counters.
func TestAgentAway(t *testing.T) {
	for _, c := range []struct {
		away   time.Duration
		booked int64
		gaps   int
	}{{40 * time.Second, 100_000, 0}, {time.Hour, 100_000, 1}} {
		w := newWorld(t)
		w.add("a")
		w.pass(50 * time.Second)
		w.tick()
		w.restart(c.away)
		if c.gaps == 0 {
			w.pass(10 * time.Second) // within the minute
		} else {
			w.pass(50 * time.Second)
		}
		w.tick()
		all, cards, gaps := w.read()
		q := all["a"]
		if q.Ms != c.booked || q.BookedKiBMs != c.booked<<20 || len(gaps) != c.gaps {
			t.Errorf("away for %v: %d ms, want %d; gaps %v", c.away, q.Ms, c.booked, gaps)
		}
		if want := w.shares[0].CardTimeNs; q.CardTimeNs != want {
			t.Errorf("away for %v: GPU time %d, want %d", c.away, q.CardTimeNs, want)
		}
		ms := int64(0)
		for _, k := range cards {
			ms += k.Ms
		}
		if ms != 100_000 { // without the gap
			t.Errorf("away for %v: the GPU was there for %d ms", c.away, ms)
		}
	}
}

// An agent that cannot write for long after it began was there nevertheless.
func TestNoGapWhileWritesFail(t *testing.T) {
	w := newWorld(t)
	w.add("a")
	w.pass(50 * time.Second)
	w.tick()
	w.restart(5 * time.Second)
	w.pass(3 * time.Minute) // and nothing is written
	w.tick()
	all, cards, gaps := w.read()
	if all["a"].Ms != 235_000 || all["a"].BookedKiBMs != 235_000<<20 || len(cards) != 1 || cards[0].Ms != 235_000 || len(gaps) != 0 {
		t.Errorf("%+v %+v %v", all["a"], cards, gaps)
	}
}

// An agent that was killed comes back with counters of before: nothing counts twice, and nothing
// is more than what was. So it is with a moment that could not be written.
func TestNothingCountsTwice(t *testing.T) {
	w := newWorld(t)
	c := w.add("a")
	random := rand.New(rand.NewPCG(1, 2))
	truth := int64(0)
	for range 200 {
		d := time.Duration(random.Int64N(int64(20 * time.Second)))
		w.pass(d)
		truth += int64(d) / 5
		if random.IntN(3) > 0 {
			w.tick()
		}
		if random.IntN(4) == 0 { // killed: up to a second of GPU time was not saved
			lost := min(random.Int64N(int64(time.Second)/5), c.CardTimeNs)
			w.restart(0)
			c.CardTimeNs -= lost
			truth -= lost
		}
	}
	w.tick()
	all, _, _ := w.read()
	// What the counters lost between two moments was counted once at most.
	if q := all["a"]; q.CardTimeNs > truth+200*int64(time.Second)/5 || q.CardTimeNs < truth-int64(time.Second) {
		t.Errorf("GPU time %v, in truth %v", time.Duration(q.CardTimeNs), time.Duration(truth))
	}
}

// A clock that is set names no hour that was before, and no time passes by it.
func TestClockIsSet(t *testing.T) {
	w := newWorld(t)
	w.add("a")
	w.pass(10 * time.Second)
	w.tick()
	for _, jump := range []time.Duration{time.Hour, -2 * time.Hour, time.Hour} {
		w.wall = w.wall.Add(jump)
		for range 6 {
			w.pass(10 * time.Second)
			w.tick()
		}
	}
	all, _, gaps := w.read()
	if q := all["a"]; q.Ms != 190_000 || q.CardTimeNs != 38e9 || len(gaps) != 0 {
		t.Errorf("%+v %v", q, gaps)
	}
}

// What moments have of a millisecond adds up.
func TestWholeMilliseconds(t *testing.T) {
	w := newWorld(t)
	for range 1000 {
		w.pass(time.Second + 600*time.Microsecond)
		w.tick()
	}
	if _, cards, _ := w.read(); len(cards) != 1 || cards[0].Ms != 1_000_600 {
		t.Errorf("%+v", cards)
	}
}

// A GPU that is not there any more is in no hour, though a share has it with others.
func TestAbsentGPU(t *testing.T) {
	w := newWorld(t)
	w.add("a")
	w.add("b").Card = "GPU-gone"
	w.pass(10 * time.Second)
	w.tick()
	w.restart(20 * time.Second)
	w.tick()
	all, cards, _ := w.read()
	if _, there := all["b"]; there || all["a"].Ms != 30_000 || len(cards) != 1 {
		t.Errorf("%+v %+v", all, cards)
	}
}

// Each closed hour is to be told once; a file of the first agents is one of which none was.
func TestToldHours(t *testing.T) {
	w := newWorld(t)
	w.add("a")
	if _, err := w.u.db.Exec("DROP TABLE told"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.u.db.Exec(usageLater); err != nil {
		t.Fatal(err)
	}
	for range 30 {
		w.pass(10 * time.Minute)
		w.tick()
	}
	untold := func() []Closed {
		t.Helper()
		hours, err := w.u.Untold(3)
		if err != nil {
			t.Fatal(err)
		}
		return hours
	}
	told := []Closed{}
	for hours := untold(); len(hours) > 0; hours = untold() {
		if again := untold(); len(again) != len(hours) || again[0] != hours[0] {
			t.Fatalf("%v, and then %v", hours, again)
		}
		told = append(told, hours[0])
		if err := w.u.Told(hours[0].Hour); err != nil {
			t.Fatal(err)
		}
	}
	if len(told) != 4 || !told[0].Hour.Equal(begin) || told[3].Hour.Sub(told[0].Hour) != 3*time.Hour || len(told[0].Digest) != 64 {
		t.Errorf("%v", told)
	}
}

// A closed hour does not change; somebody who changes it is found out.
func TestClosedHours(t *testing.T) {
	w := newWorld(t)
	w.add("a")
	for range 63 {
		w.pass(time.Minute)
		w.tick()
	}
	if _, _, _, err := w.u.Read(w.t.Context(), begin, begin.Add(2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.u.db.Exec("UPDATE hour SET cardTimeNs = cardTimeNs - 1 WHERE hour = ?", begin.Unix()); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := w.u.Read(w.t.Context(), begin, begin.Add(2*time.Hour)); !errors.Is(err, ErrChanged) {
		t.Errorf("a changed hour: %v", err)
	}
	if _, _, _, err := w.u.Read(w.t.Context(), begin.Add(time.Hour), begin.Add(2*time.Hour)); err != nil {
		t.Errorf("the hour after it: %v", err)
	}
}

// Files that are not ours, or of a newer version, are left as they are.
func TestForeignFiles(t *testing.T) {
	folder := t.TempDir()
	newer := filepath.Join(folder, "newer.db")
	openUsage(t, newer).Close()
	foreign := filepath.Join(folder, "foreign.db")
	for path, statement := range map[string]string{newer: "PRAGMA user_version = 99", foreign: "CREATE TABLE theirs (x)"} {
		db, err := sql.Open("sqlite", path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
		db.Close()
	}
	text := filepath.Join(folder, "text.db")
	if err := os.WriteFile(text, []byte("no database, but long enough to look at, and of somebody else"), 0o600); err != nil {
		t.Fatal(err)
	}
	before, _ := os.ReadFile(text)
	theirs, _ := os.ReadFile(foreign)
	if _, err := OpenUsage(newer); !errors.Is(err, ErrNewer) {
		t.Errorf("newer: %v", err)
	}
	if _, err := OpenUsage(foreign); !errors.Is(err, ErrForeign) {
		t.Errorf("foreign: %v", err)
	}
	if _, err := OpenUsage(text); err == nil {
		t.Error("a text is a database")
	}
	if after, _ := os.ReadFile(text); string(after) != string(before) {
		t.Error("it was changed")
	}
	if after, _ := os.ReadFile(foreign); len(theirs) == 0 || string(after) != string(theirs) {
		t.Error("somebody else's database was changed")
	}
	info, err := os.Stat(newer)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v (%v)", info.Mode(), err)
	}
}

// A thousand shares, as the agent adds them every ten seconds.
func BenchmarkAdd(b *testing.B) {
	w := newWorld(b)
	for i := range 1000 {
		w.add("share-" + strconv.Itoa(i))
	}
	for b.Loop() {
		w.pass(10 * time.Second)
		w.tick()
	}
}
