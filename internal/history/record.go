// SPDX-License-Identifier: Apache-2.0

package history

import (
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/sample"
)

const (
	// Finest is the shortest time that is kept apart.
	Finest = 10 * time.Second
	// pendingRows bounds what waits to be written.
	pendingRows = 50_000
)

// slot names a share on a GPU, or a GPU (without a share), over agents: one that is made anew with
// the name of another is another.
type slot struct {
	share   string
	created int64 // unix ns
	card    string
}

// totals are counters as they were seen last, which go on over agents.
type totals [counterCount]Count

// Recorder makes rows of snapshots: it knows what each counter said before. It is pure.
type Recorder struct {
	life        string
	wallNs      int64 // of the last snapshot; 0: there was none
	monotonicNs uint64
	had         map[slot]totals
	sums        map[Series]totals // of this life

	pending map[int64]map[Series]Row // by begin, unix seconds
	rows    int
}

// NewRecorder begins with what one before it left.
func NewRecorder(left Left) *Recorder {
	r := &Recorder{life: left.life, wallNs: left.wallNs, monotonicNs: left.monotonicNs, had: left.had, sums: map[Series]totals{}, pending: map[int64]map[Series]Row{}}
	if r.had == nil {
		r.had = map[slot]totals{}
	}
	return r
}

// Left is what a recorder knew last.
type Left struct {
	life        string
	wallNs      int64
	monotonicNs uint64
	had         map[slot]totals
}

// Batch is what is to be written at once.
type Batch struct {
	Left
	rows map[int64]map[Series]Row
}

// Take is all that waits. It waits on until Done.
func (r *Recorder) Take() Batch {
	return Batch{Left{r.life, r.wallNs, r.monotonicNs, r.had}, r.pending}
}

// Done says that all that Take gave is written.
func (r *Recorder) Done() { r.pending, r.rows = map[int64]map[Series]Row{}, 0 }

// Add adds what a snapshot says. One that was added already adds nothing.
func (r *Recorder) Add(s *api.Snapshot) {
	first, anew := r.wallNs == 0, r.life != s.Life
	passed := Finest
	switch {
	case first:
	case s.MonotonicNs >= r.monotonicNs:
		passed = time.Duration(s.MonotonicNs - r.monotonicNs)
	default: // the machine was started anew
		passed = max(time.Duration(s.Time.UnixNano()-r.wallNs), 0)
	}
	if !first && passed == 0 {
		return
	}
	if anew {
		r.sums = map[Series]totals{}
	}
	whole := Row{Ms: max(passed.Milliseconds(), 1), SeenMs: max(min(passed, Finest).Milliseconds(), 1)}
	if first {
		whole.Ms = whole.SeenMs
	}
	rows := make(map[Series]Row, len(s.Shares)+len(s.Cards))
	now, done := r.differences(s, first, anew)
	for _, of := range sample.Rows(s) {
		name := Series{of.Share, of.Tenant, of.UUID}
		row, counted := whole, countersOf(of)
		row.Gauges[usedBytes] = exactly(float64(of.UsedBytes))
		row.Gauges[bookedBytes] = exactly(float64(of.LimitBytes))
		row.Gauges[clients] = exactly(float64(of.Clients))
		if of.Of != nil {
			row.Counters = done[slot{of.Share, of.Of.Created.UnixNano(), of.UUID}]
		} else {
			row.Counters = r.sum(name, counted, first, anew, func(of slotOf) bool { return of.unnamed && of.series == name }, s, done)
		}
		rows[name] = row
	}
	for _, c := range s.Cards {
		name := Series{Card: c.UUID}
		row := whole
		row.Gauges[usedBytes] = exactly(float64(c.UsedBytes))
		row.Gauges[bookedBytes] = exactly(float64(c.BookedBytes))
		if i := c.Instruments; i != nil {
			row.Gauges[busyPercent], row.Gauges[powerWatts], row.Gauges[temperatureC] = known(i.BusyPercent), known(i.PowerWatts), known(i.TemperatureC)
		}
		row.Counters = r.sum(name, totals{cardTimeNs: {true, int64(c.ShareTimeNs)}}, first, anew, func(of slotOf) bool { return of.series.Card == c.UUID }, s, done)
		row.Counters[energyUJ] = done[slot{card: c.UUID}][energyUJ]
		rows[name] = row
	}
	r.life, r.wallNs, r.monotonicNs, r.had = s.Life, s.Time.UnixNano(), s.MonotonicNs, now
	r.put(bucket(s.Time.Unix(), int64(Finest/time.Second)), rows)
}

// put adds rows to those that wait, of which there are so many at most: the oldest go.
func (r *Recorder) put(at int64, rows map[Series]Row) {
	if have := (bucketRows{rows: r.pending[at]}); have.rows != nil {
		r.rows -= len(have.rows)
		have.merge(rows)
		rows = have.rows
	}
	r.pending[at] = rows
	r.rows += len(rows)
	for r.rows > pendingRows && len(r.pending) > 1 {
		oldest := at
		for begin := range r.pending {
			oldest = min(oldest, begin)
		}
		r.rows -= len(r.pending[oldest])
		delete(r.pending, oldest)
	}
}

// differences are what each share did on each GPU, and what each GPU drew, and the counters as they
// are now. What was there before anybody looked is not counted.
func (r *Recorder) differences(s *api.Snapshot, first, anew bool) (now, done map[slot]totals) {
	many := len(s.Shares) + len(s.Cards)
	now, done = make(map[slot]totals, many), make(map[slot]totals, many)
	add := func(key slot, counted totals, born bool) {
		had, before := r.had[key]
		t := done[key]
		for i, is := range counted {
			if !is.Known {
				continue
			}
			was := had[i]
			d := Count{Known: true}
			switch {
			case before && was.Known:
				d.Sum = max(is.Sum-was.Sum, 0)
			case born:
				d.Sum = is.Sum
			}
			if key.share != "" { // what an agent had not saved when it was killed is counted
				counted[i].Sum = max(is.Sum, was.Sum)
			}
			t[i] = d
		}
		now[key], done[key] = counted, t
	}
	for _, of := range slotsOf(s) {
		add(of.slot, of.counted, !first && (!anew || of.slot.created >= r.wallNs))
	}
	for _, c := range s.Cards {
		if i := c.Instruments; i != nil && i.EnergyJoules != nil {
			add(slot{card: c.UUID}, totals{energyUJ: {true, int64(*i.EnergyJoules * 1e6)}}, false)
		} else if had, is := r.had[slot{card: c.UUID}]; is {
			now[slot{card: c.UUID}] = had // it may tell again
		}
	}
	return now, done
}

// sum is by how much a sum went up that begins anew with each life of an agent: then it is by what its
// parts did, for what is gone was counted before or was never seen.
func (r *Recorder) sum(name Series, counted totals, first, anew bool, part func(slotOf) bool, s *api.Snapshot, done map[slot]totals) totals {
	had, before := r.sums[name]
	var d totals
	for i, is := range counted {
		d[i].Known = is.Known
		if is.Known && !first && (before || !anew) {
			d[i].Sum = max(is.Sum-had[i].Sum, 0)
		}
		counted[i].Sum = max(is.Sum, had[i].Sum)
	}
	r.sums[name] = counted
	if before || !anew || first {
		return d
	}
	for _, of := range slotsOf(s) {
		if part(of) {
			for i := range d {
				if d[i].Known {
					d[i].Sum += done[of.slot][i].Sum
				}
			}
		}
	}
	return d
}

// slotOf is a share on a GPU in a snapshot.
type slotOf struct {
	slot    slot
	series  Series // in which it is shown
	unnamed bool
	counted totals
}

func slotsOf(s *api.Snapshot) []slotOf {
	all := make([]slotOf, 0, len(s.Shares))
	for _, share := range s.Shares {
		for _, on := range share.Cards {
			of := slotOf{slot: slot{share.Name, share.Created.UnixNano(), on.CardUUID}, series: Series{share.Name, share.Tenant, on.CardUUID}, unnamed: share.Unnamed,
				counted: countersOf(sample.Row{CardTimeNs: on.CardTimeNs, WaitNs: on.WaitNs, Launches: on.Launches, Denials: on.Denials, Overruns: on.Overruns})}
			if share.Unnamed {
				of.series.Share = sample.Unnamed
			}
			all = append(all, of)
		}
	}
	return all
}

func countersOf(r sample.Row) totals {
	t := totals{denials: {Known: true}}
	for i, n := range [...]*uint64{cardTimeNs: r.CardTimeNs, waitNs: r.WaitNs, launches: r.Launches, overruns: &r.Overruns} {
		if n != nil {
			t[i] = Count{true, int64(*n)}
		}
	}
	for _, n := range r.Denials {
		t[denials].Sum += int64(n)
	}
	return t
}

func exactly(f float64) Gauge { return Gauge{true, f, f, f} }

func known(f *float64) Gauge {
	if f == nil {
		return Gauge{}
	}
	return exactly(*f)
}
