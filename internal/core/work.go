// SPDX-License-Identifier: Apache-2.0

package core

import (
	"time"

	terms "github.com/divvy-gpu/divvy/internal/share"
)

// work is what a client says of its time on the card.
type work struct {
	busy    uint64 // ns, the most it ever said
	wait    uint64
	late    uint64
	span    uint64
	gap     uint64
	counted uint64 // of busy, since it attached to this agent
	fresh   bool   // it came back: what it says first is from before
}

// observe takes a reading. A counter that falls is not believed.
func (w *work) observe(r Reading) {
	if r.BusyNs > w.busy {
		if !w.fresh {
			w.counted += r.BusyNs - w.busy
		}
		w.busy = r.BusyNs
	}
	if r.BusyNs > 0 {
		w.fresh = false
	}
	w.wait = max(w.wait, r.WaitNs)
	w.late = max(w.late, r.LateNs)
	w.span = max(w.span, r.SpanNs)
	w.gap = max(w.gap, r.GapNs)
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
	s.counted += nanoseconds(now.counted) - nanoseconds(before.counted)
	s.late += nanoseconds(now.late) - nanoseconds(before.late)
	s.span += nanoseconds(now.span) - nanoseconds(before.span)
	s.gap += nanoseconds(now.gap) - nanoseconds(before.gap)
}

func (cl *client) observe(r Reading) {
	before := cl.work
	cl.reading = r
	cl.work.observe(r)
	cl.share.sum.move(before, cl.work)
}

// Work reads the pages of a share, or where it has many clients, those of some;
// monotonicNs is the clock of the pages.
func (c *Core) Work(now time.Time, monotonicNs uint64, name string) Work {
	s := c.byName[name]
	if s == nil {
		return Work{}
	}
	w := Work{Processes: len(s.clients.all)}
	flies := func(r Reading) {
		w.Kernel = max(w.Kernel, nanoseconds(r.KernelNs))
		if r.InFlightNs > 0 {
			w.InFlight += nanoseconds(r.InFlightNs)
			w.Remaining = max(w.Remaining, nanoseconds(less(r.DrainNs, monotonicNs)))
		}
	}
	if len(s.clients.all) <= observedClients {
		for _, cl := range s.clients.all {
			r, ok := c.read(now, cl)
			w.LastEnd = max(w.LastEnd, nanoseconds(min(r.LastEndNs, monotonicNs)))
			if ok && cl.state == Attached && cl.page {
				flies(r)
			}
		}
	} else {
		c.readLively(now, s, func(r Reading) {
			s.lastEnd = max(s.lastEnd, nanoseconds(min(r.LastEndNs, monotonicNs)))
			flies(r)
		})
		w.LastEnd = s.lastEnd
	}
	w.Busy = nanoseconds(s.counted) + s.sum.counted
	w.Late, w.Span, w.Gap = s.sum.late, s.sum.span, s.sum.gap
	return w
}

// mostNanoseconds bounds what a client can say: sums of all clients still fit.
const mostNanoseconds = 1 << 50

func nanoseconds(ns uint64) time.Duration { return time.Duration(min(ns, mostNanoseconds)) }

// Attached is how many processes of a share are attached.
func (c *Core) Attached(name string) int {
	if s := c.byName[name]; s != nil {
		return s.attached
	}
	return 0
}

// Ending says whether the driver may still show a process of a share that has
// ended.
func (c *Core) Ending(name string) bool {
	s := c.byName[name]
	return s != nil && s.ending > 0
}

// Terms are what a share was promised of its card's time.
type Terms struct {
	Name, CardUUID string
	Policy         terms.Policy
	CoresPercent   int
	Weight         int
	Priority       int
	Paused         bool
}

// Terms lists them in order of creation. Programs of a deleted share are held to
// its terms until they end.
func (c *Core) Terms() []Terms {
	terms := make([]Terms, 0, len(c.shares))
	for _, s := range c.shares {
		terms = append(terms, Terms{Name: s.Name, CardUUID: s.card.UUID, Policy: s.Policy,
			CoresPercent: s.CoresPercent, Weight: s.Weight, Priority: s.Priority, Paused: s.Paused})
	}
	return terms
}
