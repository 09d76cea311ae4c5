// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"slices"
)

// Vacancy is what is left of one card of a node.
type Vacancy struct {
	Card        int // of the node
	GPUMilli    int64
	MemoryBytes uint64
}

// Hosts says whether a part of a card fits.
func (v Vacancy) Hosts(milli int64, bytes uint64) bool {
	return v.GPUMilli >= milli && v.MemoryBytes >= bytes
}

// Emptiest returns what is left of the emptiest card, as spread takes it for a part of
// a card: the one with the most memory, then with the most cores, then the first.
// There must be one.
func Emptiest(cards []Vacancy) Vacancy {
	return slices.MaxFunc(cards, func(a, b Vacancy) int {
		return cmp.Or(cmp.Compare(a.MemoryBytes, b.MemoryBytes), cmp.Compare(a.GPUMilli, b.GPUMilli))
	})
}

// vacancies are those of the cards of mask.
func (n *node) vacancies(mask uint32) []Vacancy {
	all := make([]Vacancy, 0, MaxCards)
	for _, i := range cardsOf(mask) {
		all = append(all, Vacancy{Card: i, GPUMilli: int64(n.cards[i].milli), MemoryBytes: uint64(n.cards[i].memory) << 20})
	}
	return all
}
