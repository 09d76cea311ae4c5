// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"slices"
)

// Running is a task that holds room.
type Running struct {
	Request
	Spot Spot
	Gang string // tasks of one gang end together; empty: alone
}

// unit is what ends together: one task or a whole gang.
type unit struct {
	members  []int // indices into the running tasks
	priority int   // the highest among them
	milli    int64
}

// harm orders sets of victims: the highest priority among them counts first,
// then the cores they lose, then their number.
type harm struct {
	priority int
	milli    int64
	count    int
}

func (a harm) compare(b harm) int {
	return cmp.Or(cmp.Compare(a.priority, b.priority), cmp.Compare(a.milli, b.milli), cmp.Compare(a.count, b.count))
}

// Preempt finds the set of running tasks of lower priority whose end does the
// least harm and makes room for r on one node; a gang ends as a whole. It
// changes nothing: the caller ends the victims (indices into running), removes
// them and places r. Without such a set it reports false.
func (e *Engine) Preempt(r Request, running []Running) (victims []int, node int, ok bool) {
	units := unitsBelow(e.fleet.products, r.Priority, running)
	byNode := map[int][]int{}
	for u := range units {
		for _, t := range units[u].members {
			i := running[t].Spot.Node
			if at := byNode[i]; len(at) == 0 || at[len(at)-1] != u {
				byNode[i] = append(at, u)
			}
		}
	}
	for i := range running {
		e.fleet.classify(running[i].Request) // numbers what they count, before nodes are copied
	}
	k := e.fleet.classify(r)
	var least harm
	for i := range e.fleet.nodes {
		if len(byNode[i]) == 0 || k.models>>e.fleet.nodes[i].model&1 == 0 {
			continue
		}
		chosen := e.victims(r, &k, i, units, byNode[i], running)
		if chosen == nil {
			continue
		}
		var h harm
		var tasks []int
		for j, u := range chosen {
			if j == 0 || units[u].priority > h.priority {
				h.priority = units[u].priority
			}
			h.milli += units[u].milli
			h.count += len(units[u].members)
			tasks = append(tasks, units[u].members...)
		}
		if !ok || h.compare(least) < 0 {
			victims, node, least, ok = tasks, i, h, true
		}
	}
	slices.Sort(victims)
	return victims, node, ok
}

// unitsBelow groups the running tasks by what ends together and keeps those
// that may: all of a gang must be of lower priority.
func unitsBelow(products Products, priority int, running []Running) []unit {
	var units []unit
	ofGang := map[string]int{}
	for i, t := range running {
		u, known := ofGang[t.Gang]
		if t.Gang == "" || !known {
			u = len(units)
			units = append(units, unit{priority: t.Priority})
			if t.Gang != "" {
				ofGang[t.Gang] = u
			}
		}
		units[u].members = append(units[u].members, i)
		units[u].priority = max(units[u].priority, t.Priority)
		units[u].milli += products.Demand(t.Request)
	}
	return slices.DeleteFunc(units, func(u unit) bool { return u.priority >= priority })
}

// victims ends all units of node i in thought, then spares as many as still
// leave room, the most important and largest first. Nil: even then no room.
func (e *Engine) victims(r Request, k *class, i int, units []unit, here []int, running []Running) []int {
	n := e.fleet.nodes[i]
	n.cards, n.counted = slices.Clone(n.cards), slices.Clone(n.counted)
	release := func(u int, sign int64) {
		for _, t := range units[u].members {
			if running[t].Spot.Node == i {
				c := e.fleet.classify(running[t].Request)
				n.change(&c, running[t].Spot, sign)
				n.memory += sign * running[t].MemoryMiB
			}
		}
	}
	fits := func() bool {
		_, ok := n.candidates(k)
		return ok && n.memory >= r.MemoryMiB
	}
	for _, u := range here {
		release(u, +1)
	}
	if !fits() {
		return nil
	}
	order := slices.Clone(here)
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(units[b].priority, units[a].priority),
			cmp.Compare(units[b].milli, units[a].milli), cmp.Compare(a, b))
	})
	victims := []int{}
	for _, u := range order {
		release(u, -1)
		if !fits() {
			release(u, +1)
			victims = append(victims, u)
		}
	}
	return victims
}
