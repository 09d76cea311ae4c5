// SPDX-License-Identifier: Apache-2.0

// Package silicon is the simulated hardware without its driver's plumbing: the
// table of card models, the capacity of each card, and who holds how much of
// it. It is pure: no descriptors, no goroutines, no clock. The contents of
// memory are no concern of it.
//
// A Machine is owned by one goroutine. Its figures are the ground truth that
// everything else is measured against, so they are counted here and nowhere
// else, and know nothing of shares or quotas.
package silicon

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

var (
	// ErrNoRoom says that the card is full.
	ErrNoRoom = errors.New("the GPU is full")
	// ErrInvalid says that a value is out of range.
	ErrInvalid = errors.New("a value is out of range")
	// ErrNotFound says that there is no such card, process, object or handle.
	ErrNotFound = errors.New("not found")
	// ErrOwn says that a handle belongs to the process that opens it.
	ErrOwn = errors.New("the handle is the caller's own")
	// ErrLimit says that a bound of the simulator was met.
	ErrLimit = errors.New("too many")
)

// Kind says what bytes are held for.
type Kind uint32

// Kinds of holdings; Object is what cuMemCreate's handles hold.
const (
	Linear Kind = iota
	Array
	Pool
	Managed
	Context
	Module
	Graph
	Object
	Kinds // how many there are
)

// ProcessID is the machine's number of a process; it is never used again.
type ProcessID uint64

// ObjectID is the machine's number of a shareable object.
type ObjectID uint64

// Limits bound what clients can make the machine keep.
type Limits struct {
	Processes int // at once
	Objects   int // of one process
	Handles   int // of one process
	History   int // dead processes, events and releases, each
}

// DefaultLimits are the bounds of a simulator that is not told otherwise.
func DefaultLimits() Limits {
	return Limits{Processes: 4096, Objects: 16384, Handles: 65536, History: 4096}
}

// Usage is what one process holds of one card.
type Usage struct {
	Process     ProcessID
	PID         int
	Card        int // index; -1: holds nothing on any card
	Dead        bool
	Contexts    int
	Bytes       uint64
	PeakBytes   uint64
	Allocations uint64
	Live        uint64
	Denials     uint64
	KindBytes   [Kinds]uint64
}

func (u *Usage) quiet() bool { return u.Allocations == 0 && u.Denials == 0 && u.PeakBytes == 0 }

// process is a live one.
type process struct {
	id      ProcessID
	pid     int
	usage   []Usage           // by card
	uses    map[int]bool      // slots it holds, with or without bytes
	objects map[ObjectID]int  // times it holds each
	shown   map[ObjectID]bool // objects whose bytes are on its account
	handles map[place]Handle
	group   string         // its control group
	caps    map[int]uint64 // by card: the most that it may hold
}

type cardState struct {
	Card
	usedBytes uint64
	peakBytes uint64 // most of usedBytes since the last Reset
	orphans   uint64 // part of usedBytes that no live process shows
	closed    bool   // to processes: a divided card, or a slot that nothing is in
	room      *room  // that it takes its bytes from
}

// room is memory that cards share: that of one card, or of the parts of one.
type room struct {
	capacity  uint64
	usedBytes uint64
}

func (c *cardState) free() uint64 { return c.room.capacity - c.room.usedBytes }

func (c *cardState) take(bytes uint64) {
	c.room.usedBytes += bytes
	c.usedBytes += bytes
	c.peakBytes = max(c.peakBytes, c.usedBytes)
}

func (c *cardState) give(bytes uint64) {
	c.room.usedBytes -= bytes
	c.usedBytes -= bytes
}

// Machine is all cards of one simulator and the processes that use them.
type Machine struct {
	limits    Limits
	cards     []cardState // and, behind them, slots
	whole     int         // how many are cards
	processes map[ProcessID]*process
	order     []ProcessID // of processes, rising
	objects   map[ObjectID]*object
	handles   map[Handle]*exported
	bounds    map[limited]Limit
	lastID    ProcessID
	lastObj   ObjectID
	dead      history[Usage]
	events    history[Event]
	releases  history[Release]
}

// New returns a machine with these cards and no processes.
func New(cards []Card, limits Limits) *Machine {
	m := &Machine{
		limits:    limits,
		processes: map[ProcessID]*process{},
		objects:   map[ObjectID]*object{},
		handles:   map[Handle]*exported{},
		bounds:    map[limited]Limit{},
		dead:      history[Usage]{room: limits.History},
		events:    history[Event]{room: limits.History},
		releases:  history[Release]{room: limits.History},
	}
	for _, c := range cards {
		m.cards = append(m.cards, cardState{Card: c, room: &room{capacity: c.UsableBytes()}})
	}
	m.whole = len(cards)
	return m
}

// Cards returns how many cards there are, without slots.
func (m *Machine) Cards() int { return m.whole }

// Card returns a card, the bytes that processes hold of it and the number of
// processes that do.
func (m *Machine) Card(index int) (card Card, usedBytes uint64, processes int, err error) {
	if index < 0 || index >= len(m.cards) || index >= m.whole && m.cards[index].closed {
		return Card{}, 0, 0, fmt.Errorf("GPU %d: %w", index, ErrNotFound)
	}
	for _, p := range m.processes {
		if p.usage[index].Bytes > 0 {
			processes++
		}
	}
	return m.cards[index].Card, m.cards[index].usedBytes, processes, nil
}

// PeakBytes is the most that was held of a card together since the last Reset.
func (m *Machine) PeakBytes(card int) uint64 { return m.cards[card].peakBytes }

// FreeBytes is what can still be held of a card.
func (m *Machine) FreeBytes(card int) uint64 { return m.cards[card].free() }

// FreeFor is what one process can still hold of it.
func (m *Machine) FreeFor(id ProcessID, card int) uint64 {
	free := m.cards[card].free()
	if p, ok := m.processes[id]; ok {
		allowed, _ := m.allowance(p, card)
		free = min(free, allowed)
	}
	return free
}

// Attach adds a process.
func (m *Machine) Attach(pid int, now int64) (ProcessID, error) {
	if len(m.processes) >= m.limits.Processes {
		m.note(now, Event{Kind: EventLimit, PID: pid, Card: -1, Text: "processes"})
		return 0, fmt.Errorf("attach process %d: %d processes: %w", pid, len(m.processes), ErrLimit)
	}
	m.lastID++
	p := &process{
		id: m.lastID, pid: pid, usage: make([]Usage, len(m.cards)), uses: map[int]bool{},
		objects: map[ObjectID]int{}, shown: map[ObjectID]bool{}, handles: map[place]Handle{}, caps: map[int]uint64{},
	}
	for i := range p.usage {
		p.usage[i] = Usage{Process: p.id, PID: pid, Card: i}
	}
	m.processes[p.id] = p
	m.order = append(m.order, p.id)
	return p.id, nil
}

// find returns a process and checks a card index.
func (m *Machine) find(id ProcessID, card int) (*process, error) {
	p, ok := m.processes[id]
	if !ok {
		return nil, fmt.Errorf("process %d: %w", id, ErrNotFound)
	}
	if card < 0 || card >= len(m.cards) || m.cards[card].closed {
		return nil, fmt.Errorf("GPU %d: %w", card, ErrNotFound)
	}
	return p, nil
}

// Charge takes bytes of a card for a process, as one allocation.
func (m *Machine) Charge(id ProcessID, card int, kind Kind, bytes uint64, now int64) error {
	p, err := m.find(id, card)
	if err != nil {
		return err
	}
	if kind >= Object || bytes == 0 {
		return fmt.Errorf("charge %d bytes of kind %d: %w", bytes, kind, ErrInvalid)
	}
	if err := m.take(p, card, kind, bytes, now); err != nil {
		return err
	}
	u := &p.usage[card]
	u.Allocations++
	u.Live++
	if kind == Context {
		u.Contexts++
	}
	return nil
}

// Release gives back what Charge took.
func (m *Machine) Release(id ProcessID, card int, kind Kind, bytes uint64) error {
	p, err := m.find(id, card)
	if err != nil {
		return err
	}
	if kind >= Object || bytes == 0 {
		return fmt.Errorf("release %d bytes of kind %d: %w", bytes, kind, ErrInvalid)
	}
	u := &p.usage[card]
	if u.KindBytes[kind] < bytes || u.Live == 0 || (kind == Context && u.Contexts == 0) {
		return fmt.Errorf("release %d bytes of kind %d: process %d holds %d: %w", bytes, kind, id, u.KindBytes[kind], ErrInvalid)
	}
	m.give(p, card, kind, bytes)
	u.Live--
	if kind == Context {
		u.Contexts--
	}
	return nil
}

// Adjust changes what is held without counting an allocation: pools that grow
// and shrink, contexts whose limits are set.
func (m *Machine) Adjust(id ProcessID, card int, kind Kind, change int64, now int64) error {
	p, err := m.find(id, card)
	if err != nil {
		return err
	}
	switch {
	case kind >= Object || change == math.MinInt64:
		return fmt.Errorf("adjust kind %d by %d: %w", kind, change, ErrInvalid)
	case change > 0:
		return m.take(p, card, kind, uint64(change), now)
	case change < 0 && p.usage[card].KindBytes[kind] < uint64(-change):
		return fmt.Errorf("adjust kind %d by %d: process %d holds %d: %w", kind, change, id, p.usage[card].KindBytes[kind], ErrInvalid)
	case change < 0:
		m.give(p, card, kind, uint64(-change))
	}
	return nil
}

// take moves bytes from the card to a process, or says that there is no room.
func (m *Machine) take(p *process, card int, kind Kind, bytes uint64, now int64) error {
	c := &m.cards[card]
	u := &p.usage[card]
	if free := c.free(); bytes > free {
		u.Denials++
		m.note(now, Event{Kind: EventNoRoom, Process: p.id, PID: p.pid, Card: card, Bytes: bytes,
			Text: fmt.Sprintf("GPU %d is full: %d bytes free", card, free)})
		return fmt.Errorf("take %d bytes of GPU %d, %d are free: %w", bytes, card, free, ErrNoRoom)
	}
	if free, bound := m.allowance(p, card); bytes > free {
		u.Denials++
		m.note(now, Event{Kind: EventNoRoom, Process: p.id, PID: p.pid, Card: card, Bytes: bytes,
			Text: fmt.Sprintf("%s: %d bytes free", bound, free)})
		return fmt.Errorf("take %d bytes of GPU %d, %d are free under %s: %w", bytes, card, free, bound, ErrNoRoom)
	}
	c.take(bytes)
	u.hold(kind, bytes)
	return nil
}

func (m *Machine) give(p *process, card int, kind Kind, bytes uint64) {
	m.cards[card].give(bytes)
	p.usage[card].Bytes -= bytes
	p.usage[card].KindBytes[kind] -= bytes
}

func (u *Usage) hold(kind Kind, bytes uint64) {
	u.Bytes += bytes
	u.KindBytes[kind] += bytes
	u.PeakBytes = max(u.PeakBytes, u.Bytes)
}

// Detached notes that a live process has closed its connection.
func (m *Machine) Detached(id ProcessID, now int64) {
	if p, ok := m.processes[id]; ok {
		m.note(now, Event{Kind: EventDetached, Process: id, PID: p.pid, Card: -1, Bytes: p.bytes(), Text: "connection closed, memory still mapped"})
	}
}

func (p *process) bytes() uint64 {
	var sum uint64
	for i := range p.usage {
		sum += p.usage[i].Bytes
	}
	return sum
}

// End frees everything a process holds and returns the objects that are gone
// with it. Objects that others hold, or that an open descriptor names, stay.
func (m *Machine) End(id ProcessID, now int64) []ObjectID {
	p, ok := m.processes[id]
	if !ok {
		return nil
	}
	for i := range p.usage {
		if u := p.usage[i]; !u.quiet() {
			u.Dead, u.Bytes, u.Live, u.Contexts, u.KindBytes = true, 0, 0, 0, [Kinds]uint64{}
			m.dead.add(u)
		}
	}
	before := m.usedBytes()
	gone := m.endObjects(p)
	for i := range p.usage {
		m.cards[i].give(p.usage[i].Bytes)
	}
	for _, handle := range p.handles {
		delete(m.handles, handle)
	}
	delete(m.processes, id)
	if at, ok := slices.BinarySearch(m.order, id); ok {
		m.order = slices.Delete(m.order, at, at+1)
	}
	m.releases.add(Release{Number: m.releases.next(), TimeNS: now, Process: id, PID: p.pid, Bytes: before - m.usedBytes()})
	return gone
}

func (m *Machine) usedBytes() uint64 {
	var sum uint64
	for i := range m.cards {
		sum += m.cards[i].usedBytes
	}
	return sum
}

// Processes lists what live processes hold, in order of their numbers: at most
// room entries from the place that cursor names (0: the beginning). next is 0
// at the end. With card -1 it lists each card that a process ever touched, and
// a process that touched none once; else those that hold something of the card.
func (m *Machine) Processes(card int, cursor uint64, room int) (found []Usage, next uint64) {
	places := uint64(len(m.cards) + 1)
	from := ProcessID(cursor / places)
	skip := int(cursor % places)
	at, _ := slices.BinarySearch(m.order, from)
	for _, id := range m.order[at:] {
		p := m.processes[id]
		list := p.listed(card)
		for i, u := range list {
			if id == from && i < skip {
				continue
			}
			if len(found) >= room {
				return found, uint64(id)*places + uint64(i)
			}
			found = append(found, u)
		}
	}
	return found, 0
}

func (p *process) listed(card int) []Usage {
	if card >= 0 {
		if card < len(p.usage) && p.usage[card].Bytes > 0 {
			return p.usage[card : card+1]
		}
		return nil
	}
	var list []Usage
	for i := range p.usage {
		if !p.usage[i].quiet() {
			list = append(list, p.usage[i])
		}
	}
	if len(list) == 0 {
		list = append(list, Usage{Process: p.id, PID: p.pid, Card: -1})
	}
	return list
}

// Reset makes every peak what is held now and forgets dead processes and
// releases.
func (m *Machine) Reset() {
	for _, p := range m.processes {
		for i := range p.usage {
			p.usage[i].PeakBytes = p.usage[i].Bytes
		}
	}
	for i := range m.cards {
		m.cards[i].peakBytes = m.cards[i].usedBytes
	}
	m.dead.forget()
	m.releases.forget()
}
