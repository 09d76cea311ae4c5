// SPDX-License-Identifier: Apache-2.0

package placement

import "testing"

// Memory decides, then cores, then the order, for an agent's cards and for the policy
// that spreads.
func TestEmptiest(t *testing.T) {
	for _, c := range []struct {
		cards []Vacancy
		want  int
	}{
		{[]Vacancy{{0, 1000, 5 << 30}, {1, 100, 6 << 30}}, 1},
		{[]Vacancy{{0, 100, 5 << 30}, {1, 300, 5 << 30}, {2, 200, 5 << 30}}, 1},
		{[]Vacancy{{0, 300, 5 << 30}, {1, 300, 5 << 30}}, 0},
	} {
		if got := Emptiest(c.cards).Card; got != c.want {
			t.Errorf("%v: GPU %d, want %d", c.cards, got, c.want)
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
