// SPDX-License-Identifier: Apache-2.0

package e2e

import "testing"

// Where GPUs are, as schedulers want to know it: pairs behind a PCIe switch, with a bridge of NVLink, on two sockets.
// Those of a plain host have nothing in common but the memory.
func TestPlaces(t *testing.T) {
	for topology, pairs := range map[string]bool{"bridges": true, "plain": false} {
		h := newHost(t, hostOptions{cards: "4xH100-PCIE", topology: topology})
		devices, err := h.client.Devices(t.Context())
		if err != nil || len(devices.Cards) != 4 {
			t.Fatalf("%d GPUs (%v)", len(devices.Cards), err)
		}
		for i, one := range devices.Cards {
			node := 0
			if pairs {
				node = i / 2
			}
			if one.NUMANode == nil || *one.NUMANode != node || one.PCIeRoot == "" {
				t.Errorf("%s: GPU %d is of node %v, want %d, and root %q", topology, i, one.NUMANode, node, one.PCIeRoot)
			}
			for j, other := range devices.Cards {
				together := i == j || pairs && i/2 == j/2
				if root, linked := one.PCIeRoot == other.PCIeRoot, *one.Island == *other.Island; root != together || linked != together {
					t.Errorf("%s: GPUs %d and %d have one root: %v, and are linked: %v", topology, i, j, root, linked)
				}
			}
		}
	}
}
