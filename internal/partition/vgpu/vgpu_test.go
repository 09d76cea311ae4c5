// SPDX-License-Identifier: Apache-2.0

package vgpu_test

import (
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/partition"
	"github.com/divvy-gpu/divvy/internal/partition/fakekernel"
	"github.com/divvy-gpu/divvy/internal/partition/mig"
	"github.com/divvy-gpu/divvy/internal/partition/sriov"
	"github.com/divvy-gpu/divvy/internal/partition/vfio"
	"github.com/divvy-gpu/divvy/internal/partition/vgpu"
)

const (
	t4   = "0000:3b:00.0" // mediated devices of its own: one GRID T4-2Q, which a guest has
	a40  = "0000:5e:00.0" // on two virtual functions: one NVIDIA A40-2Q, which nobody uses
	h200 = "0000:41:00.0" // types of four virtual functions: one NVIDIA H200X-1-18C
	uhd  = "0000:00:02.0" // GVT-g: one i915-GVTg_V5_4
)

func want(devices map[string]int) partition.Rule {
	return partition.Rule{Wants: partition.Wants{partition.TechniqueVGPU: &vgpu.Goal{Devices: devices}}}
}

func open(t *testing.T, name string) fakekernel.Machine {
	return fakekernel.Open(t, name, vgpu.New, vgpu.GVTg)
}

func TestPlans(t *testing.T) {
	for _, c := range []struct {
		name, machine, address string
		rule                   partition.Rule
		refused, text          string
	}{
		{"more beside one in use", "nvidia-mdev", t4, want(map[string]int{"GRID T4-2Q": 3}), "", "mdev_supported_types/nvidia-231/create"},
		{"by id, as it is", "nvidia-mdev", t4, want(map[string]int{"nvidia-231": 1}), "", ""},
		{"more than there is room for", "nvidia-mdev", t4, want(map[string]int{"GRID T4-2Q": 9}), partition.RefusedImpossible, "8 more of GRID T4-2Q are wanted, there is room for 7"},
		{"another size while used", "nvidia-mdev", t4, want(map[string]int{"GRID T4-1Q": 1}), partition.RefusedInUse, "GRID T4-2Q on 0000:3b:00.0 is used by 5100 (qemu-system-x86)"},
		{"two sizes", "nvidia-mdev", t4, want(map[string]int{"GRID T4-1Q": 1, "GRID T4-2Q": 1}), partition.RefusedImpossible, "different sizes"},
		{"unknown type", "nvidia-mdev", a40, want(map[string]int{"NVIDIA A40-48Q": 1}), partition.RefusedImpossible, "no type NVIDIA A40-48Q; it offers NVIDIA A40-2Q, NVIDIA A40-12Q"},
		{"more than functions", "nvidia-mdev", a40, want(map[string]int{"NVIDIA A40-2Q": 3}), partition.RefusedImpossible, "2 more of NVIDIA A40-2Q are wanted, there is room for 1"},
		{"another type", "nvidia-mdev", a40, want(map[string]int{"NVIDIA A40-12Q": 2}), "", "write \"1\" to /sys/bus/mdev/devices/7c9e6679-7425-40de-944b-e07fc1f90ae7/remove\nwrite"},
		{"types of functions", "nvidia-vfio", h200, want(map[string]int{"NVIDIA H200X-1-18C": 3}), "", "write \"1414\" to 0000:41:00.4/nvidia/current_vgpu_type\nwrite \"1414\" to 0000:41:00.6/nvidia/current_vgpu_type\n"},
		{"none", "nvidia-vfio", h200, want(nil), "", "write \"0\" to 0000:41:00.5/nvidia/current_vgpu_type\n"},
		{"no host", "mixed", "0000:1a:00.0", want(map[string]int{"NVIDIA H100-80C": 1}), partition.RefusedImpossible, "not that of a vGPU host"},
		{"no host, none wanted", "mixed", "0000:1a:00.0", want(nil), "", ""},
		{"GVT-g", "gvtg-laptop", uhd, partition.Rule{Wants: partition.Wants{partition.TechniqueGVTg: &vgpu.Goal{Devices: map[string]int{"i915-GVTg_V5_4": 1, "i915-GVTg_V5_8": 1}}}}, "", "i915-GVTg_V5_8/create"},
		{"no GVT-g", "flex170", "0000:4d:00.0", partition.Rule{Wants: partition.Wants{partition.TechniqueGVTg: &vgpu.Goal{Devices: map[string]int{"x": 1}}}}, partition.RefusedImpossible, "no GVT-g"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := open(t, c.machine)
			p := m.Plan(t, c.address, c.rule)
			if got := fakekernel.Steps(p); p.Refused != c.refused || !strings.Contains(got, c.text) || c.text == "" && len(p.Steps) > 0 {
				t.Fatalf("%q: %s", p.Refused, got)
			}
			if p.Refused == "" && len(p.Steps) > 0 {
				m.Apply(t, p)
				if again := m.Plan(t, c.address, c.rule); again.Refused != "" || len(again.Steps) > 0 {
					t.Errorf("again: %s", fakekernel.Steps(again))
				}
			}
		})
	}
}

// TestModes: sizes go together, and guests share time, as the driver is told; it is
// told while no vGPU, or no guest, is in the way.
func TestModes(t *testing.T) {
	m := open(t, "nvidia-mdev")
	observe := func(address, placement, scheduler string) partition.Card {
		c, err := m.Observe(t.Context(), address)
		if err != nil {
			t.Fatal(err)
		}
		vgpu.Of(c).Placement, vgpu.Of(c).Scheduler = placement, scheduler
		return c
	}
	both := map[string]int{"NVIDIA A40-2Q": 1, "NVIDIA A40-12Q": 1}
	for _, c := range []struct {
		name                 string
		address              string
		placement, scheduler string // as the driver tells
		want                 vgpu.Goal
		refused, text        string
	}{
		{"sizes, mode unknown", a40, "", "", vgpu.Goal{Devices: both}, partition.RefusedImpossible, "say placement: mixed"},
		{"no driver", a40, "", "", vgpu.Goal{Devices: both, Placement: "mixed"}, partition.RefusedImpossible, "not here or was not asked"},
		{"a vGPU stays", a40, "homogeneous", "", vgpu.Goal{Devices: both, Placement: "mixed"}, partition.RefusedImpossible, "while a GPU has no vGPU; it keeps NVIDIA A40-2Q on 0000:5e:00.4"},
		{"none stays", a40, "homogeneous", "", vgpu.Goal{Devices: map[string]int{"NVIDIA A40-12Q": 1}, Placement: "mixed"}, "", "/remove\nset vgpu-placement to mixed\nwrite"},
		{"mode is on", a40, "mixed", "", vgpu.Goal{Devices: map[string]int{"NVIDIA A40-2Q": 2}}, "", "nvidia-558/create"},
		{"scheduler", a40, "homogeneous", "best-effort", vgpu.Goal{Devices: map[string]int{"NVIDIA A40-2Q": 1}, Scheduler: "fixed-share"}, "", "set vgpu-scheduler to fixed-share\n"},
		{"scheduler, as it is", a40, "homogeneous", "fixed-share", vgpu.Goal{Devices: map[string]int{"NVIDIA A40-2Q": 1}, Scheduler: "fixed-share", Placement: "homogeneous"}, "", ""},
		{"scheduler under a guest", t4, "homogeneous", "best-effort", vgpu.Goal{Devices: map[string]int{"GRID T4-2Q": 1}, Scheduler: "equal-share"}, partition.RefusedInUse, "5100 (qemu-system-x86)"},
	} {
		card := observe(c.address, c.placement, c.scheduler)
		p := partition.Planner{Techniques: m.Techniques}.Card(card, partition.Rule{Wants: partition.Wants{partition.TechniqueVGPU: &c.want}})
		if got := fakekernel.Steps(p); p.Refused != c.refused || !strings.Contains(got, c.text) || c.text == "" && len(p.Steps) > 0 {
			t.Errorf("%s: %q, %s", c.name, p.Refused, got)
		}
		if p.Refused == "" && c.placement != "" && len(p.Steps) > 0 && len(m.Techniques.Steps(p.After, p.Before)) == 0 {
			t.Errorf("%s: no way back", c.name)
		}
	}
}

// TestMIGBacked: types for MIG instances want MIG on, others off, where the driver
// was asked.
func TestMIGBacked(t *testing.T) {
	m := open(t, "nvidia-vfio")
	c, err := m.Observe(t.Context(), h200)
	if err != nil {
		t.Fatal(err)
	}
	c = c.With(partition.TechniqueMIG, &mig.State{})
	p := partition.Planner{Techniques: m.Techniques}.Card(c, want(map[string]int{"NVIDIA H200X-1-18C": 2}))
	if !strings.Contains(p.Reason, "for GPUs whose MIG mode is on") {
		t.Errorf("%q: %s", p.Refused, p.Reason)
	}
	c = c.With(partition.TechniqueMIG, &mig.State{On: true})
	p = partition.Planner{Techniques: m.Techniques}.Card(c, want(map[string]int{"NVIDIA H200X-141C": 1}))
	if !strings.Contains(p.Reason, "for GPUs whose MIG mode is off") {
		t.Errorf("%q: %s", p.Refused, p.Reason)
	}
}

// off is the vGPU host with its functions off, as after it was started.
func off(t *testing.T) fakekernel.Machine {
	m := fakekernel.Open(t, "nvidia-vfio", sriov.New, vgpu.New, vfio.New)
	if err := m.Fake.Run(t.Context(), "usr/lib/nvidia/sriov-manage", "-d", h200); err != nil {
		t.Fatal(err)
	}
	m.Fake.Writes = 0
	return m
}

// TestFunctionsFirst: where the functions are off that carry vGPUs, they are
// switched on, and the vGPUs are planned by what they offer then.
func TestFunctionsFirst(t *testing.T) {
	m := off(t)
	three := want(map[string]int{"NVIDIA H200X-141C": 3})
	p := m.Plan(t, h200, three)
	if got := fakekernel.Steps(p); p.Refused != "" || p.Awaits == "" || got != "run /usr/lib/nvidia/sriov-manage -e "+h200+"\n" {
		t.Fatalf("%q, %q: %s", p.Refused, p.Awaits, got)
	}
	taken, err := partition.Apply(t.Context(), m.Techniques, m, &fakekernel.Log{}, p)
	if err != nil || len(taken) != 4 || taken[1].Value != "1428" {
		t.Fatalf("%v: %v", err, taken)
	}
	if again := m.Plan(t, h200, three); again.Refused != "" || len(again.Steps) > 0 {
		t.Errorf("again: %s", fakekernel.Steps(again))
	}
	// What is not offered is known too late: all goes back.
	m = off(t)
	if _, err := partition.Apply(t.Context(), m.Techniques, m, &fakekernel.Log{}, m.Plan(t, h200, want(map[string]int{"NVIDIA A40-2Q": 1}))); err == nil || !strings.Contains(err.Error(), "no type NVIDIA A40-2Q; it offers NVIDIA H200X-1-18C, NVIDIA H200X-141C; it is as it was") {
		t.Errorf("%v", err)
	}
	if c, err := m.Observe(t.Context(), h200); err != nil || len(sriov.Of(c).On) != 0 {
		t.Errorf("%v, %d functions", err, len(sriov.Of(c).On))
	}
	// A rule that wants no functions has no vGPUs.
	none := three
	none.Wants = partition.Wants{partition.TechniqueSRIOV: &sriov.Goal{}, partition.TechniqueVGPU: three.Wants[partition.TechniqueVGPU]}
	if p := m.Plan(t, h200, none); p.Refused != partition.RefusedImpossible {
		t.Errorf("%q: %s", p.Refused, fakekernel.Steps(p))
	}
	if p := m.Plan(t, h200, want(nil)); p.Refused != "" || len(p.Steps) > 0 {
		t.Errorf("none wanted: %s", fakekernel.Steps(p))
	}
	fakekernel.Faults(t, func() fakekernel.Machine { return off(t) }, h200, three)
}

func TestFaults(t *testing.T) {
	for machine, address := range map[string]string{"nvidia-mdev": a40, "nvidia-vfio": h200} {
		r := want(map[string]int{"NVIDIA A40-12Q": 2})
		if machine == "nvidia-vfio" {
			r = want(map[string]int{"NVIDIA H200X-141C": 2})
		}
		t.Run(machine, func(t *testing.T) {
			fakekernel.Faults(t, func() fakekernel.Machine { return open(t, machine) }, address, r)
		})
	}
	t.Run("gvt-g", func(t *testing.T) {
		r := partition.Rule{Wants: partition.Wants{partition.TechniqueGVTg: &vgpu.Goal{Devices: map[string]int{"i915-GVTg_V5_8": 1}}}}
		fakekernel.Faults(t, func() fakekernel.Machine { return open(t, "gvtg-laptop") }, uhd, r)
	})
}
