// SPDX-License-Identifier: Apache-2.0

package check

import "github.com/divvy-gpu/divvy/internal/estimate"

// Lengths where none is stated: a prompt of a few words.
const (
	defaultPrompt = 16
	defaultReply  = 128
)

// serving is the question that the settings describe, but for the card.
func (a *asked) serving(m *estimate.Model) (estimate.Serving, error) {
	q := estimate.Serving{Setup: estimate.Setup{Model: m, Cards: max(a.n, 1), NoLink: a.pcie, PerMachine: a.perNode},
		In: a.in, Out: a.out, KV: a.kvBytes, Block: a.block, Utilization: a.utilization, Pipeline: a.pipeline, MostBatch: a.maxBatch}
	var err error
	if q.Format, err = a.format(a.dtype); err != nil {
		return q, err
	}
	if len(a.cards) > 0 {
		q.Card = a.cards[0]
	}
	q.Split = estimate.Split{TP: a.tp, PP: a.pp, EP: a.ep}
	if a.tp > 0 {
		q.Split.PP = max(a.pp, 1)
	}
	if a.tp == 0 && a.pp == 0 && a.pipeline {
		q.Split.TP = q.Cards
	}
	if q.In == 0 {
		q.In = max(a.context, defaultPrompt)
	}
	if q.Out == 0 {
		q.Out = max(a.written, 1)
		if a.written == 0 && a.context == 0 {
			q.Out = defaultReply
		}
	}
	switch {
	case a.concurrency > 0:
		q.Concurrency = a.concurrency
	case a.batch > 0:
		q.Concurrency, q.Batch = a.batch, true
	}
	return q, nil
}

func (a *asked) served(e *estimate.Estimator, m *estimate.Model, of func(q estimate.Serving, r estimate.ServingResult) estimate.Range) (estimate.Range, error) {
	if err := needShape(m); err != nil {
		return estimate.Range{}, err
	}
	return a.overCards(func(c *estimate.Datasheet) (estimate.Range, error) {
		q, err := a.serving(m)
		if err != nil {
			return estimate.Range{}, err
		}
		q.Card = c
		r, err := e.ServeBest(q)
		if err == nil && !r.Timed {
			err = unclearf("no room for it on these GPUs")
		}
		if err != nil {
			return estimate.Range{}, asUnclear(err)
		}
		return of(q, r), nil
	})
}

func prefill(e *estimate.Estimator, a *asked, m *estimate.Model) (estimate.Range, error) {
	return a.served(e, m, func(_ estimate.Serving, r estimate.ServingResult) estimate.Range {
		if a.concurrency > 1 {
			return r.First
		}
		return r.Term("prefill")
	})
}

func decode(e *estimate.Estimator, a *asked, m *estimate.Model) (estimate.Range, error) {
	kind := a.kind
	if a.batch == 0 && a.concurrency == 0 {
		a.batch = 1
	}
	return a.served(e, m, func(q estimate.Serving, r estimate.ServingResult) estimate.Range {
		if a.concurrency > 0 {
			return r.Between
		}
		step := r.Term("decode step")
		switch kind {
		case "decode_throughput":
			return estimate.Range{Low: a.batch / step.High, Mid: a.batch / step.Mid, High: a.batch / step.Low}
		case "latency_decode_per_generated_token":
			return estimate.Range{Low: step.Low / a.batch, Mid: step.Mid / a.batch, High: step.High / a.batch}
		}
		return step
	})
}

func request(e *estimate.Estimator, a *asked, m *estimate.Model) (estimate.Range, error) {
	return a.served(e, m, func(_ estimate.Serving, r estimate.ServingResult) estimate.Range { return r.Request })
}

func throughput(e *estimate.Estimator, a *asked, m *estimate.Model) (estimate.Range, error) {
	if a.in == 0 || a.out == 0 {
		return estimate.Range{}, unclearf("isl or osl is not stated")
	}
	return a.served(e, m, func(_ estimate.Serving, r estimate.ServingResult) estimate.Range { return r.Rate })
}
