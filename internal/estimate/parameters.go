// SPDX-License-Identifier: Apache-2.0

package estimate

import "fmt"

// parameters counts the weights of a shape by where they are.
type parameters struct {
	embedding, head, positions      int64
	attention, attentionLinear      int64 // of one layer; the matrices alone
	dense, denseLinear              int64 // the MLP of a dense layer
	expert, router, sharedExperts   int64 // one expert; the router; all shared experts, of one layer
	norms                           int64 // of one layer
	outside                         int64 // the last norm, and that of the embedding
	layers, moeLayers, experts, top int64
}

// parameters applies the formula of docs/estimate.md, "Parameters".
func (a *Arch) parameters() parameters {
	h, vocab := int64(a.Hidden), int64(a.Vocab)
	p := parameters{embedding: vocab * h, positions: int64(a.Positions) * h, layers: int64(a.Layers), moeLayers: int64(a.moeLayers())}
	if !a.Tied {
		p.head = vocab * h
	}
	if m := a.MLA; m != nil {
		heads, q, c := int64(a.Heads), int64(m.QRank), int64(m.KVRank)
		queries := h * heads * int64(m.NoPE+m.RoPE)
		if q > 0 {
			queries = h*q + q*heads*int64(m.NoPE+m.RoPE)
		}
		p.attentionLinear = queries + h*(c+int64(m.RoPE)) + c*heads*int64(m.NoPE+m.Value) + heads*int64(m.Value)*h
		p.attention = p.attentionLinear + q + c
	} else {
		wide, narrow := int64(a.queryWidth()), int64(a.kvWidth())
		p.attentionLinear = 2*h*wide + 2*h*narrow
		p.attention = p.attentionLinear
		if a.QKVBias {
			p.attention += wide + 2*narrow
		}
		if a.OutBias {
			p.attention += h
		}
		switch a.QKNorm {
		case QKPerHead:
			p.attention += 2 * int64(a.HeadDim)
		case QKFullWidth:
			p.attention += wide + narrow
		}
	}
	matrices, f := int64(a.mlpMatrices()), int64(a.FFN)
	p.denseLinear = matrices * h * f
	p.dense = p.denseLinear
	if a.MLPBias {
		p.dense += (matrices-1)*f + h
	}
	if m := a.MoE; m != nil {
		p.experts, p.top = int64(m.Experts), int64(m.TopK)
		p.expert = matrices * h * int64(m.ExpertFFN)
		p.sharedExperts = int64(m.Shared) * p.expert
		p.router = h * p.experts
		if m.RouterBias {
			p.router += p.experts
		}
	}
	p.norms = int64(a.NormsPerLayer) * int64(a.normSize())
	p.outside = int64(a.normSize())
	if a.EmbeddingNorm {
		p.outside += 2 * h
	}
	return p
}

func (p parameters) total() int64 {
	return p.embedding + p.head + p.positions + p.outside + p.layers*(p.attention+p.norms) +
		(p.layers-p.moeLayers)*p.dense + p.moeLayers*(p.router+p.sharedExperts+p.experts*p.expert)
}

// active leaves out the experts that a token does not go through.
func (p parameters) active() int64 { return p.total() - p.moeLayers*(p.experts-p.top)*p.expert }

// routed is what all experts that are chosen among hold.
func (p parameters) routed() int64 { return p.moeLayers * p.experts * p.expert }

// linear is what quantisation reaches: the matrices inside the layers.
func (p parameters) linear() int64 {
	return p.layers*p.attentionLinear + (p.layers-p.moeLayers)*p.denseLinear + p.moeLayers*(p.sharedExperts+p.experts*p.expert)
}

// largestUnit is the largest part that is gathered or updated at once: a layer,
// or the embedding.
func (p parameters) largestUnit() int64 { return max(p.embedding, p.largestLayer()) }

func (p parameters) largestLayer() int64 {
	largest := int64(0)
	if p.layers > p.moeLayers {
		largest = max(largest, p.attention+p.norms+p.dense)
	}
	if p.moeLayers > 0 {
		largest = max(largest, p.attention+p.norms+p.router+p.sharedExperts+p.experts*p.expert)
	}
	return largest
}

// largestMatrix is the largest single matrix inside a layer.
func (a *Arch) largestMatrix() int64 {
	f := int64(a.FFN)
	if a.MoE != nil {
		f = max(f, int64(a.MoE.ExpertFFN))
	}
	return int64(a.Hidden) * max(f, int64(a.queryWidth()))
}

// matmul is how many parameters a token is multiplied by: the active ones less
// those that are looked up. The head counts also where it is the embedding.
func (m *Model) matmul() float64 {
	active := float64(m.ActiveTotal())
	if m.Arch == nil {
		return active
	}
	p := m.Arch.parameters()
	if !m.Arch.Tied {
		active -= float64(p.embedding)
	}
	return max(active-float64(p.positions), 1)
}

// ParameterTerms shows the sum that the number of parameters is.
func (m *Model) ParameterTerms() []Term {
	if m.Arch == nil {
		return []Term{{Name: "parameters", Formula: "given", Range: exactly(float64(m.Params))}}
	}
	a, p := m.Arch, m.Arch.parameters()
	var terms []Term
	add := func(name string, value int64, format string, args ...any) {
		if value != 0 {
			terms = append(terms, Term{Name: name, Formula: fmt.Sprintf(format, args...), Range: exactly(float64(value))})
		}
	}
	add("embedding", p.embedding, "V %d x h %d", a.Vocab, a.Hidden)
	add("head", p.head, "V %d x h %d, not tied", a.Vocab, a.Hidden)
	add("positions", p.positions, "%d x h %d", a.Positions, a.Hidden)
	if a.MLA != nil {
		add("attention", p.layers*p.attention, "L %d x MLA of %s", a.Layers, grouped(float64(p.attention)))
	} else {
		add("attention", p.layers*p.attention, "L %d x (2 x h %d x a*d %d + 2 x h x k*d %d + biases and norms %d)",
			a.Layers, a.Hidden, a.queryWidth(), a.kvWidth(), p.attention-p.attentionLinear)
	}
	add("mlp", (p.layers-p.moeLayers)*p.dense, "L %d x (%d x h %d x f %d + biases %d)", a.denseLayers(), a.mlpMatrices(), a.Hidden, a.FFN, p.dense-p.denseLinear)
	if a.MoE != nil {
		add("experts", p.moeLayers*p.experts*p.expert, "L %d x E %d x %d x h %d x f %d", a.moeLayers(), a.MoE.Experts, a.mlpMatrices(), a.Hidden, a.MoE.ExpertFFN)
		add("shared experts", p.moeLayers*p.sharedExperts, "L %d x %d x %d x h %d x f %d", a.moeLayers(), a.MoE.Shared, a.mlpMatrices(), a.Hidden, a.MoE.ExpertFFN)
		add("routers", p.moeLayers*p.router, "L %d x h %d x E %d", a.moeLayers(), a.Hidden, a.MoE.Experts)
	}
	add("norms", p.layers*p.norms+p.outside, "L %d x %d + outside the layers %d", a.Layers, p.norms, p.outside)
	if given := m.Params; given > 0 {
		add("not in the shape", given-p.total(), "given %s less the sum", grouped(float64(given)))
	}
	return terms
}
