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
func (c *Datasheet) TFLOPS(f Format) float64 { return c.rate(f.class) / 1e12 }

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

// Said is what another tool would say, and what it leaves out.
type Said struct {
	Tool   string `json:"tool"`
	Terms  []Term `json:"terms"`
	Leaves string `json:"leavesOut"`
}

// DeepSpeedSays is the output of DeepSpeed's estimators for a model on machines
// of eight cards.
func DeepSpeedSays(m *Model, stage, cards int, offload string) (Said, error) {
	if err := m.Validate(); err != nil {
		return Said{}, err
	}
	if stage == 0 {
		stage = 3
	}
	if stage < 2 || stage > 3 {
		return Said{}, invalidf("DeepSpeed's estimators are for ZeRO 2 and 3, not %d", stage)
	}
	q := DeepSpeed{Params: float64(m.Total()), Stage: stage, PerNode: min(cards, CardsPerMachine), Nodes: max(1, cards/CardsPerMachine), ZeroInit: true,
		OffloadState: offload == "optimizer", OffloadAll: offload == "all"}
	if m.Arch != nil {
		q.Largest = float64(m.Arch.parameters().largestUnit())
	} else if stage == 3 {
		return Said{}, invalidf("its rule for ZeRO 3 takes the largest layer: give a shape")
	}
	n := q.PerNode * q.Nodes
	formula := "4 B x " + short(q.Params) + " + 16 B x " + short(q.Params) + " / " + grouped(float64(n)) + " GPUs"
	if stage == 3 {
		formula = "18 B x " + short(q.Params) + " / " + grouped(float64(n)) + " GPUs + 4 B x largest layer " + short(q.Largest)
	}
	if offload != "none" {
		formula = "with " + offload + " on the host"
	}
	return Said{Tool: "DeepSpeed's memory estimators (ZeRO " + grouped(float64(stage)) + ")", Terms: []Term{
		{Name: "each GPU", Unit: Bytes, Range: exactly(q.Card()), Formula: formula},
		{Name: "each host", Unit: Bytes, Range: exactly(q.Host()), Formula: "with a buffer of half as much again"},
	}, Leaves: "Model states alone: no activations, no logits, no context, nothing for collectives. Leave --rule out for what a GPU will hold."}, nil
}

// AccelerateSays is the output of accelerate estimate-memory.
func AccelerateSays(m *Model, f Format, training bool) (Said, error) {
	if err := m.Validate(); err != nil {
		return Said{}, err
	}
	size := float64(m.Total()) * f.bytes
	s := Said{Tool: "accelerate estimate-memory", Terms: []Term{{Name: "total size", Unit: Bytes, Range: exactly(size), Formula: short(float64(m.Total())) + " parameters x " + short(f.bytes) + " B"}},
		Leaves: "Weights alone: no cache of keys and values, no activations, no context. Leave --rule out for what a GPU will hold."}
	if training {
		s.Terms = append(s.Terms, Term{Name: "training using Adam", Unit: Bytes, Range: exactly(4 * size), Formula: "4 x total size"})
	}
	return s, nil
}
