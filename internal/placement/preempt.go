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
// least harm and makes room for r on one node. It changes nothing: the caller
// ends the victims (indices into running), removes them and places r. Without
// such a set it reports false.
func (e *Engine) Preempt(r Request, running []Running) (victims []int, node int, ok bool) {
	byNode := map[int][]int{}
	for i, t := range running {
		if t.Priority < r.Priority {
			byNode[t.Spot.Node] = append(byNode[t.Spot.Node], i)
		}
	}
	k := e.fleet.classify(r)
	var least harm
	for i := range e.fleet.nodes {
		tasks := byNode[i]
		if len(tasks) == 0 || k.models>>e.fleet.nodes[i].model&1 == 0 {
			continue
		}
		chosen := e.victims(r, &k, i, tasks, running)
		if chosen == nil {
			continue
		}
		var h harm
		for j, v := range chosen {
			if j == 0 || running[v].Priority > h.priority {
				h.priority = running[v].Priority
			}
			h.milli += int64(running[v].GPUs) * running[v].GPUMilli
			h.count++
		}
		if !ok || h.compare(least) < 0 {
			victims, node, least, ok = chosen, i, h, true
		}
	}
	return victims, node, ok
}

// victims ends all tasks of the node in thought, then spares as many as still
// leave room, the most important and largest first.
func (e *Engine) victims(r Request, k *class, i int, tasks []int, running []Running) []int {
	n := e.fleet.nodes[i]
	n.cards = slices.Clone(n.cards)
	release := func(t Running, sign int64) {
		c := e.fleet.classify(t.Request)
		n.change(&c, t.Spot, sign)
		n.memory += sign * t.MemoryMiB
	}
	fits := func() bool {
		_, ok := n.candidates(k)
		return ok && n.memory >= r.MemoryMiB
	}
	for _, t := range tasks {
		release(running[t], +1)
	}
	if !fits() {
		return nil
	}
	order := slices.Clone(tasks)
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := running[a], running[b]
		return cmp.Or(cmp.Compare(y.Priority, x.Priority),
			cmp.Compare(int64(y.GPUs)*y.GPUMilli, int64(x.GPUs)*x.GPUMilli), cmp.Compare(a, b))
	})
	victims := []int{}
	for _, t := range order {
		release(running[t], -1)
		if !fits() {
			release(running[t], +1)
			victims = append(victims, t)
		}
	}
	slices.Sort(victims)
	return victims
}
