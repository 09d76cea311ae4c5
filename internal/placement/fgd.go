// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"math"
	"math/bits"
)

// NewFGD returns fragmentation gradient descent as published: the node whose
// fragment grows least, scores quantised to 0..100 by a sigmoid over
// thousandths of a card, ties to the smallest node name. The quantisation is
// part of the policy: exact scores let tiny differences override consolidation.
func NewFGD(w *Workload) Policy { return fgd{w} }

type fgd struct{ workload *Workload }

func (fgd) Name() string { return "fgd" }

func (p fgd) rate(n *node, k *class) pick {
	best := p.workload.descend(n, k, func(_ *node, _ card, gradient float64, _ Spot) float64 { return gradient })
	if best.fits {
		best.score = math.Floor(100 / (1 + math.Exp(-best.score/WholeCard)))
	}
	return best
}

// descend tries the class on every distinct card of the node that can take it
// and returns the spot that value rates highest. The gradient is F before
// minus F after, in thousandths of a card; value sees the node as it would be and
// the first chosen card as it was.
func (w *Workload) descend(n *node, k *class, value func(after *node, was card, gradient float64, spot Spot) float64) pick {
	mask, ok := n.candidates(k)
	if !ok {
		return pick{}
	}
	before := w.current(n)
	version := n.version
	best := pick{}
	try := func(spot Spot) {
		var was card
		if spot.Cards != 0 {
			was = n.cards[bits.TrailingZeros32(spot.Cards)]
		}
		n.change(k, spot, -1)
		v := value(n, was, before-w.fragment(n), spot)
		n.change(k, spot, +1)
		n.version = version
		if !best.fits || v > best.score {
			best = pick{score: v, spot: spot, fits: true}
		}
	}
	if !k.single() {
		try(Spot{Cards: n.together(mask, k.gpus)})
		return best
	}
	for m := mask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m)
		if n.twin(i, mask) {
			continue
		}
		try(Spot{Cards: 1 << i, Start: n.cards[i].start(k.profile)})
	}
	return best
}

// twin reports whether an earlier card of mask is in the same state as card i,
// so that trying both would be trying one twice.
func (n *node) twin(i int, mask uint32) bool {
	for m := mask & (1<<i - 1); m != 0; m &= m - 1 {
		if n.cards[bits.TrailingZeros32(m)] == n.cards[i] {
			return true
		}
	}
	return false
}
