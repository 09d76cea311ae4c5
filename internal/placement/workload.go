// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"math/bits"
	"slices"
)

// popularPart is the part of all tasks that the kept classes must cover;
// mostClasses bounds them for lists where hardly two tasks are alike.
const (
	popularPart = 0.95
	mostClasses = 500
)

// Workload is the target workload that fragmentation is measured against: the
// most popular classes of requests with their probabilities, as defined by
// Weng et al., "Beware of Fragmentation" (USENIX ATC 2023).
type Workload struct {
	fleet        *Fleet
	classes      []weighted
	hopeless     []float64 // per model: probability of classes that can never use such a card
	compatible   [][]weighted
	coresPerCard float64 // CPU cores that the GPU tasks ask per card
	stock        *stock  // what parts of cards are worth
}

type weighted struct {
	class
	probability float64
}

// NewWorkload learns the popular classes from the requests: the distinct
// (CPU, cores, cards, models) classes, by count descending, until they cover
// 95 % of all requests. Host and device memory are no part of a class.
func NewWorkload(f *Fleet, requests []Request) *Workload {
	type counted struct {
		class
		count, first int
	}
	byClass := map[class]*counted{}
	var all []*counted
	for i, r := range requests {
		k := f.classify(r)
		k.memory = 0
		if c := byClass[k]; c != nil {
			c.count++
			continue
		}
		c := &counted{class: k, count: 1, first: i}
		byClass[k] = c
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b *counted) int {
		return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(a.first, b.first))
	})
	w := &Workload{fleet: f}
	shares := map[int32]float64{}
	for _, c := range all {
		if c.single() && c.profile == "" {
			shares[c.milli] += float64(c.count)
		}
	}
	w.stock = newStock(shares)
	covered := 0
	for _, c := range all {
		w.classes = append(w.classes, weighted{class: c.class, probability: float64(c.count)})
		covered += c.count
		if float64(covered) >= popularPart*float64(len(requests)) || len(w.classes) == mostClasses {
			break
		}
	}
	var cpu, gpu float64
	for i := range w.classes {
		k := &w.classes[i]
		k.probability /= float64(covered)
		if k.gpus > 0 {
			cpu += k.probability * float64(k.cpu) / 1000
			gpu += k.probability * float64(k.demand) / WholeCard
		}
	}
	if gpu > 0 {
		w.coresPerCard = cpu / gpu
	}
	w.splitByModel()
	return w
}

// splitByModel separates, per card model, the classes that can use such a card
// from those that never can.
func (w *Workload) splitByModel() {
	w.hopeless = make([]float64, len(w.fleet.models))
	w.compatible = make([][]weighted, len(w.fleet.models))
	for m := range w.fleet.models {
		for _, k := range w.classes {
			if k.gpus == 0 || k.models>>m&1 == 0 {
				w.hopeless[m] += k.probability
				continue
			}
			w.compatible[m] = append(w.compatible[m], k)
		}
	}
}

// Classes returns how many classes are kept.
func (w *Workload) Classes() int { return len(w.classes) }

// knownFragment remembers F of a node until it changes.
type knownFragment struct {
	of      *Workload
	version uint32
	value   float64
}

// current is fragment of a node as it stands in the fleet.
func (w *Workload) current(n *node) float64 {
	if n.known.of != w || n.known.version != n.version {
		n.known = knownFragment{w, n.version, w.fragment(n)}
	}
	return n.known.value
}

// fragment is F of one node: the expected free cores, in thousandths of a
// card, that a task drawn from the workload could not use there.
func (w *Workload) fragment(n *node) float64 {
	var free [MaxCards]int32
	cards := len(n.cards)
	var sum, largest int32
	for i := range n.cards {
		free[i] = n.cards[i].milli
		sum += free[i]
		largest = max(largest, free[i])
	}
	if sum == 0 {
		return 0
	}
	total := w.hopeless[n.model] * float64(sum)
	for i := range w.compatible[n.model] {
		k := &w.compatible[n.model][i]
		if n.cpu < k.cpu {
			total += k.probability * float64(sum)
			continue
		}
		if n.divided || k.linked || k.profile != "" {
			total += k.probability * float64(n.unusable(&k.class, sum))
			continue
		}
		if largest < k.milli {
			total += k.probability * float64(sum)
			continue
		}
		var small int32
		fits := 0
		for j := range cards {
			if free[j] < k.milli {
				small += free[j]
			} else {
				fits++
			}
		}
		if fits < k.gpus {
			small = sum
		}
		total += k.probability * float64(small)
	}
	return total
}

// unusable is F(m) for a class that cards must be asked about one by one.
func (n *node) unusable(k *class, sum int32) int32 {
	var small int32
	var mask uint32
	for i := range n.cards {
		if n.cards[i].hosts(k) {
			mask |= 1 << i
		} else {
			small += n.cards[i].milli
		}
	}
	if k.linked {
		mask = n.largestIsland(mask, k.gpus)
	}
	if bits.OnesCount32(mask) < k.gpus {
		return sum
	}
	return small
}

// Fragmentation returns the part of the fleet's idle GPU cores that a task
// drawn from the workload could not use, 0 to 1.
func (w *Workload) Fragmentation() float64 {
	var lost float64
	var idle int64
	for i := range w.fleet.nodes {
		lost += w.current(&w.fleet.nodes[i])
		idle += w.fleet.nodes[i].freeMilli()
	}
	if idle == 0 {
		return 0
	}
	return lost / float64(idle)
}
