// SPDX-License-Identifier: Apache-2.0

package core

import (
	"fmt"
	"time"

	"github.com/divvy-gpu/divvy/internal/event"
)

// Condition says how well a card is.
type Condition string

// Conditions of cards. Unknown is that of one that nobody has looked at; it is
// taken as well.
const (
	ConditionUnknown  Condition = ""
	ConditionWell     Condition = "ok"
	ConditionDegraded Condition = "degraded"
	// ConditionUnshareable is that of a card that is divided, for one program, or without memory of its own.
	ConditionUnshareable Condition = "unshareable"
	ConditionNeedsReset  Condition = "needs-reset"
	ConditionLost        Condition = "lost"
	// ConditionUnresponsive is that of a card whose driver does not answer: how it is
	// nobody knows.
	ConditionUnresponsive Condition = "unresponsive"
)

// usable says whether programs can use the card.
func (k *card) usable() bool {
	switch k.condition {
	case ConditionUnshareable, ConditionNeedsReset, ConditionLost, ConditionUnresponsive:
		return false
	}
	return true
}

// refusal says why the card takes no share, and what can be done.
func (k *card) refusal() *Failure {
	if k.usable() {
		why := "it is cordoned"
		if k.cordon.Reason != "" {
			why += ": " + k.cordon.Reason
		}
		return refuse(Unavailable, "%s (%s) takes no new share: %s", k.Name, k.UUID, why).
			hint("choose another GPU, or lift that as an administrator: divvy devices uncordon %s", k.UUID)
	}
	if k.condition == ConditionUnresponsive {
		return refuse(Unavailable, "%s (%s) takes no share: %s", k.Name, k.UUID, k.detail).
			hint("wait until it answers (divvy devices), or end its programs and reset it: nvidia-smi --gpu-reset, or restart the machine")
	}
	return refuse(Unavailable, "%s takes no share: %s", k.Name, k.detail).hint("divvy devices")
}

// Condition is how a card was when it was last looked at.
func (c *Core) Condition(cardUUID string) Condition {
	if k := c.cardOf(cardUUID); k != nil {
		return k.condition
	}
	return ConditionUnknown
}

// SetCondition notes how a card is; a change is an event, and one more for each
// share on the card when it cannot be used, or can again.
func (c *Core) SetCondition(now time.Time, cardUUID string, condition Condition, detail string) {
	k := c.cardOf(cardUUID)
	if k == nil {
		return
	}
	before, usable := k.condition, k.usable()
	k.detail = detail
	if before == condition {
		return
	}
	k.condition = condition
	switch condition {
	case ConditionWell:
		k.wellSince = now
		if before != ConditionUnknown {
			c.event(now, Event{Kind: event.CardWell, Card: k.UUID, Message: k.Name + " is well again"})
		}
	case ConditionDegraded:
		c.event(now, Event{Kind: event.CardDegraded, Card: k.UUID, Message: k.Name + ": " + detail})
	case ConditionUnshareable:
		c.event(now, Event{Kind: event.CardUnshareable, Card: k.UUID, Message: k.Name + ": " + detail})
	case ConditionNeedsReset:
		c.event(now, Event{Kind: event.CardNeedsReset, Card: k.UUID, Message: k.Name + ": " + detail + "; it takes no new work"})
	case ConditionLost:
		c.event(now, Event{Kind: event.CardLost, Card: k.UUID, Message: k.Name + ": " + detail})
	case ConditionUnresponsive:
		c.event(now, Event{Kind: event.CardUnresponsive, Card: k.UUID, Message: k.Name + ": " + detail + "; it takes no share until it does"})
	}
	if usable == k.usable() {
		return
	}
	for t := range c.slotsOn(k) {
		its, then := fmt.Sprintf("its GPU (%s)", k.Name), "get errors"
		if len(t.share.slots) > 1 {
			its, then = fmt.Sprintf("GPU %d of its %d (%s)", t.number, len(t.share.slots), k.Name), "get errors there and can go on with the others"
		}
		if condition == ConditionUnresponsive {
			then = "may hang"
		}
		if usable {
			c.slotEvent(now, t, event.ShareUnusable, c.usedIn(t), "%s cannot be used: %s; its programs %s", its, detail, then)
		} else {
			c.slotEvent(now, t, event.ShareUsable, 0, "%s can be used again", its)
		}
	}
}
