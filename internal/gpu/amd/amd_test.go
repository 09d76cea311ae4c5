// SPDX-License-Identifier: Apache-2.0

package amd

import (
	"testing"

	"github.com/divvy-gpu/divvy/internal/gpu"
)

func TestNode(t *testing.T) {
	n := node{properties: Properties("simd_count 152\nsimd_per_cu 4\ngfx_target_version 90402\nlocation_id 9987\ndomain 1\ndrm_render_minor 131\nodd\n")}
	if n.address() != "0001:27:00.0" || n.partition() != 3 || n.units() != gpu.Known(38) || n.architecture() != gpu.Known("gfx942") || n.minor() != 131 {
		t.Errorf("%s %d %v %v", n.address(), n.partition(), n.units(), n.architecture())
	}
	if n := (node{properties: Properties("gfx_target_version 90010")}); n.architecture() != gpu.Known("gfx90a") || n.units().Known {
		t.Errorf("%v %v", n.architecture(), n.units())
	}
}

func TestActiveClock(t *testing.T) {
	for text, want := range map[string]gpu.Fact[float64]{
		"0: 132Mhz *\n1: 2100Mhz": gpu.Known(132.0), "0: 132Mhz\n1: 2100Mhz *\n": gpu.Known(2100.0), "": {}, "*": {}, "0: *": {}, "0: x *": {},
	} {
		if got := activeClock(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func FuzzFiles(f *testing.F) {
	f.Add("ue: 0\nce: 3\nsimd_count 4\n0: 5Mhz *\nlocation_id 18446744073709551615\n")
	f.Fuzz(func(t *testing.T, text string) {
		ue, ce := ErrorCounts(text)
		if both := add(ue, ce); both.Known != (ue.Known || ce.Known) || both.Value < ue.Value || both.Value < ce.Value {
			t.Errorf("%v and %v are %v", ue, ce, both)
		}
		if clock := activeClock(text); clock.Known && clock.Value < 0 {
			t.Errorf("clock %v", clock)
		}
		n := node{properties: Properties(text)}
		if len(n.address()) < 12 || n.partition() > 7 || n.units().Value < 0 {
			t.Errorf("node at %s", n.address())
		}
	})
}
