// SPDX-License-Identifier: Apache-2.0

package core

import (
	"time"

	terms "github.com/divvy-gpu/divvy/internal/share"
)

// work is what a client says of its time on the card. Nobody has used more of a card than
// has passed: beyond that nothing is charged, and of a stranger that says far more, what it said is
// no figure of its share.
type work struct {
	busy    uint64 // ns, the most it ever said
	wait    uint64
	late    uint64
	span    uint64
	gap     uint64
	counted uint64 // of busy, since it attached to this agent
	fresh   bool   // it came back: what it says first is from before

	firstNs uint64 // when it attached first, by the clock of the pages, which nobody sets
	lies    bool
	own     bool // of the share's owner: what it says is a figure of its share as it is
	told    told
}

// told are the figures of a share that a client adds to.
type told struct{ busy, wait, launches uint64 }

// What a process can have said by then: its threads wait beside each other.
const (
	mostThreads  = 1024
	leastLaunch  = 10        // ns
	mostSurprise = 1_000_000 // launches, or us: estimates run ahead
)

// observe takes a reading. A counter that falls is not believed.
func (w *work) observe(r Reading) {
	passed := uint64(mostCounted)
	if r.AtNs > 0 {
		passed = min(less(r.AtNs, w.firstNs), mostCounted)
	}
	w.lies = w.lies || r.AtNs > 0 && (r.BusyNs/4 > passed+1000*mostSurprise || r.WaitNs/mostThreads > passed+1000*mostSurprise ||
		r.Launches > passed/leastLaunch+mostSurprise)
	if busy := min(r.BusyNs, passed); busy > w.busy {
		if !w.fresh {
			w.counted += busy - w.busy
		}
		w.busy = busy
	}
	if r.BusyNs > 0 {
		w.fresh = false
	}
	w.wait = max(w.wait, r.WaitNs)
	w.late = max(w.late, min(r.LateNs, passed))
	w.span = max(w.span, min(r.SpanNs, passed))
	w.gap = max(w.gap, min(r.GapNs, passed))
	switch {
	case w.own:
		w.told.busy = max(w.told.busy, min(r.BusyNs, mostCounted))
	case w.lies:
		return
	default:
		w.told.busy = max(w.told.busy, w.busy)
	}
	w.told.wait, w.told.launches = max(w.told.wait, min(w.wait, mostCounted)), max(w.told.launches, r.Launches)
}

// Work is what the processes of a share say of their time on the card, summed.
type Work struct {
	Busy      time.Duration // measured since this agent knows them, gone ones included
	InFlight  time.Duration // estimate of what they have in flight, as submitted
	Remaining time.Duration // estimate of how long that still takes
	Processes int           // that are attached
	Late      time.Duration // by how much their first launches under a lease came late
	Span      time.Duration // like Busy, but what ran beside their work included
	Gap       time.Duration // of that, how long the card may have waited for a launch
	LastEnd   time.Duration // when the last of their work that is known to have ended did, by the pages' clock
	Kernel    time.Duration // the longest of what they have launched lately; 0: unknown
}

// sums are of what the clients of a share say.
type sums struct{ counted, late, span, gap time.Duration }

// move takes what a client has said before out, and what it says now in.
func (s *sums) move(before, now work) {
	s.counted += counted(now.counted) - counted(before.counted)
	s.late += counted(now.late) - counted(before.late)
	s.span += counted(now.span) - counted(before.span)
	s.gap += counted(now.gap) - counted(before.gap)
}

func (b *balance) observe(r Reading) {
	before := b.work
	b.reading = r
	b.work.observe(r)
	b.slot.sum.move(before, b.work)
}

// Work reads the pages of a share for one slot, or where it has many clients, those of
// some; monotonicNs is the clock of the pages.
func (c *Core) Work(now time.Time, monotonicNs uint64, name string, number int) Work {
	t := c.slot(name, number)
	if t == nil {
		return Work{}
	}
	w := Work{Processes: len(t.clients())}
	flies := func(r Reading) {
		w.Kernel = max(w.Kernel, nanoseconds(r.KernelNs))
		if r.InFlightNs > 0 {
			w.InFlight += nanoseconds(r.InFlightNs)
			w.Remaining = max(w.Remaining, nanoseconds(less(r.DrainNs, monotonicNs)))
		}
	}
	if len(t.clients()) <= observedClients {
		for b := range t.balances {
			r, ok := c.read(now, b)
			w.LastEnd = max(w.LastEnd, nanoseconds(min(r.LastEndNs, monotonicNs)))
			if ok && b.state == Attached && b.page {
				flies(r)
			}
		}
	} else {
		c.readLively(now, t, func(r Reading) {
			t.lastEnd = max(t.lastEnd, nanoseconds(min(r.LastEndNs, monotonicNs)))
			flies(r)
		})
		w.LastEnd = t.lastEnd
	}
	w.Busy = time.Duration(min(t.counted, mostOfShare)) + t.sum.counted
	w.Late, w.Span, w.Gap = t.sum.late, t.sum.span, t.sum.gap
	return w
}

// mostNanoseconds bounds what a client can say: sums of all clients still fit.
const mostNanoseconds = 1 << 50

func nanoseconds(ns uint64) time.Duration { return time.Duration(min(ns, mostNanoseconds)) }

// Counters go on for longer: of one client for a year.
const (
	mostCounted = 1 << 55
	mostOfShare = 1 << 60
)

func counted(ns uint64) time.Duration { return time.Duration(min(ns, mostCounted)) }

// Attached is how many processes of a share are attached.
func (c *Core) Attached(name string) int {
	if s := c.byName[name]; s != nil {
		return s.attached
	}
	return 0
}

// Ending says whether the driver may still show a process of a share, on the card of a
// slot, that has ended.
func (c *Core) Ending(of Slot) bool {
	t := c.slot(of.Share, of.Number)
	return t != nil && t.ending > 0
}

// Terms are what a share was promised of a card's time.
type Terms struct {
	Name         string
	Policy       terms.Policy
	CoresPercent int
	Weight       int
	Priority     int
	Paused       bool
	Used         bool // until this agent began, by programs that it awaited
}

// TermsOn are those of a share on a card; false: it is not there. Programs of a deleted share are
// held to its terms until they end.
func (c *Core) TermsOn(name, cardUUID string) (Terms, bool) {
	s := c.byName[name]
	if s.slotOn(c.cardOf(cardUUID)) == nil {
		return Terms{}, false
	}
	return Terms{Name: s.Name, Policy: s.Policy, CoresPercent: s.CoresPercent, Weight: s.Weight, Priority: s.Priority, Paused: s.Paused, Used: s.usedBefore}, true
}
