// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"fmt"
	"slices"
)

// Link lets a gate of one process end with an item of another, instead of by
// Signal: how processes wait for each other's events. Call Advance(now) before.
func (t *Timeline) Link(id ProcessID, gate uint64, other ProcessID, seq uint64) error {
	p, ok := t.processes[id]
	if !ok || (other == id && seq >= gate) {
		return fmt.Errorf("link of process %d to process %d: %w", id, other, ErrInvalid)
	}
	it, ok := p.items[gate]
	if !ok || it.kind != Gate || it.signalled {
		return fmt.Errorf("link of item %d, which is no open gate: %w", gate, ErrInvalid)
	}
	place := slices.Index(it.after[:], nil)
	if place < 0 {
		return fmt.Errorf("link of item %d, which comes after %d others: %w", gate, MaxAfter, ErrInvalid)
	}
	q, ok := t.processes[other]
	if !ok || seq == 0 || seq > q.last {
		return t.Signal(id, gate, t.advanced) // gone, with all it had to do
	}
	target, undecided := q.items[seq]
	if !undecided {
		return t.Signal(id, gate, q.ahead[seq])
	}
	if target.reaches(it, t) {
		return fmt.Errorf("item %d of process %d comes after the gate: %w", seq, other, ErrInvalid)
	}
	it.signalled, it.linked = true, true
	it.after[place] = target // takes the place of the signal among what is missing
	target.before = append(target.before, it)
	return nil
}

// reaches says whether an item comes after another one, which then cannot come
// after it.
func (it *item) reaches(wanted *item, t *Timeline) bool {
	t.visit++
	stack := []*item{it}
	for len(stack) > 0 {
		next := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if next == wanted {
			return true
		}
		if next.visit == t.visit {
			continue
		}
		next.visit = t.visit
		for _, before := range next.after {
			if before != nil {
				stack = append(stack, before)
			}
		}
	}
	return false
}

// unlink lets go of what other processes' gates wait for, at the end of a process,
// and says whether there were any.
func (t *Timeline) unlink(p *process, now int64) (awaited bool) {
	for _, it := range p.items {
		for _, next := range it.before {
			if next.process != p {
				t.release(next, it, now)
				awaited = true
			}
		}
		for _, before := range it.after {
			if before != nil && before.process != p {
				before.before = slices.DeleteFunc(before.before, func(b *item) bool { return b == it })
			}
		}
	}
	return awaited
}

// release takes one thing away that an item comes after; it ended at a time.
func (t *Timeline) release(next, it *item, end int64) {
	next.ready = max(next.ready, end)
	for i := range next.after {
		if next.after[i] == it {
			next.after[i] = nil
			next.missing--
			break
		}
	}
	if next.missing == 0 {
		t.resolve(next)
	}
}
