// SPDX-License-Identifier: Apache-2.0

package amd_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/partition"
	"github.com/divvy-gpu/divvy/internal/partition/amd"
	"github.com/divvy-gpu/divvy/internal/partition/fakekernel"
	"github.com/divvy-gpu/divvy/internal/partition/vfio"
)

// The first card is in use, the second is not; all are in CPX/NPS4.
const (
	used = "0000:05:00.0"
	free = "0000:27:00.0"
)

func want(modes amd.Goal) partition.Rule {
	return partition.Rule{Wants: partition.Wants{partition.TechniqueAMD: &modes}}
}

// TestModes: a mode is set and read back; a second time there is nothing to do.
func TestModes(t *testing.T) {
	m := fakekernel.Open(t, "mi300x-cpx", amd.New)
	p := m.Plan(t, free, want(amd.Goal{Compute: "QPX"}))
	if got := fakekernel.Steps(p); got != `write "QPX" to 0000:27:00.0/current_compute_partition`+"\n" {
		t.Fatal(got)
	}
	m.Apply(t, p)
	if p := m.Plan(t, free, want(amd.Goal{Compute: "QPX", Memory: "NPS4"})); p.Refused != "" || len(p.Steps) != 0 || m.Fake.Writes != 1 {
		t.Errorf("again: %s", fakekernel.Steps(p))
	}
}

// TestRefusals: with the reason, and whatever is forced.
func TestRefusals(t *testing.T) {
	m := fakekernel.Open(t, "mi300x-cpx", amd.New)
	for _, c := range []struct {
		address string
		want    amd.Goal
		refused string
		reason  string
	}{
		{used, amd.Goal{Compute: "QPX"}, partition.RefusedInUse, "it is used by 4711 (python3)"},
		{used, amd.Goal{Compute: "CPX"}, "", ""},
		{free, amd.Goal{Compute: "SPX"}, partition.RefusedImpossible, "SPX goes with NPS1, not with NPS4"},
		{free, amd.Goal{Compute: "DPX"}, partition.RefusedImpossible, "DPX goes with NPS1 or NPS2, not with NPS4"},
		{free, amd.Goal{Compute: "TPX"}, partition.RefusedImpossible, "no compute mode TPX; it has SPX, DPX, QPX, CPX"},
		{free, amd.Goal{Memory: "NPS1", Compute: "QPX"}, "", ""},
		{free, amd.Goal{Memory: "NPS2"}, partition.RefusedImpossible, "no memory mode NPS2"},
	} {
		if p := m.Plan(t, c.address, want(c.want)); p.Refused != c.refused || !strings.Contains(p.Reason, c.reason) {
			t.Errorf("%+v: %q, %s", c.want, p.Refused, p.Reason)
		}
	}
}

func TestFaults(t *testing.T) {
	open := func() fakekernel.Machine { return fakekernel.Open(t, "mi300x-cpx", amd.New) }
	fakekernel.Faults(t, open, free, want(amd.Goal{Compute: "QPX"}))
}

func hive(t *testing.T) fakekernel.Machine {
	return fakekernel.OpenArchive(t, "testdata/hive.txtar", amd.New, vfio.New)
}

// TestHive: cards that XGMI joins take a memory mode together, each with a compute
// mode of its own, and come back.
func TestHive(t *testing.T) {
	m := hive(t)
	there := m.Plans(t, "{amd: {memory: NPS4}}, {match: {index: [1]}, amd: {memory: NPS4, compute: CPX}}")
	if got, want := fakekernel.Steps(there[1]), `write "NPS4" to 0000:27:00.0/current_memory_partition
write "0000:27:00.0" to /sys/bus/pci/drivers/amdgpu/unbind
write "0000:27:00.0" to /sys/bus/pci/drivers_probe
write "CPX" to 0000:27:00.0/current_compute_partition
`; got != want || len(there[1].Joined) != 3 {
		t.Fatalf("%s%v", got, there[1].Joined)
	}
	m.Apply(t, there...)
	for i, want := range []string{"QPX/NPS4", "CPX/NPS4", "QPX/NPS4"} {
		if p := m.Plans(t, "{amd: {memory: NPS4}}")[i]; p.Refused != "" || len(p.Steps) > 0 || !strings.Contains(p.Before.Layout(), want) {
			t.Errorf("GPU %d is %s: %s", i, p.Before.Layout(), fakekernel.Steps(p))
		}
	}
	m.Apply(t, m.Plans(t, "{amd: {compute: SPX, memory: NPS1}}")...)
}

// TestHiveFaults: wherever it ends, all cards are as they were or as planned.
func TestHiveFaults(t *testing.T) {
	fakekernel.FaultsOf(t, func() fakekernel.Machine { return hive(t) }, func(m fakekernel.Machine) []partition.CardPlan {
		return m.Plans(t, "{amd: {memory: NPS4, compute: CPX}}")
	})
	fakekernel.FaultsOf(t, func() fakekernel.Machine {
		m := hive(t)
		m.Apply(t, m.Plans(t, "{amd: {memory: NPS4}}, {match: {index: [1]}, amd: {memory: NPS4, compute: CPX}}")...)
		return m
	}, func(m fakekernel.Machine) []partition.CardPlan { return m.Plans(t, "{amd: {memory: NPS1}}") })
}

// TestAlone: a card that XGMI joins with none takes a memory mode by itself.
func TestAlone(t *testing.T) {
	raw, err := os.ReadFile("testdata/hive.txtar")
	if err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(t.TempDir(), "alone.txtar")
	if err := os.WriteFile(archive, []byte(strings.ReplaceAll(string(raw), "hive_id 15188982192727901047", "hive_id 0")), 0o600); err != nil {
		t.Fatal(err)
	}
	open := func() fakekernel.Machine {
		return fakekernel.OpenArchive(t, archive, amd.New, vfio.New)
	}
	fakekernel.Faults(t, open, free, want(amd.Goal{Memory: "NPS4"}))
	if p := open().Plans(t, "{match: {index: [1]}, amd: {memory: NPS4}}")[0]; p.Refused != "" || p.Joined != nil {
		t.Errorf("%q, %v", p.Refused, p.Joined)
	}
}

// TestHiveRefusals: a memory mode is for all cards of a hive, or for none.
func TestHiveRefusals(t *testing.T) {
	for _, c := range []struct{ rules, reason string }{
		{"{match: {index: [0, 1]}, amd: {memory: NPS4}}", "the file does not speak of 0000:47:00.0"},
		{"{amd: {memory: NPS4}}, {match: {index: [2]}, amd: {memory: NPS1}}", "of 0000:47:00.0 it would be: nothing new"},
		{"{amd: {memory: NPS4, compute: CPX}, vfio: {enabled: true}}", "apply the memory mode first"},
		{"{amd: {memory: NPS4}}, {match: {index: [2]}, amd: {memory: NPS4, compute: SPX}}", "of 0000:47:00.0: impossible: SPX goes with NPS1, not with NPS4"},
	} {
		if p := hive(t).Plans(t, c.rules)[0]; p.Refused != partition.RefusedImpossible || !strings.Contains(p.Reason, c.reason) || len(p.Steps) > 0 {
			t.Errorf("%s: %q, %s", c.rules, p.Refused, p.Reason)
		}
	}
	m := hive(t)
	at := filepath.Join(m.Fake.Folder, "proc/77/fd/5")
	if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.Symlink("/dev/dri/renderD130", at)); err != nil {
		t.Fatal(err)
	}
	if p := m.Plans(t, "{amd: {memory: NPS4}}")[0]; p.Refused != partition.RefusedInUse || !strings.Contains(p.Reason, "of 0000:47:00.0: in use") || !strings.Contains(p.Reason, "77") {
		t.Errorf("%q, %s", p.Refused, p.Reason)
	}
	// Whether a card that another driver has is joined with it, nobody tells.
	m = hive(t)
	if err := m.Fake.Write("sys/bus/pci/drivers/amdgpu/unbind", "0000:47:00.0"); err != nil {
		t.Fatal(err)
	}
	if p := m.Plans(t, "{match: {index: [0, 1]}, amd: {memory: NPS4}}")[0]; !strings.Contains(p.Reason, "0000:47:00.0, which may be one of them, is not driven by amdgpu") {
		t.Errorf("%q, %s", p.Refused, p.Reason)
	}
}
