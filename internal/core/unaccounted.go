// SPDX-License-Identifier: Apache-2.0

package core

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/internal/event"
	"github.com/divvy-gpu/divvy/internal/size"
)

// unaccounted is memory of a card that the driver shows and no ledger knows, as it was
// when the driver was asked last.
type unaccounted struct {
	bytes      uint64 // of processes on no ledger, and of others past theirs
	unpromised uint64 // of it, what no share's promise covers
	found      []Holding
	told       map[int]uint64 // of each process that an event was raised for: how much it had
}

// Owner is who a process on no ledger is, as far as can be found out.
type Owner struct {
	UID   int    // below 0: not known
	Payer *int   // of whom he has his id, or his user namespace; nil: of nobody else
	Name  string // of its program
	Share string // that it was started under, or belongs to
}

// Unaccounted lists who holds memory of a card by the driver's account and is on no
// ledger; nobody while the driver does not name processes of shares, for then those it
// names may be ours by other numbers.
func (c *Core) Unaccounted(cardUUID string, account Account) []Holding {
	k := c.cardOf(cardUUID)
	if k == nil || k.blind || !k.unseen.IsZero() {
		return nil
	}
	var found []Holding
	for pid, h := range account.holdings() {
		if len(c.byPID[pid]) == 0 {
			found = append(found, h)
		}
	}
	return found
}

// FoundUnaccounted lists who was found so when the driver was asked last, and past its
// ledger.
func (c *Core) FoundUnaccounted(cardUUID string) []Holding {
	if k := c.cardOf(cardUUID); k != nil {
		return slices.Clone(k.unaccounted.found)
	}
	return nil
}

// AnyUnaccounted says whether any was found when the drivers were asked last.
func (c *Core) AnyUnaccounted() bool {
	return slices.ContainsFunc(c.cards, func(k *card) bool { return k.unaccounted.bytes > 0 })
}

// OnLedger says whether a process is.
func (c *Core) OnLedger(pid int) bool { return len(c.byPID[pid]) > 0 }

// findUnaccounted adds up what no ledger knows, and raises an event for each process that
// holds it, and again when what it holds has doubled. A promise of a share covers what
// processes of the share hold past the ledger: only what goes beyond it is taken from what
// can be promised. The ledger of processes says quickly that most hold nothing past it.
func (c *Core) findUnaccounted(now time.Time, k *card, account Account, held map[int]Holding, ledger map[int]booked) {
	before := k.unaccounted.told
	u := unaccounted{told: map[int]uint64{}}
	beyond := map[*slot]uint64{}
	var past []int
	for pid, h := range held {
		if l, ok := ledger[pid]; !ok || h.Known && h.Bytes > l.bytes {
			past = append(past, pid)
		}
	}
	slices.Sort(past)
	for _, pid := range past {
		s, e, message := c.pastLedger(k, held[pid], account)
		if e.PID == 0 {
			continue
		}
		u.bytes += e.Bytes
		u.found = append(u.found, Holding{PID: pid, Bytes: e.Bytes, Known: true})
		if t := s.slotOn(k); t != nil {
			beyond[t] += e.Bytes
		} else {
			u.unpromised += e.Bytes
		}
		had, told := before[pid]
		if told && e.Bytes < 2*max(had, size.MiB) {
			u.told[pid] = had
		} else if message != nil {
			u.told[pid] = e.Bytes
			e.Message = message()
			c.event(now, e)
		}
	}
	for t, bytes := range beyond {
		if t.promised() {
			bytes = less(c.usedIn(t)+bytes, max(t.limit, t.pool.granted))
		}
		u.unpromised += bytes
	}
	k.unaccounted = u
}

// pastLedger says what a process holds of a card that no ledger knows, and the share that
// it belongs to; the event has no PID when it is nothing, and there is no message when it is
// not known yet who it is.
func (c *Core) pastLedger(k *card, h Holding, account Account) (s *share, e Event, message func() string) {
	clients := c.byPID[h.PID]
	e = Event{Kind: event.UnledgeredMemory, Card: k.UUID, PID: h.PID, Bytes: h.Bytes}
	if len(clients) == 0 {
		o, known := account.Owners[h.PID]
		s = c.byName[o.Share]
		if s != nil {
			e.Share = s.Name
		}
		if known {
			if o.UID >= 0 {
				e.UID = &o.UID
			}
			e.user = o.Payer
			message = func() string {
				return fmt.Sprintf("%s holds %s of %s and is on no ledger", describeProcess(h.PID, o.Name, e), size.Short(h.Bytes), k.Name)
			}
		}
		return s, e, message
	}
	// What it has freed since the driver was asked must not count, nor that a context is
	// an estimate: nothing is said of what it may have had by its ledger at any time.
	var used, most uint64
	var ours *client
	for _, cl := range clients {
		t := cl.share.slotOn(k)
		if t == nil {
			continue
		}
		u := c.usedBy(t.of(cl))
		used, most = used+u, most+max(u, t.of(cl).peak)+k.ContextBytes
		ours = cl
	}
	if !h.Known || h.Bytes <= most || ours != nil && h.Bytes <= used {
		return nil, Event{}, nil
	}
	s = clients[0].share // on another card: its share there
	if ours != nil {
		s = ours.share
	}
	uid := clients[0].UID
	e.Share, e.UID, e.Bytes = s.Name, &uid, h.Bytes-used
	return s, e, func() string {
		return fmt.Sprintf("%s holds %s of %s, %s more than its ledger knows", describeProcess(h.PID, clients[0].Name, e), size.Short(h.Bytes), k.Name, size.Short(e.Bytes))
	}
}

func describeProcess(pid int, name string, e Event) string {
	text := fmt.Sprintf("process %d", pid)
	if name != "" {
		text += " (" + name + ")"
	}
	if e.UID != nil {
		text += fmt.Sprintf(" of uid %d", *e.UID)
	}
	if e.Share != "" {
		text += " under share " + e.Share
	}
	return text
}

// largest names those who hold the most.
func (u unaccounted) largest() string {
	all := slices.Clone(u.found)
	slices.SortStableFunc(all, func(a, b Holding) int { return cmp.Compare(b.Bytes, a.Bytes) })
	var names []string
	for _, h := range all {
		names = append(names, fmt.Sprintf("process %d: %s", h.PID, size.Short(h.Bytes)))
	}
	return few(names)
}
