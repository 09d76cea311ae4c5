// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"math"
	"time"
)

// account holds together what all shares of a card are charged: over any time, no
// more than has passed, and no less than the card was busy.
//
// What a process measures is exact while nobody runs beside it. Where one share's
// turn ends and the next one's begins their work runs interleaved, and each can only
// estimate its own part. But the turns follow each other without a gap: from the end
// of the work of the one before to the end of its own a share had the card, less what
// it left idle, plus what it ran before, minus what the next one ran before its end.
// Those two are the same time, seen from two sides, so that over all turns the
// estimates must cancel out. By how much they did not is known, ahead; a charge that
// would move it beyond tolerance is cut, or raised, to what the turn can have been.
type account struct {
	edge  time.Duration // until when the turns are accounted for
	ahead time.Duration // by how much more was charged than the turns were long
	log   log
	total Account
}

// Account says what became of a card's time while it was gated: by then all of it
// was charged to a share, or the card was idle.
type Account struct {
	Passed  time.Duration
	Charged time.Duration
	Idle    Idle
}

// Idle is for how long a card had nothing to do, by cause.
type Idle [causes]time.Duration

// Cause is why a card had nothing to do.
type Cause int

// Causes.
const (
	Unwanted    Cause = iota // no share wanted it
	Ineligible               // those that wanted it had used up their parts
	Remainder                // the next share waited for work that had ended
	AgentLate                // the next share's lease came late
	ProcessLate              // its first launch came late after that
	RanDry                   // the share that had it launched too little
	causes
)

func (c Cause) String() string {
	return [causes]string{"unwanted", "ineligible", "remainder", "agent-late", "process-late", "ran-dry"}[c]
}

// log is what stood in the way of work, since when, in order.
type log []logged

type logged struct {
	at    time.Duration
	cause Cause
}

const maxLogged = 128

func (l *log) note(at time.Duration, cause Cause) {
	for n := len(*l); n > 0 && (*l)[n-1].at >= at; n-- {
		*l = (*l)[:n-1]
	}
	switch n := len(*l); {
	case n > 0 && (*l)[n-1].cause == cause:
	case n == maxLogged:
		(*l)[1].at = (*l)[0].at
		copy(*l, (*l)[1:])
		(*l)[n-1] = logged{at, cause}
	default:
		*l = append(*l, logged{at, cause})
	}
}

// add adds an interval without work to what is known, by cause.
func (l log) add(idle *Idle, from, to time.Duration) {
	for i, entry := range l {
		end := to
		if i+1 < len(l) {
			end = min(l[i+1].at, to)
		}
		begin := max(entry.at, from)
		if i == 0 {
			begin = from
		}
		if end > begin {
			idle[entry.cause] += end - begin
		}
	}
}

// forget drops what is before at.
func (l *log) forget(at time.Duration) {
	n := 0
	for n+1 < len(*l) && (*l)[n+1].at <= at {
		n++
	}
	*l = append((*l)[:0], (*l)[n:]...)
}

// note takes note of what stands in the way of work from now on.
func (a *Arbiter) note(now time.Duration) {
	if !a.gated {
		a.account.log = a.account.log[:0]
		return
	}
	if a.due < now {
		a.account.log.note(a.due, AgentLate)
	}
	wanted, eligible := false, false
	for _, s := range a.shares {
		if s.wants() {
			wanted = true
			eligible = eligible || a.eligibleFrom(now, s) <= now
		}
	}
	switch {
	case a.phase == held:
		a.account.log.note(now, RanDry)
	case !wanted:
		a.account.log.note(now, Unwanted)
	case !eligible:
		a.account.log.note(now, Ineligible)
	default:
		a.account.log.note(now, Remainder)
	}
}

// Account is what became of the card's time until now.
func (a *Arbiter) Account(now time.Duration) Account {
	total := a.account.total
	open := a.gated && a.account.edge < now
	for _, s := range a.shares {
		open = open && !s.turn.open
	}
	if open {
		a.account.log.add(&total.Idle, a.account.edge, now)
		total.Passed += now - a.account.edge
	}
	return total
}

// aheadFades is in how many turns, about, what estimates were off is forgotten: what
// measuring adds to or leaves out of each turn is no estimate. On a busy host of two
// processors that was up to 0.06 ms each; with this it is 0.08 until charges are touched.
const aheadFades = 128

// tolerance is how far estimates may be apart: half of what may run interleaved.
func (c Config) tolerance() time.Duration { return c.Quantum }

// turn is what a share makes of the card from its grant until all that it has
// launched since has ended.
type turn struct {
	due        time.Duration // when it should have been granted
	handed     bool          // the share before it had used the card until then
	granted    time.Duration
	late       time.Duration // from then to its first launch
	open       bool          // not accounted for
	left       bool          // some of the share's work went on from before
	carried    time.Duration // how much
	several    bool          // processes of the share may run beside each other
	span, gap  time.Duration // Usage then; once it is accounted for: since then
	charged    time.Duration // since
	held       time.Duration // for how long it had leases
	paid       time.Duration // for what it left idle of that
	rest       time.Duration // until when its work would run, as it seemed when it left the card
	besideTo   time.Duration // see Lease
	besideFrom time.Duration
}

// beginTurn takes note of a share's grant, before that; same: the process that had the
// card last gets it again.
func (a *Arbiter) beginTurn(now time.Duration, s *share, same bool) {
	handed := a.left == now && (a.rest > 0 || a.ended >= a.due)
	if handed && same && s.turn.open {
		return // it goes on
	}
	u := a.meter.Usage(now, s.Name)
	if s.turn.open {
		a.closeTurn(now, s, u)
	}
	if !s.fixed() && s.idled > 0 {
		s.pay(s.idled) // what it has is a part of the time; a fixed one pays when others fall behind (fill)
	}
	s.ran = max(s.turn.charged, s.ran/2)
	left := min(bound(u.Remaining), bound(u.Submitted))
	s.turn = turn{handed: handed, due: a.due, granted: now, open: true, left: left > 0, carried: left, several: u.Processes > 1 && s.process == 0 || u.Submitted > 0,
		span: bound(u.Span) + bound(u.Submitted) - left, gap: bound(u.Gap), charged: left,
		besideFrom: s.turn.besideFrom} // not all of its last turn is known yet
	if a.rest == 0 || a.last == nil || same {
		return
	}
	// Two that take turns may take twice as long; on a busy host its programs launched later than they say.
	rest := max(a.rest-now, 0)
	s.turn.besideTo = now + 2*rest + a.handover.before
	a.last.turn.besideFrom = now
	if a.last != s {
		a.tell(now, a.last, a.last.told.End)
	}
}

// account takes note of what a share is charged, and once all of its turn has ended
// of the turn. It returns what is charged besides.
func (a *Arbiter) settleTurn(now time.Duration, s *share, used time.Duration, u Usage) time.Duration {
	s.turn.charged += used
	a.account.total.Charged += used
	if !s.turn.open || u.Submitted > 0 || a.holds(now, s) || a.config.Overlap {
		return 0
	}
	if a.olderTurn(s) != nil && now-u.LastEnd < a.config.Drain {
		return 0 // its processes are about to say when that ended
	}
	return a.correction(now, s, u)
}

// olderTurn is a share whose turn came before that of another one and is not
// accounted for; nil: there is none.
func (a *Arbiter) olderTurn(s *share) *share {
	for _, other := range a.shares {
		if other.turn.open && other.turn.granted < s.turn.granted {
			return other
		}
	}
	return nil
}

// closeTurn accounts for a turn as if what a share has in flight had run as estimated.
func (a *Arbiter) closeTurn(now time.Duration, s *share, u Usage) {
	left := min(bound(u.Remaining), bound(u.Submitted))
	done := bound(u.Submitted) - left
	s.turn.several = s.turn.several || done > 0
	s.turn.charged -= left
	if left > 0 {
		u.LastEnd = max(u.LastEnd, min(now, s.turn.rest))
	} else if u.LastEnd > 0 {
		u.LastEnd += done
	}
	u.Span = bound(u.Span) + done
	if correction := a.correction(now, s, u); correction != 0 {
		s.charged(now, correction)
	}
}

// correction ends the account of a turn, all of which has ended, and returns by how
// much more must be charged for it.
func (a *Arbiter) correction(now time.Duration, s *share, u Usage) time.Duration {
	t := &s.turn
	t.open = false
	// What came before has ended, too, though its processes have not said so.
	for other := a.olderTurn(s); other != nil; other = a.olderTurn(s) {
		a.closeTurn(now, other, a.meter.Usage(now, other.Name))
	}
	t.span, t.gap = max(bound(u.Span)-t.span, 0), max(bound(u.Gap)-t.gap, 0)
	if t.span == 0 || u.LastEnd == 0 {
		return 0
	}
	end := min(max(u.LastEnd, t.first()), now)
	least, most := t.bounds(a.account.edge, end)
	a.account.pass(t, end, most)
	off := t.charged - min(max(t.charged, least), most)
	if t.several { // what they left idle beside each other is not known
		off = max(off, -max(a.account.ahead, 0))
	}
	correction := a.account.correct(off, a.config.tolerance())
	s.dropped -= correction
	// What is taken off because of how long another one's work seems to have run, this one has
	// not left idle.
	_, alone := t.bounds(0, end)
	s.billed += max(min(-correction, min(t.charged, alone)-most), 0)
	return correction
}

// first is when the first launch of a turn came.
func (t *turn) first() time.Duration { return t.due + t.late }

// bounds are how much of the card a turn can have had from the end of the work of the
// one before, at edge, to its own.
func (t *turn) bounds(edge, end time.Duration) (least, most time.Duration) {
	from := t.first()
	if t.several && t.left {
		from = t.granted
	}
	before, after := max(edge-t.first(), 0), end-max(edge, t.first())
	beside := min(before, t.span) // of its span
	most = max(min(t.span-beside+min(t.hidden(before, after, end), beside), end-max(from, edge)), 0)
	return min(max(t.span-beside-t.gap, 0), most), most
}

// hidden is how much of what a turn left idle was, likely, while the one before had the card: its work
// ran half as fast then, beside the other's, so that it paused half as often. For h of idle that is
// h / idle = (before / 2) / (before / 2 + after - (idle - h)).
func (t *turn) hidden(before, after, end time.Duration) time.Duration {
	idle := float64(max(end-t.first()-t.span, 0))
	half := float64(before) / 2
	p := half + float64(max(after, 0)) - idle
	return time.Duration((math.Sqrt(p*p+4*idle*half) - p) / 2)
}

// pass takes note of the time until the end of a turn, which had at most most of it.
func (c *account) pass(t *turn, end, most time.Duration) {
	c.total.Passed += max(end-c.edge, 0)
	if first := t.first(); c.edge < first {
		c.log.add(&c.total.Idle, c.edge, min(t.granted, first))
		c.total.Idle[ProcessLate] += max(first-max(t.granted, c.edge), 0)
	}
	c.total.Idle[RanDry] += max(end-max(t.first(), c.edge)-most, 0)
	c.edge = max(c.edge, end)
	c.log.forget(c.edge)
}

// correct returns the correction of a charge that is so far beyond what a turn can have
// been, or, if less than 0, short of it.
func (c *account) correct(off, tolerance time.Duration) time.Duration {
	ahead := c.ahead - c.ahead/aheadFades + off
	c.ahead = min(max(ahead, -tolerance), tolerance)
	c.total.Charged += c.ahead - ahead
	return c.ahead - ahead
}
