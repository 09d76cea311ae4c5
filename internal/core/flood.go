// SPDX-License-Identifier: Apache-2.0

package core

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/internal/event"
)

// flood bounds the events that processes and users but root cause, of whatever kind, and those
// of a share that any of its processes may cause: nobody drives those of others out of the log.
// What is left out is told, in one event of each user and share a second.
type flood struct {
	processes, users map[int]*bucket
	shares           map[kindOf]*bucket
	dropped          map[int]int    // by user, not told
	droppedOf        map[string]int // by share, not told
	tellAt           time.Time      // zero: nothing was dropped
}

// kindOf is a kind of a share's events: nobody hides one behind many of another.
type kindOf struct {
	share string
	kind  event.Kind
}

const (
	userBucketSize       = 256
	userBucketPerSecond  = 20
	shareBucketSize      = 20
	shareBucketPerSecond = 1
	tellDropped          = time.Second
	mostBuckets          = 4096
)

// notOfUser is true of events about a share that its user does not cause.
func notOfUser(kind event.Kind) bool {
	return slices.Contains([]event.Kind{event.ShareUsable, event.ShareUnusable, event.ShareLost, event.EventsDropped}, kind)
}

// ofShare is true of events about a share which do not say what process caused them: that is
// anybody's who may join, whosever the share is.
func ofShare(kind event.Kind) bool {
	return kind == event.LeaseOverrun || kind == event.EnforcementChanged
}

// MayTell says whether an event is one too many of its share, its process or its user, and counts it.
func (c *Core) MayTell(now time.Time, e Event) bool {
	f := &c.flood
	if ofShare(e.Kind) && !bucketOf(&f.shares, kindOf{e.Share, e.Kind}).takeOf(now, shareBucketSize, shareBucketPerSecond) {
		drop(f, &f.droppedOf, e.Share, now)
		return false
	}
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
	if !known || c.trusted(user) || notOfUser(e.Kind) {
		return true
	}
	if e.PID != 0 && !bucketOf(&f.processes, e.PID).take(now) ||
		!bucketOf(&f.users, user).takeOf(now, userBucketSize, userBucketPerSecond) {
		drop(f, &f.dropped, user, now)
		return false
	}
	return true
}

// drop counts an event that is not told.
func drop[K comparable](f *flood, of *map[K]int, who K, now time.Time) {
	if *of == nil {
		*of = map[K]int{}
	}
	(*of)[who]++
	if f.tellAt.IsZero() {
		f.tellAt = now.Add(tellDropped)
	}
}

// bucketOf is that of a process, a user or a share. Those that are full again say nothing.
func bucketOf[K comparable](of *map[K]*bucket, who K) *bucket {
	if *of == nil || len(*of) >= mostBuckets {
		*of = map[K]*bucket{}
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
		c.event(now, Event{Kind: event.EventsDropped, Message: fmt.Sprintf("%d events that %s caused were left out: too many", f.dropped[user], userName(user))})
	}
	for _, share := range slices.Sorted(maps.Keys(f.droppedOf)) {
		c.event(now, Event{Kind: event.EventsDropped, Share: share, Message: fmt.Sprintf("%d events of its processes together were left out: too many", f.droppedOf[share])})
	}
	clear(f.dropped)
	clear(f.droppedOf)
}
