// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"cmp"
	"slices"
)

// Normal is the Slow of a card that runs at full speed.
const Normal = 100

// MaxSlow bounds Slow, in percent.
const MaxSlow = 10_000

// Abort ends all kernels of a process on a card at now: the one that runs, and
// those that wait, each when what it comes after has ended. Their time is not
// taken any more. Ends that are decided already stay. Call Advance(now) before.
func (t *Timeline) Abort(id ProcessID, index int, now int64) {
	p, ok := t.processes[id]
	if !ok || p.queues[index] == nil {
		return
	}
	q, c := p.queues[index], &t.cards[index]
	c.release(p, q, max(now, t.advanced), now)
	*q = queue{later: heap{byReady: true}, busy: q.busy, kernels: q.kernels, done: q.done, window: q.window}
	if at, found := slices.BinarySearchFunc(c.members, id, compareID); found {
		c.members = slices.Delete(c.members, at, at+1)
	}
	var ready []*item
	for _, it := range p.items {
		if it.kind == Kernel && it.card == index {
			it.kind = Marker
			p.queued--
			if it.missing == 0 {
				ready = append(ready, it)
			}
		}
	}
	slices.SortFunc(ready, func(a, b *item) int { return cmp.Compare(a.seq, b.seq) })
	for _, it := range ready {
		t.complete(it, max(now, t.advanced, it.ready))
	}
}

// release takes a card away from a process, and back the time that was decided
// beyond now.
func (c *card) release(p *process, q *queue, at, now int64) {
	if c.owner != p {
		return
	}
	if from := max(now, c.sliceStart); c.at > from {
		c.account(q, from, c.at, -1)
	}
	c.at = min(c.at, at)
	c.owner, c.sliceEnd = nil, c.at
}

// Slow says how long kernels take on a card from now on, in percent of what they
// should: what has been submitted and has not run yet takes as much longer. Call
// Advance(now) before.
func (t *Timeline) Slow(index int, percent int64) {
	c := &t.cards[index]
	percent = min(max(percent, Normal), MaxSlow)
	before := c.slowPercent()
	for _, p := range c.members {
		for _, it := range p.items {
			if it.kind == Kernel && it.card == index {
				it.remaining = scale(it.remaining, percent, before)
			}
		}
	}
	c.slow = percent
}

func (c *card) slowPercent() int64 { return max(c.slow, Normal) }

// scale is ns*numerator/denominator, at least 1 and at most what sums can bear.
// The largest is an hour times MaxSlow, far from overflow.
func scale(ns, numerator, denominator int64) int64 {
	if numerator == denominator {
		return ns
	}
	return max(1, min(ns, maxDuration*MaxSlow/Normal)/denominator*numerator+ns%denominator*numerator/denominator)
}
