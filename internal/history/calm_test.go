// SPDX-License-Identifier: Apache-2.0

package history

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/usage"
)

// changes is how many rows a database has written since it was opened, by its one connection.
func changes(t testing.TB, db querier) (n int) {
	t.Helper()
	rows, err := db.Query("SELECT total_changes()")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	if !rows.Next() || rows.Scan(&n) != nil {
		t.Fatal("no number of changes")
	}
	return n
}

// What is written each time is of those that did something, however many do nothing.
func TestIdleSharesWriteNothing(t *testing.T) {
	w := newWorld(t)
	w.u.db.SetMaxOpenConns(1)
	w.idle = map[string]bool{}
	for i := range 100 {
		name := fmt.Sprint("idle-", i)
		w.add(name)
		w.idle[name] = true
	}
	w.add("busy")
	written := func(moments int) (rows int) {
		before := changes(t, w.u.db)
		for range moments {
			w.pass(10 * time.Second)
			w.tick()
		}
		return changes(t, w.u.db) - before
	}
	written(3)
	if rows := written(10); rows > 10*5 { // of the mark, the GPU and its energy, of the one and its counters
		t.Errorf("%d rows in 10 moments", rows)
	}
	delete(w.idle, "idle-7")
	if rows := written(1); rows > 5+4 { // its hour twice, its counters, and that it is no more among the idle
		t.Errorf("%d rows when one of them does something", rows)
	}
}

// Whatever shares do, each hour has what it would have if all were written each time; and after a kill
// no more, and no less by more than a moment.
func TestCalmIsTheSame(t *testing.T) {
	const shares = 4
	for seed := range uint64(8) {
		random := rand.New(rand.NewPCG(seed, 1))
		w := newWorld(t)
		w.idle = map[string]bool{}
		w.reads = time.Duration(seed%3) * 7 * time.Millisecond
		for i := range shares {
			w.add(fmt.Sprint(i)).Unnamed = seed%2 == 0 && i < 2
			w.idle[fmt.Sprint(i)] = true
		}
		w.wall = w.wall.Add(50 * time.Minute) // an hour ends before long
		killed := 0
		holds := [shares]int64{}                        // KiB, besides
		want := map[string]map[int64]usage.Quantities{} // by name and hour
		for step := range 200 {
			before := append([]Counters(nil), w.shares...)
			hour := w.wall.Unix() / 3600 * 3600
			w.pass(10 * time.Second)
			for i := range w.shares {
				w.shares[i].UsedKiBMs += 10_000 * holds[i]
			}
			switch random.IntN(15) {
			case 3:
				holds[random.IntN(shares)] = random.Int64N(3)
			case 0:
				c := &w.shares[random.IntN(shares)]
				w.idle[c.Share] = !w.idle[c.Share]
			case 1: // it holds more
				w.shares[random.IntN(shares)].UsedKiBMs += random.Int64N(1e9)
			case 2: // another one of the name
				c := &w.shares[random.IntN(shares)]
				w.ended = append(w.ended, *c)
				c.Created, c.Ms, c.BookedKiBMs, c.BookedPercentMs, c.UsedKiBMs, c.CardTimeNs = w.wall, 0, 0, 0, 0, 0
			}
			for i, c := range append(append([]Counters(nil), w.shares...), w.ended...) {
				had := Counters{}
				if i < shares && c.Created.Equal(before[i].Created) {
					had = before[i]
				}
				for _, b := range before {
					if i >= shares && b.key() == c.key() {
						had = b
					}
				}
				if want[c.shown()] == nil {
					want[c.shown()] = map[int64]usage.Quantities{}
				}
				q := want[c.shown()][hour]
				q.Add(usage.Quantities{Ms: c.Ms - had.Ms, BookedKiBMs: c.BookedKiBMs - had.BookedKiBMs, BookedPercentMs: c.BookedPercentMs - had.BookedPercentMs, UsedKiBMs: c.UsedKiBMs - had.UsedKiBMs,
					CardTimeNs: c.CardTimeNs - had.CardTimeNs})
				want[c.shown()][hour] = q
			}
			if seed >= 4 && step%100 == 50 { // killed before this moment was written
				killed++
				w.ended = nil
				if err := w.u.db.Close(); err != nil {
					t.Fatal(err)
				}
				w.u = openUsage(t, w.path)
				w.restart(0)
			}
			w.tick()
			rows, _, gaps, err := w.u.Read(t.Context(), begin, w.wall.Add(time.Hour))
			if err != nil || len(gaps) > 0 {
				t.Fatal(err, gaps)
			}
			for _, r := range rows {
				is, most := r.Quantities, want[r.Share][r.Hour.Unix()]
				is.EnergyUJ = 0
				lacks := int64(w.reads/time.Millisecond)*2 + int64(killed)*2*(10_000+int64(w.reads/time.Millisecond)*2)
				if is.Ms > most.Ms || is.BookedKiBMs > most.BookedKiBMs || is.BookedPercentMs > most.BookedPercentMs || is.UsedKiBMs > most.UsedKiBMs || is.Ms < most.Ms-lacks ||
					killed == 0 && w.reads == 0 && is != most {
					t.Fatalf("seed %d, step %d, share %s, hour %v:\n%+v, want\n%+v", seed, step, r.Share, r.Hour, is, most)
				}
			}
		}
	}
}
