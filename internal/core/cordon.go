// SPDX-License-Identifier: Apache-2.0

package core

import (
	"fmt"
	"maps"
	"time"

	"github.com/divvy-gpu/divvy/internal/event"
)

// Cordon keeps new shares off a card; what is on it goes on.
type Cordon struct {
	Since  time.Time
	Reason string
	By     int // uid of who did it; of no meaning for an automatic one
	// Automatic says that a fault did it, which ends by itself when the card has been well for
	// LiftAfter; 0: it does not.
	Automatic bool          `json:",omitempty"`
	LiftAfter time.Duration `json:",omitempty"`
	Class     string        `json:",omitempty"` // of that fault
}

// Fault is something that a driver told of a card, and what is to be done about it.
type Fault struct {
	XID       uint64 // 0: it is none
	Class     string
	PID       int    // of the program that it is of; 0: not known
	What      string // for people
	Advice    string
	Cordon    bool // takes no new share from now on
	LiftAfter time.Duration
}

// SavedCard is what must survive of a card.
type SavedCard struct {
	UUID   string
	Cordon *Cordon           `json:",omitempty"`
	Faults map[string]uint64 `json:",omitempty"` // by class
	XIDs   map[uint64]uint64 `json:",omitempty"` // how often each
	Last   uint64            `json:",omitempty"` // the one that was told last
}

const (
	maxReason = 256  // bytes
	maxXIDs   = 1000 // different ones of a card that are counted
)

// CordonedFor says whether a card is, for at least as long as a fault would do it.
func (c *Core) CordonedFor(cardUUID string, liftAfter time.Duration) bool {
	k := c.cardOf(cardUUID)
	return k != nil && k.cordon != nil && k.cordon.outlasts(liftAfter)
}

// outlasts says whether it is as strict as an automatic one.
func (o *Cordon) outlasts(liftAfter time.Duration) bool {
	return !o.Automatic || o.LiftAfter == 0 || liftAfter != 0 && liftAfter <= o.LiftAfter
}

// takes says whether a new share may go to the card.
func (k *card) takes() bool { return k.usable() && k.cordon == nil }

func (c *Core) cardChanged(k *card) { c.orders.SaveCards = append(c.orders.SaveCards, k.UUID) }

// Fault counts what the driver told of a card, tells of it, and cordons the card if that is so
// decided.
func (c *Core) Fault(now time.Time, cardUUID string, f Fault) {
	k := c.cardOf(cardUUID)
	if k == nil {
		return
	}
	if k.faults == nil {
		k.faults, k.xids = map[string]uint64{}, map[uint64]uint64{}
	}
	k.faults[f.Class]++
	if f.XID != 0 {
		k.lastXID = f.XID
	}
	if _, known := k.xids[f.XID]; f.XID != 0 && (known || len(k.xids) < maxXIDs) {
		k.xids[f.XID]++
	}
	c.cardChanged(k)
	message := k.Name + ": " + f.What
	if f.Advice != "" {
		message += fmt.Sprintf(" (%s): %s", f.Class, f.Advice)
	}
	told := Event{Kind: event.CardFault, Card: cardUUID, PID: f.PID, XID: f.XID, Class: f.Class, Message: message}
	if clients := c.byPID[f.PID]; len(clients) > 0 {
		told.Share = clients[0].share.Name
	}
	c.event(now, told)
	if !f.Cordon {
		return
	}
	k.faulted = now
	before := k.cordon
	if before != nil && before.outlasts(f.LiftAfter) {
		return
	}
	k.cordon = &Cordon{Since: now, Reason: f.What, Automatic: true, LiftAfter: f.LiftAfter, Class: f.Class}
	if before != nil {
		k.cordon.Since = before.Since
	}
	c.event(now, Event{Kind: event.CardCordoned, Card: k.UUID, Class: f.Class, Message: fmt.Sprintf("%s takes no new share: %s; what is on it goes on, and %s", k.Name, f.What, k.cordon.ends(k))})
}

// ends says when a cordon does.
func (o *Cordon) ends(k *card) string {
	if o.Automatic && o.LiftAfter > 0 {
		return fmt.Sprintf("it does again when it has been well for %v, or with divvy devices uncordon %s", o.LiftAfter, k.UUID)
	}
	return "it does again with divvy devices uncordon " + k.UUID
}

// CordonCard keeps new shares off a card until somebody lifts that; once more changes the reason.
// It returns the card's UUID.
func (c *Core) CordonCard(now time.Time, selector, reason string, uid int) (string, error) {
	k, failure := c.find(selector)
	if failure != nil {
		return "", failure
	}
	if len(reason) > maxReason || !printable(reason) {
		return "", refuse(Usage, "the reason is not printable, or longer than %d bytes", maxReason)
	}
	o := &Cordon{Since: now, Reason: reason, By: uid}
	if before := k.cordon; before != nil {
		if !before.Automatic && before.Reason == reason && before.By == uid {
			return k.UUID, nil
		}
		o.Since = before.Since
		if reason == "" {
			o.Reason = before.Reason
		}
	}
	k.cordon = o
	c.cardChanged(k)
	message := fmt.Sprintf("%s takes no new share: uid %d cordoned it", k.Name, uid)
	if o.Reason != "" {
		message += ": " + o.Reason
	}
	c.event(now, Event{Kind: event.CardCordoned, Card: k.UUID, Message: message})
	return k.UUID, nil
}

func printable(text string) bool {
	for _, r := range text {
		if r < ' ' || r == 0x7f || r == '\uFFFD' {
			return false
		}
	}
	return true
}

// UncordonCard lets new shares come to a card; one that is not cordoned stays so.
func (c *Core) UncordonCard(now time.Time, selector string, uid int) (string, error) {
	k, failure := c.find(selector)
	if failure != nil {
		return "", failure
	}
	if k.cordon != nil {
		c.uncordon(now, k, "", fmt.Sprintf("uid %d uncordoned it", uid))
	}
	return k.UUID, nil
}

// uncordon ends a cordon; class is that of the fault, where it ends by itself.
func (c *Core) uncordon(now time.Time, k *card, class, why string) {
	k.cordon = nil
	c.cardChanged(k)
	message := k.Name + " takes new shares: " + why
	if !k.usable() {
		message = k.Name + " takes new shares as soon as it is well: " + why
	}
	c.event(now, Event{Kind: event.CardUncordoned, Card: k.UUID, Class: class, Message: message})
}

// LiftCordons ends automatic ones of cards that have been well for long enough.
func (c *Core) LiftCordons(now time.Time) {
	for _, k := range c.cards {
		o := k.cordon
		if o == nil || !o.Automatic || o.LiftAfter == 0 || k.condition != ConditionWell {
			continue
		}
		since := k.wellSince
		if k.faulted.After(since) {
			since = k.faulted
		}
		if well := now.Sub(since); well >= o.LiftAfter {
			c.uncordon(now, k, o.Class, fmt.Sprintf("it has been well for %v", well.Round(time.Second)))
		}
	}
}

// SavedCard returns what to save of a card; false: nothing.
func (c *Core) SavedCard(uuid string) (SavedCard, bool) {
	for _, kept := range c.keptCards {
		if kept.UUID == uuid {
			return kept, true
		}
	}
	k := c.cardOf(uuid)
	if k == nil || k.cordon == nil && len(k.faults) == 0 {
		return SavedCard{UUID: uuid}, k != nil
	}
	return SavedCard{UUID: uuid, Cordon: k.cordon, Faults: maps.Clone(k.faults), XIDs: maps.Clone(k.xids), Last: k.lastXID}, true
}

// SavedCards lists what to save of all cards.
func (c *Core) SavedCards() (all []SavedCard) {
	for _, k := range c.cards {
		if saved, ok := c.SavedCard(k.UUID); ok && (saved.Cordon != nil || len(saved.Faults) > 0) {
			all = append(all, saved)
		}
	}
	return append(all, c.keptCards...)
}

// RecoverCards takes over what was saved. A card that is not there is remembered until it is.
func (c *Core) RecoverCards(saved []SavedCard) {
	for _, s := range saved {
		k := c.cardOf(s.UUID)
		if k == nil {
			c.keptCards = append(c.keptCards, s)
			continue
		}
		k.cordon, k.faults, k.xids, k.lastXID = s.Cordon, s.Faults, s.XIDs, s.Last
		if k.faults == nil || k.xids == nil {
			k.faults, k.xids = map[string]uint64{}, map[uint64]uint64{}
		}
	}
}
