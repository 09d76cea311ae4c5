// SPDX-License-Identifier: Apache-2.0

package estimate

import "sort"

// TrainingResult answers a Training.
type TrainingResult struct {
	Split       Split   `json:"split"`
	Cards       int     `json:"cards"`
	MicroBatch  int     `json:"microBatch"`
	GlobalBatch int     `json:"globalBatch"`
	Recompute   string  `json:"recompute"`
	Recomputed  float64 `json:"recomputedPart"` // of the layers
	Memory      Memory  `json:"memory"`
	Terms       []Term  `json:"terms"`
	// Timed says that there are times: the card and the shape are known.
	Timed     bool     `json:"timed"`
	Step      Range    `json:"stepSeconds"`
	Rate      Range    `json:"tokensPerSecondPerCard"`
	MFU       Range    `json:"mfuPercent"`
	HFU       Range    `json:"hfuPercent"`
	StepHours Range    `json:"stepGpuHours"` // of all tokens, at that rate
	RunHours  Range    `json:"runGpuHours"`  // of a whole run, with all that goes on beside
	Compute   float64  `json:"flops"`
	Notes     []string `json:"notes"`
}

// Train estimates training or fine-tuning.
func (e *Estimator) Train(q Training) (TrainingResult, error) {
	r, s, err := e.train(q, false)
	if err == nil {
		err = s.unmet()
	}
	return r, err
}

func (e *Estimator) train(q Training, mute bool) (TrainingResult, *sheet, error) {
	if err := q.validate(); err != nil {
		return TrainingResult{}, nil, err
	}
	r := TrainingResult{Notes: []string{}}
	e.chooseRecompute(&q)
	s := newSheet(q.Measured, mute)
	r.Split, r.Cards, r.Recompute, r.MicroBatch = q.Split.normal(), q.Cards, q.Recompute, q.micro()
	r.Recomputed = q.part
	r.GlobalBatch = int(q.microBatches() * float64(q.replicas()*q.micro()))
	r.Memory = e.trainingMemory(&q, s)
	if host, formula := q.hostBytes(s); host > 0 {
		r.Memory.Host = s.add(Term{Name: "host", Unit: Bytes, Formula: formula, Range: exactly(host)})
	}
	r.Compute = q.countedFLOPs() * q.Tokens
	if q.Card != nil && q.Model.Arch != nil && q.Model.Lower == "" {
		e.trainTimes(&q, s, &r)
	}
	r.Terms = s.terms
	if !r.Memory.Total.finite() || r.Timed && !(r.Step.finite() && r.Rate.finite() && r.Step.Low > 0) {
		return TrainingResult{}, nil, invalidf("these numbers lead to no finite figure")
	}
	return r, s, nil
}

// chooseRecompute says which part of the layers is recomputed: what was asked
// for, or as few as it takes to fit.
func (e *Estimator) chooseRecompute(q *Training) {
	switch {
	case q.Recompute == RecomputeFull:
		q.part = 1
		return
	case q.Recompute != RecomputeAuto:
		q.part = 0
		return
	case q.Card == nil || q.Model.Arch == nil:
		q.Recompute = RecomputeNone
		return
	}
	layers := q.stageLayers()
	fits := func(n int) bool {
		q.part = float64(n) / float64(layers)
		return e.trainingMemory(q, newSheet(q.Measured, true)).Fits != FitsNot
	}
	if fits(0) {
		q.Recompute = RecomputeNone
		return
	}
	q.Recompute = RecomputeFull
	if fits(layers) {
		q.part = float64(1+sort.Search(layers-1, func(n int) bool { return fits(n + 1) })) / float64(layers)
	}
}

func (e *Estimator) trainTimes(q *Training, s *sheet, r *TrainingResult) {
	r.Timed = true
	step := e.stepTime(q, s)
	r.Step = s.add(Term{Name: "step", Unit: Seconds, Range: step, Formula: "micro-batches x micro-batch + bubble + data-parallel + update"})
	tokens, cards := q.stepTokens(), float64(q.Cards)
	rate := exactly(tokens / cards).per(r.Step)
	r.Rate = s.add(Term{Name: "throughput", Unit: PerSecond, Range: Range{rate.Low, rate.Mid, rate.High},
		Formula: s.say("%s tokens / step / %d GPUs", amount(tokens), q.Cards)})
	peak := q.Card.rate(q.Format.class)
	if q.TFLOPS > 0 {
		peak = q.TFLOPS * 1e12
	}
	counted := q.countedFLOPs()
	r.MFU = r.Rate.times(100 * counted / peak)
	s.terms = append(s.terms, Term{Name: "mfu", Unit: Percent, Range: r.MFU, Formula: s.say("throughput x %s FLOP a token / %.4g TFLOP/s", brief(counted), peak/1e12)})
	r.HFU = r.Rate.times(100 * q.HardwareFLOPs() / peak)
	if q.Tokens > 0 {
		r.StepHours = exactly(q.Tokens / 3600).per(r.Rate)
		run := e.K[cRun].Range
		r.RunHours = Range{r.StepHours.Mid * run.Low, r.StepHours.Mid * run.Mid, r.StepHours.Mid * run.High}
		r.RunHours = s.add(Term{Name: "hours", Unit: Hours, Range: r.RunHours, Constants: []string{"run"},
			Formula: s.say("%s tokens / throughput x %.2f for restarts, evaluation and slow days (%.2f to %.2f)", brief(q.Tokens), run.Mid, run.Low, run.High)})
	}
}

// AtHardwareRate puts what a card was measured to compute in a second, with what
// it computes again, into the place of all that was expected of its time.
func (r *TrainingResult) AtHardwareRate(q *Training, rate float64) {
	x := *q
	x.part = r.Recomputed
	step := exactly(x.stepTokens() * x.HardwareFLOPs() / (rate * float64(x.Cards)))
	r.Rate = exactly(x.stepTokens() / float64(x.Cards)).per(step)
	peak := q.Card.rate(q.Format.class)
	r.Step, r.HFU, r.MFU = step, exactly(100*rate/peak), r.Rate.times(100*q.countedFLOPs()/peak)
}
