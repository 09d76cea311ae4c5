// SPDX-License-Identifier: Apache-2.0

package placement

import "math/bits"

// Reason is one thing that keeps a request off a node.
type Reason string

const (
	ReasonModel     Reason = "model"          // other card model
	ReasonCards     Reason = "number of GPUs" // the node has fewer, even empty
	ReasonCPU       Reason = "CPU"            // not enough cores free
	ReasonMemory    Reason = "memory"         // not enough host memory free
	ReasonBusy      Reason = "GPUs in use"    // cards there are, but not free enough
	ReasonGPUMemory Reason = "device memory"  // cores are free, device memory is not
	ReasonIsland    Reason = "linked GPUs"    // free cards, but not on one island
	ReasonPartition Reason = "partition"      // cards cannot make the profile, or serve only profiles
)

// Obstacle says on how many nodes a reason stands in the way, and on how many
// it is the only one.
type Obstacle struct {
	Reason Reason
	Nodes  int
	Alone  int
}

// Find returns where the request would go, and takes nothing.
func (e *Engine) Find(r Request) (Spot, bool) {
	k := e.fleet.classify(r)
	return e.find(r, &k, nil)
}

// Obstacles asks every node what keeps the request off it, in the order of the
// reasons above, then counted resources by their names and what the request's rules say.
// A node that fits has no reason.
func (f *Fleet) Obstacles(r Request) []Obstacle {
	order := []Reason{ReasonModel, ReasonCards, ReasonPartition, ReasonCPU, ReasonMemory, ReasonBusy, ReasonGPUMemory, ReasonIsland}
	count := map[Reason]*Obstacle{}
	for _, reason := range order {
		count[reason] = &Obstacle{Reason: reason}
	}
	k := f.classify(r)
	for i := range f.nodes {
		reasons := append(f.nodes[i].reasons(&k, r.MemoryMiB), f.lacks(i, &k)...)
		if why := f.nodes[i].bars(&k); why != "" {
			reasons = append(reasons, why)
		}
		for _, reason := range reasons {
			if count[reason] == nil {
				order = append(order, reason)
				count[reason] = &Obstacle{Reason: reason}
			}
			count[reason].Nodes++
			if len(reasons) == 1 {
				count[reason].Alone++
			}
		}
	}
	var out []Obstacle
	for _, reason := range order {
		if count[reason].Nodes > 0 {
			out = append(out, *count[reason])
		}
	}
	return out
}

func (n *node) reasons(k *class, memoryMiB int64) (out []Reason) {
	if k.models>>n.model&1 == 0 {
		out = append(out, ReasonModel)
	}
	if n.cpu < k.cpu {
		out = append(out, ReasonCPU)
	}
	if n.memory < memoryMiB {
		out = append(out, ReasonMemory)
	}
	if k.gpus == 0 {
		return out
	}
	if len(n.cards) < k.gpus {
		return append(out, ReasonCards)
	}
	able, free, hosting := 0, 0, uint32(0)
	for i := range n.cards {
		c := &n.cards[i]
		if !c.able(k) {
			continue
		}
		able++
		if k.profile == "" && c.milli >= k.milli {
			free++
		}
		if c.hosts(k) {
			hosting |= 1 << i
		}
	}
	switch {
	case able < k.gpus:
		out = append(out, ReasonPartition)
	case bits.OnesCount32(hosting) < k.gpus && free >= k.gpus:
		out = append(out, ReasonGPUMemory)
	case bits.OnesCount32(hosting) < k.gpus:
		out = append(out, ReasonBusy)
	case k.linked && bits.OnesCount32(n.largestIsland(hosting, k.gpus)) < k.gpus:
		out = append(out, ReasonIsland)
	}
	return out
}

// able reports whether the card could ever serve the class's kind of request.
func (c *card) able(k *class) bool {
	switch {
	case k.profile != "":
		return c.profile(k.profile) >= 0
	case k.milli == WholeCard:
		return c.layout.Product == nil || c.onDemand
	}
	return c.layout.Product == nil
}

// Room is what the nodes could still give a request in one respect when it is
// as asked in all others.
type Room struct {
	CPUMilli     int64 // the most CPU, -1: none helps
	MemoryMiB    int64
	GPUMilli     int64 // the largest part of a card
	GPUMemoryMiB int64
	GPUs         int // the most cards
}

// Room relaxes the request in one respect at a time.
func (f *Fleet) Room(r Request) Room {
	out := Room{CPUMilli: -1, MemoryMiB: -1, GPUMilli: -1, GPUMemoryMiB: -1, GPUs: -1}
	k := f.classify(r)
	hosts := func(n *node, k class, memoryMiB int64) bool {
		_, ok := n.candidates(&k)
		return ok && n.memory >= memoryMiB
	}
	for i := range f.nodes {
		n := &f.nodes[i]
		relaxed := k
		relaxed.cpu = min(0, n.cpu)
		if hosts(n, relaxed, r.MemoryMiB) {
			out.CPUMilli = max(out.CPUMilli, min(n.cpu, k.cpu))
		}
		if hosts(n, k, min(0, n.memory)) {
			out.MemoryMiB = max(out.MemoryMiB, min(n.memory, r.MemoryMiB))
		}
		if k.gpus == 0 || k.profile != "" {
			continue
		}
		relaxed = k
		relaxed.memory = 0
		if hosts(n, relaxed, r.MemoryMiB) {
			for j := range n.cards {
				if n.cards[j].hosts(&relaxed) {
					out.GPUMemoryMiB = max(out.GPUMemoryMiB, min(n.cards[j].memory, k.memory))
				}
			}
		}
		relaxed = k
		for relaxed.gpus = k.gpus; relaxed.gpus > max(0, out.GPUs); relaxed.gpus-- {
			if hosts(n, relaxed, r.MemoryMiB) {
				out.GPUs = relaxed.gpus
			}
		}
		relaxed = k
		if k.gpus == 1 {
			for j := range n.cards {
				if relaxed.milli = min(n.cards[j].milli, k.milli); int64(relaxed.milli) > max(0, out.GPUMilli) && hosts(n, relaxed, r.MemoryMiB) {
					out.GPUMilli = int64(relaxed.milli)
				}
			}
		}
	}
	return out
}
