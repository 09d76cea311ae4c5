// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/event"
)

// eventLog remembers the last events, numbered from 1 on, for any number of
// readers. It never waits for one: a reader that is too slow is told how many
// events it missed.
type eventLog struct {
	mutex sync.Mutex // guards everything below
	ring  []api.Event
	last  uint64        // sequence number of the newest
	more  chan struct{} // closed and replaced when one is added
	ended bool
}

func newEventLog(size int) *eventLog {
	return &eventLog{ring: make([]api.Event, 0, size), more: make(chan struct{})}
}

func (l *eventLog) add(events ...api.Event) {
	if len(events) == 0 {
		return
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	for _, e := range events {
		l.last++
		e.Sequence = l.last
		if len(l.ring) < cap(l.ring) {
			l.ring = append(l.ring, e)
		} else {
			l.ring[(l.last-1)%uint64(cap(l.ring))] = e
		}
	}
	close(l.more)
	l.more = make(chan struct{})
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

// after returns events later than since, the channel that is closed when there
// are more, and whether there will be none. With events that are forgotten
// already it starts with a notice in their place.
func (l *eventLog) after(since uint64, limit int) (events []api.Event, more <-chan struct{}, ended bool) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	oldest := l.last - uint64(len(l.ring)) + 1
	if since > l.last {
		since = l.last // from another life of the agent, or made up
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
		events = append(events, l.ring[(n-1)%uint64(cap(l.ring))])
	}
	return events, l.more, l.ended
}
