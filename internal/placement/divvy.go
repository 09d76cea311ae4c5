// SPDX-License-Identifier: Apache-2.0

package placement

import "math/bits"

// Weights are the settings of the divvy policy: what a placement costs.
type Weights struct {
	Gradient float64 // gain per card by which the workload's expected fragment shrinks

	Stock    float64 // per card's worth of shares that the chosen card can no longer hold
	Leftover float64 // per card left on the chosen card: decides where worths are equal

	Stranded float64 // per card that lack of CPU newly strands on the node
	Surplus  float64 // per card's worth of CPU that newly has no card beside it

	// Best fit: per 128 cores left on the node, by kind of request.
	PartFreeCPU  float64
	WholeFreeCPU float64
	PlainFreeCPU float64

	Split float64 // per island beyond the first that a request's cards lie on
}

// defaultWeights were found by a random search on seeds 142 to 147 of the
// public workloads default and gpuspec25, and rounded; see docs/placement.md.
var defaultWeights = Weights{
	Gradient:     0.12,
	Stock:        4,
	Leftover:     0.1,
	Stranded:     1,
	Surplus:      0.05,
	PartFreeCPU:  0.07,
	WholeFreeCPU: 0.13,
	PlainFreeCPU: 0.085,
	Split:        0.2, // set, not found: the public lists tell no islands
}

// DefaultWeights returns the weights that NewDivvy uses.
func DefaultWeights() Weights { return defaultWeights }

// NewDivvy returns our policy. Parts of cards are placed at the prices of an
// optimal plan for the workload's shares (stock), so that what is left beside
// them stays useful; CPU is kept for the cards that need it; the fragmentation
// gradient looks after card models, several cards and partitions. Scores are
// exact; ties go to the node order.
func NewDivvy(w *Workload) Policy { return divvy{w, defaultWeights} }

// NewDivvyWeights is NewDivvy with other weights, for tuning.
func NewDivvyWeights(w *Workload, s Weights) Policy { return divvy{w, s} }

type divvy struct {
	workload *Workload
	weights  Weights
}

func (divvy) Name() string { return "divvy" }

func (p divvy) rate(n *node, k *class) pick {
	if k.profile != "" {
		return p.ratePartition(n, k)
	}
	stranded, surplus := p.balance(n)
	return p.workload.descend(n, k, func(after *node, was card, gradient float64, spot Spot) float64 {
		w := &p.weights
		strandedAfter, surplusAfter := p.balance(after)
		score := w.Gradient*gradient/WholeCard -
			w.Stranded*max(0, strandedAfter-stranded) -
			w.Surplus*max(0, surplusAfter-surplus)
		freeCPU := float64(after.cpu) / referenceCPUMilli
		switch {
		case k.gpus == 0:
			return score - w.PlainFreeCPU*freeCPU
		case !k.single():
			return score - w.WholeFreeCPU*freeCPU - w.Split*float64(after.split(spot.Cards))
		}
		left := after.cards[bits.TrailingZeros32(spot.Cards)].milli
		if s := p.workload.stock; s != nil {
			score -= w.Stock * (s.of(was.milli) - s.of(left))
		}
		return score - w.PartFreeCPU*freeCPU - w.Leftover*float64(left)/WholeCard
	})
}

// balance returns the cards' worth of GPU that the node's CPU cannot feed, and
// the cards' worth of CPU that no GPU is left for, by the workload's mean of
// cores per card.
func (p divvy) balance(n *node) (stranded, surplus float64) {
	if p.workload.coresPerCard == 0 {
		return 0, 0
	}
	gpu := float64(n.freeMilli()) / WholeCard
	cpu := float64(n.cpu) / 1000 / p.workload.coresPerCard
	return max(0, gpu-cpu), max(0, cpu-gpu)
}

// ratePartition rates a MIG partition by what it closes: the (profile, start)
// pairs that were open on the card and are not any more, weighed by slices.
// Among equals the fuller card wins.
func (p divvy) ratePartition(n *node, k *class) pick {
	return p.workload.descend(n, k, func(after *node, was card, _ float64, spot Spot) float64 {
		is := &after.cards[bits.TrailingZeros32(spot.Cards)]
		closed := was.layout.Room() - is.layout.Room()
		return -float64(closed) - float64(is.milli)/(2*WholeCard)
	})
}
