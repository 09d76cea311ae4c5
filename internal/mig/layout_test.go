// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"strings"
	"testing"
)

// Every model is found by its key, by the names its drivers have for it, and by
// the cluster labels that are made of these.
func TestLabels(t *testing.T) {
	table, err := Default()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range table.Products() {
		for _, name := range append([]string{p.Key}, p.Names...) {
			label := strings.ReplaceAll(name, " ", "-")
			for _, text := range []string{name, label, label + "-SHARED", label + "-MIG-1g.10gb", strings.TrimPrefix(label, "NVIDIA-")} {
				if got, ok := table.ByLabel(text); !ok || got != p {
					t.Errorf("%q is not found as %s", text, p.Key)
				}
			}
		}
	}
	if p, ok := table.ByLabel("NVIDIA-L40S"); ok {
		t.Errorf("an L40S is %s", p.Key)
	}
}

// The memory of every profile is the table's; where that has none, it is less, of
// the gigabytes in the name, than of any profile that was listed.
func TestMemory(t *testing.T) {
	table, err := Default()
	if err != nil {
		t.Fatal(err)
	}
	listed, not := 0, 0
	for _, p := range table.Products() {
		for _, f := range p.Profiles {
			if f.MemoryMiB == 0 {
				not++
				if f.Memory() == 0 {
					t.Errorf("%s: %s has no memory", p.Key, f.Name)
				}
				continue
			}
			listed++
			unlisted := f
			if unlisted.MemoryMiB = 0; f.Memory() != f.MemoryMiB || unlisted.Memory() >= f.MemoryMiB {
				t.Errorf("%s: %s has %d MiB, %d counted and %d without the listing", p.Key, f.Name, f.MemoryMiB, f.Memory(), unlisted.Memory())
			}
		}
	}
	if listed == 0 || not == 0 {
		t.Errorf("%d listed, %d not: the test proves nothing", listed, not)
	}
}

func TestSlicesOf(t *testing.T) {
	for name, want := range map[string]int{"3g.40gb": 3, "1g.10gb+me": 1, "g.10gb": 0, "3": 0, "1c.3g.40gb": 0, "": 0, "999g.1gb": 0, "-1g.1gb": 0} {
		if got := SlicesOf(name); got != want {
			t.Errorf("%q: %d slices, want %d", name, got, want)
		}
	}
}
