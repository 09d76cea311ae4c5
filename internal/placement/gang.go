// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"fmt"
	"slices"
)

// Closeness says how near to each other the members of a gang should be.
type Closeness int

const (
	Anywhere Closeness = iota // any nodes
	SameRack                  // nodes with one rack label
	SameNode                  // one node
)

// Gang is a set of requests that start together or not at all.
type Gang struct {
	Name     string
	Members  []Request
	Prefer   Closeness // the closest that has room is taken
	Requires Closeness // wider than this is refused
}

// PlaceGang places all members or none. It tries the preferred closeness first
// and widens step by step down to what is required; among racks or nodes that
// can hold the whole gang it takes the one with the least free cards, so that
// large gaps stay large. On failure the fleet is as it was.
func (e *Engine) PlaceGang(g Gang) ([]Spot, error) {
	for _, r := range g.Members {
		if err := r.Validate(); err != nil {
			return nil, fmt.Errorf("gang %s: %w", g.Name, err)
		}
	}
	for near := max(g.Prefer, g.Requires); near >= g.Requires; near-- {
		for _, domain := range e.domains(near) {
			if spots, ok := e.placeAll(g.Members, domain); ok {
				return spots, nil
			}
		}
	}
	return nil, fmt.Errorf("gang %s: %w for all %d members", g.Name, ErrNoRoom, len(g.Members))
}

// domains lists the sets of nodes that count as near, fullest first; nil
// stands for the whole fleet.
func (e *Engine) domains(near Closeness) [][]int {
	if near == Anywhere {
		return [][]int{nil}
	}
	byLabel := map[string][]int{}
	var order []string
	for i, d := range e.fleet.described {
		label := d.Rack
		if near == SameNode {
			label = d.Name
		}
		if label == "" {
			continue // an unlabelled node is in no rack
		}
		if byLabel[label] == nil {
			order = append(order, label)
		}
		byLabel[label] = append(byLabel[label], i)
	}
	free := func(label string) (sum int64) {
		for _, i := range byLabel[label] {
			sum += e.fleet.nodes[i].freeMilli()
		}
		return sum
	}
	freeOf := map[string]int64{}
	for _, label := range order {
		freeOf[label] = free(label)
	}
	slices.SortStableFunc(order, func(a, b string) int { return cmp.Compare(freeOf[a], freeOf[b]) })
	out := make([][]int, len(order))
	for i, label := range order {
		out[i] = byLabel[label]
	}
	return out
}

func (e *Engine) placeAll(members []Request, domain []int) ([]Spot, bool) {
	// Largest first: what is hardest to place must not find its room taken by
	// the others of its own gang.
	order := make([]int, len(members))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(members[b].GPUs, members[a].GPUs), cmp.Compare(members[b].GPUMilli, members[a].GPUMilli),
			cmp.Compare(members[b].CPUMilli, members[a].CPUMilli))
	})
	spots := make([]Spot, len(members))
	for done, i := range order {
		k := e.fleet.classify(members[i])
		spot, ok := e.find(members[i], &k, domain)
		if !ok {
			for _, j := range order[:done] {
				e.fleet.Remove(members[j], spots[j])
			}
			return nil, false
		}
		e.fleet.put(members[i], &k, spot)
		spots[i] = spot
	}
	return spots, true
}
