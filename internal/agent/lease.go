// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/arbiter"
	"github.com/divvy-gpu/divvy/internal/core"
	"github.com/divvy-gpu/divvy/internal/event"
	"github.com/divvy-gpu/divvy/internal/lateness"
	"github.com/divvy-gpu/divvy/internal/wire"
)

// leases are the arbiters of all cards and the timer that wakes them. They
// belong to the loop, but for the timer's descriptor.
type leases struct {
	cards []*leasedCard
	timer *leaseTimer
	next  time.Duration     // when the timer is set to go off; 0: it is not
	trace *leaseTrace       // nil: none is kept
	used  map[string]uint64 // ns, what was said last of each share's card time
}

// leasedCard is a card whose time is leased, or would be.
type leasedCard struct {
	uuid    string
	arbiter *arbiter.Arbiter
}

func (d *daemon) openLeases() error {
	timer, err := newLeaseTimer()
	if err != nil {
		return err
	}
	d.time.timer = timer
	if d.cfg.LeaseTrace != "" {
		if d.time.trace, err = openLeaseTrace(d.cfg.LeaseTrace); err != nil {
			return err
		}
	}
	for _, c := range d.cards {
		k := &leasedCard{uuid: c.UUID, arbiter: arbiter.New(d.cfg.arbiter(), meter{d})}
		d.time.cards = append(d.time.cards, k)
		if d.time.trace != nil {
			k.arbiter.Record(c.UUID, d.time.trace.keep)
		}
	}
	return nil
}

// oversleep makes a thread that has just woken as late as on such a host.
func oversleep(host lateness.Profile) {
	if host.Most == 0 {
		return
	}
	late := unix.NsecToTimespec(int64(host.Late(1 - rand.Float64())))
	_ = unix.ClockNanosleep(unix.CLOCK_MONOTONIC, 0, &late, nil) // interrupted: less late
}

// monotonic is the clock of the pages and of the arbiters.
func monotonic() time.Duration { return time.Duration(wire.MonotonicNs()) }

// meter reads what the processes of a share say on their pages.
type meter struct{ *daemon }

func (m meter) Usage(now time.Duration, share string) arbiter.Usage {
	w := m.core.Work(time.Now(), uint64(now), share)
	return arbiter.Usage{Busy: w.Busy, Submitted: w.InFlight, Remaining: w.Remaining, Processes: w.Processes, Late: w.Late,
		Span: w.Span, Gap: w.Gap, LastEnd: w.LastEnd, Kernel: w.Kernel}
}

func (d *daemon) leasedCard(uuid string) *leasedCard {
	for _, k := range d.time.cards {
		if k.uuid == uuid {
			return k
		}
	}
	return nil
}

// cardOf is the card of a share, nil when the share is gone.
func (d *daemon) cardOf(share string) *leasedCard {
	for _, k := range d.time.cards {
		if k.arbiter.Has(share) {
			return k
		}
	}
	return nil
}

// setTerms tells the arbiters which shares there are.
func (d *daemon) setTerms() {
	byCard := map[string][]arbiter.Terms{}
	terms := d.core.Terms()
	for _, t := range terms {
		byCard[t.CardUUID] = append(byCard[t.CardUUID], arbiter.Terms{
			Name: t.Name, Policy: t.Policy, CoresPercent: t.CoresPercent, Weight: t.Weight, Priority: t.Priority, Paused: t.Paused,
		})
	}
	now := monotonic()
	maps.DeleteFunc(d.time.used, func(name string, _ uint64) bool {
		return !slices.ContainsFunc(terms, func(t core.Terms) bool { return t.Name == name })
	})
	for _, k := range d.time.cards {
		k.arbiter.Set(now, byCard[k.uuid])
		for _, t := range byCard[k.uuid] {
			d.writeLease(t.Name)
		}
	}
}

// carryOutLeases does what the arbiters order, and sets the timer.
func (d *daemon) carryOutLeases(now time.Time) {
	at := monotonic()
	next := time.Duration(0)
	for _, k := range d.time.cards {
		orders := k.arbiter.Drain()
		for _, l := range orders.Leases {
			d.writeLease(l.Share)
		}
		for _, e := range orders.Events {
			d.log(core.Event{Time: now, Kind: event.LeaseOverrun, Share: e.Share, Card: k.uuid, Message: e.Message})
		}
		if wake := k.arbiter.NextWake(at); wake > 0 && (next == 0 || wake < next) {
			next = wake
		}
	}
	if next > 0 {
		d.cfg.Urgency.Keep(now)
	}
	if next == d.time.next {
		return
	}
	d.time.next = next
	if err := d.time.timer.set(next); err != nil {
		d.cfg.Logger.Error("set the timer of leases", "error", err)
	}
}

// writeLease writes a share's lease on its page and wakes who waits for it.
func (d *daemon) writeLease(share string) {
	s, k := d.sockets[share], d.cardOf(share)
	if s == nil {
		return
	}
	lease := wire.Lease{}
	if k != nil && k.arbiter.Gated(share) {
		l := k.arbiter.Lease(share)
		lease = wire.Lease{Gated: true, EndNs: uint64(l.End), BeginNs: uint64(k.arbiter.LeaseBegin(share)), BacklogNs: uint64(l.Backlog), Turn: l.Process,
			BesideToNs: uint64(l.BesideTo), BesideFromNs: uint64(l.BesideFrom)}
	}
	if err := s.limits.SetLease(theSlot, lease); err != nil {
		d.cfg.Logger.Error("lease", "share", share, "error", err)
	}
}

// wantLease: launches of a process wait.
func (c *connection) wantLease() error {
	oversleep(c.cfg.SlowHost)
	return c.do(c.quit, func(time.Time) {
		k := c.cardOf(c.share)
		if k == nil {
			return
		}
		if !k.arbiter.Gated(c.share) {
			// It has not seen yet that it need not wait.
			if s := c.sockets[c.share]; s != nil {
				_ = s.limits.Renotify(theSlot)
			}
			return
		}
		k.arbiter.Want(monotonic(), c.share, c.turn)
	})
}

// leaseBack: a process has nothing in flight any more.
func (c *connection) leaseBack() error {
	oversleep(c.cfg.SlowHost)
	return c.do(c.quit, func(time.Time) {
		if k := c.cardOf(c.share); k != nil {
			k.arbiter.Back(monotonic(), c.share, c.turn)
		}
	})
}

// clientEnded: a process of a share has closed its socket or ended.
func (d *daemon) clientEnded(m *member) {
	if k := d.cardOf(m.share); k != nil {
		k.arbiter.Ended(monotonic(), m.share, m.turn, d.core.Attached(m.share) == 0)
	}
}

// clientMoved: a process of a share has attached again.
func (d *daemon) clientMoved(from, to *member) {
	if k := d.cardOf(from.share); k != nil {
		k.arbiter.Moved(monotonic(), from.share, from.turn, to.turn)
	}
}

// clientReleased: the driver no longer shows a process of a share.
func (d *daemon) clientReleased(share string) {
	if d.core.Ending(share) {
		return
	}
	if k := d.cardOf(share); k != nil {
		k.arbiter.Released(monotonic(), share)
	}
}

// awaitLeaseTimer wakes the arbiters, until the timer is closed.
func (d *daemon) awaitLeaseTimer() {
	for d.time.timer.wait() {
		oversleep(d.cfg.SlowHost)
		if d.do(d.quit, func(time.Time) {
			d.time.next = 0
			at := monotonic()
			for _, k := range d.time.cards {
				k.arbiter.Tick(at)
			}
		}) != nil {
			return
		}
	}
}

// cardTime is what a share has used until now: what its processes measured, corrected
// by what all turns on the card add up to, and what has run of their work in flight. It
// never falls.
func (d *daemon) cardTime(v core.ShareView) uint64 {
	k := d.leasedCard(v.CardUUID)
	if k == nil {
		return v.CardTimeNs
	}
	w := d.core.Work(time.Now(), uint64(monotonic()), v.Name)
	running := max(w.InFlight-w.Remaining, 0)
	used := uint64(max(time.Duration(min(v.CardTimeNs, 1<<61))-k.arbiter.Overcount(v.Name)+running, 0))
	if d.time.used == nil {
		d.time.used = map[string]uint64{}
	}
	d.time.used[v.Name] = max(d.time.used[v.Name], used)
	return d.time.used[v.Name]
}

// timeOf is what became of a card's time; nil: launches never needed leases.
func (d *daemon) timeOf(uuid string) *api.CardTime {
	k := d.leasedCard(uuid)
	if k == nil {
		return nil
	}
	now := monotonic()
	a := k.arbiter.Account(now)
	if a.Passed == 0 {
		return nil
	}
	return &api.CardTime{AtNs: uint64(now), PassedNs: uint64(a.Passed), ChargedNs: uint64(max(a.Charged, 0)), Idle: api.IdleTime{
		UnwantedNs: uint64(a.Idle[arbiter.Unwanted]), IneligibleNs: uint64(a.Idle[arbiter.Ineligible]),
		RemainderNs: uint64(a.Idle[arbiter.Remainder]), AgentLateNs: uint64(a.Idle[arbiter.AgentLate]),
		ProcessLateNs: uint64(a.Idle[arbiter.ProcessLate]), RanDryNs: uint64(a.Idle[arbiter.RanDry]),
	}}
}

// overruns is how often the work of a share was not awaited any longer.
func (d *daemon) overruns(v core.ShareView) uint64 {
	if k := d.leasedCard(v.CardUUID); k != nil {
		return k.arbiter.Overruns(v.Name)
	}
	return 0
}
