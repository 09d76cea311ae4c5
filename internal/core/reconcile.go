// SPDX-License-Identifier: Apache-2.0

package core

import (
	"fmt"
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

// EndedClients lists who has ended, or lives on without its socket, and may
// still hold memory: ask the driver about their cards.
func (c *Core) EndedClients() []EndedClient {
	if !c.someEnded {
		return nil
	}
	var ended []EndedClient
	for _, s := range c.shares {
		for _, cl := range s.clients {
			if cl.ending() {
				ended = append(ended, EndedClient{cl.id, s.card.UUID, cl.state, cl.ended})
			}
		}
	}
	c.someEnded = len(ended) > 0
	return ended
}

// ReleaseEnded takes clients off the ledger that have ended, or live on
// without their socket, and for which the driver holds nothing any more: it was
// asked when they had nothing left to take.
func (c *Core) ReleaseEnded(now time.Time, cardUUID string, account Account) {
	for _, s := range slices.Clone(c.shares) {
		if s.card.UUID != cardUUID {
			continue
		}
		for _, cl := range slices.Clone(s.clients) {
			if cl.ending() && !account.At.Before(cl.left) && !c.mayHold(cl, account) &&
				(!s.card.blind || account.At.Sub(cl.ended) >= blindRelease) {
				c.released(now, cl)
			}
		}
	}
	c.endGraceIfAllBack(now)
}

// mayHold is false when the driver accounts for all memory of the process
// number without this client: none, or what a later attachment of it uses
// (a program that became another one by exec).
func (c *Core) mayHold(cl *client, account Account) bool {
	var held uint64
	shown := false
	for _, p := range account.Processes {
		if p.PID == cl.PID {
			if !p.Known {
				return true
			}
			shown, held = true, held+p.Bytes
		}
	}
	if !shown {
		return false
	}
	var others uint64
	for _, other := range c.clients {
		if other != cl && other.PID == cl.PID && other.state == Attached && other.share.card == cl.share.card {
			others += c.usedBy(other)
		}
	}
	return held > others
}

// Reconcile compares the ledger of a card with the driver's account.
func (c *Core) Reconcile(now time.Time, cardUUID string, account Account) {
	c.ReleaseEnded(now, cardUUID, account)
	i := slices.IndexFunc(c.cards, func(k *card) bool { return k.UUID == cardUUID })
	if i < 0 {
		return
	}
	k := c.cards[i]
	held := map[int]Holding{}
	for _, p := range account.Processes {
		sum := held[p.PID]
		known := p.Known && (sum.Known || sum.PID == 0)
		held[p.PID] = Holding{PID: p.PID, Bytes: sum.Bytes + p.Bytes, Known: known}
	}
	k.driverUsed, k.unledgered, k.drift = account.UsedBytes, 0, 0
	c.look(now, k, account, held)
	ours := map[int]uint64{} // ledger by process
	attached := map[int]bool{}
	for _, s := range c.shares {
		for _, cl := range s.clients {
			if s.card != k {
				continue
			}
			c.read(now, cl)
			ours[cl.PID] += c.usedBy(cl)
			attached[cl.PID] = attached[cl.PID] || cl.state == Attached
			cl.driver = nil
			if p, ok := held[cl.PID]; !ok && (k.blind || !k.unseen.IsZero()) {
				continue // unknown
			} else if !ok {
				cl.driver = new(uint64)
			} else if p.Known {
				bytes := p.Bytes
				cl.driver = &bytes
			}
		}
	}
	if k.blind || !k.unseen.IsZero() {
		k.strangers = map[int]bool{} // whom it names may be ours, by another number
		return
	}
	for pid := range attached {
		if p, ok := held[pid]; attached[pid] && (!ok || p.Known) {
			k.drift += int64(p.Bytes) - int64(ours[pid])
		}
	}
	c.findStrangers(now, k, account, ours)
}

// look finds out whether the driver names our processes at all. It does not
// where it counts processes in another namespace than the agent, or names a
// server in their place: then its silence about one says nothing.
func (c *Core) look(now time.Time, k *card, account Account, held map[int]Holding) {
	unseen := false
	for _, cl := range c.clients {
		if cl.share.card != k || cl.state != Attached {
			continue
		}
		if _, ok := held[cl.PID]; ok {
			k.named, k.blind, k.unseen = true, false, time.Time{}
			return
		}
		unseen = unseen || c.usedBy(cl) > 0
	}
	switch {
	case k.named || k.blind:
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

// findStrangers raises an event for each process that holds memory on the card
// and is on no ledger.
func (c *Core) findStrangers(now time.Time, k *card, account Account, ours map[int]uint64) {
	seen := map[int]bool{}
	for _, p := range account.Processes {
		if _, known := ours[p.PID]; known {
			continue
		}
		k.unledgered += p.Bytes
		seen[p.PID] = true
		if k.strangers[p.PID] {
			continue
		}
		c.event(now, Event{Kind: event.UnledgeredMemory, Card: k.UUID, PID: p.PID, Bytes: p.Bytes,
			Message: fmt.Sprintf("process %d holds %s of %s and is on no ledger", p.PID, size.Short(p.Bytes), k.Name)})
	}
	k.strangers = seen
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
	c.event(now, Event{Kind: event.MemoryHeld, Share: cl.share.Name, Card: cl.share.card.UUID, PID: cl.PID, Bytes: cl.granted,
		Message: fmt.Sprintf("process %d has ended, %s stays booked: kept by %s", cl.PID, size.Short(cl.granted), by)})
}
