// SPDX-License-Identifier: Apache-2.0

package core

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/internal/event"
)

// named is memory that other processes than its maker may hold: it has names by which they
// find it. It is charged once in each share that holds it: to its maker as long as that one
// has it, then to the next holder of the share, and to the share itself while nobody holds
// it but a descriptor is open by which somebody could.
type named struct {
	id    uint64
	slot  *slot // of the share that made it
	bytes uint64
	// maker is who made a part of a pool, while it is there: the pool is charged to it.
	// Others import the part, and it is theirs when the maker has gone.
	maker    *balance
	pooled   bool
	freed    bool               // the maker has the part of the pool back
	names    map[string]bool    // true: of a descriptor that may be open
	users    map[string]int     // to whose part of all names each counts
	accounts map[*slot]*account // of shares that hold it

	saveChanged bool
}

// account is what one share has of it.
type account struct {
	slot    *slot
	holders []holder // in the order in which they came
	payer   *balance // whose grant has its bytes; nil: nobody's
	parked  bool     // the share's own has
	bytes   uint64   // that are charged; never more than who named it had
}

type holder struct {
	*balance
	times int
}

// Bounds of what one share makes.
const (
	maxNamed = 1024
	maxNames = 64 // of each
)

// Bounds of what all have, of which users but root get parts as of other tables.
const (
	mostNames   = 1 << 14
	mostHolders = 1 << 16
)

func (c *Core) addName(n *named, name string, open bool, user int) {
	n.names[name], n.users[name] = open, user
	c.byNamed[name] = n
	c.names.add(c, user, 1)
}

func (c *Core) dropName(n *named, name string) {
	c.names.add(c, n.users[name], -1)
	delete(c.byNamed, name)
	delete(n.names, name)
	delete(n.users, name)
}

func (c *Core) addHolder(in *account, b *balance, times int) {
	in.holders = append(in.holders, holder{b, times})
	c.holdings.add(c, b.user(), 1)
}

func (c *Core) dropHolder(in *account, b *balance) {
	if in.holding(b) != nil {
		in.holders = slices.DeleteFunc(in.holders, func(h holder) bool { return h.balance == b })
		c.holdings.add(c, b.user(), -1)
	}
}

// enter enters what a share has of it.
func (n *named) enter(t *slot, in *account) {
	n.accounts[t] = in
	t.has(n)
}

func (n *named) leave(t *slot) {
	delete(n.accounts, t)
	if t != n.slot {
		delete(t.holds, n.id)
	}
}

// has notes that a share made it or holds it.
func (t *slot) has(n *named) {
	if t.holds == nil {
		t.holds = map[uint64]*named{}
	}
	t.holds[n.id] = n
}

// Named is how memory with a name is entered and imported.
type Named struct {
	Number uint64 // 0: it had no name before
	Bytes  uint64
	Name   string
	Open   bool // of a descriptor, whose end is told (Closed)
	Pooled bool
}

// Name gives memory of a client a name, more than one if it is asked again, and returns
// its number; 0: there is no place for it.
func (c *Core) Name(id ClientID, number int, wanted Named) uint64 {
	b := c.balanceOf(id, number)
	if b == nil || b.state != Attached || wanted.Name == "" {
		return 0
	}
	n := c.numbered[wanted.Number]
	if other := c.byNamed[wanted.Name]; other != nil {
		if other != n {
			return 0 // a name is one memory's
		}
		return n.id
	}
	switch {
	case !c.names.mayEnter(c, b.user(), mostNames) || !c.holdings.mayEnter(c, b.user(), mostHolders):
		return 0
	case wanted.Number != 0:
		if n == nil || n.holding(b) == nil && n.maker != b || len(n.names) >= maxNames {
			return 0
		}
	case b.slot.named >= maxNamed:
		return 0
	default:
		c.lastNamed++
		n = &named{id: c.lastNamed, slot: b.slot, bytes: up(wanted.Bytes), pooled: wanted.Pooled, names: map[string]bool{}, users: map[string]int{}, accounts: map[*slot]*account{}}
		if n.pooled {
			n.maker = b
		} else {
			in := &account{slot: b.slot, payer: b, bytes: n.bytes}
			c.addHolder(in, b, 1)
			n.enter(b.slot, in)
		}
		c.numbered[n.id] = n
		b.slot.named++
		b.slot.has(n)
	}
	c.addName(n, wanted.Name, wanted.Open, b.user())
	c.namedChanged(n)
	return n.id
}

// Import makes a client hold what has a name, once more if it does already. It is charged
// if its share does not hold it yet; number 0: nobody has named it.
func (c *Core) Import(now time.Time, id ClientID, name, call string) (n Named, a Answer) {
	cl, found := c.clients[id], c.byNamed[name]
	if cl == nil || cl.state != Attached {
		return Named{}, Answer{Client: id, Reason: NoClient}
	}
	if found == nil {
		return Named{}, Answer{Client: id, Granted: true}
	}
	on := cl.share.slotOn(found.slot.card)
	if on == nil {
		return Named{}, Answer{Client: id, Granted: true} // the driver will refuse it
	}
	b := on.of(cl)
	in := found.accounts[on]
	if in.holding(b) == nil && !c.holdings.mayEnter(c, b.user(), mostHolders) {
		c.clientEvent(now, b, event.Denied, found.bytes, fmt.Sprintf("%s denied: it holds too much that others made", call))
		return Named{}, Answer{Client: id, Slot: on.number, Reason: OverQuota, UsedBytes: c.observe(on)}
	}
	if in == nil {
		in = &account{slot: on, bytes: found.bytes}
	}
	if in.payer == nil && !in.parked && found.charged(on) && found.bytes > 0 {
		c.pass++
		a := c.charge(now, b, waiting{Charge: Charge{Bytes: found.bytes, Call: call, Slot: on.number, Final: true}, id: id})
		if !a.Granted {
			return Named{}, a
		}
		in.payer = b
	}
	found.enter(on, in)
	if h := in.holding(b); h != nil {
		h.times++
	} else {
		c.addHolder(in, b, 1)
	}
	c.settleNamed(now, found)
	return Named{Number: found.id, Bytes: found.bytes}, Answer{Client: id, Slot: on.number, Granted: true}
}

// ReleaseNamed is a client that holds something once less.
func (c *Core) ReleaseNamed(now time.Time, id ClientID, number uint64) (known bool) {
	cl, n := c.clients[id], c.numbered[number]
	if cl == nil || n == nil {
		return false
	}
	on := cl.share.slotOn(n.slot.card)
	if on == nil {
		return false
	}
	b := on.of(cl)
	in := n.accounts[on]
	h := in.holding(b)
	switch {
	case h != nil:
		if h.times--; h.times == 0 {
			c.dropHolder(in, b)
		}
	case n.maker == b:
		n.freed = true
	default:
		return false
	}
	c.settleNamed(now, n)
	return true
}

// Closed tells that no descriptor is open any more that had a name.
func (c *Core) Closed(now time.Time, name string) {
	n := c.byNamed[name]
	if n == nil {
		return
	}
	c.dropName(n, name)
	c.settleNamed(now, n)
	c.removeIfUnused(now, n.slot.share)
}

// inherit hands on what a client held that has nothing any more, and had so much.
func (c *Core) inherit(now time.Time, b *balance, had uint64) {
	for _, n := range c.namedOf(b) {
		in := n.accounts[b.slot]
		if in != nil && (in.payer == b || n.maker == b) {
			in.payer = nil // with all that it was granted
			in.bytes = min(in.bytes, had)
			had -= in.bytes
		}
		if in != nil {
			c.dropHolder(in, b)
		}
		if n.maker == b {
			n.maker = nil
		}
		c.settleNamed(now, n)
	}
}

// handOver gives what one client holds to another one of its process.
func (c *Core) handOver(from, to *balance) {
	for _, n := range c.namedOf(from) {
		if in := n.accounts[from.slot]; in != nil {
			if h := in.holding(from); h != nil {
				times := h.times
				c.dropHolder(in, from)
				if h := in.holding(to); h != nil {
					h.times += times
				} else {
					c.addHolder(in, to, times)
				}
			}
			if in.payer == from {
				in.payer = to
			}
		}
		if n.maker == from {
			n.maker = to
		}
		c.namedChanged(n)
	}
}

// namedOf lists what a client made or holds, in the order in which it was made.
func (c *Core) namedOf(b *balance) (list []*named) {
	for _, n := range b.slot.holds {
		if n.maker == b || n.holding(b) != nil || n.accounts[b.slot] != nil && n.accounts[b.slot].payer == b {
			list = append(list, n)
		}
	}
	slices.SortFunc(list, func(a, b *named) int { return int(int64(a.id) - int64(b.id)) })
	return list
}

func (n *named) holding(b *balance) *holder { return n.accounts[b.slot].holding(b) }

func (in *account) holding(b *balance) *holder {
	if in == nil {
		return nil
	}
	for i := range in.holders {
		if in.holders[i].balance == b {
			return &in.holders[i]
		}
	}
	return nil
}

// heir is who pays next: an attached client, if there is one.
func (in *account) heir() *balance {
	if len(in.holders) == 0 {
		return nil
	}
	if i := slices.IndexFunc(in.holders, func(h holder) bool { return h.state == Attached && !h.frozen }); i >= 0 {
		return in.holders[i].balance
	}
	return in.holders[0].balance
}

// charged is whether those in a slot who hold it are charged for it.
func (n *named) charged(t *slot) bool { return n.maker == nil || t != n.slot }

// open is whether somebody could import it who has one of its descriptors. Of those of an
// earlier agent the end is not seen: they count as long as there are processes, and then
// never again, for what was paid for them may be somebody else's by now.
func (n *named) open() bool {
	for name, open := range n.names {
		if open && !n.slot.watched[name] && len(n.slot.clients()) == 0 {
			n.names[name] = false
		}
	}
	return slices.Contains(slices.Collect(maps.Values(n.names)), true)
}

// settleNamed has those pay who now hold it, and forgets what nobody holds.
func (c *Core) settleNamed(now time.Time, n *named) {
	c.namedChanged(n)
	var less []*slot
	home := n.accounts[n.slot]
	if home == nil && !n.pooled {
		home = &account{slot: n.slot, bytes: n.bytes}
		n.enter(n.slot, home)
	}
	used, open := n.maker != nil && !n.freed, n.open()
	for t, in := range n.accounts {
		if in.payer != nil && in.holding(in.payer) == nil {
			in.bytes = c.discharge(in.payer, in.bytes)
			in.payer = nil
			less = append(less, t)
		}
		heir := in.heir()
		park := heir == nil && in == home && !n.pooled && open
		if in.parked && !park {
			in.parked = false
			t.parked -= in.bytes
			t.pool.park(-int64(in.bytes))
			less = append(less, t)
		}
		switch {
		case park && !in.parked:
			in.parked = true
			t.parked += in.bytes
			t.pool.park(int64(in.bytes))
			c.limitsChanged(t.share)
		case heir != nil && in.payer == nil && n.charged(t):
			in.payer = heir
			c.book(heir, heir.granted+in.bytes)
			if heir.page {
				c.credits.Hand(heir.id, heir.number(), in.bytes)
			} else if heir.awaited() {
				heir.moved += int64(in.bytes)
			}
			c.clientChanged(heir.client)
		}
		used = used || heir != nil || park
		if heir == nil && !park {
			n.leave(t)
		}
	}
	if !used {
		c.forgetNamed(n)
	}
	for _, t := range less {
		c.limitsChanged(t.share)
		c.squeeze(now, t)
		c.freed(now, t.pool)
		c.settle(t.pool)
	}
}

// keeps is whether memory of the share is on the card that none of its processes has.
func (s *share) keeps() bool {
	return slices.ContainsFunc(s.slots, func(t *slot) bool { return t.parked > 0 })
}

// park books what is charged to no client.
func (p *pool) park(bytes int64) {
	p.parked += uint64(bytes)
	p.granted += uint64(bytes)
}

// settleLast lets go of what a share made whose last process has ended, and of which
// descriptors of an earlier agent are all that is known.
func (c *Core) settleLast(now time.Time, s *share) {
	for _, t := range s.slots {
		for _, n := range t.holds {
			if n.slot == t {
				c.settleNamed(now, n)
			}
		}
	}
}

func (c *Core) forgetNamed(n *named) {
	if c.numbered[n.id] == nil {
		return
	}
	c.namedChanged(n)
	delete(c.numbered, n.id)
	n.slot.named--
	delete(n.slot.holds, n.id)
	for t := range n.accounts {
		n.leave(t)
	}
	for name := range n.names {
		c.dropName(n, name)
		delete(n.slot.watched, name)
		c.orders.GoneNames = append(c.orders.GoneNames, name)
	}
}

// discharge takes off a client what it has released, and returns how much it was.
func (c *Core) discharge(b *balance, bytes uint64) uint64 {
	bytes = min(bytes, c.usedBy(b))
	c.book(b, b.granted-bytes)
	if b.page && !b.frozen && !b.merged.any {
		c.credits.Discharge(b.id, b.number(), bytes)
	} else if b.awaited() {
		b.moved -= int64(bytes)
	}
	c.clientChanged(b.client)
	return bytes
}

// knows is what a client uses that was away and says how much, with what was handed to it
// meanwhile.
func (b *balance) knows(said uint64) uint64 {
	if b.moved < 0 {
		return said - min(uint64(-b.moved), said)
	}
	return said + min(uint64(b.moved), ^uint64(0)-said)
}

func (c *Core) namedChanged(n *named) {
	if !n.saveChanged {
		n.saveChanged = true
		c.orders.SaveNamed = append(c.orders.SaveNamed, n.id)
	}
}

// Watched tells that the end of a descriptor will be told.
func (c *Core) Watched(name string) {
	if n := c.byNamed[name]; n != nil {
		if n.slot.watched == nil {
			n.slot.watched = map[string]bool{}
		}
		n.slot.watched[name] = true
	}
}

// IsWatched is true of a descriptor whose end will be told.
func (c *Core) IsWatched(name string) bool {
	n := c.byNamed[name]
	return n != nil && n.slot.watched[name]
}

// SavedNamed is what must survive of memory that has a name.
type SavedNamed struct {
	Number  uint64
	Slot    int `json:",omitempty"`
	Bytes   uint64
	Maker   ClientID        `json:",omitempty"`
	Pooled  bool            `json:",omitempty"`
	Freed   bool            `json:",omitempty"`
	Names   map[string]bool // true: of a descriptor
	Holders []SavedHolder   `json:",omitempty"`
}

// SavedHolder is one who holds it.
type SavedHolder struct {
	Client ClientID
	Times  int
	Pays   uint64 `json:",omitempty"` // so many bytes
}

// SavedNamed returns what to save of memory that has a name, and whose it is; false: it is gone.
func (c *Core) SavedNamed(number uint64) (share string, saved SavedNamed, ok bool) {
	n := c.numbered[number]
	if n == nil {
		return "", SavedNamed{}, false
	}
	return n.slot.share.Name, n.saved(), true
}

func (n *named) saved() SavedNamed {
	one := SavedNamed{Number: n.id, Slot: n.slot.number, Bytes: n.bytes, Pooled: n.pooled, Freed: n.freed, Names: n.names}
	if n.maker != nil {
		one.Maker = n.maker.id
	}
	for _, in := range n.accounts {
		for _, h := range in.holders {
			saved := SavedHolder{Client: h.id, Times: h.times}
			if in.payer == h.balance {
				saved.Pays = in.bytes
			}
			one.Holders = append(one.Holders, saved)
		}
	}
	return one
}

func (c *Core) savedNamed(s *share) (saved []SavedNamed) {
	for _, t := range s.slots {
		for _, n := range t.holds {
			if n.slot == t {
				saved = append(saved, n.saved())
			}
		}
	}
	slices.SortFunc(saved, func(a, b SavedNamed) int { return int(int64(a.Number) - int64(b.Number)) })
	return saved
}

// recoverNamed takes over what an earlier life knew, when its clients are there.
func (c *Core) recoverNamed(now time.Time, s *share, saved []SavedNamed) {
	for _, one := range saved {
		c.lastNamed = max(c.lastNamed, one.Number)
		if one.Slot >= len(s.slots) || c.numbered[one.Number] != nil {
			continue
		}
		t := s.slots[one.Slot]
		n := &named{id: one.Number, slot: t, bytes: up(one.Bytes), pooled: one.Pooled, freed: one.Freed,
			maker: c.balanceOn(one.Maker, t.card), names: map[string]bool{}, users: map[string]int{}, accounts: map[*slot]*account{}}
		for name, open := range one.Names {
			if c.byNamed[name] == nil {
				c.addName(n, name, open, s.user())
			}
		}
		t.has(n)
		for _, h := range one.Holders {
			b := c.balanceOn(h.Client, t.card)
			if b == nil || h.Times <= 0 {
				continue
			}
			in := n.accounts[b.slot]
			if in == nil {
				in = &account{slot: b.slot, bytes: n.bytes}
				n.enter(b.slot, in)
			}
			c.addHolder(in, b, h.Times)
			if h.Pays > 0 {
				in.payer, in.bytes = b, h.Pays
			}
		}
		c.numbered[n.id] = n
		t.named++
		s.everUsed = true
		c.settleNamed(now, n)
	}
}

// balanceOn is what a client has of a card; nil: there is no such client.
func (c *Core) balanceOn(id ClientID, k *card) *balance {
	cl := c.clients[id]
	if cl == nil {
		return nil
	}
	if t := cl.share.slotOn(k); t != nil {
		return t.of(cl)
	}
	return nil
}
