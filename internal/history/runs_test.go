// SPDX-License-Identifier: Apache-2.0

package history

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
)

// plain has each level's row of each time and series: what a file would have that writes all of them.
type plain [len(levels)]map[int64]map[Series]Row

func (p *plain) add(b Batch) {
	for _, begin := range slices.Sorted(maps.Keys(b.rows)) {
		for i, l := range levels {
			at := bucketRows{bucket(begin, l.seconds), nil}
			if p[i] == nil {
				p[i] = map[int64]map[Series]Row{}
			}
			at.rows = p[i][at.begin]
			at.merge(b.rows[begin])
			p[i][at.begin] = at.rows
		}
	}
}

// compare says where a file answers otherwise. A kill may have another order of sums, which rounds otherwise.
func (p *plain) compare(t *testing.T, m *machine, when string) {
	t.Helper()
	near := func(a, b float64) bool { return math.Abs(a-b) <= 1e-6*max(math.Abs(a), 1) }
	names := map[Series]bool{}
	for _, rows := range p[len(levels)-1] {
		for name := range rows {
			names[name] = true
		}
	}
	for name := range names {
		for _, figure := range Figures() {
			q := Query{Figure: figure, Share: name.Share, From: m.Time.Add(-5 * time.Hour).Truncate(time.Hour), To: m.Time.Add(5 * time.Hour).Truncate(time.Hour)}
			if name.Share == "" {
				q.Card = name.Card
			}
			if name.Share == "" && !figure.OfCards || name.Share != "" && !figure.OfShares {
				continue
			}
			for i, l := range levels {
				answer, err := m.f.Read(t.Context(), Query{Figure: figure, Share: q.Share, Card: q.Card, From: q.From, To: q.To, Step: time.Duration(l.seconds) * time.Second})
				if err != nil {
					t.Fatal(err)
				}
				var got []api.HistoryPoint
				if len(answer.Series) > 0 {
					got = answer.Series[0].Points
				}
				n := 0
				for _, at := range slices.Sorted(maps.Keys(p[i])) {
					row, is := p[i][at][name]
					if !is || !row.has(figure) || at < q.From.Unix() || at >= q.To.Unix() {
						continue
					}
					want := q.points([]timedRow{{at, row}})[0]
					if n >= len(got) || !got[n].Time.Equal(want.Time) || !near(got[n].Seconds, want.Seconds) {
						t.Fatalf("%s: %v, %s by %d s, at %v: %+v of %d, want %+v", when, name, figure.Name, l.seconds, want.Time, got[min(n, len(got)-1):], len(got), want)
					}
					if figure.Counter && *got[n].Sum != *want.Sum || !figure.Counter && !(near(*got[n].Mean, *want.Mean) && near(*got[n].Min, *want.Min) && near(*got[n].Max, *want.Max)) {
						t.Fatalf("%s: %v, %s by %d s, at %v: otherwise", when, name, figure.Name, l.seconds, want.Time)
					}
					n++
				}
				if n != len(got) {
					t.Fatalf("%s: %v, %s by %d s: %d points, want %d", when, name, figure.Name, l.seconds, len(got), n)
				}
			}
		}
	}
}

// Whatever happens, all is answered as if each row had been written.
func TestRunsAreTheSame(t *testing.T) {
	for seed := range uint64(6) {
		random := rand.New(rand.NewPCG(seed, 5))
		m := newMachine(t, DefaultBounds())
		m.Time = m.Time.Add(50 * time.Minute) // an hour ends before long
		path := m.f.path
		for i := range 3 {
			m.share(fmt.Sprint("s", i), i == 2)
		}
		m.Shares[1].Cards[0].CardTimeNs = nil
		var twin plain
		write := func() {
			twin.add(m.r.Take())
			m.write()
		}
		for step := range 120 {
			switch random.IntN(20) {
			case 0: // killed: what is written is there
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
				m.restart(time.Duration(random.IntN(5)) * time.Second)
			case 2:
				if seed%2 == 0 {
					m.Time = m.Time.Add(time.Duration(random.IntN(1200)-600) * time.Second)
				}
			case 3:
				m.pass(time.Duration(random.IntN(300)) * time.Second)
			case 4: // somebody looks
				for range random.IntN(25) {
					m.pass(time.Second + time.Duration(random.IntN(3))*time.Millisecond)
					m.see()
				}
			case 5:
				*m.Shares[0].Cards[0].CardTimeNs += random.Uint64N(1e9)
			case 6:
				m.Shares[random.IntN(len(m.Shares))].Cards[0].UsedBytes = random.Uint64N(4) << 20
			case 7: // one goes, and another comes
				last := len(m.Shares) - 1
				m.Shares = m.Shares[:last]
			case 8:
				m.share(fmt.Sprint("new", step%2), false)
				if len(m.Shares) > 5 {
					m.Shares = m.Shares[:5]
				}
			}
			for len(m.Shares) < 2 {
				m.share(fmt.Sprint("s", len(m.Shares)), false)
			}
			m.pass(Finest + time.Duration(random.IntN(3))*time.Millisecond)
			m.see()
			write()
			if step%10 == 9 {
				twin.compare(t, m, fmt.Sprintf("seed %d, step %d", seed, step))
			}
		}
	}
}

// Of what stays as it is one row is written for all, each ten seconds and each minute; the hour's every five
// minutes.
func TestIdleFiguresWriteNothing(t *testing.T) {
	m := newMachine(t, DefaultBounds())
	m.f.db.SetMaxOpenConns(1)
	const idle = 100
	for i := range idle {
		m.share(fmt.Sprint("idle-", i), false)
	}
	busy := m.share("busy", false)
	written := func(moments int) (rows int) {
		before := changes(t, m.f.db)
		for range moments {
			*busy.CardTimeNs += 1 + *busy.CardTimeNs/2
			m.tick()
		}
		return changes(t, m.f.db) - before
	}
	written(2*6 + 1)
	// The mark and a tick; the busy one, its GPU's time, and the counters of the busy one. Each minute a tick and the
	// two that are not idle, twice. Every five minutes hours of all.
	if rows, most := written(60), 60*5+10*2*3+2*(idle+2); rows > most {
		t.Errorf("%d rows in 10 minutes, %d are the most", rows, most)
	}
	m.Shares[7].Cards[0].UsedBytes = 1 << 20
	if rows := written(1); rows > 5+2+2*2+idle+2 {
		t.Errorf("%d rows when one of them holds more", rows)
	}
}

// What is let go of leaves what goes on.
func TestBoundKeepsRuns(t *testing.T) {
	m := newMachine(t, Bounds{Bytes: logBytes + 192<<10, Days: 400})
	for i := range 15 {
		m.share(fmt.Sprint("share-", i), false)
	}
	m.share("other", false)
	m.share("still", false)
	still := &m.Shares[16].Cards[0] // there are no more
	still.UsedBytes = 77
	for i := range 240 {
		for s := range 15 {
			slot := &m.Shares[s].Cards[0]
			slot.UsedBytes = uint64(i*1000003+s*7919) << 8
		}
		m.tick()
	}
	var oldest int64
	if err := m.f.db.QueryRow("SELECT min(time) FROM point WHERE step = 10").Scan(&oldest); err != nil {
		t.Fatal(err)
	}
	if oldest <= begin.Unix()+300 {
		t.Fatalf("nothing was let go of, since %d", oldest-begin.Unix())
	}
	got := m.read(Query{Share: "still", From: time.Unix(oldest, 0)}, "memory-used", Finest)[0].Points
	if want := int((m.Time.Unix()-oldest)/10) + 1; len(got) != want || *got[0].Mean != 77 || *got[len(got)-1].Mean != 77 {
		t.Errorf("%d points, want %d: %+v", len(got), want, got)
	}
	still.UsedBytes = 78 // what went on ends, though it began with what is gone
	m.tick()
	m.tick()
	got = m.read(Query{Share: "still", From: time.Unix(oldest, 0)}, "memory-used", Finest)[0].Points
	if last := got[len(got)-2:]; *last[0].Mean != 78 || *last[1].Mean != 78 {
		t.Errorf("then it held %v and %v", *last[0].Mean, *last[1].Mean)
	}
	var ticks int
	if err := m.f.db.QueryRow("SELECT count(*) FROM tick WHERE step = 10 AND time < ?", oldest).Scan(&ticks); err != nil || ticks > 0 {
		t.Errorf("%d ticks before all rows, %v", ticks, err)
	}
}
