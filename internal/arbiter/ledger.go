// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"math"
	"slices"
	"time"
)

// maxSpans bounds what a ledger remembers; beyond it the oldest spans are
// joined, which counts the time between them as used.
const maxSpans = 2048

// ledger is the account of a fixed share: what it may use, and what it used in
// the last window.
type ledger struct {
	percent int64
	balance int64         // in hundredths of a nanosecond of card time
	filled  time.Duration // until when the balance has grown
	barred  time.Duration // until when its window holds it back, as it seemed then; 0: it does not
	spans   []span        // when it used the card, in order, apart
	reserve time.Duration // of its part of a window that leases leave: what outlasts them
	room    time.Duration // and its rate leaves besides
	slack   time.Duration // by how much leases may go beyond its part
}

type span struct{ from, to time.Duration }

// fill lets the balance grow at the share's rate.
//
// Who makes up for a pause has used all that its window has room for when the pause leaves the
// window, and nothing else leaves it then: the pause comes again, and with later ones it would
// add up. So a quarter of the time in which the window holds a share back is not made up for, and
// its rate leaves room in the window (rate).
func (l *ledger) fill(now, window time.Duration) {
	const quarter = 4
	grows := max(now-l.filled, 0)
	if l.slack == 0 {
		grows -= max(min(now, l.barred)-l.positiveFrom(l.filled, window), 0) / quarter
	}
	l.balance += int64(float64(grows) * l.rate(window))
	l.filled, l.barred = max(l.filled, now), 0
}

// rate is what the balance grows by, in its unit per nanosecond: without slack a little less
// than leases may use of a window.
func (l *ledger) rate(window time.Duration) float64 {
	if l.slack > 0 {
		return float64(l.percent)
	}
	return float64(l.percent) - 100*float64(l.reserve+l.room)/float64(window)
}

// bar takes note of until when the window holds back a share that waits, if nothing is used
// until then, and says whether it does.
func (l *ledger) bar(until time.Duration) bool {
	l.barred = until
	return until > l.filled
}

// keep bounds the balance.
func (l *ledger) keep(debt, most time.Duration) {
	l.balance = min(max(l.balance, -100*int64(debt)), 100*int64(most))
}

// lag is how long the share's rate takes for its balance.
func (l *ledger) lag() time.Duration { return time.Duration(l.balance / l.percent) }

// positiveFrom is when the balance is positive, if nothing is used.
func (l *ledger) positiveFrom(now, window time.Duration) time.Duration {
	if l.balance > 0 {
		return now
	}
	return l.filled + time.Duration(math.Ceil(float64(-l.balance)/l.rate(window))) + 1
}

// charge takes time that was used from then on; it may be negative, when less
// was used than was thought before.
func (l *ledger) charge(from, used time.Duration) {
	l.balance -= 100 * int64(used)
	for used < 0 && len(l.spans) > 0 {
		last := &l.spans[len(l.spans)-1]
		less := min(-used, last.to-last.from)
		last.to -= less
		used += less
		if last.to == last.from {
			l.spans = l.spans[:len(l.spans)-1]
		}
	}
	if used <= 0 {
		return
	}
	if n := len(l.spans); n > 0 && from <= l.spans[n-1].to {
		l.spans[n-1].to += used
		return
	}
	l.spans = append(l.spans, span{from, from + used})
	if len(l.spans) > maxSpans {
		l.spans[1].from = l.spans[0].from
		l.spans = l.spans[1:]
	}
}

// usedUntil takes it that the share has used its part of the window until now, at its rate.
func (l *ledger) usedUntil(now, window time.Duration) {
	const spans = 64
	used := l.of(window / spans)
	for i := range time.Duration(spans) {
		to := now - i*window/spans
		l.spans = append(l.spans, span{to - used, to})
	}
	slices.Reverse(l.spans)
}

// forget drops what no window from now on can see.
func (l *ledger) forget(now, window time.Duration) {
	n := 0
	for n < len(l.spans) && l.spans[n].to <= now-window {
		n++
	}
	l.spans = l.spans[n:]
}

// of is the share's part of so much time.
func (l *ledger) of(d time.Duration) time.Duration { return d * time.Duration(l.percent) / 100 }

// part is how much of a window leases may give.
func (l *ledger) part(window time.Duration) time.Duration {
	return l.of(window) + l.slack - l.reserve
}

// spare learns how much of a window leases must leave for what is launched at
// their ends by several processes at once: what was used until the last end of its
// work shall be no more than its part and one kernel. It is 300 us at least, for when work
// ran is known no better (0.06 % of a window was seen), and half the part at most. The room
// is about a kernel.
func (l *ledger) spare(window, kernel time.Duration) {
	const fades, least = 64, 300 * time.Microsecond
	more := -l.reserve / fades
	if len(l.spans) > 0 {
		tail := l.spans[len(l.spans)-1].to - window
		over := -l.part(window) - l.reserve - kernel
		for _, s := range l.spans {
			over += max(s.to-max(s.from, tail), 0)
		}
		if over > 0 {
			more = over
		}
	}
	l.reserve = min(max(l.reserve+more, least), l.of(window)/2)
	l.room = min(max(kernel, least), time.Millisecond, l.of(window)/64)
}

// allowance is for how long from now the share can use the card without a
// pause, up to most, before it has used more than its part of a window.
func (l *ledger) allowance(now, window, most time.Duration) time.Duration {
	tail := now - window // of the window, which moves on while the card is used
	slack := l.part(window)
	for _, s := range l.spans {
		slack -= max(s.to-max(s.from, tail), 0)
	}
	if slack < 0 {
		return 0
	}
	var can time.Duration
	for _, s := range l.spans {
		if s.to <= tail {
			continue
		}
		if gap := s.from - tail; gap > 0 {
			if gap > slack {
				break
			}
			slack -= gap
			can += gap
			tail = s.from
		}
		can += s.to - tail
		tail = s.to
		if can >= most {
			return most
		}
	}
	return min(can+slack, most)
}

// allowedFrom is when the allowance is at least least, which is no more than the
// share's part of a window, if nothing is used until then: the allowance only
// grows meanwhile. What is used without a pause never leaves less in its window
// as it goes on, so that only the window at its end counts. It is never later than
// a window from now.
func (l *ledger) allowedFrom(now, window, least time.Duration) time.Duration {
	room := l.part(window) - least // for what that window holds of before
	if room < 0 {
		return now + window
	}
	tail := now + least - window
	for i := len(l.spans) - 1; i >= 0 && l.spans[i].to > tail; i-- {
		s := l.spans[i]
		if s.to-s.from > room {
			return min(max(s.to-room, tail), now+least) + window - least
		}
		room -= s.to - s.from
	}
	return now
}
