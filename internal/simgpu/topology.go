// SPDX-License-Identifier: Apache-2.0

package simgpu

import (
	"fmt"

	"github.com/divvy-gpu/divvy/internal/simgpu/silicon"
	"github.com/divvy-gpu/divvy/internal/simgpu/simwire"
)

// topology says where a card, or that of a MIG device, sits.
func (k *kernel) topology(index int, out *answer) error {
	card, ok := k.division.parent(index)
	if !ok || card >= len(k.seats) {
		return fmt.Errorf("GPU %d: %w", index, silicon.ErrNotFound)
	}
	seat := k.seats[card]
	info := simwire.TopologyInfo{Node: uint32(seat.Node), FirstCPU: uint32(seat.FirstCPU), CPUs: uint32(seat.CPUs), LinkVersion: seat.Version}
	for i, a := range seat.Ancestors {
		info.Ancestors[i] = uint8(a)
	}
	info.Links = uint32(min(len(seat.Links), len(info.Peers)))
	for i, peer := range seat.Links[:info.Links] {
		info.Peers[i] = simwire.LinkSwitch
		if peer != silicon.LinkSwitch {
			info.Peers[i] = uint8(peer)
		}
	}
	out.header.Count = 1
	var err error
	out.payload, err = simwire.EncodeEntries([]simwire.TopologyInfo{info})
	return err
}
