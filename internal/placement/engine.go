// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"math/rand"
	"slices"
)

// pick is a policy's verdict on one node: higher scores win, equal scores go
// to the earlier node.
type pick struct {
	score float64
	spot  Spot
	fits  bool
}

// Policy rates the nodes for a class. Implementations depend on nothing but
// the node, the class and their own fixed settings, so their verdict may be
// cached until the node changes.
type Policy interface {
	// Name is what flags and reports call the policy.
	Name() string
	// rate rates one node that may or may not fit.
	rate(n *node, k *class) pick
}

// Engine places requests on a fleet by one policy, with a cache of verdicts
// per (class, node version).
type Engine struct {
	fleet   *Fleet
	policy  Policy
	random  *rand.Rand // for the random policy alone
	classes map[class]*row
	asked   uint64 // rows asked for so far
	most    int    // rows kept
}

// row holds the verdicts on all nodes for one class.
type row struct {
	asked    uint64 // when it was last asked for
	verdicts []cached
}

type cached struct {
	version uint32
	pick
}

// keptVerdicts bounds an engine's cache: about 160 MB.
const keptVerdicts = 1 << 22

// NewEngine returns an engine; equal seeds give equal decisions.
func NewEngine(f *Fleet, p Policy, seed int64) *Engine {
	return &Engine{
		fleet: f, policy: p, random: rand.New(rand.NewSource(seed)),
		classes: map[class]*row{}, most: max(8, keptVerdicts/max(1, len(f.nodes))),
	}
}

// Fleet returns the fleet the engine places on.
func (e *Engine) Fleet() *Fleet { return e.fleet }

// Place finds the best spot for the request and takes it; without room it
// changes nothing and reports false.
func (e *Engine) Place(r Request) (Spot, bool) {
	k := e.fleet.classify(r)
	spot, ok := e.find(r, &k, nil)
	if ok {
		e.fleet.put(r, &k, spot)
	}
	return spot, ok
}

// PlaceOn takes the best spot for the request on node i, as for a task that
// runs there already.
func (e *Engine) PlaceOn(r Request, i int) (Spot, bool) {
	k := e.fleet.classify(r)
	k.linked, k.where = false, 0 // where it runs is not for us to judge
	spot, ok := e.find(r, &k, []int{i})
	if ok {
		e.fleet.put(r, &k, spot)
	}
	return spot, ok
}

// find returns the best spot for r among the nodes of domain (nil: all).
func (e *Engine) find(r Request, k *class, domain []int) (Spot, bool) {
	if _, ok := e.policy.(randomPolicy); ok {
		return e.findRandom(r, k, domain)
	}
	row := e.row(k)
	best := -1
	consider := func(i int) {
		n, c := &e.fleet.nodes[i], &row[i]
		if c.version != n.version {
			c.pick = e.policy.rate(n, k)
			c.version = n.version
		}
		if c.fits && n.memory >= r.MemoryMiB && (best < 0 || c.score > row[best].score) {
			best = i
		}
	}
	if domain == nil {
		for i := range e.fleet.nodes {
			consider(i)
		}
	}
	for _, i := range domain {
		consider(i)
	}
	if best < 0 {
		return Spot{}, false
	}
	spot := row[best].spot
	spot.Node = best
	return spot, true
}

// row returns the verdicts for the class; the row that was not asked for the
// longest makes room when there are too many.
func (e *Engine) row(k *class) []cached {
	e.asked++
	r := e.classes[*k]
	if r == nil {
		r = e.spareRow()
		e.classes[*k] = r
	}
	r.asked = e.asked
	return r.verdicts
}

func (e *Engine) spareRow() *row {
	if len(e.classes) < e.most {
		return &row{verdicts: make([]cached, len(e.fleet.nodes))}
	}
	var oldest class
	for k, r := range e.classes {
		if o := e.classes[oldest]; o == nil || r.asked < o.asked {
			oldest = k
		}
	}
	r := e.classes[oldest]
	delete(e.classes, oldest)
	clear(r.verdicts)
	return r
}

// findRandom draws uniformly from the nodes that fit, then a card of it.
func (e *Engine) findRandom(r Request, k *class, domain []int) (Spot, bool) {
	var fitting []int
	for i := range e.fleet.nodes {
		n := &e.fleet.nodes[i]
		if domain != nil && !slices.Contains(domain, i) {
			continue
		}
		if _, ok := n.candidates(k); ok && n.memory >= r.MemoryMiB {
			fitting = append(fitting, i)
		}
	}
	if len(fitting) == 0 {
		return Spot{}, false
	}
	i := fitting[e.random.Intn(len(fitting))]
	n := &e.fleet.nodes[i]
	mask, _ := n.candidates(k)
	if k.gpus != 1 {
		return Spot{Node: i, Cards: n.together(mask, k.gpus)}, true
	}
	cards := cardsOf(mask)
	chosen := cards[e.random.Intn(len(cards))]
	return Spot{Node: i, Cards: 1 << chosen, Start: n.cards[chosen].start(k.profile)}, true
}
