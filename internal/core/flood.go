// SPDX-License-Identifier: Apache-2.0

package core

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/internal/event"
)

// flood bounds the events that processes and users but root cause, of whatever kind: nobody
// drives those of others out of the log. What is left out is told, in one event of each user
// a second.
type flood struct {
	processes, users map[int]*bucket
	dropped          map[int]int // by user, not told
	tellAt           time.Time   // zero: nothing was dropped
}

const (
	userBucketSize      = 256
	userBucketPerSecond = 20
	tellDropped         = time.Second
	mostBuckets         = 4096
)

// ofCard is true of events about a share that its user does not cause.
func ofCard(kind event.Kind) bool {
	return slices.Contains([]event.Kind{event.ShareUsable, event.ShareUnusable, event.ShareLost, event.EventsDropped}, kind)
}

// MayTell says whether an event is one too many of its process or its user, and counts it.
func (c *Core) MayTell(now time.Time, e Event) bool {
	user, known := 0, false
	if e.user != nil {
		user, known = *e.user, true
	} else if clients := c.byPID[e.PID]; len(clients) > 0 {
		user, known = clients[0].user(), true
	} else if e.UID != nil {
		user, known = *e.UID, true
	} else if s := c.byName[e.Share]; s != nil {
		user, known = s.user(), true
	}
	if !known || c.trusted(user) || ofCard(e.Kind) {
		return true
	}
	f := &c.flood
	if e.PID != 0 && !f.bucket(&f.processes, e.PID).take(now) ||
		!f.bucket(&f.users, user).takeOf(now, userBucketSize, userBucketPerSecond) {
		if f.dropped == nil {
			f.dropped = map[int]int{}
		}
		f.dropped[user]++
		if f.tellAt.IsZero() {
			f.tellAt = now.Add(tellDropped)
		}
		return false
	}
	return true
}

// bucket is that of a process or a user. Those that are full again say nothing.
func (f *flood) bucket(of *map[int]*bucket, who int) *bucket {
	if *of == nil || len(*of) >= mostBuckets {
		*of = map[int]*bucket{}
	}
	b := (*of)[who]
	if b == nil {
		b = &bucket{}
		(*of)[who] = b
	}
	return b
}

// tellDropped tells how many events were left out.
func (c *Core) tellDropped(now time.Time) {
	f := &c.flood
	if f.tellAt.IsZero() || now.Before(f.tellAt) {
		return
	}
	f.tellAt = time.Time{}
	for _, user := range slices.Sorted(maps.Keys(f.dropped)) {
		c.event(now, Event{Kind: event.EventsDropped, Message: fmt.Sprintf("%d events that uid %d caused were left out: too many", f.dropped[user], user)})
	}
	clear(f.dropped)
}
