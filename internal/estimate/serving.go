// SPDX-License-Identifier: Apache-2.0

package estimate

import "math"

// Serving is a question about inference.
type Serving struct {
	Setup
	In, Out     int     // tokens of a request, read and written
	Concurrency float64 // requests at a time, each followed by the next; 0: as many as there is room for
	Batch       bool    // the requests of Concurrency start together, and none follows
	KV          float64 // bytes of a cached number; 0: as the precision has it
	Block       int     // tokens of a block of the cache; 0: 16
	Utilization float64 // part of the card's memory that the engine takes; 0: 0.9
	MostBatch   int     // sequences that the engine takes at a time; 0: 2048
	Pipeline    bool    // layers in turn on the cards of tp, not each on all
	Shared      int     // tokens of a prefix that all requests share
}

// What engines do where nothing else is said.
const (
	defaultUtilization = 0.9
	defaultBlock       = 16
	defaultMostBatch   = 2048
	defaultBatchTokens = 8192 // that go through the layers at once
)

func (q *Serving) validate() error {
	if err := q.Setup.validate(); err != nil {
		return err
	}
	switch {
	case q.Split.CP > 1 || q.Split.ZeRO > 0:
		return invalidf("cp and zero are of training: serving divides by tp, pp and ep")
	case q.In < 1 || q.In > mostSeq || q.Out < 1 || q.Out > mostSeq:
		return invalidf("--isl %d and --osl %d are not between 1 and %d", q.In, q.Out, mostSeq)
	case !(q.Concurrency >= 0 && q.Concurrency <= 1e7):
		return invalidf("--concurrency %g is not between 1 and 1e7", q.Concurrency)
	case !(q.Utilization >= 0 && q.Utilization <= 1):
		return invalidf("utilization %g is not between 0 and 1", q.Utilization)
	case !(q.KV >= 0 && q.KV <= 8):
		return invalidf("%g bytes of a cached number are not between 0 and 8", q.KV)
	case q.Shared < 0 || q.Shared > q.In:
		return invalidf("a shared prefix of %d tokens is longer than the %d read", q.Shared, q.In)
	}
	return nil
}

func (q *Serving) cache() Cache {
	c := Cache{Bytes: q.KV, Block: q.Block}
	if c.Bytes == 0 {
		c.Bytes = q.Format.kv
	}
	if c.Block == 0 {
		c.Block = defaultBlock
	}
	return c
}

func (q *Serving) utilization() float64 {
	if q.Utilization > 0 {
		return q.Utilization
	}
	return defaultUtilization
}

func (q *Serving) mostBatch() float64 {
	if q.MostBatch > 0 {
		return float64(q.MostBatch)
	}
	return defaultMostBatch
}

// cardWeights is what the weights take on a card.
func (q *Serving) cardWeights() float64 {
	whole := q.Format.WeightBytes(q.Model)
	dense, experts := q.held(firstStage)
	if at, e := q.held(lastStage); at+e > dense+experts {
		dense, experts = at, e
	}
	return whole * (dense + experts) / float64(q.Model.Total())
}

// cacheTokenBytes is what a token takes of a card's cache, no window full.
func (q *Serving) cacheTokenBytes() float64 {
	a, x := q.Model.Arch, q.Split.normal()
	layers := math.Ceil(float64(a.Layers) / float64(x.PP))
	return a.KVBytesPerToken(q.cache().Bytes) * layers / float64(a.Layers) / a.kvSplit(x.TP)
}

// sequence is what a sequence of so many tokens takes of a card's cache.
func (q *Serving) sequence(tokens float64) float64 {
	return q.cacheTokenBytes() / q.Model.Arch.KVBytesPerToken(1) * q.Model.Arch.sequenceBytes(tokens, Cache{Bytes: 1, Block: q.cache().Block})
}

// ServingResult answers a Serving.
type ServingResult struct {
	Split  Split  `json:"split"`
	Cards  int    `json:"cards"`
	Memory Memory `json:"memory"` // with the cache that Sequences take
	// Capacity is how many tokens the cache holds, Sequences how many requests
	// of In + Out tokens run at a time.
	Capacity  Range    `json:"kvCapacityTokens"`
	Sequences float64  `json:"sequences"`
	Terms     []Term   `json:"terms"`
	Timed     bool     `json:"timed"`
	First     Range    `json:"firstTokenSeconds"`
	Between   Range    `json:"betweenTokensSeconds"`
	Request   Range    `json:"requestSeconds"`
	Rate      Range    `json:"outputTokensPerSecond"` // of all cards
	Alone     Range    `json:"aloneTokensPerSecond"`  // one request by itself
	Saturated bool     `json:"saturated"`             // more requests come than there is room for
	Notes     []string `json:"notes"`
}

// Serve estimates inference.
func (e *Estimator) Serve(q Serving) (ServingResult, error) { return e.serve(q, false) }

func (e *Estimator) serve(q Serving, mute bool) (ServingResult, error) {
	if err := q.validate(); err != nil {
		return ServingResult{}, err
	}
	s := newSheet(q.Measured, mute)
	r := ServingResult{Split: q.Split.normal(), Cards: q.Cards, Notes: []string{}}
	e.servingMemory(&q, s, &r)
	if q.Card != nil && q.Model.Arch != nil && q.Model.Lower == "" && r.Sequences > 0 {
		e.serveTimes(&q, s, &r)
	}
	r.Terms = s.terms
	if !r.Memory.Total.finite() || r.Timed && !(r.Rate.finite() && r.Between.finite() && r.First.finite()) {
		return ServingResult{}, invalidf("these numbers lead to no finite figure")
	}
	return r, s.unmet()
}

// workspace is what a pass of many tokens needs beside weights and cache: the
// widest layer's activations and the logits of the sequences.
func (q *Serving) workspace(s *sheet) (float64, string) {
	a, x := q.Model.Arch, q.Split.normal()
	tokens := float64(min(defaultBatchTokens, max(q.In, 1)*int(q.mostBatch())))
	width := 2 * (4*float64(a.Hidden) + (float64(a.queryWidth()+2*a.kvWidth())+2*a.activeFFN())/float64(x.TP))
	logits := math.Min(256, q.mostBatch()) * float64(a.Vocab) / float64(x.TP) * 6
	return tokens*width + logits, s.say("%s tokens x %s B of one layer + logits %s B", amount(tokens), amount(width), amount(logits))
}

func (e *Estimator) servingMemory(q *Serving, s *sheet, r *ServingResult) {
	x := q.Split.normal()
	part := func(t Term) Range {
		t.Range = s.add(t)
		r.Memory.Parts = append(r.Memory.Parts, s.terms[len(s.terms)-1])
		return t.Range
	}
	weights := q.cardWeights()
	used := part(Term{Name: "weights", Unit: Bytes, Range: exactly(weights),
		Formula: s.say("%s parameters in %s = %s B, / tp %d x pp %d", amount(float64(q.Model.Total())), q.Format.Name, amount(q.Format.WeightBytes(q.Model)), x.TP, x.PP)})
	if q.Model.Arch != nil {
		bytes, formula := q.workspace(s)
		used = used.plus(part(Term{Name: "workspace", Unit: Bytes, Range: exactly(bytes), Formula: formula}))
	}
	over := e.overheadTerm(s, q.Cards)
	r.Memory.Parts = append(r.Memory.Parts, over)
	used = used.plus(over.Range)
	if q.Model.Arch == nil || q.Model.Lower != "" {
		r.Memory.close(&e.K, q.Card)
		return
	}
	token, one := q.cacheTokenBytes(), q.sequence(float64(q.In+q.Out))
	wanted := q.Concurrency
	if q.Card != nil {
		all := q.Card.visible(&e.K).times(q.utilization())
		room := Range{all.Low - used.High, all.Mid - used.Mid, all.High - used.Low}
		room = s.add(Term{Name: "cache room", Unit: Bytes, Range: room, Constants: []string{"overhead", "visible"},
			Formula: s.say("%.3g x %s - weights - workspace - overhead", q.utilization(), visibleOf{q.Card, &e.K})})
		c := float64(q.cache().Block)
		in := func(bytes float64) float64 { return math.Floor(max(0, bytes)/(token*c)) * c * e.replicasOf(q) }
		r.Capacity = s.add(Term{Name: "cache capacity", Unit: Tokens, Range: Range{in(room.Low), in(room.Mid), in(room.High)},
			Formula: s.say("room / %s B a token, in blocks of %g", amount(token), c)})
		fits := max(0, room.Mid) / one
		if fits < 1 {
			fits = 0
		}
		r.Sequences = min(fits, q.mostBatch()) * e.replicasOf(q)
		if wanted > 0 {
			r.Saturated = wanted > r.Sequences
			r.Sequences = min(r.Sequences, wanted)
		}
		if fits == 0 {
			r.Notes = append(r.Notes, s.say("no room for the cache of one request of %d tokens", q.In+q.Out))
		}
	} else {
		r.Sequences = max(wanted, 1)
	}
	held := max(r.Sequences/e.replicasOf(q), 1)
	kv := Term{Name: "kv cache", Unit: Bytes}
	if !s.mute {
		kv = q.Model.Arch.KVTerm(held, float64(q.In+q.Out), q.cache())
	}
	kv.Range = exactly(held * one)
	if x.TP > 1 || x.PP > 1 {
		kv.Formula += s.say(" / %g on each GPU", q.Model.Arch.sequenceBytes(float64(q.In+q.Out), q.cache())/one)
	}
	part(kv)
	r.Memory.close(&e.K, q.Card)
}

// replicasOf is how many engines serve side by side.
func (e *Estimator) replicasOf(q *Serving) float64 { return float64(q.replicas()) }
