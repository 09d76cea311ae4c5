// SPDX-License-Identifier: Apache-2.0

package silicon

import (
	"strings"
	"testing"
)

func TestParseSpec(t *testing.T) {
	for _, c := range []struct{ spec, names string }{
		{"H100-80GB", "NVIDIA H100 80GB HBM3"},
		{"2xA100-40GB", "NVIDIA A100-SXM4-40GB|NVIDIA A100-SXM4-40GB"},
		{"h100-80gb, l4", "NVIDIA H100 80GB HBM3|NVIDIA L4"},
		{"1Xt4,H200", "Tesla T4|NVIDIA H200"},
	} {
		cards, err := ParseSpec(c.spec, 0)
		if err != nil {
			t.Errorf("ParseSpec(%q): %v", c.spec, err)
			continue
		}
		var names []string
		for _, card := range cards {
			names = append(names, card.Name)
		}
		if got := strings.Join(names, "|"); got != c.names {
			t.Errorf("ParseSpec(%q) = %s, want %s", c.spec, got, c.names)
		}
	}
}

func TestParseSpecRefuses(t *testing.T) {
	for _, c := range []struct{ spec, says string }{
		{"", "empty entry"},
		{"H100,,L4", "empty entry"},
		{"Voodoo2", `no model "Voodoo2"; known are B200, H200`},
		{"0xL4", "between 1 and 32"},
		{"33xL4", "between 1 and 32"},
		{"99999999999999999999xL4", "between 1 and 32"},
		{"32xL4,L4", "more than 32 GPUs"},
		{"2L4", "a count is written like"},
		{"2", "a count is written like"},
		{"2x", `no model ""`},
		{strings.Repeat("x", MaxSpecBytes+1), "longer than 1024 bytes"},
	} {
		if _, err := ParseSpec(c.spec, 0); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("ParseSpec(%.40q): %v, want an error with %q", c.spec, err, c.says)
		}
	}
}

// Two simulators with the same spec have the same cards; no two cards of one
// are the same.
func TestIdentities(t *testing.T) {
	first, err := ParseSpec("32xL4", 7)
	if err != nil {
		t.Fatal(err)
	}
	again, _ := ParseSpec("32xL4", 7)
	other, _ := ParseSpec("32xL4", 8)
	uuids, buses, serials := map[string]bool{}, map[uint32]bool{}, map[string]bool{}
	for i, c := range first {
		if c.UUID != again[i].UUID || c.Serial != again[i].Serial || c.PCIBus != again[i].PCIBus {
			t.Errorf("GPU %d differs between two simulators", i)
		}
		if c.UUID == other[i].UUID {
			t.Errorf("GPU %d does not depend on the seed", i)
		}
		if c.PCIBus > 255 {
			t.Errorf("GPU %d: bus %#x", i, c.PCIBus)
		}
		uuids[c.UUIDString()], buses[c.PCIBus], serials[c.Serial] = true, true, true
	}
	if len(uuids) != 32 || len(buses) != 32 || len(serials) != 32 {
		t.Errorf("%d UUIDs, %d buses, %d serials for 32 GPUs", len(uuids), len(buses), len(serials))
	}
	mixed, _ := ParseSpec("L4,H200", 7)
	if mixed[0].UUID != first[0].UUID {
		t.Error("a GPU's identity depends on the GPUs behind it")
	}
}

func TestModels(t *testing.T) {
	for _, m := range Models() {
		cores := m.Multiprocessors * m.Multiprocessor().Cores
		if m.ReservedMiB == 0 || m.ReservedMiB*20 > m.TotalMiB || cores < 2000 || cores > 30000 ||
			m.MaxClockMHz < m.IdleClockMHz || m.IdleWatts*2 > m.PowerLimitWatts || len(m.Name) > 64 {
			t.Errorf("implausible model %+v", m)
		}
	}
}

func FuzzParseSpec(f *testing.F) {
	for _, s := range []string{"H100-80GB", "2xA100-40GB,L4", "x", "1x1xL4", ",", " 3XT4 "} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		cards, err := ParseSpec(s, 1)
		if (err == nil) != (len(cards) >= 1 && len(cards) <= MaxCards) {
			t.Fatalf("ParseSpec(%q) = %d GPUs, %v", s, len(cards), err)
		}
		seen := map[[16]byte]bool{}
		var keys []string
		for i, c := range cards {
			if c.Index != i || seen[c.UUID] || c.UsableBytes() == 0 {
				t.Fatalf("ParseSpec(%q): GPU %d is %+v", s, i, c)
			}
			seen[c.UUID] = true
			keys = append(keys, c.Key)
		}
		if err == nil && len(strings.Join(keys, ",")) <= MaxSpecBytes {
			again, err := ParseSpec(strings.Join(keys, ","), 1)
			if err != nil || len(again) != len(cards) {
				t.Fatalf("ParseSpec(%q) does not read its own canonical form: %v", s, err)
			}
		}
	})
}
