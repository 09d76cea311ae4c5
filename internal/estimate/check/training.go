// SPDX-License-Identifier: Apache-2.0

package check

import (
	"math"
	"strings"

	"github.com/divvy-gpu/divvy/internal/estimate"
)

// overCards asks for each card that a name may mean: expected is the geometric
// mean, low and high are those of all.
func (a *asked) overCards(ask func(c *estimate.Datasheet) (estimate.Range, error)) (estimate.Range, error) {
	if len(a.cards) == 0 {
		if a.card == "" {
			return estimate.Range{}, unclearf("no GPU is stated")
		}
		return estimate.Range{}, unclearf("GPU %s is not known", a.card)
	}
	total, sum := estimate.Range{Low: math.Inf(1), High: math.Inf(-1)}, 0.0
	for _, c := range a.cards {
		r, err := ask(c)
		if err != nil {
			return estimate.Range{}, err
		}
		total.Low, total.High = math.Min(total.Low, r.Low), math.Max(total.High, r.High)
		sum += math.Log(r.Mid)
	}
	total.Mid = math.Exp(sum / float64(len(a.cards)))
	return total, nil
}

// question is the training that the settings describe.
func (a *asked) question(m *estimate.Model, c *estimate.Datasheet, pre bool) (estimate.Training, error) {
	q := estimate.Training{Setup: estimate.Setup{Model: m, Card: c, Cards: max(a.n, 1), NoLink: a.pcie, PerMachine: a.perNode},
		Seq: a.seq, MicroBatch: a.micro, Recompute: a.recompute, Tokens: a.tokens,
		Unfused:     a.attention == "unfused" || a.recompute == estimate.RecomputeSelective && a.attention == "",
		ChunkedLoss: a.chunked, InBackward: a.inBackward, OffloadState: a.offloadState, OffloadAll: a.offloadAll, OffloadActs: a.offloadActs}
	var err error
	if q.Format, err = a.format(a.dtype); err != nil {
		return q, err
	}
	if q.Optimizer, err = estimate.OptimizerNamed("adamw"); err != nil {
		return q, err
	}
	if q.Seq == 0 {
		q.Seq = defaultSeq
	}
	// Before 2023 attention wrote its scores, and networks with GELU were
	// trained with dropout. Sequences longer than that could not be.
	if a.attention == "" && q.Seq <= longestUnfused && m.Arch != nil && m.Arch.MLP == estimate.Gelu && pre {
		q.Unfused, q.Dropout = true, true
	}
	if a.nodes > 0 && a.perNode > 0 && a.n == 0 {
		q.Cards = a.nodes * a.perNode
	}
	return q, nil
}

// defaultSeq is a sequence where none is stated: it changes attention alone,
// which is a few percent at this length.
const defaultSeq = 2048

// longestUnfused is the longest sequence for which attention that is not stated
// is taken to write its scores.
const longestUnfused = 2048

// trained estimates pre-training.
func (a *asked) trained(e *estimate.Estimator, m *estimate.Model, c *estimate.Datasheet) (estimate.TrainingResult, error) {
	if m.Arch == nil { // times need layers: those that a model of its size has
		m = m.Typical()
	}
	q, err := a.question(m, c, true)
	if err != nil {
		return estimate.TrainingResult{}, err
	}
	if a.split || a.zero >= 0 {
		q.Split = estimate.Split{TP: max(a.tp, 1), PP: max(a.pp, 1), CP: a.cp, EP: a.ep, ZeRO: a.zero}
		q.SplitZeRO = true
		if a.zero < 0 {
			q.Split.ZeRO = 1
		}
	}
	replicas := q.Cards / (max(a.tp, 1) * max(a.pp, 1) * max(a.cp, 1))
	switch {
	case a.global > 0:
		q.GlobalBatch = int(a.global)
	case a.global+a.batchTokens+float64(a.accum) == 0 && a.micro == 0:
		q.BatchTokens = estimate.StepTokens
	case a.batchTokens > 0:
		q.GlobalBatch = max(int(a.batchTokens)/q.Seq, replicas*max(q.MicroBatch, 1))
	case a.accum > 0:
		q.GlobalBatch = a.accum * replicas * max(q.MicroBatch, 1)
	}
	if (a.split || a.zero >= 0) && q.MicroBatch == 0 {
		q.MicroBatch = 1
	}
	if a.hardwareRate > 0 && q.Recompute == estimate.RecomputeAuto {
		q.Recompute = estimate.RecomputeFull // else there were no rate of hardware apart from that of the model
	}
	var r estimate.TrainingResult
	if a.n == 0 {
		r, err = e.TrainFewest(q)
	} else {
		r, err = e.TrainBest(q)
	}
	if err == nil && !r.Timed {
		err = unclearf("no times for this")
	}
	if err == nil && a.hardwareRate > 0 {
		r.AtHardwareRate(&q, a.hardwareRate)
	}
	return r, asUnclear(err)
}

func training(of func(estimate.TrainingResult) estimate.Range) computed {
	return func(e *estimate.Estimator, a *asked, m *estimate.Model) (estimate.Range, error) {
		a.perCardAlready = true
		return a.overCards(func(c *estimate.Datasheet) (estimate.Range, error) {
			r, err := a.trained(e, m, c)
			return of(r), err
		})
	}
}

// teraflops are percents of the card's rate.
func teraflops(of func(estimate.TrainingResult) estimate.Range) computed {
	return func(e *estimate.Estimator, a *asked, m *estimate.Model) (estimate.Range, error) {
		f, err := a.format(a.dtype)
		if err != nil {
			return estimate.Range{}, err
		}
		return a.overCards(func(c *estimate.Datasheet) (estimate.Range, error) {
			r, err := a.trained(e, m, c)
			x, k := of(r), c.TFLOPS(f)/100
			return estimate.Range{Low: x.Low * k, Mid: x.Mid * k, High: x.High * k}, err
		})
	}
}

func trainDays(e *estimate.Estimator, a *asked, m *estimate.Model) (estimate.Range, error) {
	if a.n == 0 || a.tokens == 0 {
		return estimate.Range{}, unclearf("GPUs or tokens are not stated")
	}
	return a.overCards(func(c *estimate.Datasheet) (estimate.Range, error) {
		r, err := a.trained(e, m, c)
		k := 1 / (24 * float64(a.n))
		return estimate.Range{Low: r.RunHours.Low * k, Mid: r.RunHours.Mid * k, High: r.RunHours.High * k}, err
	})
}

// What the programs of fine-tuning do where nothing else is said.
const (
	unpackedTokens = 512 // of a sequence that is not packed
	defaultRank    = 16
	defaultTuneSeq = 2048
)

// tuning estimates fine-tuning; the card changes times only.
func (a *asked) tuning(e *estimate.Estimator, m *estimate.Model) (estimate.TrainingResult, error) {
	var card *estimate.Datasheet
	if len(a.cards) > 0 {
		card = a.cards[0]
	}
	q, err := a.question(m, card, false)
	if err != nil {
		return estimate.TrainingResult{}, err
	}
	q.MicroBatch = max(int(a.batch), a.micro, 1)
	switch {
	case a.unpacked:
		q.Seq = unpackedTokens
	case a.seq == 0 && a.maxSeq > 0:
		q.Seq = a.maxSeq
	case a.seq == 0:
		q.Seq = unpackedTokens
	}
	if a.accum > 1 {
		q.GlobalBatch = a.accum * q.MicroBatch * q.Cards
	}
	optimizer := "adamw-bf16"
	switch {
	case a.precision == "mixed" || a.dtype != "bf16" && a.dtype != "fp16":
		optimizer = "adamw"
	case a.state8 && a.paged:
		optimizer = "adamw-8bit-paged"
	case a.state8:
		optimizer = "adamw-8bit"
	}
	if q.Optimizer, err = estimate.OptimizerNamed(optimizer); err != nil {
		return estimate.TrainingResult{}, err
	}
	if a.lora || a.qlora {
		q.LoRA, q.LoRAQV, q.Weights = defaultRank, a.qv, a.initOnly
		if a.rank > 0 {
			q.LoRA = a.rank
		}
	}
	if a.qlora {
		if q.Format, err = a.format("nf4"); err != nil {
			return estimate.TrainingResult{}, err
		}
	}
	if q.Cards > 1 {
		q.Split.ZeRO = 3
	}
	// What the programs of fine-tuning do where nothing else is said: layers are
	// recomputed, logits come in parts, operations are not fused.
	q.Eager = a.compile != "yes"
	q.ChunkedLoss = a.chunked || a.step == ""
	if a.recompute == "" {
		q.Recompute = estimate.RecomputeFull
	}
	r, err := e.Train(q)
	return r, asUnclear(err)
}

func peakMemory(e *estimate.Estimator, a *asked, m *estimate.Model) (estimate.Range, error) {
	if a.perParam > 0 {
		return just(a.perParam * float64(m.Total())), nil
	}
	r, err := a.tuning(e, m)
	if a.driverMeter {
		return r.Memory.Total, err
	}
	return r.Memory.Allocated, err
}

func tuned(e *estimate.Estimator, a *asked, m *estimate.Model) (estimate.Range, error) {
	if a.unpacked {
		return estimate.Range{}, unclearf("how much of an unpacked sequence is text is not stated")
	}
	return a.overCards(func(c *estimate.Datasheet) (estimate.Range, error) {
		one := *a
		one.cards = []*estimate.Datasheet{c}
		r, err := one.tuning(e, m)
		n := float64(max(a.n, 1))
		return estimate.Range{Low: r.Rate.Low * n, Mid: r.Rate.Mid * n, High: r.Rate.High * n}, err
	})
}

// layerTime is that of one layer: there, back, or back with what is computed
// again.
func layerTime(e *estimate.Estimator, a *asked, m *estimate.Model) (estimate.Range, error) {
	if err := needShape(m); err != nil {
		return estimate.Range{}, err
	}
	way, how, _ := strings.Cut(a.what, "-")
	if way != "fwd" && way != "bwd" {
		return estimate.Range{}, unclearf("setting what: %q is not fwd or bwd", a.what)
	}
	switch how {
	case "base", "sp", "full-recompute":
	default:
		return estimate.Range{}, unclearf("setting what: %q is not base, sp or full-recompute", how)
	}
	return a.overCards(func(c *estimate.Datasheet) (estimate.Range, error) {
		q, err := a.question(m, c, true)
		if err != nil {
			return estimate.Range{}, err
		}
		q.Split = estimate.Split{TP: a.tp, CP: a.cp}
		q.Cards = max(a.tp, 1) * max(a.cp, 1)
		if how == "full-recompute" {
			q.Recompute = estimate.RecomputeFull
		}
		there, back, err := e.LayerTime(q)
		if way == "bwd" {
			there = back
		}
		return there, asUnclear(err)
	})
}
