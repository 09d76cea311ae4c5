// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"math"
	"math/bits"
)

// lowest returns the first count cards of mask.
func lowest(mask uint32, count int) uint32 {
	var out uint32
	for range count {
		bit := mask & -mask
		out |= bit
		mask &^= bit
	}
	return out
}

func cardsOf(mask uint32) []int {
	out := make([]int, 0, MaxCards)
	for ; mask != 0; mask &= mask - 1 {
		out = append(out, bits.TrailingZeros32(mask))
	}
	return out
}

// single reports whether the class takes a part of one card, so that which
// card matters.
func (k *class) single() bool { return k.gpus == 1 && k.milli != WholeCard }

// tightest returns the card of mask with the least free cores, earlier cards
// first, as a spot.
func (n *node) tightest(mask uint32, k *class) Spot {
	best, least := -1, int32(math.MaxInt32)
	for m := mask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m)
		if n.cards[i].milli < least {
			best, least = i, n.cards[i].milli
		}
	}
	return Spot{Cards: 1 << best, Start: n.cards[best].start(k.profile)}
}

// simple is a policy whose node score depends on the free amounts alone and
// whose card is the tightest that fits.
type simple struct {
	name  string
	score func(n *node, k *class, freeMilli int64) float64
}

func (s simple) Name() string { return s.name }

func (s simple) rate(n *node, k *class) pick {
	mask, ok := n.candidates(k)
	if !ok {
		return pick{}
	}
	p := pick{fits: true, score: s.score(n, k, n.freeMilli())}
	if k.single() {
		p.spot = n.tightest(mask, k)
	} else {
		p.spot.Cards = n.together(mask, k.gpus)
	}
	return p
}

// Reference sizes that the baselines divide by (the largest node of the public
// trace): 128 cores and 8 cards.
const (
	referenceCPUMilli = 128000
	referenceGPUMilli = 8 * WholeCard
)

// NewBestFit returns the policy that leaves the least CPU and GPU on the node:
// the smallest mean of both, each over the reference size.
func NewBestFit() Policy {
	return simple{"bestfit", func(n *node, k *class, free int64) float64 {
		return -(0.5*float64(n.cpu-k.cpu)/referenceCPUMilli + 0.5*float64(free-k.demand)/referenceGPUMilli)
	}}
}

// NewDotProduct returns the policy that takes the node whose free amounts are
// least aligned with the request: the smallest dot product of both, over the
// reference size, on the scheduler's scale of 0 to 100 whole points.
func NewDotProduct() Policy {
	return simple{"dotprod", func(n *node, k *class, free int64) float64 {
		cpu := float64(n.cpu) / referenceCPUMilli * float64(k.cpu) / referenceCPUMilli
		gpu := float64(free) / referenceGPUMilli * float64(k.demand) / referenceGPUMilli
		return -math.Floor(100 * (cpu + gpu) / 2)
	}}
}

// NewPack returns the policy that prefers a used card, then a free card on a
// used node, then a free node.
func NewPack() Policy {
	return simple{"pack", func(n *node, k *class, free int64) float64 {
		used := int64(len(n.cards))*WholeCard - free
		switch {
		case len(n.cards) == 0:
			return 3
		case used == 0:
			return 0
		}
		p := float64(used) / float64(len(n.cards)*WholeCard)
		for i := range n.cards {
			if k.single() && n.cards[i].milli != WholeCard && n.cards[i].hosts(k) {
				return 2 + p
			}
		}
		return 1 + p
	}}
}

// NewSpread returns the policy that takes the emptiest node, and on it the
// emptiest card.
func NewSpread() Policy { return spread{} }

type spread struct{}

func (spread) Name() string { return "spread" }

func (spread) rate(n *node, k *class) pick {
	mask, ok := n.candidates(k)
	if !ok {
		return pick{}
	}
	p := pick{fits: true, spot: Spot{Cards: n.together(mask, k.gpus)}}
	if len(n.cards) > 0 {
		p.score = float64(n.freeMilli()) / float64(len(n.cards)*WholeCard)
	}
	if k.single() {
		best := Emptiest(n.vacancies(mask)).Card
		p.spot = Spot{Cards: 1 << best, Start: n.cards[best].start(k.profile)}
	}
	return p
}

// NewRandom returns the baseline that draws a node and a card uniformly.
func NewRandom() Policy { return randomPolicy{} }

type randomPolicy struct{}

func (randomPolicy) Name() string { return "random" }

func (randomPolicy) rate(*node, *class) pick { return pick{} }
