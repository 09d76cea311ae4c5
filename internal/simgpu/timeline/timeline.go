// SPDX-License-Identifier: Apache-2.0

// Package timeline is the time of simulated cards: which process's kernel runs
// on a card at which nanosecond. It is pure: the time is an argument, and a late
// caller gets the same schedule as a punctual one.
//
// The model. A process submits items, numbered 1, 2, ... Each names up to four
// earlier ones that it comes after. A kernel fills its card for its duration; a
// marker takes no time; a gate ends when the process says so (a host function
// has returned). A process runs the kernels that are ready in order of their
// numbers, one at a time on each card, and does not put a kernel aside once it
// has begun. A card serves the processes that have something ready round robin
// in slices; a slice may split a kernel, a process with nothing ready loses the
// rest of its slice at once, and nothing else takes a card away within a slice.
//
// That last rule is what makes it cheap: what a process has submitted is decided
// to the end of its slice as soon as that begins, so most ends are known before
// they come (Decided), and who waits for one need not ask twice.
//
// A Timeline is owned by one goroutine. All times are nanoseconds of one clock.
package timeline

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// ErrInvalid says that a submission makes no sense.
var ErrInvalid = errors.New("no sensible piece of work")

// ProcessID names a process; the caller chooses it and uses it once.
type ProcessID uint64

// Kind says what an item is.
type Kind uint8

// Kinds of items.
const (
	Kernel Kind = iota + 1
	Marker
	Gate
)

// MaxAfter is how many items one may come after.
const MaxAfter = 4

// maxDuration keeps sums far from overflow: one hour.
const maxDuration = int64(3600_000_000_000)

// Item is one piece of work.
type Item struct {
	Kind       Kind
	Card       int
	DurationNS int64 // of kernels, at least 1
	StampNS    int64 // when it was submitted; not before what is decided already
	// Instructions are what a kernel did; they take no part in the schedule.
	Instructions uint64
	After        [MaxAfter]uint64
}

// Config is what the caller may choose about the model.
type Config struct {
	Cards    int
	SliceNS  int64
	SwitchNS int64 // a card's change to another process
	Queued   int   // most undecided items of one process
}

// Decision says when an item ends; that may lie ahead.
type Decision struct {
	Seq   uint64
	EndNS int64
}

// Usage is what a process has had of a card.
type Usage struct {
	BusyNS  int64
	Kernels uint64 // that have ended, or will within the slice that runs
	Queued  int    // kernels that have not
	Percent int    // of the last WindowNS
	// Instructions are of the kernels that have ended.
	Instructions uint64
}

// item is an undecided one.
type item struct {
	seq       uint64
	process   *process
	kind      Kind
	card      int
	remaining int64
	does      uint64 // instructions
	ready     int64  // the latest end of what it comes after, so far
	missing   int    // how many of those have none yet
	signalled bool   // gates
	linked    bool   // gates: by another process's item
	after     [MaxAfter]*item
	before    []*item // those that come after it
	visit     uint64
}

// queue is a process's kernels on one card.
type queue struct {
	running *item // begun and split
	ready   heap  // by number
	later   heap  // by the time they get ready
	queued  int   // undecided, whatever they wait for
	busy    int64
	kernels uint64
	done    uint64 // instructions
	window  meter
}

type process struct {
	id      ProcessID
	last    uint64 // number of the last item
	items   map[uint64]*item
	queues  []*queue // by card; nil: never used
	queued  int      // kernels, all cards
	gates   int      // that have not ended
	floor   uint64   // all up to it are decided
	latest  int64    // latest end of all that are
	ahead   map[uint64]int64
	aheads  []uint64 // of ahead, as decided
	decided []Decision
}

type card struct {
	at         int64 // decided up to here
	owner      *process
	sliceStart int64
	sliceEnd   int64
	last       ProcessID  // that ran
	members    []*process // with queued kernels, by id
	slow       int64      // see Slow; 0: never set
	busy       int64
	window     meter
	runs       *runs // nil: nobody has asked for them
}

// Timeline is the time of all cards of one machine.
type Timeline struct {
	config    Config
	cards     []card
	processes map[ProcessID]*process
	advanced  int64
	visit     uint64
	free      []*item
}

// New returns idle cards.
func New(config Config) *Timeline {
	return &Timeline{config: config, cards: make([]card, config.Cards), processes: map[ProcessID]*process{}}
}

// Submit adds an item and returns its number. The process comes to be with its
// first one.
func (t *Timeline) Submit(id ProcessID, w Item) (uint64, error) {
	p, known := t.processes[id]
	if !known {
		p = &process{id: id, items: map[uint64]*item{}, queues: make([]*queue, len(t.cards)), ahead: map[uint64]int64{}}
	}
	seq := p.last + 1
	switch {
	case w.Kind != Kernel && w.Kind != Marker && w.Kind != Gate:
		return 0, fmt.Errorf("item of kind %d: %w", w.Kind, ErrInvalid)
	case w.Card < 0 || w.Card >= len(t.cards):
		return 0, fmt.Errorf("item on GPU %d of %d: %w", w.Card, len(t.cards), ErrInvalid)
	case w.Kind == Kernel && (w.DurationNS < 1 || w.DurationNS > maxDuration):
		return 0, fmt.Errorf("kernel of %d ns: %w", w.DurationNS, ErrInvalid)
	case w.StampNS < 0:
		return 0, fmt.Errorf("item of time %d: %w", w.StampNS, ErrInvalid)
	case len(p.items) >= t.config.Queued:
		return 0, fmt.Errorf("%d undecided items: %w", len(p.items), ErrInvalid)
	}
	for _, s := range w.After {
		if s >= seq {
			return 0, fmt.Errorf("item %d after item %d: %w", seq, s, ErrInvalid)
		}
	}
	t.processes[id] = p
	p.last = seq
	it := t.newItem()
	it.seq, it.process, it.kind, it.card = seq, p, w.Kind, w.Card
	it.remaining = scale(w.DurationNS, t.cards[w.Card].slowPercent(), Normal)
	it.does = w.Instructions
	it.ready = max(w.StampNS, t.advanced)
	for i, s := range w.After {
		if before, ok := p.items[s]; ok {
			it.after[i] = before
			before.before = append(before.before, it)
			it.missing++
		} else {
			it.ready = max(it.ready, p.ahead[s])
		}
	}
	p.items[seq] = it
	switch w.Kind {
	case Kernel:
		t.enlist(p, w.Card)
	case Gate:
		it.missing++
		p.gates++
	}
	if it.missing == 0 {
		t.resolve(it)
	}
	return seq, nil
}

func (t *Timeline) newItem() *item {
	if n := len(t.free); n > 0 {
		it := t.free[n-1]
		t.free = t.free[:n-1]
		return it
	}
	return &item{}
}

// enlist counts a kernel in.
func (t *Timeline) enlist(p *process, index int) {
	q := p.queues[index]
	if q == nil {
		q = &queue{later: heap{byReady: true}}
		p.queues[index] = q
	}
	p.queued++
	q.queued++
	if c := &t.cards[index]; q.queued == 1 {
		at, _ := slices.BinarySearchFunc(c.members, p.id, compareID)
		c.members = slices.Insert(c.members, at, p)
	}
}

func compareID(p *process, id ProcessID) int { return cmp.Compare(p.id, id) }

// resolve is called when everything an item comes after is decided.
func (t *Timeline) resolve(it *item) {
	if it.kind == Kernel {
		it.process.queues[it.card].later.push(it)
		return
	}
	t.complete(it, it.ready)
}

// complete decides an item, and what follows from it.
func (t *Timeline) complete(it *item, end int64) {
	p := it.process
	delete(p.items, it.seq)
	p.decided = append(p.decided, Decision{it.seq, end})
	p.latest = max(p.latest, end)
	p.ahead[it.seq] = end
	p.aheads = append(p.aheads, it.seq)
	if it.kind == Gate {
		p.gates--
	}
	for p.floor < p.last {
		if _, undecided := p.items[p.floor+1]; undecided {
			break
		}
		p.floor++
	}
	for _, next := range it.before {
		t.release(next, it, end)
	}
	*it = item{before: it.before[:0]}
	t.free = append(t.free, it)
}

// Signal ends a gate. One that is unknown, or signalled before, is an error.
func (t *Timeline) Signal(id ProcessID, seq uint64, at int64) error {
	p, ok := t.processes[id]
	if !ok {
		return fmt.Errorf("signal of process %d: %w", id, ErrInvalid)
	}
	it, ok := p.items[seq]
	if !ok || it.kind != Gate || it.signalled {
		return fmt.Errorf("signal of item %d, which is no open gate: %w", seq, ErrInvalid)
	}
	it.signalled = true
	it.ready = max(it.ready, at, t.advanced)
	if it.missing--; it.missing == 0 {
		t.resolve(it)
	}
	return nil
}

// Advance decides everything that happens before now, and what follows from it
// to the ends of the slices that have begun. Call it with what was submitted
// until now submitted.
func (t *Timeline) Advance(now int64) {
	for {
		best, when := -1, int64(0)
		for i := range t.cards {
			if at, ok := t.due(i, now); ok && (best < 0 || at < when) {
				best, when = i, at
			}
		}
		if best < 0 {
			break
		}
		t.decide(best, when)
	}
	t.advanced = max(t.advanced, now)
	for _, p := range t.processes {
		p.forget(t.advanced)
	}
}

// forget lets go of ends that nothing can come after any more.
func (p *process) forget(now int64) {
	n := 0
	for n < len(p.aheads) && p.ahead[p.aheads[n]] <= now {
		delete(p.ahead, p.aheads[n])
		n++
	}
	p.aheads = slices.Delete(p.aheads, 0, n)
}

// work says whether a process could use the card at a time.
func (q *queue) work(at int64) bool {
	return q.running != nil || len(q.ready.items) > 0 || (len(q.later.items) > 0 && q.later.items[0].ready <= at)
}

// due says when the next decision about a card falls, if it falls before now or
// is settled already.
func (t *Timeline) due(index int, now int64) (int64, bool) {
	c := &t.cards[index]
	if p := c.owner; p != nil && c.at < c.sliceEnd && p.queues[index].work(c.at) {
		q := p.queues[index]
		// Only what else the process waits for could put something before.
		return c.at, c.at < now || (p.gates == 0 && p.queued == q.queued)
	}
	next, found := int64(0), false
	for _, p := range c.members {
		q := p.queues[index]
		if q.work(c.at) {
			return c.at, c.at < now
		}
		if len(q.later.items) > 0 && (!found || q.later.items[0].ready < next) {
			next, found = q.later.items[0].ready, true
		}
	}
	return next, found && next < now
}

// decide gives the card at a time to whose turn it is, to the end of a kernel or
// of the slice.
func (t *Timeline) decide(index int, at int64) {
	c := &t.cards[index]
	idle := at > c.at
	c.at = at
	if p := c.owner; idle || p == nil || at >= c.sliceEnd || !p.queues[index].work(at) {
		p := c.next(index, at)
		change := p.id != c.last && t.config.SwitchNS > 0
		if change {
			c.at += t.config.SwitchNS
		}
		c.owner, c.last = p, p.id
		c.sliceStart, c.sliceEnd = c.at, c.at+t.config.SliceNS
		if change {
			return // what is first by then is another decision
		}
	}
	p := c.owner
	q := p.queues[index]
	for len(q.later.items) > 0 && q.later.items[0].ready <= c.at {
		q.ready.push(q.later.pop())
	}
	it := q.running
	if it == nil {
		it = q.ready.pop()
	}
	q.running = it
	chunk := min(it.remaining, c.sliceEnd-c.at)
	it.remaining -= chunk
	c.account(q, c.at, c.at+chunk, 1)
	c.at += chunk
	if it.remaining > 0 {
		return
	}
	q.running = nil
	q.kernels++
	q.done += it.does
	q.queued--
	p.queued--
	if q.queued == 0 {
		place, _ := slices.BinarySearchFunc(c.members, p.id, compareID)
		c.members = slices.Delete(c.members, place, place+1)
	}
	t.complete(it, c.at)
}

// next is the process whose turn comes after the last one's. There is one.
func (c *card) next(index int, at int64) *process {
	from, _ := slices.BinarySearchFunc(c.members, c.last+1, compareID)
	for i := range c.members {
		if p := c.members[(from+i)%len(c.members)]; p.queues[index].work(at) {
			return p
		}
	}
	panic("timeline: a decision without a process")
}

// account adds an interval to what a process had of the card, or takes it back.
func (c *card) account(q *queue, from, to, sign int64) {
	c.busy += sign * (to - from)
	q.busy += sign * (to - from)
	c.window.add(from, to, sign)
	q.window.add(from, to, sign)
	if c.runs != nil {
		c.runs.add(c.owner.id, from, to, sign)
	}
}

// End drops a process with all it has submitted; its cards are free at now. Call
// Advance(now) before. It says whether others waited for it by Link: what they
// were told of the future is not true any more.
func (t *Timeline) End(id ProcessID, now int64) (awaited bool) {
	p, ok := t.processes[id]
	if !ok {
		return false
	}
	for i := range t.cards {
		c := &t.cards[i]
		c.release(p, p.queues[i], max(now, t.advanced), now)
		if at, found := slices.BinarySearchFunc(c.members, id, compareID); found {
			c.members = slices.Delete(c.members, at, at+1)
		}
	}
	delete(t.processes, id)
	return t.unlink(p, max(now, t.advanced))
}
