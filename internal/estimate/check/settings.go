// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/divvy-gpu/divvy/internal/estimate"
	"github.com/divvy-gpu/divvy/internal/estimate/reference"
	"github.com/divvy-gpu/divvy/internal/pattern"
)

// asked is a row's settings, understood. Zero means not stated.
type asked struct {
	file  *reference.File
	cards []*estimate.Datasheet // that the name may mean; empty: none is named, or it is not known
	card  string

	n, nodes, perNode                        int
	params, active                           float64
	layers, hidden, heads, kvHeads, dim, ffn int
	vocab                                    int
	tp, pp, cp, ep, dp                       int
	split                                    bool // how cards are used is stated
	zero                                     int  // -1: not stated
	seq, micro, accum                        int
	global, batchTokens                      float64
	recompute                                string
	attention, compile                       string
	chunked, inBackward, paged, offloadActs  bool
	offloadState, offloadAll, pipeline       bool
	optimizer                                string
	state8                                   bool
	precision                                string // of training
	dtype                                    string // of weights
	kvBytes                                  float64
	in, out, context, written                int
	batch, concurrency                       float64
	tokens                                   float64
	utilization, kvMemory, kvMemoryPerCard   float64 // bytes
	block                                    int
	pcie                                     bool
	lora, qlora, full, qv, initOnly          bool
	rank                                     int
	largest, buffer                          float64
	bytes                                    []float64 // weights, gradients, states
	perParam                                 float64
	what, step                               string
	driverMeter                              bool
	memoryLimit                              float64 // bytes
	unpacked, cumulative, configured         bool
	withContext                              bool
	maxSeq, maxBatch                         int
	hardwareRate                             float64 // FLOP/s of a card, with what is computed again
	kind, name                               string  // of the row, of its model
	perCardAlready                           bool    // what was computed is of one card
}

// unclear is why a row is skipped.
type unclear struct{ text string }

func (e *unclear) Error() string { return e.text }

func unclearf(format string, args ...any) error { return &unclear{fmt.Sprintf(format, args...)} }

// reading is how a setting is read.
type reading func(a *asked, n yaml.Node) error

func whole(to func(a *asked) *int) reading {
	return func(a *asked, n yaml.Node) error {
		x, ok := reference.Number(n)
		if !ok || x != float64(int64(x)) || x < 0 || x > 1<<40 {
			return unclearf("%q is no whole number", n.Value)
		}
		*to(a) = int(x)
		return nil
	}
}

func number(to func(a *asked) *float64, unit float64) reading {
	return func(a *asked, n yaml.Node) error {
		x, ok := reference.Number(n)
		if !ok || x < 0 || x > 1e18 {
			return unclearf("%q is no number", n.Value)
		}
		*to(a) = x * unit
		return nil
	}
}

func truth(to func(a *asked) *bool) reading {
	return func(a *asked, n yaml.Node) error {
		if n.Decode(to(a)) != nil {
			return unclearf("%q is not true or false", n.Value)
		}
		return nil
	}
}

func text(to func(a *asked) *string) reading {
	return func(a *asked, n yaml.Node) error {
		if n.Kind != yaml.ScalarNode {
			return unclearf("it is no text")
		}
		*to(a) = n.Value
		return nil
	}
}

// noted is a setting that changes no figure of ours: which program was used,
// what the source did elsewhere, and results that must not be used.
func noted(*asked, yaml.Node) error { return nil }

// words is a setting in words, each of which must be understood.
func words(a *asked, n yaml.Node) error {
	if n.Kind != yaml.ScalarNode {
		return unclearf("it is no text")
	}
	return a.understand(n.Value)
}

func configRead(a *asked, n yaml.Node) error {
	a.configured = true
	return words(a, n)
}

const gib = 1 << 30

// readings are the settings that are understood.
var readings = map[string]reading{
	// The model.
	"params": number(func(a *asked) *float64 { return &a.params }, 1), "params_active": number(func(a *asked) *float64 { return &a.active }, 1), "active_params": number(func(a *asked) *float64 { return &a.active }, 1),
	"layers": whole(func(a *asked) *int { return &a.layers }), "hidden": whole(func(a *asked) *int { return &a.hidden }),
	"heads": whole(func(a *asked) *int { return &a.heads }), "kv_heads": whole(func(a *asked) *int { return &a.kvHeads }), "head_dim": whole(func(a *asked) *int { return &a.dim }),
	"ffn": whole(func(a *asked) *int { return &a.ffn }), "vocab": whole(func(a *asked) *int { return &a.vocab }),
	// The cards.
	"card": cardNamed, "gpu": cardNamed, "cards": whole(func(a *asked) *int { return &a.n }), "gpus": whole(func(a *asked) *int { return &a.n }),
	"nodes": whole(func(a *asked) *int { return &a.nodes }), "gpus_per_node": whole(func(a *asked) *int { return &a.perNode }), "cards_per_node": whole(func(a *asked) *int { return &a.perNode }),
	"link": linkNamed, "card_memory_gb": number(func(a *asked) *float64 { return &a.memoryLimit }, gib),
	// How it is split.
	"tp": splitBy(func(a *asked) *int { return &a.tp }), "tensor_parallel": splitBy(func(a *asked) *int { return &a.tp }),
	"pp": splitBy(func(a *asked) *int { return &a.pp }), "pipeline_parallel": splitBy(func(a *asked) *int { return &a.pp }),
	"cp": splitBy(func(a *asked) *int { return &a.cp }), "context_parallel": splitBy(func(a *asked) *int { return &a.cp }),
	"ep": splitBy(func(a *asked) *int { return &a.ep }), "expert_parallel": splitBy(func(a *asked) *int { return &a.ep }),
	"dp": splitBy(func(a *asked) *int { return &a.dp }), "data_parallel": splitBy(func(a *asked) *int { return &a.dp }),
	"zero_stage": whole(func(a *asked) *int { return &a.zero }), "zero": whole(func(a *asked) *int { return &a.zero }), "sharding": words, "scheme": words,
	// Training.
	"seq": whole(func(a *asked) *int { return &a.seq }), "sequence": whole(func(a *asked) *int { return &a.seq }), "max_batch": whole(func(a *asked) *int { return &a.maxBatch }), "max_num_seqs": whole(func(a *asked) *int { return &a.maxBatch }), "max_seq": whole(func(a *asked) *int { return &a.maxSeq }),
	"seq_len": whole(func(a *asked) *int { return &a.seq }), "sequence_length": whole(func(a *asked) *int { return &a.seq }), "tokens_per_step": number(func(a *asked) *float64 { return &a.batchTokens }, 1),
	"micro_batch": whole(func(a *asked) *int { return &a.micro }), "global_batch": number(func(a *asked) *float64 { return &a.global }, 1),
	"grad_accum": whole(func(a *asked) *int { return &a.accum }), "tokens_per_batch": number(func(a *asked) *float64 { return &a.batchTokens }, 1),
	"tokens": number(func(a *asked) *float64 { return &a.tokens }, 1), "recompute": recomputeRead, "precision": words, "optimizer": words, "method": words, "config": configRead,
	"attention": words, "packed": packedRead, "compile": compileRead, "recipe": words, "step": text(func(a *asked) *string { return &a.step }),
	"cumulative": truth(func(a *asked) *bool { return &a.cumulative }), "with_attention": noted,
	"bytes": bytesRead, "buffer_factor": number(func(a *asked) *float64 { return &a.buffer }, 1), "largest_layer_params": number(func(a *asked) *float64 { return &a.largest }, 1),
	"lora_rank": rankRead, "rank": rankRead,
	// Serving.
	"dtype": words, "quantization": words, "kv_dtype": kvRead, "kv_cache_dtype": kvRead, "isl": whole(func(a *asked) *int { return &a.in }), "input_tokens": whole(func(a *asked) *int { return &a.in }), "prompt_tokens": whole(func(a *asked) *int { return &a.in }), "output_tokens": whole(func(a *asked) *int { return &a.out }), "osl": whole(func(a *asked) *int { return &a.out }),
	"batch": number(func(a *asked) *float64 { return &a.batch }, 1), "concurrency": number(func(a *asked) *float64 { return &a.concurrency }, 1),
	"context": whole(func(a *asked) *int { return &a.context }), "new_tokens": whole(func(a *asked) *int { return &a.written }),
	"block": whole(func(a *asked) *int { return &a.block }), "gpu_memory_utilization": number(func(a *asked) *float64 { return &a.utilization }, 1),
	"kv_memory_gb": number(func(a *asked) *float64 { return &a.kvMemory }, gib), "kv_memory_gib_per_card": number(func(a *asked) *float64 { return &a.kvMemoryPerCard }, gib),
	"load": loadRead, "engine": engineRead,
	// What is measured, and how.
	"what": text(func(a *asked) *string { return &a.what }), "meter": meterRead, "where": noted, "torch": noted, "CUDA_MODULE_LOADING": noted,
	"includes_context": truth(func(a *asked) *bool { return &a.withContext }), "includes": noted, "peak": noted, "peak_tflops": noted,
	// What the source measured of it: it takes the place of a constant.
	"hw_tflops_per_card": number(func(a *asked) *float64 { return &a.hardwareRate }, 1e12),
	// What else the source measured is not used.
	"weights_gb": noted,
}

func cardNamed(a *asked, n yaml.Node) error {
	a.card = n.Value
	a.cards = a.file.CardsNamed(n.Value)
	return nil
}

func splitBy(to func(a *asked) *int) reading {
	read := whole(to)
	return func(a *asked, n yaml.Node) error {
		a.split = true
		return read(a, n)
	}
}

func linkNamed(a *asked, n yaml.Node) error {
	switch strings.ToLower(n.Value) {
	case "pcie":
		a.pcie = true
	case "nvlink", "nvswitch":
	default:
		return unclearf("%q is not PCIe or NVLink", n.Value)
	}
	return nil
}

// recomputeRead reads levels: full means layers here, and all weights elsewhere.
func recomputeRead(a *asked, n yaml.Node) error {
	switch level, _, _ := strings.Cut(strings.ToLower(n.Value), " + sequence parallel"); level {
	case "full", "true", "block", "activation checkpointing":
		a.recompute = estimate.RecomputeFull
	case "selective":
		a.recompute = estimate.RecomputeSelective
	case "none", "false", "no":
		a.recompute = estimate.RecomputeNone
	default:
		return unclearf("%q is not full, selective or none", n.Value)
	}
	return nil
}

func packedRead(a *asked, n yaml.Node) error {
	var yes bool
	if n.Decode(&yes) != nil {
		return unclearf("%q is not true or false", n.Value)
	}
	a.unpacked = !yes
	return nil
}

func compileRead(a *asked, n yaml.Node) error {
	var yes bool
	if n.Decode(&yes) != nil {
		return unclearf("%q is not true or false", n.Value)
	}
	a.compile = map[bool]string{true: "yes", false: "no"}[yes]
	return nil
}

var triple = pattern.Of(`^([0-9.]+)\+([0-9.]+)\+([0-9.]+)$`)

func bytesRead(a *asked, n yaml.Node) error {
	m := triple().FindStringSubmatch(n.Value)
	if m == nil {
		return unclearf("%q is not like 2+2+12", n.Value)
	}
	for _, word := range m[1:] {
		var x float64
		if _, err := fmt.Sscan(word, &x); err != nil {
			return unclearf("%q is not like 2+2+12", n.Value)
		}
		a.bytes = append(a.bytes, x)
	}
	return nil
}

func rankRead(a *asked, n yaml.Node) error {
	x, ok := reference.Number(n)
	if !ok || x < 1 || x > 1<<16 {
		return unclearf("%q is no rank", n.Value)
	}
	a.rank, a.lora = int(x), true
	return nil
}

func kvRead(a *asked, n yaml.Node) error {
	if strings.EqualFold(n.Value, "auto") {
		return nil
	}
	f, err := estimate.FormatNamed(n.Value)
	if err != nil {
		return unclearf("%q is no precision", n.Value)
	}
	a.kvBytes = f.KVBytes()
	return nil
}

func loadRead(a *asked, n yaml.Node) error {
	switch n.Value {
	case "all requests queued", "offline", "maximum":
		a.concurrency = 0
	default:
		return unclearf("%q is not understood", n.Value)
	}
	return nil
}

// meterRead tells what a framework counts from what the driver does.
func meterRead(a *asked, n yaml.Node) error {
	switch word := strings.ToLower(n.Value); {
	case regexp.MustCompile(`nvidia-smi|nvml|driver|process`).MatchString(word):
		a.driverMeter = true
	case regexp.MustCompile(`framework|torch|allocated|reserved|active|log|epoch`).MatchString(word):
	default:
		return unclearf("%q is not understood", n.Value)
	}
	return nil
}

// engineRead takes a precision from the name of an engine where one is in it.
func engineRead(a *asked, n yaml.Node) error {
	for _, word := range regexp.MustCompile(`[A-Za-z0-9]+`).FindAllString(n.Value, -1) {
		if f, err := estimate.FormatNamed(word); err == nil && a.dtype == "" {
			a.dtype = f.Name
		}
	}
	if strings.Contains(n.Value, "MLPerf") && strings.Contains(n.Value, "offline") {
		a.in, a.out = mlperfIn, mlperfOut
	}
	return nil
}

// The mean lengths of MLPerf's text of Llama 2 70B (OpenOrca): docs/estimate.md,
// "Serving".
const (
	mlperfIn  = 294
	mlperfOut = 294
)

// read understands the settings of a row, or says which one it does not.
func read(file *reference.File, row *reference.Row) (*asked, error) {
	a := &asked{file: file, zero: -1, kind: row.Kind, name: row.Model}
	for _, key := range row.Order {
		reader, ok := readings[key]
		if !ok {
			return nil, unclearf("setting %s is not understood", key)
		}
		if err := reader(a, row.Settings[key]); err != nil {
			return nil, unclearf("setting %s: %v", key, err)
		}
	}
	if a.step != "" {
		if err := a.climb(); err != nil {
			return nil, err
		}
	}
	return a, nil
}
