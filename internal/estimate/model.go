// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"fmt"
	"math"
)

// Ways in which a network can be built.
const (
	Gelu   = "gelu"   // two matrices
	SwiGLU = "swiglu" // three
	GeGLU  = "geglu"  // three

	LayerNorm = "layernorm"
	RMSNorm   = "rmsnorm"

	QKPerHead   = "per_head"
	QKFullWidth = "full_width"
)

// Arch is the shape of a decoder.
type Arch struct {
	Layers  int `yaml:"layers" json:"layers"`
	Hidden  int `yaml:"hidden" json:"hidden"`
	Heads   int `yaml:"heads" json:"heads"`
	KVHeads int `yaml:"kv_heads" json:"kvHeads"`
	HeadDim int `yaml:"head_dim" json:"headDim,omitempty"`
	FFN     int `yaml:"ffn" json:"ffn,omitempty"` // width of a dense MLP; 0: no layer has one
	Vocab   int `yaml:"vocab" json:"vocab"`

	Tied              bool   `yaml:"tied_embeddings" json:"tiedEmbeddings"`
	MLP               string `yaml:"mlp" json:"mlp"`
	Norm              string `yaml:"norm" json:"norm"`
	NormsPerLayer     int    `yaml:"norms_per_layer" json:"normsPerLayer"`
	EmbeddingNorm     bool   `yaml:"embedding_layernorm" json:"embeddingNorm,omitempty"`
	Positions         int    `yaml:"learned_positions" json:"learnedPositions,omitempty"`
	QKVBias           bool   `yaml:"qkv_bias" json:"qkvBias,omitempty"`
	OutBias           bool   `yaml:"out_bias" json:"outBias,omitempty"`
	MLPBias           bool   `yaml:"mlp_bias" json:"mlpBias,omitempty"`
	QKNorm            string `yaml:"qk_norm" json:"qkNorm,omitempty"`
	ParallelAttention bool   `yaml:"parallel_attention" json:"parallelAttention,omitempty"`

	// Window is how far a layer looks back; 0: to the beginning. Of Every
	// layers the first Every-1 have it, of 0 and 1 all; or Local layers have it.
	Window int  `yaml:"sliding_window" json:"slidingWindow,omitempty"`
	Every  int  `yaml:"sliding_every" json:"slidingEvery,omitempty"`
	Local  int  `yaml:"-" json:"slidingLayers,omitempty"`
	MLA    *MLA `yaml:"mla" json:"mla,omitempty"`
	MoE    *MoE `yaml:"moe" json:"moe,omitempty"`
}

// MLA is multi-head latent attention.
type MLA struct {
	QRank  int `yaml:"q_lora_rank" json:"qRank"` // 0: queries are not compressed
	KVRank int `yaml:"kv_lora_rank" json:"kvRank"`
	NoPE   int `yaml:"qk_nope_head_dim" json:"qkNopeHeadDim"`
	RoPE   int `yaml:"qk_rope_head_dim" json:"qkRopeHeadDim"`
	Value  int `yaml:"v_head_dim" json:"vHeadDim"`
}

// MoE is a mixture of experts.
type MoE struct {
	Experts     int  `yaml:"experts" json:"experts"`
	TopK        int  `yaml:"top_k" json:"topK"`
	ExpertFFN   int  `yaml:"expert_ffn" json:"expertFfn"`
	Shared      int  `yaml:"shared" json:"shared"`
	DenseLayers int  `yaml:"dense_layers" json:"denseLayers"`
	RouterBias  bool `yaml:"router_bias" json:"routerBias,omitempty"`
}

// Bounds of a shape. They keep sums far from overflow.
const (
	mostLayers = 10_000
	mostWidth  = 1 << 20
	mostVocab  = 1 << 24
	mostHeads  = 1 << 14
)

// Validate says what is wrong with a shape.
func (a *Arch) Validate() error {
	within := func(name string, value, least, most int) error {
		if value < least || value > most {
			return invalidf("%s %d is not between %d and %d", name, value, least, most)
		}
		return nil
	}
	checks := []error{
		within("layers", a.Layers, 1, mostLayers), within("hidden", a.Hidden, 1, mostWidth),
		within("heads", a.Heads, 1, mostHeads), within("kv heads", a.KVHeads, 1, mostHeads),
		within("vocabulary", a.Vocab, 0, mostVocab), within("positions", a.Positions, 0, mostVocab),
		within("ffn", a.FFN, 0, mostWidth), within("norms per layer", a.NormsPerLayer, 0, 8),
		within("sliding window", a.Window, 0, 1<<30), within("sliding_every", a.Every, 0, mostLayers), within("sliding layers", a.Local, 0, max(a.Layers, 0)),
	}
	if a.MLA == nil {
		checks = append(checks, within("head size", a.HeadDim, 1, 1<<13))
		if a.KVHeads >= 1 && (a.KVHeads > a.Heads || a.Heads%a.KVHeads != 0) {
			checks = append(checks, invalidf("%d kv heads do not divide %d heads", a.KVHeads, a.Heads))
		}
	} else {
		m := a.MLA
		checks = append(checks, within("q_lora_rank", m.QRank, 0, mostWidth), within("kv_lora_rank", m.KVRank, 1, mostWidth),
			within("qk_nope_head_dim", m.NoPE, 1, 1<<13), within("qk_rope_head_dim", m.RoPE, 0, 1<<13), within("v_head_dim", m.Value, 1, 1<<13))
	}
	if m := a.MoE; m != nil {
		checks = append(checks, within("experts", m.Experts, 1, 1<<14), within("expert_ffn", m.ExpertFFN, 1, mostWidth),
			within("shared experts", m.Shared, 0, 1<<10), within("dense layers", m.DenseLayers, 0, max(a.Layers, 0)), within("top_k", m.TopK, 1, max(m.Experts, 1)))
	} else {
		checks = append(checks, within("ffn", a.FFN, 1, mostWidth))
	}
	if a.MLP != Gelu && a.MLP != SwiGLU && a.MLP != GeGLU {
		checks = append(checks, invalidf("mlp %q is not gelu, swiglu or geglu", a.MLP))
	}
	if a.Norm != LayerNorm && a.Norm != RMSNorm {
		checks = append(checks, invalidf("norm %q is not layernorm or rmsnorm", a.Norm))
	}
	if a.QKNorm != "" && a.QKNorm != QKPerHead && a.QKNorm != QKFullWidth {
		checks = append(checks, invalidf("qk_norm %q is not per_head or full_width", a.QKNorm))
	}
	for _, err := range checks {
		if err != nil {
			return err
		}
	}
	return nil
}

// queryWidth is heads x head size, which need not be the hidden size.
func (a *Arch) queryWidth() int {
	if a.MLA != nil {
		return a.Heads * (a.MLA.NoPE + a.MLA.RoPE)
	}
	return a.Heads * a.HeadDim
}

// kvWidth is the width of keys, or of values, as computed (not as cached).
func (a *Arch) kvWidth() int {
	if a.MLA != nil {
		return a.Heads * (a.MLA.NoPE + a.MLA.RoPE)
	}
	return a.KVHeads * a.HeadDim
}

func (a *Arch) gated() bool { return a.MLP != Gelu }

// mlpMatrices is how many matrices an MLP has.
func (a *Arch) mlpMatrices() int {
	if a.gated() {
		return 3
	}
	return 2
}

func (a *Arch) normSize() int {
	if a.Norm == LayerNorm {
		return 2 * a.Hidden
	}
	return a.Hidden
}

// moeLayers and denseLayers count the layers of each kind.
func (a *Arch) moeLayers() int {
	if a.MoE == nil {
		return 0
	}
	return a.Layers - a.MoE.DenseLayers
}

func (a *Arch) denseLayers() int { return a.Layers - a.moeLayers() }

// activeFFN is the width of the MLPs that a token goes through in a layer, on
// average over the layers.
func (a *Arch) activeFFN() float64 {
	if a.MoE == nil {
		return float64(a.FFN)
	}
	inMoE := float64((a.MoE.TopK + a.MoE.Shared) * a.MoE.ExpertFFN)
	return (float64(a.moeLayers())*inMoE + float64(a.denseLayers())*float64(a.FFN)) / float64(a.Layers)
}

// widestFFN is that of the layer in which it is widest.
func (a *Arch) widestFFN() float64 {
	widest := 0
	if a.denseLayers() > 0 {
		widest = a.FFN
	}
	if a.moeLayers() > 0 {
		widest = max(widest, (a.MoE.TopK+a.MoE.Shared)*a.MoE.ExpertFFN)
	}
	return float64(widest)
}

// Model is what is estimated for. Arch is nil where only the number of
// parameters is known, or known in part.
type Model struct {
	Name   string
	Arch   *Arch
	Params int64 // total; 0: as Arch says
	Active int64 // that a token goes through; 0: as Arch says
	// Lower names a part of the network that we do not know: figures are then
	// lower bounds and there are no times.
	Lower string
}

// Validate says what is wrong with a model.
func (m *Model) Validate() error {
	if m.Arch == nil && m.Params == 0 {
		return invalidf("%s: neither a shape nor a number of parameters is known", m.called())
	}
	if m.Params < 0 || m.Params > 1e16 || m.Active < 0 || m.Active > 1e16 {
		return invalidf("%s: %g parameters make no sense", m.called(), float64(max(m.Params, m.Active)))
	}
	if m.Arch != nil {
		if err := m.Arch.Validate(); err != nil {
			return fmt.Errorf("%s: %w", m.called(), err)
		}
		if total := m.Arch.parameters().total(); m.Params > 0 && total > 0 && (float64(m.Params) > 4*float64(total) || float64(m.Params) < float64(total)/4) {
			return invalidf("%s: %s parameters do not go with its layers, which have %s", m.called(), short(float64(m.Params)), short(float64(total)))
		}
	}
	return nil
}

// Typical gives a model of which only the number of parameters is known the
// shape that such models have, for times: attention of heads of 128, an MLP four
// times as wide, 128 of width to a layer (as GPT-3 and LLaMA from 7 to 175
// billion have, between 64 and 128). It says so in its name.
func (m *Model) Typical() *Model {
	n := float64(m.Params)
	layers := max(1, int(math.Round(math.Cbrt(n/(12*96*96)))))
	hidden := max(128, int(math.Round(math.Sqrt(n/(12*float64(layers)))/128))*128)
	heads := hidden / 128
	return &Model{Name: m.Name, Params: m.Params, Active: m.Active, Arch: &Arch{Layers: layers, Hidden: hidden, Heads: heads, KVHeads: heads, HeadDim: 128,
		FFN: 4 * hidden, Tied: true, MLP: Gelu, Norm: LayerNorm, NormsPerLayer: 2}}
}

func (m *Model) called() string {
	if m.Name == "" {
		return "the model"
	}
	return m.Name
}

// Total is the number of parameters.
func (m *Model) Total() int64 {
	if m.Params > 0 {
		return m.Params
	}
	return m.Arch.parameters().total()
}

// ActiveTotal is the number of parameters that one token goes through.
func (m *Model) ActiveTotal() int64 {
	if m.Active > 0 {
		return m.Active
	}
	if m.Arch == nil {
		return m.Params
	}
	p := m.Arch.parameters()
	return m.Total() - (p.total() - p.active())
}
