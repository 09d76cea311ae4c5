// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"cmp"
	"slices"
)

// Powers of two up to a number.
func powers(most int) []int {
	var out []int
	for n := 1; n <= most; n *= 2 {
		out = append(out, n)
	}
	return out
}

// or gives what is fixed, or all that may be tried.
func or(fixed int, all []int) []int {
	if fixed > 0 {
		return []int{fixed}
	}
	return all
}

// trainingSplits lists the ways to divide cards that are worth a look, with what
// the question fixes as it is.
func (q *Training) trainingSplits() []Split {
	a, fixed := q.Model.Arch, q.Split
	stages := func(s Split, all ...int) []Split {
		if fixed.ZeRO > 0 || q.SplitZeRO {
			all = []int{fixed.ZeRO}
		}
		var out []Split
		for _, z := range all {
			s.ZeRO = z
			out = append(out, s)
		}
		return out
	}
	if a == nil || !q.trainsAll() && fixed.TP+fixed.PP+fixed.CP+fixed.EP == 0 {
		if q.Cards == 1 {
			return stages(fixed, 0)
		}
		return stages(fixed, 3, 1)
	}
	var out []Split
	cp := max(fixed.CP, 1)
	for _, tp := range or(fixed.TP, powers(min(q.perMachine(), q.Cards))) {
		if fixed.TP == 0 && (a.Heads%tp != 0 || q.Cards%tp != 0) {
			continue
		}
		var pipelines []int
		for pp := 1; pp <= a.Layers && tp*pp*cp <= q.Cards; pp++ {
			if q.Cards%(tp*pp*cp) == 0 && (a.Layers%pp == 0 || pp&(pp-1) == 0) {
				pipelines = append(pipelines, pp)
			}
		}
		for _, pp := range or(fixed.PP, pipelines) {
			s := Split{TP: tp, PP: pp, CP: fixed.CP, EP: fixed.EP}
			switch {
			case tp*pp*cp >= q.Cards:
				out = append(out, stages(s, 0)...)
			case pp > 1:
				out = append(out, stages(s, 1)...)
			default:
				out = append(out, stages(s, 1, 3)...)
			}
		}
	}
	return out
}

// TrainBest looks for the split, micro-batch and level of recomputation that
// fit and are fastest. What the question fixes stays.
func (e *Estimator) TrainBest(q Training) (TrainingResult, error) {
	if q.Model == nil || q.Model.Validate() != nil || q.Cards < 1 || q.Cards > mostCards {
		return e.Train(q) // which says what is wrong
	}
	splits := q.trainingSplits()
	if len(splits) == 0 {
		splits = []Split{q.Split} // which says what does not divide
	}
	type found struct {
		q Training
		r TrainingResult
	}
	var best *found
	var first error
	better := func(a, b TrainingResult) bool {
		if fitA, fitB := a.Memory.Fits != FitsNot, b.Memory.Fits != FitsNot; fitA != fitB {
			return fitA
		}
		if a.Memory.Fits != FitsNot && a.Timed {
			return a.Rate.Mid > b.Rate.Mid*1.001
		}
		return a.Memory.Total.Mid < b.Memory.Total.Mid
	}
	for _, split := range splits {
		micros := []int{q.MicroBatch}
		if q.MicroBatch == 0 {
			micros = []int{1, 2, 4, 8}
		}
		for _, micro := range micros {
			try := q
			try.Split, try.MicroBatch = split, micro
			if q.GlobalBatch > 0 && q.MicroBatch == 0 && micro > 1 && q.GlobalBatch%(max(try.replicas(), 1)*micro) != 0 {
				continue
			}
			r, _, err := e.train(try, true)
			if err != nil {
				first = cmp.Or(first, err)
				continue
			}
			if best == nil || better(r, best.r) {
				best = &found{try, r}
			}
		}
	}
	if best == nil {
		return TrainingResult{}, first
	}
	return e.Train(best.q)
}

// cardCounts is how many cards are tried, smallest first: powers of two within
// a machine, then whole machines.
func (s *Setup) cardCounts(most int) []int {
	counts := powers(min(s.perMachine(), most))
	for n := 2 * s.perMachine(); n <= most; n += s.perMachine() {
		counts = append(counts, n)
		if n >= 16*s.perMachine() {
			n += n - s.perMachine()
		}
	}
	return slices.Compact(counts)
}

// mostTried bounds a search for cards.
const mostTried = 4096

// TrainFewest looks for the smallest number of cards on which training fits.
func (e *Estimator) TrainFewest(q Training) (TrainingResult, error) {
	var last TrainingResult
	var err error
	counts := q.cardCounts(mostTried)
	for i, n := range counts {
		q.Cards = n
		if i < len(counts)-1 && q.surelyTooFew(&e.K) {
			continue
		}
		try := q
		if q.GlobalBatch > 0 && q.GlobalBatch < n {
			try.GlobalBatch = 0
		}
		if last, err = e.TrainBest(try); err == nil && last.Memory.Fits != FitsNot {
			return last, nil
		}
	}
	return last, err
}

// surelyTooFew says that not even states shared among all cards would fit.
func (q *Training) surelyTooFew(k *Constants) bool {
	if q.Card == nil || q.Model.Validate() != nil || q.OffloadState || q.OffloadAll {
		return false
	}
	opt, params := q.optimizer(), float64(q.Model.Total())
	least := q.Format.WeightBytes(q.Model)
	if q.trainsAll() {
		least = params * q.weightBytes()
		if !opt.paged {
			least += params * opt.state
		}
	}
	return least/float64(q.Cards) > q.Card.visible(k).High
}

// servingSplits lists the ways to divide cards among an engine's layers.
func (q *Serving) servingSplits() []Split {
	a, fixed := q.Model.Arch, q.Split
	if a == nil {
		return []Split{fixed}
	}
	var out []Split
	for _, tp := range or(fixed.TP, powers(min(q.perMachine(), q.Cards))) {
		if fixed.TP == 0 && (a.Heads%tp != 0 || q.Cards%tp != 0) {
			continue
		}
		var pipelines []int
		for pp := 1; pp <= a.Layers && tp*pp <= q.Cards; pp++ {
			if q.Cards%(tp*pp) == 0 && (pp == 1 || tp == min(q.perMachine(), q.Cards) || a.Heads%(2*tp) != 0) {
				pipelines = append(pipelines, pp)
			}
		}
		for _, pp := range or(fixed.PP, pipelines) {
			out = append(out, Split{TP: tp, PP: pp, EP: fixed.EP, CP: fixed.CP, ZeRO: fixed.ZeRO})
		}
	}
	return out
}

// ServeBest looks for the split that writes most tokens, of those that have
// room for what is asked.
func (e *Estimator) ServeBest(q Serving) (ServingResult, error) {
	if q.Model == nil || q.Model.Validate() != nil || q.Cards < 1 || q.Cards > mostCards {
		return e.Serve(q) // which says what is wrong
	}
	var best *ServingResult
	var at Split
	var first error
	splits := q.servingSplits()
	if len(splits) == 0 {
		splits = []Split{q.Split}
	}
	for _, split := range splits {
		try := q
		try.Split = split
		r, err := e.serve(try, true)
		if err != nil {
			first = cmp.Or(first, err)
			continue
		}
		if best == nil || betterServing(&q, r, *best) {
			best, at = &r, split
		}
	}
	if best == nil {
		return ServingResult{}, first
	}
	q.Split = at
	return e.Serve(q)
}

func (r *ServingResult) enough(q *Serving) bool {
	return r.Memory.Fits != FitsNot && (q.Card == nil || q.Model.Arch == nil || r.Sequences >= max(q.Concurrency, 1))
}

func betterServing(q *Serving, a, b ServingResult) bool {
	if ea, eb := a.enough(q), b.enough(q); ea != eb {
		return ea
	}
	if a.Timed != b.Timed {
		return a.Timed
	}
	if !a.Timed {
		return a.Memory.Total.Mid < b.Memory.Total.Mid
	}
	if q.Concurrency > 0 { // all are served: the sooner the better
		return a.Request.Mid < b.Request.Mid*0.999
	}
	return a.Rate.Mid > b.Rate.Mid*1.001
}

// ServeFewest looks for the smallest number of cards that have room.
func (e *Estimator) ServeFewest(q Serving) (ServingResult, error) {
	var last ServingResult
	var err error
	counts := q.cardCounts(mostTried)
	for i, n := range counts {
		q.Cards = n
		if q.Card != nil && q.Model != nil && q.Model.Validate() == nil && i < len(counts)-1 && q.Format.WeightBytes(q.Model)/float64(n) > q.Card.visible(&e.K).High {
			continue // not even the weights, shared among all cards
		}
		if last, err = e.ServeBest(q); err == nil && last.enough(&q) {
			return last, nil
		}
	}
	return last, err
}
