// SPDX-License-Identifier: Apache-2.0

package silicon

import (
	"fmt"
	"math"
	"strings"
)

// Limit is what the processes of a control group may hold of a card together.
type Limit struct {
	SoftBytes uint64 // kept, not enforced
	HardBytes uint64
}

// NoLimit is the limit of groups that were given none.
func NoLimit() Limit { return Limit{HardBytes: math.MaxUint64} }

// limited is what a limit is for.
type limited struct {
	card  int
	group string
}

// SetLimit gives a control group a limit on a card, which is no part of one. What
// its processes hold already, they keep.
func (m *Machine) SetLimit(card int, group string, l Limit) error {
	if card < 0 || card >= m.whole {
		return fmt.Errorf("limit on GPU %d: %w", card, ErrNotFound)
	}
	at := limited{card: card, group: group}
	if l == NoLimit() {
		delete(m.bounds, at)
		return nil
	}
	if l.SoftBytes > l.HardBytes {
		return fmt.Errorf("soft limit of %d bytes over a hard one of %d: %w", l.SoftBytes, l.HardBytes, ErrInvalid)
	}
	if _, known := m.bounds[at]; !known && len(m.bounds) >= m.limits.Processes {
		return fmt.Errorf("limit on GPU %d: %w", card, ErrLimit)
	}
	m.bounds[at] = l
	return nil
}

// LimitOf returns the limit of a control group on a card and what its processes hold.
func (m *Machine) LimitOf(card int, group string) (Limit, uint64) {
	l, ok := m.bounds[limited{card: card, group: group}]
	if !ok {
		l = NoLimit()
	}
	return l, m.heldBy(card, group)
}

// HasLimits says whether it matters which group a process is in.
func (m *Machine) HasLimits() bool { return len(m.bounds) > 0 }

// Place says which control group a process is in now.
func (m *Machine) Place(id ProcessID, group string) {
	if p, ok := m.processes[id]; ok {
		p.group = group
	}
}

// Cap bounds what one process may hold of a card.
func (m *Machine) Cap(id ProcessID, card int, bytes uint64) error {
	p, err := m.find(id, card)
	if err == nil {
		p.caps[card] = bytes
	}
	return err
}

// within says whether a process is in a group or below it.
func (p *process) within(group string) bool {
	return p.group == group || strings.HasPrefix(p.group, group+"/")
}

// TotalFor is the most that the control groups of a process let it hold of a card.
func (m *Machine) TotalFor(id ProcessID, card int) uint64 {
	total := NoLimit().HardBytes
	if p, ok := m.processes[id]; ok {
		for at, l := range m.bounds {
			if at.card == card && p.within(at.group) {
				total = min(total, l.HardBytes)
			}
		}
	}
	return total
}

func (m *Machine) heldBy(card int, group string) uint64 {
	var held uint64
	for _, p := range m.processes {
		if p.within(group) {
			held += p.usage[card].Bytes
		}
	}
	return held
}

// allowance is what its bounds leave a process of a card, and the one that leaves
// least.
func (m *Machine) allowance(p *process, card int) (free uint64, bound string) {
	free = math.MaxUint64
	narrow := func(limit, held uint64, name string) {
		if left := limit - min(limit, held); left < free || left == free && name < bound {
			free, bound = left, name
		}
	}
	if most, ok := p.caps[card]; ok {
		narrow(most, p.usage[card].Bytes, fmt.Sprintf("the cap of process %d", p.pid))
	}
	for at, l := range m.bounds {
		if at.card == card && p.within(at.group) {
			narrow(l.HardBytes, m.heldBy(card, at.group), "the limit of control group "+at.group)
		}
	}
	return free, bound
}
