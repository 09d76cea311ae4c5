// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/data"
	"github.com/divvy-gpu/divvy/internal/estimate"
	"github.com/divvy-gpu/divvy/internal/estimate/reference"
)

// withRow is the built-in file with one measurement alone.
func withRow(t testing.TB, kind, model, settings string) *reference.File {
	t.Helper()
	raw := string(data.LLMReference())
	head, rest, _ := strings.Cut(raw, "\nmeasurements:\n")
	_, cards, _ := strings.Cut(rest, "\ncards:")
	row := fmt.Sprintf("  - {id: one, kind: %s, model: %s, settings: {%s}, value: 1, unit: bytes, basis: measured, source: x, confidence: high}", kind, model, settings)
	f, err := reference.Read([]byte(head + "\nmeasurements:\n" + row + "\ncards:" + cards))
	if err != nil {
		t.Fatalf("%s: %v", settings, err)
	}
	return f
}

func predict(t testing.TB, kind, model, settings string) (estimate.Range, string) {
	t.Helper()
	row := Run(estimate.New(), withRow(t, kind, model, settings)).Rows[0]
	if row.Skipped != "" {
		return estimate.Range{}, row.Skipped
	}
	return estimate.Range{Low: *row.Low, Mid: *row.Predicted, High: *row.High}, ""
}

// TestNotUnderstood: what is not understood skips the row and is named.
func TestNotUnderstood(t *testing.T) {
	for _, c := range []struct{ kind, model, settings, want string }{
		{"kv_cache", "llama-3-8b", "tokens: 1024, colour: red", "setting colour is not understood"},
		{"kv_cache", "llama-3-8b", "tokens: many", `setting tokens: "many" is no number`},
		{"kv_cache", "llama-3-8b", "batch: 1", "tokens are not stated"},
		{"kv_cache", "no-such-model", "tokens: 1024", "no shape: model no-such-model is not known"},
		{"kv_cache", "llama-3-8b", "tokens: 1024, dtype: fp7", `setting dtype: "fp7" is not understood`},
		{"finetune_peak_memory", "llama-3-8b", "method: 'LoRA, upside down'", `setting method: "upside down" is not understood`},
		{"finetune_peak_memory", "llama-3.2-3b", "step: + magic, cumulative: true", `setting step: "+ magic" is not understood`},
		{"finetune_peak_memory", "llama-3-8b", "method: LoRA, meter: a ruler", `setting meter: "a ruler" is not understood`},
		{"mfu", "llama-3-8b", "card: TPU v9, cards: 8", "GPU TPU v9 is not known"},
		{"mfu", "llama-3-8b", "card: A100, cards: 8, recompute: now and then", `"now and then" is not full, selective or none`},
		{"mfu", "llama-3-8b", "cards: 8", "no GPU is stated"},
		{"mfu", "llama-3-8b", "card: H100, cards: 9, tp: 3", "--tp 3 does not divide"},
		{"mfu", "llama-3-8b", "card: T4, cards: 8, dtype: bf16", "has no BF16"},
		{"latency_decode", "llama-3-8b", "card: H100, link: string, batch: 1", `"string" is not PCIe or NVLink`},
		{"happiness", "llama-3-8b", "card: H100", "kind happiness is not understood"},
		{"host_memory", "llama-3-8b", "params: 1", "by another tool's rule only"},
		{"serve_throughput", "llama-3-70b", "card: H100, cards: 1, tp: 1, dtype: fp16, isl: 10, osl: 10", "no room"},
		{"serve_throughput", "llama-3-70b", "card: H100, cards: 8, tp: 8, dtype: fp16, isl: 10", "isl or osl is not stated"},
	} {
		if _, got := predict(t, c.kind, c.model, c.settings); !strings.Contains(got, c.want) {
			t.Errorf("%s {%s}: %q, want %q", c.kind, c.settings, got, c.want)
		}
	}
}

// TestUnderstood: other words for the same settings give the same figures.
func TestUnderstood(t *testing.T) {
	for _, c := range []struct{ kind, model, a, b string }{
		{"mfu", "llama-3-8b", "card: H100-SXM-80GB, cards: 8, seq: 4096", "card: NVIDIA H100 80GB HBM3, gpus: 8, seq_len: 4096"},
		{"mfu", "llama-3-8b", "card: A100-80GB, cards: 8, recompute: full", "card: NVIDIA A100-SXM4-80GB, cards: 8, recompute: true"},
		{"mfu", "llama-3-8b", "card: A100-80GB, cards: 8, tp: 2, zero_stage: 3", "card: A100-SXM-80GB, cards: 8, tensor_parallel: 2, scheme: zero3"},
		{"mfu", "llama-3-8b", "card: A100-80GB, cards: 8, sharding: FULL_SHARD", "card: A100-80GB, cards: 8, zero: 3"},
		{"finetune_peak_memory", "llama-2-7b", "method: 'LoRA Q,V rank 8', batch: 2", "method: 'LoRA q, v', rank: 8, batch: 2"},
		{"finetune_peak_memory", "llama-2-7b", "method: QLoRA, batch: 2", "method: 'QLoRA NF4 double quant', batch: 2"},
		{"finetune_peak_memory", "llama-2-7b", "method: 'full, bf16, 8-bit AdamW'", "method: 'full fine-tuning, bf16, AdamW 8bit'"},
		{"kv_cache", "llama-3-8b", "tokens: 1024, dtype: fp8", "tokens: 1024, kv_dtype: fp8"},
		{"kv_bytes_per_token", "llama-3-8b", "dtype: 'fp8 weights, bf16 KV'", "dtype: bf16"},
		{"serve_throughput", "llama-3-8b", "card: B200, dtype: fp4, isl: 100, osl: 100", "card: B200-SXM-180GB, cards: 1, engine: 'X 1.0, FP4', isl: 100, osl: 100"},
	} {
		a, whyA := predict(t, c.kind, c.model, c.a)
		b, whyB := predict(t, c.kind, c.model, c.b)
		if whyA != "" || whyB != "" || a != b || a.Mid <= 0 {
			t.Errorf("%s: {%s} %v %s, {%s} %v %s", c.kind, c.a, a, whyA, c.b, b, whyB)
		}
	}
}

// TestLadder: each technique that is added takes memory away, packing apart.
func TestLadder(t *testing.T) {
	before := math.Inf(1)
	for _, step := range []string{"+ packed to 4096", "+ compile", "+ chunked cross entropy", "+ activation checkpointing", "+ fuse optimizer step into backward", "+ activation offload", "+ 8-bit AdamW", "'LoRA (no optimizer in backward, no 8-bit)'", "QLoRA (same)"} {
		got, why := predict(t, "finetune_peak_memory", "llama-3.2-3b", "batch: 2, max_seq: 4096, dtype: bf16, card: A100, recipe: full_finetune_single_device, cumulative: true, step: "+step)
		if why != "" || got.Mid >= before {
			t.Errorf("%s: %g, %s; before it was %g", step, got.Mid, why, before)
		}
		before = got.Mid
	}
}

// TestAmbiguousCard: a name that may mean two cards gives what lies between.
func TestAmbiguousCard(t *testing.T) {
	settings := "cards: 1, tp: 1, batch: 1, context: 128, dtype: bf16"
	both, _ := predict(t, "latency_decode", "llama-3-8b", "card: A100, "+settings)
	slow, _ := predict(t, "latency_decode", "llama-3-8b", "card: A100-40GB, "+settings)
	fast, _ := predict(t, "latency_decode", "llama-3-8b", "card: A100-80GB, "+settings)
	if !(fast.Mid < both.Mid && both.Mid < slow.Mid && both.Low == fast.Low && both.High == slow.High) {
		t.Errorf("A100 %v, with 40 GB %v, with 80 GB %v", both, slow, fast)
	}
}

func FuzzRun(f *testing.F) {
	raw := string(data.LLMReference())
	head, _, _ := strings.Cut(raw, "\nmodels:\n")
	f.Add(raw[:0])
	for _, settings := range []string{"card: H100, cards: 8, seq: 2048", "method: 'LoRA Q,V rank 8', batch: 2", "card: A100, isl: 1, osl: 1, concurrency: 5", "bytes: 2+2+12, params: 1e300",
		"layers: 1, hidden: 1, heads: 1, vocab: 0, tokens: 1", "step: + compile, cumulative: true", "kv_memory_gb: 1, block: 16, dtype: fp8"} {
		for _, kind := range []string{"mfu", "serve_throughput", "finetune_peak_memory", "kv_capacity_tokens", "model_states_per_gpu", "train_gpu_hours"} {
			f.Add(fmt.Sprintf("  - {id: one, kind: %s, model: llama-3-8b, settings: {%s}, value: 1, unit: ms}", kind, settings))
		}
	}
	_, models, _ := strings.Cut(raw, "\nmodels:\n")
	models, rest, _ := strings.Cut(models, "\nmeasurements:\n")
	_, cards, _ := strings.Cut(rest, "\ncards:")
	e := estimate.New()
	f.Fuzz(func(t *testing.T, rows string) {
		file, err := reference.Read([]byte(head + "\nmodels:\n" + models + "\nmeasurements:\n" + rows + "\ncards:" + cards))
		if err != nil {
			return
		}
		for _, row := range Run(e, file).Rows {
			if row.Skipped == "" && (math.IsNaN(*row.Predicted) || math.IsInf(*row.Predicted, 0)) {
				t.Fatalf("%s is predicted %g", row.ID, *row.Predicted)
			}
		}
	})
}
