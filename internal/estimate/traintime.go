// SPDX-License-Identifier: Apache-2.0

package estimate

// passes is how often a token goes through the layers, in forwards: one there,
// two back (one when weights are frozen), one more when it is recomputed.
func (q *Training) passes() (layers, head float64) {
	layers, head = 3, 3
	if !q.trainsAll() {
		layers, head = 2, 2
	}
	return layers + q.part, head
}

// attentionSpan is how far a token looks back, on average over tokens and
// layers.
func (a *Arch) attentionSpan(seq float64, causal bool) float64 {
	whole, window := seq, seq
	if causal {
		whole = seq / 2
	}
	if a.Window > 0 && float64(a.Window) < seq {
		w := float64(a.Window)
		window = w
		if causal {
			window = w * (1 - w/(2*seq))
		}
	} else {
		window = whole
	}
	local, all := float64(a.localLayers()), float64(a.Layers)
	return (local*window + (all-local)*whole) / all
}

// scoreWidth is the width of queries and of values together: what a pair of
// tokens costs in multiplications.
func (a *Arch) scoreWidth() float64 {
	if a.MLA != nil {
		return float64(a.queryWidth() + a.Heads*a.MLA.Value)
	}
	return float64(2 * a.queryWidth())
}

// countedFLOPs is what a token counts for in MFU: 6 for each active parameter (4
// where weights are frozen), and attention as if it were not causal.
func (q *Training) countedFLOPs() float64 {
	times := 6.0
	if !q.trainsAll() {
		times = 4
	}
	flops := times * float64(q.Model.ActiveTotal())
	if a := q.Model.Arch; a != nil {
		flops += times * float64(a.Layers) * a.scoreWidth() * a.attentionSpan(float64(q.Seq), false)
	}
	return flops
}

// HardwareFLOPs is that with what is computed again.
func (q *Training) HardwareFLOPs() float64 {
	flops, a := q.countedFLOPs(), q.Model.Arch
	if a == nil {
		return flops
	}
	scores := 2 * float64(a.Layers) * a.scoreWidth() * a.attentionSpan(float64(q.Seq), false)
	if q.Recompute == RecomputeSelective {
		return flops + scores
	}
	return flops + q.part*(2*(q.Model.matmul()-float64(a.Vocab)*float64(a.Hidden))+scores)
}

// rate is what a card reaches in a class of products.
func (e *Estimator) rate(s *Setup, f class) Range {
	full := s.Card.rate(f)
	if f == class32 && full == 0 {
		full = s.Card.rate(class16)
	}
	if s.TFLOPS > 0 && f == s.Format.class {
		full = s.TFLOPS * 1e12
	}
	return e.K.matmul(s.Card).times(full)
}

// stepTime is how long a step takes, and of what it is made.
func (e *Estimator) stepTime(q *Training, s *sheet) Range {
	x, a := q.Split.normal(), q.Model.Arch
	tokens := float64(q.micro()) * float64(q.Seq) // of a micro-batch on a replica
	across := float64(x.TP * x.PP * x.CP)
	micro := q.microBatches()
	class := q.Format.class
	outside := outsideOf(class)

	// Matrix products.
	layers, head := q.passes()
	inHead := float64(a.Vocab) * float64(a.Hidden)
	inLayers := max(q.Model.matmul()-inHead, 1)
	rate := e.rate(&q.Setup, class)
	work := 2 * inLayers * layers * tokens / across
	products := exactly(work).per(rate).plus(exactly(2 * inHead * head * tokens / across).per(e.rate(&q.Setup, outside)))
	products = s.add(Term{Name: "products", Unit: Seconds, Range: products, Constants: []string{"matmul", "power"},
		Formula: s.say("%g x 2 x %s parameters x %s tokens / %g GPUs / (%.4g TFLOP/s x %.2f)", layers, brief(inLayers), amount(tokens), across,
			rate.Mid/1e12/e.K.matmul(q.Card).Mid, e.K.matmul(q.Card).Mid)})

	attention := s.add(e.attentionTerm(q, s, tokens, across, outside))

	// Everything between the products moves activations through memory.
	divided, rest := q.activationBytes(a.activeFFN())
	traffic := 6 + 2*q.part // written and read on the way there; read twice, and written and read as gradients, back
	bytes := (traffic*(divided+rest) + q.scoreTraffic()) * float64(a.Layers)
	scores := ""
	if q.Unfused {
		scores = " and scores"
	}
	memory := e.K.bandwidth().times(q.Card.Bandwidth * 1e9)
	elementwise := s.add(Term{Name: "elementwise", Unit: Seconds, Range: exactly(bytes * tokens / across).per(memory), Constants: []string{"bandwidth"},
		Formula: s.say("%s tokens x %s B of activations%s moved / %g GPUs / (%g GB/s x %.2f)", amount(tokens), amount(bytes), scores, across, q.Card.Bandwidth, e.K[cBandwidth].Mid)})

	one := products.plus(attention).plus(elementwise)
	one = one.plus(e.modelParallel(q, s, tokens))
	step := one.times(micro)
	if x.PP > 1 {
		v := float64(q.virtual())
		idle := (float64(x.PP) - 1) / v
		formula := s.say("(p %d - 1) / %g interleaved x %.3g s", x.PP, v, one.Mid)
		step = step.plus(s.add(Term{Name: "bubble", Unit: Seconds, Range: one.times(idle), Formula: formula}))
	}
	s.terms = append(s.terms, Term{Name: "micro-batch", Unit: Seconds, Range: one, Formula: "products + attention + elementwise + communication"})
	s.terms = append(s.terms, Term{Name: "micro-batches", Unit: Count, Range: exactly(micro), Formula: s.say("of %d sequences on each of %d replicas", q.micro(), q.replicas())})
	return step.plus(e.dataParallel(q, s, one)).plus(e.optimizerTime(q, s))
}

// attentionTimes is how long attention takes there and back, and of what it is
// made: FLOP of all layers, and how often they are computed.
type attentionTimes struct {
	there, back          Range
	flops, forward, rear float64
	rate, rateBack       Range
}

// attention is the products of queries with keys and of scores with values, of
// one micro-batch.
func (e *Estimator) attention(q *Training, tokens, across float64, outside class) attentionTimes {
	a, full := q.Model.Arch, e.rate(&q.Setup, outside)
	t := attentionTimes{flops: 2 * float64(a.Layers) * a.scoreWidth() * a.attentionSpan(float64(q.Seq), !q.Unfused),
		forward: 1 + q.part, rear: 2.5, rate: full, rateBack: full.product(e.K[cAttention].Range)} // scores are computed again on the way back
	if q.Unfused {
		t.rear, t.rateBack = 2, full
		if q.Recompute == RecomputeSelective {
			t.forward++
		}
	}
	one := exactly(t.flops * tokens / across)
	t.there, t.back = one.times(t.forward).per(t.rate), one.times(t.rear).per(t.rateBack)
	return t
}

func (e *Estimator) attentionTerm(q *Training, s *sheet, tokens, across float64, outside class) Term {
	t := e.attention(q, tokens, across, outside)
	return Term{Name: "attention", Unit: Seconds, Range: t.there.plus(t.back), Constants: []string{"matmul", "power", "attention"},
		Formula: s.say("%s FLOP x %s tokens / %g GPUs x (%g / %.4g + %g / %.4g TFLOP/s)", brief(t.flops), amount(tokens), across, t.forward, t.rate.Mid/1e12, t.rear, t.rateBack.Mid/1e12)}
}

// modelParallel is what cards of one replica tell each other in a micro-batch.
func (e *Estimator) modelParallel(q *Training, s *sheet, tokens float64) Range {
	x, a := q.Split.normal(), q.Model.Arch
	total := Range{}
	layers := float64(a.Layers) / float64(x.PP)
	message := 2 * tokens / float64(x.CP) * float64(a.Hidden)
	if x.TP > 1 {
		times := 4 + 2*q.part
		one, p := e.allReduce(&q.Setup, x.TP, 1, message)
		total = total.plus(s.add(Term{Name: "tensor-parallel", Unit: Seconds, Range: one.times(times * layers), Constants: []string{"bandwidth", "latency"},
			Formula: s.say("%g all-reduces x L %.4g x %s B (%s)", times, layers, amount(message), p)}))
	}
	hidden := e.K[cExposed].Range
	if x.CP > 1 {
		bytes := 3 * a.perLayer() * 2 * tokens / float64(x.TP)
		one, p := e.gather(&q.Setup, x.CP, x.TP, bytes)
		total = total.plus(s.add(Term{Name: "context-parallel", Unit: Seconds, Range: one.times(layers).product(hidden), Constants: []string{"bandwidth", "exposed"},
			Formula: s.say("keys and values round the ring, L %.4g x %s B (%s) x %.2f not hidden", layers, amount(bytes), p, hidden.Mid)}))
	}
	if x.EP > 1 {
		bytes := 2 * message * float64(a.MoE.TopK) / float64(x.TP)
		one, p := e.gather(&q.Setup, x.EP, 1, bytes)
		moe := layers * float64(a.moeLayers()) / float64(a.Layers)
		total = total.plus(s.add(Term{Name: "expert-parallel", Unit: Seconds, Range: one.times(2 * moe), Constants: []string{"bandwidth"},
			Formula: s.say("2 all-to-alls there and 2 back x L %.4g x %s B (%s)", moe, amount(bytes/2), p)}))
	}
	if x.PP > 1 {
		one, p := e.gather(&q.Setup, 2, x.TP*x.CP, 2*message/float64(x.TP))
		total = total.plus(s.add(Term{Name: "pipeline", Unit: Seconds, Range: one.times(2 * float64(q.virtual())).product(hidden), Constants: []string{"bandwidth", "exposed"},
			Formula: s.say("%s B there and back at each boundary (%s)", amount(message), p)}))
	}
	return total
}

// dataParallel is what replicas tell each other in a step, as far as computing
// does not hide it.
func (e *Estimator) dataParallel(q *Training, s *sheet, one Range) Range {
	n, x := q.stateGroup(), q.Split.normal()
	if n == 1 {
		return Range{}
	}
	dense, experts := q.held(firstStage)
	held := dense + experts
	trained := held
	if !q.trainsAll() {
		trained = q.adapters() / float64(x.TP*x.PP)
	}
	gradients := trained * q.optimizer().gradient
	var moved Range
	var p path
	var formula string
	micro := q.microBatches()
	if x.ZeRO >= 3 {
		weights := held * q.weightBytes()
		moved, p = e.gather(&q.Setup, n, x.TP, 2*weights+gradients)
		moved = moved.times(micro)
		formula = s.say("%.4g x (2 gathers of %s B + gradients %s B)", micro, amount(weights), amount(gradients))
	} else {
		moved, p = e.allReduce(&q.Setup, n, x.TP, gradients)
		formula = s.say("all-reduce of %s B", amount(gradients))
	}
	// What overlaps with computing hides up to its length.
	room := one.times(micro)
	if x.ZeRO < 3 {
		room = one.times(2.0 / 3)
	}
	hidden := e.K[cExposed].Range
	beyond := Range{max(0, moved.Low*(1-hidden.Low)-room.High), max(0, moved.Mid*(1-hidden.Mid)-room.Mid), max(0, moved.High*(1-hidden.High)-room.Low)}
	return s.add(Term{Name: "data-parallel", Unit: Seconds, Range: moved.product(hidden).plus(beyond), Constants: []string{"bandwidth", "exposed"},
		Formula: s.say("%s over %d GPUs (%s) x %.2f not hidden", formula, n, p, hidden.Mid)})
}

// optimizerTime is the update of the weights.
func (e *Estimator) optimizerTime(q *Training, s *sheet) Range {
	opt, x := q.optimizer(), q.Split.normal()
	dense, experts := q.held(firstStage)
	params := dense + experts
	if !q.trainsAll() {
		params = q.adapters() / float64(x.TP*x.PP)
	}
	if x.ZeRO >= 1 {
		params /= float64(q.stateGroup())
	}
	if q.OffloadState || q.OffloadAll {
		per := opt.gradient + q.weightBytes()
		if q.OffloadAll {
			per += 2 * q.weightBytes() * q.microBatches() // each layer comes twice in a micro-batch
		}
		rate := e.K.bandwidth().times(q.Card.pcie())
		return s.add(Term{Name: "offload", Unit: Seconds, Range: exactly(params * per).per(rate), Constants: []string{"bandwidth"},
			Formula: s.say("%s parameters x %.4g B over PCIe %d.0", amount(params), per, q.Card.pcieGeneration()), Note: "the host's own work comes on top"})
	}
	per := opt.gradient + 2*opt.state + 2*q.weightBytes()
	return s.add(Term{Name: "update", Unit: Seconds, Range: exactly(params * per).per(e.K.bandwidth().times(q.Card.Bandwidth * 1e9)), Constants: []string{"bandwidth"},
		Formula: s.say("%s parameters x %.4g B read and written", amount(params), per)})
}

// scoreTraffic is what a token moves of scores that are written: 10 bytes each
// there and 15 back.
func (q *Training) scoreTraffic() float64 {
	if !q.Unfused {
		return 0
	}
	return 25 * float64(q.Model.Arch.Heads) * float64(q.Seq)
}

// LayerTime is how long one layer takes of a micro-batch, there and back; back
// includes what is computed again.
func (e *Estimator) LayerTime(q Training) (there, back Range, err error) {
	if err := q.validate(); err != nil {
		return Range{}, Range{}, err
	}
	if q.Card == nil || q.Model.Arch == nil {
		return Range{}, Range{}, invalidf("a layer's time takes a GPU and a shape")
	}
	arch := *q.Model.Arch
	arch.Layers, arch.Vocab, arch.Positions, arch.MoE = 1, 0, 0, nil
	q.Model = &Model{Name: q.Model.Name, Arch: &arch}
	x := q.Split.normal()
	tokens, across := float64(q.micro()*q.Seq), float64(x.TP*x.CP)
	linear := float64(arch.parameters().linear())
	pass := exactly(2 * linear * tokens / across).per(e.rate(&q.Setup, q.Format.class))
	attention := e.attention(&q, tokens, across, outsideOf(q.Format.class))
	divided, rest := q.activationBytes(arch.activeFFN())
	memory := e.K.bandwidth().times(q.Card.Bandwidth * 1e9)
	moved := func(times, part float64) Range {
		return exactly((times*(divided+rest) + part*q.scoreTraffic()) * tokens / across).per(memory)
	}
	told := Range{}
	if x.TP > 1 {
		one, _ := e.allReduce(&q.Setup, x.TP, 1, 2*tokens*float64(arch.Hidden))
		told = one.times(2)
	}
	there = pass.plus(attention.there).plus(moved(2, 0.4)).plus(told)
	back = pass.times(2).plus(attention.back).plus(moved(4, 0.6)).plus(told)
	if q.Recompute == RecomputeFull {
		back = back.plus(there)
	}
	return there, back, nil
}
