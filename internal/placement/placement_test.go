// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"
	"math"
	"math/rand"
	"slices"
	"strings"
	"testing"
)

// fleetOf makes a mixed fleet: big and small nodes, two models, some cards with
// known memory.
func fleetOf(t *testing.T, nodes int) *Fleet {
	t.Helper()
	var described []Node
	for i := range nodes {
		n := Node{
			Name: fmt.Sprintf("node-%03d", i), Model: []string{"A", "B"}[i%2], Rack: fmt.Sprintf("rack-%d", i/4),
			CPUMilli: int64(16000 * (1 + i%4)), MemoryMiB: 65536, Cards: make([]Card, []int{0, 1, 2, 4, 8}[i%5]),
		}
		for j := range n.Cards {
			n.Cards[j].MemoryMiB = int64(40960 * (i % 2))
		}
		described = append(described, n)
	}
	f, err := NewFleet(described)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func randomRequest(r *rand.Rand) Request {
	q := Request{CPUMilli: int64(r.Intn(12)) * 1000, MemoryMiB: int64(r.Intn(8)) * 1024}
	switch r.Intn(6) {
	case 0:
		return q
	case 1:
		q.GPUs, q.GPUMilli = 1+r.Intn(4), WholeCard
	default:
		q.GPUs, q.GPUMilli = 1, int64(1+r.Intn(WholeCard))
		q.GPUMemoryMiB = int64(r.Intn(20)) * 1024
	}
	if r.Intn(4) == 0 {
		q.Models = []string{"B"}
	}
	return q
}

func policies(f *Fleet, requests []Request) []Policy {
	w := NewWorkload(f, requests)
	return []Policy{NewDivvy(w), NewFGD(w), NewBestFit(), NewDotProduct(), NewPack(), NewSpread(), NewRandom()}
}

// TestNothingIsEverOverfull runs random arrivals and departures under each
// policy and recounts every card by the obvious way.
func TestNothingIsEverOverfull(t *testing.T) {
	for _, name := range []string{"divvy", "fgd", "bestfit", "dotprod", "pack", "spread", "random"} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewSource(7))
			requests := make([]Request, 400)
			for i := range requests {
				requests[i] = randomRequest(r)
			}
			f := fleetOf(t, 20)
			var policy Policy
			for _, p := range policies(f, requests) {
				if p.Name() == name {
					policy = p
				}
			}
			e := NewEngine(f, policy, 1)
			var running []Running
			refused := 0
			for step := range 4000 {
				if len(running) > 0 && r.Intn(3) == 0 {
					i := r.Intn(len(running))
					f.Remove(running[i].Request, running[i].Spot)
					running = slices.Delete(running, i, i+1)
				} else {
					q := requests[r.Intn(len(requests))]
					before := snapshot(f)
					spot, ok := e.Place(q)
					if ok {
						running = append(running, Running{Request: q, Spot: spot})
					} else {
						refused++
						if after := snapshot(f); after != before {
							t.Fatalf("step %d: a refused request left a trace:\n%s\n%s", step, before, after)
						}
						if spot, ok := anySpot(f, q); ok {
							t.Fatalf("step %d: %+v refused though node %d has room", step, q, spot)
						}
					}
				}
				recount(t, f, running)
			}
			if refused == 0 {
				t.Fatal("the fleet never filled up: the test proves nothing")
			}
		})
	}
}

func snapshot(f *Fleet) string {
	var b strings.Builder
	for i := range f.nodes {
		n := &f.nodes[i]
		fmt.Fprintf(&b, "%d/%d", n.cpu, n.memory)
		for _, c := range n.cards {
			fmt.Fprintf(&b, " %d:%d:%v", c.milli, c.memory, c.layout)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// anySpot is the slow twin of fit: by the definition, card by card.
func anySpot(f *Fleet, q Request) (int, bool) {
	for i, d := range f.described {
		n := &f.nodes[i]
		if n.cpu < q.CPUMilli || n.memory < q.MemoryMiB || (q.GPUs > 0 && len(q.Models) > 0 && !slices.Contains(q.Models, d.Model)) {
			continue
		}
		cards := 0
		for j, c := range n.cards {
			total := d.Cards[j].MemoryMiB
			if q.GPUMilli == WholeCard {
				if c.milli == WholeCard && c.memory == total && (total == 0 || q.GPUMemoryMiB <= total) {
					cards++
				}
			} else if int64(c.milli) >= q.GPUMilli && (total == 0 || c.memory >= q.GPUMemoryMiB) {
				cards++
			}
		}
		if cards >= q.GPUs {
			return i, true
		}
	}
	return 0, false
}

// recount adds up what runs and compares it with the fleet's own books.
func recount(t *testing.T, f *Fleet, running []Running) {
	t.Helper()
	cpu, memory := map[int]int64{}, map[int]int64{}
	milli, device := map[[2]int]int64{}, map[[2]int]int64{}
	var gpu int64
	for _, q := range running {
		cpu[q.Spot.Node] += q.CPUMilli
		memory[q.Spot.Node] += q.MemoryMiB
		cards := cardsOf(q.Spot.Cards)
		if len(cards) != q.GPUs {
			t.Fatalf("%+v got %d GPUs", q.Request, len(cards))
		}
		for _, j := range cards {
			at := [2]int{q.Spot.Node, j}
			milli[at] += q.GPUMilli
			gpu += q.GPUMilli
			if q.GPUMilli == WholeCard {
				device[at] += f.described[q.Spot.Node].Cards[j].MemoryMiB
			} else {
				device[at] += q.GPUMemoryMiB
			}
		}
	}
	for i, d := range f.described {
		n := &f.nodes[i]
		if n.cpu != d.CPUMilli-cpu[i] || n.cpu < 0 || n.memory != d.MemoryMiB-memory[i] || n.memory < 0 {
			t.Fatalf("%s: %d mC and %d MiB free, recount says %d and %d", d.Name, n.cpu, n.memory, d.CPUMilli-cpu[i], d.MemoryMiB-memory[i])
		}
		for j, c := range n.cards {
			at := [2]int{i, j}
			if int64(c.milli) != WholeCard-milli[at] || c.milli < 0 {
				t.Fatalf("%s GPU %d: %d free, recount says %d", d.Name, j, c.milli, WholeCard-milli[at])
			}
			if total := d.Cards[j].MemoryMiB; total != 0 && (c.memory != total-device[at] || c.memory < 0) {
				t.Fatalf("%s GPU %d: %d MiB free, recount says %d", d.Name, j, c.memory, total-device[at])
			}
		}
	}
	if f.free.GPUMilli != f.total.GPUMilli-gpu {
		t.Fatalf("fleet has %d free, recount says %d", f.free.GPUMilli, f.total.GPUMilli-gpu)
	}
}

// slowFragment is the metric as the paper writes it.
func slowFragment(w *Workload, f *Fleet, i int) float64 {
	n := &f.nodes[i]
	var total float64
	for _, k := range w.classes {
		var sum, small float64
		fits := 0
		for _, c := range n.cards {
			sum += float64(c.milli)
			if c.milli >= k.milli {
				fits++
			} else {
				small += float64(c.milli)
			}
		}
		if k.gpus == 0 || k.models>>n.model&1 == 0 || n.cpu < k.cpu || fits < k.gpus {
			small = sum
		}
		total += k.probability * small
	}
	return total
}

func TestFragmentEqualsItsDefinition(t *testing.T) {
	r := rand.New(rand.NewSource(3))
	requests := make([]Request, 300)
	for i := range requests {
		requests[i] = randomRequest(r)
	}
	f := fleetOf(t, 20)
	w := NewWorkload(f, requests)
	e := NewEngine(f, NewSpread(), 1)
	for range 200 {
		e.Place(requests[r.Intn(len(requests))])
		for i := range f.nodes {
			if got, want := w.fragment(&f.nodes[i]), slowFragment(w, f, i); math.Abs(got-want) > 1e-6 {
				t.Fatalf("node %d: F = %g, the definition gives %g", i, got, want)
			}
		}
	}
}

// TestCachedScoresEqualFreshOnes compares every decision of an engine with a
// warm cache with that of an engine made for the occasion.
func TestCachedScoresEqualFreshOnes(t *testing.T) {
	r := rand.New(rand.NewSource(5))
	requests := make([]Request, 200)
	for i := range requests {
		requests[i] = randomRequest(r)
	}
	for _, name := range []string{"divvy", "fgd", "bestfit", "pack"} {
		f := fleetOf(t, 20)
		var policy Policy
		for _, p := range policies(f, requests) {
			if p.Name() == name {
				policy = p
			}
		}
		warm := NewEngine(f, policy, 1)
		for range 600 {
			q := requests[r.Intn(len(requests))]
			k := f.classify(q)
			want, wantOK := NewEngine(f, policy, 1).find(q, &k, nil)
			got, ok := warm.Place(q)
			if ok != wantOK || ok && got != want {
				t.Fatalf("%s: cached decision %+v %v, fresh %+v %v", name, got, ok, want, wantOK)
			}
		}
	}
}

func TestEqualSeedsDecideEqually(t *testing.T) {
	run := func(seed int64) (out []Spot) {
		r := rand.New(rand.NewSource(11))
		f := fleetOf(t, 20)
		e := NewEngine(f, NewRandom(), seed)
		for range 200 {
			spot, _ := e.Place(randomRequest(r))
			out = append(out, spot)
		}
		return out
	}
	if !slices.Equal(run(1), run(1)) {
		t.Error("one seed gave two results")
	}
	if slices.Equal(run(1), run(2)) {
		t.Error("the seed does not matter")
	}
}

func TestGangIsAllOrNothing(t *testing.T) {
	r := rand.New(rand.NewSource(9))
	f := fleetOf(t, 20)
	e := NewEngine(f, NewBestFit(), 1)
	placed, refused := 0, 0
	for range 300 {
		g := Gang{Name: "g", Prefer: Closeness(r.Intn(3)), Requires: Anywhere}
		if r.Intn(2) == 0 {
			g.Requires = g.Prefer
		}
		for range 1 + r.Intn(5) {
			g.Members = append(g.Members, randomRequest(r))
		}
		before := snapshot(f)
		spots, err := e.PlaceGang(g)
		if err != nil {
			refused++
			if snapshot(f) != before {
				t.Fatal("a refused gang left a trace")
			}
			continue
		}
		placed++
		for _, s := range spots {
			a, b := f.described[spots[0].Node], f.described[s.Node]
			if g.Requires == SameNode && a.Name != b.Name || g.Requires == SameRack && a.Rack != b.Rack {
				t.Fatalf("gang that requires %d is spread over %s and %s", g.Requires, a.Name, b.Name)
			}
		}
		if r.Intn(2) == 0 {
			for i, s := range spots {
				f.Remove(g.Members[i], s)
			}
			if snapshot(f) != before {
				t.Fatal("removing a gang does not restore the fleet")
			}
		}
	}
	if placed == 0 || refused == 0 {
		t.Fatalf("%d placed, %d refused: the test proves nothing", placed, refused)
	}
}

func TestPreemptionDoesTheLeastHarm(t *testing.T) {
	f, err := NewFleet([]Node{
		{Name: "a", CPUMilli: 8000, Cards: make([]Card, 1)},
		{Name: "b", CPUMilli: 8000, Cards: make([]Card, 1)},
	})
	if err != nil {
		t.Fatal(err)
	}
	e := NewEngine(f, NewBestFit(), 1)
	var running []Running
	for _, q := range []Request{
		{Name: "half", GPUs: 1, GPUMilli: 600, Priority: 1}, {Name: "rest", GPUs: 1, GPUMilli: 300, Priority: 1},
		{Name: "dear", GPUs: 1, GPUMilli: 900, Priority: 5},
	} {
		spot, ok := e.Place(q)
		if !ok {
			t.Fatalf("no room for %s", q.Name)
		}
		running = append(running, Running{Request: q, Spot: spot})
	}
	victims, node, ok := e.Preempt(Request{GPUs: 1, GPUMilli: 350, Priority: 9}, running)
	if !ok || len(victims) != 1 || running[victims[0]].Name != "rest" || f.described[node].Name != "a" {
		t.Fatalf("victims %v on node %d, %v; want only the small cheap one", victims, node, ok)
	}
	if _, _, ok := e.Preempt(Request{GPUs: 1, GPUMilli: 350, Priority: 1}, running); ok {
		t.Fatal("equal priority preempts")
	}
}

func TestQuotaIsAllOrNothing(t *testing.T) {
	q := NewQuotas(nil, map[string]int64{"a": 1500})
	one := Request{Tenant: "a", GPUs: 1, GPUMilli: WholeCard}
	if err := q.Take(one, one); err == nil || !strings.Contains(err.Error(), "tenant a") {
		t.Fatalf("two GPUs within 1.5: %v", err)
	}
	if q.Used("a") != 0 {
		t.Fatalf("a refusal left %d booked", q.Used("a"))
	}
	if err := q.Take(one); err != nil {
		t.Fatal(err)
	}
	q.GiveBack(one)
	if q.Used("a") != 0 {
		t.Fatalf("%d booked after all is back", q.Used("a"))
	}
}
