// SPDX-License-Identifier: Apache-2.0

package amd_test

import (
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/partition"
	"github.com/divvy-gpu/divvy/internal/partition/amd"
	"github.com/divvy-gpu/divvy/internal/partition/fakekernel"
)

// The first card is in use, the second is not; all are in CPX/NPS4.
const (
	used = "0000:05:00.0"
	free = "0000:27:00.0"
)

func want(modes partition.AMD) partition.Rule { return partition.Rule{AMD: &modes} }

// TestModes: a mode is set and read back; a second time there is nothing to do.
func TestModes(t *testing.T) {
	m := fakekernel.Open(t, "mi300x-cpx", amd.Technique{})
	p := m.Plan(t, free, want(partition.AMD{Compute: "QPX"}))
	if got := fakekernel.Steps(p); got != `write "QPX" to 0000:27:00.0/current_compute_partition`+"\n" {
		t.Fatal(got)
	}
	m.Apply(t, p)
	if p := m.Plan(t, free, want(partition.AMD{Compute: "QPX", Memory: "NPS4"})); p.Refused != "" || len(p.Steps) != 0 || m.Fake.Writes != 1 {
		t.Errorf("again: %s", fakekernel.Steps(p))
	}
}

// TestRefusals: with the reason, and whatever is forced.
func TestRefusals(t *testing.T) {
	m := fakekernel.Open(t, "mi300x-cpx", amd.Technique{})
	for _, c := range []struct {
		address string
		want    partition.AMD
		refused string
		reason  string
	}{
		{used, partition.AMD{Compute: "QPX"}, partition.RefusedInUse, "it is used by 4711 (python3)"},
		{used, partition.AMD{Compute: "CPX"}, "", ""},
		{free, partition.AMD{Compute: "SPX"}, partition.RefusedImpossible, "SPX goes with NPS1, not with NPS4"},
		{free, partition.AMD{Compute: "DPX"}, partition.RefusedImpossible, "DPX goes with NPS1 or NPS2, not with NPS4"},
		{free, partition.AMD{Compute: "TPX"}, partition.RefusedImpossible, "no compute mode TPX; it has SPX, DPX, QPX, CPX"},
		{free, partition.AMD{Memory: "NPS1"}, partition.RefusedImpossible, "modprobe -r amdgpu"},
		{free, partition.AMD{Memory: "NPS2"}, partition.RefusedImpossible, "no memory mode NPS2"},
	} {
		if p := m.Plan(t, c.address, want(c.want)); p.Refused != c.refused || !strings.Contains(p.Reason, c.reason) {
			t.Errorf("%+v: %q, %s", c.want, p.Refused, p.Reason)
		}
	}
}

func TestFaults(t *testing.T) {
	open := func() fakekernel.Machine { return fakekernel.Open(t, "mi300x-cpx", amd.Technique{}) }
	fakekernel.Faults(t, open, free, want(partition.AMD{Compute: "QPX"}))
}
