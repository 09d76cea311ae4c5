// SPDX-License-Identifier: Apache-2.0

package silicon

import "fmt"

// Handle names memory or an event of one process to another: the unguessable
// part of what cuIpcGetMemHandle gives out.
type Handle [16]byte

// HandleKind says what a handle names.
type HandleKind uint32

// Kinds of handles.
const (
	HandleMemory  HandleKind = 1
	HandleEvent   HandleKind = 2
	HandlePointer HandleKind = 3
)

// place is what a process exported, in its own terms.
type place struct {
	card   int
	kind   HandleKind
	offset uint64
}

// exported is a handle and its process.
type exported struct {
	place
	owner ProcessID
	bytes uint64
	token uint64
}

// HandleInfo is what a handle names.
type HandleInfo struct {
	Process ProcessID // whose it is
	Card    int
	Kind    HandleKind
	Offset  uint64
	Bytes   uint64
	Token   uint64 // a word of the exporter
}

// ExportHandle returns the handle of a place in a process's memory: fresh, or
// the one it has already.
func (m *Machine) ExportHandle(id ProcessID, info HandleInfo, fresh Handle, now int64) (Handle, error) {
	p, err := m.find(id, info.Card)
	if err != nil {
		return Handle{}, err
	}
	if info.Kind < HandleMemory || info.Kind > HandlePointer || info.Offset+info.Bytes < info.Offset {
		return Handle{}, fmt.Errorf("export a handle of kind %d: %w", info.Kind, ErrInvalid)
	}
	at := place{card: info.Card, kind: info.Kind, offset: info.Offset}
	if handle, ok := p.handles[at]; ok {
		e := m.handles[handle]
		e.bytes, e.token = info.Bytes, info.Token
		return handle, nil
	}
	if len(p.handles) >= m.limits.Handles {
		m.note(now, Event{Kind: EventLimit, Process: id, PID: p.pid, Card: info.Card, Text: "handles"})
		return Handle{}, fmt.Errorf("process %d has %d handles: %w", id, len(p.handles), ErrLimit)
	}
	p.handles[at] = fresh
	m.handles[fresh] = &exported{place: at, owner: id, bytes: info.Bytes, token: info.Token}
	return fresh, nil
}

// OpenHandle looks up a handle for a process other than its own.
func (m *Machine) OpenHandle(id ProcessID, handle Handle) (HandleInfo, error) {
	info, err := m.FindHandle(handle)
	if err == nil && info.Process == id {
		err = fmt.Errorf("open a handle: %w", ErrOwn)
	}
	if err != nil {
		return HandleInfo{}, err
	}
	return info, nil
}

// FindHandle looks up a handle, whosever it is.
func (m *Machine) FindHandle(handle Handle) (HandleInfo, error) {
	e, ok := m.handles[handle]
	if !ok {
		return HandleInfo{}, fmt.Errorf("look up a handle: %w", ErrNotFound)
	}
	return HandleInfo{Process: e.owner, Card: e.card, Kind: e.kind, Offset: e.offset, Bytes: e.bytes, Token: e.token}, nil
}

// RevokeHandle forgets a handle.
func (m *Machine) RevokeHandle(id ProcessID, card int, kind HandleKind, offset uint64) error {
	p, err := m.find(id, card)
	if err != nil {
		return err
	}
	at := place{card: card, kind: kind, offset: offset}
	handle, ok := p.handles[at]
	if !ok {
		return fmt.Errorf("revoke a handle: %w", ErrNotFound)
	}
	delete(p.handles, at)
	delete(m.handles, handle)
	return nil
}
