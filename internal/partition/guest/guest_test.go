// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/partition"
)

// TestWholeCard: all functions go together; a card that no guest can get is not
// offered.
func TestWholeCard(t *testing.T) {
	c := partition.Card{Name: "card", VFIO: &partition.Passthrough{Functions: []partition.DrivenFunction{
		{Address: "0000:31:00.0", Driver: partition.DriverVFIO}, {Address: "0000:31:00.1", Driver: partition.DriverVFIO},
	}}}
	all := Devices(c)
	if len(all) != 1 || all[0].QEMU() != "-device vfio-pci,host=0000:31:00.0\n-device vfio-pci,host=0000:31:00.1\n" ||
		strings.Count(all[0].Libvirt(), "<hostdev ") != 2 || !strings.Contains(all[0].Libvirt(), "slot='0x00' function='0x1'") {
		t.Errorf("%+v", all)
	}
	c.VFIO.Cannot = "its group holds another"
	if all := Devices(c); len(all) != 0 {
		t.Errorf("%+v", all)
	}
	c.VFIO.Cannot, c.VFIO.Functions[1].Driver = "", "snd_hda_intel"
	if all := Devices(c); len(all) != 0 {
		t.Errorf("half of it: %+v", all)
	}
}
