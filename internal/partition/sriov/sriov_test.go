// SPDX-License-Identifier: Apache-2.0

package sriov_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/partition"
	"github.com/divvy-gpu/divvy/internal/partition/fakekernel"
	"github.com/divvy-gpu/divvy/internal/partition/sriov"
)

const (
	flex       = "0000:4d:00.0" // two of 31 functions are on, nobody uses them
	battlemage = "0000:03:00.0" // three of 7, a guest has the first
	vgpuHost   = "0000:41:00.0" // an H200 with four functions, one of which carries a vGPU
	idle       = "0000:21:00.0" // an L40S whose 32 functions are off
	watched    = "0000:31:00.0" // another, which a monitor has open
)

func want(functions sriov.Goal) partition.Rule {
	return partition.Rule{Wants: partition.Wants{partition.TechniqueSRIOV: &functions}}
}

func open(t *testing.T, name string) fakekernel.Machine {
	return fakekernel.Open(t, name, sriov.New)
}

// TestNumber goes through 0, and back when nothing is left to do.
func TestNumber(t *testing.T) {
	m := open(t, "flex170")
	keep := false
	p := m.Plan(t, flex, want(sriov.Goal{VFs: 4, Autoprobe: &keep, Each: map[string]string{"lmem_quota": "3221225472", "exec_quantum_ms": "25"}}))
	const settings = "drm/card1/prelim_iov/vf"
	for _, line := range []string{
		`write "0" to 0000:4d:00.0/sriov_numvfs` + "\n" + `write "0" to 0000:4d:00.0/sriov_drivers_autoprobe`,
		`write "3221225472" to 0000:4d:00.0/` + settings + `4/gt/lmem_quota`,
		`write "25" to 0000:4d:00.0/` + settings + `4/gt/exec_quantum_ms` + "\n" + `write "4" to 0000:4d:00.0/sriov_numvfs`,
	} {
		if !strings.Contains(fakekernel.Steps(p), line) {
			t.Errorf("no %s in\n%s", line, fakekernel.Steps(p))
		}
	}
	if p.Destroyed != 2 || p.Kept != 0 {
		t.Errorf("%d destroyed, %d kept", p.Destroyed, p.Kept)
	}
	m.Apply(t, p)
	if again := m.Plan(t, flex, want(sriov.Goal{VFs: 4, Each: map[string]string{"exec_quantum_ms": "25"}})); again.Refused != "" || len(again.Steps) > 0 {
		t.Errorf("again: %s", fakekernel.Steps(again))
	}
	// Time slices change while functions are on.
	p = m.Plan(t, flex, want(sriov.Goal{VFs: 4, Each: map[string]string{"exec_quantum_ms": "30"}}))
	if len(p.Steps) != 4 || strings.Contains(fakekernel.Steps(p), "sriov_numvfs") || p.Kept != 4 {
		t.Errorf("%s", fakekernel.Steps(p))
	}
	m.Apply(t, p)
	m.Apply(t, m.Plan(t, flex, want(sriov.Goal{})))
	if c, err := m.Observe(t.Context(), flex); err != nil || len(sriov.Of(c).On) != 0 {
		t.Errorf("%v, %+v", err, sriov.Of(c))
	}
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		machine, address string
		want             sriov.Goal
		refused, reason  string
	}{
		{"flex170", flex, sriov.Goal{VFs: 32}, partition.RefusedImpossible, "32 virtual functions are wanted, Intel Data Center GPU Flex 170 and its driver allow 31"},
		{"flex170", flex, sriov.Goal{VFs: 2, Each: map[string]string{"vram_quota": "1"}}, partition.RefusedImpossible, "have no vram_quota; they have contexts_quota"},
		{"flex170", flex, sriov.Goal{VFs: 2, Each: map[string]string{"bogus": "1"}}, partition.RefusedImpossible, "bogus is no setting"},
		{"battlemage", battlemage, sriov.Goal{VFs: 2}, partition.RefusedInUse, "vf1 (0000:03:00.1) is used by 3300 (qemu-system-x86)"},
		{"battlemage", battlemage, sriov.Goal{VFs: 3, Each: map[string]string{"vram_quota": "1073741824"}}, partition.RefusedInUse, "3300 (qemu-system-x86)"},
		{"battlemage", "0000:08:00.0", sriov.Goal{VFs: 1}, partition.RefusedImpossible, "has no virtual functions"},
		{"battlemage", "0000:08:00.0", sriov.Goal{}, "", ""},
		{"nvidia-vfio", vgpuHost, sriov.Goal{VFs: 28}, partition.RefusedInUse, "vf2 (0000:41:00.5) carries vGPU type 1414"},
		{"nvidia-vfio", vgpuHost, sriov.Goal{VFs: 4}, "", ""},
		{"nvidia-off", idle, sriov.Goal{VFs: 4}, partition.RefusedImpossible, "all 32 functions of NVIDIA L40S on, or none: vfs: 32 and vfs: 0 can be had"},
		{"nvidia-off", watched, sriov.Goal{VFs: 32}, partition.RefusedInUse, "its driver lets a GPU go only when no program has it open; it is open in 2200 (dcgm)"},
		{"nvidia-off", watched, sriov.Goal{}, "", ""},
		{"mi210-xgmi", "0000:43:00.0", sriov.Goal{VFs: 1}, partition.RefusedImpossible, "no virtual functions"},
	} {
		if p := open(t, c.machine).Plan(t, c.address, want(c.want)); p.Refused != c.refused || !strings.Contains(p.Reason, c.reason) {
			t.Errorf("%s, %+v: %q, %s", c.machine, c.want, p.Refused, p.Reason)
		}
	}
}

// TestProgramsOnFunctions: a program of the host that has a function's device file
// open keeps the function, as a guest does.
func TestProgramsOnFunctions(t *testing.T) {
	m := open(t, "flex170")
	for name, target := range map[string]string{
		"sys/devices/pci0000:4a/0000:4a:02.0/0000:4b:00.0/0000:4c:01.0/0000:4d:00.2/drm/renderD130/dev": "",
		"proc/640/comm": "", "proc/640/fd/5": "/dev/dri/renderD130",
	} {
		at := filepath.Join(m.Fake.Folder, name)
		err := os.MkdirAll(filepath.Dir(at), 0o755)
		if target == "" {
			err = errors.Join(err, os.WriteFile(at, []byte("blender\n"), 0o644))
		} else {
			err = errors.Join(err, os.Symlink(target, at))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if p := m.Plan(t, flex, want(sriov.Goal{})); p.Refused != partition.RefusedInUse || !strings.Contains(p.Reason, "vf2 (0000:4d:00.2) is used by 640 (blender)") {
		t.Errorf("%q: %s", p.Refused, fakekernel.Steps(p))
	}
}

// TestWhatGuestsUseMayBeScheduled: time slices and priorities change while a guest
// has a function.
func TestWhatGuestsUseMayBeScheduled(t *testing.T) {
	m := open(t, "battlemage")
	p := m.Plan(t, battlemage, want(sriov.Goal{VFs: 3, Each: map[string]string{"exec_quantum_ms": "10", "sched_priority": "high"}}))
	if len(p.Steps) != 6 {
		t.Fatal(fakekernel.Steps(p))
	}
	m.Apply(t, p)
}

func TestFaults(t *testing.T) {
	machine := func() fakekernel.Machine { return open(t, "flex170") }
	fakekernel.Faults(t, machine, flex, want(sriov.Goal{VFs: 1, Each: map[string]string{"lmem_quota": "1073741824", "exec_quantum_ms": "25"}}))
}
