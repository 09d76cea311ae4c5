// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"
)

// Where GPUs are, as schedulers want to know it: pairs behind a PCIe switch, with a bridge of NVLink, on two sockets.
// Those of a plain host have nothing in common but the memory.
func TestPlaces(t *testing.T) {
	for topology, together := range map[string]func(i, j int) bool{
		"bridges": func(i, j int) bool { return i/2 == j/2 },
		"plain":   func(i, j int) bool { return i == j },
	} {
		h := newHost(t, hostOptions{cards: "4xH100-PCIE", topology: topology})
		devices, err := h.client.Devices(t.Context())
		if err != nil || len(devices.Cards) != 4 {
			t.Fatalf("%d GPUs (%v)", len(devices.Cards), err)
		}
		for i, one := range devices.Cards {
			if want := map[string]int{"bridges": i / 2}[topology]; one.NUMANode == nil || *one.NUMANode != want || one.PCIeRoot == "" {
				t.Errorf("%s: GPU %d is of node %v, want %d, and root %q", topology, i, one.NUMANode, want, one.PCIeRoot)
			}
			for j, other := range devices.Cards {
				if root, linked := one.PCIeRoot == other.PCIeRoot, *one.Island == *other.Island; root != together(i, j) || linked != together(i, j) {
					t.Errorf("%s: GPUs %d and %d have one root: %v, and are linked: %v", topology, i, j, root, linked)
				}
			}
		}
	}
}
