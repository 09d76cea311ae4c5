// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"
	"math"
	"math/rand"
	"slices"
	"testing"

	"github.com/divvy-gpu/divvy/internal/mig"
)

func product(t *testing.T, key string) *mig.Product {
	t.Helper()
	table, err := mig.Default()
	if err != nil {
		t.Fatal(err)
	}
	p, ok := table.ByName(key)
	if !ok {
		t.Fatalf("no product %s", key)
	}
	return p
}

func migFleet(t *testing.T, cards int) *Fleet {
	t.Helper()
	g := product(t, "h100-sxm-80gb")
	n := Node{Name: "node-0"}
	var nodes []Node
	for i := range cards {
		if i%8 == 0 && i > 0 {
			nodes = append(nodes, n)
			n = Node{Name: fmt.Sprintf("node-%d", i/8)}
		}
		n.Cards = append(n.Cards, Card{MIG: g})
	}
	f, err := NewFleet(append(nodes, n))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func partitionRequest(name string) Request { return Request{GPUs: 1, Profile: name} }

// legal puts a card's instances on an empty one.
func legal(g *mig.Product, instances map[int]string) error {
	l := mig.Layout{Product: g}
	for start, name := range instances {
		i := g.Index(name)
		if !slices.Contains(g.Profiles[i].Starts, start) || !l.Opens(i, start) {
			return fmt.Errorf("%s at %d", name, start)
		}
		l.Add(i, start)
	}
	return nil
}

func TestPartitionsStayLegal(t *testing.T) {
	operations := 1_000_000
	if testing.Short() {
		operations = 20_000
	}
	r := rand.New(rand.NewSource(1))
	f := migFleet(t, 12)
	g := f.described[0].Cards[0].MIG
	e := NewEngine(f, NewDivvy(NewWorkload(f, nil)), 1)
	type at struct{ node, card int }
	state := map[at]map[int]string{}
	var running []Running
	refused := 0
	for range operations {
		if len(running) > 0 && r.Intn(5) < 2 {
			i := r.Intn(len(running))
			q := running[i]
			f.Remove(q.Request, q.Spot)
			delete(state[at{q.Spot.Node, cardsOf(q.Spot.Cards)[0]}], int(q.Spot.Start))
			running[i] = running[len(running)-1]
			running = running[:len(running)-1]
			continue
		}
		q := partitionRequest(g.Profiles[r.Intn(len(g.Profiles))].Name)
		spot, ok := e.Place(q)
		if !ok {
			refused++
			continue
		}
		card := at{spot.Node, cardsOf(spot.Cards)[0]}
		if state[card] == nil {
			state[card] = map[int]string{}
		}
		if old := state[card][int(spot.Start)]; old != "" {
			t.Fatalf("%s placed on %s", q.Profile, old)
		}
		state[card][int(spot.Start)] = q.Profile
		if err := legal(g, state[card]); err != nil {
			t.Fatalf("%v: %v", state[card], err)
		}
		running = append(running, Running{Request: q, Spot: spot})
	}
	if refused == 0 {
		t.Fatal("never full: the test proves nothing")
	}
}

// most is the exhaustive search: how many of the stream, in order, can be
// placed before the first that cannot, over all choices of card and start.
func most(cards []mig.Layout, stream []string) int {
	best := 0
	seen := map[string]bool{}
	var search func(done int)
	search = func(done int) {
		best = max(best, done)
		if done == len(stream) || best == len(stream) {
			return
		}
		key := fmt.Sprint(done)
		for _, c := range cards {
			key += fmt.Sprintf(",%v", c)
		}
		if seen[key] {
			return
		}
		seen[key] = true
		i := cards[0].Product.Index(stream[done])
		for c := range cards {
			for _, s := range cards[c].Product.Profiles[i].Starts {
				if cards[c].Opens(i, s) {
					before := cards[c]
					cards[c].Add(i, s)
					search(done + 1)
					cards[c] = before
				}
			}
		}
	}
	search(0)
	return best
}

// packUntilFull places the stream on fresh cards until the first refusal.
func packUntilFull(t *testing.T, cards int, stream func() string) (placed int) {
	t.Helper()
	f := migFleet(t, cards)
	e := NewEngine(f, NewDivvy(NewWorkload(f, nil)), 1)
	for {
		if _, ok := e.Place(partitionRequest(stream())); !ok {
			return placed
		}
		placed++
	}
}

// TestPartitionPackingIsNearTheBest packs random streams until the first
// refusal: on 100 cards we place at least 98 % as many a card as an exhaustive
// search that knows the future does on the fleets small enough to search.
func TestPartitionPackingIsNearTheBest(t *testing.T) {
	r := rand.New(rand.NewSource(2))
	g := product(t, "h100-sxm-80gb")
	draw := func() string { return g.Profiles[r.Intn(len(g.Profiles))].Name }
	const cards, trials = 2, 60
	optimal, small := 0, 0
	for range trials {
		stream := make([]string, cards*8)
		for i := range stream {
			stream[i] = draw()
		}
		all := make([]mig.Layout, cards)
		for i := range all {
			all[i].Product = g
		}
		optimal += most(all, stream)
		next := 0
		small += packUntilFull(t, cards, func() string { next++; return stream[next-1] })
	}
	large := 0
	for range 10 {
		large += packUntilFull(t, 100, draw)
	}
	perCard, best := float64(large)/1000, float64(optimal)/(cards*trials)
	t.Logf("per GPU: %.3f on 100 GPUs; on %d GPUs %.3f, the best possible there %.3f", perCard, cards, float64(small)/(cards*trials), best)
	if perCard < 0.98*best {
		t.Errorf("%.3f partitions a GPU on 100 GPUs, want 98 %% of %.3f", perCard, best)
	}
	if float64(small) < 0.95*float64(optimal) {
		t.Errorf("%d placed on %d GPUs, an exhaustive search that knows the future places %d", small, cards, optimal)
	}
}

// slowPartitioned is the metric on cards that serve profiles, card by card: by
// asking for every start.
func slowPartitioned(w *Workload, f *Fleet, i int) float64 {
	n := &f.nodes[i]
	var total float64
	for _, k := range w.classes {
		var sum, lost float64
		fits := 0
		for _, c := range n.cards {
			free := float64(c.milli)
			sum += free
			able := false
			switch g := c.layout.Product; {
			case k.profile != "" && g != nil:
				for p := range g.Profiles {
					for _, s := range g.Profiles[p].Starts {
						able = able || g.Profiles[p].Name == k.profile && c.layout.Opens(p, s)
					}
				}
			case k.profile == "" && k.milli == WholeCard:
				able = c.milli == WholeCard && (g == nil || c.onDemand)
			case k.profile == "":
				able = g == nil && c.milli >= k.milli
			}
			if able {
				fits++
			} else {
				lost += free
			}
		}
		if k.gpus == 0 || fits < k.gpus || n.cpu < k.cpu {
			lost = sum
		}
		total += k.probability * lost
	}
	return total
}

// TestPartitionedFragmentEqualsItsDefinition mixes cards that serve profiles,
// cards that do so on demand, and plain ones.
func TestPartitionedFragmentEqualsItsDefinition(t *testing.T) {
	g := product(t, "h100-sxm-80gb")
	var nodes []Node
	for i := range 8 {
		nodes = append(nodes, Node{Name: fmt.Sprint("n", i), CPUMilli: 30000, Cards: []Card{{MIG: g}, {MIG: g, OnDemand: true}, {MIG: g, OnDemand: true}, {}}})
	}
	r := rand.New(rand.NewSource(6))
	requests := []Request{{CPUMilli: 1000}}
	for range 200 {
		q := Request{GPUs: 1, GPUMilli: int64(1 + r.Intn(1000)), CPUMilli: int64(r.Intn(4000))}
		switch r.Intn(3) {
		case 0:
			q.GPUMilli, q.Profile = 0, g.Profiles[r.Intn(len(g.Profiles))].Name
		case 1:
			q.GPUMilli, q.GPUs = WholeCard, 1+r.Intn(2)
		}
		requests = append(requests, q)
	}
	for _, name := range []string{"divvy", "fgd", "bestfit", "random"} {
		f, err := NewFleet(nodes)
		if err != nil {
			t.Fatal(err)
		}
		w := NewWorkload(f, requests)
		p, err := NewPolicy(name, w)
		if err != nil {
			t.Fatal(err)
		}
		e := NewEngine(f, p, 1)
		var running []Running
		for range 600 {
			if len(running) > 0 && r.Intn(3) == 0 {
				i := r.Intn(len(running))
				f.Remove(running[i].Request, running[i].Spot)
				running = append(running[:i], running[i+1:]...)
			} else if q := requests[r.Intn(len(requests))]; true {
				if spot, ok := e.Place(q); ok {
					running = append(running, Running{Request: q, Spot: spot})
				}
			}
			for i := range f.nodes {
				if got, want := w.current(&f.nodes[i]), slowPartitioned(w, f, i); math.Abs(got-want) > 1e-6 {
					t.Fatalf("%s, node %d: F = %g, the definition gives %g", name, i, got, want)
				}
			}
		}
		for _, q := range running {
			f.Remove(q.Request, q.Spot)
		}
		if f.Free() != f.Total() {
			t.Errorf("%s: %+v free of %+v when all is gone", name, f.Free(), f.Total())
		}
	}
}

func TestSmallestProfile(t *testing.T) {
	const h100 = "h100-sxm-80gb"
	for _, c := range []struct {
		product       string
		milli, memory int64
		want          string
	}{
		{h100, 100, 0, "1g.10gb"}, {h100, 143, 0, "2g.20gb"}, {h100, 142, 0, "1g.10gb"}, {h100, 100, 15000, "1g.20gb"}, {h100, 250, 0, "2g.20gb"}, {h100, 250, 30000, "3g.40gb"},
		{h100, 500, 0, "4g.40gb"}, {h100, 600, 0, ""}, {h100, 100, 60000, ""},
		{"b200-180gb", 100, 20992, "1g.23gb"}, {"b200-180gb", 100, 20993, "1g.45gb"}, // the name less 5 % would be 22,374 MiB
		{"rtx-pro-6000-blackwell-96gb", 200, 24192, "1g.24gb"},
	} {
		if got := Smallest(product(t, c.product), c.milli, c.memory); got != c.want {
			t.Errorf("%s, %d thousandths and %d MiB: %q, want %q", c.product, c.milli, c.memory, got, c.want)
		}
	}
}

// A partition counts as much in quotas and scores as it takes of its card.
func TestDemandIsOfTheProduct(t *testing.T) {
	table, err := mig.Default()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range table.Products() {
		f, err := NewFleet([]Node{{Name: "n", Model: p.Key, Cards: []Card{{MIG: p}}}})
		if err != nil {
			t.Fatal(err)
		}
		for i := range p.Profiles {
			r := partitionRequest(p.Profiles[i].Name)
			k := f.classify(r)
			before := f.nodes[0].freeMilli()
			spot := Spot{Cards: 1, Start: f.nodes[0].cards[0].start(r.Profile)}
			f.nodes[0].change(&k, spot, -1)
			took := before - f.nodes[0].freeMilli()
			f.nodes[0].change(&k, spot, +1)
			if d := f.Products().Demand(r); d != k.demand || took-d > 1 || d > took {
				t.Errorf("%s %s: %d demanded, %d in its class, %d taken", p.Key, r.Profile, d, k.demand, took)
			}
		}
	}
	a30, h100 := product(t, "a30-24gb"), product(t, "h100-sxm-80gb")
	products := ProductsOf([]Node{{Model: "A30", Cards: []Card{{MIG: a30}, {MIG: a30}}}, {Model: "H100", Cards: []Card{{}, {MIG: h100}}}})
	if len(products) != 2 {
		t.Errorf("%d products", len(products))
	}
	q := NewQuotas(products, map[string]int64{"lab": WholeCard})
	one := Request{Tenant: "lab", GPUs: 1, Profile: "1g.6gb"}
	if err := q.Take(one, one, one, one); err != nil {
		t.Errorf("four of the four parts of an A30: %v", err)
	}
	if err := q.Take(one); err == nil {
		t.Error("five parts of an A30 within a quota of one GPU")
	}
	if d := products.Demand(Request{GPUs: 1, Profile: "1g.10gb", Models: []string{"A30"}}); d != WholeCard/7 {
		t.Errorf("a profile of no product: %d", d)
	}
}
