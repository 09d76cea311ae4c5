// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"time"

	"github.com/divvy-gpu/divvy/internal/core"
	"github.com/divvy-gpu/divvy/internal/sample"
)

const (
	// mixedMost is of how many processes of a card its time is divided.
	mixedMost = 256
	// mixedAwait is how long those of an earlier agent's life are waited for meanwhile.
	mixedAwait = 10 * time.Second
	// mixedPatience is how long a driver may take to say whose kernels ran.
	mixedPatience = 200 * time.Millisecond
	// mixedStill is after how long without a launch nothing is left to divide: by then no driver
	// shows any more what ran before.
	mixedStill = 3 * time.Second
	// mixedAsk is how often a driver is asked then all the same: one may run that says so when it ends.
	mixedAsk = 2 * time.Second
)

// division is what became of a share's time on a card which nobody needs a lease for. Its
// programs measure what others run in between with it.
type division struct {
	at       time.Duration // monotonic: until when over is true
	measured time.Duration // by then
	over     time.Duration // of that, what it did not have
	rate     float64       // part of the time that it had lately; less than 0: it is alone, and has what it measures
	several  bool          // others were on the card with it
	// What it had, and measured, lately when its driver told: of a program that has ended since
	// it does not.
	had, claimed float64
}

// told adds what a driver told; what was before counts half as much after some seconds.
func (m *division) told(had, claimed time.Duration) {
	const keep = 0.9
	m.had, m.claimed = keep*m.had+had.Seconds(), keep*m.claimed+claimed.Seconds()
}

// part is what part it had of what it measured; 0: nobody knows.
func (m *division) part() float64 {
	if m.claimed <= 0 {
		return 0
	}
	return m.had / m.claimed
}

// overcount is by how much a share has measured too much, at a moment after the last division:
// until the next one it has had no more than its rate.
func (m *division) overcount(measured, now time.Duration) time.Duration {
	if m == nil {
		return 0
	}
	if m.rate < 0 {
		return m.over
	}
	had := m.measured + time.Duration(m.rate*float64(max(now-m.at, 0)))
	return m.over + max(measured-had, 0)
}

// correct adds what is saved of it, with what its share has measured by now.
func (m *division) correct(since *core.Correction, measured, now time.Duration) {
	since.OvercountNs += int64(m.overcount(measured, now))
	if m != nil && m.rate > 0 {
		since.AtNs = uint64(now)
	}
}

// divideTimes divides the time of cards between programs that no lease keeps apart.
func (d *driverWatch) divideTimes(ctx context.Context) {
	if d.cfg.DivideEvery < 0 {
		return
	}
	timer := time.NewTicker(d.cfg.DivideEvery)
	defer timer.Stop()
	for {
		if d.shared.Load() {
			d.eachCard(func(card string) { d.divideTime(ctx, card) })
		}
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
	}
}

// divideTime does so with one card. Where no more than one program has launched anything, nobody
// is asked.
func (d *driverWatch) divideTime(ctx context.Context, card string) {
	var still, ask bool
	if d.do(ctx, func(l *loop) {
		k, now := l.leasedCard(card), l.clock()
		switch still = l.still(card); {
		case !still:
			if ask = l.severalRan(card); !ask {
				l.divide(card, activity{})
			}
		case now-k.asked >= mixedAsk && l.core.Programs(card) > 0:
			k.asked, ask = now, true
		default:
			k.divided = now
		}
	}) != nil || !ask {
		return
	}
	told, err := d.driver.activity(ctx, card, mixedPatience)
	shown := activity{busy: -1, late: errors.Is(err, errSlow)}
	if err == nil {
		shown.of = told.Percents()
		if told.BusyPercent.Known {
			shown.busy = told.BusyPercent.Value
		}
	}
	_ = d.do(ctx, func(l *loop) {
		switch {
		case !still || shown.runs():
			l.divide(card, shown)
		case !shown.late:
			l.leasedCard(card).divided = l.clock()
		}
	})
}

// still says that the programs of a card have launched and measured nothing for a while.
func (l *loop) still(card string) bool {
	k := l.leasedCard(card)
	mark, still := l.core.Doings(card, mixedMost)
	now := l.clock()
	if !still || mark != k.doings {
		k.doings, k.still = mark, now
	}
	return now-k.still >= mixedStill
}

// activity is what a driver said of processes; of nil: it says nothing.
type activity struct {
	busy float64
	of   map[int]float64
	late bool // it may say it the next time
}

// runs says whether something runs, as far as a driver told.
func (a activity) runs() bool {
	for _, percent := range a.of {
		if percent > 0 {
			return true
		}
	}
	return a.busy > 0
}

// leases says whether programs need leases on a card.
func (l *loop) leases(card string, works []core.SlotWork) bool {
	k := l.leasedCard(card)
	for _, w := range works {
		if k != nil && k.arbiter.Gated(w.Of.Share) {
			return true
		}
	}
	return false
}

// severalRan says whether more than one program may have used a card since it was divided last.
func (l *loop) severalRan(card string) bool {
	works, more := l.core.SlotWorks(card, mixedMost)
	if more || l.leases(card, works) {
		return false
	}
	ran := len(l.core.FoundUnaccounted(card))
	for _, w := range works {
		m := l.time.mixed[w.Of]
		switch {
		case m != nil && m.several:
			return true // some may have ended since
		case m == nil || time.Duration(w.MeasuredNs) > m.measured:
			ran += len(w.Processes)
		}
	}
	return ran > 1
}

// divide takes note of what shares have measured since the last time, and of what they had.
func (l *loop) divide(card string, shown activity) {
	works, more := l.core.SlotWorks(card, mixedMost)
	if more {
		return
	}
	now := l.clock()
	held := l.leases(card, works)
	several := !held && l.several(card, works)
	believed := held || shown.of == nil && shown.busy == 0
	var claims []sample.Claim
	passed := now - l.leasedCard(card).divided
	others := 0.0
	for _, percent := range shown.of {
		others += percent
	}
	for _, w := range works {
		m := l.division(w, now, several)
		if w.Awaited && passed < mixedAwait {
			return // what it did meanwhile comes with it
		}
		claim := sample.Claim{Measured: time.Duration(min(w.MeasuredNs, 1<<61)) - m.measured, Had: m.part()}
		for _, pid := range w.Processes {
			claim.Percent += shown.of[pid]
		}
		others -= claim.Percent
		claims = append(claims, claim)
	}
	if shown.late && passed < mixedAwait {
		return
	}
	l.leasedCard(card).divided = now
	had := sample.Divide(passed, shown.busy, max(others, 0), claims)
	for i, w := range works {
		m := l.division(w, now, several)
		if believed {
			had[i] = claims[i].Measured
		}
		m.over += claims[i].Measured - had[i]
		if claims[i].Percent > 0 {
			m.told(had[i], claims[i].Measured)
		}
		m.rate, m.several = -1, several
		if several {
			m.rate = float64(had[i]) / float64(max(passed, 1))
		}
		m.at, m.measured = now, m.measured+claims[i].Measured
	}
}

// division is that of a share.
func (l *loop) division(w core.SlotWork, now time.Duration, several bool) *division {
	m := l.time.mixed[w.Of]
	if m == nil {
		m = &division{at: now, measured: time.Duration(min(w.MeasuredNs, 1<<61)), several: several}
		if !several {
			m.rate = -1
		}
		l.time.mixed[w.Of] = m
	}
	return m
}

// several says whether more than one program is on a card.
func (l *loop) several(card string, works []core.SlotWork) bool {
	programs := len(l.core.FoundUnaccounted(card))
	for _, w := range works {
		programs += len(w.Processes)
	}
	return programs > 1
}

// openDivisions begins where the agent before has left off: all that programs measured since it
// saved what they had is divided when they are back.
func (l *loop) openDivisions() {
	if l.cfg.DivideEvery < 0 {
		return
	}
	l.time.mixed = map[core.Slot]*division{}
	now := l.clock()
	for _, k := range l.time.cards {
		works, _ := l.core.SlotWorks(k.uuid, mixedMost)
		several := !l.leases(k.uuid, works) && l.several(k.uuid, works)
		saved := time.Duration(0)
		for _, w := range works {
			saved = max(saved, time.Duration(min(w.Before.AtNs, 1<<61)))
			l.division(w, now, several)
		}
		k.divided = now
		if saved <= now && now-saved < mixedAwait {
			k.divided = saved
		}
	}
}
