// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"testing"

	"github.com/divvy-gpu/divvy/data"
)

func TestDefault(t *testing.T) {
	table, err := Default()
	if err != nil {
		t.Fatal(err)
	}
	if len(table.Products()) < 15 {
		t.Errorf("%d products", len(table.Products()))
	}
	for _, c := range []struct {
		device uint16
		key    string
	}{{0x2330, "h100-sxm-80gb"}, {0x20b7, "a30-24gb"}, {0x20b5, "a100-80gb"}, {0x26b9, ""}} {
		p, ok := table.ByDevice(c.device)
		if ok != (c.key != "") || ok && p.Key != c.key {
			t.Errorf("%#x: %+v", c.device, p)
		}
	}
	p, ok := table.ByName("NVIDIA H100 80GB HBM3 (simulated)")
	if !ok || p.Index("7g.79gb") >= 0 || p.Index("7g.80gb") < 0 {
		t.Errorf("H100: %+v", p)
	}
	if f := p.Profiles[p.Index("1g.20gb")]; f.NVML != 9 || f.Multiprocessors != 26 || f.Copy != 1 {
		t.Errorf("1g.20gb of an H100: %+v", f)
	}
	if p, _ := table.ByName("NVIDIA A100-SXM4-80GB"); p.Index("7g.79gb") != p.Index("7g.80gb") {
		t.Error("A100 80GB does not know 7g.79gb")
	}
	if !table.Without("NVIDIA L40S") || table.Without("NVIDIA A30") || !table.DocumentedOnly(0x2bb3) {
		t.Error("models without MIG")
	}
}

// NVML asks for every profile by a number of its own.
func TestNumbersOfNVML(t *testing.T) {
	table, err := Default()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range table.Products() {
		seen := map[int]string{}
		for _, f := range p.Profiles {
			if other, twice := seen[f.NVML]; twice || f.NVML < 0 {
				t.Errorf("%s: %s has number %d, as %q", p.Key, f.Name, f.NVML, other)
			}
			seen[f.NVML] = f.Name
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(data.MIGProfiles())
	f.Add([]byte("schema_version: 1\nproducts: [{key: a, name_patterns: [b], placement_units: 4, max_compute_slices: 4, profiles: [{name: 1g, compute_slices: 1, max_instances: 1, placements: {size: 1, starts: [0]}}]}]"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		table, err := Parse(raw)
		if err != nil {
			return
		}
		for _, p := range table.Products() {
			if err := p.Validate(); err != nil {
				t.Errorf("accepted %s: %v", p.Key, err)
			}
		}
	})
}
