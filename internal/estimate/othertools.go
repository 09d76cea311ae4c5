// SPDX-License-Identifier: Apache-2.0

package estimate

// DeepSpeed is a question to DeepSpeed's memory estimators, which count model
// states alone: docs/estimate.md, "Other tools' rules".
type DeepSpeed struct {
	Params, Largest          float64 // of the model, of its largest layer
	Stage                    int     // of ZeRO, 2 or 3
	PerNode, Nodes           int
	OffloadState, OffloadAll bool
	ZeroInit                 bool // parameters are shared out while the model is built
	Buffer                   float64
}

// Card is what it says of a card.
func (q DeepSpeed) Card() float64 {
	n := float64(q.PerNode * q.Nodes)
	if q.Stage < 3 {
		if q.OffloadState || q.OffloadAll {
			return 2 * q.Params
		}
		return 4*q.Params + 16*q.Params/n
	}
	switch {
	case q.OffloadAll:
		return 4 * q.Largest
	case q.OffloadState:
		return 4*q.Largest + 2*q.Params/n
	}
	return 4*q.Largest + 18*q.Params/n
}

// Host is what it says of a machine.
func (q DeepSpeed) Host() float64 {
	buffer := q.Buffer
	if buffer == 0 {
		buffer = 1.5
	}
	n, machine := float64(q.PerNode*q.Nodes), float64(q.PerNode)
	if q.Stage < 3 {
		if q.OffloadState || q.OffloadAll {
			return max(4*n, 16) * q.Params * buffer
		}
		return 4 * q.Params * machine * buffer
	}
	part := 1 / float64(q.Nodes)
	switch {
	case q.OffloadAll && q.ZeroInit:
		return 18 * q.Params * part * buffer
	case q.OffloadAll:
		return max(4*machine, 18*part) * q.Params * buffer
	case q.OffloadState && q.ZeroInit:
		return max(4*machine, 16*part) * q.Params * buffer
	case q.OffloadState:
		return max(4*machine, 16*part) * q.Params * buffer
	case q.ZeroInit:
		return 4 * q.Largest * machine * buffer
	}
	return 4 * q.Params * machine * buffer
}

// With is the same optimizer with other bytes of gradients and states.
func (o Optimizer) With(gradient, state float64) Optimizer {
	o.gradient, o.state = gradient, state
	return o
}

// Overhead is what a process takes on a card by being there.
func (e *Estimator) Overhead() Range { return e.K.overhead() }

// TFLOPS is a card's dense rate in a format.
func (c *Card) TFLOPS(f Format) float64 { return c.rate(f.class) / 1e12 }

// KVBytesPerCardToken is what a token takes of the cache of one of tp cards.
func (a *Arch) KVBytesPerCardToken(bytes float64, tp int) float64 {
	return a.KVBytesPerToken(bytes) / a.kvSplit(tp)
}

// Term gives a figure of the result by its name.
func (r *ServingResult) Term(name string) Range {
	for _, t := range r.Terms {
		if t.Name == name {
			return t.Range
		}
	}
	return Range{}
}
