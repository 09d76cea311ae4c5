// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"
	"testing"
)

func vacancy(card int, milli int64, gib uint64) Vacancy {
	return Vacancy{Card: card, GPUMilli: milli, MemoryBytes: gib << 30}
}

// Several cards for one program: linked ones first, then of one model, then the emptiest.
func TestTogether(t *testing.T) {
	type of struct {
		gib    uint64
		island int
		model  string
	}
	for name, c := range map[string]struct {
		cards []of
		count int
		want  []int
	}{
		"the emptiest":                     {[]of{{10, 0, "a"}, {30, 1, "a"}, {20, 2, "a"}}, 2, []int{1, 2}},
		"linked before emptier":            {[]of{{10, 0, "a"}, {30, 1, "a"}, {10, 0, "a"}, {30, 2, "a"}}, 2, []int{0, 2}},
		"the island with more left":        {[]of{{10, 0, "a"}, {40, 0, "a"}, {20, 1, "a"}, {20, 1, "a"}}, 2, []int{2, 3}},
		"the emptiest of an island":        {[]of{{10, 0, "a"}, {40, 0, "a"}, {20, 0, "a"}, {90, 1, "a"}}, 2, []int{1, 2}},
		"few islands":                      {[]of{{90, 0, "a"}, {10, 1, "a"}, {10, 1, "a"}, {90, 2, "a"}}, 3, []int{0, 1, 2}},
		"one model before emptier":         {[]of{{90, 0, "b"}, {10, 1, "a"}, {20, 2, "a"}}, 2, []int{1, 2}},
		"linked before of one model":       {[]of{{90, 0, "b"}, {10, 0, "a"}, {20, 1, "a"}}, 2, []int{0, 1}},
		"different models where they must": {[]of{{90, 0, "b"}, {10, 1, "a"}}, 2, []int{0, 1}},
		"the first of equals":              {[]of{{10, 0, "a"}, {10, 1, "a"}, {10, 2, "a"}}, 2, []int{0, 1}},
	} {
		var cards []Vacancy
		for i, k := range c.cards {
			v := vacancy(i, 1000, k.gib)
			v.Island, v.Model = k.island, k.model
			cards = append(cards, v)
		}
		var got []int
		for _, v := range Together(cards, c.count) {
			got = append(got, v.Card)
		}
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: GPUs %v, want %v", name, got, c.want)
		}
	}
}

// Memory decides, then cores, then the order, for an agent's cards and for the policy
// that spreads.
func TestEmptiest(t *testing.T) {
	for _, c := range []struct {
		cards []Vacancy
		want  int
	}{
		{[]Vacancy{vacancy(0, 1000, 5), vacancy(1, 100, 6)}, 1},
		{[]Vacancy{vacancy(0, 100, 5), vacancy(1, 300, 5), vacancy(2, 200, 5)}, 1},
		{[]Vacancy{vacancy(0, 300, 5), vacancy(1, 300, 5)}, 0},
	} {
		if got := Emptiest(c.cards).Card; got != c.want {
			t.Errorf("%v: GPU %d, want %d", c.cards, got, c.want)
		}
		if got := Together(c.cards, 1)[0].Card; got != c.want {
			t.Errorf("%v: together alone GPU %d, want %d", c.cards, got, c.want)
		}
		node := Node{Name: "n", CPUMilli: 1000, Cards: make([]Card, len(c.cards))}
		for i := range node.Cards {
			node.Cards[i].MemoryMiB = 80 << 10
		}
		fleet, err := NewFleet([]Node{node})
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range c.cards {
			fleet.nodes[0].cards[i].milli, fleet.nodes[0].cards[i].memory = int32(v.GPUMilli), int64(v.MemoryBytes>>20)
		}
		spot, ok := NewEngine(fleet, NewSpread(), 1).Find(Request{GPUs: 1, GPUMilli: 50, GPUMemoryMiB: 1024})
		if !ok || spot.Cards != 1<<c.want {
			t.Errorf("%v: the policy takes %b, %v", c.cards, spot.Cards, ok)
		}
	}
}
