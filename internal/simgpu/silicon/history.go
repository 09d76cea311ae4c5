// SPDX-License-Identifier: Apache-2.0

package silicon

// EventKind says what happened.
type EventKind uint32

// Kinds of events.
const (
	EventHost     EventKind = 1 // the host's budget refused bytes
	EventGarbage  EventKind = 2 // a connection was closed for nonsense
	EventLimit    EventKind = 3 // a bound was met
	EventDetached EventKind = 4 // a live process closed its connection
	EventNoRoom   EventKind = 5 // a card was full
	EventFault    EventKind = 6 // a fault was injected, or cleared
)

// Event is something a person would want to know.
type Event struct {
	Number  uint64
	TimeNS  int64
	Kind    EventKind
	Process ProcessID // 0: none
	PID     int
	Card    int // -1: none
	Bytes   uint64
	Text    string
}

// Release is the moment at which everything of a process was free.
type Release struct {
	Number  uint64
	TimeNS  int64
	Process ProcessID
	PID     int
	Bytes   uint64
}

// history keeps the last entries of a list whose entries have numbers 1, 2 ...
type history[T any] struct {
	room    int
	entries []T    // a ring once it is full
	count   uint64 // ever added
	first   uint64 // number of the oldest entry kept
}

// next is the number that the next entry gets.
func (h *history[T]) next() uint64 { return h.count + 1 }

func (h *history[T]) add(entry T) {
	if h.room == 0 {
		return
	}
	if len(h.entries) < h.room {
		h.entries = append(h.entries, entry)
	} else {
		h.entries[h.count%uint64(h.room)] = entry
	}
	h.count++
	h.first = max(h.first, 1)
	if h.count-h.first >= uint64(h.room) {
		h.first = h.count - uint64(h.room) + 1
	}
}

// forget leaves the numbers and drops the entries.
func (h *history[T]) forget() { h.first = h.count + 1 }

// after returns at most room entries with numbers above cursor, and the number
// of the last one.
func (h *history[T]) after(cursor uint64, room int) (found []T, last uint64) {
	last = cursor
	for number := max(cursor, h.first-min(h.first, 1)) + 1; number <= h.count && len(found) < room; number++ {
		found = append(found, h.entries[(number-1)%uint64(h.room)])
		last = number
	}
	return found, last
}

func (m *Machine) note(now int64, e Event) {
	e.Number, e.TimeNS = m.events.next(), now
	m.events.add(e)
}

// Note adds an event that the machine cannot see itself.
func (m *Machine) Note(now int64, e Event) { m.note(now, e) }

// Events returns at most room events after cursor and the cursor to go on with.
func (m *Machine) Events(cursor uint64, room int) ([]Event, uint64) {
	return m.events.after(cursor, room)
}

// Releases is the like for releases.
func (m *Machine) Releases(cursor uint64, room int) ([]Release, uint64) {
	return m.releases.after(cursor, room)
}

// Dead is the like for what dead processes held at most.
func (m *Machine) Dead(cursor uint64, room int) ([]Usage, uint64) {
	return m.dead.after(cursor, room)
}
