// SPDX-License-Identifier: Apache-2.0

package history

import (
	"errors"
	"math"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	_ "modernc.org/sqlite" // the database

	"github.com/divvy-gpu/divvy/internal/api"
)

const gpuA = "GPU-a"

// machine is one with a GPU and shares, as snapshots show it, of which the history is kept.
type machine struct {
	t testing.TB
	f *FiguresFile
	r *Recorder
	api.Snapshot
}

func newMachine(t testing.TB, bounds Bounds) *machine {
	m := &machine{t: t, f: openFigures(t, filepath.Join(t.TempDir(), "history.db"), bounds)}
	m.Time, m.MonotonicNs, m.Life = begin, uint64(time.Hour), "a"
	m.Cards = []api.SnapshotCard{{UUID: gpuA, MemoryBytes: 40 << 30}}
	m.restartRecorder()
	return m
}

func openFigures(t testing.TB, path string, bounds Bounds) *FiguresFile {
	t.Helper()
	f, err := OpenFigures(path, bounds)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// restartRecorder is another agent, which has what is in the file.
func (m *machine) restartRecorder() {
	m.t.Helper()
	left, err := m.f.Left()
	if err != nil {
		m.t.Fatal(err)
	}
	m.r = NewRecorder(left)
}

// restart is another life of the agent, after some time: what is gone is forgotten.
func (m *machine) restart(away time.Duration) {
	m.pass(away)
	m.Life += "x"
	m.Gone = nil
	m.restartRecorder()
}

func (m *machine) pass(d time.Duration) {
	m.Time, m.MonotonicNs = m.Time.Add(d), m.MonotonicNs+uint64(d)
}

func (m *machine) share(name string, unnamed bool) *api.SnapshotSlot {
	m.Shares = append(m.Shares, api.SnapshotShare{Name: name, Tenant: "t", Unnamed: unnamed, Created: m.Time, Cards: []api.SnapshotSlot{
		{CardUUID: gpuA, LimitBytes: 1 << 30, CardTimeNs: new(uint64), WaitNs: new(uint64), Launches: new(uint64)}}})
	return &m.Shares[len(m.Shares)-1].Cards[0]
}

// see makes a snapshot, with the sums that the sampler makes.
func (m *machine) see() {
	s := m.Snapshot
	s.Cards = append([]api.SnapshotCard(nil), s.Cards...)
	for i := range s.Cards {
		c := &s.Cards[i]
		c.UsedBytes, c.ShareTimeNs = 0, 0
		for _, share := range s.Shares {
			c.UsedBytes += share.Cards[0].UsedBytes
			if used := share.Cards[0].CardTimeNs; used != nil {
				c.ShareTimeNs += *used
			}
		}
		for _, gone := range s.Gone {
			c.ShareTimeNs += gone.CardTimeNs
		}
	}
	m.r.Add(&s)
}

func (m *machine) write() {
	m.t.Helper()
	if err := m.f.Write(m.r.Take(), nil, m.Time); err != nil {
		m.t.Fatal(err)
	}
	m.r.Done()
}

func (m *machine) tick() {
	m.t.Helper()
	m.pass(Finest)
	m.see()
	m.write()
}

// read answers for all the time that there was.
func (m *machine) read(q Query, figure string, step time.Duration) []api.HistorySeries {
	m.t.Helper()
	var err error
	if q.Figure, err = ParseFigure(figure); err != nil {
		m.t.Fatal(err)
	}
	if q.From.IsZero() {
		q.From = begin.Add(-time.Hour)
	}
	if q.To.IsZero() {
		q.To = m.Time.Add(time.Hour)
	}
	q.Step = step
	answer, err := m.f.Read(m.t.Context(), q)
	if err != nil {
		m.t.Fatal(err)
	}
	return answer.Series
}

func sum(series []api.HistorySeries) (all int64) {
	for _, s := range series {
		for _, p := range s.Points {
			all += *p.Sum
		}
	}
	return all
}

func TestFiguresOfSnapshots(t *testing.T) {
	m := newMachine(t, DefaultBounds())
	slot := m.share("a", false)
	busy, power := 40.0, 250.5
	m.Cards[0].Instruments = &api.Instruments{BusyPercent: &busy, PowerWatts: &power}
	for i := range 12 {
		slot.UsedBytes = uint64(i) << 20
		*slot.CardTimeNs += uint64(3 * time.Second)
		slot.Denials = map[string]uint64{"over-quota": uint64(i)}
		m.tick()
	}
	used := m.read(Query{Share: "a"}, "memory-used", Finest)
	if len(used) != 1 || len(used[0].Points) != 12 || used[0].Tenant != "t" || used[0].CardUUID != gpuA {
		t.Fatalf("%+v", used)
	}
	for i, p := range used[0].Points {
		if want := float64(i << 20); *p.Mean != want || *p.Min != want || *p.Max != want || p.Seconds != 10 || !p.Time.Equal(begin.Add(time.Duration(i+1)*Finest)) {
			t.Errorf("%d: %+v", i, p)
		}
	}
	minutes := m.read(Query{Share: "a"}, "memory-used", time.Minute)[0].Points
	if len(minutes) != 3 || *minutes[0].Mean != 2<<20 || *minutes[0].Min != 0 || *minutes[0].Max != 4<<20 || *minutes[1].Max != 10<<20 || *minutes[2].Mean != 11<<20 {
		t.Errorf("%+v", minutes)
	}
	for figure, want := range map[string]int64{"card-time": int64(33 * time.Second), "denials": 11, "wait": 0} {
		for _, step := range []time.Duration{Finest, 30 * time.Second, time.Minute, time.Hour} {
			if got := sum(m.read(Query{Share: "a"}, figure, step)); got != want { // what was before the first is nobody's
				t.Errorf("%s by %v: %d, want %d", figure, step, got, want)
			}
		}
	}
	if got := sum(m.read(Query{Card: "GPU"}, "card-time", time.Hour)); got != int64(33*time.Second) {
		t.Errorf("the GPU's time is %v", time.Duration(got))
	}
	if p := m.read(Query{}, "busy", time.Minute)[0].Points; len(p) != 3 || *p[1].Mean != 40 {
		t.Errorf("busy %+v", p)
	}
	if p := m.read(Query{}, "temperature", time.Minute)[0].Points; len(p) != 0 {
		t.Errorf("what is not known is %+v", p)
	}
	if _, err := m.f.Read(t.Context(), Query{Share: "b", Figure: Figures()[0], From: begin, To: begin.Add(time.Hour), Step: time.Minute}); !isUnknown(err) {
		t.Errorf("another share: %v", err)
	}
}

// A counter that goes on over a restart counts what was in between, one that is saved late counts nothing
// twice, and sums that begin anew are what their parts did.
func TestDifferencesOverLives(t *testing.T) {
	m := newMachine(t, DefaultBounds())
	m.tick()
	m.share("a", false)
	passing := m.share("run-1", true)
	slot := &m.Shares[0].Cards[0] // there are two now
	*slot.CardTimeNs, *passing.CardTimeNs = 3e9, 1e9
	m.tick()
	m.Gone = []api.SnapshotGone{{CardUUID: gpuA, Tenant: "t", Unnamed: true, CardTimeNs: 5e9}}
	m.tick()
	check := func(when string, a, unnamed, card int64) {
		t.Helper()
		for name, is := range map[Query]int64{{Share: "a"}: a, {Share: "-"}: unnamed, {Card: gpuA}: card} {
			for _, step := range []time.Duration{Finest, time.Hour} {
				if got := sum(m.read(name, "card-time", step)); got != is {
					t.Errorf("%s: %+v by %v had %d, want %d", when, name, step, got, is)
				}
			}
		}
	}
	check("at first", 3e9, 6e9, 9e9)
	*slot.CardTimeNs, *passing.CardTimeNs = 10e9, 2e9
	m.restart(5 * time.Minute)
	m.tick()
	check("after a restart", 10e9, 7e9, 17e9)
	*slot.CardTimeNs = 9e9 // killed before it had saved all
	m.restart(0)
	m.tick()
	check("after a kill", 10e9, 7e9, 17e9)
	*slot.CardTimeNs = 11e9
	m.tick()
	check("and on", 11e9, 7e9, 19e9)
	m.Shares = m.Shares[:1] // the other is gone: what it did counts once
	m.Gone = []api.SnapshotGone{{CardUUID: gpuA, Tenant: "t", Unnamed: true, CardTimeNs: 2.5e9}}
	m.tick()
	check("one has gone", 11e9, 7.5e9, 19.5e9)
	m.Shares[0].Created = m.Time // another one of the name
	*slot.CardTimeNs = 4e9
	m.Gone[0].CardTimeNs = 2.5e9
	m.Gone = append(m.Gone, api.SnapshotGone{CardUUID: gpuA, Tenant: "t", CardTimeNs: 11e9})
	m.tick()
	check("it is made anew", 15e9, 7.5e9, 23.5e9)
}

// A kill loses the seconds that were not written, and counts none twice, whatever is the moment.
func TestDifferencesOfManyLives(t *testing.T) {
	m := newMachine(t, DefaultBounds())
	m.tick()
	slot := m.share("a", false)
	random := rand.New(rand.NewPCG(3, 4))
	truth := uint64(0)
	for range 150 {
		d := time.Duration(random.Int64N(int64(15 * time.Second)))
		m.pass(d)
		truth += uint64(d) / 3
		*slot.CardTimeNs = truth
		m.see()
		if random.IntN(3) > 0 {
			m.write()
		}
		if random.IntN(5) == 0 {
			m.restart(time.Duration(random.Int64N(int64(time.Minute))))
		}
	}
	m.see()
	m.write()
	for _, q := range []Query{{Share: "a"}, {Card: gpuA}} {
		for _, step := range []time.Duration{Finest, time.Minute, time.Hour} {
			if got := sum(m.read(q, "card-time", step)); got != int64(truth) {
				t.Errorf("%+v by %v: %d, in truth %d", q, step, got, truth)
			}
		}
	}
}

// Energy begins anew with the driver: that is counted from there on.
func TestCounterBeginsAnew(t *testing.T) {
	m := newMachine(t, DefaultBounds())
	for _, joules := range []float64{1000, 1100, 50, 60} {
		m.Cards[0].Instruments = &api.Instruments{EnergyJoules: &joules}
		m.tick()
	}
	m.Cards[0].Instruments = nil // it does not tell for once
	m.tick()
	joules := 75.0
	m.Cards[0].Instruments = &api.Instruments{EnergyJoules: &joules}
	m.tick()
	if got := sum(m.read(Query{}, "energy", time.Minute)); got != 125e6 {
		t.Errorf("%d", got)
	}
}

// Where nobody looked there are no points, and where nothing is known neither.
func TestGapsHaveNoPoints(t *testing.T) {
	m := newMachine(t, DefaultBounds())
	slot := m.share("a", false)
	m.Shares[0].Cards[0].CardTimeNs = nil // booked: nothing measures it
	m.tick()
	slot.UsedBytes = 7
	m.restart(time.Hour)
	m.tick()
	points := m.read(Query{Share: "a"}, "memory-used", time.Minute)[0].Points
	if len(points) != 2 || points[1].Time.Sub(points[0].Time) < time.Hour || points[1].Seconds != 10 || *points[1].Mean != 7 {
		t.Errorf("%+v", points)
	}
	if points := m.read(Query{Share: "a"}, "card-time", time.Minute)[0].Points; len(points) != 0 {
		t.Errorf("what nobody measures is %+v", points)
	}
	if points := m.read(Query{Share: "a"}, "launches", time.Minute)[0].Points; len(points) != 2 || points[1].Seconds != 3610 {
		t.Errorf("%+v", points)
	}
}

// A clock that is set back adds to what was, and nothing is counted twice or less than nothing.
func TestFiguresWhileClockIsSet(t *testing.T) {
	m := newMachine(t, DefaultBounds())
	slot := m.share("a", false)
	m.tick()
	for _, jump := range []time.Duration{time.Hour, -time.Hour, -time.Minute, time.Hour} {
		m.Time = m.Time.Add(jump)
		for range 10 {
			*slot.CardTimeNs += 1e9
			m.tick()
		}
	}
	for _, step := range []time.Duration{Finest, time.Minute, time.Hour} {
		if got := sum(m.read(Query{Share: "a", To: begin.Add(3 * time.Hour)}, "card-time", step)); got != 40e9 {
			t.Errorf("by %v: %d", step, got)
		}
	}
}

// Each step says what one would work out from all that was seen.
func TestThinning(t *testing.T) {
	m := newMachine(t, DefaultBounds())
	slot := m.share("a", false)
	m.see()
	random := rand.New(rand.NewPCG(1, 2))
	type seen struct {
		at      int64
		ms      float64
		used    float64
		counted int64
	}
	var all []seen
	for range 1000 {
		d := time.Duration(1+random.IntN(10)) * time.Second
		m.pass(d)
		used, more := random.Uint64N(1<<30), random.Uint64N(1e9)
		slot.UsedBytes = used
		*slot.CardTimeNs += more
		all = append(all, seen{m.Time.Unix(), float64(d.Milliseconds()), float64(used), int64(more)})
		m.see()
		if random.IntN(3) == 0 {
			m.write()
		}
	}
	m.write()
	for _, step := range []time.Duration{Finest, 30 * time.Second, time.Minute, 7 * time.Minute, time.Hour, 3 * time.Hour} {
		type is struct {
			ms, area, least, most float64
			counted               int64
		}
		want := map[int64]*is{}
		for _, s := range all {
			at := s.at / int64(step/time.Second) * int64(step/time.Second)
			w := want[at]
			if w == nil {
				w = &is{least: math.Inf(1)}
				want[at] = w
			}
			w.ms += s.ms
			w.area += s.ms * s.used
			w.least, w.most = min(w.least, s.used), max(w.most, s.used)
			w.counted += s.counted
		}
		gauges, counts := m.read(Query{Share: "a", From: begin, To: m.Time}, "memory-used", step)[0].Points, m.read(Query{Share: "a", From: begin, To: m.Time}, "card-time", step)[0].Points
		if len(gauges) != len(want) || len(counts) != len(want) {
			t.Fatalf("by %v: %d points, want %d", step, len(gauges), len(want))
		}
		for i, p := range gauges {
			w := want[p.Time.Unix()]
			if w == nil {
				t.Fatalf("by %v: a point at %v", step, p.Time)
			}
			if p.Time.Equal(bucketTime(begin, step)) { // it has the first look besides, which saw nothing
				continue
			}
			if math.Abs(*p.Mean-w.area/w.ms) > 1e-6*w.most || *p.Min != w.least || *p.Max != w.most || *counts[i].Sum != w.counted || math.Abs(p.Seconds*1000-w.ms) > 0.5 {
				t.Errorf("by %v at %v: %v %v %v %v %v, want %+v", step, p.Time, *p.Mean, *p.Min, *p.Max, *counts[i].Sum, p.Seconds, *w)
			}
		}
	}
}

func isUnknown(err error) bool {
	_, is := errors.AsType[UnknownError](err)
	return is
}

func bucketTime(at time.Time, step time.Duration) time.Time {
	return time.Unix(bucket(at.Unix(), int64(step/time.Second)), 0)
}

// A tenant's shares are added up, each for the time that it was there.
func TestTenant(t *testing.T) {
	m := newMachine(t, DefaultBounds())
	m.pass(50 * time.Second) // the next minute begins
	m.share("a", false)
	m.share("b", false).UsedBytes = 100
	m.Shares[0].Cards[0].UsedBytes = 1000
	for range 3 {
		m.tick()
	}
	m.Shares = m.Shares[:1]
	for range 3 {
		m.tick()
	}
	got := m.read(Query{Tenant: "t"}, "memory-used", time.Minute)
	if len(got) != 1 || len(got[0].Points) != 1 {
		t.Fatalf("%+v", got)
	}
	if p := got[0].Points[0]; *p.Mean != 1050 || p.Min != nil || p.Max != nil || got[0].Share != "" || got[0].Tenant != "t" {
		t.Errorf("%+v of %+v", *p.Mean, got)
	}
}
