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
	Island      int    // cards of one number are linked
	Model       string // of the card
}

// Hosts says whether a part of a card fits.
func (v Vacancy) Hosts(milli int64, bytes uint64) bool {
	return v.GPUMilli >= milli && v.MemoryBytes >= bytes
}

// emptier orders cards by what is left of them: memory, then cores.
func emptier(a, b Vacancy) int {
	return cmp.Or(cmp.Compare(a.MemoryBytes, b.MemoryBytes), cmp.Compare(a.GPUMilli, b.GPUMilli))
}

// Emptiest returns what is left of the emptiest card, as spread takes it for a part of
// a card: the one with the most memory, then with the most cores, then the first.
// There must be one.
func Emptiest(cards []Vacancy) Vacancy { return slices.MaxFunc(cards, emptier) }

// Together chooses count of the cards, a part of each of which is wanted by one program:
// linked with each other as far as can be, then of one model, then the emptiest, of
// which the fullest counts. With one it is the Emptiest. There must be so many; they are
// returned in their order.
func Together(cards []Vacancy, count int) []Vacancy {
	best := linked(cards, count)
	for _, model := range distinct(cards, func(v Vacancy) string { return v.Model }) {
		alike := slices.DeleteFunc(slices.Clone(cards), func(v Vacancy) bool { return v.Model != model })
		if len(alike) < count {
			continue
		}
		if chosen := linked(alike, count); better(chosen, best) {
			best = chosen
		}
	}
	slices.SortFunc(best, func(a, b Vacancy) int { return cmp.Compare(a.Card, b.Card) })
	return best
}

// linked chooses the emptiest cards of one island, of those that are large enough the
// emptiest; or of as few islands as can be, the largest first.
func linked(cards []Vacancy, count int) []Vacancy {
	byIsland := map[int][]Vacancy{}
	islands := distinct(cards, func(v Vacancy) int { return v.Island })
	for _, v := range cards {
		byIsland[v.Island] = append(byIsland[v.Island], v)
	}
	var chosen []Vacancy
	for len(chosen) < count {
		wanted := count - len(chosen)
		var take []Vacancy
		for _, island := range islands {
			if some := emptiestOf(byIsland[island], wanted); larger(some, take) {
				take = some
			}
		}
		chosen = append(chosen, take...)
		islands = slices.DeleteFunc(islands, func(island int) bool { return island == take[0].Island })
	}
	return chosen
}

// emptiestOf are the emptiest cards, at most count, the emptiest first.
func emptiestOf(cards []Vacancy, count int) []Vacancy {
	sorted := slices.Clone(cards)
	slices.SortStableFunc(sorted, func(a, b Vacancy) int { return emptier(b, a) })
	return sorted[:min(count, len(sorted))]
}

// larger says whether more cards were found, or as many that are emptier.
func larger(a, b []Vacancy) bool {
	if len(a) != len(b) {
		return len(a) > len(b)
	}
	return slices.CompareFunc(fullestFirst(a), fullestFirst(b), emptier) > 0
}

// better says whether one choice of so many cards goes before another.
func better(a, b []Vacancy) bool {
	island, model := func(v Vacancy) int { return v.Island }, func(v Vacancy) string { return v.Model }
	if order := cmp.Or(cmp.Compare(len(distinct(a, island)), len(distinct(b, island))), cmp.Compare(len(distinct(a, model)), len(distinct(b, model)))); order != 0 {
		return order < 0
	}
	return larger(a, b)
}

func fullestFirst(cards []Vacancy) []Vacancy {
	sorted := slices.Clone(cards)
	slices.SortStableFunc(sorted, emptier)
	return sorted
}

// distinct are the values of cards, in their order.
func distinct[T comparable](cards []Vacancy, of func(Vacancy) T) (values []T) {
	for _, v := range cards {
		if value := of(v); !slices.Contains(values, value) {
			values = append(values, value)
		}
	}
	return values
}

// vacancies are those of the cards of mask.
func (n *node) vacancies(mask uint32) []Vacancy {
	all := make([]Vacancy, 0, MaxCards)
	for _, i := range cardsOf(mask) {
		all = append(all, Vacancy{Card: i, GPUMilli: int64(n.cards[i].milli), MemoryBytes: uint64(n.cards[i].memory) << 20})
	}
	return all
}
