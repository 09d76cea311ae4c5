// SPDX-License-Identifier: Apache-2.0

package silicon

import (
	"errors"
	"fmt"
)

// ErrInUse says that processes hold a part of a card, or memory of it.
var ErrInUse = errors.New("in use")

// A slot is a place behind the cards for a part of one that is a device of its
// own. Slots have indices like cards, and nothing but a card in them is asked
// for differently. Closed ones are as if they were not there.

// AddSlots adds closed slots and returns the index of the first.
func (m *Machine) AddSlots(count int) int {
	first := len(m.cards)
	for range count {
		m.cards = append(m.cards, cardState{closed: true, room: &room{}})
	}
	return first
}

// Slots returns how many cards and slots there are.
func (m *Machine) Slots() int { return len(m.cards) }

// OpenSlot puts a device into a slot. Its memory is that of the slot beside, which
// is open, or its own with beside -1.
func (m *Machine) OpenSlot(slot int, device Card, beside int) error {
	if slot < m.whole || slot >= len(m.cards) || !m.cards[slot].closed {
		return fmt.Errorf("open slot %d: %w", slot, ErrInvalid)
	}
	memory := &room{capacity: device.UsableBytes()}
	if beside >= 0 {
		if beside < m.whole || beside >= len(m.cards) || m.cards[beside].closed {
			return fmt.Errorf("open slot %d beside %d: %w", slot, beside, ErrInvalid)
		}
		memory = m.cards[beside].room
	}
	m.cards[slot] = cardState{Card: device, room: memory}
	return nil
}

// CloseSlot takes a device that nobody uses out of a slot.
func (m *Machine) CloseSlot(slot int) error {
	switch {
	case slot < m.whole || slot >= len(m.cards) || m.cards[slot].closed:
		return fmt.Errorf("close slot %d: %w", slot, ErrNotFound)
	case m.InUse(slot):
		return fmt.Errorf("close slot %d: %w", slot, ErrInUse)
	}
	m.cards[slot] = cardState{closed: true, room: &room{}}
	for _, p := range m.processes {
		p.usage[slot] = Usage{Process: p.id, PID: p.pid, Card: slot}
	}
	return nil
}

// Divide takes a card away from processes, for its parts, or gives it back.
func (m *Machine) Divide(card int, divided bool) error {
	if card < 0 || card >= m.whole {
		return fmt.Errorf("GPU %d: %w", card, ErrNotFound)
	}
	if m.InUse(card) {
		return fmt.Errorf("divide GPU %d: %w", card, ErrInUse)
	}
	m.cards[card].closed = divided
	return nil
}

// Use makes a process hold a slot until it ends, as a process does that has a
// device open.
func (m *Machine) Use(id ProcessID, slot int) error {
	p, err := m.find(id, slot)
	if err == nil {
		p.uses[slot] = true
	}
	return err
}

// InUse says whether a card or slot has bytes in use, or a process that holds it.
func (m *Machine) InUse(index int) bool {
	if m.cards[index].usedBytes > 0 {
		return true
	}
	for _, p := range m.processes {
		if p.uses[index] {
			return true
		}
	}
	return false
}
