// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"slices"

	"github.com/divvy-gpu/divvy/internal/placement"
	"github.com/divvy-gpu/divvy/internal/plan/trace"
)

// Queue is how waiting jobs get their turn: by priority, then arrival.
type Queue string

const (
	// QueueBackfill starts every waiting job that fits, as cluster schedulers
	// do: what does not fit keeps its place and is overtaken.
	QueueBackfill Queue = "backfill"
	// QueueFIFO lets nothing overtake the first that does not fit.
	QueueFIFO Queue = "fifo"
)

// Queues returns the names of all queues, the default first.
func Queues() []string { return []string{string(QueueBackfill), string(QueueFIFO)} }

// Replay runs jobs in virtual time: each arrives when it was created, waits
// for room, runs as long as it did (deletion less creation), and leaves.
type Replay struct {
	Fleet
	Rules
	Workloads []*trace.Jobs
	Policies  []string
	Seeds     []int64
	Queue     Queue
	SpeedUp   float64 // arrivals come this many times as fast; 0: 1
	Preempt   bool    // a job may end others of lower priority, which start again from the beginning
}

// Validate reports settings that make no run.
func (r *Replay) Validate() error {
	if err := checkRuns(r.Fleet, r.Policies, r.Seeds); err != nil {
		return err
	}
	switch {
	case len(r.Workloads) == 0:
		return fmt.Errorf("no list of jobs")
	case r.Queue != QueueBackfill && r.Queue != QueueFIFO:
		return fmt.Errorf("queue %q: want %s or %s", r.Queue, QueueBackfill, QueueFIFO)
	case r.SpeedUp < 0 || r.SpeedUp > 1e9:
		return fmt.Errorf("speed-up: %g, want more than 0 and at most 1e9", r.SpeedUp)
	}
	for _, jobs := range r.Workloads {
		for _, j := range jobs.Jobs {
			if !j.Timed {
				return &trace.InputError{File: jobs.File, Line: j.Line, Reason: fmt.Sprintf("job %s has no creation and deletion time, which a replay needs", j.Name)}
			}
		}
	}
	return nil
}

// ReplayRow is the result of one policy on one workload.
type ReplayRow struct {
	Workload     string       `json:"workload"`
	Policy       string       `json:"policy"`
	Seeds        int          `json:"seeds"`
	Jobs         float64      `json:"jobs"`
	Wait         Distribution `json:"waitSeconds"` // all seeds together
	Waited       float64      `json:"waitedJobs"`  // did not start at once
	NeverStarted float64      `json:"neverStartedJobs"`
	Preempted    float64      `json:"preemptions"`
	LostSeconds  float64      `json:"lostGpuSeconds"` // work of preempted jobs
	Makespan     float64      `json:"makespanSeconds"`
	Utilisation  float64      `json:"gpuAllocatedPercent"` // mean over the time that anything ran or waited
	Peak         float64      `json:"peakGpuAllocatedPercent"`
	Timeline     []Moment     `json:"timeline"` // of the first seed
	nodes        []NodeState
	waits        []float64
}

// Waits returns the sorted waiting times of all jobs of all seeds, in seconds.
func (r *ReplayRow) Waits() []float64 { return r.waits }

// Nodes returns the fleet at the first seed's fullest moment.
func (r *ReplayRow) Nodes() []NodeState { return r.nodes }

// Moment is the fleet over a stretch of time.
type Moment struct {
	Seconds          float64 `json:"seconds"`
	AllocatedPercent float64 `json:"allocatedPercent"` // the most in the stretch
	Queued           int     `json:"queued"`           // the most in the stretch
}

// Run returns a row per policy and workload, in the order of both.
func (r *Replay) Run(ctx context.Context, progress Progress) ([]ReplayRow, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	perPolicy := len(r.Workloads) * len(r.Seeds)
	runs := make([]*replay, len(r.Policies)*perPolicy)
	err := runAll(ctx, len(runs), progress, func(ctx context.Context, n int) error {
		policy, w, seed := r.Policies[n/perPolicy], n%perPolicy/len(r.Seeds), r.Seeds[n%len(r.Seeds)]
		run, err := r.start(r.Workloads[w].Jobs, policy, seed)
		if err == nil {
			run.told = seed == r.Seeds[0]
			err = run.run(ctx)
		}
		if err != nil {
			return fmt.Errorf("%s, policy %s, seed %d: %w", r.Workloads[w].File, policy, seed, err)
		}
		runs[n] = run
		return nil
	})
	if err != nil {
		return nil, err
	}
	var rows []ReplayRow
	for n := 0; n < len(runs); n += len(r.Seeds) {
		row := replayRowOf(runs[n : n+len(r.Seeds)])
		row.Policy, row.Workload = r.Policies[n/perPolicy], r.Workloads[n%perPolicy/len(r.Seeds)].Workload()
		rows = append(rows, row)
	}
	return rows, nil
}

// waiting is a group on its way through the replay.
type waiting struct {
	*group
	order  int     // of arrival
	kind   int     // equal kinds fit or fail alike
	since  float64 // when it last joined the queue
	waited float64 // before that
	spots  []placement.Spot
	begun  float64
	ends   float64
	heaped int  // index in the heap of ends, -1 when not running
	never  bool // not even on the empty fleet
}

func (w *waiting) priority() int { return w.jobs[0].Priority }

// replay is one run.
type replay struct {
	*Replay
	engine  *placement.Engine
	quotas  *placement.Quotas
	arrive  []*waiting // in order of arrival
	queue   []*waiting // by priority, then arrival
	running ends
	now     float64

	waits                     []float64
	waitedJobs, neverStarted  int
	preemptions               int
	lost                      float64
	busySeconds, spannedUntil float64 // allocated percent x seconds, and up to when
	first                     float64
	peak                      float64
	told                      bool // the report shows this one
	timeline                  []Moment
	nodes                     []NodeState
	pictured                  float64 // what was allocated when nodes was taken
}

func (r *Replay) start(jobs []trace.Job, policy string, seed int64) (*replay, error) {
	engine, _, err := newEngine(r.keep(seed), policy, jobs, seed)
	if err != nil {
		return nil, err
	}
	run := &replay{Replay: r, engine: engine, quotas: placement.NewQuotas(engine.Fleet().Products(), r.QuotaMilli)}
	all := groups(jobs, engine.Fleet().Products())
	kinds := map[string]int{}
	speed := r.SpeedUp
	if speed == 0 {
		speed = 1
	}
	for i := range all {
		g := &all[i]
		g.created /= speed
		key := fmt.Sprint(g.gang != "", i*b2i(g.gang != ""))
		for _, j := range g.jobs {
			q := j.Request
			q.Name = ""
			key += fmt.Sprintf("%+v", q)
		}
		kind, known := kinds[key]
		if !known {
			kind = len(kinds)
			kinds[key] = kind
		}
		run.arrive = append(run.arrive, &waiting{group: g, kind: kind, heaped: -1})
	}
	run.setAside()
	slices.SortStableFunc(run.arrive, func(a, b *waiting) int { return cmp.Compare(a.created, b.created) })
	for i, w := range run.arrive {
		w.order = i
	}
	if len(run.arrive) > 0 {
		run.first = run.arrive[0].created
		run.spannedUntil = run.first
	}
	return run, nil
}

// setAside finds what could not start on the empty fleet either: in a queue
// without overtaking it would keep everybody from starting.
func (r *replay) setAside() {
	never := map[int]bool{}
	for _, w := range r.arrive {
		if _, known := never[w.kind]; !known {
			never[w.kind] = !r.begin(w)
			if !never[w.kind] {
				r.stop(w)
			}
		}
		w.never = never[w.kind]
	}
	for _, w := range r.arrive {
		w.waited = 0
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// run steps from one arrival or departure to the next.
func (r *replay) run(ctx context.Context) error {
	next := 0
	for step := 0; next < len(r.arrive) || len(r.running) > 0; step++ {
		if step%256 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		ended := len(r.running) > 0 && (next == len(r.arrive) || r.running[0].ends <= r.arrive[next].created)
		if ended {
			r.advance(r.running[0].ends)
			for len(r.running) > 0 && r.running[0].ends == r.now {
				r.release(r.running[0])
			}
		} else {
			r.advance(r.arrive[next].created)
		}
		for ; next < len(r.arrive) && r.arrive[next].created == r.now; next++ {
			w := r.arrive[next]
			if w.since = r.now; w.never {
				r.neverStarted += len(w.jobs)
				continue
			}
			r.enqueue(w)
		}
		r.schedule(ended)
		r.observe()
	}
	for _, w := range r.queue {
		r.neverStarted += len(w.jobs)
	}
	return nil
}

// advance moves the clock and adds up what was allocated meanwhile.
func (r *replay) advance(to float64) {
	r.busySeconds += allocated(r.engine.Fleet()) * (to - r.spannedUntil)
	r.now, r.spannedUntil = to, to
}

func (r *replay) enqueue(w *waiting) {
	i, _ := slices.BinarySearchFunc(r.queue, w, func(a, b *waiting) int {
		return cmp.Or(cmp.Compare(b.priority(), a.priority()), cmp.Compare(a.order, b.order))
	})
	r.queue = slices.Insert(r.queue, i, w)
}

// schedule starts what can start. After an arrival alone the fleet has no more
// room than before, so that only the newcomers can be new to it.
func (r *replay) schedule(roomier bool) {
	failed := map[int]bool{}
	again := true
	for again {
		again = false
		for i := 0; i < len(r.queue); i++ {
			w := r.queue[i]
			if !roomier && r.Queue == QueueBackfill && w.since != r.now {
				continue
			}
			if !failed[w.kind] && r.begin(w) {
				r.queue = slices.Delete(r.queue, i, i+1)
				i--
				continue
			}
			if r.Preempt && !failed[w.kind] && r.preempt(w) {
				// The victims are in the queue now: look at it afresh.
				again, roomier = true, true
				clear(failed)
				break
			}
			failed[w.kind] = true
			if r.Queue == QueueFIFO {
				break
			}
		}
	}
}

// begin starts w if its tenant's quota and the fleet have room.
func (r *replay) begin(w *waiting) bool {
	requests := w.requests()
	if r.quotas.Take(requests...) != nil {
		return false
	}
	spots, ok := w.place(r.engine, &r.Rules)
	if !ok {
		r.quotas.GiveBack(requests...)
		return false
	}
	w.spots, w.begun, w.ends = spots, r.now, r.now+w.seconds
	w.waited += r.now - w.since
	heap.Push(&r.running, w)
	return true
}

// stop gives back what w holds.
func (r *replay) stop(w *waiting) {
	heap.Remove(&r.running, w.heaped)
	for i, spot := range w.spots {
		r.engine.Fleet().Remove(w.jobs[i].Request, spot)
	}
	r.quotas.GiveBack(w.requests()...)
}

// release ends w, whose waiting is final now.
func (r *replay) release(w *waiting) {
	r.stop(w)
	for range w.jobs {
		r.waits = append(r.waits, w.waited)
	}
	if w.waited > 0 {
		r.waitedJobs += len(w.jobs)
	}
}

// preempt makes room for w by ending the least of lower priority, and starts
// w. When not all of a gang can be given room, all is as before.
func (r *replay) preempt(w *waiting) bool {
	requests := w.requests()
	if len(r.running) == 0 || r.quotas.Take(requests...) != nil {
		return false
	}
	r.quotas.GiveBack(requests...) // begin takes it
	fleet := r.engine.Fleet()
	running := slices.Clone(r.running)
	slices.SortFunc(running, func(a, b *waiting) int { return cmp.Compare(a.order, b.order) })
	out := map[*waiting]bool{}
	var placed []placement.Spot
	enough := true
	for _, q := range requests {
		spot, ok := r.engine.Place(q)
		if !ok {
			spot, ok = r.evictFor(q, running, out)
		}
		if enough = ok; !ok {
			break
		}
		placed = append(placed, spot)
	}
	for i, spot := range placed {
		fleet.Remove(requests[i], spot)
	}
	// A gang that asks for closeness may not fit even now.
	if !enough || len(out) == 0 || !r.begin(w) {
		for t := range out {
			r.restore(t)
		}
		return false
	}
	r.queue = slices.DeleteFunc(r.queue, func(q *waiting) bool { return q == w })
	for _, t := range running {
		if out[t] {
			r.preemptions += len(t.jobs)
			r.lost += (r.now - t.begun) * float64(t.demand) / placement.WholeCard
			heap.Remove(&r.running, t.heaped)
			r.quotas.GiveBack(t.requests()...)
			t.since = r.now
			r.enqueue(t)
		}
	}
	return true
}

// evictFor takes from the fleet what must end so that q has room, notes it in
// out and places q.
func (r *replay) evictFor(q placement.Request, running []*waiting, out map[*waiting]bool) (placement.Spot, bool) {
	var tasks []placement.Running
	var owners []*waiting
	for _, t := range running {
		for i := range t.jobs {
			if !out[t] {
				tasks = append(tasks, placement.Running{Request: t.jobs[i].Request, Spot: t.spots[i], Gang: t.gang})
				owners = append(owners, t)
			}
		}
	}
	victims, _, found := r.engine.Preempt(q, tasks)
	if !found {
		return placement.Spot{}, false
	}
	for _, v := range victims {
		r.engine.Fleet().Remove(tasks[v].Request, tasks[v].Spot)
		out[owners[v]] = true
	}
	return r.engine.Place(q)
}

// restore puts a task back where it was a moment ago.
func (r *replay) restore(t *waiting) {
	for i, spot := range t.spots {
		if err := r.engine.Fleet().PutAt(t.jobs[i].Request, spot); err != nil {
			panic("plan: a spot that was just left is taken: " + err.Error())
		}
	}
}

// observe keeps the timeline and the fleet at its fullest, for the seed that
// the report tells of.
func (r *replay) observe() {
	a := allocated(r.engine.Fleet())
	r.peak = max(a, r.peak)
	if r.told && (r.nodes == nil || a > r.pictured+0.5) { // a picture of every new peak would cost more than the replay
		r.pictured, r.nodes = a, nodeStates(r.engine.Fleet())
	}
	if !r.told {
		return
	}
	r.timeline = append(r.timeline, Moment{r.now, a, len(r.queue)})
	if len(r.timeline) == mostMoments {
		r.timeline = thin(r.timeline, mostMoments/2)
	}
}

// A timeline is recorded with mostMoments and told with keptMoments at most.
const (
	keptMoments = 400
	mostMoments = 1 << 20
)

// thin joins neighbours, so that busy stretches keep more moments than idle
// ones; each keeps the maxima.
func thin(moments []Moment, most int) []Moment {
	each := (len(moments) + most - 1) / most
	if each < 2 {
		return moments
	}
	var out []Moment
	for part := range slices.Chunk(moments, each) {
		m := part[0]
		for _, other := range part[1:] {
			m.AllocatedPercent, m.Queued = max(m.AllocatedPercent, other.AllocatedPercent), max(m.Queued, other.Queued)
		}
		out = append(out, m)
	}
	return out
}

func replayRowOf(runs []*replay) ReplayRow {
	row := ReplayRow{Seeds: len(runs), nodes: runs[0].nodes, Timeline: thin(runs[0].timeline, keptMoments)}
	n := float64(len(runs))
	for _, run := range runs {
		row.waits = append(row.waits, run.waits...)
		row.Jobs += float64(len(run.waits)+run.neverStarted) / n
		row.Waited += float64(run.waitedJobs) / n
		row.NeverStarted += float64(run.neverStarted) / n
		row.Preempted += float64(run.preemptions) / n
		row.LostSeconds += run.lost / n
		row.Makespan += (run.now - run.first) / n
		row.Peak += run.peak / n
		if run.now > run.first {
			row.Utilisation += run.busySeconds / (run.now - run.first) / n
		}
	}
	row.Wait = distributionOf(row.waits)
	return row
}

// ends is a heap of running groups by when they end, then arrival.
type ends []*waiting

func (h ends) Len() int { return len(h) }
func (h ends) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(h[i].ends, h[j].ends), cmp.Compare(h[i].order, h[j].order)) < 0
}
func (h ends) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].heaped, h[j].heaped = i, j
}
func (h *ends) Push(x any) {
	w := x.(*waiting)
	w.heaped = len(*h)
	*h = append(*h, w)
}
func (h *ends) Pop() any {
	old := *h
	w := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	w.heaped = -1
	return w
}
