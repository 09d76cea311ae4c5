// SPDX-License-Identifier: Apache-2.0

package arbiter

import "time"

// awaited is what a share made others wait for with its last lease. What it says it has in
// flight is charged when it says so, and taken back when it is not there any more; but at
// least it pays for the part of the lease that it left idle, if that is more than what it
// used, and for all of the time in which others waited for what it had in flight at its end.
type awaited struct {
	on       bool          // the lease has ended
	from     time.Duration // since when somebody waits; never: nobody does
	lasted   time.Duration
	start    time.Duration // what the share was charged in all when the lease began
	base     time.Duration // and when it ended, but for what it had submitted since and was in flight then
	held     time.Duration // for how long it had the lease; until it ends: its turn until then
	idle     time.Duration // what it has paid for being idle, the same
	paid     time.Duration // besides
	overruns int           // in a row, of which it had not been charged the time
}

// awaitedOverruns is how often in a row a share is awaited in vain.
const awaitedOverruns = 4

// patience is for how long the work of a share is awaited that outlasts its lease.
func (a *Arbiter) patience(s *share) time.Duration {
	if s.awaited.overruns >= awaitedOverruns {
		return 0
	}
	return a.config.Drain
}

// beginAwaited takes note of a share's lease that begins, after its turn.
func (s *share) beginAwaited() {
	s.awaited = awaited{overruns: s.awaited.overruns, from: never, held: s.turn.held, idle: s.turn.paid,
		start: s.billed}
}

// endAwaited takes note of the end of the holder's lease, which is settled.
func (a *Arbiter) endAwaited(now time.Duration) {
	s := a.holder
	w := &s.awaited
	if !w.on {
		w.on, w.held, w.idle = true, s.turn.held-w.held, s.turn.paid-w.idle
		w.base = s.billed - min(a.meter.Usage(now, s.Name).Submitted, max(s.billed-w.start, 0))
	}
}

// await counts that somebody waits for the holder's work.
func (a *Arbiter) await(now time.Duration) {
	a.awaitedUntil(now)
	s := a.holder
	w := &s.awaited
	if a.phase == dying || a.meter.Usage(now, s.Name).Remaining >= a.handover.before {
		w.from = now // for its own work, not for what the one before has left
	}
	s.payAwaited()
}

// awaitedUntil counts that somebody has waited for the holder's work, or for its end, until now; or
// until that should have been over, if the caller comes late.
func (a *Arbiter) awaitedUntil(now time.Duration) {
	s := a.holder
	w := &s.awaited
	if w.from == never {
		return
	}
	lasted := max(min(now, a.end, a.asked+a.handover.before)-w.from, 0)
	w.lasted += lasted
	a.possess(now, s, lasted)
	w.from = never
	s.payAwaited()
}

// payAwaited charges a share for what it made others wait for and, as it turns out, had no
// use of.
func (s *share) payAwaited() {
	w := &s.awaited
	if !w.on {
		return
	}
	used := max(s.billed-w.start-w.lasted, 0)
	owes := max(w.base+w.lasted-s.billed, 0) + max(w.held-2*used-w.idle, 0)
	if owes != w.paid {
		s.pay(owes - w.paid)
		w.paid = owes
	}
}

// bounded is a meter whose figures make sense beside each other, and can be added up.
type bounded struct {
	Meter
	most time.Duration
}

func (b bounded) Usage(now time.Duration, share string) Usage {
	u := b.Meter.Usage(now, share)
	u.Submitted = min(bound(u.Submitted), b.most)
	u.Remaining = min(bound(u.Remaining), u.Submitted+b.most)
	return u
}
