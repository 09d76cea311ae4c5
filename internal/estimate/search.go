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

// trainingSplits lists the ways to divide cards that are worth a look.
func (q *Training) trainingSplits() []Split {
	a := q.Model.Arch
	if a == nil || !q.trainsAll() {
		if q.Cards == 1 {
			return []Split{{}}
		}
		return []Split{{ZeRO: 3}, {ZeRO: 1}}
	}
	var out []Split
	for _, tp := range powers(min(q.perMachine(), q.Cards)) {
		if a.Heads%tp != 0 || q.Cards%tp != 0 {
			continue
		}
		for pp := 1; pp <= a.Layers && tp*pp <= q.Cards; pp++ {
			if q.Cards%(tp*pp) != 0 || a.Layers%pp != 0 && pp&(pp-1) != 0 {
				continue
			}
			s := Split{TP: tp, PP: pp}
			if s.TP*s.PP == q.Cards {
				out = append(out, s)
				continue
			}
			s.ZeRO = 1
			out = append(out, s)
			if pp == 1 {
				s.ZeRO = 3
				out = append(out, s)
			}
		}
	}
	return out
}

// TrainBest looks for the split, micro-batch and level of recomputation that
// fit and are fastest. What the question fixes stays: a split other than zero,
// a micro-batch, a level.
func (e *Estimator) TrainBest(q Training) (TrainingResult, error) {
	splits := []Split{q.Split}
	if q.Split == (Split{}) {
		splits = q.trainingSplits()
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
			try.Split, try.MicroBatch, try.Measured = split, micro, nil
			if q.GlobalBatch > 0 && q.MicroBatch == 0 && micro > 1 && (try.replicas() == 0 || q.GlobalBatch%(try.replicas()*micro) != 0) {
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
	best.q.Measured = q.Measured
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
	for _, n := range q.cardCounts(mostTried) {
		q.Cards = n
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

// servingSplits lists the ways to divide cards among an engine's layers.
func (q *Serving) servingSplits() []Split {
	a := q.Model.Arch
	if a == nil {
		return []Split{{}}
	}
	var out []Split
	for _, tp := range powers(min(q.perMachine(), q.Cards)) {
		if a.Heads%tp != 0 || q.Cards%tp != 0 {
			continue
		}
		for pp := 1; pp <= a.Layers && tp*pp <= q.Cards; pp++ {
			if q.Cards%(tp*pp) == 0 && (pp == 1 || tp == min(q.perMachine(), q.Cards) || a.Heads%(2*tp) != 0) {
				out = append(out, Split{TP: tp, PP: pp})
			}
		}
	}
	return out
}

// ServeBest looks for the split that writes most tokens, of those that have
// room for what is asked.
func (e *Estimator) ServeBest(q Serving) (ServingResult, error) {
	if q.Split != (Split{}) {
		return e.Serve(q)
	}
	var best *ServingResult
	var at Split
	var first error
	for _, split := range q.servingSplits() {
		try := q
		try.Split, try.Measured = split, nil
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
	for _, n := range q.cardCounts(mostTried) {
		q.Cards = n
		if last, err = e.ServeBest(q); err == nil && last.enough(&q) {
			return last, nil
		}
	}
	return last, err
}
