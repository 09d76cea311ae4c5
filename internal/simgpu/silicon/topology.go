// SPDX-License-Identifier: Apache-2.0

package silicon

import (
	"errors"
	"fmt"
	"strings"
)

// ErrTopology says that cards cannot be connected so.
var ErrTopology = errors.New("not a topology for these GPUs")

// Ancestor is the nearest thing on the PCI bus that two cards share, as NVML
// numbers it.
type Ancestor uint8

// The numbers are those of NVML_TOPOLOGY_*.
const (
	AncestorSelf   Ancestor = 0
	AncestorSwitch Ancestor = 10
	AncestorNode   Ancestor = 40
	AncestorSystem Ancestor = 50
)

// LinkSwitch is the peer of links that lead to an NVLink switch.
const LinkSwitch = -1

const nodeCPUs = 56 // of each socket, where a topology has several

// Seat is where one card sits.
type Seat struct {
	Node      int // NUMA
	FirstCPU  int
	CPUs      int // 0: those of the host
	Ancestors []Ancestor
	Links     []int  // for each NVLink the card at its other end, or LinkSwitch
	Version   uint32 // of them, as NVML numbers it
}

// Topologies are the names that Connect knows; the first is the default.
func Topologies() []string { return []string{"plain", "dgx", "hgx4", "pcie", "bridges"} }

// Connect seats cards. plain: one NUMA node, no NVLink. dgx: every NVLink of every
// card leads to a switch, half of the cards on each socket, pairs behind a PCIe
// switch. hgx4: the same without NVLink switches: fours that are linked with each
// other directly. pcie: the same sockets and PCIe switches without NVLink. bridges:
// that, with NVLink bridges over the pairs.
func Connect(cards []Card, topology string) ([]Seat, error) {
	seats := make([]Seat, len(cards))
	for i := range seats {
		seats[i].Ancestors = make([]Ancestor, len(cards))
		if topology != "plain" {
			node := i * 2 / max(len(cards), 2)
			seats[i].Node, seats[i].FirstCPU, seats[i].CPUs = node, node*nodeCPUs, nodeCPUs
		}
	}
	for i := range seats {
		for j := range seats {
			seats[i].Ancestors[j] = ancestor(seats, i, j, topology == "plain")
		}
	}
	switch topology {
	case "plain", "pcie":
		return seats, nil
	case "dgx", "hgx4", "bridges":
	default:
		return nil, fmt.Errorf("%q: known are %s: %w", topology, strings.Join(Topologies(), ", "), ErrTopology)
	}
	for i, c := range cards {
		links, version, bridged := c.nvlinks()
		if links == 0 || bridged != (topology == "bridges") {
			return nil, fmt.Errorf("%s with GPU %d, %s: %w", topology, i, c.Key, ErrTopology)
		}
		if c.Key != cards[0].Key {
			return nil, fmt.Errorf("%s with %s beside %s: %w", topology, c.Key, cards[0].Key, ErrTopology)
		}
		peers := island(topology, i, len(cards))
		for n := 0; n < links && len(peers) > 0; n++ {
			// as many to each peer; what is left over stays dark
			if at := n / max(links/max(most(topology), 1), 1); at < len(peers) {
				seats[i].Links = append(seats[i].Links, peers[at])
			}
		}
		seats[i].Version = version
	}
	return seats, nil
}

// most is how many peers a card's links are divided among.
func most(topology string) int {
	if topology == "hgx4" {
		return 3
	}
	return 1
}

// island lists the others that a card's links lead to.
func island(topology string, card, cards int) []int {
	if topology == "dgx" {
		return []int{LinkSwitch}
	}
	size := most(topology) + 1
	var peers []int
	for i := card / size * size; i < min((card/size+1)*size, cards); i++ {
		if i != card {
			peers = append(peers, i)
		}
	}
	return peers
}

func ancestor(seats []Seat, i, j int, plain bool) Ancestor {
	switch {
	case i == j:
		return AncestorSelf
	case !plain && i/2 == j/2 && seats[i].Node == seats[j].Node:
		return AncestorSwitch
	case seats[i].Node == seats[j].Node:
		return AncestorNode
	}
	return AncestorSystem
}

// nvlinks is how many NVLinks cards of the model have, and whether a bridge is what
// they are for.
func (m Model) nvlinks() (links int, version uint32, bridged bool) {
	switch m.Key {
	case "V100-32GB", "V100-16GB":
		return 6, 2, false
	case "A100-80GB", "A100-40GB":
		return 12, 4, false
	case "H100-80GB", "H200":
		return 18, 6, false
	case "H100-PCIE":
		return 12, 6, true
	case "B200":
		return 18, 7, false
	}
	return 0, 0, false
}
