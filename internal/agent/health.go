// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/divvy-gpu/divvy/internal/admission"
	"github.com/divvy-gpu/divvy/internal/core"
	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/health"
	"github.com/divvy-gpu/divvy/internal/process"
)

const (
	// faultPatience is how long a driver waits for faults at a time: each time wakes an
	// agent that has nothing to do.
	faultPatience = time.Second
	// sickEvery is how often a card is looked at that is not well, and how long a
	// driver is left alone that cannot be asked.
	sickEvery = time.Second
	// memoryEvery is how often is looked whose memory is on a card while there are shares,
	// for whose programs it may be missing.
	memoryEvery = time.Second
	// faultEvery is the least from one question for faults to the next: a driver may
	// answer without waiting.
	faultEvery = 250 * time.Millisecond
)

// driverWatch compares what the loop has with what drivers say of their GPUs, and enforcers
// of shares.
type driverWatch struct {
	*door
	cfg          Config
	cards        []gpu.Card
	driver       *driver
	enforcers    admission.Enforcers
	table        process.Table
	environments *process.Environments
	subordinates *subordinates
	sick         atomic.Bool   // a card was not well when last looked at
	logged       atomic.Bool   // the kernel's log is read for faults
	shared       atomic.Bool   // there are shares
	sharing      chan struct{} // holds one when that has changed
}

func newDriverWatch(d *daemon) *driverWatch {
	return &driverWatch{door: d.door, cfg: d.cfg, cards: d.cards, driver: d.driver, enforcers: d.enforcers, table: d.table,
		environments: process.NewEnvironments(d.table), subordinates: &d.subordinates, sharing: make(chan struct{}, 1)}
}

// heard is what a driver answered when it was asked for faults.
type heard struct {
	faults []gpu.Fault
	err    error
}

// hearFaults asks the driver for faults, beside everybody else: one that hangs keeps nobody.
func (d *driverWatch) hearFaults() <-chan heard {
	answer := make(chan heard, 1)
	go func() {
		faults, err := d.driver.source.Faults(faultPatience)
		answer <- heard{faults, err}
	}()
	return answer
}

// watchCards tells the core of what happens to cards. What a card is like is
// looked at after each fault, whenever the ledger is compared with the driver,
// before a share is made, for as long as it is not well, and now and then: no driver
// tells that somebody divided a card, or set its compute mode. Nor does any tell that
// somebody takes memory past all ledgers: the same goes for that.
func (d *driverWatch) watchCards(ctx context.Context) {
	d.reconcile(ctx)
	asked, answer := time.Now(), d.hearFaults()
	looked := time.Now()
	compared := looked
	measured := core.ClientID(0) // the last client of the last round
	timer := time.NewTimer(0)    // when to look, or to ask again
	defer timer.Stop()
	again := time.Time{} // when to ask for faults; zero: the driver has been
	for {
		next := looked.Add(d.cfg.LookEvery)
		if d.sick.Load() {
			next = looked.Add(sickEvery)
		}
		if due := compared.Add(d.memoryEvery()); due.Before(next) {
			next = due
		}
		if !again.IsZero() && again.Before(next) {
			next = again
		}
		timer.Reset(time.Until(next))
		told := false
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-d.sharing: // one looks more often
		case h := <-answer:
			pause := faultEvery - time.Since(asked)
			if errors.Is(h.err, gpu.ErrNotSupported) {
				pause = max(pause, d.cfg.LookEvery)
			} else if h.err != nil {
				pause = sickEvery
			}
			if h.err != nil {
				d.cfg.Logger.Debug("wait for faults", "error", h.err)
			}
			again = time.Now().Add(pause)
			told = len(h.faults) > 0
			if d.driverFaults(ctx, h.faults) != nil {
				return
			}
		}
		since := time.Since(looked)
		look, compare := told || since >= d.cfg.LookEvery || d.sick.Load() && since >= sickEvery, time.Since(compared) >= d.memoryEvery()
		if (look || compare) && d.do(ctx, func(l *loop) { l.core.LiftCordons(l.now) }) != nil {
			return
		}
		if look {
			d.examine(ctx)
			looked = time.Now()
		}
		if compare {
			d.compareAll(ctx)
			measured = d.measureRound(ctx, measured)
			d.findStuck(ctx)
			compared = time.Now()
		}
		if !again.IsZero() && !time.Now().Before(again) {
			again, asked, answer = time.Time{}, time.Now(), d.hearFaults()
		}
	}
}

func (d *driverWatch) memoryEvery() time.Duration {
	if d.shared.Load() {
		return min(memoryEvery, d.cfg.LookEvery)
	}
	return d.cfg.LookEvery
}

// eachCard calls f for every card, for all at once: one whose driver hangs keeps the
// others from nothing.
func (d *driverWatch) eachCard(f func(card string)) {
	var all sync.WaitGroup
	for _, c := range d.cards {
		all.Go(func() { f(c.UUID) })
	}
	all.Wait()
}

// examine looks at all cards, and notes whether one is not well.
func (d *driverWatch) examine(ctx context.Context) {
	var sick atomic.Bool
	d.eachCard(func(card string) {
		is, err := d.driver.health(ctx, card, answerFor)
		if ctx.Err() != nil {
			return
		}
		condition := core.Condition(is.State)
		switch {
		case errors.Is(err, errSlow):
			due := answerFor
			if since, silent := d.driver.silentSince(card); silent {
				due = time.Since(since)
			}
			condition = core.ConditionUnresponsive
			is.Detail = fmt.Sprintf("its driver has not answered for %v", due.Round(time.Second))
		case err != nil:
			d.cfg.Logger.Debug("health", "card", card, "error", err)
			return
		case is.Exclusive && d.enforcers.Serve(ctx, card):
			condition, is.Detail = core.ConditionWell, ""
		}
		if ctx.Err() != nil {
			return // which may be why nothing serves the card
		}
		if condition != core.ConditionWell {
			sick.Store(true)
		}
		_ = d.do(ctx, func(l *loop) { l.found(card, condition, is) })
	})
	if ctx.Err() == nil {
		d.sick.Store(sick.Load())
	}
}

// found tells the core how a card is. What a card comes to without an XID of its own is a fault, too.
func (l *loop) found(card string, condition core.Condition, is gpu.Health) {
	before := l.core.Condition(card)
	l.core.SetCondition(l.now, card, condition, is.Detail)
	counted := func(class health.Class) bool { return l.core.CordonedFor(card, l.cfg.Health.Rules[class].LiftAfter) } // by its XID
	switch {
	case condition == before:
	case condition == core.ConditionLost && !counted(health.Hardware):
		l.classed(card, core.Fault{Class: string(health.Hardware), What: is.Detail, Advice: "restart the machine; if it comes back, look at power and PCIe"})
	case condition == core.ConditionNeedsReset && !counted(health.Reset):
		l.classed(card, core.Fault{Class: string(health.Reset), What: is.Detail, Advice: "end its programs and reset the GPU"})
	}
	if is.Slowed != "" && !l.slowed[card] {
		l.classed(card, core.Fault{Class: string(health.Slowed), What: is.Slowed, Advice: "look at its cooling and power"})
	}
	if condition != core.ConditionUnresponsive {
		l.slowed[card] = is.Slowed != ""
	}
}

// stuckAtOnce is of how many clients one turn of the loop looks whether something ends.
const stuckAtOnce = 256

// findStuck tells of programs of which nothing ends, though the card works for them. Where its driver does
// not say for whom it works, a program is believed that needs leases: it looks whether its work has ended.
func (d *driverWatch) findStuck(ctx context.Context) {
	var ids []core.ClientID
	var found []core.Stuck
	_ = d.do(ctx, func(l *loop) { ids = l.core.ClientIDs() })
	_ = inTurns(ctx, d.door, ids, stuckAtOnce, func(l *loop, some []core.ClientID) {
		found = append(found, l.core.StuckFor(l.now, some, d.cfg.StuckAfter)...)
	})
	if len(found) == 0 {
		return
	}
	told := map[string]map[int]float64{}
	for _, s := range found {
		if _, asked := told[s.Card]; asked {
			continue
		}
		told[s.Card] = nil
		if a, err := d.driver.activity(ctx, s.Card, mixedPatience); err == nil {
			told[s.Card] = a.Percents()
		}
	}
	_ = d.do(ctx, func(l *loop) {
		for _, s := range found {
			if works := told[s.Card]; works != nil && works[s.PID] > 0 || works == nil && l.needsLease(s) {
				l.core.TellStuck(l.now, s)
			}
		}
	})
}

func (l *loop) needsLease(s core.Stuck) bool {
	m, k := l.members[s.ID], l.leasedCard(s.Card)
	return m != nil && k != nil && k.arbiter.Gated(m.share)
}

// unresponsive lists the cards whose driver does not answer, by UUID.
func (l *loop) unresponsive() (cards []string) {
	for _, c := range l.cards {
		if _, silent := l.driver.silentSince(c.UUID); silent || l.core.Condition(c.UUID) == core.ConditionUnresponsive {
			cards = append(cards, c.UUID)
		}
	}
	return cards
}
