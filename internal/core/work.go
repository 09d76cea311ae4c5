// SPDX-License-Identifier: Apache-2.0

package core

import (
	"slices"
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

// Work reads the pages of a share; monotonicNs is the clock of the pages.
func (c *Core) Work(now time.Time, monotonicNs uint64, name string) Work {
	s := c.byName[name]
	if s == nil {
		return Work{}
	}
	sum := Work{Busy: nanoseconds(s.counted)}
	for _, cl := range s.clients {
		r, ok := c.read(now, cl)
		sum.Busy += nanoseconds(cl.work.counted)
		sum.Late += nanoseconds(cl.work.late)
		sum.Span += nanoseconds(cl.work.span)
		sum.Gap += nanoseconds(cl.work.gap)
		sum.Processes++
		sum.LastEnd = max(sum.LastEnd, nanoseconds(min(r.LastEndNs, monotonicNs)))
		if !ok || cl.state != Attached || !cl.page {
			continue
		}
		sum.Kernel = max(sum.Kernel, nanoseconds(r.KernelNs))
		if r.InFlightNs > 0 {
			sum.InFlight += nanoseconds(r.InFlightNs)
			sum.Remaining = max(sum.Remaining, nanoseconds(less(r.DrainNs, monotonicNs)))
		}
	}
	return sum
}

// mostNanoseconds bounds what a client can say: sums of all clients still fit.
const mostNanoseconds = 1 << 50

func nanoseconds(ns uint64) time.Duration { return time.Duration(min(ns, mostNanoseconds)) }

// Attached is how many processes of a share are attached.
func (c *Core) Attached(name string) (n int) {
	if s := c.byName[name]; s != nil {
		for _, cl := range s.clients {
			if cl.state == Attached {
				n++
			}
		}
	}
	return n
}

// Ending says whether the driver may still show a process of a share that has
// ended.
func (c *Core) Ending(name string) bool {
	s := c.byName[name]
	return s != nil && slices.ContainsFunc(s.clients, (*client).ending)
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
