// SPDX-License-Identifier: Apache-2.0

package silicon

import (
	"fmt"
	"maps"
	"slices"
)

// ObjectKind says what an object is.
type ObjectKind uint32

// Kinds of objects.
const (
	ObjectMemory ObjectKind = 1
	ObjectPool   ObjectKind = 2
)

// ObjectInfo is what an object is, as its creator made it.
type ObjectInfo struct {
	ID    ObjectID
	Card  int
	Kind  ObjectKind
	Bytes uint64
	Token uint64 // a word of the creator
}

// object lives while somebody holds it or a descriptor that names it is open.
type object struct {
	ObjectInfo
	holders map[ProcessID]int
	exports int       // open descriptors
	shown   ProcessID // the process at which its bytes are shown; 0: none
}

// CreateObject takes bytes of a card for an object that can be shared. Objects
// of 0 bytes are identities only.
func (m *Machine) CreateObject(id ProcessID, card int, kind ObjectKind, bytes, token uint64, now int64) (ObjectInfo, error) {
	p, err := m.find(id, card)
	if err != nil {
		return ObjectInfo{}, err
	}
	if kind != ObjectMemory && kind != ObjectPool || kind == ObjectMemory && bytes == 0 {
		return ObjectInfo{}, fmt.Errorf("create object of kind %d with %d bytes: %w", kind, bytes, ErrInvalid)
	}
	if err := m.objectRoom(p, now); err != nil {
		return ObjectInfo{}, err
	}
	if err := m.take(p, card, Object, bytes, now); err != nil {
		return ObjectInfo{}, err
	}
	m.lastObj++
	o := &object{
		ObjectInfo: ObjectInfo{ID: m.lastObj, Card: card, Kind: kind, Bytes: bytes, Token: token},
		holders:    map[ProcessID]int{id: 1}, shown: id,
	}
	m.objects[o.ID] = o
	p.objects[o.ID] = 1
	p.shown[o.ID] = true
	p.usage[card].Allocations++
	p.usage[card].Live++
	return o.ObjectInfo, nil
}

// objectRoom bounds the objects a process holds, and those it made and let go
// of while others hold them.
func (m *Machine) objectRoom(p *process, now int64) error {
	if max(len(p.objects), len(p.shown)) < m.limits.Objects {
		return nil
	}
	m.note(now, Event{Kind: EventLimit, Process: p.id, PID: p.pid, Card: -1, Text: "objects"})
	return fmt.Errorf("process %d has %d objects: %w", p.id, max(len(p.objects), len(p.shown)), ErrLimit)
}

// ExportObject counts a descriptor that names the object.
func (m *Machine) ExportObject(id ProcessID, objectID ObjectID) error {
	p, ok := m.processes[id]
	if !ok || p.objects[objectID] == 0 {
		return fmt.Errorf("export object %d of process %d: %w", objectID, id, ErrNotFound)
	}
	m.objects[objectID].exports++
	return nil
}

// ExportClosed undoes ExportObject when the last copy of the descriptor is
// closed; gone says that the object went with it.
func (m *Machine) ExportClosed(objectID ObjectID) (gone bool) {
	o, ok := m.objects[objectID]
	if !ok || o.exports == 0 {
		return false
	}
	o.exports--
	return m.reap(o)
}

// ImportObject makes a process hold an object, once more if it does already.
func (m *Machine) ImportObject(id ProcessID, objectID ObjectID, now int64) (ObjectInfo, error) {
	p, ok := m.processes[id]
	o, known := m.objects[objectID]
	if !ok || !known {
		return ObjectInfo{}, fmt.Errorf("import object %d into process %d: %w", objectID, id, ErrNotFound)
	}
	if p.objects[objectID] == 0 {
		if err := m.objectRoom(p, now); err != nil {
			return ObjectInfo{}, err
		}
	}
	p.objects[objectID]++
	o.holders[id]++
	if o.shown == 0 {
		m.show(o, p)
	}
	return o.ObjectInfo, nil
}

// DropObject undoes one create or import; gone says that it was the last.
func (m *Machine) DropObject(id ProcessID, objectID ObjectID) (gone bool, err error) {
	p, ok := m.processes[id]
	if !ok || p.objects[objectID] == 0 {
		return false, fmt.Errorf("drop object %d of process %d: %w", objectID, id, ErrNotFound)
	}
	o := m.objects[objectID]
	p.objects[objectID]--
	o.holders[id]--
	if o.holders[id] == 0 {
		delete(p.objects, objectID)
		delete(o.holders, id)
	}
	return m.reap(o), nil
}

// reap removes an object that nobody holds any more.
func (m *Machine) reap(o *object) bool {
	if len(o.holders) > 0 || o.exports > 0 {
		return false
	}
	m.hide(o)
	m.cards[o.Card].orphans -= o.Bytes
	m.cards[o.Card].give(o.Bytes)
	delete(m.objects, o.ID)
	return true
}

// show puts an orphan's bytes on a process's account.
func (m *Machine) show(o *object, p *process) {
	o.shown = p.id
	p.shown[o.ID] = true
	m.cards[o.Card].orphans -= o.Bytes
	u := &p.usage[o.Card]
	u.hold(Object, o.Bytes)
	u.Allocations++
	u.Live++
}

// hide takes them off again, if they are on one.
func (m *Machine) hide(o *object) {
	if o.shown == 0 {
		return
	}
	p := m.processes[o.shown]
	delete(p.shown, o.ID)
	o.shown = 0
	m.cards[o.Card].orphans += o.Bytes
	u := &p.usage[o.Card]
	u.Bytes -= o.Bytes
	u.KindBytes[Object] -= o.Bytes
	u.Live--
}

// endObjects lets a dying process go of its objects and moves what it showed
// to the oldest other holder. Those that are gone are returned in order.
func (m *Machine) endObjects(p *process) []ObjectID {
	var gone []ObjectID
	ids := slices.AppendSeq(slices.Collect(maps.Keys(p.objects)), maps.Keys(p.shown))
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		o := m.objects[id]
		delete(o.holders, p.id)
		if o.shown == p.id {
			m.hide(o)
			if len(o.holders) > 0 {
				m.show(o, m.processes[slices.Min(slices.Collect(maps.Keys(o.holders)))])
			}
		}
		if m.reap(o) {
			gone = append(gone, id)
		}
	}
	return gone
}
