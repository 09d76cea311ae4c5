// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"math"
	"time"
)

// With Config.Overlap shares have the card beside each other: each fixed share a
// lease whenever its balance is positive, the others whenever they ask. Work of
// several shares then runs at once where the card can do that. Where it only takes
// turns, each one's kernels take longer beside the others', and together the
// shares measure more than there was: then each is charged for its part of what
// there was, an estimate. There are no turns: weights and priorities mean nothing.

// crowding compares what overlapping shares say with what there was.
type crowding struct {
	at   time.Duration
	used bool          // some had work in flight then
	said time.Duration // lately, all of them
	was  time.Duration // time in which any of them had work in flight, or might have launched some
}

const crowdingFades = time.Second

// note takes what was said since it was called last.
func (c *crowding) note(now, said time.Duration, used bool) {
	passed := min(now-c.at, crowdingFades)
	c.at = now
	keep := 1 - float64(passed)/float64(crowdingFades)
	c.said = time.Duration(float64(c.said)*keep) + said
	c.was = time.Duration(float64(c.was) * keep)
	if used {
		c.was += passed
	}
}

// part is what of a time that was said is believed.
func (c *crowding) part(said time.Duration) time.Duration {
	if c.said <= c.was || c.said <= 0 {
		return said
	}
	return time.Duration(float64(said) * float64(c.was) / float64(c.said))
}

// overlap is step for shares beside each other.
func (a *Arbiter) overlap(now time.Duration) {
	said, used, flying := time.Duration(0), a.crowding.used, false
	for _, s := range a.shares {
		used = used || s.told.End > a.crowding.at
		a.meet(now, s)
		said += s.taken - s.crowded
		s.crowded = s.taken
		flying = flying || s.flying
	}
	a.crowding.note(now, said, used)
	a.crowding.used = flying
	for _, s := range a.shares {
		if !s.wants() || s.told.End-now > a.config.Handover || a.eligibleFrom(now, s) > now {
			continue
		}
		left := max(s.told.End-now, 0)
		s.process, s.waiting, s.served, s.begun = 0, nil, now, a.due
		if left == 0 {
			s.hadAt = now
		}
		a.tell(now, s, now+max(left, a.length(now, s, left+a.config.Quantum)))
	}
}

// leaveOverlap ends the lease of a share that has nothing in flight.
func (a *Arbiter) leaveOverlap(now time.Duration, name string) {
	s := a.find(name)
	if s == nil || !a.gated || !a.config.Overlap {
		return
	}
	if a.meet(now, s); !s.flying {
		a.tell(now, s, 0)
	}
}

// nextOverlap is NextWake for shares beside each other.
func (a *Arbiter) nextOverlap(now time.Duration) time.Duration {
	first := time.Duration(math.MaxInt64)
	for _, s := range a.shares {
		if s.wants() {
			first = min(first, max(a.eligibleFrom(now, s), s.told.End-a.config.Handover))
		}
	}
	if first == math.MaxInt64 {
		return 0
	}
	return first
}
