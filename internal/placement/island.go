// SPDX-License-Identifier: Apache-2.0

package placement

import "math/bits"

// byIsland splits the cards of mask by island.
func (n *node) byIsland(mask uint32) (islands [MaxCards]uint32) {
	for m := mask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m)
		islands[n.cards[i].island] |= 1 << i
	}
	return islands
}

// together chooses count cards of mask that lie close: the island that keeps
// the fewest over, or, when none holds them all, as few islands as can be, the
// fullest of candidates first. Equals go to the lower number.
func (n *node) together(mask uint32, count int) uint32 {
	if len(n.cards) == 0 || count == 0 {
		return 0
	}
	islands := n.byIsland(mask)
	var out uint32
	for count > 0 {
		best := -1
		for i, m := range islands {
			if m != 0 && (best < 0 || closer(bits.OnesCount32(m), bits.OnesCount32(islands[best]), count)) {
				best = i
			}
		}
		if best < 0 {
			return out
		}
		take := lowest(islands[best], min(count, bits.OnesCount32(islands[best])))
		out |= take
		count -= bits.OnesCount32(take)
		islands[best] = 0
	}
	return out
}

// closer reports whether an island of a cards serves count better than one of
// b: enough before too few, then the least over or the least missing.
func closer(a, b, count int) bool {
	if (a >= count) != (b >= count) {
		return a >= count
	}
	if a >= count {
		return a < b
	}
	return a > b
}

// largestIsland keeps of mask what belongs to the island that together would
// choose count cards from; without an island that large it keeps too few.
func (n *node) largestIsland(mask uint32, count int) uint32 {
	best := uint32(0)
	for _, m := range n.byIsland(mask) {
		if m != 0 && (best == 0 || closer(bits.OnesCount32(m), bits.OnesCount32(best), count)) {
			best = m
		}
	}
	return best
}

// split returns how many islands beyond the first the cards lie on.
func (n *node) split(cards uint32) int {
	extra := -1
	for _, m := range n.byIsland(cards) {
		if m != 0 {
			extra++
		}
	}
	return max(0, extra)
}
