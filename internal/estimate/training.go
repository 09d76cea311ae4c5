// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"fmt"
	"math"
)

// Levels of recomputation.
const (
	RecomputeAuto      = "" // as many layers as it takes to fit
	RecomputeNone      = "none"
	RecomputeSelective = "selective" // the core of attention
	RecomputeFull      = "full"      // layers from their inputs
)

// Recomputes lists the levels that can be asked for.
func Recomputes() []string { return []string{RecomputeNone, RecomputeSelective, RecomputeFull} }

// Training is a question about training or fine-tuning.
type Training struct {
	Setup
	Optimizer   Optimizer
	MicroBatch  int     // sequences at a time on a replica; 0: 1
	GlobalBatch int     // sequences of a step on all cards; 0: one micro-batch a replica, or as many as fill a pipeline
	BatchTokens float64 // instead, about so many tokens; 0: not
	Seq         int
	Recompute   string
	Tokens      float64 // of the whole run; 0: not asked

	Unfused      bool // attention that writes its scores
	Dropout      bool
	Eager        bool // operations one by one, with the copies that this makes
	ChunkedLoss  bool // logits in eight parts
	InBackward   bool // each gradient is used and dropped at once
	NoSequence   bool // tensor parallelism without sequence parallelism
	OffloadState bool // optimizer and gradients on the host
	OffloadAll   bool // weights, too
	OffloadActs  bool // inputs of recomputed layers on the host

	LoRA    int  // rank; 0: all weights are trained
	LoRAQV  bool // on queries and values only, else on all matrices of the layers
	Weights bool // before the first step: weights and adapters alone

	// part of the layers is recomputed from their inputs.
	part float64
}

// mostSeq bounds sequences and batches.
const mostSeq = 1 << 30

func (q *Training) validate() error {
	if err := q.Setup.validate(); err != nil {
		return err
	}
	switch {
	case q.Optimizer.Name == "":
		return invalidf("no optimizer")
	case q.Seq < 1 || q.Seq > mostSeq:
		return invalidf("--seq %d is not between 1 and %d", q.Seq, mostSeq)
	case q.MicroBatch < 0 || q.MicroBatch > mostSeq || q.GlobalBatch < 0 || q.GlobalBatch > mostSeq:
		return invalidf("--batch is not between 1 and %d", mostSeq)
	case q.LoRA < 0 || q.LoRA > 1<<16:
		return invalidf("--lora %d is not between 1 and %d", q.LoRA, 1<<16)
	case !(q.BatchTokens >= 0 && q.BatchTokens <= 1e15):
		return invalidf("%g tokens of a step are not between 1 and 1e15", q.BatchTokens)
	case q.Tokens < 0 || q.Tokens > 1e18:
		return invalidf("--tokens %g is not between 1 and 1e18", q.Tokens)
	}
	switch q.Recompute {
	case RecomputeAuto, RecomputeNone, RecomputeSelective, RecomputeFull:
	default:
		return invalidf("--recompute %q is not none, selective or full", q.Recompute)
	}
	if q.LoRA == 0 && q.Format.bytes < 2 && q.Format.class != class8 {
		return invalidf("%s cannot be trained: its weights are kept in too few bits; --lora RANK trains beside them", q.Format.Name)
	}
	replicas := q.replicas()
	if q.GlobalBatch > 0 {
		if q.GlobalBatch < replicas*q.micro() {
			return invalidf("--batch %d is less than the %d replicas x micro-batch %d", q.GlobalBatch, replicas, q.micro())
		}
	}
	return nil
}

func (q *Training) micro() int { return max(q.MicroBatch, 1) }

// StepTokens is what a step of pre-training has where no batch is given.
const StepTokens = 4 << 20

// pipelineFill is how many micro-batches a stage of a pipeline gets where no batch
// is given: the bubble is then a fifth.
const pipelineFill = 4

// microBatches is how many a replica works through in a step.
func (q *Training) microBatches() float64 {
	if q.GlobalBatch == 0 && q.BatchTokens > 0 {
		return max(1, math.Round(q.BatchTokens/(float64(q.Seq)*float64(q.replicas()*q.micro()))))
	}
	if q.GlobalBatch == 0 {
		if p := q.Split.PP; p > 1 {
			return pipelineFill * float64(p)
		}
		return 1
	}
	return max(1, float64(q.GlobalBatch)/float64(q.replicas()*q.micro()))
}

// stepTokens is what all cards work through in a step.
func (q *Training) stepTokens() float64 {
	return q.microBatches() * float64(q.replicas()) * float64(q.micro()) * float64(q.Seq)
}

// trainsAll says that all weights are trained.
func (q *Training) trainsAll() bool { return q.LoRA == 0 }

// weightBytes is what a weight is kept in: FP8 training multiplies copies.
func (q *Training) weightBytes() float64 {
	if q.Format.class == class8 && q.trainsAll() {
		return 2
	}
	return q.Format.bytes
}

// optimizer fits the optimizer to the weights.
func (q *Training) optimizer() Optimizer {
	if q.Format.class == class32 {
		return q.Optimizer.ofFP32()
	}
	return q.Optimizer
}

// adapters counts the parameters of LoRA.
func (q *Training) adapters() float64 {
	a := q.Model.Arch
	if q.LoRA == 0 || a == nil {
		return 0
	}
	h, wide, narrow, f := a.Hidden, a.queryWidth(), a.kvWidth(), a.FFN
	perLayer := (h + wide) + (h + narrow)
	if !q.LoRAQV {
		perLayer += (h + narrow) + (wide + h)
		if a.denseLayers() > 0 {
			perLayer += a.mlpMatrices() * (h + f) * a.denseLayers() / a.Layers
		}
	}
	return float64(q.LoRA) * float64(perLayer) * float64(a.Layers)
}

// activationBytes is what one token leaves of one layer for the way back: what
// tensor parallelism divides, and what only sequence parallelism does; f is the
// width of the MLPs that it goes through.
func (q *Training) activationBytes(f float64) (divided, rest float64) {
	a := q.Model.Arch
	h, wide, narrow := float64(a.Hidden), float64(a.queryWidth()), float64(a.kvWidth())
	rest = 8 * h                // two norms' inputs and outputs
	divided = 4*wide + 4*narrow // queries, keys, values, what attention gives
	divided += 4 * f            // before and after GELU
	if a.gated() {              // gate, its activation, up, their product
		divided += 4 * f
	}
	if q.Dropout {
		rest += 2 * h // two masks
	}
	if a.MoE != nil && a.moeLayers() > 0 {
		rest += (float64(a.MoE.TopK)*4*h + 4*float64(a.MoE.Experts)) // sent and returned tokens, the router's parts
	}
	if q.Eager {
		rest += 12 * h               // norms in 32 bits
		divided += 2*wide + 2*narrow // queries and keys before their rotation
	}
	return divided, rest
}

// scoreBytes is what attention leaves of one token in one layer.
func (q *Training) scoreBytes() float64 {
	a := q.Model.Arch
	heads := float64(a.Heads)
	if !q.Unfused || q.Recompute == RecomputeSelective {
		return 4 * heads // one statistic a head
	}
	if q.Dropout {
		return 5 * heads * float64(q.Seq)
	}
	return 2 * heads * float64(q.Seq)
}

// kept is what a card keeps of its layers for the way back.
type kept struct {
	tokens, perLayer, layers float64
	flying                   float64 // micro-batches at a time
	working                  float64 // bytes: all of the layer that is computed again
}

func (k kept) bytes() float64 { return k.tokens * k.perLayer * k.layers * k.flying }

func (k kept) String() string {
	text := fmt.Sprintf("b*s/c %s tokens x %s B x L %g", grouped(k.tokens), grouped(k.perLayer), k.layers)
	if k.flying > 1 {
		text += fmt.Sprintf(" x %.3g micro-batches in flight", k.flying)
	}
	if k.working > 0 {
		text += fmt.Sprintf(" + %s tokens x %s B of the layer at work", grouped(k.tokens), grouped(k.working/k.tokens))
	}
	return text
}

// activations is what a card of a stage keeps.
func (q *Training) activations(at stage) kept {
	a, x := q.Model.Arch, q.Split.normal()
	t := float64(x.TP)
	tokens := float64(q.micro()) * float64(q.Seq) / float64(x.CP)
	divided, rest := q.activationBytes(a.activeFFN())
	restBy := t
	if q.NoSequence {
		restBy = 1
	}
	layer := (divided+q.scoreBytes())/t + rest/restBy
	inputs := 2 * float64(a.Hidden) / restBy
	if q.OffloadActs {
		inputs = 0
	}
	perLayer := q.part*inputs + (1-q.part)*layer
	k := kept{tokens: tokens, perLayer: perLayer, layers: float64(q.stageLayers()), flying: 1}
	if q.part > 0 {
		widest, beside := q.activationBytes(a.widestFFN())
		k.working = tokens * ((widest+q.scoreBytes())/t + beside/restBy)
	}
	if at == firstStage && x.PP > 1 {
		k.flying = min(float64(x.PP), q.microBatches())
		if v := float64(q.virtual()); v > 1 {
			k.flying *= 1 + (float64(x.PP)-1)/(float64(x.PP)*v)
		}
	}
	return k
}

// stageLayers is how many layers the fullest stage has.
func (q *Training) stageLayers() int {
	p := q.Split.normal().PP
	return (q.Model.Arch.Layers + p - 1) / p
}

// mostBubble is the part of a step that a pipeline may idle before its stages
// are interleaved.
const mostBubble = 0.15

// virtual is into how many parts a stage is interleaved: as many as bring the
// bubble to that.
func (q *Training) virtual() int {
	x := q.Split.normal()
	if x.PP == 1 || q.Model.Arch == nil {
		return 1
	}
	most := max(q.Model.Arch.Layers/x.PP, 1)
	for v := 1; v < most; v++ {
		if float64(x.PP-1)/(q.microBatches()*float64(v)) <= mostBubble {
			return v
		}
	}
	return most
}
