// SPDX-License-Identifier: Apache-2.0

// Package arbiter decides who may use one card now. It is pure: no files,
// network, goroutines, locks, logs or clock. Instants are arguments, as
// durations since the zero of one clock; what the shares' processes have used
// is behind Meter, and what must happen outside is returned by Drain. One
// goroutine uses it.
//
// A card is gated when the shares on it were promised anything of its time: a
// fixed part, equal or weighted parts, or that one goes before another. Then the
// time goes out in leases, one share at a time: every share on the card needs
// one, because a program that launches whenever it likes would take its time
// from those that wait for theirs. The next share is admitted when the work of
// the one before is estimated to end within the handover time, so that the card
// does not run dry in between. Within a share the processes take turns.
//
// A fixed share has a balance that fills at its rate. It gets a lease while the
// balance is positive, and pays what its processes measured, or the part of the
// lease that it left idle, if that is more. What outlasts a lease is debt. The
// time that it used in any one window never exceeds its part by more than what
// is in flight at the end of a lease.
//
// Shares of the other policies take turns in what the fixed ones leave, by
// weight (fair.go); what one does not want the others get. A share of a higher
// priority goes first, and takes the card from one of a lower priority at once,
// unless that is a fixed share that has fallen far behind its rate.
package arbiter

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	terms "github.com/divvy-gpu/divvy/internal/share"
)

// Terms are what a share was promised.
type Terms struct {
	Name         string
	Policy       terms.Policy
	CoresPercent int // of the card's time, for fixed shares
	Weight       int // of weighted shares, from 1
	Priority     int // higher goes first
	Paused       bool
	Used         bool // before the arbiter knew of it, as far as it could
}

// Usage is what the processes of a share say, summed. Nothing in it can be
// trusted.
type Usage struct {
	Busy      time.Duration // card time that they measured so far
	Submitted time.Duration // estimate of what they have in flight, as it was submitted
	Remaining time.Duration // estimate of how long that still takes, beside each other
	Processes int           // that say so
	Late      time.Duration // by how much they were late to use their leases so far
	Span      time.Duration // like Busy, but what ran beside their work included
	Gap       time.Duration // of that, how long the card may have waited for them
	LastEnd   time.Duration // when the last of their work that has ended did; 0: unknown
	Kernel    time.Duration // the longest of what they have launched lately; 0: unknown
}

// Meter reads what the processes of a share say.
type Meter interface {
	Usage(now time.Duration, share string) Usage
}

// Config are the times of an arbiter. Default gives a complete one.
type Config struct {
	Quantum  time.Duration // longest time for which a lease is granted at once
	Handover time.Duration // the next is admitted when the work of the one before ends within this time, or more on a busy host
	Least    time.Duration // shortest lease
	Drain    time.Duration // how long work that outlasts its lease is awaited
	Burst    time.Duration // time that any fixed share may save up while it wants none
	Saving   time.Duration // or what its rate gives it in this time, if that is more
	Late     time.Duration // by how much measurements may lag behind the work
	Lag      time.Duration // most that a waiting share falls behind its rate, in time of the clock
	Debt     time.Duration // most that a share owes
	Window   time.Duration // in which no fixed share uses more than its part
	Backlog  time.Duration // unfinished work that a share may keep
	Deepest  time.Duration // the same, when nobody else wants the card
	Brief    time.Duration // the same, beside a share of a higher priority
	Recent   time.Duration // for how long one that has asked is counted on to ask again
	Overlap  bool          // shares have the card beside each other (overlap.go)
}

// Bounds of a quantum, and of a backlog.
const (
	LeastQuantum = 2 * time.Millisecond
	MostQuantum  = 50 * time.Millisecond
	LeastBacklog = time.Millisecond
	MostBacklog  = 12 * time.Millisecond
)

// What Default takes.
const (
	DefaultBacklog = 5 * time.Millisecond
	DefaultDeepest = 7 * time.Millisecond
)

// Default is the configuration for a quantum.
func Default(quantum time.Duration) Config {
	return Config{
		Quantum: quantum, Handover: time.Millisecond, Least: time.Millisecond, Drain: 2 * quantum,
		Burst: quantum + time.Millisecond, Saving: 5 * quantum, Late: quantum / 2, Lag: 10 * quantum, Debt: time.Second, Window: time.Second,
		Backlog: DefaultBacklog, Deepest: DefaultDeepest, Brief: 200 * time.Microsecond, Recent: time.Second,
	}
}

// Validate says what is wrong with a configuration.
func (c Config) Validate() error {
	var errs []error
	if c.Quantum < LeastQuantum || c.Quantum > MostQuantum {
		errs = append(errs, fmt.Errorf("quantum %v is not between %v and %v", c.Quantum, LeastQuantum, MostQuantum))
	}
	if c.Backlog < LeastBacklog || c.Backlog > MostBacklog {
		errs = append(errs, fmt.Errorf("backlog %v is not between %v and %v", c.Backlog, LeastBacklog, MostBacklog))
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"handover", c.Handover}, {"least lease", c.Least}, {"drain", c.Drain}, {"burst", c.Burst}, {"saving", c.Saving}, {"late", c.Late},
		{"lag", c.Lag}, {"debt", c.Debt}, {"window", c.Window}, {"brief backlog", c.Brief}, {"recent", c.Recent},
	} {
		if d.value <= 0 {
			errs = append(errs, fmt.Errorf("%s %v is not positive", d.name, d.value))
		}
	}
	if c.Handover > c.Quantum || c.Least > c.Quantum {
		errs = append(errs, fmt.Errorf("handover %v and least lease %v are not within a quantum", c.Handover, c.Least))
	}
	return errors.Join(errs...)
}

// Orders are what the caller has to carry out.
type Orders struct {
	Leases []Lease // the last one of a share counts
	Events []Event
}

// Lease says until when a share may launch.
type Lease struct {
	Share   string
	Process uint64        // the only one that may; 0: all of the share's
	End     time.Duration // 0: not now
	Backlog time.Duration // how much unfinished work a process may keep
	// Work of this share that is launched before BesideTo, or has not ended by
	// BesideFrom (0: never), may run beside another's: how long it takes tells little.
	BesideTo, BesideFrom time.Duration
}

// Event is something worth telling.
type Event struct {
	Share   string
	Message string
}

// share is one share on the card.
type share struct {
	Terms
	ledger
	waiting  []uint64      // processes that have asked since they had a lease, in order
	set      uint64        // which Set named it last
	process  uint64        // that has its lease, or had its last one; 0: all
	turn     turn          // the last one
	idle     int           // turns in a row that its processes left idle
	joint    int           // so many of its next leases are for all of its processes
	seen     time.Duration // busy and submitted, when last settled
	served   time.Duration // when its last lease was granted
	begun    time.Duration // from when it should have been able to use its last lease
	told     Lease         // as ordered last
	fair     fair
	wanted   time.Duration // when it asked last
	since    time.Duration // when the first of its processes that wait asked
	late     time.Duration // by how much it was late so far, when last settled
	overruns uint64
	kernel   time.Duration // the longest that it launches
	ran      time.Duration // what it was charged for in one of its last turns
	billed   time.Duration // all that it was charged for its work
	awaited  awaited
	idled    time.Duration // what it left idle while others waited, and has not paid for

	// Several processes that measure beside each other count the same time
	// more than once: together they had the card no longer than there was for
	// them.
	had     time.Duration // what they can have used
	hadAt   time.Duration
	flying  bool          // had work in flight at hadAt
	taken   time.Duration // what they are thought to have used
	dropped time.Duration // what they said beyond that
	crowded time.Duration // of what they are thought to have used, what crowding knows of
}

// wants says whether a process waits that may have a lease.
func (s *share) wants() bool { return len(s.waiting) > 0 && !s.Paused }

func (s *share) fixed() bool { return s.Policy == terms.Fixed }

// phase of a card.
type phase int

const (
	free     phase = iota
	held           // by holder, until end
	draining       // holder's lease has ended, its work perhaps not
	dying          // a process of holder has ended, and the driver still shows it
)

// Arbiter shares the time of one card.
type Arbiter struct {
	config Config
	meter  Meter
	shares []*share
	named  map[string]*share // the same, by name
	gated  bool

	phase    phase
	holder   *share        // nil when free
	crowding crowding      // of shares that overlap
	clock    time.Duration // of the fair shares: where the last one that was served stood
	begun    time.Duration // of the lease
	end      time.Duration // of the lease, or of the wait when draining or dying
	charged  time.Duration // of what was used in the lease

	handover handover
	account  account
	sets     uint64        // how often Set was called
	last     *share        // that had the card last, or has it
	left     time.Duration // when the card was left last
	rest     time.Duration // until when the work of the last holder runs, as it seemed then; 0: it had ended,
	ended    time.Duration // then
	due      time.Duration // when what happens now should have happened
	asked    time.Duration // what NextWake said last

	orders Orders
	trace  *trace // nil: nobody records
}

// New returns an arbiter of an idle card without shares.
func New(config Config, meter Meter) *Arbiter {
	return &Arbiter{config: config, meter: bounded{meter, 10 * config.Quantum}, named: map[string]*share{}, handover: newHandover(config), left: -1}
}

// Set says which shares there are now, and on which terms.
func (a *Arbiter) Set(now time.Duration, all []Terms) {
	defer a.trace.end(Call{Method: callSet, Now: now, Terms: all})
	a.fill(now)
	fixed := 0
	partly, changed := false, false
	kept := make([]*share, 0, len(all))
	a.sets++
	before := a.shares
	for _, t := range all {
		s := a.next(&before, t.Name)
		if s == nil {
			s = &share{ledger: ledger{filled: now}, hadAt: now, wanted: never, fair: fair{at: a.clock}}
			u := a.meter.Usage(now, t.Name)
			s.seen = bound(u.Busy) + bound(u.Submitted)
			a.named[t.Name] = s
		}
		resumed := s.Paused && !t.Paused
		anew := t.Policy == terms.Fixed && (s.Policy != terms.Fixed || s.CoresPercent != t.CoresPercent)
		if anew && a.gated {
			a.meet(now, s)
		}
		s.Terms = t
		if resumed {
			a.enter(s) // what it had no use of it cannot claim now
			s.since = now
		}
		if anew {
			// A new promise begins with an account of its own, and holds at once.
			s.ledger = ledger{filled: now}
			changed = changed || s == a.holder
		}
		s.percent = int64(min(max(t.CoresPercent, 1), 100))
		if s.set == 0 && t.Used {
			s.usedUntil(now, a.config.Window)
		}
		s.set = a.sets
		if s.fixed() {
			fixed++
			partly = partly || s.percent < 100
		}
		kept = append(kept, s)
	}
	gone := a.holder != nil && a.holder.set != a.sets
	if a.last != nil && a.last.set != a.sets {
		a.last = nil
	}
	a.shares = kept
	if len(a.named) > len(kept) {
		maps.DeleteFunc(a.named, func(_ string, s *share) bool { return s.set != a.sets })
	}
	if gone {
		a.phase, a.holder = free, nil
	}
	gated := partly || fixed > 0 && len(kept) > 1 || promised(kept)
	if gated && !a.gated {
		a.account.edge = now
	}
	a.gated = gated
	switch {
	case a.holder == nil:
	case !a.gated || changed:
		a.stop(now)
	case a.holder.Paused && a.phase == held:
		a.settle(now)
		a.endLease(now, draining, now) // beside the next one's its work would end later
	}
	for _, s := range a.shares {
		if !a.gated {
			s.waiting = nil
		}
	}
	a.step(now)
	a.note(now)
}

// next finds a share: as a rule the first of those that were there before and have not been named
// yet, or the one after it.
func (a *Arbiter) next(before *[]*share, name string) *share {
	for i := range min(2, len(*before)) {
		if s := (*before)[i]; s.Name == name {
			*before = (*before)[i+1:]
			return s
		}
	}
	return a.find(name)
}

// promised says whether shares without fixed parts were promised anything.
func promised(shares []*share) bool {
	for _, s := range shares {
		if len(shares) > 1 && (s.Policy == terms.Equal || s.Policy == terms.Weighted || s.Priority != shares[0].Priority) {
			return true
		}
	}
	return false
}

// Has says whether a share is on the card.
func (a *Arbiter) Has(name string) bool { return a.find(name) != nil }

// Overcount is how much more than it can have used a share has said; less than 0:
// how much less.
func (a *Arbiter) Overcount(name string) time.Duration {
	if s := a.find(name); s != nil {
		return s.dropped
	}
	return 0
}

// Gated says whether launches of a share need a lease.
func (a *Arbiter) Gated(name string) bool {
	s := a.find(name)
	return s != nil && (a.gated || s.Paused)
}

// AllGated says whether launches of all shares need leases.
func (a *Arbiter) AllGated() bool { return a.gated }

// Holder is the share that has the card; empty: none has.
func (a *Arbiter) Holder() string {
	if a.holder == nil {
		return ""
	}
	return a.holder.Name
}

// Overruns is how often work of a share was not awaited any longer.
func (a *Arbiter) Overruns(name string) uint64 {
	if s := a.find(name); s != nil {
		return s.overruns
	}
	return 0
}

// Waiting is since when launches of a share wait for a lease; false: none does.
func (a *Arbiter) Waiting(name string) (since time.Duration, waits bool) {
	s := a.find(name)
	if s == nil || len(s.waiting) == 0 {
		return 0, false
	}
	return s.since, true
}

// Lease is what was ordered last for a share.
func (a *Arbiter) Lease(name string) Lease {
	if s := a.find(name); s != nil {
		l := s.told
		l.Share, l.Backlog = name, a.backlog(a.due, s)
		return l
	}
	return Lease{}
}

func (a *Arbiter) find(name string) *share { return a.named[name] }

// Want: launches of a process of a share wait. Processes are numbered from 1.
func (a *Arbiter) Want(now time.Duration, name string, process uint64) {
	defer a.trace.end(Call{Method: callWant, Now: now, Share: name, Process: process})
	s := a.find(name)
	if s == nil || !a.gated {
		return
	}
	a.fill(now)
	if !s.wants() && s != a.holder {
		a.enter(s)
	}
	if len(s.waiting) == 0 {
		s.since = now
	}
	if !slices.Contains(s.waiting, process) {
		s.waiting = append(s.waiting, process)
	}
	recent := a.recent(now, s)
	s.wanted = now
	if !recent {
		a.holdBack(now, s)
	}
	a.step(now)
	a.note(now)
}

// Back: a process of a share has nothing in flight any more.
func (a *Arbiter) Back(now time.Duration, name string, process uint64) {
	defer a.trace.end(Call{Method: callBack, Now: now, Share: name, Process: process})
	a.fill(now)
	a.leaveOverlap(now, name)
	if s := a.holder; s != nil && s.Name == name && a.phase != dying &&
		(s.process == process || s.process == 0 && a.meter.Usage(now, name).Submitted == 0) {
		a.stop(now)
	}
	a.step(now)
	a.note(now)
}

// Ended: a process of a share has ended, and the driver may not know yet; alone
// says that it was the share's last. If the lease was its own, whoever is next
// waits until Released, or until the drain time is over.
func (a *Arbiter) Ended(now time.Duration, name string, process uint64, alone bool) {
	defer a.trace.end(Call{Method: callEnded, Now: now, Share: name, Process: process, Alone: alone})
	a.fill(now)
	if s := a.find(name); s != nil {
		s.waiting = slices.DeleteFunc(s.waiting, func(p uint64) bool { return p == process })
	}
	if alone {
		a.leaveOverlap(now, name)
	}
	if s := a.holder; s != nil && s.Name == name && a.phase != dying && (s.process == process || s.process == 0 && alone) {
		a.settle(now)
		a.endLease(now, dying, now)
	}
	a.step(now)
	a.note(now)
}

// Moved: a process of a share goes by another number from now on.
func (a *Arbiter) Moved(now time.Duration, name string, process, to uint64) {
	defer a.trace.end(Call{Method: callMoved, Now: now, Share: name, Process: process, To: to})
	s := a.find(name)
	if s == nil {
		return
	}
	if i := slices.Index(s.waiting, process); i >= 0 {
		s.waiting[i] = to
	}
	if s.process == process {
		s.process = to
		a.tell(now, s, s.told.End)
	}
}

// Released: the driver no longer shows any process of a share that has ended.
func (a *Arbiter) Released(now time.Duration, name string) {
	defer a.trace.end(Call{Method: callReleased, Now: now, Share: name})
	a.fill(now)
	if s := a.holder; s != nil && s.Name == name && a.phase == dying {
		a.awaitedUntil(now)
		a.phase, a.holder = free, nil
	}
	a.step(now)
	a.note(now)
}

// LeaseBegin is from when a share should have been able to use its last lease:
// before it was granted, when Tick came late.
func (a *Arbiter) LeaseBegin(name string) time.Duration {
	if s := a.find(name); s != nil {
		return s.begun
	}
	return 0
}

// Tick does what time brings. Call it at NextWake or later.
func (a *Arbiter) Tick(now time.Duration) {
	defer a.trace.end(Call{Method: callTick, Now: now})
	a.fill(now)
	if a.asked > 0 {
		a.due = min(a.asked, now)
	}
	a.step(now)
	a.note(now)
}

// Drain returns what has to be carried out since the last call.
func (a *Arbiter) Drain() Orders {
	orders := a.orders
	a.orders = Orders{}
	a.trace.end(Call{Method: callDrain, Orders: &orders})
	return orders
}

// tell orders a lease, unless it was the last that was ordered.
func (a *Arbiter) tell(now time.Duration, s *share, end time.Duration) {
	l := Lease{Share: s.Name, End: end, Backlog: a.backlog(now, s), BesideTo: s.turn.besideTo, BesideFrom: s.turn.besideFrom}
	if end > 0 {
		l.Process = s.process
	}
	if s.told != l {
		s.told = l
		a.orders.Leases = append(a.orders.Leases, l)
	}
}

// bound keeps what comes from outside within what can be calculated with.
func bound(d time.Duration) time.Duration {
	return min(max(d, 0), 1<<61)
}
