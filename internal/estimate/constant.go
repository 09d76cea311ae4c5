// SPDX-License-Identifier: Apache-2.0

package estimate

import "math"

// Constant is what arithmetic does not give: a figure that was set from
// published measurements, whose rows it names.
type Constant struct {
	Name    string  `json:"name"`
	Meaning string  `json:"meaning"`
	Unit    string  `json:"unit"`
	Range           // what one expects, and where nine of ten cases lie
	Step    float64 `json:"-"` // by which it was rounded
	Most    float64 `json:"-"` // that it can be; 0: no bound
	// Rows are the ids of the measurements it was set from, the kind before a
	// star meaning all rows of high or medium confidence of that kind.
	Rows []string `json:"rows"`
}

// The constants by number.
const (
	cMatmul = iota
	cPower
	cAttention
	cBandwidth
	cLatency
	cExposed
	cSequence
	cOverhead
	cVisible
	cRun
	constants
)

// Constants is a set of them. The zero value is of no use: Default has the
// committed one; others serve to see how much it depends on single rows.
type Constants [constants]Constant

func (k *Constants) visible() Range  { return k[cVisible].Range }
func (k *Constants) overhead() Range { return k[cOverhead].Range.times(gib) }
func (k *Constants) bandwidth() Range {
	return k[cBandwidth].Range
}

// leastPerWatt is what the A100 has: the constants were set on no card that has
// less, and none has been seen to reach a larger part.
const leastPerWatt = 0.78

// matmul is the part of its dense rate that a card reaches in matrix products,
// of whatever width: the more operations of 16 bits a watt of its limit is to
// pay, the less.
func (k *Constants) matmul(c *Datasheet) Range {
	perWatt := 1.0
	if c.Watts > 0 {
		perWatt = c.rate(class16) / 1e12 / c.Watts
	}
	part := k[cMatmul].Range.times(math.Pow(max(perWatt, leastPerWatt), -k[cPower].Mid))
	return Range{min(part.Low, 0.95), min(part.Mid, 0.95), min(part.High, 0.95)}
}

// Default is the committed set, as tools/estimatefit finds it.
func Default() Constants {
	return Constants{
		cMatmul: {Name: "matmul", Meaning: "part of its dense rate in 16 bits that a GPU of 1 TFLOP/s per watt reaches in matrix products",
			Range: Range{0.546, 0.64, 0.72}, Step: 0.01, Most: 1, Rows: []string{
				"mosaic-70b-s2048-h100_80gb-x512-tps", "mosaic-70b-s2048-a100_80gb-x64-tps", "mosaic-70b-s2048-a100_40gb-x128-tps", "mosaic-30b-s2048-h100_80gb-x8-tps", "mosaic-30b-s2048-a100_80gb-x8-tps",
				"mosaic-13b-s2048-h100_80gb-x8-tps", "mosaic-7b-s2048-h100_80gb-x8-tps", "mosaic-7b-s2048-a100_80gb-x8-tps", "mosaic-3b-s2048-a100_80gb-x8-tps", "mosaic-3b-s2048-h100_80gb-x128-tps", "mosaic-1b-s2048-a100_40gb-x8-tps",
				"korth-22b-full", "korth-22b-selective", "korth-175b-full", "korth-175b-selective", "korth-1t-full", "korth-1t-selective", "tps-llama-65b", "l3-405b-mfu-8192-8192", "kipply-13b-pre-1", "trt-a100-7b-ttft-2048"}},
		cPower: {Name: "power", Meaning: "exponent by which that part falls with TFLOP/s per watt",
			Range: exactly(0.48), Step: 0.02, Rows: []string{
				"mosaic-70b-s2048-h100_80gb-x512-tps", "mosaic-70b-s2048-a100_80gb-x64-tps", "mosaic-70b-s2048-a100_40gb-x128-tps", "mosaic-30b-s2048-h100_80gb-x8-tps", "mosaic-30b-s2048-a100_80gb-x8-tps",
				"mosaic-7b-s2048-h100_80gb-x8-tps", "mosaic-7b-s2048-a100_80gb-x8-tps", "mosaic-3b-s2048-a100_80gb-x8-tps", "mosaic-3b-s2048-h100_80gb-x128-tps"}},
		cAttention: {Name: "attention", Meaning: "part of the rate of matrix products that attention reaches on the way back; forward it reaches all of it",
			Range: Range{0.24, 0.34, 0.91}, Step: 0.02, Most: 1, Rows: []string{
				"mosaic-13b-s32768-h100_80gb-x8-tps", "mosaic-13b-s16384-a100_80gb-x8-tps", "mosaic-7b-s65536-h100_80gb-x8-tps", "mosaic-7b-s8192-h100_80gb-x8-tps", "l3-405b-mfu-16384-131072", "mlm-llama-3-8b-tps"}},
		cBandwidth: {Name: "bandwidth", Meaning: "part of the bandwidth of memory and links that large transfers reach",
			Range: Range{0.643, 0.83, 1}, Step: 0.01, Most: 1, Rows: []string{
				"kipply-13b-dec-1", "trt-a100-7b-128-2048", "trt-a100-7b-2048-2048", "nim-70b-c1-itl", "nim-70b-c5-itl", "bloom-accel-bf16", "trtllm-llama-3-8b-H200x1-128-2048", "trtllm-llama-3-8b-H100x1-128-2048",
				"trtllm-llama-3-8b-H200x1-1000-1000", "trtllm-llama-3-70b-H200x1-128-2048", "trtllm-llama-3.1-405b-H100x8-128-2048"}},
		cLatency: {Name: "latency", Meaning: "time of one dependent step of a layer: its launches, or one collective",
			Unit: Seconds, Range: Range{2.2e-5, 2.9e-5, 8.5e-5}, Step: 1e-6, Rows: []string{
				"kipply-13b-dec-2", "bloom-dsinf-fp16-bs1", "bloom-dsinf-fp16-bs8", "vllmci-h200-llama-3-8b", "vllmci-h200-mixtral-8x7b", "lpb-70b-2-vllm", "lpb-70b-2-mlc", "lpb-70b-8-vllm", "lpb-70b-8-mlc", "nim-70b-500-itl", "nim-70b-c1-itl"}},
		cExposed: {Name: "exposed", Meaning: "part of data-parallel communication that computing does not hide",
			Range: Range{0.173, 0.45, 0.758}, Step: 0.05, Most: 1, Rows: []string{
				"mosaic-13b-s2048-h100_80gb-x8-tps", "mosaic-70b-s2048-h100_80gb-x512-tps", "mosaic-70b-s2048-a100_80gb-x64-tps", "mosaic-70b-s2048-a100_40gb-x128-tps", "mosaic-30b-s2048-h100_80gb-x8-tps", "mosaic-7b-s2048-h100_80gb-x8-tps", "tps-llama-65b"}},
		cSequence: {Name: "sequence", Meaning: "host time for each sequence and step",
			Unit: Seconds, Range: Range{0.98e-6, 6e-6, 2.45e-5}, Step: 1e-6, Rows: []string{
				"trtllm-llama-3-8b-H200x1-128-2048", "trtllm-llama-3-8b-H200x1-1000-1000", "trtllm-llama-3-8b-H100x1-128-2048", "trtllm-qwen3-235b-a22b-H200x8-128-2048", "trtllm-qwen3-235b-a22b-H100x8-128-2048", "trtllm-qwen3-235b-a22b-H100x8-1000-1000",
				"trtllm-qwen3-30b-a3b-B200x1-1000-1000", "trt-a100-7b-128-128", "trtllm-llama-3-70b-B200x1-128-2048"}},
		cOverhead: {Name: "overhead", Meaning: "memory that a process takes on a GPU by being there, and again for collectives",
			Unit: "GiB", Range: Range{0.47, 1.25, 1.78}, Step: 0.05, Rows: []string{
				"hf-ctx-v100", "ctx-a100-pt110", "ctx-a100-pt113", "ctx-a100-pt21-eager", "ctx-a100-pt21-lazy", "nccl-init"}},
		cVisible: {Name: "visible", Meaning: "part of the memory on a GPU's label that programs find",
			Range: Range{0.989, 0.992, 0.996}, Step: 0.001, Most: 1, Rows: []string{"h100-visible", "a100-80-visible"}},
		cRun: {Name: "run", Meaning: "hours of a whole run over those of its steps",
			Range: Range{0.95, 1.45, 2.8}, Step: 0.05, Rows: []string{
				"hours-llama-7b", "hours-llama-65b", "hours-llama-2-7b", "hours-llama-2-70b", "hours-llama-3-8b", "hours-llama-3.1-8b", "hours-llama-3.1-70b", "hours-llama-3.1-405b", "hours-bloom", "hours-pythia-12b", "hours-pythia-2.8b", "hours-mpt-7b", "hours-smollm3-3b"}},
	}
}

// Estimator computes with a set of constants.
type Estimator struct{ K Constants }

// New is an estimator with the committed constants.
func New() *Estimator { return &Estimator{K: Default()} }
