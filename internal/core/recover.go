// SPDX-License-Identifier: Apache-2.0

package core

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/internal/event"
	terms "github.com/divvy-gpu/divvy/internal/share"
	"github.com/divvy-gpu/divvy/internal/size"
)

// SavedShare is what must survive of a share.
type SavedShare struct {
	Spec
	SavedSlot             // the first of its cards
	More      []SavedSlot `json:",omitempty"` // the others
	Owner     int
	Created   time.Time
	Revoked   bool
	Named     []SavedNamed `json:",omitempty"`
}

// SavedSlot is what must survive of one card of a share.
type SavedSlot struct {
	CardUUID string
	Peak     uint64
	Denials  map[Reason]uint64
	Launches uint64
	BusyNs   uint64 `json:",omitempty"`
	WaitNs   uint64 `json:",omitempty"`
	Correction
}

// SavedClient is what must survive of a client.
type SavedClient struct {
	Process
	ID      ClientID
	Share   string
	Granted uint64         // on the first card of its share
	Peak    uint64         // there
	More    []SavedBalance `json:",omitempty"` // of the others
	Denials uint64
	Since   time.Time
	FirstNs uint64      `json:",omitempty"` // the same by the clock of the pages, which nobody sets
	Work    []SavedWork `json:",omitempty"` // of each card
}

// SavedBalance is what a client had on a card.
type SavedBalance struct{ Granted, Peak uint64 }

// Amounts are what a client was granted on each card.
func (s *SavedClient) Amounts() []uint64 {
	all := []uint64{s.Granted}
	for _, b := range s.More {
		all = append(all, b.Granted)
	}
	return all
}

// SetAmounts is the reverse.
func (s *SavedClient) SetAmounts(granted []uint64) {
	for i, bytes := range granted {
		switch {
		case i == 0:
			s.Granted = bytes
		case i <= len(s.More):
			s.More[i-1].Granted = bytes
		default:
			s.More = append(s.More, SavedBalance{Granted: bytes})
		}
	}
}

// SavedShare returns what to save of a share, but for its memory that has names; false: it is gone.
func (c *Core) SavedShare(name string) (SavedShare, bool) {
	s := c.byName[name]
	if s == nil {
		return SavedShare{}, false
	}
	saved := SavedShare{Spec: s.Spec, Owner: s.owner, Created: s.created, Revoked: s.revoked}
	for _, t := range s.slots {
		if t.number == 0 {
			saved.SavedSlot = t.saved()
		} else {
			saved.More = append(saved.More, t.saved())
		}
	}
	return saved, true
}

// SavedClient returns what to save of a client; false: it is gone.
func (c *Core) SavedClient(id ClientID) (SavedClient, bool) {
	cl := c.clients[id]
	if cl == nil {
		return SavedClient{}, false
	}
	first := cl.balances[0]
	saved := SavedClient{
		Process: cl.Process, ID: id, Share: cl.share.Name, Granted: first.granted, Peak: first.peak, Denials: cl.denials, Since: cl.since, FirstNs: first.work.firstNs,
	}
	for _, b := range cl.balances[1:] {
		saved.More = append(saved.More, SavedBalance{b.granted, b.peak})
	}
	saved.Work, _ = c.SavedWork(id)
	return saved, true
}

// Saved lists everything to save.
func (c *Core) Saved() (shares []SavedShare, clients []SavedClient) {
	for _, s := range c.shares {
		saved, _ := c.SavedShare(s.Name)
		saved.Named = c.savedNamed(s)
		shares = append(shares, saved)
		for _, cl := range s.clients.all {
			saved, _ := c.SavedClient(cl.id)
			clients = append(clients, saved)
		}
	}
	return shares, clients
}

// Recover takes over an earlier life's ledger into an empty core. Its clients
// keep what they had been granted until they return (Reattach) or die (Died);
// nothing is granted to anybody until all are back or the grace has passed.
func (c *Core) Recover(now time.Time, shares []SavedShare, clients []SavedClient) {
	for _, saved := range shares {
		slots := append([]SavedSlot{saved.SavedSlot}, saved.More...)
		cards := c.cardsOf(slots)
		if len(cards) == 0 || c.byName[saved.Name] != nil || terms.CheckName(saved.Name) != nil {
			message := "its GPU is not there any more"
			if len(slots) > 1 {
				message = "none of its GPUs is there any more"
			}
			c.event(now, Event{Kind: event.ShareLost, Share: saved.Name, Card: saved.CardUUID, Message: message})
			c.orders.SaveShares = append(c.orders.SaveShares, saved.Name)
			c.orders.GoneShares = append(c.orders.GoneShares, saved.Name)
			continue
		}
		s := newShare(saved.Spec, cards, saved.Owner, saved.Created)
		s.revoked = saved.Revoked
		for i, t := range s.slots {
			t.recover(now, slots[i])
		}
		if s.Ephemeral {
			s.lonelyEnd = now.Add(c.config.EphemeralGrace)
		}
		c.addShare(s)
		c.limitsChanged(s)
		for _, t := range s.slots {
			if t.card.absent {
				c.slotEvent(now, t, event.ShareUnusable, 0, "GPU %d of its %d is not there any more; its programs can go on with the others", t.number, len(s.slots))
			}
		}
	}
	for _, saved := range clients {
		s := c.byName[saved.Share]
		if s == nil || c.clients[saved.ID] != nil {
			c.orders.SaveClients = append(c.orders.SaveClients, saved.ID)
			continue
		}
		cl := &client{Process: saved.Process, id: saved.ID, share: s, since: saved.Since, ended: now, denials: saved.Denials, unseen: true}
		c.addClient(cl)
		c.setState(cl, Detached, false)
		had := append([]SavedBalance{{saved.Granted, saved.Peak}}, saved.More...)
		for i, b := range cl.balances {
			b.work.firstNs = saved.FirstNs
			if i < len(had) {
				b.peak = had[i].Peak
				c.book(b, up(had[i].Granted))
			}
			if i < len(saved.Work) {
				b.recoverWork(saved.Work[i])
			}
		}
		s.everUsed, s.usedBefore = true, true
		c.graceEnd = now.Add(c.config.RestartGrace)
	}
	for _, saved := range shares {
		if s := c.byName[saved.Name]; s != nil {
			c.recoverNamed(now, s, saved.Named)
		}
	}
	for _, s := range slices.Clone(c.shares) {
		for _, t := range s.slots {
			c.squeeze(now, t)
		}
		c.removeIfUnused(now, s)
	}
	if len(shares) > 0 {
		c.unknownUntil = now.Add(c.config.RestartGrace)
		c.event(now, Event{Kind: event.AgentRecovered, Message: fmt.Sprintf("%d shares and %d clients of the agent before", len(shares), len(clients))})
	}
}

// cardsOf finds the cards of a share's slots. Of several, some may not be there; none: all
// are not, or the slots make no sense.
func (c *Core) cardsOf(slots []SavedSlot) (cards []*card) {
	here := 0
	for _, saved := range slots {
		k := c.cardOf(saved.CardUUID)
		if k != nil {
			here++
		} else {
			k = c.absentCard(saved.CardUUID)
		}
		if slices.Contains(cards, k) {
			return nil
		}
		cards = append(cards, k)
	}
	if here == 0 || len(cards) > MaxSlots {
		return nil
	}
	return cards
}

// absentCard stands for one that the driver does not show any more: nobody holds anything
// of it, and nothing is promised of it anew.
func (c *Core) absentCard(uuid string) *card {
	for _, k := range c.absent {
		if k.UUID == uuid {
			return k
		}
	}
	k := &card{Card: Card{UUID: uuid, Name: "a GPU that is not there"}, absent: true, condition: ConditionLost, detail: "the driver does not show it"}
	if raw, err := hex.DecodeString(strings.ReplaceAll(strings.TrimPrefix(uuid, "GPU-"), "-", "")); err == nil {
		copy(k.UUIDBytes[:], raw)
	}
	k.rest = newPool(k, nil)
	c.absent = append(c.absent, k)
	return k
}

func (t *slot) recover(now time.Time, saved SavedSlot) {
	t.billed.at = now
	t.peak, t.launches, t.busy, t.wait, t.before = saved.Peak, saved.Launches, saved.BusyNs, saved.WaitNs, saved.Correction
	if saved.Denials != nil {
		t.denials = saved.Denials
	}
	if s := t.share; s.MemoryBytes > 0 || s.revoked {
		t.pool = newPool(t.card, t)
		t.limit = s.MemoryBytes
	}
	if t.share.revoked {
		t.limit = 0
		t.sweepNext = now.Add(sweepLast)
	}
}

// claim is what a process is believed to use that comes with a token which we do not
// know. An agent that was restarted may have had no journal: in its grace all is
// believed for which there is room, of one client per process. Later a claim is what a
// charge would be: it has room, or the process is refused.
func (c *Core) claim(now time.Time, s *share, process Process, usedBytes []uint64) (amounts, error) {
	used := make(amounts, len(s.slots))
	for i := range used {
		used[i] = up(amounts(usedBytes).of(i))
	}
	if used.sum() == 0 {
		return used, nil
	}
	restarted := now.Before(c.unknownUntil)
	if restarted && slices.ContainsFunc(c.byPID[process.PID], func(cl *client) bool { return cl.share == s && cl.same(process) }) {
		c.Refused(now, s.Name, process, "came with a second token that is not known")
		return nil, ErrToken
	}
	for i, t := range s.slots {
		bytes, room := used[i], t.pool.room(c)
		if room < bytes {
			c.recall(t.pool, bytes-room)
			room = t.pool.room(c)
		}
		if room >= bytes || restarted {
			used[i] = min(bytes, room)
			continue
		}
		for _, asked := range s.slots[:i+1] {
			c.settle(asked.pool)
		}
		err := fmt.Errorf("%w: %s%s; there is room for %s", ErrClaim, size.Short(bytes), t.which(), size.Short(room))
		c.Refused(now, s.Name, process, err.Error())
		return nil, err
	}
	return used, nil
}

// Awaited is how many clients of an earlier life are not back yet.
func (c *Core) Awaited() int { return c.awaited }

func (c *Core) endGraceIfAllBack(now time.Time) {
	if !c.graceEnd.IsZero() && c.Awaited() == 0 {
		c.endGrace(now)
	}
}

// endGrace answers the charges that waited, in their order.
func (c *Core) endGrace(now time.Time) {
	c.graceEnd = time.Time{}
	for _, s := range c.shares {
		for _, cl := range s.clients.all {
			if cl.awaited() {
				c.event(now, Event{Kind: event.ClientMissing, Share: s.Name, Card: s.uuid(), PID: cl.PID, Bytes: cl.granted(),
					Message: fmt.Sprintf("has not come back to the restarted agent; it keeps %s until it does or ends", size.Short(cl.granted()))})
			}
		}
	}
	c.askAgain(now)
	for _, s := range c.shares {
		for _, t := range s.slots {
			if t.promised() {
				c.squeeze(now, t)
				c.settle(t.pool)
			}
		}
	}
	for _, k := range c.cards {
		c.settle(k.rest)
	}
}
