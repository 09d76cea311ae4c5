// SPDX-License-Identifier: Apache-2.0

package silicon

import (
	"errors"
	"fmt"
	"testing"
)

func connect(t *testing.T, spec, topology string) []Seat {
	t.Helper()
	cards, err := ParseSpec(spec, 0)
	if err != nil {
		t.Fatal(err)
	}
	seats, err := Connect(cards, topology)
	if err != nil {
		t.Fatal(err)
	}
	return seats
}

func TestTopologies(t *testing.T) {
	for _, c := range []struct {
		spec, topology string
		ancestors      string // of card 0
		links          string // of the last card: peer and how many
		nodes          string
	}{
		{"8xH100-80GB", "dgx", "[0 10 40 40 50 50 50 50]", "map[-1:18]", "[0 0 0 0 1 1 1 1]"},
		{"8xA100-40GB", "hgx4", "[0 10 40 40 50 50 50 50]", "map[4:4 5:4 6:4]", "[0 0 0 0 1 1 1 1]"},
		{"4xV100-16GB", "hgx4", "[0 10 50 50]", "map[0:2 1:2 2:2]", "[0 0 1 1]"},
		{"4xH100-PCIE", "bridges", "[0 10 50 50]", "map[2:12]", "[0 0 1 1]"},
		{"3xH100-PCIE", "bridges", "[0 10 50]", "map[]", "[0 0 1]"},
		{"L4,T4", "pcie", "[0 50]", "map[]", "[0 1]"},
		{"L4,T4", "plain", "[0 40]", "map[]", "[0 0]"},
		{"H200", "dgx", "[0]", "map[-1:18]", "[0]"},
	} {
		seats := connect(t, c.spec, c.topology)
		peers := map[int]int{}
		for _, peer := range seats[len(seats)-1].Links {
			peers[peer]++
		}
		var nodes []int
		for i, s := range seats {
			nodes = append(nodes, s.Node)
			for j, a := range s.Ancestors {
				if a != seats[j].Ancestors[i] {
					t.Errorf("%s: %d and %d disagree", c.topology, i, j)
				}
			}
		}
		if got := fmt.Sprint(seats[0].Ancestors, peers, nodes); got != fmt.Sprint(c.ancestors, " ", c.links, " ", c.nodes) {
			t.Errorf("%s %s: %s, want %s %s %s", c.topology, c.spec, got, c.ancestors, c.links, c.nodes)
		}
	}
}

func TestTopologiesRefuse(t *testing.T) {
	for _, c := range []struct{ spec, topology string }{
		{"2xL4", "dgx"}, {"2xH100-80GB", "bridges"}, {"2xH100-PCIE", "dgx"}, {"H100-80GB,A100-40GB", "dgx"}, {"L4", "torus"},
	} {
		cards, err := ParseSpec(c.spec, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Connect(cards, c.topology); !errors.Is(err, ErrTopology) {
			t.Errorf("%s %s: %v", c.topology, c.spec, err)
		}
	}
}
