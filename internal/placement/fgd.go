// SPDX-License-Identifier: Apache-2.0

package placement

import "math"

// NewFGD returns fragmentation gradient descent as published: the node whose
// fragment grows least, scores quantised to 0..100 by a sigmoid over
// thousandths of a card, ties to the smallest node name. The quantisation is
// part of the policy: exact scores let tiny differences override consolidation.
func NewFGD(w *Workload) Policy { return fgd{w} }

type fgd struct{ workload *Workload }

func (fgd) Name() string { return "fgd" }

func (p fgd) rate(n *node, k *class) pick {
	best := p.workload.descend(n, k, func(_ *node, gradient float64, _ Spot) float64 { return gradient })
	if best.fits {
		best.score = math.Floor(100 / (1 + math.Exp(-best.score/WholeCard)))
	}
	return best
}

// descend tries the class on every distinct card of the node that can take it
// and returns the spot that value rates highest. The gradient is F before
// minus F after, in thousandths of a card; value sees the node as it would be.
func (w *Workload) descend(n *node, k *class, value func(after *node, gradient float64, spot Spot) float64) pick {
	mask, ok := n.candidates(k)
	if !ok {
		return pick{}
	}
	before := w.fragment(n)
	version := n.version
	best := pick{}
	try := func(spot Spot) {
		n.take(k, spot)
		v := value(n, before-w.fragment(n), spot)
		n.giveBack(k, spot)
		if !best.fits || v > best.score {
			best = pick{score: v, spot: spot, fits: true}
		}
	}
	if !k.single() {
		try(Spot{Cards: lowest(mask, k.gpus)})
		n.version = version
		return best
	}
	var seen [MaxCards]card
	count := 0
next:
	for _, i := range cardsOf(mask) {
		for _, s := range seen[:count] {
			if s == n.cards[i] {
				continue next
			}
		}
		seen[count] = n.cards[i]
		count++
		try(Spot{Cards: 1 << i, Start: n.cards[i].partition.fits(k.profile)})
	}
	n.version = version
	return best
}
