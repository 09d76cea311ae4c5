// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"

	"github.com/divvy-gpu/divvy/internal/partition"
	"github.com/divvy-gpu/divvy/internal/partition/guest"
)

// Forms in which show words what guests can be given.
const (
	formLibvirt = "libvirt"
	formQEMU    = "qemu"
)

// showGuests prints what virtual machines need to get cards and parts of them.
func (a *app) showGuests(state partition.State, form string) error {
	found := false
	for _, c := range state.Cards {
		for _, d := range guest.Devices(c) {
			found = true
			if form == formLibvirt {
				fmt.Fprintf(a.stdout, "<!-- %s -->\n%s", oneLine(d.Title), d.Libvirt())
			} else {
				fmt.Fprintf(a.stdout, "# %s\n%s", oneLine(d.Title), d.QEMU())
			}
		}
	}
	if !found {
		return withHint(notThere(errors.New("there is nothing here that a guest can be given")), "see docs/partition.md: vfio, sriov, vgpu and gvtg make such things")
	}
	return nil
}
