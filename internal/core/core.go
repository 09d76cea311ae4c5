// SPDX-License-Identifier: Apache-2.0

// Package core is the agent's ledger: cards, shares, clients, and how much
// memory each client has been granted. It is pure: no files, network,
// goroutines, locks, logs or clock. Time is an argument, the credit words on
// the clients' pages are behind Credits, and what must happen outside is
// returned by Drain for an adapter to carry out. One goroutine uses it.
//
// A share has one or more cards, each with a slot: the card's number inside the share.
// On each, every client draws on a pool: the quota of its share there, or, for shares
// without a promise, what the card has left over. In each pool
//
//	sum of granted <= limit
//
// holds unless the limit was lowered under what is in use; then nothing is
// granted until it holds again. What a client does not use of its grant is its
// credit, and can be taken back at any time without its help.
package core

import (
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/internal/event"
	terms "github.com/divvy-gpu/divvy/internal/share"
)

// ClientID names a client for ever; it is the token on its page.
type ClientID uint64

// Unit is what memory is granted in, in bytes: every amount is a multiple of it.
const Unit = 512

// Credits reads and writes the pages of clients. Each change is one step
// against the client, and what a page says is in use (granted and not credit)
// is true before and after it. Grant, Charge, Hand, Discharge and Hold may wait until what
// Drain orders is saved, if Read counts them from the start.
type Credits interface {
	// Recall takes back at most max bytes of what is not used, if the page says
	// that granted bytes are granted.
	Recall(id ClientID, slot int, granted, max uint64) uint64
	// Grant adds to what is granted and not used.
	Grant(id ClientID, slot int, bytes uint64)
	// Charge adds to what is granted and in use: a charge is granted.
	Charge(id ClientID, slot int, bytes uint64)
	// Hand adds to what is granted and in use, of memory that another one has released.
	Hand(id ClientID, slot int, bytes uint64)
	// Discharge takes off what is granted and in use: memory that has been released.
	Discharge(id ClientID, slot int, bytes uint64)
	// Hold makes a page say that this much is granted, and in use.
	Hold(id ClientID, slot int, bytes uint64)
	// Read returns the client's own words; false when it has destroyed its page.
	Read(id ClientID, slot int) (Reading, bool)
}

// Reading is what a client's page says of one slot. Nothing in it can be trusted.
type Reading struct {
	GrantedBytes, CreditBytes      uint64
	ContextBytes, PeakBytes        uint64
	Allocations, Launches          uint64
	BusyNs, WaitNs, LateNs         uint64
	InFlightNs, DrainNs, LastEndNs uint64
	KernelNs, SpanNs, GapNs        uint64
	AtNs                           uint64 // when it was read, by the clock of the times above; 0: not known
}

// Config bounds a core.
type Config struct {
	MaxShares       int
	MaxClients      int // in all
	MaxShareClients int
	RestartGrace    time.Duration // how long a restarted agent waits for its clients before it grants
	EphemeralGrace  time.Duration // how long an ephemeral share waits for its first holder or client
	ShrinkDeadline  time.Duration // after it, a share over its new limit raises an event
	AgentUID        int           // besides root, may change every share
}

// Orders is what the caller has to carry out, in the order of the fields: what
// is saved must be safe before an answer leaves.
type Orders struct {
	SaveShares  []string   // changed or removed: look them up with Saved
	SaveClients []ClientID // changed or removed
	SaveWork    []ClientID // measured: look it up with SavedWork
	SaveNamed   []uint64   // memory with names, changed or gone: look it up with SavedNamed
	SaveFigures []string   // shares of which that was found: look them up with SavedFigures
	SaveCards   []string   // changed: look them up with SavedCard
	Limits      []string   // shares whose limits page must be written
	Answers     []Answer   // to charges that had to wait
	Events      []Event
	Released    []Slot     // the driver holds nothing any more for somebody there who has ended
	GoneNames   []string   // of memory that nobody holds any more
	GoneClients []ClientID // off the ledger: close page and connection
	GoneShares  []string   // close socket and page
}

// Event is something worth telling.
type Event struct {
	Time    time.Time
	Kind    event.Kind
	Share   string
	Labels  terms.Labels // of the share
	Card    string
	PID     int
	UID     *int // whose the process is, where the event is about somebody on no ledger
	Bytes   uint64
	XID     uint64 // of a card's fault; 0: it has none
	Class   string // of a fault
	Message string
	user    *int // who caused it, where that cannot be seen of the rest
}

// CausedBy notes who did, of whose events it is one.
func (e *Event) CausedBy(user *int) { e.user = user }

// User is who caused an event, where that was known when it came.
func (e Event) User() (uid int, known bool) {
	if e.user == nil {
		return 0, false
	}
	return *e.user, true
}

// Core is the ledger of one node.
type Core struct {
	config  Config
	credits Credits
	cards   []*card
	absent  []*card // of shares that have others, too
	// keptCards are what is saved of cards that are not there.
	keptCards []SavedCard
	shares    []*share // in order of creation
	byName    map[string]*share
	clients   map[ClientID]*client
	byPID     map[int][]*client
	attached  part // clients
	// Of memory with names.
	names, holdings part
	made            int // names made up so far

	order uint64 // of attachment

	graceEnd   time.Time // zero: no client of an earlier life is awaited
	waiting    []waiting // until graceEnd, or their own time
	pass       uint64    // of charges that are decided together, with nothing else in between
	freedPools []*pool
	freedAt    time.Time

	unknownUntil time.Time // a process whose token is not known may be one of an earlier life

	orders Orders
	taken  []takenCredit // scratch of one charge

	numbered  map[uint64]*named // memory that others than its maker may hold
	byNamed   map[string]*named
	lastNamed uint64

	notices    due // of clients
	flood      flood
	sharesWake sharesWake
	awaited    int // clients of an earlier life that are not back
	gone       map[GoneKey]Gone
	ended      []Ended // that nobody has taken yet
}

// New returns an empty ledger over cards.
func New(config Config, cards []Card, credits Credits) *Core {
	c := &Core{config: config, credits: credits, byName: map[string]*share{}, clients: map[ClientID]*client{},
		byPID: map[int][]*client{}, gone: map[GoneKey]Gone{}, numbered: map[uint64]*named{}, byNamed: map[string]*named{}}
	for _, described := range cards {
		k := &card{Card: described}
		k.rest = newPool(k, nil)
		c.cards = append(c.cards, k)
	}
	return c
}

// Drain returns what has to be carried out since the last call.
func (c *Core) Drain() Orders {
	if len(c.freedPools) > 0 {
		c.askAgain(c.freedAt)
	}
	for _, name := range c.orders.Limits {
		if s := c.byName[name]; s != nil {
			s.limitsChanged = false
		}
	}
	for _, name := range c.orders.SaveShares {
		if s := c.byName[name]; s != nil {
			s.saveChanged = false
		}
	}
	for _, id := range c.orders.SaveClients {
		if cl := c.clients[id]; cl != nil {
			cl.saveChanged = false
		}
	}
	for _, number := range c.orders.SaveNamed {
		if n := c.numbered[number]; n != nil {
			n.saveChanged = false
		}
	}
	orders := c.orders
	c.orders = Orders{}
	return orders
}

func (c *Core) event(now time.Time, e Event) {
	e.Time = now
	if !c.MayTell(now, e) {
		return
	}
	if e.Labels == nil {
		e.Labels = c.Labels(e.Share)
	}
	c.orders.Events = append(c.orders.Events, e)
}

// Labels are those of a share; nil: it has none, or is not there.
func (c *Core) Labels(share string) terms.Labels {
	if s := c.byName[share]; s != nil {
		return s.Labels
	}
	return nil
}

func (c *Core) limitsChanged(s *share) {
	if !s.limitsChanged {
		s.limitsChanged = true
		c.orders.Limits = append(c.orders.Limits, s.Name)
	}
}

func (c *Core) shareChanged(s *share) {
	if !s.saveChanged {
		s.saveChanged = true
		c.orders.SaveShares = append(c.orders.SaveShares, s.Name)
	}
}

func (c *Core) clientChanged(cl *client) {
	if !cl.saveChanged {
		cl.saveChanged = true
		c.orders.SaveClients = append(c.orders.SaveClients, cl.id)
	}
}

// Tick does what time brings. Call it at NextWake or later.
func (c *Core) Tick(now time.Time) {
	if !c.graceEnd.IsZero() && !now.Before(c.graceEnd) {
		c.endGrace(now)
	}
	c.askAgain(now)
	for _, s := range slices.Clone(c.shares) {
		c.tickShare(now, s)
	}
	c.wakesChanged()
	c.tellDropped(now)
	for _, cl := range c.notices.take(now, noticed) {
		c.notice(now, cl)
	}
}

// NextWake is when Tick has something to do; zero: never, as things are.
func (c *Core) NextWake() time.Time {
	if !c.sharesWake.known { // it is asked for too often to look at a thousand shares each time
		c.sharesWake = sharesWake{known: true, at: c.wakeOfShares()}
	}
	next := earlier(c.graceEnd, c.sharesWake.at)
	for _, w := range c.waiting {
		next = earlier(next, w.until)
	}
	return earlier(earlier(next, c.flood.tellAt), c.notices.next(noticed))
}

func (c *Core) wakesChanged() { c.sharesWake.known = false }

// sharesWake is when the first of the shares has something to do. Whatever changes that of one
// makes it unknown.
type sharesWake struct {
	known bool
	at    time.Time // zero: never
}

func (c *Core) wakeOfShares() (next time.Time) {
	for _, s := range c.shares {
		next = earlier(next, s.lonelyEnd)
		for _, t := range s.slots {
			next = earlier(next, t.sweepNext)
		}
	}
	return next
}

// earlier is the first of two times, of which zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Idle is true when nobody needs the agent: no share that was declared to
// stay, no holder, no client.
func (c *Core) Idle() bool {
	for _, s := range c.shares {
		if !s.Ephemeral || s.holders > 0 || len(s.clients.all) > 0 || !s.lonelyEnd.IsZero() {
			return false
		}
	}
	return true
}
