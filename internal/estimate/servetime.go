// SPDX-License-Identifier: Apache-2.0

package estimate

import "math"

// engine is one replica at work: everything is for it alone.
type engine struct {
	e *Estimator
	q *Serving
}

// touched is how many parameters inside the layers a step of so many tokens
// reads, and how many each token goes through.
func (q *Serving) touched(tokens float64) (read, through float64) {
	m, a := q.Model, q.Model.Arch
	p := a.parameters()
	head := float64(a.Vocab) * float64(a.Hidden)
	through = max(m.matmul()-head, 1)
	read = through
	if a.MoE != nil {
		chosen := float64(a.MoE.TopK) / float64(a.MoE.Experts)
		routed := float64(p.routed())
		read = through - routed*chosen + routed*(1-math.Pow(1-chosen, max(tokens, 1)))
	}
	return read, through
}

// products is the time of the matrix products of a pass of tokens, of which
// outputs need logits: weights are read while numbers are multiplied.
func (x engine) products(tokens, outputs float64) Range {
	q, e := x.q, x.e
	split := q.Split.normal()
	cards := float64(split.TP * split.PP)
	read, through := q.touched(tokens)
	head := float64(q.Model.Arch.Vocab) * float64(q.Model.Arch.Hidden)
	memory := e.K.bandwidth().times(q.Card.Bandwidth * 1e9)
	reading := exactly(read * q.Format.bytes / cards).per(memory)
	multiplying := exactly(2 * through * tokens / cards).per(e.rate(&q.Setup, q.Format.class))
	outside := outsideOf(q.Format.class)
	headReading := exactly(head * q.Format.rest / cards).per(memory)
	headMultiplying := exactly(2 * head * outputs / cards).per(e.rate(&q.Setup, outside))
	return reading.most(multiplying).plus(headReading.most(headMultiplying))
}

// between is what cards tell each other in a pass, and the launches of layers.
func (x engine) between(tokens float64) Range {
	q, e := x.q, x.e
	a, split := q.Model.Arch, q.Split.normal()
	layers := float64(a.Layers)
	t := e.K[cLatency].Range.times(layers)
	message := 2 * tokens * float64(a.Hidden)
	if split.TP > 1 && !q.Pipeline {
		one, _ := e.allReduce(&q.Setup, split.TP, 1, message)
		t = t.plus(one.times(2 * layers))
	}
	if split.PP > 1 {
		one, _ := e.gather(&q.Setup, 2, split.TP, 2*message)
		t = t.plus(one.times(float64(split.PP - 1)))
	}
	return t
}

// step is the time in which each of batch sequences, of context tokens, gets
// one token more.
func (x engine) step(batch, context float64) Range {
	q := x.q
	memory := x.e.K.bandwidth().times(q.Card.Bandwidth * 1e9)
	cache := exactly(batch * q.sequence(context)).per(memory)
	t := x.products(batch, batch).plus(cache)
	if p := float64(q.Split.normal().PP); p > 1 { // stages work in turn
		t = t.times(p)
	}
	if q.Pipeline {
		t = t.times(float64(q.Split.normal().TP))
	}
	return t.plus(x.between(batch)).plus(x.e.K[cSequence].Range.times(batch))
}

// prefill is the time to read a request of so many tokens.
func (x engine) prefill(tokens float64) Range {
	q := x.q
	a, split := q.Model.Arch, q.Split.normal()
	read := max(tokens-float64(q.Shared), 1)
	t := x.products(read, 1)
	span := a.attentionSpan(tokens, true)
	outside := outsideOf(q.Format.class)
	scores := 2 * float64(a.Layers) * a.scoreWidth() * span * read / float64(split.TP*split.PP)
	t = t.plus(exactly(scores).per(x.e.rate(&q.Setup, outside)))
	if p := float64(split.PP); p > 1 {
		t = t.times(p)
	}
	if q.Pipeline {
		t = t.times(float64(split.TP))
	}
	return t.plus(x.between(read))
}

// load is an engine with requests coming.
type load struct {
	first, between, request Range
	perSecond               Range // requests
}

// serve is the steady state of batch requests at work, in places of which more
// may wait.
//
// Prefills run between steps, so a token also waits for those of others: in the
// time in which a request writes, each of the others reads once. A request
// waits for prefills as in a queue with fixed service time, and for a place
// where there is none.
func (x engine) serve(pre, step Range, batch, waiting float64) load {
	out := float64(x.q.Out)
	var l load
	l.between = step.plus(pre.times(max(batch-1, 0) / out))
	solve := func(pre, step, between float64) (first, rate float64) {
		rate = batch / (pre + step + out*between)
		for range 60 {
			busy := min(rate*pre, 0.95)
			first = pre + step + pre*busy/(2*(1-busy))*min(1, max(batch-1, 0))
			next := batch / (first + (out-1)*between)
			rate = (rate + next) / 2
		}
		if waiting > 0 {
			first += waiting / rate
		}
		return first, rate
	}
	l.first.Low, l.perSecond.High = solve(pre.Low, step.Low, l.between.Low)
	l.first.Mid, l.perSecond.Mid = solve(pre.Mid, step.Mid, l.between.Mid)
	l.first.High, l.perSecond.Low = solve(pre.High, step.High, l.between.High)
	// A slower engine takes fewer requests, and these may wait less for others.
	l.first.Low, l.first.High = min(l.first.Low, l.first.Mid, l.first.High), max(l.first.Low, l.first.Mid, l.first.High)
	l.request = l.first.plus(l.between.times(out - 1))
	return l
}

// together is batch requests that start at once, and none follows.
func (x engine) together(pre, step Range, batch float64) load {
	pre = pre.times(batch)
	request := pre.plus(step.times(float64(x.q.Out)))
	return load{first: pre.plus(step), between: step, request: request, perSecond: exactly(batch).per(request)}
}

func (e *Estimator) serveTimes(q *Serving, s *sheet, r *ServingResult) {
	r.Timed = true
	x := engine{e, q}
	in, out := float64(q.In), float64(q.Out)
	replicas := e.replicasOf(q)
	batch := max(r.Sequences/replicas, 1)
	pre := s.add(Term{Name: "prefill", Unit: Seconds, Range: x.prefill(in), Constants: []string{"matmul", "power", "bandwidth", "latency"}, Formula: x.prefillFormula(s, in)})
	step := s.add(Term{Name: "decode step", Unit: Seconds, Range: x.step(batch, in+out/2), Constants: []string{"bandwidth", "latency", "matmul", "power", "sequence"}, Formula: x.stepFormula(s, batch, in+out/2)})
	alone := s.add(Term{Name: "decode step alone", Unit: Seconds, Range: x.step(1, in+out/2), Constants: []string{"bandwidth", "latency"}, Formula: x.stepFormula(s, 1, in+out/2)})
	r.Alone = exactly(1).per(alone)
	var l load
	if q.Batch {
		l = x.together(pre, step, batch)
	} else {
		l = x.serve(pre, step, batch, max(0, (q.Concurrency-r.Sequences)/replicas))
	}
	r.First = s.add(Term{Name: "first token", Unit: Seconds, Range: l.first, Formula: x.firstFormula(s, batch)})
	r.Between = s.add(Term{Name: "between tokens", Unit: Seconds, Range: l.between, Formula: x.betweenFormula(s, batch)})
	r.Request = l.request
	rate := l.perSecond.times(out * replicas)
	r.Rate = s.add(Term{Name: "throughput", Unit: PerSecond, Range: rate, Formula: s.say("%g requests at work x osl %d / request %.4g s", math.Floor(r.Sequences), q.Out, l.request.Mid)})
}

func (x engine) prefillFormula(s *sheet, tokens float64) string {
	_, through := x.q.touched(tokens)
	rate := x.e.rate(&x.q.Setup, x.q.Format.class)
	return s.say("2 x %s active x %s tokens / %d GPUs / %.4g TFLOP/s + attention + communication", brief(through), amount(tokens),
		x.q.Split.normal().TP*x.q.Split.normal().PP, rate.Mid/1e12)
}

func (x engine) stepFormula(s *sheet, batch, context float64) string {
	read, _ := x.q.touched(batch)
	return s.say("(%s parameters x %.3g B + %.4g sequences x %s B of cache) / %d GPUs / (%g GB/s x %.2f) + communication + launches",
		brief(read), x.q.Format.bytes, batch, amount(x.q.sequence(context)), x.q.Split.normal().TP*x.q.Split.normal().PP, x.q.Card.Bandwidth, x.e.K[cBandwidth].Mid)
}

func (x engine) firstFormula(s *sheet, batch float64) string {
	if x.q.Batch {
		return s.say("%.4g prefills + a step", batch)
	}
	return "prefill + wait for others' prefills + a step (+ wait for a place)"
}

func (x engine) betweenFormula(s *sheet, batch float64) string {
	if x.q.Batch {
		return "decode step"
	}
	return s.say("decode step + %.4g others' prefills / osl %d", max(batch-1, 0), x.q.Out)
}
