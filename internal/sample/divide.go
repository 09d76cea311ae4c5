// SPDX-License-Identifier: Apache-2.0

package sample

import "time"

// Claim is what a share's processes measured of a card in some time, and in how many percent
// of that their kernels ran by the driver's account; 0: it does not show them. Had is what part
// of what they measured they had the last time that it did, 0: it never has.
type Claim struct {
	Measured time.Duration
	Percent  float64
	Had      float64
}

// rough is by how many percent what a driver says in whole ones may be off, and the moments of
// which it is.
const rough = 2

// Divide says how much of the time that passed on a card each had which takes turns between
// programs by itself. A program measures from its kernels' begin to their end, and what ran of
// others meanwhile with it; or what ended only now. So where several ran, and what they measured
// is not what the driver says of each, the driver is believed; its percents are whole ones, and what they
// lack of the time that the card was busy is theirs that it does not show any more. busy is
// in how many percent of the time some kernel ran, less than 0: not known; others are percents
// of processes that claim nothing.
func Divide(passed time.Duration, busy, others float64, claims []Claim) []time.Duration {
	had := make([]time.Duration, len(claims))
	all, parties, claiming, measured, hidden := others, 0, 0, time.Duration(0), time.Duration(0)
	if others > 0 {
		parties++
	}
	for i, c := range claims {
		had[i] = max(c.Measured, 0)
		measured += had[i]
		all += c.Percent
		if c.Percent > 0 {
			parties++
		} else {
			if c.Had > 0 && c.Had < 1 {
				had[i] = time.Duration(float64(had[i]) * c.Had) // it has ended since
			}
			hidden += had[i]
		}
		if c.Measured > 0 {
			claiming++
		}
	}
	if busy < 0 || busy > 100 {
		busy = 100
	}
	part := func(percent float64) time.Duration { return time.Duration(float64(passed) * percent / 100) }
	agrees := measured <= part(busy-others+rough)
	for i, c := range claims {
		agrees = agrees && had[i] >= part(c.Percent-rough)
	}
	switch {
	case max(parties, claiming) < 2 || agrees:
		return had // of one alone, what is counted late counts
	case parties == 0: // it shows none
		for i := range had {
			if most := part(busy); hidden > most {
				had[i] = time.Duration(float64(had[i]) * float64(most) / float64(hidden))
			}
		}
		return had
	}
	scale := 1.0
	if off := busy - all; off < float64(parties) || hidden == 0 {
		scale = busy / all // by rounding alone
	}
	left := max(part(busy-all*scale), part(0.5)) // what rounds to nothing
	for i, c := range claims {
		if c.Percent > 0 {
			had[i] = part(c.Percent * scale)
		} else if hidden > left {
			had[i] = time.Duration(float64(had[i]) * float64(left) / float64(hidden))
		}
	}
	return had
}
