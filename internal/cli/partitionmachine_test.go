// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/gpu/inventory"
	"github.com/divvy-gpu/divvy/internal/gpu/nvml"
	"github.com/divvy-gpu/divvy/internal/gpu/sysfs"
	"github.com/divvy-gpu/divvy/internal/mig"
	"github.com/divvy-gpu/divvy/internal/partition"
	"github.com/divvy-gpu/divvy/internal/partition/fakekernel"
	"github.com/divvy-gpu/divvy/internal/partition/kernel"
)

// TestPlansOfMachines compares the plans for the goals MACHINE.WORD.yaml in
// testdata/partition, and what show says of each recorded machine and of what its
// guests can be given, with golden files beside them.
func TestPlansOfMachines(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	machines, err := filepath.Glob("../gpu/testdata/machines/*.txtar")
	if err != nil || len(machines) < 10 {
		t.Fatalf("%d machines, %v", len(machines), err)
	}
	for _, machine := range machines {
		name := strings.TrimSuffix(filepath.Base(machine), ".txtar")
		t.Run(name, func(t *testing.T) {
			root := t.TempDir() // once for all commands
			if _, err := fakekernel.Unpack(machine, root); err != nil {
				t.Fatal(err)
			}
			golden(t, filepath.Join("testdata/partition", name+".show"), "partition", "show", "--root", root)
			golden(t, filepath.Join("testdata/partition", name+".libvirt"), "partition", "show", "--root", root, "-o", "libvirt")
			golden(t, filepath.Join("testdata/partition", name+".qemu"), "partition", "show", "--root", root, "-o", "qemu")
			goals, err := filepath.Glob(filepath.Join("testdata/partition", name+".*.yaml"))
			if err != nil || len(goals) == 0 {
				t.Fatalf("%d goals, %v", len(goals), err)
			}
			for _, goal := range goals {
				golden(t, strings.TrimSuffix(goal, ".yaml")+".plan", "partition", "plan", goal, "--root", root)
			}
		})
	}
}

// golden compares a command's output and exit code with a file.
func golden(t *testing.T, name string, arguments ...string) {
	t.Helper()
	var out, complaints bytes.Buffer
	code := Main(arguments, strings.NewReader(""), &out, &complaints)
	got := fmt.Sprintf("%s%sexit code %d\n", out.String(), complaints.String(), code)
	if *update {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%v differs from %s:\n%s", arguments, name, got)
	}
}

// TestExamples: each file in examples/partitions is a goal, and each technique of
// hardware, and MPS, has one.
func TestExamples(t *testing.T) {
	names, err := filepath.Glob("../../examples/partitions/*.yaml")
	if err != nil || len(names) < 5 {
		t.Fatalf("%d examples, %v", len(names), err)
	}
	fields := ""
	for _, name := range names {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := partition.ParseGoal(raw, ""); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		fields += string(raw)
	}
	for _, field := range []string{"mig:", "amd:", "sriov:", "vgpu:", "gvtg:", "vfio:", "mps:"} {
		if !strings.Contains(fields, field) {
			t.Errorf("no example has %s", field)
		}
	}
}

// fakeVGPU is the driver of one card of a vGPU host.
type fakeVGPU struct {
	fakeMIG
	mixed  bool
	policy string
}

func (f *fakeVGPU) Cards() ([]gpu.Card, error) {
	return []gpu.Card{{UUID: "GPU-22222222-0e0e-4b4b-8c8c-000000000002", Name: "NVIDIA A40", PCIAddress: "0000:5e:00.0"}}, nil
}

func (f *fakeVGPU) VGPU(string) (nvml.VGPU, error) {
	return nvml.VGPU{Mixed: gpu.Known(f.mixed), Scheduler: gpu.Known(f.policy)}, nil
}

func (f *fakeVGPU) SetVGPUMixed(_ string, on bool) error {
	f.mixed = on
	return nil
}

func (f *fakeVGPU) SetVGPUScheduler(_, policy string) error {
	f.policy = policy
	return nil
}

// TestDriverAndKernel: one plan goes through the kernel's files and NVIDIA's
// driver, and that driver is let go of before a card is taken from it.
func TestDriverAndKernel(t *testing.T) {
	fake, err := fakekernel.Unpack("../gpu/testdata/machines/nvidia-mdev.txtar", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	tree, err := sysfs.Open(fake.Folder)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := tree.Close(); err != nil {
			t.Error(err)
		}
	}()
	products, err := mig.Default()
	if err != nil {
		t.Fatal(err)
	}
	var observers []kernel.Observer
	for _, technique := range techniquesByFiles() {
		observers = append(observers, technique)
	}
	driver, open := &fakeVGPU{policy: "best-effort"}, 0
	machine := &machineCards{kernel: kernel.New(inventory.Sources{Tree: tree, Products: products}, fake, observers...)}
	machine.open = func() (*migDriver, func() error, error) {
		open++
		return &migDriver{source: driver, products: products, command: func(int) string { return "" }}, func() error { open--; return nil }, nil
	}
	apply := func(rule string) (string, error) {
		t.Helper()
		goal, err := partition.ParseGoal([]byte("schema: "+partition.SchemaGoal+"\ncards: [{match: {model: [A40]}, "+rule+"}]"), "")
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		a := &app{stdout: &out, stderr: &out, getenv: func(string) string { return "" }}
		err = a.applyGoal(t.Context(), machine, partition.Planner{Techniques: techniques(products)}, goal, filepath.Join(t.TempDir(), "journal"), false)
		return out.String(), err
	}
	out, err := apply("vgpu: {devices: {}, placement: mixed, scheduler: fixed-share}")
	if err != nil || !driver.mixed || driver.policy != "fixed-share" || !strings.Contains(out, "done: 3 steps, verified") {
		t.Fatalf("%v, %+v\n%s", err, driver, out)
	}
	if out, err := apply("vgpu: {devices: {}, placement: mixed}"); err != nil || !strings.Contains(out, "nothing to do") {
		t.Errorf("again: %v\n%s", err, out)
	}
	if err := fake.Run(t.Context(), "usr/lib/nvidia/sriov-manage", "-d", "0000:5e:00.0"); err != nil {
		t.Fatal(err)
	}
	state, err := machine.State(t.Context())
	if err != nil || len(state.Cards) != 2 || open != 1 {
		t.Fatalf("%d cards, %v, opened %d times", len(state.Cards), err, open)
	}
	if err := machine.Do(t.Context(), "0000:5e:00.0", partition.Step{
		Technique: partition.TechniqueVFIO, Action: partition.ActionWrite, File: "sys/bus/pci/drivers/nvidia/unbind", Value: "0000:5e:00.0",
	}); err != nil || open != 0 {
		t.Errorf("%v, the driver is open %d times", err, open)
	}
}

// TestOrder: virtual functions are switched before MIG is, which does not outlive
// that, and carry vGPUs of its instances.
func TestOrder(t *testing.T) {
	products, err := mig.Default()
	if err != nil {
		t.Fatal(err)
	}
	off := partition.Card{Vendor: gpu.VendorNVIDIA, UUID: "GPU-1", Address: "0000:41:00.0", Name: "NVIDIA H100 80GB HBM3", DeviceID: "0x2330",
		SRIOV: &partition.Functions{Total: 2, Driver: "nvidia", Tool: "usr/lib/nvidia/sriov-manage"}}
	rule := partition.Rule{MIG: &partition.MIG{Enabled: true, Devices: map[string]int{"7g.80gb": 1}}, VGPU: &partition.VirtualCards{Devices: map[string]int{"NVIDIA H100XM-7-80C": 1}}}
	p := partition.Planner{Techniques: techniques(products)}.Card(off, rule)
	if got := fakekernel.Steps(p); p.Refused != "" || p.Awaits == "" || !strings.HasPrefix(got, "run /usr/lib/nvidia/sriov-manage -e 0000:41:00.0\nswitch MIG mode on\n") {
		t.Fatalf("%q: %s", p.Refused, got)
	}
	back := techniques(products).Steps(p.After, p.Before)
	if last := back[len(back)-1].String(); last != "run /usr/lib/nvidia/sriov-manage -d 0000:41:00.0" {
		t.Errorf("the way back ends with %s", last)
	}
}

// managerScript does what NVIDIA's sriov-manage does to the files below its root:
// the card has no driver meanwhile, and all its functions come or go; these four
// offer as many types as those of a real card together. It tells which file it was
// handed, is refused the card while a file says so, and for another interrupts once
// who runs it.
const managerScript = `#!/bin/sh
set -e
root=${0%/usr/lib/nvidia/sriov-manage}
readlink /proc/self/fd/3 >"$root/held"
if [ -e "$root/busy" ]; then echo "Cannot obtain unbindLock for $2" >&2; exit 1; fi
if [ -e "$root/interrupt" ]; then rm "$root/interrupt"; kill -INT $PPID; fi
card=$(readlink -f "$root/sys/bus/pci/devices/$2")
rm "$card/driver"
if [ "$1" = -d ]; then
	rm -rf "$card"/virtfn* "$root"/sys/bus/pci/devices/0000:21:00.[4-7] "$(dirname "$card")"/0000:21:00.[4-7]
	echo 0 >"$card/sriov_numvfs"
else
	for n in 0 1 2 3; do
		vf=0000:21:00.$((n + 4))
		at=$(dirname "$card")/$vf
		mkdir -p "$at/nvidia"
		cp "$card/vendor" "$card/device" "$card/class" "$at"
		echo 0 >"$at/nvidia/current_vgpu_type"
		echo "1155 : NVIDIA L40S-12Q" >"$at/nvidia/creatable_vgpu_types"
		seq 2000 2240 | sed 's/.*/& : NVIDIA L40S-&C/' >>"$at/nvidia/creatable_vgpu_types"
		ln -s "../$2" "$at/physfn"
		ln -s "../$vf" "$card/virtfn$n"
		ln -s "../../../${at#"$root"/sys/}" "$root/sys/bus/pci/devices/$vf"
	done
	echo 4 >"$card/sriov_numvfs"
fi
ln -s ../../../../bus/pci/drivers/nvidia "$card/driver"
`

// TestVendorsProgram: an apply runs NVIDIA's program for functions and then makes
// the vGPUs that they offer; a program that fails is quoted, and all goes back when the
// apply is interrupted meanwhile.
func TestVendorsProgram(t *testing.T) {
	root := t.TempDir()
	if _, err := fakekernel.Unpack("../gpu/testdata/machines/nvidia-off.txtar", root); err != nil {
		t.Fatal(err)
	}
	put := func(name, text string, mode os.FileMode) string {
		t.Helper()
		at := filepath.Join(root, name)
		if err := os.WriteFile(at, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return at
	}
	program := put("usr/lib/nvidia/sriov-manage", managerScript, 0o755)
	if err := os.Chmod(program, 0o755); err != nil {
		t.Fatal(err)
	}
	put("sys/bus/pci/devices/0000:21:00.0/sriov_totalvfs", "4\n", 0o644)
	journal := filepath.Join(t.TempDir(), "journal")
	apply := func(rule string, code int, says string) {
		t.Helper()
		goal := put("goal.yaml", "schema: "+partition.SchemaGoal+"\ncards: [{match: {index: [0]}, "+rule+"}]", 0o644)
		out, err := os.Create(filepath.Join(root, "out"))
		if err != nil {
			t.Fatal(err)
		}
		got := Main([]string{"partition", "apply", goal, "--root", root, "--journal", journal}, strings.NewReader(""), out, out)
		raw, err := os.ReadFile(out.Name())
		if err := errors.Join(err, out.Close()); err != nil {
			t.Fatal(err)
		}
		if got != code || !strings.Contains(string(raw), says) {
			t.Fatalf("%s: %d, not %d with %q:\n%s", rule, got, code, says, raw)
		}
	}
	lock, err := lockFile(journal + ".lock")
	if err != nil {
		t.Fatal(err)
	}
	apply("sriov: {vfs: 4}", exitNotAllowed, "another divvy partition apply is running")
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	busy := put("busy", "", 0o644)
	apply("sriov: {vfs: 4}", exitFailed, "exit status 1: Cannot obtain unbindLock for 0000:21:00.0; it is as it was")
	if err := os.Remove(busy); err != nil {
		t.Fatal(err)
	}
	const vgpus = "vgpu: {devices: {NVIDIA L40S-12Q: 2}}"
	put("interrupt", "", 0o644)
	apply(vgpus, exitFailed, "not begun: interrupt signal received; it is as it was")
	apply(vgpus, 0, "card 0, then:\n  2. write \"1155\" to /sys/bus/pci/devices/0000:21:00.4/nvidia/current_vgpu_type (NVIDIA L40S-12Q is wanted)\n  3. write")
	apply(vgpus, 0, "as wanted: nothing to do")
	if raw, err := os.ReadFile(filepath.Join(root, "held")); err != nil || strings.TrimSpace(string(raw)) != journal+".lock" {
		t.Errorf("the program holds %q, %v", raw, err)
	}
	apply("sriov: {vfs: 0}", exitNotAllowed, "carries vGPU type 1155; vf2 (0000:21:00.5) carries vGPU type 1155: apply vgpu: {devices: {}} first")
	apply("vgpu: {devices: {}}", 0, "done: 2 steps, verified")
	apply("sriov: {vfs: 0}", 0, "1. run /usr/lib/nvidia/sriov-manage -d 0000:21:00.0")
}
