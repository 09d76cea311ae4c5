// SPDX-License-Identifier: Apache-2.0

package reference

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/estimate"
	"github.com/divvy-gpu/divvy/internal/pattern"
	"github.com/divvy-gpu/divvy/internal/yamldoc"
)

// family is what a model_type of config.json means beside its numbers.
type family struct {
	mlp, norm     string
	norms         int
	tied          bool // where the file does not say
	qkv, out, mlB bool // biases where the file does not say
	qkNorm        string
	positions     int // added to max_position_embeddings; -1: none are learned
}

// families are the networks whose parts we know.
var families = map[string]family{
	"gpt2":    {mlp: estimate.Gelu, norm: estimate.LayerNorm, norms: 2, tied: true, qkv: true, out: true, mlB: true},
	"opt":     {mlp: estimate.Gelu, norm: estimate.LayerNorm, norms: 2, tied: true, qkv: true, out: true, mlB: true, positions: 2},
	"bloom":   {mlp: estimate.Gelu, norm: estimate.LayerNorm, norms: 2, tied: true, qkv: true, out: true, mlB: true, positions: -1},
	"falcon":  {mlp: estimate.Gelu, norm: estimate.LayerNorm, norms: 1, tied: true, positions: -1},
	"llama":   gatedRMS(2, false, ""),
	"mistral": gatedRMS(2, false, ""), "mixtral": gatedRMS(2, false, ""), "smollm3": gatedRMS(2, true, ""), "phi3": gatedRMS(2, false, ""),
	"qwen2": {mlp: estimate.SwiGLU, norm: estimate.RMSNorm, norms: 2, qkv: true, positions: -1},
	"qwen3": gatedRMS(2, false, estimate.QKPerHead), "qwen3_moe": gatedRMS(2, false, estimate.QKPerHead),
	"olmo2": gatedRMS(2, false, estimate.QKFullWidth),
	"gemma": gatedRMS(2, true, ""), "gemma2": gatedRMS(4, true, ""), "gemma3_text": gatedRMS(4, true, estimate.QKPerHead),
	"deepseek_v3": gatedRMS(2, false, ""),
}

func gatedRMS(norms int, tied bool, qkNorm string) family {
	return family{mlp: estimate.SwiGLU, norm: estimate.RMSNorm, norms: norms, tied: tied, qkNorm: qkNorm, positions: -1}
}

// config is a config.json, read field by field.
type config struct {
	fields map[string]any
	used   map[string]bool
	err    error
}

// whole reads the first of some names that is there and no null.
func (c *config) whole(otherwise int, names ...string) int {
	for _, name := range names {
		v, ok := c.fields[name]
		c.used[name] = true
		if !ok || v == nil {
			continue
		}
		n, ok := v.(json.Number)
		if !ok {
			c.fail("%s is no number", name)
			return otherwise
		}
		x, err := n.Int64()
		if err != nil || x < 0 || x > 1<<40 {
			c.fail("%s %s is no whole number between 0 and 2^40", name, n)
			return otherwise
		}
		return int(x)
	}
	return otherwise
}

func (c *config) truth(otherwise bool, name string) bool {
	v, ok := c.fields[name]
	c.used[name] = true
	if !ok || v == nil {
		return otherwise
	}
	b, ok := v.(bool)
	if !ok {
		c.fail("%s is not true or false", name)
	}
	return b
}

func (c *config) word(name string) string {
	c.used[name] = true
	w, _ := c.fields[name].(string)
	return w
}

func (c *config) fail(format string, args ...any) {
	if c.err == nil {
		c.err = badf("config.json: "+format, args...)
	}
}

// parts are fields that say that there is more in a network than we know.
var parts = pattern.Of(`(?i)(vision|audio|image|video|speech|encoder|mamba|ssm|_conv|conv_|rwkv|linear_attn|linear_key|linear_value|recurrent|lru_|cross_attention|per_layer_input|altup|laurel|engram|lightning|kda_)`)

// Config reads a model's config.json. What is not known of the network is named
// in Lower: figures are then lower bounds.
func Config(name string, raw []byte) (*estimate.Model, []string, error) {
	if len(raw) > MaxFile {
		return nil, nil, badf("longer than %d bytes", MaxFile)
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	c := &config{used: map[string]bool{}}
	if err := decoder.Decode(&c.fields); err != nil {
		return nil, nil, badf("config.json: not a JSON object: %v", yamldoc.FirstLine(err))
	}
	if c.fields == nil {
		return nil, nil, badf("config.json: not a JSON object")
	}
	var notes []string
	m := &estimate.Model{Name: name}
	kind := c.word("model_type")
	if text, ok := c.fields["text_config"].(map[string]any); ok { // a model of several kinds of input
		m.Lower = "what is beside text_config"
		for field := range c.fields {
			if parts().MatchString(field) {
				m.Lower = field
			}
		}
		tied, said := c.fields["tie_word_embeddings"]
		c.fields = text
		if _, again := text["tie_word_embeddings"]; said && !again {
			c.fields["tie_word_embeddings"] = tied
		}
		if k := c.word("model_type"); k != "" {
			kind = k
		}
	}
	f, known := families[kind]
	if !known {
		f = gatedRMS(2, false, "")
		m.Lower = fmt.Sprintf("model_type %q", kind)
	}
	m.Arch = c.arch(kind, f)
	for _, field := range sortedFields(c.fields) {
		if !c.used[field] && parts().MatchString(field) && !empty(c.fields[field]) {
			m.Lower = field
		}
	}
	if kinds, ok := c.fields["layer_types"].([]any); ok {
		c.layerTypes(m, kinds)
	}
	if n := c.whole(0, "num_nextn_predict_layers"); n > 0 {
		notes = append(notes, fmt.Sprintf("without the %d layers that predict further tokens (num_nextn_predict_layers)", n))
	}
	if c.err != nil {
		return nil, nil, c.err
	}
	if err := m.Validate(); err != nil {
		return nil, nil, badf("config.json: %v", err)
	}
	if m.Lower != "" {
		notes = append(notes, fmt.Sprintf("config.json: %s is not understood: memory is that of the known part, a lower bound, and there are no times", m.Lower))
	}
	return m, notes, nil
}

func empty(v any) bool {
	switch x := v.(type) {
	case nil:
		return true
	case bool:
		return !x
	case json.Number:
		return x.String() == "0"
	case string:
		return x == ""
	case []any:
		return len(x) == 0
	case map[string]any:
		return len(x) == 0
	}
	return false
}

func sortedFields(m map[string]any) []string {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// layerTypes counts layers that look back a window; others than these and whole
// ones are not known.
func (c *config) layerTypes(m *estimate.Model, kinds []any) {
	local := 0
	for _, kind := range kinds {
		switch word, _ := kind.(string); word {
		case "sliding_attention":
			local++
		case "full_attention":
		default:
			m.Lower = fmt.Sprintf("layer_types %q", fmt.Sprint(kind))
			if len(m.Lower) > 100 {
				m.Lower = m.Lower[:100]
			}
		}
	}
	switch {
	case local == 0:
		m.Arch.Window, m.Arch.Every = 0, 0
	case len(kinds) == m.Arch.Layers:
		m.Arch.Local = local
	default:
		c.fail("layer_types has %d entries for %d layers", len(kinds), m.Arch.Layers)
	}
}

func (c *config) arch(kind string, f family) *estimate.Arch {
	a := &estimate.Arch{
		Layers: c.whole(0, "num_hidden_layers", "n_layer", "num_layers", "n_layers"), Hidden: c.whole(0, "hidden_size", "n_embd", "d_model", "n_embed"),
		Heads: c.whole(0, "num_attention_heads", "n_head", "n_heads"), Vocab: c.whole(0, "vocab_size"),
		MLP: f.mlp, Norm: f.norm, NormsPerLayer: f.norms, QKNorm: f.qkNorm, Tied: c.truth(f.tied, "tie_word_embeddings"),
	}
	if a.Heads == 0 || a.Layers == 0 || a.Hidden == 0 {
		c.fail("num_hidden_layers, hidden_size or num_attention_heads is missing")
		a.Heads = max(a.Heads, 1)
	}
	a.KVHeads = c.whole(a.Heads, "num_key_value_heads", "num_kv_heads")
	a.HeadDim = c.whole(a.Hidden/a.Heads, "head_dim")
	a.FFN = c.whole(4*a.Hidden, "intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "d_ff")
	a.QKVBias = c.truth(f.qkv, "attention_bias")
	a.OutBias = f.out || a.QKVBias && !f.qkv && kind == "llama"
	a.MLPBias = c.truth(f.mlB, "mlp_bias")
	if f.positions >= 0 {
		a.Positions = c.whole(0, "max_position_embeddings", "n_positions", "n_ctx") + f.positions
	}
	if act := strings.ToLower(c.word("hidden_act") + c.word("hidden_activation")); f.mlp == estimate.SwiGLU && strings.Contains(act, "gelu") {
		a.MLP = estimate.GeGLU
	}
	if c.truth(true, "use_sliding_window") && (kind == "mistral" || kind == "mixtral" || strings.HasPrefix(kind, "gemma") || kind == "phi3" || c.fields["layer_types"] != nil) {
		a.Window = c.whole(0, "sliding_window")
		switch kind {
		case "gemma2":
			a.Every = 2
		case "gemma3_text":
			a.Every = c.whole(6, "sliding_window_pattern", "_sliding_window_pattern")
		}
	}
	switch kind {
	case "bloom":
		a.EmbeddingNorm = true
	case "falcon":
		c.falcon(a)
	case "opt":
		if c.whole(a.Hidden, "word_embed_proj_dim") != a.Hidden {
			c.fail("word_embed_proj_dim: embeddings of another width than the layers are not understood")
		}
	}
	c.experts(a)
	if c.fields["kv_lora_rank"] != nil {
		a.MLA = &estimate.MLA{QRank: c.whole(0, "q_lora_rank"), KVRank: c.whole(0, "kv_lora_rank"), NoPE: c.whole(0, "qk_nope_head_dim"),
			RoPE: c.whole(0, "qk_rope_head_dim"), Value: c.whole(0, "v_head_dim")}
		a.HeadDim = 0
	}
	return a
}

// falcon has one norm a layer with parallel attention, two in its newer form.
func (c *config) falcon(a *estimate.Arch) {
	a.ParallelAttention = c.truth(true, "parallel_attn")
	bias := c.truth(false, "bias")
	a.QKVBias, a.OutBias, a.MLPBias = bias, bias, bias
	switch {
	case c.truth(false, "new_decoder_architecture"):
		a.NormsPerLayer = c.whole(2, "num_ln_in_parallel_attn")
	case c.truth(true, "multi_query"):
		a.KVHeads = 1
	default:
		a.KVHeads = a.Heads
	}
	if !a.ParallelAttention {
		a.NormsPerLayer = 2
	}
}

func (c *config) experts(a *estimate.Arch) {
	n := c.whole(0, "num_local_experts", "num_experts", "n_routed_experts")
	if n == 0 {
		return
	}
	m := &estimate.MoE{Experts: n, TopK: c.whole(0, "num_experts_per_tok"), Shared: c.whole(0, "n_shared_experts"), DenseLayers: c.whole(0, "first_k_dense_replace"),
		ExpertFFN: c.whole(a.FFN, "moe_intermediate_size"), RouterBias: c.word("topk_method") == "noaux_tc"}
	if every := c.whole(1, "decoder_sparse_step"); every > 1 {
		c.fail("decoder_sparse_step %d: experts in some layers only are not understood", every)
	}
	if only, ok := c.fields["mlp_only_layers"].([]any); ok {
		m.DenseLayers = len(only)
	}
	if c.whole(0, "shared_expert_intermediate_size") > 0 {
		c.fail("shared_expert_intermediate_size: a shared expert of another width is not understood")
	}
	if m.DenseLayers == 0 {
		a.FFN = 0
	}
	a.MoE = m
}
