// SPDX-License-Identifier: Apache-2.0

package cdi_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	runtime "tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/cdi"
	"github.com/divvy-gpu/divvy/internal/gpu"
)

// Cards and parts of several vendors: what a container gets of each.
func TestOffersOfHardware(t *testing.T) {
	folder := t.TempDir()
	library := filepath.Join(folder, "libcuda.so.1")
	if err := os.WriteFile(library, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	known := func(uuid string) gpu.Fact[string] { return gpu.Fact[string]{Value: uuid, Known: true} }
	devices := []gpu.Device{
		{
			Address: "0000:01:00.0", Vendor: gpu.VendorNVIDIA, UUID: known("GPU-1"), Nodes: []string{"/dev/nvidia0", "/dev/nvidiactl"},
			Partitions: []gpu.Partition{{Kind: gpu.PartitionMIG, ID: "MIG-1", Nodes: []string{"/dev/nvidia-caps/nvidia-cap12"}}},
		},
		{
			Address: "0000:c1:00.0", Vendor: gpu.VendorAMD, Nodes: []string{"/dev/dri/renderD128", "/dev/dri/renderD129", "/dev/kfd"},
			Partitions: []gpu.Partition{{Kind: gpu.PartitionCompute, ID: "0000:c1:00.0#1", Nodes: []string{"/dev/dri/renderD129"}}},
		},
		{
			Address: "0000:4d:00.0", Vendor: gpu.VendorIntel, Nodes: []string{"/dev/dri/renderD130"},
			Partitions: []gpu.Partition{
				{Kind: gpu.PartitionVF, ID: "0000:4d:00.1", Nodes: []string{}}, // bound to vfio-pci: for machines
				{Kind: gpu.PartitionVF, ID: "0000:4d:00.2", Nodes: []string{"/dev/dri/renderD131"}},
			},
		},
	}
	o := &cdi.Offers{Folder: cdi.Folder(filepath.Join(folder, "cdi")), Driver: &cdi.Driver{CUDA: library, NVML: library}, Devices: devices}
	for _, d := range devices {
		if err := o.Whole(cdi.ClassCard, d.UUID.Or(d.Address), gpu.Card{UUID: d.UUID.Value, PCIAddress: d.Address}); err != nil {
			t.Fatal(err)
		}
	}
	if err := o.Parts(); err != nil {
		t.Fatal(err)
	}
	if err := o.Instance("pod", "MIG-1"); err != nil {
		t.Fatal(err)
	}
	if err := o.Instance("other", "MIG-none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a MIG device without files: %v", err)
	}
	got := map[string]string{}
	for _, path := range o.Written {
		spec, err := runtime.ReadSpec(path, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range spec.Devices {
			var words []string
			for _, n := range d.ContainerEdits.DeviceNodes {
				if n.Path != "/dev/nvidia-uvm-tools" { // where this machine has it
					words = append(words, strings.TrimPrefix(n.Path, "/dev/"))
				}
			}
			if len(d.ContainerEdits.Mounts) > 0 {
				words = append(words, "driver")
			}
			words = append(words, slices.DeleteFunc(d.ContainerEdits.Env, func(e string) bool { return strings.HasPrefix(e, "NVIDIA_") })...)
			got[spec.Kind+"="+d.Name] = strings.Join(words, " ")
		}
	}
	want := map[string]string{
		"divvy.dev/card=GPU-1":             "nvidia-uvm nvidia0 nvidiactl driver",
		"divvy.dev/card=0000:c1:00.0":      "dri/renderD128 dri/renderD129 kfd",
		"divvy.dev/card=0000:4d:00.0":      "dri/renderD130",
		"divvy.dev/mig=MIG-1":              "nvidia-caps/nvidia-cap12 nvidia-uvm nvidia0 nvidiactl driver CUDA_VISIBLE_DEVICES=MIG-1",
		"divvy.dev/instance=pod":           "nvidia-caps/nvidia-cap12 nvidia-uvm nvidia0 nvidiactl driver CUDA_VISIBLE_DEVICES=MIG-1",
		"divvy.dev/compute=0000:c1:00.0-1": "dri/renderD129 kfd",
		"divvy.dev/vf=0000:4d:00.2":        "dri/renderD131",
	}
	for name, words := range want {
		if got[name] != words {
			t.Errorf("%s: %q, want %q", name, got[name], words)
		}
		delete(got, name)
	}
	if len(got) > 0 {
		t.Errorf("also written: %v", got)
	}

	// A card that was divided anew: the devices before are not offered any more, once
	// the driver tells of MIG.
	divided := &devices[0]
	divided.Partitions[0].ID = "MIG-2"
	for _, step := range []struct{ current, want string }{{"", "MIG-1 MIG-2"}, {"on", "MIG-2"}} {
		divided.Capabilities = []gpu.Capability{{Name: gpu.CanMIG, Current: step.current}}
		o.Written = nil
		if err := o.Parts(); err != nil {
			t.Fatal(err)
		}
		offered, err := o.Folder.Devices()
		if err != nil {
			t.Fatal(err)
		}
		var migs []string
		others := 0
		for _, d := range offered {
			if d.Class == gpu.PartitionMIG {
				migs = append(migs, d.ID)
			} else {
				others++
			}
		}
		if strings.Join(migs, " ") != step.want || others != len(want)-1 {
			t.Errorf("MIG %q: offered %q and %d others, want %q", step.current, migs, others, step.want)
		}
	}

	for _, step := range []struct {
		names []string
		left  int
	}{{[]string{"pod"}, 1}, {nil, 0}} {
		if err := o.KeepInstances(step.names); err != nil {
			t.Fatal(err)
		}
		offered, err := o.Folder.Devices()
		if err != nil {
			t.Fatal(err)
		}
		left := slices.DeleteFunc(offered, func(d cdi.Device) bool { return d.Class != cdi.ClassInstance })
		if len(left) != step.left || len(offered) == 0 {
			t.Errorf("kept %v: %+v", step.names, left)
		}
	}

	// A share of a real card has the card's device files; of a card that the
	// kernel does not show, nobody can say which.
	o.Front = cdi.Front{Library: library, Preload: library}
	share := api.Share{ShareSpec: api.ShareSpec{Name: "train"}, Socket: filepath.Join(folder, "share.sock")}
	if err := o.Offer(share, []gpu.Card{{UUID: "GPU-1", PCIAddress: "0000:01:00.0"}}); err != nil {
		t.Fatal(err)
	}
	spec, err := runtime.ReadSpec(o.Written[len(o.Written)-1], 0)
	if err != nil || len(spec.Devices[0].ContainerEdits.DeviceNodes) < 3 {
		t.Errorf("%+v (%v)", spec, err)
	}
	if err := o.Offer(share, []gpu.Card{{UUID: "GPU-1", PCIAddress: "0000:01:00.0"}, {UUID: "GPU-2", PCIAddress: "0000:02:00.0"}}); err == nil {
		t.Error("a share of a GPU without device files")
	}
}
