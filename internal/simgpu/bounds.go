// SPDX-License-Identifier: Apache-2.0

package simgpu

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/divvy-gpu/divvy/internal/cgroup"
	"github.com/divvy-gpu/divvy/internal/simgpu/partition"
	"github.com/divvy-gpu/divvy/internal/simgpu/silicon"
	"github.com/divvy-gpu/divvy/internal/simgpu/simwire"
)

// limitsFrom is the generation from which on a driver limits control groups.
// Hardware drivers have it from release 615 on, which is CUDA 13.4.
const limitsFrom = 13000

// bounds answers what is about limits of control groups and caps of processes.
func (k *kernel) bounds(r request, out *answer) error {
	h, s := r.header, r.session
	card := index(h.Card)
	switch {
	case h.Type == simwire.Cap && s.client == nil, s.role == 0:
		return errDenied
	case h.Type == simwire.Cap:
		return k.machine.Cap(s.client.id, card, h.Bytes)
	case k.driver.CUDA < limitsFrom:
		return fmt.Errorf("limits of control groups in a driver of generation %d: %w", k.driver.CUDA, partition.ErrUnsupported)
	case card >= k.machine.Cards() && card < k.machine.Slots():
		return fmt.Errorf("a limit on a MIG device: %w", partition.ErrUnsupported)
	}
	group := filepath.Clean(string(r.payload))
	tree, err := cgroup.Find("/proc")
	if err != nil {
		return fmt.Errorf("limits of control groups: %w: %w", partition.ErrUnsupported, err)
	}
	if !tree.Has(group) {
		return fmt.Errorf("control group %q: %w", group, silicon.ErrNotFound)
	}
	if h.Type == simwire.LimitSet {
		if s.uid != 0 && s.uid != os.Geteuid() {
			return errDenied
		}
		return k.machine.SetLimit(card, group, silicon.Limit{SoftBytes: h.Offset, HardBytes: h.Bytes})
	}
	for _, c := range k.clients {
		k.place(c)
	}
	limit, held := k.machine.LimitOf(card, group)
	out.header.Bytes, out.header.Offset, out.header.Object = limit.HardBytes, limit.SoftBytes, held
	return nil
}

// place looks which control group a process is in, where that matters: it may
// have been moved. One that cannot be looked at stays where it was.
func (k *kernel) place(c *client) {
	if !k.machine.HasLimits() {
		return
	}
	tree, err := cgroup.Find("/proc")
	if err != nil {
		return
	}
	if group, err := tree.Of(c.pid); err == nil {
		k.machine.Place(c.id, group)
	}
}
