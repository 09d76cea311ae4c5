// SPDX-License-Identifier: Apache-2.0

package core

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/internal/event"
	terms "github.com/divvy-gpu/divvy/internal/share"
	"github.com/divvy-gpu/divvy/internal/size"
)

const (
	sweepFirst = 10 * time.Millisecond
	sweepLast  = 250 * time.Millisecond
)

// Spec asks for a share.
type Spec struct {
	Name         string       // empty: made up
	Unnamed      bool         `json:",omitempty"` // its name was made up
	GPU          string       // UUID, its prefix, PCI address, or several after commas; empty: most free
	GPUs         int          `json:",omitempty"` // how many; 0: one, or those that are named
	Among        []string     `json:"-"`          // UUIDs of the cards to choose from; empty: all
	MemoryBytes  uint64       // of each card, as all that follows; 0: no promise
	CoresPercent int          // 0: 100
	Policy       terms.Policy // empty: best-effort, fixed when cores are given
	Weight       int          // 0: 1
	Priority     int
	Tenant       string
	Enforce      terms.Enforcement
	// ThreadsPercent is what MPS leaves each process of the card's processors; 0: all.
	ThreadsPercent int  `json:",omitempty"`
	Exclusive      bool `json:",omitempty"` // no other share on its cards
	Ephemeral      bool
	Open           bool         // every user's processes may attach
	JoinUID        *int         // besides its owner's and root's only this user's
	Paused         bool         // its programs get no time
	Labels         terms.Labels `json:",omitempty"`
	Payer          int          `json:",omitempty"` // whose it is, where that is not its owner's: of whom he has his id, or his user namespace
}

// Change changes a share in place; nil fields stay.
type Change struct {
	MemoryBytes  *uint64
	CoresPercent *int
	Policy       *terms.Policy
	Weight       *int
	Priority     *int
	Paused       *bool
}

type share struct {
	Spec
	slots   []*slot // its cards, by their number inside the share
	owner   int
	created time.Time
	revoked bool

	clients    crowd[*client]
	attached   int
	holders    int
	everUsed   bool      // had a holder or a client
	usedBefore bool      // had clients when this life began
	lonelyEnd  time.Time // until then it waits for its first holder, or for them to come back

	refusals bucket // of processes that wanted to attach

	limitsChanged, saveChanged bool
}

// user is to whose part of the shares the share counts.
func (s *share) user() int {
	return cmp.Or(s.Payer, s.owner)
}

// newShare has no promise on its cards yet.
func newShare(spec Spec, cards []*card, owner int, created time.Time) *share {
	s := &share{Spec: spec, owner: owner, created: created, clients: crowd[*client]{at: func(cl *client) *int { return &cl.place }}}
	for i, k := range cards {
		s.slots = append(s.slots, &slot{share: s, number: i, card: k, pool: k.rest, denials: map[Reason]uint64{}, billed: billed{at: created}})
	}
	return s
}

// promised is true of a share with quotas, which it has on all its cards or on none.
func (s *share) promised() bool { return s.slots[0].promised() }

// granted is what its clients have been granted on all its cards, if it has quotas.
func (s *share) granted() (sum uint64) {
	for _, t := range s.slots {
		sum += t.pool.granted
	}
	return sum
}

// limit is the sum of its quotas.
func (s *share) limit() (sum uint64) {
	for _, t := range s.slots {
		sum += t.limit
	}
	return sum
}

// uuid is of its first card, for events.
func (s *share) uuid() string { return s.slots[0].card.UUID }

// ShareView is a share and what became of it: of each of its cards, and summed over them.
type ShareView struct {
	Spec
	Slots              []SlotView // by number
	CardUUID, CardName string     // of the first
	State              string     // active, shrinking, paused, revoked
	LimitBytes         uint64
	UsedBytes          uint64
	ContextBytes       uint64
	PeakBytes          uint64
	Clients            int
	Denials            uint64
	DenialsBy          map[Reason]uint64
	Launches           uint64
	CardTimeNs         uint64 // that its processes measured
	WaitNs             uint64 // that their launches waited
	Created            time.Time
	Owner              int
	Holders            int
}

// CardUUIDs lists its cards by number.
func (v ShareView) CardUUIDs() (uuids []string) {
	for _, of := range v.Slots {
		uuids = append(uuids, of.CardUUID)
	}
	return uuids
}

// States of a share.
const (
	StateActive    = "active"
	StateShrinking = "shrinking"
	StatePaused    = "paused"
	StateRevoked   = "revoked"
)

// Shares lists the shares in order of creation.
func (c *Core) Shares() []ShareView {
	views := make([]ShareView, len(c.shares))
	for i, s := range c.shares {
		views[i] = c.viewShare(s)
	}
	return views
}

// Share returns one share.
func (c *Core) Share(name string) (ShareView, error) {
	s, failure := c.share(name)
	if failure != nil {
		return ShareView{}, failure
	}
	return c.viewShare(s), nil
}

// Is is false of a share that has been deleted, though another one has its name now.
func (c *Core) Is(name string, created time.Time) bool {
	s := c.byName[name]
	return s != nil && s.created.Equal(created)
}

func (c *Core) share(name string) (*share, *Failure) {
	if s := c.byName[name]; s != nil {
		return s, nil
	}
	return nil, refuse(NotFound, "no share %q", name).hint("divvy share list")
}

func (c *Core) viewShare(s *share) ShareView {
	v := c.viewPage(s, c.observe)
	v.DenialsBy = map[Reason]uint64{}
	for i, t := range s.slots {
		of := &v.Slots[i]
		of.count(t)
		v.ContextBytes += of.ContextBytes
		v.Launches += of.Launches
		v.CardTimeNs += of.CardTimeNs
		v.WaitNs += of.WaitNs
		v.Denials += of.Denials
		for reason, n := range t.denials {
			v.DenialsBy[reason] += n
		}
	}
	return v
}

// Limits is Share without what its clients have done: what its limits page says.
func (c *Core) Limits(now time.Time, name string) (ShareView, error) {
	s, failure := c.share(name)
	if failure != nil {
		return ShareView{}, failure
	}
	return c.viewPage(s, func(t *slot) uint64 { return c.observeLately(now, t) }), nil
}

func (c *Core) viewPage(s *share, used func(*slot) uint64) ShareView {
	v := ShareView{
		Spec: s.Spec, CardUUID: s.uuid(), CardName: s.slots[0].card.Name,
		State: StateActive, Clients: len(s.clients.all), Created: s.created, Owner: s.owner, Holders: s.holders,
	}
	tight := false
	for _, t := range s.slots {
		of := c.viewSlot(t, used(t))
		v.Slots = append(v.Slots, of)
		v.LimitBytes += of.LimitBytes
		v.UsedBytes += of.UsedBytes
		v.PeakBytes += of.PeakBytes
		tight = tight || t.tight
	}
	switch {
	case s.revoked:
		v.State = StateRevoked
	case tight:
		v.State = StateShrinking
	case s.Paused:
		v.State = StatePaused
	}
	v.Open = c.open(s)
	return v
}

// CreateShare makes a share for owner.
func (c *Core) CreateShare(now time.Time, spec Spec, owner int) (ShareView, error) {
	if failure := complete(&spec); failure != nil {
		return ShareView{}, failure
	}
	if c.byName[spec.Name] != nil {
		return ShareView{}, refuse(Exists, "share %q exists already", spec.Name).
			hint("divvy run --share %s to join it, or divvy share delete %s", spec.Name, spec.Name)
	}
	if len(c.shares) >= c.config.MaxShares {
		return ShareView{}, refuse(NotAllowed, "there are %d shares already", len(c.shares)).hint("divvy share list")
	}
	if failure := c.checkPart(cmp.Or(spec.Payer, owner)); failure != nil {
		return ShareView{}, failure
	}
	cards, failure := c.choose(&spec)
	if failure != nil {
		return ShareView{}, failure
	}
	spec.Among = nil // of no use any more
	for _, k := range cards {
		if failure := c.lacks(k, &spec); failure != nil {
			return ShareView{}, failure
		}
	}
	if spec.Name == "" {
		spec.Name, spec.Unnamed = c.makeName(), true
	}
	s := newShare(spec, cards, owner, now)
	if spec.MemoryBytes > 0 {
		for _, t := range s.slots {
			t.limit = spec.MemoryBytes
			t.pool = newPool(t.card, t)
		}
	}
	c.addShare(s)
	// The promise stands; what its cards lent to others without one comes back.
	for _, k := range cards {
		if failure = c.clearRest(k); failure != nil {
			c.dropShare(s)
			break
		}
	}
	for _, k := range cards {
		c.settle(k.rest)
	}
	if failure != nil {
		return ShareView{}, failure
	}
	if s.Ephemeral {
		s.lonelyEnd = now.Add(c.config.EphemeralGrace)
		c.wakesChanged()
	}
	c.shareChanged(s)
	c.limitsChanged(s)
	c.event(now, Event{Kind: event.ShareCreated, Share: s.Name, Card: s.uuid(), Bytes: s.limit(), Message: describe(s)})
	return c.viewShare(s), nil
}

func describe(s *share) string {
	if s.Exclusive {
		return "the whole of " + s.cards()
	}
	memory := "memory without a promise"
	if s.promised() {
		memory = size.Short(s.slots[0].limit)
	}
	time := fmt.Sprintf("%d%% of the cores (%s)", s.CoresPercent, s.Policy)
	if s.Policy == terms.Weighted {
		time = fmt.Sprintf("the cores by a weight of %d", s.Weight)
	}
	if s.Priority != 0 {
		time += fmt.Sprintf(", priority %d,", s.Priority)
	}
	return fmt.Sprintf("%s and %s of %s", memory, time, s.cards())
}

// cards names the cards of a share, and says where they differ.
func (s *share) cards() string {
	var models []string
	for _, t := range s.slots {
		models = append(models, t.card.Name)
	}
	switch {
	case len(models) == 1:
		return models[0]
	case len(slices.Compact(slices.Sorted(slices.Values(models)))) == 1:
		return fmt.Sprintf("each of %d %s", len(models), models[0])
	}
	return fmt.Sprintf("each of %d GPUs of different models: %s", len(models), strings.Join(models, ", "))
}

func (c *Core) addShare(s *share) {
	c.shares = append(c.shares, s)
	c.byName[s.Name] = s
	c.wakesChanged()
}

// clearRest takes back unused credit of a card's shares without a promise
// until what they have fits beside the promises; a failure says who uses it.
func (c *Core) clearRest(k *card) *Failure {
	limit := k.rest.limit(c)
	if k.rest.granted > limit {
		c.recall(k.rest, k.rest.granted-limit)
	}
	if k.rest.granted > limit {
		return noRoom(Missing{MemoryBytes: k.rest.granted - limit}, "%s is in use by shares without a quota (%s)",
			size.Short(k.rest.granted-limit), c.holders(k.rest, nil)).hint("end those programs, or ask for less")
	}
	return nil
}

// complete checks a spec by itself and fills its defaults in.
func complete(spec *Spec) *Failure {
	if spec.Name != "" {
		if err := terms.CheckName(spec.Name); err != nil {
			return refuse(Usage, "%v", err)
		}
	}
	if spec.Exclusive && (spec.MemoryBytes != 0 || spec.CoresPercent != 0 || spec.Policy != "") {
		return refuse(Usage, "an exclusive share has whole GPUs: no quota, no percent of the cores and no policy").hint("leave them out")
	}
	if spec.Policy == "" {
		spec.Policy = terms.BestEffort
		if spec.CoresPercent != 0 {
			spec.Policy = terms.Fixed
		}
	}
	if spec.CoresPercent == 0 {
		spec.CoresPercent = 100
	}
	if spec.GPUs < 0 {
		return refuse(Usage, "%d GPUs make no share", spec.GPUs)
	}
	if spec.Weight == 0 {
		spec.Weight = 1
	}
	if spec.Enforce != "" { // whether the machine has it is the caller's to say
		if err := spec.Enforce.Validate(); err != nil {
			return refuse(Usage, "%v", err).hint("%s", terms.Or(terms.Enforcements()))
		}
	}
	if len(spec.Tenant) > terms.MaxNameBytes {
		return refuse(Usage, "tenant has more than %d bytes", terms.MaxNameBytes)
	}
	if err := terms.CheckLabels(spec.Labels); err != nil {
		return refuse(Usage, "%v", err)
	}
	if failure := checkAccess(spec); failure != nil {
		return failure
	}
	return checkNumbers(spec)
}

func checkNumbers(spec *Spec) *Failure {
	for _, n := range []struct {
		noun   string
		within terms.Range
		value  int
	}{
		{"cores", terms.Cores, spec.CoresPercent}, {"weight", terms.Weight, spec.Weight}, {"priority", terms.Priority, spec.Priority},
	} {
		if err := n.within.Check(n.value); err != nil {
			return refuse(Usage, "%s %v", n.noun, err)
		}
	}
	if spec.ThreadsPercent != 0 {
		if err := terms.Threads.Check(spec.ThreadsPercent); err != nil {
			return refuse(Usage, "threads %v", err)
		}
	}
	if err := spec.Policy.Validate(); err != nil {
		return refuse(Usage, "%v", err).hint("%s", terms.Or(terms.Policies()))
	}
	return nil
}

func (c *Core) makeName() string {
	for {
		c.made++
		if name := fmt.Sprintf("share-%d", c.made); c.byName[name] == nil {
			return name
		}
	}
}

func checkContext(k *card, memoryBytes uint64) *Failure {
	if memoryBytes == 0 || memoryBytes >= k.ContextBytes {
		return nil
	}
	return refuse(NotAllowed, "a share of %s is smaller than one context, which costs %s on %s",
		size.Short(memoryBytes), size.Short(k.ContextBytes), k.Name).
		hint("ask for %s or more", size.Format(2*k.ContextBytes))
}

func (c *Core) mayChange(s *share, uid int) *Failure {
	if uid == s.owner || c.trusted(uid) {
		return nil
	}
	return refuse(NotAllowed, "share %q belongs to uid %d", s.Name, s.owner)
}

// ChangeShare changes a share for uid.
func (c *Core) ChangeShare(now time.Time, name string, change Change, uid int) (ShareView, error) {
	s, failure := c.share(name)
	if failure == nil {
		failure = c.mayChange(s, uid)
	}
	if failure == nil && s.revoked {
		failure = refuse(NotAllowed, "share %q is deleted and only waits for its programs to end", name)
	}
	if failure != nil {
		return ShareView{}, failure
	}
	c.billAll(now, s)
	if s.Exclusive && (change.MemoryBytes != nil || change.CoresPercent != nil || change.Policy != nil) {
		return ShareView{}, refuse(Usage, "share %q is exclusive: it has whole GPUs", name).hint("make another share for a part")
	}
	next := s.Spec
	if change.CoresPercent != nil {
		next.CoresPercent = *change.CoresPercent
		if next.Policy == terms.BestEffort {
			next.Policy = terms.Fixed // as when a share is made
		}
	}
	if change.Policy != nil {
		next.Policy = *change.Policy
	}
	if change.Weight != nil {
		next.Weight = *change.Weight
	}
	if change.Priority != nil {
		next.Priority = *change.Priority
	}
	if change.Paused != nil {
		next.Paused = *change.Paused
	}
	if failure := checkNumbers(&next); failure != nil {
		return ShareView{}, failure
	}
	for _, t := range s.slots {
		if failure := c.checkRoom(t.card, next.milli(), 0, t); failure != nil {
			return ShareView{}, failure
		}
	}
	if change.MemoryBytes != nil && *change.MemoryBytes != s.MemoryBytes {
		if failure := c.resize(now, s, *change.MemoryBytes); failure != nil {
			return ShareView{}, failure
		}
		next.MemoryBytes = *change.MemoryBytes
	}
	kind := event.ShareChanged
	switch {
	case next.Paused && !s.Paused:
		kind = event.SharePaused
	case s.Paused && !next.Paused:
		kind = event.ShareResumed
	}
	s.Spec = next
	c.shareChanged(s)
	c.limitsChanged(s)
	c.event(now, Event{Kind: kind, Share: s.Name, Card: s.uuid(), Bytes: s.limit(), Message: describe(s)})
	return c.viewShare(s), nil
}

// resize gives share s a new limit. A smaller one holds at once for all that is
// not in use; what is in use over it blocks new allocations until it is freed.
func (c *Core) resize(now time.Time, s *share, bytes uint64) *Failure {
	if bytes == 0 {
		return refuse(Usage, "a share keeps its quota").hint("make another share without --mem")
	}
	for _, t := range s.slots {
		if failure := checkContext(t.card, bytes); failure != nil {
			return failure
		}
		if t.card.absent {
			continue
		}
		if !t.promised() || bytes > t.limit {
			if failure := c.checkRoom(t.card, 0, bytes, t); failure != nil {
				return failure
			}
		}
	}
	promised, old := s.promised(), s.slots[0].limit
	for i, t := range s.slots {
		if promised {
			t.limit = bytes
		} else {
			c.move(t, newPool(t.card, t), bytes)
		}
		failure := c.clearRest(t.card)
		if failure == nil || t.card.absent {
			continue
		}
		for _, done := range s.slots[:i+1] {
			if promised {
				done.limit = old
			} else {
				c.move(done, done.card.rest, 0)
			}
			c.settle(done.card.rest)
		}
		return failure
	}
	for _, t := range s.slots {
		c.squeeze(now, t)
		c.settle(t.pool)
		c.settle(t.card.rest)
	}
	return nil
}

// DeleteShare removes a share for uid. With processes on it that takes force, or
// is refused with ErrAttached: then nothing is granted any more, and the share goes
// with its last process.
func (c *Core) DeleteShare(now time.Time, name string, force bool, uid int) error {
	s, failure := c.share(name)
	if failure == nil {
		failure = c.mayChange(s, uid)
	}
	if failure != nil {
		return failure
	}
	alive := 0
	for _, cl := range s.clients.all {
		if cl.state != Dead {
			alive++
		}
	}
	if alive > 0 && !force {
		failure = refuse(NotAllowed, "share %q has %d processes attached", name, alive).
			hint("divvy share delete --force %s", name)
		failure.cause = ErrAttached
		return failure
	}
	if len(s.clients.all) == 0 && !s.keeps() {
		c.removeShare(now, s, "deleted")
		return nil
	}
	c.billAll(now, s)
	s.revoked = true
	for _, t := range s.slots {
		if !t.promised() {
			c.move(t, newPool(t.card, t), 0)
		}
		t.limit = 0
		t.tight = false
		t.sweepNext = now.Add(sweepLast)
		c.recall(t.pool, t.pool.granted)
		c.settle(t.card.rest)
	}
	c.wakesChanged()
	c.shareChanged(s)
	c.limitsChanged(s)
	c.event(now, Event{Kind: event.ShareRevoked, Share: s.Name, Card: s.uuid(), Bytes: s.granted(),
		Message: fmt.Sprintf("deleted under %d processes, which hold %s until they end", alive, size.Short(s.granted()))})
	return nil
}
