// SPDX-License-Identifier: Apache-2.0

package timeline

// Decided returns the ends that were decided since the last call; the list is
// the caller's until the next Submit, Signal or Advance.
func (t *Timeline) Decided(id ProcessID) []Decision {
	p, ok := t.processes[id]
	if !ok {
		return nil
	}
	list := p.decided
	p.decided = p.decided[:0]
	return list
}

// Floor returns the number up to which all items are decided, and the latest
// end of all that are.
func (t *Timeline) Floor(id ProcessID) (seq uint64, latestNS int64) {
	if p, ok := t.processes[id]; ok {
		return p.floor, p.latest
	}
	return 0, 0
}

// Outlook is what is known of the end of an item, or of all up to it.
type Outlook struct {
	AtNS    int64
	Decided bool // that is when; else it cannot be before, whatever others do
	Gated   bool // and hangs on a gate
}

// Outlook looks ahead. An item that was never submitted is gated.
func (t *Timeline) Outlook(id ProcessID, seq uint64, all bool) Outlook {
	p, ok := t.processes[id]
	if !ok || seq > p.last {
		return Outlook{AtNS: t.advanced, Gated: true}
	}
	if _, undecided := p.items[seq]; !undecided && (!all || p.floor >= seq) {
		return Outlook{AtNS: p.endOf(seq, all, t.advanced), Decided: true}
	}
	// The kernels it comes after and itself, each card's one after the other.
	t.visit++
	need := make([]int64, len(t.cards))
	var stack []*item
	look := func(it *item) {
		if it != nil && it.visit != t.visit {
			it.visit = t.visit
			stack = append(stack, it)
		}
	}
	look(p.items[seq])
	if all {
		for s, it := range p.items {
			if s <= seq {
				look(it)
			}
		}
	}
	out := Outlook{AtNS: t.advanced}
	for len(stack) > 0 {
		it := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		switch it.kind {
		case Kernel:
			need[it.card] += it.remaining
		case Gate:
			out.Gated = out.Gated || !it.linked
		}
		for _, before := range it.after {
			look(before)
		}
	}
	for i, ns := range need {
		if ns > 0 {
			out.AtNS = max(out.AtNS, max(t.cards[i].at, t.advanced)+ns)
		}
	}
	return out
}

// endOf is a decided end, or now if it is past.
func (p *process) endOf(seq uint64, all bool, now int64) int64 {
	if !all {
		return max(now, p.ahead[seq])
	}
	for s, end := range p.ahead {
		if s <= seq {
			now = max(now, end)
		}
	}
	return now
}

// overNS is how far a process's time on a card is decided beyond now.
func (c *card) overNS(p *process, now int64) int64 {
	if c.owner != p {
		return 0
	}
	return max(0, c.at-max(now, c.sliceStart))
}

// Usage is what a process has had of a card until the last Advance.
func (t *Timeline) Usage(id ProcessID, index int) (Usage, bool) {
	p, ok := t.processes[id]
	if !ok || p.queues[index] == nil {
		return Usage{}, false
	}
	q := p.queues[index]
	return Usage{
		BusyNS: q.busy - t.cards[index].overNS(p, t.advanced), Kernels: q.kernels, Queued: q.queued,
		Percent: q.window.percent(t.advanced), Instructions: q.done,
	}, true
}

// Card returns how long a card was busy until the last Advance, and the percent
// of the last WindowNS.
func (t *Timeline) Card(index int) (busyNS int64, percent int) {
	c := &t.cards[index]
	busyNS = c.busy
	if c.owner != nil {
		busyNS -= c.overNS(c.owner, t.advanced)
	}
	return busyNS, c.window.percent(t.advanced)
}
