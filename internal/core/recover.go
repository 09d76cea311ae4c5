// SPDX-License-Identifier: Apache-2.0

package core

import (
	"fmt"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/internal/event"
	terms "github.com/divvy-gpu/divvy/internal/share"
	"github.com/divvy-gpu/divvy/internal/size"
)

// SavedShare is what must survive of a share.
type SavedShare struct {
	Spec
	CardUUID string
	Owner    int
	Created  time.Time
	Revoked  bool
	Peak     uint64
	Denials  map[Reason]uint64
	Launches uint64
	BusyNs   uint64 `json:",omitempty"`
	WaitNs   uint64 `json:",omitempty"`
}

// SavedClient is what must survive of a client.
type SavedClient struct {
	Process
	ID      ClientID
	Share   string
	Granted uint64
	Peak    uint64
	Denials uint64
	Since   time.Time
	FirstNs uint64 `json:",omitempty"` // the same by the clock of the pages, which nobody sets
}

// SavedShare returns what to save of a share; false: it is gone.
func (c *Core) SavedShare(name string) (SavedShare, bool) {
	s := c.byName[name]
	if s == nil {
		return SavedShare{}, false
	}
	return SavedShare{
		Spec: s.Spec, CardUUID: s.card.UUID, Owner: s.owner, Created: s.created, Revoked: s.revoked,
		Peak: s.peak, Denials: s.denials, Launches: s.launches,
		BusyNs: s.busy, WaitNs: s.wait,
	}, true
}

// SavedClient returns what to save of a client; false: it is gone.
func (c *Core) SavedClient(id ClientID) (SavedClient, bool) {
	cl := c.clients[id]
	if cl == nil {
		return SavedClient{}, false
	}
	return SavedClient{
		Process: cl.Process, ID: id, Share: cl.share.Name, Granted: cl.granted, Peak: cl.peak, Denials: cl.denials, Since: cl.since, FirstNs: cl.work.firstNs,
	}, true
}

// Saved lists everything to save.
func (c *Core) Saved() (shares []SavedShare, clients []SavedClient) {
	for _, s := range c.shares {
		saved, _ := c.SavedShare(s.Name)
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
		k := c.cardOf(saved.CardUUID)
		if k == nil || c.byName[saved.Name] != nil || terms.CheckName(saved.Name) != nil {
			c.event(now, Event{Kind: event.ShareLost, Share: saved.Name, Card: saved.CardUUID, Message: "its GPU is not there any more"})
			c.orders.SaveShares = append(c.orders.SaveShares, saved.Name)
			c.orders.GoneShares = append(c.orders.GoneShares, saved.Name)
			continue
		}
		s := newShare(saved.Spec, k, saved.Owner, saved.Created)
		s.revoked, s.peak, s.launches, s.busy, s.wait = saved.Revoked, saved.Peak, saved.Launches, saved.BusyNs, saved.WaitNs
		if saved.Denials != nil {
			s.denials = saved.Denials
		}
		if s.MemoryBytes > 0 || s.revoked {
			s.pool = newPool(k, s)
			s.limit = s.MemoryBytes
		}
		if s.revoked {
			s.limit = 0
			s.sweepNext = now.Add(sweepLast)
		}
		if s.Ephemeral {
			s.lonelyEnd = now.Add(c.config.EphemeralGrace)
		}
		c.addShare(s)
		c.limitsChanged(s)
	}
	for _, saved := range clients {
		s := c.byName[saved.Share]
		if s == nil || c.clients[saved.ID] != nil {
			c.orders.SaveClients = append(c.orders.SaveClients, saved.ID)
			continue
		}
		cl := &client{
			Process: saved.Process, id: saved.ID, share: s, since: saved.Since, ended: now,
			granteds: saved.Granted, peak: saved.Peak, denials: saved.Denials,
		}
		cl.work.firstNs = saved.FirstNs
		c.addClient(cl)
		c.setState(cl, Detached, false)
		cl.granted = up(saved.Granted)
		s.pool.granted += cl.granted
		s.everUsed = true
		c.graceEnd = now.Add(c.config.RestartGrace)
	}
	for _, s := range slices.Clone(c.shares) {
		c.squeeze(now, s)
		c.removeIfUnused(now, s)
	}
	if len(shares) > 0 {
		c.unknownUntil = now.Add(c.config.RestartGrace)
		c.event(now, Event{Kind: event.AgentRecovered, Message: fmt.Sprintf("%d shares and %d clients of the agent before", len(shares), len(clients))})
	}
}

// claim is what a process is believed to use that comes with a token which we do not
// know. An agent that was restarted may have had no journal: in its grace all is
// believed for which there is room, of one client per process. Later a claim is what a
// charge would be: it has room, or the process is refused.
func (c *Core) claim(now time.Time, s *share, process Process, bytes uint64) (uint64, error) {
	if bytes == 0 {
		return 0, nil
	}
	restarted := now.Before(c.unknownUntil)
	if restarted && slices.ContainsFunc(c.byPID[process.PID], func(cl *client) bool { return cl.share == s && cl.same(process) }) {
		c.Refused(now, s.Name, process.PID, "came with a second token that is not known")
		return 0, ErrToken
	}
	room := s.pool.room(c)
	if room < bytes {
		c.recall(s.pool, bytes-room)
		room = s.pool.room(c)
	}
	if room >= bytes || restarted {
		return min(bytes, room), nil
	}
	c.settle(s.pool)
	err := fmt.Errorf("%w: %s; there is room for %s", ErrClaim, size.Short(bytes), size.Short(room))
	c.Refused(now, s.Name, process.PID, err.Error())
	return 0, err
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
				c.event(now, Event{Kind: event.ClientMissing, Share: s.Name, Card: s.card.UUID, PID: cl.PID, Bytes: cl.granted,
					Message: fmt.Sprintf("has not come back to the restarted agent; it keeps %s until it does or ends", size.Short(cl.granted))})
			}
		}
	}
	waiting := c.waiting
	c.waiting = nil
	for _, w := range waiting {
		if cl := c.clients[w.id]; cl != nil {
			c.orders.Answers = append(c.orders.Answers, c.charge(now, cl, w)) // it has waited long enough
		}
	}
	for _, s := range c.shares {
		if s.promised() {
			c.squeeze(now, s)
			c.settle(s.pool)
		}
	}
	for _, k := range c.cards {
		c.settle(k.rest)
	}
}

func (c *Core) dropWaiting(id ClientID) {
	c.waiting = slices.DeleteFunc(c.waiting, func(w waiting) bool { return w.id == id })
}
