// SPDX-License-Identifier: Apache-2.0

package vfio_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/partition"
	"github.com/divvy-gpu/divvy/internal/partition/amd"
	"github.com/divvy-gpu/divvy/internal/partition/fakekernel"
	"github.com/divvy-gpu/divvy/internal/partition/sriov"
	"github.com/divvy-gpu/divvy/internal/partition/vfio"
	"github.com/divvy-gpu/divvy/internal/partition/vgpu"
)

func open(t *testing.T, name string) fakekernel.Machine {
	return fakekernel.Open(t, name, amd.New, sriov.New, vgpu.New, vfio.New)
}

func want(enabled bool) partition.Rule {
	return partition.Rule{Wants: partition.Wants{partition.TechniqueVFIO: &vfio.Goal{Enabled: enabled}}}
}

// TestThereAndBack: a card is handed over and taken back, and so is what goes with
// it.
func TestThereAndBack(t *testing.T) {
	for machine, c := range map[string]struct{ address, there, back string }{
		"mixed": {
			"0000:9a:00.0",
			"write \"vfio-pci\\n\" to 0000:9a:00.0/driver_override\nwrite \"0000:9a:00.0\" to /sys/bus/pci/drivers/amdgpu/unbind\nwrite \"0000:9a:00.0\" to /sys/bus/pci/drivers_probe\n",
			"write \"\\n\" to 0000:9a:00.0/driver_override\nwrite \"0000:9a:00.0\" to /sys/bus/pci/drivers/vfio-pci/unbind\nwrite \"0000:9a:00.0\" to /sys/bus/pci/drivers_probe\n",
		},
		"others": {"0000:31:00.0", "write \"vfio-pci\\n\" to 0000:31:00.1/driver_override\nwrite \"0000:31:00.1\" to /sys/bus/pci/drivers_probe\n", "unbind"},
		// Its UUID goes with its driver: it is found by its address.
		"nvidia-mdev": {"0000:5e:00.0", "", ""},
	} {
		t.Run(machine, func(t *testing.T) {
			m := open(t, machine)
			if machine == "nvidia-mdev" {
				m.Apply(t, m.Plan(t, c.address, partition.Rule{Wants: partition.Wants{partition.TechniqueVGPU: &vgpu.Goal{}}}))
				if err := m.Fake.Run(t.Context(), "usr/lib/nvidia/sriov-manage", "-d", "0000:5e:00.0"); err != nil {
					t.Fatal(err)
				}
			}
			for _, way := range []struct {
				enabled bool
				text    string
			}{{true, c.there}, {false, c.back}} {
				p := m.Plan(t, c.address, want(way.enabled))
				if p.Refused != "" || len(p.Steps) == 0 || !strings.Contains(fakekernel.Steps(p), way.text) {
					t.Fatalf("%v: %s", way.enabled, fakekernel.Steps(p))
				}
				m.Apply(t, p)
				if again := m.Plan(t, c.address, want(way.enabled)); again.Refused != "" || len(again.Steps) > 0 {
					t.Errorf("%v again: %s", way.enabled, fakekernel.Steps(again))
				}
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		machine, address string
		enabled          bool
		refused, reason  string
	}{
		{"mixed", "0000:1a:00.0", true, partition.RefusedInUse, "it is open in 3100 (vllm)"},
		{"mixed", "0000:1b:00.0", true, partition.RefusedImpossible, "IOMMU group 41 also holds 0000:1c:00.0"},
		{"battlemage", "0000:08:00.0", true, "", ""},
		{"nvidia-vfio", "0000:41:00.0", true, partition.RefusedImpossible, "passthrough excludes sriov"},
		{"mi300x-cpx", "0000:27:00.0", true, partition.RefusedImpossible, "passthrough excludes amd-partition"},
		{"nvidia-mdev", "0000:3b:00.0", true, partition.RefusedImpossible, "passthrough excludes vgpu"},
		{"mixed", "0000:9a:00.0", false, "", ""},
	} {
		if p := open(t, c.machine).Plan(t, c.address, want(c.enabled)); p.Refused != c.refused || !strings.Contains(p.Reason, c.reason) {
			t.Errorf("%s %s: %q, %s", c.machine, c.address, p.Refused, p.Reason)
		}
	}
}

// TestConsole: the card of the machine's console is not handed over without force.
func TestConsole(t *testing.T) {
	for name, c := range map[string]struct {
		files  map[string]string // links, or "1" in a file
		spared string
	}{
		"firmware's":       {map[string]string{"sys/bus/pci/devices/0000:9a:00.0/boot_vga": "1"}, "(boot_vga is 1)"},
		"only framebuffer": {map[string]string{"sys/class/graphics/fb0/device": "../../../0000:9a:00.0", "sys/class/graphics/fbcon": "1"}, "(it has the only framebuffer, fb0)"},
		"one of two":       {map[string]string{"sys/class/graphics/fb0/device": "../../../0000:9a:00.0", "sys/class/graphics/fb1/device": "../../../0000:03:00.0"}, ""},
		"another's":        {map[string]string{"sys/class/graphics/fb0/device": "../../../simple-framebuffer.0"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := open(t, "mixed")
			for file, text := range c.files {
				at := filepath.Join(m.Fake.Folder, file)
				err := os.MkdirAll(filepath.Dir(at), 0o755)
				if text == "1" {
					err = errors.Join(err, os.WriteFile(at, []byte("1\n"), 0o644))
				} else {
					err = errors.Join(err, os.Symlink(text, at))
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			card, err := m.Observe(t.Context(), "0000:9a:00.0")
			if err != nil {
				t.Fatal(err)
			}
			p := partition.Planner{Techniques: m.Techniques}.Card(card, want(true))
			if (p.Refused == partition.RefusedSpared) != (c.spared != "") || !strings.Contains(p.Reason, c.spared) {
				t.Errorf("%q: %s", p.Refused, p.Reason)
			}
			m.Apply(t, m.Plan(t, "0000:9a:00.0", want(true))) // with force
			if back := m.Plan(t, "0000:9a:00.0", want(false)); back.Refused != "" || len(back.Steps) == 0 {
				t.Errorf("back: %q: %s", back.Refused, fakekernel.Steps(back))
			}
		})
	}
}

// TestModeAndPassthroughTogether: what excludes passthrough may be switched off in
// the same rule.
func TestModeAndPassthroughTogether(t *testing.T) {
	m := open(t, "flex170")
	p := m.Plan(t, "0000:4d:00.0", partition.Rule{Wants: partition.Wants{partition.TechniqueSRIOV: &sriov.Goal{}, partition.TechniqueVFIO: &vfio.Goal{Enabled: true}}})
	if got := fakekernel.Steps(p); !strings.HasPrefix(got, "write \"0\" to 0000:4d:00.0/sriov_numvfs\nwrite \"vfio-pci") {
		t.Fatal(got)
	}
	m.Apply(t, p)
}

func TestFaults(t *testing.T) {
	for _, r := range []partition.Rule{want(true), {Wants: partition.Wants{partition.TechniqueSRIOV: &sriov.Goal{}, partition.TechniqueVFIO: &vfio.Goal{Enabled: true}}}} {
		machine, address := "mixed", "0000:9a:00.0"
		if r.Wants[partition.TechniqueSRIOV] != nil {
			machine, address = "flex170", "0000:4d:00.0"
		}
		fakekernel.Faults(t, func() fakekernel.Machine { return open(t, machine) }, address, r)
	}
}
