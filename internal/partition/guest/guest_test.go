// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/partition"
	"github.com/divvy-gpu/divvy/internal/partition/vfio"
)

// TestWholeCard: all functions go together; a card that no guest can get is not
// offered.
func TestWholeCard(t *testing.T) {
	p := &vfio.Passthrough{Functions: []vfio.DrivenFunction{
		{Address: "0000:31:00.0", Driver: vfio.DriverVFIO}, {Address: "0000:31:00.1", Driver: vfio.DriverVFIO},
	}}
	c := partition.Card{Name: "card"}.With(partition.TechniqueVFIO, p)
	all := Devices(c)
	if len(all) != 1 || all[0].QEMU() != "-device vfio-pci,host=0000:31:00.0\n-device vfio-pci,host=0000:31:00.1\n" ||
		strings.Count(all[0].Libvirt(), "<hostdev ") != 2 || !strings.Contains(all[0].Libvirt(), "slot='0x00' function='0x1'") {
		t.Errorf("%+v", all)
	}
	p.Cannot = "its group holds another"
	if all := Devices(c); len(all) != 0 {
		t.Errorf("%+v", all)
	}
	p.Cannot, p.Functions[1].Driver = "", "snd_hda_intel"
	if all := Devices(c); len(all) != 0 {
		t.Errorf("half of it: %+v", all)
	}
}
