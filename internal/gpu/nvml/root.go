// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/divvy-gpu/divvy/internal/gpu/sysfs"
)

// findRoots finds the root of the PCIe tree of each card. The kernel knows, and drivers only say which cards have
// the same: for simulated ones, of which the kernel does not know, that of the first gets a name like the kernel's.
func (s *Source) findRoots() {
	machine, err := sysfs.Open("/")
	if err != nil {
		return
	}
	defer func() { _ = machine.Close() }()
	for i := range s.cards {
		c := &s.cards[i]
		if c.Simulated {
			c.PCIeRoot = s.simulatedRoot(i)
			continue
		}
		c.PCIeRoot = machine.RootOf(c.PCIAddress).Value
	}
}

func (s *Source) simulatedRoot(i int) string {
	const bus = len("0000:00")
	card, before := s.cards[i], s.cards[:i]
	if !s.has("nvmlDeviceGetTopologyCommonAncestor") {
		before = nil
	}
	for _, other := range before {
		level, result := s.library.DeviceGetTopologyCommonAncestor(s.devices[other.UUID], s.devices[card.UUID])
		if result == nvml.SUCCESS && level <= nvml.TOPOLOGY_HOSTBRIDGE {
			return other.PCIeRoot
		}
	}
	if len(card.PCIAddress) < bus {
		return ""
	}
	return "pci" + card.PCIAddress[:bus]
}
