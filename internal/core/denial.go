// SPDX-License-Identifier: Apache-2.0

package core

import (
	"fmt"
	"time"

	"github.com/divvy-gpu/divvy/internal/event"
	"github.com/divvy-gpu/divvy/internal/size"
)

// bucket bounds the events that one client causes, or refusals by one share.
type bucket struct {
	tokens  float64
	last    time.Time
	dropped int
}

const (
	bucketSize      = 20
	bucketPerSecond = 5
)

func (b *bucket) take(now time.Time) bool { return b.takeOf(now, bucketSize, bucketPerSecond) }

func (b *bucket) takeOf(now time.Time, size, perSecond float64) bool {
	if b.last.IsZero() {
		b.tokens = size
	} else {
		b.tokens = min(size, b.tokens+max(now.Sub(b.last).Seconds(), 0)*perSecond)
	}
	b.last = now
	if b.tokens < 1 {
		b.dropped++
		return false
	}
	b.tokens--
	return true
}

// deny refuses a charge. It counts when the program is refused with it.
func (c *Core) deny(now time.Time, b *balance, w waiting, free uint64, reason Reason) Answer {
	if w.Final {
		b.denials++
		b.slot.denials[reason]++ // saved when something else of the share is
		c.tellDenied(now, b, w.Charge, free, reason)
	}
	return Answer{Client: b.id, Slot: w.Slot, Reason: reason, FreeBytes: free, UsedBytes: c.observeLately(now, b.slot)}
}

func (c *Core) tellDenied(now time.Time, b *balance, w Charge, free uint64, reason Reason) {
	limit, call := c.limitOf(b.slot), w.Call
	if call == "" {
		call = "an allocation"
	}
	why := fmt.Sprintf("%s free of %s", size.Short(free), size.Short(limit))
	switch reason {
	case CardFull:
		why = fmt.Sprintf("%s free on the GPU for shares without a quota", size.Short(free))
	case Shrinking:
		why = fmt.Sprintf("the share is still over its lowered limit of %s", size.Short(limit))
	case Revoked:
		why = "the share is deleted"
	case NoClient:
		why = "the process is not attached"
	case Broken:
		why = "the process has destroyed its page"
	case Unheld:
		why = "the process is not held as its share demands"
	}
	c.clientEvent(now, b, event.Denied, w.Bytes, fmt.Sprintf("%s of %s denied%s: %s", call, size.Short(w.Bytes), b.slot.which(), why))
}

// which names the GPU of a slot in a sentence about a share that has several.
func (t *slot) which() string {
	if len(t.share.slots) == 1 {
		return ""
	}
	return fmt.Sprintf(" on GPU %d of the share (%s)", t.number, t.card.Name)
}

// clientEvent is an event that a client caused on a card, unless it causes too many.
func (c *Core) clientEvent(now time.Time, cl *balance, kind event.Kind, bytes uint64, message string) {
	if !cl.bucket.take(now) {
		return
	}
	if n := cl.bucket.dropped; n > 0 {
		cl.bucket.dropped = 0
		message += fmt.Sprintf(" (%d more events of this process were left out)", n)
	}
	c.event(now, Event{Kind: kind, Share: cl.share.Name, Card: cl.slot.card.UUID, PID: cl.PID, Bytes: bytes, Message: message})
}

// Refused tells that a process may not attach, unless a share has too many, and says
// whether it did. It is an event of the process's user, whosever the share is.
func (c *Core) Refused(now time.Time, share string, process Process, why string) bool {
	s := c.byName[share]
	if s == nil || !s.refusals.take(now) {
		return false
	}
	if n := s.refusals.dropped; n > 0 {
		s.refusals.dropped = 0
		why += fmt.Sprintf(" (%d more refusals were left out)", n)
	}
	user := process.user()
	c.event(now, Event{Kind: event.ClientRefused, Share: share, Card: s.uuid(), PID: process.PID, Message: why, user: &user})
	return true
}

// Report is what a front library has to tell.
type Report int

// Reports.
const (
	ReportUnclassified Report = iota + 1
	ReportSelfOpen
	ReportNoDriver
	ReportHidden
	ReportForeign
	ReportDriverOOM
)

// Report takes a client's report, about the card of a slot.
func (c *Core) Report(now time.Time, id ClientID, number int, report Report, bytes uint64, text string) {
	cl := c.balanceOf(id, number)
	if cl == nil {
		return
	}
	switch report {
	case ReportUnclassified:
		c.clientEvent(now, cl, event.UnclassifiedSymbol, 0, "unclassified symbol "+text)
	case ReportSelfOpen:
		c.clientEvent(now, cl, event.FrontOpenedItself, 0, "the driver directory holds the front library itself")
	case ReportNoDriver:
		c.clientEvent(now, cl, event.NoDriver, 0, "the driver cannot be opened: "+text)
	case ReportHidden:
		c.clientEvent(now, cl, event.CardHidden, 0, "the share's GPU is not visible to the process: "+text)
	case ReportForeign:
		c.clientEvent(now, cl, event.CardsForeign, 0, "refused: the driver shows the process GPUs that are not the share's: "+text)
	case ReportDriverOOM:
		c.clientEvent(now, cl, event.DriverOutOfMemory, bytes,
			fmt.Sprintf("the driver refused %s though the quota had room: %s", size.Short(bytes), text))
	}
}
