// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"slices"

	"github.com/divvy-gpu/divvy/internal/mig"
)

// profile finds a profile that the card serves, by name; -1: it does not.
func (c *card) profile(name string) int {
	if c.layout.Product == nil {
		return -1
	}
	return c.layout.Product.Index(name)
}

// start is where an instance of the profile leaves the most room, or -1.
func (c *card) start(name string) int8 {
	i := c.profile(name)
	if i < 0 {
		return -1
	}
	return int8(c.layout.Best(i))
}

// Smallest returns the narrowest profile that has at least the given part of
// the card's cores and that memory; empty when only the whole card does.
func Smallest(p *mig.Product, milli, needMiB int64) string {
	best := -1
	for i := range p.Profiles {
		f := &p.Profiles[i]
		if !f.Plain() || int64(f.Slices)*WholeCard < milli*int64(p.Slices) || needMiB > int64(f.Memory()) {
			continue
		}
		if best < 0 || cmp.Or(cmp.Compare(f.Size, p.Profiles[best].Size), cmp.Compare(f.Slices, p.Profiles[best].Slices)) < 0 {
			best = i
		}
	}
	if best < 0 || p.Profiles[best].Slices == p.Slices {
		return ""
	}
	return p.Profiles[best].Name
}

// partMilli is what a partition takes of a card of the product, in thousandths.
func partMilli(p *mig.Product, f *mig.Profile) int64 {
	return int64(f.Slices) * WholeCard / int64(p.Slices)
}

// AsShare returns the request with a part of a card in place of a partition of
// this product.
func AsShare(p *mig.Product, r Request) Request {
	if i := p.Index(r.Profile); i >= 0 {
		f := &p.Profiles[i]
		r.Profile = ""
		r.GPUMilli = partMilli(p, f)
		r.GPUMemoryMiB = int64(f.Memory())
	}
	return r
}

// Products are the products of cards that serve profiles, with the models of their
// nodes.
type Products []modelProduct

type modelProduct struct {
	model   string
	product *mig.Product
}

// ProductsOf returns those of the nodes' cards.
func ProductsOf(nodes []Node) Products {
	var all Products
	for _, n := range nodes {
		for _, c := range n.Cards {
			if of := (modelProduct{n.Model, c.MIG}); c.MIG != nil && !slices.Contains(all, of) {
				all = append(all, of)
			}
		}
	}
	return all
}

// Demand is what a request takes of cards, in thousandths of one. A partition counts
// its part of the compute slices of the product that has it: the largest part where
// several products do, a seventh per slice where none does.
func (all Products) Demand(r Request) int64 {
	if r.Profile == "" {
		return int64(r.GPUs) * r.GPUMilli
	}
	var largest int64
	for _, of := range all {
		if i := of.product.Index(r.Profile); i >= 0 && (len(r.Models) == 0 || slices.Contains(r.Models, of.model)) {
			largest = max(largest, partMilli(of.product, &of.product.Profiles[i]))
		}
	}
	if largest == 0 {
		return int64(mig.SlicesOf(r.Profile)) * WholeCard / 7
	}
	return largest
}
