// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// step moves the card on as far as it can go now. The balances are filled.
func (a *Arbiter) step(now time.Duration) {
	if !a.gated {
		return
	}
	if a.config.Overlap {
		a.overlap(now)
		return
	}
	if a.holder != nil {
		a.settle(now)
		a.closeWhenDue(now)
	}
	switch a.phase {
	case held:
		next := a.choose(now)
		switch {
		case next == nil:
			return // nobody is kept from anything
		case next != a.holder && a.outranks(next, a.holder):
		case !a.goesOn(next) && a.cut(now):
			return
		case now < a.endsFrom(next), a.comesFirst(now, next):
			return
		case a.goesOn(next):
			a.prolong(now)
			return
		case a.remaining(now) >= a.handover.before:
			return
		}
		a.stop(now)
	case draining, dying:
		next := a.choose(now)
		if next == nil {
			a.holder.awaited.from = never
			return
		}
		if !a.goesOn(next) || a.phase == dying {
			a.await(now)
			switch {
			case a.phase == draining && a.remaining(now) < a.handover.before:
				a.holder.awaited.overruns = max(a.holder.awaited.overruns-1, 0)
			case a.phase == draining && a.outranks(next, a.holder):
			case now >= a.end:
				a.overrun(now)
			default:
				return
			}
		}
		a.leave(now)
	}
	if next := a.choose(now); next != nil {
		a.grant(now, next)
	}
}

// endsFrom is from when the holder's lease may be prolonged, or the next share admitted though it
// lasts. On a busy host that is long before its end; but then the holder is given time to launch first: work
// that it launches while its lease is withdrawn is not awaited, and the next share measures it as its own.
func (a *Arbiter) endsFrom(next *share) time.Duration {
	from := a.end - a.handover.before
	if a.goesOn(next) {
		return from
	}
	return max(from, min(a.end, a.begun+a.handover.before))
}

// comesFirst says whether the holder would go before another share at the end of its
// lease, as it may be about to ask: until then it is not taken for it.
func (a *Arbiter) comesFirst(now time.Duration, next *share) bool {
	s := a.holder
	return now < a.end && next != s && !s.Paused && len(s.waiting) == 0 && s.fixed() && a.before(s, next) &&
		a.eligibleFrom(now, s) <= a.freeFrom(now) && a.meter.Usage(now, s.Name).Submitted > 0
}

// cutTo is when a lease ends that somebody else wants, at the latest.
func (a *Arbiter) cutTo(now time.Duration) time.Duration {
	return max(a.begun+a.quantum(a.holder), now+a.handover.before)
}

// cut shortens a lease that was long because nobody else wanted the card, and
// says whether it did.
func (a *Arbiter) cut(now time.Duration) bool {
	end := a.cutTo(now)
	if a.end <= end {
		return false
	}
	a.end = end
	a.tell(now, a.holder, end)
	return true
}

// closeWhenDue ends a lease whose time is over, when it cannot be prolonged.
func (a *Arbiter) closeWhenDue(now time.Duration) {
	if a.phase != held || now < a.end {
		return
	}
	if a.goesOn(a.choose(now)) && a.meter.Usage(now, a.holder.Name).Submitted > 0 {
		return // step prolongs it
	}
	a.endLease(now, draining, a.end)
}

// endLease takes the lease of the holder away and waits, since then, for what it leaves
// on the card: its work when it is draining, an ended process of it when it is dying.
func (a *Arbiter) endLease(now time.Duration, as phase, since time.Duration) {
	a.closeLease(now)
	a.phase, a.end = as, since+a.patience(a.holder)
}

// grant gives a share a lease.
func (a *Arbiter) grant(now time.Duration, s *share) {
	a.endTurn()
	s.spare(a.config.Window, s.kernel)
	before := s.process
	s.nextProcess()
	a.beginTurn(now, s, s == a.last && s.process == before)
	s.beginAwaited()
	a.begun = max(now, min(a.rest, now+a.handover.before)) // the card is the other's until then
	if a.last != nil {
		a.possess(now, a.last, a.begun-now)
	}
	a.phase, a.holder, a.last = held, s, s
	a.end, a.charged = a.begun+a.length(now, s, a.quantum(s)), 0
	s.served, s.begun, s.hadAt = now, a.due, now
	if !s.fixed() {
		a.clock = max(a.clock, s.fair.at)
	}
	a.tell(now, s, a.end)
}

// prolong adds to the lease of the holder.
func (a *Arbiter) prolong(now time.Duration) {
	s := a.holder
	a.idle(now, min(now, a.end))
	left := max(a.end-now, 0)
	a.end = now + max(left, a.length(now, s, left+a.quantum(s)))
	a.begun, a.charged = now, 0
	s.waiting, s.served = nil, now // nobody else waits, or all may launch
	s.joint = max(s.joint-1, 0)
	if !s.fixed() {
		a.clock = max(a.clock, s.fair.at)
	}
	a.tell(now, s, a.end)
}

// length is how long a lease from now may be, at most most.
func (a *Arbiter) length(now time.Duration, s *share, most time.Duration) time.Duration {
	if !s.fixed() {
		return most
	}
	if !a.contested(s) {
		most = max(most, stretch(s.percent))
		if !slices.ContainsFunc(a.shares, func(other *share) bool { return other != s && a.recent(now, other) }) {
			most = max(most, lasts(s.balance, s.percent)) // to make up for how late it wakes
		}
	}
	return max(s.allowance(now, a.config.Window, most), a.config.Least)
}

// contested says whether another share, or another process of this one, wants the
// card.
func (a *Arbiter) contested(holder *share) bool {
	for _, s := range a.shares {
		if s != holder && s.wants() {
			return true
		}
	}
	others := len(holder.waiting)
	if holder != a.holder || a.goesOn(holder) {
		others-- // for it waits itself
	}
	return others > 0
}

// contestedFrom is since when another share has wanted the card that the holder has.
func (a *Arbiter) contestedFrom() time.Duration {
	from := time.Duration(math.MaxInt64)
	for _, s := range a.shares {
		if s != a.holder && s.wants() {
			from = min(from, s.since)
		}
	}
	return from
}

// goesOn says whether s is the holder, and its lease can go on: nobody but those who
// have it wants another.
func (a *Arbiter) goesOn(s *share) bool {
	switch {
	case s == nil || s != a.holder:
		return false
	case s.process == 0:
		return s.joint > 0 || len(s.waiting) == 1
	}
	return len(s.waiting) == 1 && s.waiting[0] == s.process
}

// nextProcess says which process of a share gets a lease that begins now. They
// take turns, so that each one's work is measured and bounded as if it were the
// only one; but where they leave much of their turns idle the next leases are for
// all, for one's pauses are time for the others.
func (s *share) nextProcess() {
	if s.joint > 0 {
		s.joint--
		s.process, s.waiting = 0, nil
		return
	}
	s.process, s.waiting = s.waiting[0], s.waiting[1:]
}

// leftIdle takes note of how much of its turn a process of the holder has used,
// while others of it waited.
func (a *Arbiter) leftIdle(now time.Duration) {
	const turns, leases = 4, 64
	s := a.holder
	had := min(now, a.end) - a.begun - s.turn.late
	if s.process == 0 || len(s.waiting) == 0 || a.goesOn(s) || had <= a.config.Least {
		return
	}
	s.idle++
	if a.charged >= had/2 {
		s.idle = 0
	}
	if s.idle == turns {
		s.idle, s.joint = 0, leases
	}
}

// stretch is how long the lease of a share is that nobody else wants: so long that
// the pause after it, until the balance is positive again, is no matter of how
// late somebody wakes.
func stretch(percent int64) time.Duration {
	return lasts(int64(stretchPause)*percent, percent)
}

const stretchPause = 4 * time.Millisecond

// lasts is how long a share can use the card before a balance, in a ledger's unit, is used
// up, at most MostQuantum.
func lasts(balance, percent int64) time.Duration {
	if percent >= 100 {
		return MostQuantum
	}
	return min(time.Duration(balance/(100-percent)), MostQuantum)
}

// stop ends the lease of the holder, and with it its turn.
func (a *Arbiter) stop(now time.Duration) {
	a.settle(now)
	if a.phase == held {
		a.closeLease(now)
	}
	a.leave(now)
}

// leave makes the card free.
func (a *Arbiter) leave(now time.Duration) {
	if a.phase != held {
		a.awaitedUntil(now)
	}
	u, remaining := a.meter.Usage(now, a.holder.Name), a.remaining(now)
	a.rest = 0
	if u.Submitted > 0 {
		a.rest = now + remaining
		if w := a.holder.awaited; w.paid > 0 || w.overruns == awaitedOverruns { // what it says is little to go by
			a.rest = now + min(remaining, a.patience(a.holder))
		}
	}
	a.ended, a.holder.turn.rest = u.LastEnd, a.rest
	a.phase, a.holder, a.left = free, nil, now
}

// closeLease takes the lease of the holder away.
func (a *Arbiter) closeLease(now time.Duration) {
	if a.phase == held {
		a.leftIdle(now)
		a.idle(now, min(now, a.end))
		a.endAwaited(now)
	}
	a.tell(now, a.holder, 0)
}

// settle charges the holder what it has used since it was last settled.
func (a *Arbiter) settle(now time.Duration) {
	a.charged += a.meet(now, a.holder)
}

// meet charges a share what it has used since it was last met.
func (a *Arbiter) meet(now time.Duration, s *share) time.Duration {
	u := a.meter.Usage(now, s.Name)
	total := bound(u.Busy) + bound(u.Submitted)
	said := min(max(total-s.seen, -a.config.Debt), a.config.Debt)
	s.seen = total
	late := min(max(u.Late-s.late, 0), a.config.Quantum)
	s.late, s.kernel = u.Late, min(bound(u.Kernel), a.config.Debt)
	if s == a.holder {
		s.turn.late += late
	}
	used := said
	if a.gated {
		used = s.believe(now, said, late, u, a.holds(now, s), a.config.Late)
		if a.config.Overlap {
			used = a.crowding.part(used)
		}
	}
	used += a.settleTurn(now, s, used, u)
	s.bill(used)
	s.payAwaited()
	if !s.fixed() {
		s.fair.use(used, s.weight())
		return used
	}
	if used == 0 {
		return used
	}
	// What is still to run has been counted, and comes after now.
	from := now + min(bound(u.Remaining), max(used, 0)) - used
	if s == a.holder {
		from = max(from, a.begun)
	}
	s.charge(from, used)
	s.keep(a.config.Debt, a.config.Window)
	return used
}

// holds says whether a share may launch now.
func (a *Arbiter) holds(now time.Duration, s *share) bool {
	if a.config.Overlap {
		return s.told.End > now
	}
	return s == a.holder && a.phase == held
}

// believe returns what of what its processes say a share can have used. One that
// has the card alone knows; what several say is bounded by what there was: the share had the
// card from its first launch, which came late after the grant, until its last work
// ended. What they have in flight may take as long as they say, until it has ended.
func (s *share) believe(now, said, late time.Duration, u Usage, holds bool, lag time.Duration) time.Duration {
	if holds || s.flying {
		until := now
		if u.Submitted == 0 && u.LastEnd > 0 {
			until = min(max(u.LastEnd, s.hadAt), now)
		}
		if late > 0 { // after the grant, which was late itself
			late = max(late-(s.served-s.begun), 0)
		}
		s.had += max(until-s.hadAt-late, 0)
	}
	s.hadAt, s.flying = now, u.Submitted > 0
	several := u.Processes > 1 && s.process == 0
	used := said
	switch most := s.had - s.taken; {
	case several && s.flying:
		used = min(said, max(most+bound(u.Submitted), 0))
	case several:
		used = min(said, most)
	}
	s.taken += used
	s.dropped += said - used
	if !several {
		s.had = s.taken - bound(u.Submitted)
	}
	// What they left unused in the past is no leave to count twice now.
	s.had = min(s.had, s.taken+lag)
	return used
}

// idle charges the holder for the part of its turn that it did not use, as far
// as that is more than what it used, and as another share waited meanwhile: a share
// that reports nothing still pays for half of what it keeps others from.
// Work that was in flight before its turn, and still is, has kept it from nothing.
func (a *Arbiter) idle(now, until time.Duration) {
	t, had := &a.holder.turn, max(until-max(a.begun, a.contestedFrom()), 0)
	t.held += had
	a.possess(now, a.holder, had)
	used := t.charged - min(t.carried, a.meter.Usage(now, a.holder.Name).Submitted)
	if more := t.held - 2*used - t.paid; more > 0 {
		a.holder.pay(more)
		t.paid += more
	}
}

// possess takes note that a share had the card for itself, or kept others waiting for it,
// while they wanted it. What it is charged sooner or later is not idle; what it had paid
// for before, beyond what it has in flight, is no excuse.
func (a *Arbiter) possess(now time.Duration, s *share, d time.Duration) {
	s.idled = min(max(s.idled+d, -a.meter.Usage(now, s.Name).Submitted), a.config.Lag)
}

// remaining estimates for how long the work on the card still runs: the holder's, and
// what the one before has left.
func (a *Arbiter) remaining(now time.Duration) time.Duration {
	return max(a.rest-now, 0) + bound(a.meter.Usage(now, a.holder.Name).Remaining)
}

// overrun stops waiting for the holder's work.
func (a *Arbiter) overrun(now time.Duration) {
	s := a.holder
	s.overruns++
	if s.awaited.overruns == awaitedOverruns {
		return // that was told
	}
	if s.awaited.paid > 0 {
		s.awaited.overruns++
	}
	what := "its work outlasts its lease"
	if a.phase == dying {
		what = "the driver still shows a process that has ended"
	}
	message := fmt.Sprintf("%s by more than %v; the next share goes on beside it", what, a.config.Drain)
	if s.awaited.overruns == awaitedOverruns {
		message += "; that happens again and again, and it is not awaited any more until its work ends in time"
	}
	a.orders.Events = append(a.orders.Events, Event{Share: s.Name, Message: message})
}
