// SPDX-License-Identifier: Apache-2.0

package history

import (
	"database/sql"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
)

// The oldest of the finest goes first, and the file does not grow past its bound.
func TestBoundOfBytes(t *testing.T) {
	bounds := Bounds{Bytes: logBytes + 192<<10, Days: 400}
	m := newMachine(t, bounds)
	for i := range 15 {
		m.share("share-"+strconv.Itoa(i), false)
	}
	most := int64(0)
	for i := range 240 {
		for s := range m.Shares {
			slot := &m.Shares[s].Cards[0]
			slot.UsedBytes = uint64(i*1000003+s*7919) << 8
			*slot.CardTimeNs += uint64(i + s)
		}
		m.tick()
		size, err := m.f.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, size)
	}
	if most > bounds.Bytes {
		t.Errorf("the files had %d bytes, and %d are the most", most, bounds.Bytes)
	}
	spans := map[int64]span{}
	for _, l := range levels {
		var s span
		if err := m.f.db.QueryRow("SELECT min(time), max(time) FROM point WHERE step = ?", l.seconds).Scan(&s.oldest, &s.newest); err != nil {
			t.Fatal(err)
		}
		spans[l.seconds] = s
	}
	if spans[10].oldest <= begin.Unix()+300 || spans[60].oldest > begin.Unix()+60 || spans[3600].oldest != begin.Unix() {
		t.Errorf("%+v since %d", spans, begin.Unix())
	}
	if got := sum(m.read(Query{Share: "share-7"}, "card-time", time.Hour)); got == 0 {
		t.Error("the hours are gone")
	}
	if err := m.f.Close(); err != nil {
		t.Fatal(err)
	}
	m.f = openFigures(t, m.f.path, Bounds{Bytes: logBytes + 96<<10, Days: 400}) // the file gives back what is over
	for range 2 {
		m.pass(time.Minute)
		m.tick()
	}
	if info, err := os.Stat(m.f.path); err != nil || info.Size() > 160<<10 {
		t.Errorf("the file has %d bytes, %v", info.Size(), err)
	}
	var is string
	if err := m.f.db.QueryRow("PRAGMA integrity_check").Scan(&is); err != nil || is != "ok" {
		t.Errorf("%s, %v", is, err)
	}
}

func TestBoundOfDays(t *testing.T) {
	m := newMachine(t, Bounds{Bytes: 200 << 20, Days: 10})
	first := begin
	for range 20 {
		m.tick()
		m.pass(24 * time.Hour)
	}
	m.tick()
	for step, days := range map[int64]int64{10: 1, 60: 7, 3600: 10} {
		var oldest int64
		if err := m.f.db.QueryRow("SELECT min(time) FROM point WHERE step = ?", step).Scan(&oldest); err != nil {
			t.Fatal(err)
		}
		if age := m.Time.Unix() - oldest; age > days*86400 || age < (days-1)*86400 {
			t.Errorf("of %d s there are some of %v before", step, time.Duration(age)*time.Second)
		}
	}
	if m.Time.Sub(first) < 20*24*time.Hour {
		t.Error("no time has passed")
	}
}

func TestNextToGo(t *testing.T) {
	for _, c := range []struct {
		spans  [len(levels)]span
		level  int
		before int64
		ok     bool
	}{
		{[len(levels)]span{{0, 86400}, {0, 86400}, {0, 86400}}, 0, 2700, true},
		{[len(levels)]span{{0, 50}, {0, 86400}, {0, 86400}}, 1, 2700, true},
		{[len(levels)]span{{0, 60}, {0, 86400}, {0, 86400}}, 0, 10, true},
		{[len(levels)]span{{0, 50}, {0, 300}, {0, 86400}}, 2, 3600, true},
		{[len(levels)]span{{0, 50}, {0, 300}, {0, 18000}}, 0, 0, false},
		{[len(levels)]span{{80000, 1 << 40}, {0, 0}, {0, 0}}, 0, 80200, true}, // somebody set the clock
		{[len(levels)]span{}, 0, 0, false},
	} {
		if level, before, ok := nextToGo(c.spans, 86400); level != c.level || before != c.before || ok != c.ok {
			t.Errorf("%v: %d %d %v", c.spans, level, before, ok)
		}
	}
}

// Events are kept once, some at most, and not for ever.
func TestEventsOfHistory(t *testing.T) {
	m := newMachine(t, Bounds{Bytes: 4 << 20, Days: 400})
	count := func() (n int) {
		t.Helper()
		if err := m.f.db.QueryRow("SELECT count(*) FROM event").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	write := func(events ...api.Event) {
		t.Helper()
		m.pass(time.Minute)
		if err := m.f.Write(m.r.Take(), events, m.Time); err != nil {
			t.Fatal(err)
		}
	}
	one := api.Event{Sequence: 5, Life: "a", Time: m.Time, Kind: "denied", Share: "a", Message: "no"}
	write(one, one, api.Event{Sequence: 4, Time: m.Time, Kind: "events-dropped"})
	write(one)
	if n := count(); n != 1 {
		t.Errorf("%d events", n)
	}
	var many []api.Event
	for i := range 3000 {
		many = append(many, api.Event{Sequence: uint64(10 + i), Life: "a", Time: m.Time, Kind: "denied"})
	}
	write(many...)
	if n := count(); n != 2048 {
		t.Errorf("%d events", n)
	}
	m.pass(8 * 24 * time.Hour)
	write()
	if n := count(); n != 0 {
		t.Errorf("%d events after a week", n)
	}
}

// Events of a time are read in order, of one share or GPU alone where that is asked, the latest of many.
func TestReadEvents(t *testing.T) {
	m := newMachine(t, DefaultBounds())
	from := m.Time
	var all []api.Event
	for i := range 5 {
		all = append(all, api.Event{Sequence: uint64(i + 1), Life: "a", Time: from.Add(time.Duration(i) * time.Second), Kind: "denied", Share: []string{"a", "b"}[i%2], CardUUID: []string{"GPU-one", "GPU-two"}[i/3]})
	}
	slices.Reverse(all)
	m.pass(time.Minute)
	if err := m.f.Write(m.r.Take(), all, m.Time); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		q    EventQuery
		want []uint64
	}{
		{EventQuery{From: from, To: m.Time}, []uint64{1, 2, 3, 4, 5}},
		{EventQuery{From: from.Add(time.Second), To: from.Add(3 * time.Second)}, []uint64{2, 3}},
		{EventQuery{From: from, To: m.Time, Share: "b"}, []uint64{2, 4}},
		{EventQuery{From: from, To: m.Time, Share: "%"}, nil},
		{EventQuery{From: from, To: m.Time, Card: "GPU-t"}, []uint64{4, 5}},
		{EventQuery{From: from, To: m.Time, Card: "GPU-one", Share: "a"}, []uint64{1, 3}},
	} {
		again, err := ParseEventQuery(c.q.Values())
		if err != nil || again.Share != c.q.Share || again.Card != c.q.Card {
			t.Errorf("%+v: %+v, %v", c.q, again, err)
		}
		answer, err := m.f.Events(t.Context(), c.q)
		var got []uint64
		for _, e := range answer.Events {
			got = append(got, e.Sequence)
		}
		if err != nil || !slices.Equal(got, c.want) || answer.LeftOut != 0 {
			t.Errorf("%+v: %v, want %v (%v)", c.q, got, c.want, err)
		}
	}
	all = nil
	for i := range mostEventsRead + 3 {
		all = append(all, api.Event{Sequence: uint64(100 + i), Life: "a", Time: m.Time, Kind: "denied"})
	}
	if err := m.f.Write(m.r.Take(), all, m.Time); err != nil {
		t.Fatal(err)
	}
	answer, err := m.f.Events(t.Context(), EventQuery{From: from, To: m.Time.Add(time.Hour)})
	if err != nil || answer.LeftOut != 8 || len(answer.Events) != mostEventsRead || answer.Events[0].Sequence != 103 {
		t.Errorf("%d left out, %d events, %v", answer.LeftOut, len(answer.Events), err)
	}
	if _, err := m.f.Events(t.Context(), EventQuery{From: m.Time, To: from}); err == nil {
		t.Error("from after to is no error")
	}
}

// What cannot be written waits, some of it at most: the oldest goes, and the rest is as it was.
func TestFiguresWait(t *testing.T) {
	m := newMachine(t, DefaultBounds())
	slot := m.share("a", false)
	m.tick()
	for range 60 {
		*slot.CardTimeNs += 1e9
		m.pass(Finest)
		m.see()
	}
	m.write()
	if got := sum(m.read(Query{Share: "a"}, "card-time", time.Minute)); got != 60e9 {
		t.Errorf("%d", got)
	}
	for i := range 100 {
		m.share("b"+strconv.Itoa(i), false)
	}
	for range 560 {
		m.pass(Finest)
		m.see()
	}
	if m.r.rows > pendingRows || m.r.rows < pendingRows-200 {
		t.Errorf("%d rows wait", m.r.rows)
	}
}

// Files that are not ours, or of a newer version, are left as they are; one that is damaged can be
// put aside.
func TestFilesOfOthers(t *testing.T) {
	folder := t.TempDir()
	newer, theirs, billed := filepath.Join(folder, "newer.db"), filepath.Join(folder, "theirs.db"), filepath.Join(folder, "usage.db")
	openFigures(t, newer, DefaultBounds()).Close()
	openUsage(t, billed).Close()
	for path, statement := range map[string]string{newer: "PRAGMA user_version = 99", theirs: "CREATE TABLE theirs (x)"} {
		db, err := sql.Open("sqlite", path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
		db.Close()
	}
	for path, want := range map[string]error{newer: ErrNewer, theirs: ErrForeign, billed: ErrForeign} {
		before, _ := os.ReadFile(path)
		if _, err := OpenFigures(path, DefaultBounds()); !errors.Is(err, want) || Damaged(err) {
			t.Errorf("%s: %v", path, err)
		}
		if after, _ := os.ReadFile(path); len(before) == 0 || string(after) != string(before) {
			t.Errorf("%s was changed", path)
		}
	}
}

func TestDamagedFile(t *testing.T) {
	for name, damage := range map[string]func([]byte){
		"head":   func(raw []byte) { copy(raw, "not a database at all, any more") },
		"tables": func(raw []byte) { clear(raw[100:4096]) },
		"points": func(raw []byte) {
			for i := 4096; i < len(raw); i++ {
				raw[i] = byte(i * 7)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, DefaultBounds())
			m.share("a", false)
			for range 50 {
				m.tick()
			}
			if err := m.f.Close(); err != nil {
				t.Fatal(err)
			}
			raw, err := os.ReadFile(m.f.path)
			if err != nil {
				t.Fatal(err)
			}
			damage(raw)
			if err := os.WriteFile(m.f.path, raw, 0o600); err != nil {
				t.Fatal(err)
			}
			f, err := OpenFigures(m.f.path, DefaultBounds())
			if err == nil {
				m.f = f
				m.pass(Finest)
				m.see()
				err = f.Write(m.r.Take(), nil, m.Time)
				f.Close()
			}
			if !Damaged(err) {
				t.Fatalf("%v", err)
			}
			kept, err := SetAside(m.f.path)
			if err != nil {
				t.Fatal(err)
			}
			if is, _ := os.ReadFile(kept); name != "points" && string(is) != string(raw) { // that was found while writing
				t.Error("it is not kept as it was")
			}
			m.f = openFigures(t, m.f.path, DefaultBounds())
			m.tick()
			if got := m.read(Query{Share: "a"}, "memory-used", Finest); len(got) != 1 || len(got[0].Points) == 0 {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestManyPoints(t *testing.T) {
	m := newMachine(t, DefaultBounds())
	for i := range 50 {
		m.share(fmt.Sprint("s", i), false)
	}
	m.tick()
	launches, err := ParseFigure("launches")
	if err != nil {
		t.Fatal(err)
	}
	q := Query{Figure: launches, From: begin.Add(-time.Hour), To: begin.Add(time.Hour), Step: Finest}
	for {
		answer, err := m.f.Read(t.Context(), q)
		many, is := errors.AsType[*ManyPointsError](err)
		if !is {
			if err != nil || len(answer.Series) != 50 || q.Step != time.Minute {
				t.Errorf("%d series by %v, %v", len(answer.Series), q.Step, err)
			}
			return
		}
		if many.Step <= q.Step {
			t.Fatalf("%v would do, of %v", many.Step, q.Step)
		}
		q.Step = many.Step
	}
}

func TestStepFor(t *testing.T) {
	for _, c := range []struct {
		span   time.Duration
		points int
		want   string
	}{{time.Hour, 60, "1m"}, {time.Hour, 360, "10s"}, {time.Hour, 359, "20s"}, {24 * time.Hour, 100, "15m"}, {400 * 24 * time.Hour, 10_000, "1h"}, {time.Minute, 0, "9600h"}} {
		if got := StepText(StepFor(c.span, c.points)); got != c.want {
			t.Errorf("%v in %d: %s, want %s", c.span, c.points, got, c.want)
		}
	}
}

func TestBoundsValidate(t *testing.T) {
	for _, c := range []struct {
		Bounds
		ok, off bool
	}{{DefaultBounds(), true, false}, {PrivateBounds(), true, false}, {Bounds{0, 400}, true, true}, {Bounds{200 << 20, 0}, true, true}, {Bounds{1 << 20, 1}, false, false},
		{Bounds{-1, 1}, false, false}, {Bounds{200 << 20, 401}, false, false}, {Bounds{200 << 20, -1}, false, false}} {
		if err := c.Validate(); (err == nil) != c.ok || c.Off() != c.off {
			t.Errorf("%+v: %v, off %v", c.Bounds, err, c.Off())
		}
	}
}

// Any question is refused, or is one of a bounded number of points which is understood as it was meant.
func FuzzParseQuery(f *testing.F) {
	f.Add("figure=memory-used&from=2026-11-01T10:00:00Z&to=2026-11-01T11:00:00Z&step=60&share=a")
	f.Add("figure=busy&from=2026-11-01T10:00:00Z&to=2026-11-01T11:00:00%2B01:00&step=10&card=GPU-1")
	f.Add("figure=wait&from=1970-01-01T00:00:00Z&to=2200-01-01T00:00:00Z&step=34560000&tenant=t")
	f.Add("figure=memoryused&step=-1")
	f.Fuzz(func(t *testing.T, text string) {
		values, err := url.ParseQuery(text)
		if err != nil {
			return
		}
		q, err := ParseQuery(values)
		if err != nil {
			_, many := errors.AsType[*ManyPointsError](err)
			if _, wrong := errors.AsType[QueryError](err); !many && !wrong {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		from, to, step := q.span()
		if points := (to - from) / step; points < 1 || points > mostPoints || from > q.From.Unix() || to < q.To.Unix() {
			t.Fatalf("%q: from %d to %d by %d", text, from, to, step)
		}
		again, err := ParseQuery(q.Values())
		if err != nil || !again.From.Equal(q.From.Truncate(time.Second)) || again.Step != q.Step || again.Share != q.Share || again.Card != q.Card || again.Tenant != q.Tenant {
			t.Fatalf("%q: %+v became %+v, %v", text, q, again, err)
		}
	})
}

// A thousand shares, as the agent adds them every ten seconds.
func BenchmarkWrite(b *testing.B) {
	m := newMachine(b, DefaultBounds())
	for i := range 1000 {
		m.share("share-"+strconv.Itoa(i), false)
	}
	for b.Loop() {
		for i := range m.Shares {
			*m.Shares[i].Cards[0].CardTimeNs += 1e9
		}
		m.tick()
	}
}

// All levels have the same of a time, also right after a write, after an agent was killed, and
// where the clock is set.
func TestLevelsAgree(t *testing.T) {
	for seed := range uint64(4) {
		random := rand.New(rand.NewPCG(seed, 0))
		m := newMachine(t, DefaultBounds())
		path := m.f.path
		slot := m.share("a", false)
		other := m.share("b", false)
		for range 100 {
			*slot.CardTimeNs += random.Uint64N(1e9)
			*slot.Launches += random.Uint64N(100)
			*other.CardTimeNs += 5
			switch random.IntN(12) {
			case 0: // killed
				if err := m.f.db.Close(); err != nil {
					t.Fatal(err)
				}
				m.f = openFigures(t, path, DefaultBounds())
				m.restart(time.Duration(random.IntN(200)) * time.Second)
			case 1: // ended
				if err := m.f.Close(); err != nil {
					t.Fatal(err)
				}
				m.f = openFigures(t, path, DefaultBounds())
				m.restart(time.Duration(random.IntN(20)) * time.Second)
			case 2:
				m.Time = m.Time.Add(time.Duration(random.IntN(7200)-3600) * time.Second)
			case 3:
				m.pass(time.Duration(random.IntN(300)) * time.Second)
			}
			m.tick()
			of := Query{Share: "a", From: m.Time.Add(-13 * time.Hour).Truncate(time.Hour), To: m.Time.Add(13 * time.Hour).Truncate(time.Hour)}
			var sums [2][len(levels)]int64
			var seen [len(levels)]float64
			for i, l := range levels {
				step := time.Duration(l.seconds) * time.Second
				for n, figure := range []string{DefaultFigure, "launches"} {
					sums[n][i] = sum(m.read(of, figure, step))
				}
				for _, s := range m.read(of, "memory-limit", step) {
					for _, p := range s.Points {
						seen[i] += p.Seconds
					}
				}
			}
			for i := range levels {
				if sums[0][i] != sums[0][0] || sums[1][i] != sums[1][0] || math.Abs(seen[i]-seen[0]) > 0.01 {
					t.Fatalf("seed %d, %v: by levels %v, seen for %v s", seed, m.Time, sums, seen)
				}
			}
		}
	}
}
