// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/event"
)

// eventLog remembers the last events, numbered without gaps, for any number of
// readers. It never waits for one: a reader that is too slow is told how many
// events it missed.
type eventLog struct {
	mutex sync.Mutex    // guards everything below
	ring  []api.Event   // by number
	count int           // how many it has
	last  uint64        // sequence number of the newest
	more  chan struct{} // closed and replaced when one is added
	ended bool
	kinds map[string]uint64 // of all that were added
}

func newEventLog(size int) *eventLog {
	return &eventLog{ring: make([]api.Event, size), more: make(chan struct{}), kinds: map[string]uint64{}}
}

// number gives events the numbers under which they are added next, by the only one who adds.
func (l *eventLog) number(events []api.Event) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	for i := range events {
		events[i].Sequence = l.last + 1 + uint64(i)
	}
}

// add adds events that are numbered. Where the first number is not the one after the last,
// those before it are forgotten.
func (l *eventLog) add(events ...api.Event) {
	if len(events) == 0 {
		return
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	for _, e := range events {
		if e.Sequence != l.last+1 {
			l.count = 0
		}
		l.last = e.Sequence
		l.ring[l.last%uint64(len(l.ring))] = e
		l.count = min(l.count+1, len(l.ring))
		l.kinds[string(e.Kind)]++
	}
	close(l.more)
	l.more = make(chan struct{})
}

// counts says how often each kind of event was told.
func (l *eventLog) counts() map[string]uint64 {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return maps.Clone(l.kinds)
}

// end wakes all followers for the last time.
func (l *eventLog) end() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if !l.ended {
		l.ended = true
		close(l.more)
		l.more = make(chan struct{})
	}
}

const eventsAtOnce = 256

// after returns events later than since, or all if that number was not given yet, the channel that is closed when there
// are more, and whether there will be none. With events that are forgotten
// already it starts with a notice in their place.
func (l *eventLog) after(since uint64, limit int) (events []api.Event, more <-chan struct{}, ended bool) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	oldest := l.last - uint64(l.count) + 1
	if since > l.last {
		since = oldest - 1 // of a log that is lost: it knows none of these
	}
	if since+1 < oldest {
		missed := oldest - 1 - since
		events = append(events, api.Event{
			Sequence: oldest - 1, Time: time.Now(), Kind: event.EventsDropped,
			Message: fmt.Sprintf("%d events are forgotten: too many, or read too slowly", missed),
		})
		since = oldest - 1
	}
	for n := since + 1; n <= l.last && len(events) < limit; n++ {
		events = append(events, l.ring[n%uint64(len(l.ring))])
	}
	return events, l.more, l.ended
}
