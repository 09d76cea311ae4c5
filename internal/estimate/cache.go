// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"fmt"
	"math"
)

// Cache is how keys and values are kept.
type Cache struct {
	Bytes float64 // of a number
	Block int     // tokens that are handed out at once; 0 or 1: one by one
}

// perLayer is how many numbers one token takes in one layer.
func (a *Arch) perLayer() float64 {
	if a.MLA != nil {
		return float64(a.MLA.KVRank + a.MLA.RoPE)
	}
	return float64(2 * a.KVHeads * a.HeadDim)
}

// localLayers counts the layers that look back a window only.
func (a *Arch) localLayers() int {
	switch {
	case a.Window == 0:
		return 0
	case a.Local > 0:
		return a.Local
	case a.Every <= 1:
		return a.Layers
	}
	return a.Layers - a.Layers/a.Every
}

// KVBytesPerToken is what one token takes in the caches of all layers, before
// any window is full.
func (a *Arch) KVBytesPerToken(bytes float64) float64 {
	return float64(a.Layers) * a.perLayer() * bytes
}

// cached is how many tokens the layers hold of a sequence, on average.
func (a *Arch) cached(tokens float64) float64 {
	local, all := float64(a.localLayers()), float64(a.Layers)
	return (local*math.Min(tokens, float64(a.Window)) + (all-local)*tokens) / all
}

// sequenceBytes is what a sequence of so many tokens takes, in whole blocks.
func (a *Arch) sequenceBytes(tokens float64, c Cache) float64 {
	if c.Block > 1 {
		tokens = math.Ceil(tokens/float64(c.Block)) * float64(c.Block)
	}
	return a.KVBytesPerToken(c.Bytes) * a.cached(tokens)
}

// kvSplit is by how much tensor parallelism divides the cache: not beyond the
// number of KV heads, and not at all with latent attention.
func (a *Arch) kvSplit(tp int) float64 {
	if a.MLA != nil {
		return 1
	}
	return float64(min(tp, a.KVHeads))
}

// KVTerm is the cache of some sequences on all cards together.
func (a *Arch) KVTerm(sequences, tokens float64, c Cache) Term {
	formula := fmt.Sprintf("%s sequences x %s tokens x %s B", grouped(sequences), grouped(a.cached(tokens)), grouped(a.KVBytesPerToken(c.Bytes)))
	if a.MLA != nil {
		formula += fmt.Sprintf(" (L %d x (c %d + dr %d) x %g B)", a.Layers, a.MLA.KVRank, a.MLA.RoPE, c.Bytes)
	} else {
		formula += fmt.Sprintf(" (2 x L %d x k %d x d %d x %g B)", a.Layers, a.KVHeads, a.HeadDim, c.Bytes)
	}
	t := Term{Name: "kv cache", Formula: formula, Unit: Bytes, Range: exactly(sequences * a.sequenceBytes(tokens, c))}
	if a.KVHeads < a.Heads && a.MLA == nil {
		t.Note = fmt.Sprintf("%d kv heads, not %d heads: each is used by %d", a.KVHeads, a.Heads, a.Heads/a.KVHeads)
	}
	return t
}
