// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"
	"math/rand"
	"strings"
	"testing"
)

// TestObstaclesAndFitAgree: a node has a reason exactly when it does not fit,
// and what Room promises is true.
func TestObstaclesAndFitAgree(t *testing.T) {
	r := rand.New(rand.NewSource(13))
	f := fleetOf(t, 20)
	e := NewEngine(f, NewBestFit(), 1)
	blocked := 0
	for range 2000 {
		q := randomRequest(r)
		for i := range f.nodes {
			k := f.classify(q)
			_, fits := f.nodes[i].candidates(&k)
			fits = fits && f.nodes[i].memory >= q.MemoryMiB
			if reasons := f.nodes[i].reasons(&k, q.MemoryMiB); fits != (len(reasons) == 0) {
				t.Fatalf("node %d fits %+v: %v, but reasons %v", i, q, fits, reasons)
			}
		}
		if _, ok := e.Place(q); ok {
			continue
		}
		blocked++
		room := f.Room(q)
		try := func(what string, possible bool, changed Request) {
			_, ok := e.Find(changed)
			if ok != possible {
				t.Fatalf("%+v with other %s (%+v): fits %v, Room says %v", q, what, changed, ok, possible)
			}
		}
		changed := q
		if changed.CPUMilli = max(0, room.CPUMilli); room.CPUMilli >= 0 {
			try("CPU", true, changed)
			if changed.CPUMilli++; changed.CPUMilli <= q.CPUMilli {
				try("CPU", false, changed)
			}
		}
		changed = q
		if changed.MemoryMiB = max(0, room.MemoryMiB); room.MemoryMiB >= 0 {
			try("memory", true, changed)
			if changed.MemoryMiB++; changed.MemoryMiB <= q.MemoryMiB {
				try("memory", false, changed)
			}
		}
		changed = q
		if changed.GPUMilli = room.GPUMilli; q.GPUs == 1 && room.GPUMilli > 0 {
			try("part", true, changed)
			if changed.GPUMilli++; changed.GPUMilli <= q.GPUMilli {
				try("part", false, changed)
			}
		}
		changed = q
		if changed.GPUs = room.GPUs; q.GPUs > 1 && room.GPUs > 0 {
			try("cards", true, changed)
		}
		changed = q
		if changed.GPUMemoryMiB = max(0, room.GPUMemoryMiB); q.GPUs == 1 && q.GPUMilli < WholeCard && room.GPUMemoryMiB >= 0 {
			try("device memory", true, changed)
		}
	}
	if blocked < 100 {
		t.Fatalf("%d requests were blocked: the test proves nothing", blocked)
	}
}

func TestObstaclesAreCounted(t *testing.T) {
	f, err := NewFleet([]Node{
		{Name: "a", Model: "T4", CPUMilli: 4000, Cards: make([]Card, 1)},
		{Name: "b", Model: "A100", CPUMilli: 1000, Cards: make([]Card, 2)},
		{Name: "c", Model: "A100", CPUMilli: 8000, Cards: []Card{{MIG: product(t, "a100-40gb")}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, o := range f.Obstacles(Request{CPUMilli: 2000, GPUs: 1, GPUMilli: 500, Models: []string{"A100"}}) {
		fmt.Fprintf(&got, "%s %d %d; ", o.Reason, o.Nodes, o.Alone)
	}
	if want := "other GPU model 1 1; partition 1 1; CPU 1 1; "; strings.ReplaceAll(got.String(), string(ReasonModel), "other GPU model") != want {
		t.Errorf("%s, want %s", got.String(), want)
	}
}

// TestPreemptionEndsGangsWhole: one member in the way costs the whole gang, so
// that a dearer single task may be the lesser harm.
func TestPreemptionEndsGangsWhole(t *testing.T) {
	f, err := NewFleet([]Node{
		{Name: "a", CPUMilli: 8000, Cards: make([]Card, 1)}, {Name: "b", CPUMilli: 8000, Cards: make([]Card, 1)}, {Name: "c", CPUMilli: 8000, Cards: make([]Card, 1)},
	})
	if err != nil {
		t.Fatal(err)
	}
	e := NewEngine(f, NewSpread(), 1)
	var running []Running
	for i, q := range []Request{{Name: "g0", GPUs: 1, GPUMilli: 600}, {Name: "g1", GPUs: 1, GPUMilli: 600}, {Name: "alone", GPUs: 1, GPUMilli: 900}} {
		spot, ok := e.Place(q)
		if !ok {
			t.Fatal("no room")
		}
		running = append(running, Running{Request: q, Spot: spot, Gang: []string{"g", "g", ""}[i]})
	}
	victims, _, ok := e.Preempt(Request{GPUs: 1, GPUMilli: 500, Priority: 1}, running)
	if !ok || len(victims) != 1 || running[victims[0]].Name != "alone" {
		t.Errorf("victims %v %v, want the task that is alone", victims, ok)
	}
	running[2].Priority = 1
	victims, _, ok = e.Preempt(Request{GPUs: 1, GPUMilli: 500, Priority: 1}, running)
	if !ok || len(victims) != 2 {
		t.Errorf("victims %v %v, want both of the gang", victims, ok)
	}
	running[1].Priority = 1
	if victims, _, ok = e.Preempt(Request{GPUs: 1, GPUMilli: 500, Priority: 1}, running); ok {
		t.Errorf("victims %v: a gang with one member as important was ended", victims)
	}
}

// TestFullCacheDecidesAlike: an engine that keeps few classes decides as one
// that keeps all.
func TestFullCacheDecidesAlike(t *testing.T) {
	run := func(most int) (out []Spot) {
		r := rand.New(rand.NewSource(17))
		f := fleetOf(t, 20)
		e := NewEngine(f, NewDivvy(NewWorkload(f, []Request{{GPUs: 1, GPUMilli: 500}, {GPUs: 1, GPUMilli: WholeCard}})), 1)
		e.most = most
		for range 300 {
			spot, _ := e.Place(randomRequest(r))
			out = append(out, spot)
		}
		if len(e.classes) > most {
			t.Errorf("%d classes kept, want at most %d", len(e.classes), most)
		}
		return out
	}
	if fmt.Sprint(run(3)) != fmt.Sprint(run(1000)) {
		t.Error("the size of the cache changed a decision")
	}
}
