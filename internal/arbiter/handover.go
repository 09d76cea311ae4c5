// SPDX-License-Identifier: Apache-2.0

package arbiter

import "time"

// handover is how long before a share's work ends the next one is admitted.
//
// On a host with other work, the caller's timer and the programs wake late, and
// the card would run dry between two turns. By how much they were late lately is
// added, so that the next one's work queues behind the last of the one before, or
// runs beside it.
type handover struct {
	before time.Duration
	least  time.Duration
	most   time.Duration
}

// handoverFades is in how many turns, about, a late one is forgotten.
const handoverFades = 64

func newHandover(c Config) handover {
	return handover{before: c.Handover, least: c.Handover, most: max(c.Handover, c.Quantum/2)}
}

// note takes how late the first launch of a turn came.
func (h *handover) note(late time.Duration) {
	known := h.before - h.least
	h.before = min(h.least+max(late, known-known/handoverFades), h.most)
}

// endTurn takes note of how late the last turn began, when the next one's begins.
func (a *Arbiter) endTurn() {
	if a.last != nil && a.last.turn.handed {
		a.handover.note(a.last.turn.late)
	}
}
