// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
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

// leases are the arbiters of all cards and the timer that wakes them.
type leases struct {
	cards []*leasedCard
	timer *leaseTimer
	next  time.Duration        // when the timer is set to go off; 0: it is not
	trace *leaseTrace          // nil: none is kept
	used  map[core.Slot]uint64 // ns, what was said last of each share's card time
	mixed map[core.Slot]*division
}

// leasedCard is a card whose time is leased, or would be.
type leasedCard struct {
	uuid    string
	arbiter *arbiter.Arbiter
	divided time.Duration // when its time was divided last that it gives in turns by itself
	doings  uint64        // the mark of what its programs did, and since when it has not changed
	still   time.Duration
	asked   time.Duration // when its driver was asked last while it did not change

	terms    []arbiter.Terms // of the shares on it, in the order in which they were made
	counted  time.Time       // the turn in which its programs were counted, and how many they were
	programs int
}

func (l *loop) openLeases() error {
	timer, err := newLeaseTimer()
	if err != nil {
		return err
	}
	l.time.timer = timer
	if l.cfg.LeaseTrace != "" {
		if l.time.trace, err = openLeaseTrace(l.cfg.LeaseTrace); err != nil {
			return err
		}
	}
	for _, c := range l.cards {
		k := &leasedCard{uuid: c.UUID, arbiter: arbiter.New(l.cfg.arbiter(), meter{l, c.UUID})}
		l.time.cards = append(l.time.cards, k)
		if l.time.trace != nil {
			k.arbiter.Record(c.UUID, l.time.trace.keep)
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

// meter reads what the processes of a share say on their pages about one card.
type meter struct {
	*loop
	card string
}

func (m meter) Usage(now time.Duration, share string) arbiter.Usage {
	slot, on := m.core.SlotOn(share, m.card)
	if !on {
		return arbiter.Usage{}
	}
	w := m.core.Work(m.now, uint64(now), share, slot)
	return arbiter.Usage{Busy: w.Busy, Submitted: w.InFlight, Remaining: w.Remaining, Processes: w.Processes, Late: w.Late,
		Span: w.Span, Gap: w.Gap, LastEnd: w.LastEnd, Kernel: w.Kernel}
}

func (l *loop) leasedCard(uuid string) *leasedCard {
	for _, k := range l.time.cards {
		if k.uuid == uuid {
			return k
		}
	}
	return nil
}

// cardOf is the card of a slot, nil when the share is gone.
func (l *loop) cardOf(of core.Slot) *leasedCard {
	if k := l.leasedCard(l.core.CardOf(of)); k != nil && k.arbiter.Has(of.Share) {
		return k
	}
	return nil
}

// cardsOf are the cards of a share whose arbiters know it.
func (l *loop) cardsOf(share string) (cards []*leasedCard) {
	for _, k := range l.time.cards {
		if k.arbiter.Has(share) {
			cards = append(cards, k)
		}
	}
	return cards
}

// setTerms tells the arbiters which shares there are, after these have changed or gone.
func (l *loop) setTerms(changed []string) {
	now := l.clock()
	for _, name := range changed {
		l.setDivisions(name, now)
	}
	names := changed
	for _, k := range l.time.cards {
		for _, name := range changed {
			of, is := l.core.TermsOn(name, k.uuid)
			switch i := slices.IndexFunc(k.terms, func(t arbiter.Terms) bool { return t.Name == name }); {
			case is && i >= 0:
				k.terms[i] = arbiter.Terms(of)
			case is:
				k.terms = append(k.terms, arbiter.Terms(of))
			case i >= 0:
				k.terms = slices.Delete(k.terms, i, i+1)
			}
		}
		before := k.arbiter.AllGated()
		k.arbiter.Set(now, k.terms)
		if k.arbiter.AllGated() != before {
			names = l.core.ShareNames()
		} else if holder := k.arbiter.Holder(); holder != "" {
			l.writeLeases(holder) // of what the others may do it depends how much it keeps in flight
		}
	}
	for _, name := range names {
		l.writeLeases(name)
	}
}

// setDivisions begins what is divided of a share's time, or forgets what was if the share has gone.
func (l *loop) setDivisions(name string, now time.Duration) {
	cards := l.core.CardsOf(name)
	for number := range core.MaxSlots {
		of := core.Slot{Share: name, Number: number}
		if number >= len(cards) {
			delete(l.time.used, of)
			delete(l.time.mixed, of)
		} else if l.time.mixed != nil && l.time.mixed[of] == nil {
			l.time.mixed[of] = &division{at: now, rate: -1} // nothing was measured yet
		}
	}
}

// carryOutLeases does what the arbiters order, and sets the timer.
func (l *loop) carryOutLeases() {
	at := l.clock()
	next := time.Duration(0)
	for _, k := range l.time.cards {
		orders := k.arbiter.Drain()
		for _, lease := range orders.Leases {
			if slot, on := l.core.SlotOn(lease.Share, k.uuid); on {
				l.writeLease(core.Slot{Share: lease.Share, Number: slot})
			}
		}
		for _, e := range orders.Events {
			l.logBounded(core.Event{Time: l.now, Kind: event.LeaseOverrun, Share: e.Share, Card: k.uuid, Message: e.Message})
		}
		if wake := k.arbiter.NextWake(at); wake > 0 && (next == 0 || wake < next) {
			next = wake
		}
	}
	if next > 0 {
		l.cfg.Urgency.Keep(l.now)
	}
	if next == l.time.next {
		return
	}
	l.time.next = next
	if err := l.time.timer.set(next); err != nil {
		l.cfg.Logger.Error("set the timer of leases", "error", err)
	}
}

// writeLeases writes a share's leases of all its cards.
func (l *loop) writeLeases(share string) {
	for slot := range l.core.CardsOf(share) {
		l.writeLease(core.Slot{Share: share, Number: slot})
	}
}

// writeLease writes a share's lease of one card on its page and wakes who waits for it.
func (l *loop) writeLease(of core.Slot) {
	share := of.Share
	s, k := l.sockets[share], l.cardOf(of)
	if s == nil {
		return
	}
	lease := wire.Lease{}
	if k != nil && k.arbiter.Gated(share) {
		held := k.arbiter.Lease(share)
		lease = wire.Lease{Gated: true, EndNs: uint64(held.End), BeginNs: uint64(k.arbiter.LeaseBegin(share)), BacklogNs: uint64(held.Backlog), Turn: held.Process,
			BesideToNs: uint64(held.BesideTo), BesideFromNs: uint64(held.BesideFrom)}
	}
	if err := s.limits.SetLease(of.Number, lease); err != nil {
		l.cfg.Logger.Error("lease", "share", share, "slot", of.Number, "error", err)
	}
}

// wantLease: launches of a process on the card of a slot wait.
func (c *connection) wantLease(ctx context.Context, slot int) error {
	oversleep(c.cfg.SlowHost)
	return c.do(ctx, func(l *loop) {
		k := l.cardOf(core.Slot{Share: c.share, Number: slot})
		if k == nil {
			return
		}
		if !k.arbiter.Gated(c.share) {
			// It has not seen yet that it need not wait.
			if s := l.sockets[c.share]; s != nil {
				_ = s.limits.Renotify(slot)
			}
			return
		}
		l.core.Asked(l.now, c.id, slot)
		k.arbiter.Want(l.clock(), c.share, c.turn)
	})
}

// leaseBack: a process has nothing in flight any more on the card of a slot.
func (c *connection) leaseBack(ctx context.Context, slot int) error {
	oversleep(c.cfg.SlowHost)
	return c.do(ctx, func(l *loop) {
		if k := l.cardOf(core.Slot{Share: c.share, Number: slot}); k != nil {
			k.arbiter.Back(l.clock(), c.share, c.turn)
		}
	})
}

// clientEnded: a process of a share has closed its socket or ended.
func (l *loop) clientEnded(m *member) {
	for _, k := range l.cardsOf(m.share) {
		k.arbiter.Ended(l.clock(), m.share, m.turn, l.core.Attached(m.share) == 0)
	}
}

// clientMoved: a process of a share has attached again.
func (l *loop) clientMoved(from, to *member) {
	for _, k := range l.cardsOf(from.share) {
		k.arbiter.Moved(l.clock(), from.share, from.turn, to.turn)
	}
}

// clientReleased: the driver no longer shows a process of a share on the card of a slot.
func (l *loop) clientReleased(of core.Slot) {
	if l.core.Ending(of) {
		return
	}
	if k := l.cardOf(of); k != nil {
		k.arbiter.Released(l.clock(), of.Share)
	}
}

// awaitLeaseTimer wakes the arbiters, until the timer is closed.
func (d *door) awaitLeaseTimer(ctx context.Context, timer *leaseTimer, host lateness.Profile) {
	for timer.wait() {
		oversleep(host)
		if d.do(ctx, func(l *loop) {
			l.time.next = 0
			at := l.clock()
			for _, k := range l.time.cards {
				k.arbiter.Tick(at)
			}
		}) != nil {
			return
		}
	}
}

// cardTime is what a share has used of one card until now: what its processes measured,
// corrected by what all turns on the card add up to, and what has run of their work in
// flight. It never falls.
func (l *loop) cardTime(of core.Slot, v core.SlotView) uint64 {
	k := l.leasedCard(v.CardUUID)
	if k == nil {
		return v.CardTimeNs
	}
	w := l.core.Work(l.now, uint64(l.clock()), of.Share, of.Number)
	measured := time.Duration(min(v.CardTimeNs, 1<<61)) + max(w.InFlight-w.Remaining, 0)
	m := l.time.mixed[of]
	if m != nil && m.rate < 0 && !k.arbiter.Gated(of.Share) && l.programs(k, v.CardUUID) > 1 {
		m.rate = 0 // until it is known what it has beside the others
	}
	over := time.Duration(v.Before.OvercountNs) + k.arbiter.Overcount(of.Share) + m.overcount(measured, l.clock())
	used := uint64(max(measured-over, 0))
	if l.time.used == nil {
		l.time.used = map[core.Slot]uint64{}
	}
	l.time.used[of] = max(l.time.used[of], used, v.Before.SaidNs)
	return l.time.used[of]
}

// programs is how many clients the shares on a card have: one turn counts them once, also for a
// thousand shares.
func (l *loop) programs(k *leasedCard, card string) int {
	if !k.counted.Equal(l.now) {
		k.counted, k.programs = l.now, l.core.Programs(card)
	}
	return k.programs
}

// correct tells the core what the arbiters know of a share, which keeps it for the next agent.
func (l *loop) correct(share string) {
	for slot, card := range l.core.CardsOf(share) {
		of := core.Slot{Share: share, Number: slot}
		since := core.Correction{SaidNs: l.time.used[of]}
		if k := l.leasedCard(card); k != nil {
			since.OvercountNs, since.Overruns = int64(k.arbiter.Overcount(share)), k.arbiter.Overruns(share)
		}
		l.time.mixed[of].correct(&since, time.Duration(min(l.core.MeasuredNs(of), 1<<61)), l.clock())
		l.core.Correct(of, since)
	}
}

// measure reads what clients say, and has what has changed of that saved. It notes their shares,
// and of which something has changed.
func (l *loop) measure(ids []core.ClientID, shares map[string]bool) {
	for name, busy := range l.core.Measure(l.now, ids) {
		shares[name] = shares[name] || busy
	}
}

// measureShares does the like with what is a share's own, after its clients'.
func (l *loop) measureShares(names []string, busy map[string]bool) {
	for _, name := range names {
		l.correct(name)
		l.core.MeasureShare(l.now, name, busy[name])
	}
}

// measureAll does both at once.
func (l *loop) measureAll() {
	shares := map[string]bool{}
	l.measure(l.core.ClientIDs(), shares)
	l.measureShares(slices.Collect(maps.Keys(shares)), shares)
}

const (
	measuredAtOnce = 32  // clients of which one turn of the loop reads what they say
	measuredMost   = 256 // clients in one round: of more, others have their turn in the next
)

// measureRound has the journal keep what clients say, of those that come after the last one of
// the round before: of one that ends while there is no agent, nobody else knows. It returns
// the last of this one.
func (d *driverWatch) measureRound(ctx context.Context, after core.ClientID) core.ClientID {
	var ids []core.ClientID
	if d.do(ctx, func(l *loop) { ids = l.core.ClientIDs() }) != nil || len(ids) == 0 {
		return after
	}
	slices.Sort(ids)
	next, found := slices.BinarySearch(ids, after)
	if found {
		next++
	}
	ids = append(ids[next:], ids[:next]...)
	ids = ids[:min(len(ids), measuredMost)]
	shares := map[string]bool{}
	if inTurns(ctx, d.door, ids, measuredAtOnce, func(l *loop, some []core.ClientID) { l.measure(some, shares) }) != nil {
		return after
	}
	_ = inTurns(ctx, d.door, slices.Collect(maps.Keys(shares)), measuredAtOnce, func(l *loop, some []string) { l.measureShares(some, shares) })
	return ids[len(ids)-1]
}

// timeOf is what became of a card's time; nil: launches never needed leases.
func (l *loop) timeOf(uuid string) *api.CardTime {
	k := l.leasedCard(uuid)
	if k == nil {
		return nil
	}
	now := l.clock()
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

// overruns is how often the work of a share on a card was not awaited any longer.
func (l *loop) overruns(share string, v core.SlotView) uint64 {
	if k := l.leasedCard(v.CardUUID); k != nil {
		return v.Before.Overruns + k.arbiter.Overruns(share)
	}
	return v.Before.Overruns
}
