// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Counted are amounts of resources that a node has besides CPU, memory and the GPUs that
// are modelled, by name: "pods", "amd.com/gpu". What a node does not list it has none of
// where the name has a slash, as those of devices do; of others it has no limit.
type Counted map[string]int64

// Where keeps requests off nodes for other reasons than room: labels, taints. Requests
// of the same rules share one.
type Where struct {
	Barred map[string]Reason // by the name of a node that may not take them: why
}

// unlimited is what a node has of a resource that it does not count.
const unlimited = 1 << 60

// asks are the counted resources of a request. A fleet has one for equal amounts.
type asks struct{ list []ask }

type ask struct {
	resource int // its number in the fleet
	amount   int64
}

// asksOf finds or makes those of a request; nil: it asks for none.
func (f *Fleet) asksOf(r Request) *asks {
	if len(r.Counted) == 0 {
		return nil
	}
	var key strings.Builder
	names := slices.Sorted(maps.Keys(r.Counted))
	for _, name := range names {
		fmt.Fprintf(&key, "%s=%d\n", name, r.Counted[name])
	}
	if known := f.asks[key.String()]; known != nil {
		return known
	}
	made := &asks{}
	for _, name := range names {
		made.list = append(made.list, ask{f.resource(name), r.Counted[name]})
	}
	if f.asks == nil {
		f.asks = map[string]*asks{}
	}
	f.asks[key.String()] = made
	return made
}

// resource numbers a counted resource.
func (f *Fleet) resource(name string) int {
	if i := slices.Index(f.resources, name); i >= 0 {
		return i
	}
	f.resources = append(f.resources, name)
	for i := range f.nodes {
		amount, listed := f.described[i].Counted[name]
		if !listed && !strings.Contains(name, "/") {
			amount = unlimited
		}
		f.nodes[i].counted = append(f.nodes[i].counted, amount)
	}
	return len(f.resources) - 1
}

// whereOf numbers the rules of a request; 0: it has none.
func (f *Fleet) whereOf(r Request) int {
	if r.Where == nil {
		return 0
	}
	if i := slices.Index(f.wheres, r.Where); i >= 0 {
		return i + 1
	}
	if len(f.wheres) == 0 {
		for i := range f.nodes {
			f.nodes[i].barred = []Reason{""}
		}
	}
	f.wheres = append(f.wheres, r.Where)
	for i := range f.nodes {
		f.nodes[i].barred = append(f.nodes[i].barred, r.Where.Barred[f.described[i].Name])
	}
	return len(f.wheres)
}

// bars says why the class may not run on the node; empty: it may.
func (n *node) bars(k *class) Reason {
	if k.where == 0 {
		return ""
	}
	return n.barred[k.where]
}

// gives says whether the node has what the class asks of counted resources.
func (n *node) gives(k *class) bool {
	if k.asks == nil {
		return true
	}
	for _, a := range k.asks.list {
		if n.counted[a.resource] < a.amount {
			return false
		}
	}
	return true
}

// count takes counted resources (sign -1) or gives them back (+1).
func (n *node) count(k *class, sign int64) {
	if k.asks == nil {
		return
	}
	for _, a := range k.asks.list {
		n.counted[a.resource] += sign * a.amount
	}
}

// lacks lists the counted resources that the class lacks on node i, in words.
func (f *Fleet) lacks(i int, k *class) (reasons []Reason) {
	if k.asks == nil {
		return nil
	}
	for _, a := range k.asks.list {
		if f.nodes[i].counted[a.resource] < a.amount {
			reasons = append(reasons, Reason(f.resources[a.resource]))
		}
	}
	return reasons
}

// validCounted says what is wrong with amounts.
func validCounted(of Counted) error {
	for name, amount := range of {
		if amount < 0 || amount >= unlimited {
			return fmt.Errorf("%w: %d of %s", ErrInvalid, amount, name)
		}
	}
	return nil
}
