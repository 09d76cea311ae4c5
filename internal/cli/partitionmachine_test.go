// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/partition"
	"github.com/divvy-gpu/divvy/internal/partition/fakekernel"
	"github.com/divvy-gpu/divvy/internal/partition/machine"
	"github.com/divvy-gpu/divvy/internal/partition/mig"
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
	for _, recorded := range machines {
		name := strings.TrimSuffix(filepath.Base(recorded), ".txtar")
		t.Run(name, func(t *testing.T) {
			root := t.TempDir() // once for all commands
			if _, err := fakekernel.Unpack(recorded, root); err != nil {
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
	compare(t, name, fmt.Sprintf("%s%sexit code %d\n", out.String(), complaints.String(), code))
}

// TestGoalsOfDocuments: each goal that a page of docs shows can be read.
func TestGoalsOfDocuments(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, page := range pages {
		raw, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range regexp.MustCompile(`(?m)^ +schema: divvy\.partition/v1\n(?: +.*\n)*`).FindAll(raw, -1) {
			found++
			if _, err := mig.ParseGoal(block, "", machine.Techniques(nil)); err != nil {
				t.Errorf("%s: %v in\n%s", page, err, block)
			}
		}
	}
	if found < 2 {
		t.Errorf("docs show %d goals", found)
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
		if _, err := mig.ParseGoal(raw, "", machine.Techniques(nil)); err != nil {
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
	lock, err := machine.OpenJournal(journal)
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
	apply(vgpus, 0, "GPU 0, then:\n  2. write \"1155\" to /sys/bus/pci/devices/0000:21:00.4/nvidia/current_vgpu_type (NVIDIA L40S-12Q is wanted)\n  3. write")
	apply(vgpus, 0, "as wanted: nothing to do")
	if raw, err := os.ReadFile(filepath.Join(root, "held")); err != nil || strings.TrimSpace(string(raw)) != journal+".lock" {
		t.Errorf("the program holds %q, %v", raw, err)
	}
	apply("sriov: {vfs: 0}", exitNotAllowed, "carries vGPU type 1155; vf2 (0000:21:00.5) carries vGPU type 1155: apply vgpu: {devices: {}} first")
	apply("vgpu: {devices: {}}", 0, "done: 2 steps, verified")
	apply("sriov: {vfs: 0}", 0, "1. run /usr/lib/nvidia/sriov-manage -d 0000:21:00.0")
}
