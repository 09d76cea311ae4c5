// SPDX-License-Identifier: Apache-2.0

package core

import (
	"cmp"
	"container/list"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/internal/event"
	"github.com/divvy-gpu/divvy/internal/size"
)

// Account is what the driver says about a card.
type Account struct {
	At        time.Time // when it was asked, not when it answered
	UsedBytes uint64
	Processes []Holding
	// Owners says who the processes are that Unaccounted listed. Who is not in it is
	// counted, and told when somebody says who it is.
	Owners map[int]Owner
	held   map[int]Holding // of each process, added up
}

// Holding is what one process has of a card.
type Holding struct {
	PID   int
	Bytes uint64
	Known bool // false: the driver shows the process but not its memory
}

// EndedClient is somebody whose memory the driver still held when last asked.
type EndedClient struct {
	ID    ClientID
	Card  string
	State State
	Since time.Time
}

const (
	// blindAfter is for how long the driver must name none of the processes
	// that use a card before it is taken to be unable to.
	blindAfter = time.Second
	// blindRelease is how long the memory of an ended process stays booked
	// where the driver cannot say that it has let go of it.
	blindRelease = time.Second
)

// LastEnded is who has ended last of a card, or closed its socket after a time, and may
// still hold memory: ask the driver about it.
func (c *Core) LastEnded(cardUUID string, after time.Time) (EndedClient, bool) {
	k := c.cardOf(cardUUID)
	if k == nil {
		return EndedClient{}, false
	}
	var last *balance
	if e := k.enders.dead.Back(); e != nil {
		last = e.Value.(*balance)
	}
	if e := k.enders.detached.Back(); e != nil {
		if b := e.Value.(*balance); !b.ended.Before(after) && (last == nil || last.ended.Before(b.ended)) {
			last = b
		}
	}
	if last == nil {
		return EndedClient{}, false
	}
	return EndedClient{last.id, cardUUID, last.state, last.ended}, true
}

// Lingering lists, once, who has ended before a time and is still on the ledger.
func (c *Core) Lingering(cardUUID string, before time.Time) (ids []ClientID) {
	k := c.cardOf(cardUUID)
	for k != nil && len(k.enders.unsearched) > 0 {
		b := k.enders.unsearched[0]
		if c.clients[b.id] == b.client && !b.gone {
			if !b.ended.Before(before) {
				break
			}
			ids = append(ids, b.id)
		}
		k.enders.unsearched = k.enders.unsearched[1:]
	}
	return ids
}

func (c *Core) cardOf(uuid string) *card {
	if i := slices.IndexFunc(c.cards, func(k *card) bool { return k.UUID == uuid }); i >= 0 {
		return c.cards[i]
	}
	return nil
}

// Index has what the ledger looks up in an account at hand, for whoever has more time than
// the ledger.
func (a *Account) Index() { a.held = a.holdings() }

// holdings are what the driver says of each process, added up.
func (a Account) holdings() map[int]Holding {
	if a.held != nil {
		return a.held
	}
	held := make(map[int]Holding, len(a.Processes))
	for _, p := range a.Processes {
		sum, shown := held[p.PID]
		held[p.PID] = Holding{PID: p.PID, Bytes: sum.Bytes + p.Bytes, Known: p.Known && (sum.Known || !shown)}
	}
	return held
}

// ReleaseEnded takes clients off the ledger that have ended, or live on
// without their socket, and for which the driver holds nothing any more: it was
// asked when they had nothing left to take. It takes some at a time; more true: there are others.
func (c *Core) ReleaseEnded(now time.Time, cardUUID string, account Account) (more bool) {
	if k := c.cardOf(cardUUID); k != nil && k.enders.dead.Len()+k.enders.detached.Len() > 0 {
		most := lastEnders
		if now.Sub(k.enders.lookedAt) >= endersEvery {
			most = math.MaxInt
		}
		more = c.releaseEnded(now, k, account, most)
	}
	c.endGraceIfAllBack(now)
	return more
}

// A driver is asked often when somebody has ended. Then those that ended last are looked for
// in its answer, so many of each kind, and all of them only now and then. Much is to be done
// for each that is released: so many are at a time.
const (
	lastEnders     = 128
	endersEvery    = 20 * time.Millisecond
	releasedAtOnce = 4
)

func (c *Core) releaseEnded(now time.Time, k *card, account Account, most int) (more bool) {
	var free []*balance
	held := account.holdings()
	for _, ended := range []*list.List{&k.enders.dead, &k.enders.detached} {
		for e, n := ended.Back(), 0; e != nil && n < most && !more; e, n = e.Prev(), n+1 {
			b := e.Value.(*balance)
			if !account.At.Before(b.left) && !c.mayHold(b, held) && (!k.blind || account.At.Sub(b.ended) >= blindRelease) {
				free = append(free, b)
				more = len(free) == releasedAtOnce
			}
		}
	}
	if most == math.MaxInt && !more {
		k.enders.lookedAt = now
	}
	slices.SortFunc(free, func(a, b *balance) int { return cmp.Compare(a.order, b.order) })
	for _, b := range free {
		c.released(now, b)
	}
	return more
}

// mayHold is false when the driver accounts for all memory of the process
// number on the card without this client: none, or what a later attachment of it uses
// (a program that became another one by exec).
func (c *Core) mayHold(b *balance, held map[int]Holding) bool {
	p, shown := held[b.PID]
	if !shown || !p.Known {
		return shown
	}
	var others uint64
	for _, other := range c.byPID[b.PID] {
		if t := other.share.slotOn(b.slot.card); other != b.client && other.state == Attached && t != nil {
			others += c.usedBy(t.of(other))
		}
	}
	return p.Bytes > others
}

// Measured is what the driver says that a client's process holds on the card of a slot;
// false: it does not say.
func (c *Core) Measured(now time.Time, id ClientID, number int, account Account) (bytes uint64, known bool) {
	b := c.balanceOf(id, number)
	if b == nil {
		return 0, false
	}
	k := b.slot.card
	if len(c.clients) <= observedClients {
		c.Reconcile(now, k.UUID, account) // while it costs little
	}
	p, shown := account.holdings()[b.PID]
	if c.clients[id] == nil || !shown && (k.blind || !k.unseen.IsZero()) || shown && !p.Known {
		return 0, false
	}
	return p.Bytes, true
}

// Comparison is one of the ledger of a card with the driver's account. It is made in steps,
// between which clients come and go: whoever is many would keep everybody waiting.
type Comparison struct {
	card    string
	account Account
	ours    map[int]booked // by process, of those that were compared
	left    []*balance
	begun   bool
}

// NewComparison is one that has not begun.
func NewComparison(cardUUID string, account Account) *Comparison {
	return &Comparison{card: cardUUID, account: account}
}

// comparedAtOnce is of how many clients one step of a comparison reads what they say.
const comparedAtOnce = 64

// Reconcile compares the ledger of a card with the driver's account.
func (c *Core) Reconcile(now time.Time, cardUUID string, account Account) {
	for x := NewComparison(cardUUID, account); !c.Compare(now, x); {
	}
}

// Compare makes the next step of a comparison; done true: it was the last.
func (c *Core) Compare(now time.Time, x *Comparison) (done bool) {
	k := c.cardOf(x.card)
	if k == nil {
		return true
	}
	held := x.account.holdings()
	if !x.begun {
		if c.releaseEnded(now, k, x.account, math.MaxInt) {
			return false
		}
		c.beginComparison(now, k, x, held)
	}
	some := x.left[:min(comparedAtOnce, len(x.left))]
	x.left = x.left[len(some):]
	for _, b := range some {
		if c.clients[b.id] == b.client {
			c.compareOne(now, k, x, b, held)
		}
	}
	if len(x.left) > 0 {
		return false
	}
	if k.blind || !k.unseen.IsZero() {
		k.unaccounted = unaccounted{} // whom it names may be ours, by another number
		return true
	}
	k.drift = 0
	for pid, l := range x.ours {
		if p, ok := held[pid]; l.attached && (!ok || p.Known) {
			k.drift += int64(p.Bytes) - int64(l.bytes)
		}
	}
	c.findUnaccounted(now, k, x.account, held, x.ours)
	return true
}

func (c *Core) beginComparison(now time.Time, k *card, x *Comparison, held map[int]Holding) {
	x.begun = true
	c.endGraceIfAllBack(now)
	k.driverUsed = x.account.UsedBytes
	c.look(now, k, x.account, held)
	if k.blind || !k.unseen.IsZero() {
		k.drift = 0
	}
	for t := range c.slotsOn(k) {
		for b := range t.balances {
			x.left = append(x.left, b)
		}
	}
	x.ours = make(map[int]booked, len(x.left))
}

func (c *Core) compareOne(now time.Time, k *card, x *Comparison, b *balance, held map[int]Holding) {
	sum := x.ours[b.PID]
	x.ours[b.PID] = booked{sum.bytes + c.usedNow(now, b), sum.attached || b.state == Attached}
	switch p, ok := held[b.PID]; {
	case !ok && (k.blind || !k.unseen.IsZero()), ok && !p.Known:
		b.driver = nil
	case b.driver == nil || *b.driver != p.Bytes:
		bytes := p.Bytes
		b.driver = &bytes
	}
}

// booked is what the ledger has of a process on a card.
type booked struct {
	bytes    uint64
	attached bool
}

// look finds out whether the driver names our processes at all. It does not
// where it counts processes in another namespace than the agent, or names a
// server in their place: then its silence about one says nothing.
func (c *Core) look(now time.Time, k *card, account Account, held map[int]Holding) {
	if k.named {
		return
	}
	unseen := false
	for _, cl := range c.clients {
		t := cl.share.slotOn(k)
		if t == nil || cl.state != Attached {
			continue
		}
		if _, ok := held[cl.PID]; ok {
			k.named, k.blind, k.unseen = true, false, time.Time{}
			return
		}
		unseen = unseen || t.of(cl).granted > 0 && c.usedBy(t.of(cl)) > 0
	}
	switch {
	case k.blind:
	case !unseen || account.UsedBytes == 0:
		k.unseen = time.Time{}
	case k.unseen.IsZero():
		k.unseen = account.At
	case account.At.Sub(k.unseen) >= blindAfter:
		k.blind, k.unseen = true, time.Time{}
		c.event(now, Event{Kind: event.DriverBlind, Card: k.UUID,
			Message: "the driver of " + k.Name + " names no program of a share (a container with process ids of its own, or MPS): drift is not seen, " +
				"and what an ended program used stays booked for " + blindRelease.String()})
	}
}

// Unsure is true while a driver has not named our processes and may only be
// slow: ask it again in a second.
func (c *Core) Unsure() bool {
	return slices.ContainsFunc(c.cards, func(k *card) bool { return !k.unseen.IsZero() })
}

// Held tells that the driver still holds the memory of a dead client, and
// which processes (children that inherited its driver descriptors, as a rule)
// keep it.
func (c *Core) Held(now time.Time, id ClientID, holders []int) {
	cl := c.clients[id]
	if cl == nil || cl.state != Dead || cl.heldTold {
		return
	}
	cl.heldTold = true
	var names []string
	for _, pid := range holders {
		names = append(names, fmt.Sprint(pid))
	}
	by := "no process that we can see"
	if len(names) > 0 {
		by = "process " + strings.Join(names, ", ")
	}
	c.event(now, Event{Kind: event.MemoryHeld, Share: cl.share.Name, Card: cl.share.uuid(), PID: cl.PID, Bytes: cl.granted(),
		Message: fmt.Sprintf("process %d has ended, %s stays booked: kept by %s", cl.PID, size.Short(cl.granted()), by)})
}
