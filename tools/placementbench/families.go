// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math/rand"

	"github.com/divvy-gpu/divvy/internal/placement"
	"github.com/divvy-gpu/divvy/internal/plan/trace"
)

// family makes lists of the kinds that data/traces/openb/SOURCE.md describes,
// for members that are not published there. They are ours: drawn from the pods
// of the default list (gpuspec: with the models of gpuspec25), so they are like
// the published ones and not equal to them.
type family struct {
	plain, shared, whole, multi []trace.Job // of the default list, by what they ask
	specs                       [][]string  // of gpuspec25's constrained pods
	random                      *rand.Rand
}

func newFamily(standard, constrained *trace.Jobs) *family {
	f := &family{random: rand.New(rand.NewSource(7))}
	for _, j := range standard.Jobs {
		switch {
		case j.GPUs == 0:
			f.plain = append(f.plain, j)
		case j.GPUs > 1:
			f.multi = append(f.multi, j)
		case j.GPUMilli == placement.WholeCard:
			f.whole = append(f.whole, j)
		default:
			f.shared = append(f.shared, j)
		}
	}
	for _, j := range constrained.Jobs {
		if len(j.Models) > 0 {
			f.specs = append(f.specs, j.Models)
		}
	}
	return f
}

// drawn returns n of the jobs: all of them as often as n allows, the rest at
// random.
func (f *family) drawn(jobs []trace.Job, n int) (out []trace.Job) {
	for len(out)+len(jobs) <= n {
		out = append(out, jobs...)
	}
	for _, i := range f.random.Perm(len(jobs))[:n-len(out)] {
		out = append(out, jobs[i])
	}
	return out
}

// demandOf is in cards. The public lists ask for no partitions.
func demandOf(jobs []trace.Job) (sum float64) {
	for _, j := range jobs {
		sum += float64(int64(j.GPUs)*j.GPUMilli) / placement.WholeCard
	}
	return sum
}

func (f *family) list(name string, parts ...[]trace.Job) *trace.Jobs {
	out := &trace.Jobs{File: name}
	for _, part := range parts {
		for _, j := range part {
			j.Name = fmt.Sprintf("%s-%05d", name, len(out.Jobs))
			out.Jobs = append(out.Jobs, j)
		}
	}
	return out
}

// cpu has n/10 percent of pods without a GPU.
func (f *family) cpu(n int) *trace.Jobs {
	gpu := len(f.shared) + len(f.whole) + len(f.multi)
	part := float64(n) / 1000
	return f.list(fmt.Sprintf("cpu%03d*", n), f.drawn(f.plain, int(part/(1-part)*float64(gpu)+0.5)), f.shared, f.whole, f.multi)
}

// gpushare has n percent of the GPU demand in shares, with as many GPU pods.
func (f *family) gpushare(n int) *trace.Jobs {
	gpu := len(f.shared) + len(f.whole) + len(f.multi)
	multiPart := float64(len(f.multi)) / float64(len(f.whole)+len(f.multi))
	perShare := demandOf(f.shared) / float64(len(f.shared))
	perRest := (1-multiPart)*1 + multiPart*demandOf(f.multi)/float64(len(f.multi))
	part := float64(n) / 100
	// shares s of gpu pods: part = s*perShare / (s*perShare + (gpu-s)*perRest)
	shares := int(part*perRest*float64(gpu)/(perShare*(1-part)+part*perRest) + 0.5)
	multi := int(float64(gpu-shares)*multiPart + 0.5)
	return f.list(fmt.Sprintf("gpushare%d*", n), f.plain, f.drawn(f.shared, shares), f.drawn(f.whole, gpu-shares-multi), f.drawn(f.multi, multi))
}

// multigpu has n percent of the GPU demand in pods with several cards.
func (f *family) multigpu(n int) *trace.Jobs {
	rest := demandOf(f.shared) + demandOf(f.whole)
	part := float64(n) / 100
	multi := int(part/(1-part)*rest/(demandOf(f.multi)/float64(len(f.multi))) + 0.5)
	return f.list(fmt.Sprintf("multigpu%d*", n), f.plain, f.shared, f.whole, f.drawn(f.multi, multi))
}

// gpuspec has n percent of the GPU pods bound to card models.
func (f *family) gpuspec(n int) *trace.Jobs {
	out := f.list(fmt.Sprintf("gpuspec%d*", n), f.plain, f.shared, f.whole, f.multi)
	for i := range out.Jobs {
		if out.Jobs[i].GPUs > 0 && f.random.Intn(100) < n {
			out.Jobs[i].Models = f.specs[f.random.Intn(len(f.specs))]
		}
	}
	return out
}
