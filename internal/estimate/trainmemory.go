// SPDX-License-Identifier: Apache-2.0

package estimate

// Memory is what one card holds at its fullest moment. Its parts sum to the
// total.
type Memory struct {
	Parts []Term `json:"parts"`
	// Total is what the driver counts, Allocated what a framework counts of it.
	Total     Range  `json:"total"`
	Allocated Range  `json:"allocated"`
	Visible   Range  `json:"visible"` // what the card has; zero: no card
	Host      Range  `json:"host"`    // of a machine, for what is kept there
	Fits      Fit    `json:"fits"`
	Moment    string `json:"moment,omitempty"`
}

// Fit says whether memory is enough.
type Fit string

const (
	FitsNot     Fit = "no"      // expected to be too much
	FitsTight   Fit = "tight"   // expected to fit, and may not
	Fits        Fit = "yes"     // even what is high fits
	FitsUnknown Fit = "unknown" // no card
)

// close adds the parts up.
func (m *Memory) close(k *Constants, card *Datasheet) {
	for _, t := range m.Parts {
		m.Total = m.Total.plus(t.Range)
		if t.Name != "overhead" {
			m.Allocated = m.Allocated.plus(t.Range)
		}
	}
	m.Fits = FitsUnknown
	if card != nil {
		m.Visible = card.visible(k)
		switch {
		case m.Total.Mid > m.Visible.Mid:
			m.Fits = FitsNot
		case m.Total.High > m.Visible.Low:
			m.Fits = FitsTight
		default:
			m.Fits = Fits
		}
	}
}

// overheadTerm is the context of a process and what its first collective adds.
func (e *Estimator) overheadTerm(s *sheet, cards int) Term {
	t := Term{Name: "overhead", Unit: Bytes, Constants: []string{e.K[cOverhead].Name},
		Range: e.K.overhead(), Formula: s.say("%.3g GiB for the context", e.K[cOverhead].Mid)}
	if cards > 1 {
		t.Range = t.Range.times(2)
		t.Formula += ", as much again for collectives"
	}
	t.Range = s.add(t)
	return s.terms[len(s.terms)-1]
}

// memory finds the fullest moment of a step on the fullest stage.
func (e *Estimator) trainingMemory(q *Training, s *sheet) Memory {
	best := Memory{}
	scratch := newSheet(s.measured, s.mute)
	spare := make([]Term, 0, mostParts)
	stages := []stage{firstStage}
	if q.Split.PP > 1 {
		stages = append(stages, lastStage)
	}
	for _, at := range stages {
		for _, late := range []bool{false, true} {
			scratch.terms = scratch.terms[:0]
			m := e.memoryAt(q, scratch, spare, at, late)
			if best.Parts == nil {
				best, spare = m, make([]Term, 0, mostParts)
			} else if m.Total.Mid > best.Total.Mid {
				best, spare = m, best.Parts[:0]
			}
		}
	}
	for _, t := range best.Parts {
		t.Range = s.add(t)
	}
	return best
}

// mostParts is how many parts a card's memory has.
const mostParts = 10

// memoryAt is the memory at the end of the way forward, or (late) at the end of
// the way back: then gradients are there and activations are gone.
func (e *Estimator) memoryAt(q *Training, s *sheet, parts []Term, at stage, late bool) Memory {
	x, opt := q.Split.normal(), q.optimizer()
	m := Memory{Moment: "at the end of the way forward", Parts: parts}
	if late {
		m.Moment = "at the end of the way back"
	}
	ranged := func(name, formula string, bytes Range) {
		s.add(Term{Name: name, Formula: formula, Unit: Bytes, Range: bytes})
		m.Parts = append(m.Parts, s.terms[len(s.terms)-1])
	}
	part := func(name, formula string, bytes float64) { ranged(name, formula, exactly(bytes)) }
	dense, experts := q.held(at)
	n, nx := float64(q.stateGroup()), q.expertGroup()
	both := func(of func(params, group float64) float64) float64 { return of(dense, n) + of(experts, nx) }
	group := func(stage int, name string) string {
		if x.ZeRO >= stage && n > 1 {
			return s.say(" / %g GPUs (ZeRO %d)", n, x.ZeRO)
		}
		return ""
	}
	held := s.say("%s parameters", amount(dense+experts))

	width := q.weightBytes()
	weightsOf := func(params, group float64) float64 {
		w, _, _ := opt.States(params, width, x.ZeRO, group)
		return w
	}
	weights := both(weightsOf)
	if q.Format.rest != q.Format.bytes && !q.trainsAll() { // a quantised base
		whole := q.Format.WeightBytes(q.Model) / float64(q.Model.Total())
		weights *= whole / width
		width = whole
	}
	formula := s.say("%s x %.4g B%s", held, width, group(3, "weights"))
	if q.OffloadAll {
		weights, formula = 0, "on the host"
	}
	part("weights", formula, weights)

	e.gradientPart(q, s, part, both, held, late, group)

	states := both(func(params, group float64) float64 {
		_, _, st := opt.States(params, width, x.ZeRO, group)
		return st
	})
	switch {
	case !q.trainsAll():
	case q.Weights:
	case q.OffloadState || q.OffloadAll:
		part("optimizer", "on the host", 0)
	case opt.paged:
		part("optimizer", "paged: on the host while room is short", 0)
	default:
		part("optimizer", s.say("%s x %.4g B%s", held, opt.state, group(1, "optimizer")), states)
	}
	if !q.trainsAll() && q.Model.Arch != nil {
		params := q.adapters() / float64(x.TP*x.PP)
		per := 2 + opt.gradient + opt.state
		if q.Weights {
			per = 2
		}
		part("adapters", s.say("%s parameters of rank %d x %.4g B", amount(params), q.LoRA, per), params*per)
	}
	if q.Model.Arch != nil && !q.Weights {
		e.movingParts(q, s, part, ranged, at, late)
	}
	m.Parts = append(m.Parts, e.overheadTerm(s, q.Cards))
	m.close(&e.K, q.Card)
	return m
}

// gradientPart is what there is of gradients at a moment.
func (e *Estimator) gradientPart(q *Training, s *sheet, part func(string, string, float64), both func(func(p, g float64) float64) float64,
	held string, late bool, group func(int, string) string) {
	if !q.trainsAll() || q.Weights {
		return
	}
	opt, x := q.optimizer(), q.Split.normal()
	unit := 0.0
	if q.Model.Arch != nil {
		unit = float64(q.Model.Arch.parameters().largestUnit()) / float64(x.TP) * opt.gradient
	}
	gradients := both(func(params, group float64) float64 {
		_, g, _ := opt.States(params, 2, x.ZeRO, group)
		return g
	})
	switch stays := q.microBatches() > 1 || x.PP > 1 || q.Model.Arch == nil; {
	case q.InBackward || q.OffloadState || q.OffloadAll:
		part("gradients", "of the largest unit, the others are used or moved at once", min(unit, gradients))
	case late || stays:
		if q.stateGroup() > 1 && x.ZeRO >= 2 {
			gradients = min(gradients+unit, both(func(params, _ float64) float64 { return params * opt.gradient }))
		}
		part("gradients", s.say("%s x %.4g B%s", held, opt.gradient, group(2, "gradients")), gradients)
	default:
		part("gradients", "not there yet", 0)
	}
}

// movingParts are activations, logits, and layers that were gathered.
func (e *Estimator) movingParts(q *Training, s *sheet, part func(string, string, float64), ranged func(string, string, Range), at stage, late bool) {
	a, x := q.Model.Arch, q.Split.normal()
	p := a.parameters()
	kept := q.activations(at)
	tokens := float64(q.micro()) * float64(q.Seq) / float64(x.CP)
	if x.ZeRO >= 3 && q.stateGroup() > 1 || q.OffloadAll {
		gathered := float64(p.largestUnit()+p.largestLayer()) / float64(x.TP)
		width := max(q.Format.bytes, 0.5)
		if q.trainsAll() {
			width = q.weightBytes()
		}
		part("gathered", s.say("the unit at work and the next, %s parameters x %.4g B", amount(gathered), width), gathered*width)
	}
	if q.Format.weightOnly() {
		part("dequantised", s.say("the matrix at work, %s x 2 B", amount(float64(a.largestMatrix())/float64(x.TP))), 2*float64(a.largestMatrix())/float64(x.TP))
	}
	if late {
		part("activations", "one layer's, the others are gone", max(kept.working, kept.tokens*kept.perLayer*kept.flying))
		return
	}
	// As few copies as fused operations make, and as many as single ones do.
	bounds := exactly(kept.bytes() + kept.working)
	for _, eager := range []bool{false, true} {
		other := *q
		other.Eager = eager
		k := other.activations(at)
		bounds.Low, bounds.High = min(bounds.Low, k.bytes()+k.working), max(bounds.High, k.bytes()+k.working)
	}
	ranged("activations", s.say("%v", kept), bounds)
	if x.PP > 1 && at == firstStage || a.Vocab == 0 {
		return
	}
	bytes := tokens * float64(a.Vocab) / float64(x.TP)
	formula := s.say("%s tokens x V %d x 10 B (16 bits, 32 bits, gradient)", amount(tokens), a.Vocab)
	if x.TP > 1 {
		formula += s.say(" / tp %d", x.TP)
	}
	if q.ChunkedLoss {
		bytes, formula = bytes/8, formula+" / 8 parts"
	}
	ranged("logits", formula, Range{6 * bytes, 10 * bytes, 12 * bytes})
}

// hostBytes is what a machine keeps of what its cards do not.
func (q *Training) hostBytes(s *sheet) (float64, string) {
	if !(q.OffloadState || q.OffloadAll || q.optimizer().paged && q.trainsAll()) {
		return 0, ""
	}
	opt := q.optimizer()
	per := opt.state
	if q.OffloadState || q.OffloadAll {
		per += opt.gradient
	}
	if q.OffloadAll {
		per += q.weightBytes()
	}
	if !q.trainsAll() {
		per = 0
		if q.OffloadAll {
			per = q.weightBytes()
		}
	}
	machines := float64((q.Cards + q.perMachine() - 1) / q.perMachine())
	total := float64(q.Model.Total()) * per / machines
	if q.Split.ZeRO == 0 { // each replica its own
		total *= float64(q.stateGroup())
	}
	return total, s.say("%s parameters x %.4g B / %g machines", amount(float64(q.Model.Total())), per, machines)
}

func (s *Setup) perMachine() int {
	if s.PerMachine > 0 {
		return s.PerMachine
	}
	return CardsPerMachine
}
