// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/gpu/sysfs"
	"github.com/divvy-gpu/divvy/internal/mig"
)

// fakeLibrary has one card with MIG devices at places.
type fakeLibrary struct{ places []gpu.MIGPlace }

func (l fakeLibrary) Reading(string) (gpu.Reading, bool) {
	r := gpu.Reading{MIG: gpu.Known(true)}
	for _, at := range l.places {
		r.Instances = append(r.Instances, gpu.Partition{
			Kind: gpu.PartitionMIG, ID: fmt.Sprintf("MIG-%d-%d", at.GPU, at.Compute), Nodes: []string{}, MIG: &at,
		})
	}
	return r, true
}

func (l fakeLibrary) Links() []gpu.Link { return nil }

// The device files of MIG devices, of a card whose minor number is not its index:
// by the instances' own files, by the table, and none where one of two is not
// known.
func TestMIGNodes(t *testing.T) {
	const at = "sys/devices/pci0000:3a/0000:3b:00.0/"
	files := fstest.MapFS{
		"sys/bus/pci/devices/0000:3b:00.0": {Data: []byte("../../../devices/pci0000:3a/0000:3b:00.0"), Mode: fs.ModeSymlink | 0o777},
	}
	for name, text := range map[string]string{
		at + "class": "0x030200", at + "vendor": "0x10de", at + "device": "0x2330",
		"proc/driver/nvidia/gpus/0000:3b:00.0/information":        "Model: \t H100\nDevice Minor: \t 5\n",
		"proc/driver/nvidia/capabilities/gpu5/mig/gi1/access":     "DeviceFileMinor: 678\nDeviceFileMode: 256\nDeviceFileModify: 1\n",
		"proc/driver/nvidia/capabilities/gpu5/mig/gi1/ci0/access": "DeviceFileMinor: 679\nDeviceFileMode: 256\nDeviceFileModify: 1\n",
		"proc/driver/nvidia/capabilities/gpu5/mig/gi4/access":     "DeviceFileMinor: 705\n",
		"proc/driver/nvidia/capabilities/gpu0/mig/gi2/access":     "DeviceFileMinor: 21\n",
		"proc/driver/nvidia-caps/mig-minors":                      "config 1\nmonitor 2\ngpu0/gi2/access 21\ngpu5/gi2/access 687\ngpu5/gi2/ci1/access 689\nnonsense\n",
	} {
		files[name] = &fstest.MapFile{Data: []byte(text)}
	}
	products, err := mig.Default()
	if err != nil {
		t.Fatal(err)
	}
	library := fakeLibrary{[]gpu.MIGPlace{{GPU: 1}, {GPU: 2, Compute: 1}, {GPU: 4}}}
	devices := New(sysfs.ReadBus(sysfs.Of(files)), products, library).Inventory()
	if len(devices) != 1 || len(devices[0].Partitions) != 3 {
		t.Fatalf("%+v", devices)
	}
	for i, want := range [][]string{
		{"/dev/nvidia-caps/nvidia-cap678", "/dev/nvidia-caps/nvidia-cap679"},
		{"/dev/nvidia-caps/nvidia-cap687", "/dev/nvidia-caps/nvidia-cap689"},
		{},
	} {
		if got := devices[0].Partitions[i].Nodes; !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", devices[0].Partitions[i].ID, got, want)
		}
	}
}

// A divided card says that it cannot be shared as a whole.
func TestDividedCardIsNotShared(t *testing.T) {
	for _, divided := range []bool{false, true} {
		files := fstest.MapFS{
			"sys/bus/pci/devices/0000:3b:00.0":           {Data: []byte("../../../devices/pci0000:3a/0000:3b:00.0"), Mode: fs.ModeSymlink | 0o777},
			"sys/devices/pci0000:3a/0000:3b:00.0/driver": {Data: []byte("../../../bus/pci/drivers/nvidia"), Mode: fs.ModeSymlink | 0o777},
			"sys/devices/pci0000:3a/0000:3b:00.0/class":  {Data: []byte("0x030200")},
			"sys/devices/pci0000:3a/0000:3b:00.0/vendor": {Data: []byte("0x10de")},
			"sys/devices/pci0000:3a/0000:3b:00.0/device": {Data: []byte("0x2330")},
		}
		products, err := mig.Default()
		if err != nil {
			t.Fatal(err)
		}
		var library Library
		if divided {
			library = fakeLibrary{}
		}
		can, err := New(sysfs.ReadBus(sysfs.Of(files)), products, library).Capabilities("0000:3b:00.0")
		if err != nil || len(can) == 0 || can[0].Name != gpu.CanShare || (can[0].Can == gpu.Yes) == divided {
			t.Errorf("divided %v: %+v, %v", divided, can, err)
		}
	}
}

// A table of 32 cards is longer than other files of the kernel.
func TestMinorsOfManyCards(t *testing.T) {
	var text strings.Builder
	text.WriteString("config 1\nmonitor 2\n")
	minor := uint64(2)
	for card := range 32 {
		for instance := range 15 {
			minor++
			fmt.Fprintf(&text, "gpu%d/gi%d/access %d\n", card, instance, minor)
			for compute := range 8 {
				minor++
				fmt.Fprintf(&text, "gpu%d/gi%d/ci%d/access %d\n", card, instance, compute, minor)
			}
		}
	}
	files := fstest.MapFS{procMIGMinors: {Data: []byte(text.String())}}
	found := Minors(sysfs.Of(files).Table(procMIGMinors).Value)
	if got := found["gpu31/gi14/ci7/access"]; got != gpu.Known(minor) || len(found) != 2+32*15*9 {
		t.Errorf("the last of %d is %v, want %d", len(found), got, minor)
	}
}
