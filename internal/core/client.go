// SPDX-License-Identifier: Apache-2.0

package core

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/internal/event"
	"github.com/divvy-gpu/divvy/internal/size"
)

// State of a client.
type State string

// States of clients.
const (
	Attached State = "attached"
	Detached State = "detached" // lives on without its socket
	Dead     State = "dead"     // and the driver still holds its memory
)

// exitNotice is how long a process may take from closing its socket to its end
// before it counts as one that lives on.
const exitNotice = 200 * time.Millisecond

// Process is who attaches, as the kernel tells.
type Process struct {
	PID     int
	UID     int
	Start   uint64 // tells a process from a later one with its number
	Command string
	Payer   int    `json:",omitempty"` // whose it is, where that is not its user: of whom it has its id, or its user namespace
	Name    string // what everybody is told instead of its command line
}

// user is to whose part of the clients the process counts.
func (p Process) user() int {
	return cmp.Or(p.Payer, p.UID)
}

func (p Process) same(other Process) bool { return p.PID == other.PID && p.Start == other.Start }

type client struct {
	Process
	id       ClientID
	share    *share
	since    time.Time
	state    State
	page     bool // there is one to read
	frozen   bool // its page is destroyed: it keeps what it has and gets nothing
	unheld   bool // it is not held as its share demands: the same
	unseen   bool // it is of an earlier life and has not been back: what it uses is not known
	merged   merged
	balances []*balance // of each card of its share, by number

	left     time.Time // it takes nothing from then on
	ended    time.Time // came into its state
	noticeAt time.Time // when to tell that it lives on
	heldTold bool

	order, place int // of attachment; in the share's crowd
	denials      uint64
	bucket       bucket

	saveChanged bool
}

// awaited is true of a client of an earlier life that is not back yet.
func (cl *client) awaited() bool { return cl.state == Detached && !cl.page }

// ending is true of a client that goes as soon as the driver holds nothing for it.
func (cl *client) ending() bool { return cl.state != Attached && !cl.awaited() }

// ClientView is a client and what it holds: of each card of its share, and summed over them.
type ClientView struct {
	Process
	ID           ClientID
	Share        string
	Balances     []BalanceView // by number
	CardUUID     string        // of the first
	State        State
	Frozen       bool
	UsedBytes    uint64
	ContextBytes uint64
	GrantedBytes uint64
	PeakBytes    uint64
	DriverBytes  *uint64 // nil: not known of one of them
	Allocations  uint64
	Denials      uint64
	Launches     uint64
	Since        time.Time
	order        int
}

// Clients lists the clients by share and time of attachment.
func (c *Core) Clients() []ClientView {
	var views []ClientView
	for _, s := range c.shares {
		views = append(views, c.viewClients(s)...)
	}
	return views
}

// ClientsOf lists the clients of one share.
func (c *Core) ClientsOf(name string) []ClientView {
	s := c.byName[name]
	if s == nil {
		return nil
	}
	return c.viewClients(s)
}

func (c *Core) viewClients(s *share) []ClientView {
	views := make([]ClientView, 0, len(s.clients.all))
	for _, cl := range s.clients.all {
		v := ClientView{
			Process: cl.Process, ID: cl.id, Share: s.Name, CardUUID: s.uuid(), State: cl.state, Frozen: cl.frozen,
			Denials: cl.denials, Since: cl.since, DriverBytes: new(uint64), order: cl.order,
		}
		for _, b := range cl.balances {
			v.add(c.viewBalance(b))
		}
		views = append(views, v)
	}
	slices.SortStableFunc(views, func(a, b ClientView) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.order, b.order)) })
	return views
}

func (v *ClientView) add(b BalanceView) {
	v.Balances = append(v.Balances, b)
	v.UsedBytes += b.UsedBytes
	v.ContextBytes += b.ContextBytes
	v.GrantedBytes += b.GrantedBytes
	v.PeakBytes += b.PeakBytes
	v.Allocations += b.Allocations
	v.Launches += b.Launches
	if b.DriverBytes == nil || v.DriverBytes == nil {
		v.DriverBytes = nil
		return
	}
	*v.DriverBytes += *b.DriverBytes
}

// Attach puts a process on the ledger of a share. Its page must be there.
func (c *Core) Attach(now time.Time, id ClientID, share string, process Process) error {
	s := c.byName[share]
	if s == nil || s.revoked {
		return ErrGone
	}
	return c.attach(now, id, s, process, nil)
}

// Reattach is Attach for a process that comes back with its token and says
// what it uses in each slot; its new page must be there. A client that we know is believed
// up to what we had granted it, an unknown one as claim says.
func (c *Core) Reattach(now time.Time, id ClientID, share string, process Process, usedBytes []uint64) error {
	s := c.byName[share]
	c.splitFor(now, id, process)
	cl := c.clients[id]
	if cl == nil {
		if s == nil || s.revoked {
			return ErrGone
		}
		used, err := c.claim(now, s, process, usedBytes)
		if err != nil {
			return err
		}
		if err := c.attach(now, id, s, process, used); err != nil {
			return err
		}
		for _, b := range c.clients[id].balances {
			b.work.fresh = true
			if now.Before(c.unknownUntil) {
				b.work.firstNs = 0 // the journal that knew is lost
			}
		}
		return nil
	}
	if err := c.checkToken(now, cl, share, process); err != nil {
		return err
	}
	c.split(now, cl)
	used := make(amounts, len(cl.balances))
	for i, b := range cl.balances {
		most := b.granted
		if cl.awaited() {
			// The agent that died may have had no journal to write to.
			most += b.slot.pool.room(c)
		}
		used[i] = min(b.knows(up(amounts(usedBytes).of(i))), most)
		b.moved = 0
	}
	wasLost := cl.state == Detached
	c.setState(cl, Attached, true)
	cl.frozen, cl.unseen = false, false
	c.come(cl)
	cl.left, cl.ended, cl.noticeAt = time.Time{}, time.Time{}, time.Time{}
	for i, b := range cl.balances {
		b.work.fresh = true
		c.hold(b, used[i])
	}
	if wasLost {
		c.event(now, Event{Kind: event.ClientReturned, Share: s.Name, Card: s.uuid(), PID: cl.PID, Bytes: used.sum(),
			Message: "attached again, uses " + used.String()})
	}
	c.limitsChanged(s)
	for _, t := range s.slots {
		c.squeeze(now, t)
	}
	c.endGraceIfAllBack(now)
	for _, t := range s.slots {
		c.settle(t.pool)
	}
	return nil
}

// Withhold gives a client nothing more, because it is not held as its share demands.
func (c *Core) Withhold(now time.Time, id ClientID) {
	cl := c.clients[id]
	if cl == nil || cl.unheld {
		return
	}
	for _, b := range cl.balances {
		c.recallFrom(b, b.granted)
	}
	cl.unheld = true
	c.clientChanged(cl)
	c.limitsChanged(cl.share)
	for _, t := range cl.share.slots {
		c.settle(t.pool)
	}
}

// CheckToken says whether a process may come back as client id: as one that we
// do not know, or as itself. Ask before its old page is given up.
func (c *Core) CheckToken(now time.Time, id ClientID, share string, process Process) error {
	if cl := c.clients[id]; cl != nil {
		return c.checkToken(now, cl, share, process)
	}
	return nil
}

func (c *Core) checkToken(now time.Time, cl *client, share string, process Process) error {
	if cl.share.Name == share && cl.PID == process.PID && cl.Start == process.Start && cl.state != Dead {
		return nil
	}
	c.Refused(now, share, process, fmt.Sprintf("came with the token of process %d", cl.PID))
	return ErrToken
}

func (c *Core) attach(now time.Time, id ClientID, s *share, process Process, used amounts) error {
	if err := c.mayJoin(s, process.UID); err != nil {
		c.Refused(now, s.Name, process, err.Error())
		return err
	}
	if many := c.checkConnections(s, process); many != "" {
		c.Refused(now, s.Name, process, "too many clients: "+many)
		return ErrBusy
	}
	cl := &client{Process: process, id: id, share: s, since: now}
	c.addClient(cl)
	c.setState(cl, Attached, true)
	c.come(cl)
	first := c.pageClock(id)
	s.everUsed = true
	for i, b := range cl.balances {
		b.work.firstNs = first
		c.hold(b, used.of(i))
	}
	c.limitsChanged(s)
	for _, t := range s.slots {
		c.squeeze(now, t)
		c.settle(t.pool)
	}
	c.event(now, Event{Kind: event.ClientAttached, Share: s.Name, Card: s.uuid(), PID: process.PID, Bytes: used.sum(),
		Message: process.Name})
	return nil
}

// come takes note of whose words a client's are.
func (c *Core) come(cl *client) {
	for _, b := range cl.balances {
		b.work.own = cl.UID == cl.share.owner || c.trusted(cl.UID)
	}
}

// pageClock is the clock of the pages, as the page of a client that has just come says.
func (c *Core) pageClock(id ClientID) uint64 {
	r, _ := c.credits.Read(id, 0)
	return r.AtNs
}

func (c *Core) addClient(cl *client) {
	c.clients[cl.id] = cl
	c.byPID[cl.PID] = append(c.byPID[cl.PID], cl)
	c.attached.add(c, cl.user(), 1)
	c.order++
	cl.order = int(c.order)
	cl.share.clients.add(cl)
	for _, t := range cl.share.slots {
		b := &balance{client: cl, slot: t}
		cl.balances = append(cl.balances, b)
		t.pool.members.add(b)
	}
}

// Detach: the socket of a client has closed. Its unused credit goes back, what
// it uses stays on the ledger. Most such processes are about to end.
func (c *Core) Detach(now time.Time, id ClientID) {
	cl := c.clients[id]
	if cl == nil || cl.state != Attached {
		return
	}
	c.end(now, cl, Detached)
	cl.noticeAt = now.Add(exitNotice)
	c.notices.add(cl.noticeAt, cl)
	c.merge(now, cl)
}

// Died: the process has ended. What it used stays on the ledger until the
// driver no longer shows it.
func (c *Core) Died(now time.Time, id ClientID) {
	cl := c.clients[id]
	if cl == nil || cl.state == Dead {
		return
	}
	c.end(now, cl, Dead)
	cl.noticeAt = time.Time{}
	for _, b := range cl.balances {
		if b.granted == 0 {
			c.leave(now, b)
		}
	}
	c.removeIfGone(now, cl)
	c.endGraceIfAllBack(now)
}

// end leaves the state Attached: all unused credit goes back.
func (c *Core) end(now time.Time, cl *client, state State) {
	c.dropWaiting(cl.id)
	for _, b := range cl.balances {
		c.read(now, b)
		c.observeLately(now, b.slot)
		c.recallFrom(b, b.granted)
	}
	if !cl.ending() {
		cl.left = now
	}
	cl.ended = now
	c.setState(cl, state, cl.page)
	c.clientChanged(cl)
	c.limitsChanged(cl.share)
	for _, t := range cl.share.slots {
		c.squeeze(now, t)
		c.settle(t.pool)
	}
}

// released: the driver holds nothing for a client on a card. It goes off the ledger with
// the last of its cards.
func (c *Core) released(now time.Time, b *balance) {
	had := b.granted
	c.hold(b, 0)
	c.inherit(now, b, had)
	c.leave(now, b)
	if c.removeIfGone(now, b.client) {
		return
	}
	t := b.slot
	c.limitsChanged(t.share)
	c.squeeze(now, t)
	c.freed(now, t.pool)
	c.settle(t.pool)
}

// leave ends what a client has to do with a card.
func (c *Core) leave(now time.Time, b *balance) {
	if !b.gone {
		b.endsNoMore()
		b.gone = true
		c.orders.Released = append(c.orders.Released, Slot{b.share.Name, b.number()})
	}
}

func (c *Core) removeIfGone(now time.Time, cl *client) bool {
	if slices.ContainsFunc(cl.balances, func(b *balance) bool { return !b.gone }) {
		return false
	}
	c.remove(now, cl)
	return true
}

func (c *Core) remove(now time.Time, cl *client) {
	s := cl.share
	message := "ended"
	if cl.state == Detached {
		message = "lives on, but the driver holds nothing for it"
	}
	if cl.merged.into {
		message = "closed one of several connections of its process"
	}
	if after := now.Sub(cl.ended); after >= time.Millisecond && cl.state == Dead {
		message = fmt.Sprintf("ended, its memory was back after %v", after.Round(100*time.Microsecond))
	}
	c.event(now, Event{Kind: event.ClientLeft, Share: s.Name, Card: s.uuid(), PID: cl.PID, Bytes: cl.peak(), Message: message})
	same := func(other *client) bool { return other == cl }
	cl.noticeAt = time.Time{}
	delete(c.clients, cl.id)
	if c.byPID[cl.PID] = slices.DeleteFunc(c.byPID[cl.PID], same); len(c.byPID[cl.PID]) == 0 {
		delete(c.byPID, cl.PID)
	}
	c.attached.add(c, cl.user(), -1)
	c.uncount(cl)
	for _, b := range cl.balances {
		c.inherit(now, b, b.granted)
	}
	s.clients.remove(cl)
	if len(s.clients.all) == 0 {
		c.settleLast(now, s)
	}
	for _, b := range cl.balances {
		c.leave(now, b)
		t := b.slot
		t.launches += b.launches()
		t.busy += b.work.told.busy
		t.wait += b.work.told.wait
		t.counted += b.work.counted
		t.sum.move(b.work, work{})
		t.pool.members.remove(b)
	}
	c.orders.SaveClients = append(c.orders.SaveClients, cl.id)
	c.orders.GoneClients = append(c.orders.GoneClients, cl.id)
	c.shareChanged(s)
	c.limitsChanged(s)
	for _, t := range s.slots {
		c.squeeze(now, t)
		c.freed(now, t.pool)
		c.settle(t.pool)
	}
	c.removeIfUnused(now, s)
}

// read reads the page of a client; a destroyed one freezes it.
func (c *Core) read(now time.Time, b *balance) (Reading, bool) {
	cl := b.client
	if cl.frozen {
		return b.reading, false
	}
	if !cl.page || cl.merged.any {
		return b.reading, true
	}
	r, ok := c.credits.Read(cl.id, b.number())
	if !ok || !b.agrees(r) {
		cl.frozen = true
		c.event(now, Event{Kind: event.ClientBroken, Share: cl.share.Name, Card: b.slot.card.UUID, PID: cl.PID, Bytes: cl.granted(),
			Message: fmt.Sprintf("destroyed its page; it keeps %s and gets nothing more", size.Short(cl.granted()))})
		return b.reading, false
	}
	b.observe(r)
	return r, true
}

// notice tells that a process lives on without its socket, as it seems.
func (c *Core) notice(now time.Time, cl *client) {
	cl.noticeAt = time.Time{}
	if cl.state == Detached {
		c.event(now, Event{Kind: event.ClientDetached, Share: cl.share.Name, Card: cl.share.uuid(), PID: cl.PID, Bytes: cl.granted(),
			Message: fmt.Sprintf("closed its connection and lives on; it keeps %s and gets nothing until it is back", size.Short(cl.granted()))})
	}
}

// Sync sums what a client's share uses in a slot, for its limits page.
func (c *Core) Sync(now time.Time, id ClientID, number int) (share string, usedBytes uint64, ok bool) {
	b := c.balanceOf(id, number)
	if b == nil {
		return "", 0, false
	}
	c.squeeze(now, b.slot)
	return b.share.Name, c.observeLately(now, b.slot), true
}

// SlotUses lists who uses memory of a slot of a client's share, the largest first.
func (c *Core) SlotUses(now time.Time, id ClientID, number int) ([]ClientView, error) {
	b := c.balanceOf(id, number)
	if b == nil {
		return nil, errors.New("not attached")
	}
	t := b.slot
	if !t.stale(now, &t.usesAt) {
		return t.uses, nil
	}
	used := func(v ClientView) uint64 { return v.Balances[number].UsedBytes }
	views := slices.DeleteFunc(c.viewClients(t.share), func(v ClientView) bool { return used(v) == 0 })
	slices.SortStableFunc(views, func(a, b ClientView) int { return cmp.Compare(used(b), used(a)) })
	if t.uses = nil; len(t.clients()) > observedClients {
		t.uses = views
	}
	return views, nil
}
