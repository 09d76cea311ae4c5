// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"math"
	"time"

	terms "github.com/divvy-gpu/divvy/internal/share"
)

// choose finds the share that should have the card next, among those that
// want it now: nil when there is none.
func (a *Arbiter) choose(now time.Duration) *share {
	var best *share
	free := a.freeFrom(now)
	for _, s := range a.shares {
		if !s.wants() || a.eligibleFrom(now, s) > free {
			continue
		}
		if best == nil || a.before(s, best) {
			best = s
		}
	}
	return best
}

// freeFrom is when the work on the card is estimated to have ended, at most the
// handover time from now: a share that may use it then may have it now.
func (a *Arbiter) freeFrom(now time.Duration) time.Duration {
	rest := a.rest
	if a.holder != nil {
		rest = now + a.remaining(now)
	}
	return max(now, min(rest, now+a.handover.before))
}

// before says whether s goes before other: a fixed share that is far behind its
// rate, then by priority, then fixed shares, for they were promised their time,
// then those with a weight. Among equals it is the one that is furthest behind
// its rate, has used the least for its weight, or has waited longest.
func (a *Arbiter) before(s, other *share) bool {
	switch {
	case a.urgent(s) != a.urgent(other):
		return a.urgent(s)
	case s.Priority != other.Priority:
		return s.Priority > other.Priority
	case s.rank() != other.rank():
		return s.rank() > other.rank()
	case s.fixed() && s.lag() != other.lag():
		return s.lag() > other.lag()
	case !s.fixed() && s.fair.at != other.fair.at:
		return s.fair.at < other.fair.at
	}
	return s.served < other.served
}

// rank orders the policies.
func (s *share) rank() int {
	switch s.Policy {
	case terms.Fixed:
		return 2
	case terms.Equal, terms.Weighted:
		return 1
	}
	return 0
}

// eligibleFrom is when a share may have a lease, if it uses nothing until then.
func (a *Arbiter) eligibleFrom(now time.Duration, s *share) time.Duration {
	if !s.fixed() {
		return now
	}
	at := s.positiveFrom(now, a.config.Window)
	return max(at, s.allowedFrom(at, a.config.Window, a.worth(s)))
}

// worth is how long a share must be allowed to use the card before it gets a
// lease. The holder goes on with any; a share that its window holds back waits for
// a long lease, because one pause costs less than many short ones, each of which
// ends when somebody has woken.
func (a *Arbiter) worth(s *share) time.Duration {
	if s == a.holder && a.phase == held || s.slack > 0 {
		return a.config.Least
	}
	long := stretch(s.percent)
	if a.contested(s) {
		long = min(long, a.quantum(s))
	}
	return min(max(long, a.config.Least), s.part(a.config.Window))
}

// fill lets the balances grow to now.
func (a *Arbiter) fill(now time.Duration) {
	a.due = now
	behind, slack := time.Duration(0), a.slack(now)
	for _, s := range a.shares {
		s.slack = slack
		if !s.fixed() {
			if a.gated && s.wants() && s != a.holder {
				a.meet(now, s)
			}
			continue
		}
		had := time.Duration(s.balance / 100)
		s.fill(now, a.config.Window)
		s.forget(now, a.config.Window)
		if !a.gated {
			s.keep(a.config.Debt, a.saving(s))
			continue
		}
		if s.wants() && s != a.holder {
			a.meet(now, s) // what was measured late
		}
		most := s.of(a.config.Lag)
		switch {
		case s == a.holder, a.config.Overlap && a.holds(now, s):
		case !s.wants() && s.slack > 0 && now-s.wanted <= a.config.Lag:
			// It is about to ask again, and keeps what it had.
			s.keep(a.config.Debt, max(a.saving(s), min(had, most)))
		case !s.wants():
			// What it does not take is not saved up.
			s.keep(a.config.Debt, a.saving(s))
		case s.bar(s.allowedFrom(now, a.config.Window, a.worth(s))):
			// It may not take it now, but makes up for a pause later.
			s.keep(a.config.Debt, max(a.saving(s), most))
		default:
			behind = max(behind, s.lag()-a.config.Lag)
		}
	}
	if behind <= 0 {
		return
	}
	// The card gives less than was promised. Those who left it idle pay for that first.
	for _, s := range a.shares {
		if s.fixed() {
			s.pay(max(s.idled, 0))
		}
	}
	// Then time stands still for all who want it and are behind, so that each falls short
	// by the same part.
	for _, s := range a.shares {
		if s.fixed() && (s.wants() || s == a.holder) {
			s.balance -= min(int64(behind)*s.percent, max(s.balance, 0))
			s.keep(a.config.Debt, a.config.Window)
		}
	}
}

// slack is by how much fixed shares may go beyond their parts of a window: where
// those that want the card were promised nearly all of it, a moment in which it
// stood idle could never be made up for otherwise.
func (a *Arbiter) slack(now time.Duration) time.Duration {
	const nearlyAll = 97
	sum := int64(0)
	for _, s := range a.shares {
		if s.fixed() && (s.wants() || s == a.holder || a.recent(now, s)) {
			sum += s.percent
		}
	}
	if sum < nearlyAll {
		return 0
	}
	return max(a.config.Backlog-a.config.Least, 0) // the rest is for what is known no better
}

// saving is how much a share may save up.
func (a *Arbiter) saving(s *share) time.Duration {
	return max(a.config.Burst, s.of(a.config.Saving))
}

// NextWake is when Tick has something to do; 0: never, as things are.
func (a *Arbiter) NextWake(now time.Duration) time.Duration {
	a.asked = a.nextWake(now)
	a.trace.end(Call{Method: callWake, Now: now, Wake: a.asked})
	return a.asked
}

func (a *Arbiter) nextWake(now time.Duration) time.Duration {
	if !a.gated {
		return 0
	}
	if a.config.Overlap {
		return a.nextOverlap(now)
	}
	first := time.Duration(math.MaxInt64)
	for _, s := range a.shares {
		if s.wants() {
			first = min(first, a.eligibleFrom(now, s))
		}
	}
	switch {
	case first == math.MaxInt64:
		return 0 // nobody waits
	case a.holder != nil && first <= now+a.remaining(now):
		first = max(first-a.handover.before, now)
	}
	switch a.phase {
	case held:
		next := a.choose(now)
		if next != nil && !a.goesOn(next) &&
			(next != a.holder && a.outranks(next, a.holder) || a.cutTo(now) < a.end) {
			return now
		}
		// A lease that has run out is looked at once more: then it drains.
		if from := a.endsFrom(next); now < from {
			return max(first, from)
		}
		if next != nil && a.comesFirst(now, next) {
			return a.end
		}
		return max(first, min(max(a.end, now+1), now+a.untilHandover(now)))
	case draining:
		return max(first, min(a.end, now+a.untilHandover(now)))
	case dying:
		return max(first, a.end)
	}
	return first
}

// untilHandover is how long the holder's work takes until the next may come.
func (a *Arbiter) untilHandover(now time.Duration) time.Duration {
	return max(a.remaining(now)-a.handover.before, 0) + 1
}
