// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/core"
	"github.com/divvy-gpu/divvy/internal/event"
	"github.com/divvy-gpu/divvy/internal/wire"
)

// errStopped says that the agent ends and does nothing more.
var errStopped = errors.New("the agent is stopping")

// saveAgain is how long a journal that could not be written is left alone.
const saveAgain = time.Second

// do runs f in the loop and returns when its consequences are carried out:
// saved, on the pages, told. Callers are served in the order in which they
// come, one call each, so that nobody starves anybody.
// It gives up when quit closes first.
func (d *daemon) do(quit <-chan struct{}, f func(now time.Time)) error {
	done := make(chan struct{})
	job := func(now time.Time) {
		f(now)
		d.carryOut(now)
		close(done)
	}
	select {
	case d.work <- job:
	case <-quit:
		return errStopped
	case <-d.stopped:
		return errStopped
	}
	// The loop has it: it will be done.
	<-done
	return nil
}

// loop owns the core. It sleeps without a timer while nothing is pending.
func (d *daemon) loop(end <-chan struct{}) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-end:
			return
		case job := <-d.work:
			job(time.Now())
		case <-timer.C:
			now := time.Now()
			d.core.Tick(now)
			d.carryOut(now)
			d.tick(now)
		}
		if d.leaving {
			timer.Stop()
			continue
		}
		if next := d.nextWake(); next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(next))
		}
	}
}

func (d *daemon) nextWake() time.Time {
	next := d.core.NextWake()
	if !d.saveAgainAt.IsZero() && (next.IsZero() || d.saveAgainAt.Before(next)) {
		next = d.saveAgainAt
	}
	if !d.reconcileAt.IsZero() && (next.IsZero() || d.reconcileAt.Before(next)) {
		next = d.reconcileAt
	}
	if d.cfg.IdleExit > 0 && d.core.Idle() {
		if at := d.lastRequest.Add(d.cfg.IdleExit); next.IsZero() || at.Before(next) {
			next = at
		}
	}
	return next
}

// tick does what is due besides the core's own.
func (d *daemon) tick(now time.Time) {
	if !d.saveAgainAt.IsZero() && !now.Before(d.saveAgainAt) {
		_ = d.saveAll(now) // it was told when it began
	}
	if !d.reconcileAt.IsZero() && !now.Before(d.reconcileAt) {
		d.reconcileAt = time.Time{}
		d.reconciled = now
		if !d.reconciling { // a driver may take long
			d.reconciling = true
			d.task(func() {
				d.reconcile(d.quit)
				_ = d.do(d.quit, func(time.Time) { d.reconciling = false })
			})
		}
	}
	if d.cfg.IdleExit > 0 && !d.leaving && d.core.Idle() && now.Sub(d.lastRequest) >= d.cfg.IdleExit {
		// From here on everybody is refused: what was asked before has been
		// answered, and it was not a reason to stay.
		d.leaving = true
		close(d.idle)
	}
}

// carryOut does what the core orders.
func (d *daemon) carryOut(now time.Time) {
	orders := d.core.Drain()
	d.watchEnded(now) // first: meanwhile the driver is asked
	d.save(now, orders)
	d.pages.write()
	for _, name := range orders.Limits {
		d.writeLimits(name)
	}
	for _, e := range orders.Events {
		d.log(e)
	}
	for _, id := range orders.GoneClients {
		if m := d.members[id]; m != nil {
			delete(d.members, id)
			d.task(m.close) // which takes longer than all else here
			d.clientReleased(m.share)
		}
	}
	for _, name := range orders.GoneShares {
		d.removeSocket(name)
		d.dropGrip(name)
	}
	for _, a := range orders.Answers {
		if m := d.members[a.Client]; m != nil && m.waiter != nil {
			d.answered(m, a)
			m.waiter <- a
			m.waiter = nil
		}
	}
	if len(orders.SaveClients) > 0 || len(orders.GoneClients) > 0 {
		d.wantReconcile(now)
	}
	if len(orders.SaveShares) > 0 {
		d.setTerms()
	}
	for _, name := range orders.Limits {
		d.writeLease(name) // how many processes there are has changed, perhaps
	}
	d.carryOutLeases(now)
	if idle := d.core.Idle(); idle != d.wasIdle {
		d.wasIdle, d.lastRequest = idle, now
	}
}

func (d *daemon) save(now time.Time, orders core.Orders) {
	if err := d.state.save(d.core, orders.SaveShares, orders.SaveClients); err != nil {
		d.notSaved(now, err)
	}
}

// notSaved tells that the journal could not be written, once, and has it tried
// again.
func (d *daemon) notSaved(now time.Time, err error) {
	if !d.saveAgainAt.IsZero() {
		return
	}
	d.saveAgainAt = now.Add(saveAgain)
	d.tell(now, event.JournalFailed, "a restart would not know the latest changes: "+err.Error())
	d.cfg.Logger.Error("journal", "error", err)
}

// saveAll tries to write what the journal lacks, if it lacks anything.
func (d *daemon) saveAll(now time.Time) error {
	if d.saveAgainAt.IsZero() {
		return nil
	}
	if err := d.state.compact(d.core); err != nil {
		d.saveAgainAt = now.Add(saveAgain)
		return err
	}
	d.saveAgainAt = time.Time{}
	d.tell(now, event.JournalWritten, "the journal has everything again")
	return nil
}

// answered writes what a denial has just counted on the limits page.
func (d *daemon) answered(m *member, a core.Answer) {
	if !a.Granted && m.conn != nil && d.sockets[m.conn.share] != nil {
		d.sockets[m.conn.share].limits.Used(theSlot, a.UsedBytes, wire.MonotonicNs())
	}
}

func (d *daemon) writeLimits(name string) {
	s := d.sockets[name]
	if s == nil {
		return
	}
	if v, err := d.core.Share(name); err == nil {
		s.limits.Write(words(v), wire.MonotonicNs())
	}
}

// log puts an event into the log.
func (d *daemon) log(e core.Event) {
	d.events.add(api.Event{
		Time: e.Time, Kind: e.Kind, Share: e.Share, CardUUID: e.Card, PID: e.PID, Bytes: e.Bytes, Message: e.Message,
	})
	d.cfg.Logger.Debug("event", "kind", e.Kind, "share", e.Share, "card", e.Card, "pid", e.PID, "bytes", e.Bytes, "message", e.Message)
}

// wantReconcile asks for a comparison with the driver before long.
func (d *daemon) wantReconcile(now time.Time) {
	if d.reconcileAt.IsZero() {
		d.reconcileAt = d.reconciled.Add(d.cfg.ReconcileEvery)
		if soon := now.Add(d.cfg.ReconcileEvery / 10); d.reconcileAt.Before(soon) {
			d.reconcileAt = soon
		}
	}
}
