// SPDX-License-Identifier: Apache-2.0

package sriov_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/partition"
	"github.com/divvy-gpu/divvy/internal/partition/fakekernel"
	"github.com/divvy-gpu/divvy/internal/partition/mig"
	"github.com/divvy-gpu/divvy/internal/partition/sriov"
	"github.com/divvy-gpu/divvy/internal/partition/vfio"
)

const program = "usr/lib/nvidia/sriov-manage"

// host is a vGPU host whose card is also seen with its driver, as in the program.
func host(t *testing.T) fakekernel.Machine {
	return fakekernel.Open(t, "nvidia-off", sriov.New, vfio.New)
}

// TestAllOrNone: NVIDIA's functions are switched by its program, all of a card.
func TestAllOrNone(t *testing.T) {
	m := host(t)
	for _, way := range []struct {
		vfs  int
		step string
	}{{32, "run /" + program + " -e " + idle + "\n"}, {0, "run /" + program + " -d " + idle + "\n"}} {
		p := m.Plan(t, idle, want(sriov.Goal{VFs: way.vfs}))
		if got := fakekernel.Steps(p); p.Refused != "" || got != way.step {
			t.Fatalf("%d: %q: %s", way.vfs, p.Refused, got)
		}
		m.Apply(t, p)
		c, err := m.Observe(t.Context(), idle)
		if err != nil || len(sriov.Of(c).On) != way.vfs || sriov.Of(c).Driver != "nvidia" {
			t.Fatalf("%d: %v, %d on, driver %s", way.vfs, err, len(sriov.Of(c).On), sriov.Of(c).Driver)
		}
		if again := m.Plan(t, idle, want(sriov.Goal{VFs: way.vfs})); again.Refused != "" || len(again.Steps) > 0 {
			t.Errorf("%d again: %s", way.vfs, fakekernel.Steps(again))
		}
	}
}

// TestWhatTheProgramNeeds: the program, the driver it works with, and no MIG
// instances that would go.
func TestWhatTheProgramNeeds(t *testing.T) {
	m := host(t)
	c, err := m.Observe(t.Context(), idle)
	if err != nil {
		t.Fatal(err)
	}
	c = c.With(partition.TechniqueMIG, &mig.State{On: true, Instances: []mig.Instance{{Profile: "1g.12gb"}}})
	if p := (partition.Planner{Techniques: m.Techniques}).Card(c, want(sriov.Goal{VFs: 32})); !strings.Contains(p.Reason, "MIG instances do not outlive") {
		t.Errorf("with MIG instances: %s", p.Reason)
	}
	m.Apply(t, m.Plan(t, idle, partition.Rule{Wants: partition.Wants{partition.TechniqueVFIO: &vfio.Goal{Enabled: true}}}))
	if p := m.Plan(t, idle, want(sriov.Goal{VFs: 32})); !strings.Contains(p.Reason, "for GPUs that the driver nvidia has; vfio-pci has") {
		t.Errorf("under another driver: %s", p.Reason)
	}
	m = host(t)
	if err := os.Remove(filepath.Join(m.Fake.Folder, program)); err != nil {
		t.Fatal(err)
	}
	if p := m.Plan(t, idle, want(sriov.Goal{VFs: 32})); !strings.Contains(p.Reason, "package nvidia-vgpu-ubuntu-... or NVIDIA-vGPU-rhel-...") {
		t.Errorf("without the program: %s", p.Reason)
	}
}

// TestSomebodyComesBetween: the program itself is refused the card that somebody
// opened since it was looked at, and its word is in the error.
func TestSomebodyComesBetween(t *testing.T) {
	m := host(t)
	p := m.Plan(t, idle, want(sriov.Goal{VFs: 32}))
	at := filepath.Join(m.Fake.Folder, "proc/777/fd")
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/nvidia0", filepath.Join(at, "3")); err != nil {
		t.Fatal(err)
	}
	if _, err := partition.Apply(t.Context(), m.Techniques, m, &fakekernel.Log{}, p); err == nil || !strings.Contains(err.Error(), "it is open in 777") {
		t.Errorf("seen: %v", err)
	}
	if _, err := partition.Apply(t.Context(), partition.Techniques{blind{m.Techniques[0]}}, m, &fakekernel.Log{}, p); err == nil || !strings.Contains(err.Error(), "cannot obtain unbindLock for "+idle) || !strings.Contains(err.Error(), "it is as it was") {
		t.Errorf("unseen: %v", err)
	}
}

// blind does not see who has a card open.
type blind struct{ partition.Technique }

func (blind) Busy(partition.Card, []partition.Step) string { return "" }

// TestManagerFaults: the program fails, dies in the middle, or does nothing and
// reports success, as that of vGPU 17.2 has.
func TestManagerFaults(t *testing.T) {
	fakekernel.Faults(t, func() fakekernel.Machine { return host(t) }, idle, want(sriov.Goal{VFs: 32}))
	off := func() fakekernel.Machine {
		m := host(t)
		if err := m.Fake.Run(t.Context(), program, "-e", idle); err != nil {
			t.Fatal(err)
		}
		m.Fake.Writes = 0
		return m
	}
	fakekernel.Faults(t, off, idle, want(sriov.Goal{}))
}
