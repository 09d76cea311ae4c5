// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"time"

	terms "github.com/divvy-gpu/divvy/internal/share"
)

// fair is the account of a share without a fixed part: what it used, divided by
// its weight. The one with the least is served first. A share that wanted nothing
// for a while begins where the others are, less one quantum: what it did not want
// it cannot claim later.
type fair struct {
	at time.Duration
}

// use counts time that was used; less than 0: less than was thought before.
func (f *fair) use(used time.Duration, weight int) {
	f.at += used / time.Duration(weight)
}

// enter brings a share that has begun to want the card up to the others.
func (a *Arbiter) enter(s *share) {
	s.fair.at = max(s.fair.at, a.clock-a.config.Quantum/time.Duration(s.weight()))
}

// weight of a share among those without fixed parts.
func (s *share) weight() int {
	if s.Policy == terms.Weighted {
		return max(s.Weight, 1)
	}
	return 1
}

// charged charges a share for time of the card that it had before now.
func (s *share) charged(now, d time.Duration) {
	s.bill(d)
	if s.fixed() {
		s.ledger.charge(now-d, d)
		return
	}
	s.fair.use(d, s.weight())
}

// bill takes note of what a share is charged for its work.
func (s *share) bill(d time.Duration) {
	s.billed += d
	s.idled -= d
}

// pay charges a share for time of the card that it did not use.
func (s *share) pay(d time.Duration) {
	s.idled -= d
	if s.fixed() {
		s.balance -= 100 * int64(d)
		return
	}
	s.fair.use(d, s.weight())
}

const never = -1 << 61

// recent says whether a share has asked lately.
func (a *Arbiter) recent(now time.Duration, s *share) bool { return now-s.wanted < a.config.Recent }

// backlog is how much unfinished work the processes of a share may keep: little
// when one of a higher priority may want the card at any moment, for what is in
// flight cannot be taken back, or when all of them launch in the same lease, for at
// its end each has as much; more when nobody else wants the card, but no more than may
// still run after a change that should hold. A process adds how late it wakes.
func (a *Arbiter) backlog(now time.Duration, s *share) time.Duration {
	for _, other := range a.shares {
		if other.Priority > s.Priority && a.recent(now, other) {
			return a.config.Brief
		}
	}
	switch {
	case s == a.holder && s.process == 0:
		return a.config.Brief
	case !a.contested(s):
		return a.config.Deepest
	}
	return a.config.Backlog
}

// busyHost says that timers and programs wake so late that each change of the
// holder costs much.
func (a *Arbiter) busyHost() bool { return a.handover.before > 2*a.handover.least }

// holdBack tells shares of lower priorities that a share has begun to ask.
func (a *Arbiter) holdBack(now time.Duration, s *share) {
	for _, other := range a.shares {
		if other.Priority < s.Priority {
			a.tell(now, other, other.told.End)
		}
	}
}

// urgent says that a fixed share has fallen so far behind its rate that it
// comes before any priority.
func (a *Arbiter) urgent(s *share) bool { return s.fixed() && s.lag() > a.config.Lag/2 }

// outranks says whether s takes the card from a holder at once.
func (a *Arbiter) outranks(s, holder *share) bool {
	return s.Priority > holder.Priority && !a.urgent(holder)
}

// quantum is how long a lease of a share may be now: shorter where many wait, so
// that a turn of all does not take too long; longer for one with long kernels, so
// that one of them is not most of what it takes, or where each change of the holder
// costs much, because the host is busy. While a fixed share waits it is one kernel or two quanta
// at most, and for one that goes after that share no longer at all: who may use so much of
// each window and no more cannot make up later for a long lease that came in between.
func (a *Arbiter) quantum(s *share) time.Duration {
	waiting, fixed := 0, false
	for _, other := range a.shares {
		if other.wants() {
			waiting += len(other.waiting)
			fixed = fixed || other.fixed() && other != s && other.Priority >= s.Priority
		}
	}
	q, kernel := a.config.Quantum, min(s.kernel, s.ran)
	longest := 2 * kernel
	if fixed {
		longest = min(longest, max(kernel, 2*q))
	}
	if waiting > crowd {
		q = q * crowd / time.Duration(waiting)
	}
	switch {
	case fixed && !s.fixed():
		longest = 0
	case a.busyHost():
		q = 2 * q
	}
	return min(max(q, shortQuantum, longest, LeastQuantum), MostQuantum)
}

const (
	crowd        = 4
	shortQuantum = 4 * time.Millisecond
)
