// SPDX-License-Identifier: Apache-2.0

package advise

import (
	"fmt"
	"slices"
	"strings"
)

// measuredCost is a sentence about published rows, whose values it has as {0},
// {1} and so on.
type measuredCost struct {
	technique string
	rows      []string
	text      string
	scale     float64 // of the values
}

// costRows are what was measured, by technique.
var costRows = []measuredCost{
	{Replicas, []string{"nos-time-slicing-1", "nos-time-slicing-3", "nos-time-slicing-7"}, "an inference of YOLOS on an A100-80 took {0} ms alone, {1} with two others that saturate the GPU, {2} with six", 1000},
	{MPS, []string{"nos-mps-1", "nos-mps-3", "nos-mps-7"}, "an inference of YOLOS on an A100-80 took {0} ms alone, {1} with two others that saturate the GPU, {2} with six", 1000},
	{MIG, []string{"nos-mig-1g.10gb-1", "nos-mig-1g.10gb-3", "nos-mig-1g.10gb-7"}, "an inference of YOLOS in a 1g.10gb took {0} ms alone, {1} with two others, {2} with six: a seventh of the GPU, with or without neighbours", 1000},
	{MIG, []string{"cern-mig-sm"}, "MIG mode takes {0} % of the multiprocessors of an A100-40", 1},
	{MIG, []string{"njit-gromacs-3g.40gb", "njit-gromacs-full"}, "GROMACS: {0} ns a day in a 3g.40gb of an A100-80, {1} on the whole GPU", 1},
	{MIG, []string{"nv-voice-mig", "nv-voice-time-slicing"}, "a voice pipeline of 50 users, in requests/s a GPU: {0} with MIG, {1} with time-slicing", 1},
	{Replicas, []string{"nv-voice-tts-time-slicing", "nv-voice-tts-mig"}, "a voice pipeline in bursts: mean latency {0} ms with time-slicing, {1} with MIG", 1},
	{MPS, []string{"pebble-tput"}, "two vLLM on an A100-80: {0} tokens/s each on GPUs of their own, {1} under MPS (one blog)", 1},
	{Replicas, []string{"aks-4way-rps"}, "one vLLM: {0} requests/s; four on time slices of one GPU: {1} together (one blog)", 1},
	{VGPU, []string{"vmware-vgpu"}, "one virtual machine a GPU: {0} to {1} % of bare metal in MLPerf", 1},
}

// notKnown are techniques without a published measurement of their cost.
var notKnown = map[string]string{
	Share:    "not known on hardware; on the simulated GPU, parts of time are met to 0.5 points (docs/benchmarks.md)",
	SRIOV:    "not known",
	AMDModes: "not known under several tenants",
	Movable:  "not known on hardware",
	Remote:   "not known on hardware",
}

// Costs are what is known of a technique's cost.
func Costs(technique string, rows map[string]Measurement) []Cost {
	var out []Cost
	for _, m := range costRows {
		if m.technique != technique {
			continue
		}
		text, whole := m.text, true
		n := 0
		for _, id := range m.rows {
			row, ok := rows[id]
			if whole = whole && ok && len(row.Values) > 0; !whole {
				break
			}
			for _, v := range row.Values {
				text = strings.ReplaceAll(text, fmt.Sprintf("{%d}", n), trimmed(v*m.scale))
				n++
			}
		}
		if whole {
			out = append(out, Cost{Text: text, Row: strings.Join(m.rows, ", ")})
		}
	}
	if text, ok := notKnown[technique]; ok && out == nil {
		out = append(out, Cost{Text: text})
	}
	return out
}

// trimmed writes a figure without digits that say nothing.
func trimmed(x float64) string {
	switch {
	case x >= 100:
		return fmt.Sprintf("%.0f", x)
	case x == float64(int(x)):
		return fmt.Sprintf("%.0f", x)
	}
	return strings.TrimRight(strings.TrimRight(fmt.Sprintf("%.2f", x), "0"), ".")
}

// CostRows lists the ids of rows that costs are made of.
func CostRows() []string {
	var ids []string
	for _, m := range costRows {
		ids = append(ids, m.rows...)
	}
	return ids
}

// unknowns are what an answer rests on without a published measurement.
func unknowns(f Facts, inv Inventory, choices []Choice) []string {
	out := []string{}
	given := func(technique string) bool {
		return slices.ContainsFunc(choices, func(c Choice) bool { return c.Technique == technique && c.Verdict != No })
	}
	hopper := slices.ContainsFunc(inv.Cards, func(c Card) bool { return strings.Contains(c.Name, "H100") || strings.Contains(c.Name, "H200") })
	serving := f.Workload == "small-serve" || f.Workload == "large-serve"
	if serving && hopper && (given(MIG) || given(MPS)) {
		out = append(out, "latency of decoding at the 99th percentile under MIG or MPS on Hopper: no measurement is published")
	}
	if given(AMDModes) {
		out = append(out, "what tenants cost each other in AMD's partitions: no measurement is published")
	}
	if given(Share) {
		out = append(out, "what shares cost on hardware: no run is recorded (docs/hardware.md)")
	}
	if f.MemoryBytes == 0 && f.Workload != "vdi" {
		out = append(out, "the memory of one instance: --model estimates it, --mem gives it, and sizes follow")
	}
	if slices.ContainsFunc(inv.Cards, func(c Card) bool { return c.MemoryBytes == 0 }) {
		out = append(out, "the memory of a GPU whose driver does not say")
	}
	if slices.ContainsFunc(inv.Cards, func(c Card) bool { return c.Labelled }) {
		out = append(out, "the memory of a GPU as its driver counts it: that on the label is taken, and a tenth left free")
	}
	if f.P99Ms > 0 && f.AloneMs == 0 {
		out = append(out, "the latency alone: --model estimates it")
	}
	if given(Replicas) || given(MIG) || given(VGPU) {
		out = append(out, "how much the use of GPUs rises: vendors promise figures without a method")
	}
	return out
}

// guides are what operators of clusters advise, who disagree.
var guides = []Reason{
	{"G-AKS", "Microsoft's AKS divides GPUs by MIG", "https://learn.microsoft.com/en-us/azure/aks/gpu-multi-instance"},
	{"G-EKS", "Amazon describes time-slicing (replicas) for EKS", "https://aws.amazon.com/blogs/containers/gpu-sharing-on-amazon-eks-with-nvidia-time-slicing-and-accelerated-ec2-instances/"},
	{"G-ACK", "Alibaba's ACK offers MPS and its own cGPU as isolation", "https://www.alibabacloud.com/help/en/ack/cloud-native-ai-suite/product-overview/ack-ai-installer"},
}

// guidance are these guides, where it matters.
func guidance(f Facts) []Reason {
	if f.In != "kubernetes" || f.Workload != "small-serve" && f.Workload != "ci" && f.Workload != "notebook" {
		return []Reason{}
	}
	return slices.Clone(guides)
}
