// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/mig"
)

// card is what is left of one GPU.
type card struct {
	milli    int32 // free cores
	memory   int64 // free device memory, MiB
	total    int64 // all of it; 0: unknown
	island   int8
	onDemand bool
	layout   mig.Layout // without a product: the card is not in MIG mode
}

// node is what is left of one machine.
type node struct {
	cpu     int64
	memory  int64
	model   uint8
	version uint32 // +1 at every change
	divided bool   // some card serves profiles
	cards   []card
	counted []int64  // by the number of the resource
	barred  []Reason // by the number of the rules, of which 0 are none

	known knownFragment
}

// whole reports whether nothing of the card is taken and it can serve as a
// whole.
func (c *card) whole() bool {
	return c.milli == WholeCard && c.memory == c.total && (c.layout.Product == nil || c.onDemand)
}

// class is a request as the policies see it: everything that decides fit and
// score, so equal classes share cached scores.
type class struct {
	cpu     int64
	gpus    int
	milli   int32
	memory  int64 // device memory, MiB
	models  uint64
	linked  bool
	profile string
	demand  int64 // of all its cards, in thousandths of one
	asks    *asks
	where   int
}

// Fleet is the state of all nodes. It is not safe for concurrent use.
type Fleet struct {
	described []Node
	nodes     []node
	models    []string // bit i of a model set
	products  Products
	resources []string // counted, by number
	asks      map[string]*asks
	wheres    []*Where
	free      Totals
	total     Totals
}

// Totals are sums over a fleet.
type Totals struct {
	CPUMilli int64
	GPUMilli int64
	Cards    int
}

// NewFleet returns an empty fleet of the nodes, in name order.
func NewFleet(described []Node) (*Fleet, error) {
	f := &Fleet{described: slices.Clone(described), products: ProductsOf(described)}
	slices.SortFunc(f.described, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
	for i, d := range f.described {
		if err := d.Validate(); err != nil {
			return nil, err
		}
		if i > 0 && d.Name == f.described[i-1].Name {
			return nil, fmt.Errorf("node %s: %w: named twice", d.Name, ErrInvalid)
		}
		model, err := f.modelNumber(d.Model)
		if err != nil {
			return nil, err
		}
		n := node{cpu: d.CPUMilli, memory: d.MemoryMiB, model: model, version: 1, cards: make([]card, len(d.Cards))}
		for j, c := range d.Cards {
			n.cards[j] = card{milli: WholeCard, memory: c.MemoryMiB, total: c.MemoryMiB, island: int8(c.Island), onDemand: c.OnDemand}
			n.cards[j].layout.Product = c.MIG
			n.divided = n.divided || c.MIG != nil
		}
		f.nodes = append(f.nodes, n)
		f.total.CPUMilli += d.CPUMilli
		f.total.GPUMilli += int64(len(d.Cards)) * WholeCard
		f.total.Cards += len(d.Cards)
	}
	f.free = f.total
	return f, nil
}

func (f *Fleet) modelNumber(name string) (uint8, error) {
	if i := slices.Index(f.models, name); i >= 0 {
		return uint8(i), nil
	}
	if len(f.models) == 63 {
		return 0, fmt.Errorf("model %s: %w: more than 63 GPU models in one fleet", name, ErrInvalid)
	}
	f.models = append(f.models, name)
	return uint8(len(f.models) - 1), nil
}

// Products returns the products of the cards that serve profiles.
func (f *Fleet) Products() Products { return f.products }

// Nodes returns the descriptions in the fleet's order.
func (f *Fleet) Nodes() []Node { return f.described }

// Total returns the capacity of the fleet.
func (f *Fleet) Total() Totals { return f.total }

// Free returns what nothing has been placed on.
func (f *Fleet) Free() Totals { return f.free }

// CPUMilli returns the free CPU of node i.
func (f *Fleet) CPUMilli(i int) int64 { return f.nodes[i].cpu }

// CardMilli returns the free cores of each card of node i.
func (f *Fleet) CardMilli(i int) []int {
	out := make([]int, len(f.nodes[i].cards))
	for j := range out {
		out[j] = int(f.nodes[i].cards[j].milli)
	}
	return out
}

// classify turns a request into its class; a model that the fleet lacks simply
// matches no node.
func (f *Fleet) classify(r Request) class {
	c := class{cpu: r.CPUMilli, gpus: r.GPUs, milli: int32(r.GPUMilli), memory: r.GPUMemoryMiB, profile: r.Profile, demand: f.products.Demand(r)}
	c.linked = r.Linked && r.GPUs > 1
	c.asks, c.where = f.asksOf(r), f.whereOf(r)
	if len(r.Models) == 0 || r.GPUs == 0 {
		c.models = ^uint64(0)
		return c
	}
	for _, m := range r.Models {
		if i := slices.Index(f.models, m); i >= 0 {
			c.models |= 1 << i
		}
	}
	return c
}

// hosts reports whether the card alone can take one card's part of the class.
func (c *card) hosts(k *class) bool {
	switch {
	case k.profile != "":
		i := c.profile(k.profile)
		return i >= 0 && c.layout.Open(i)
	case k.milli == WholeCard:
		return c.whole() && (c.total == 0 || k.memory <= c.total)
	case c.layout.Product != nil:
		return false
	}
	return c.milli >= k.milli && (c.total == 0 || c.memory >= k.memory)
}

// candidates returns the cards of n that can host one card's part of k, and
// whether the node as a whole can take k.
func (n *node) candidates(k *class) (uint32, bool) {
	if n.cpu < k.cpu || k.models>>n.model&1 == 0 || !n.gives(k) || n.bars(k) != "" {
		return 0, false
	}
	if k.gpus == 0 {
		return 0, true
	}
	var mask uint32
	for i := range n.cards {
		if n.cards[i].hosts(k) {
			mask |= 1 << i
		}
	}
	if k.linked {
		mask = n.largestIsland(mask, k.gpus)
	}
	return mask, bits.OnesCount32(mask) >= k.gpus
}

// change takes the class at spot from what is free (sign -1) or gives it back
// (+1).
func (n *node) change(k *class, spot Spot, sign int64) {
	n.cpu += sign * k.cpu
	n.count(k, sign)
	n.version++
	for m := spot.Cards; m != 0; m &= m - 1 {
		c := &n.cards[bits.TrailingZeros32(m)]
		switch {
		case k.profile != "":
			i := c.profile(k.profile)
			if sign < 0 {
				c.layout.Add(i, int(spot.Start))
			} else {
				c.layout.Drop(i, int(spot.Start))
			}
			c.milli = WholeCard * int32(c.layout.Free()) / int32(c.layout.Product.Slices)
		case k.milli == WholeCard:
			c.milli += int32(sign) * WholeCard
			c.memory += sign * c.total
			if c.layout.Product != nil && sign < 0 {
				c.layout.Shut()
			} else {
				c.layout = mig.Layout{Product: c.layout.Product}
			}
		default:
			c.milli += int32(sign) * k.milli
			if c.total != 0 {
				c.memory += sign * k.memory
			}
		}
	}
}

// put places r at spot without asking a policy.
func (f *Fleet) put(r Request, k *class, spot Spot) {
	n := &f.nodes[spot.Node]
	before := n.freeMilli()
	n.change(k, spot, -1)
	n.memory -= r.MemoryMiB
	f.free.CPUMilli -= r.CPUMilli
	f.free.GPUMilli -= before - n.freeMilli()
}

// PutAt takes exactly this spot, as for a task that runs already; it says why
// when the spot cannot be taken, and then changes nothing.
func (f *Fleet) PutAt(r Request, spot Spot) error {
	if err := r.Validate(); err != nil {
		return err
	}
	if spot.Node < 0 || spot.Node >= len(f.nodes) {
		return fmt.Errorf("request %q: %w: no node %d", r.Name, ErrInvalid, spot.Node)
	}
	k := f.classify(r)
	k.linked, k.where = false, 0 // where it runs is not for us to judge
	n := &f.nodes[spot.Node]
	mask, ok := n.candidates(&k)
	ok = ok && n.memory >= r.MemoryMiB && bits.OnesCount32(spot.Cards) == k.gpus && spot.Cards&^mask == 0
	if ok && k.profile != "" {
		c := &n.cards[bits.TrailingZeros32(spot.Cards)]
		i := c.profile(k.profile)
		ok = slices.Contains(c.layout.Product.Profiles[i].Starts, int(spot.Start)) && c.layout.Opens(i, int(spot.Start))
	}
	if !ok {
		return fmt.Errorf("request %q: %w on node %s", r.Name, ErrNoRoom, f.described[spot.Node].Name)
	}
	f.put(r, &k, spot)
	return nil
}

// Remove gives back what r holds at spot.
func (f *Fleet) Remove(r Request, spot Spot) {
	k := f.classify(r)
	n := &f.nodes[spot.Node]
	before := n.freeMilli()
	n.change(&k, spot, +1)
	n.memory += r.MemoryMiB
	f.free.CPUMilli += r.CPUMilli
	f.free.GPUMilli += n.freeMilli() - before
}

func (n *node) freeMilli() int64 {
	var sum int64
	for i := range n.cards {
		sum += int64(n.cards[i].milli)
	}
	return sum
}
