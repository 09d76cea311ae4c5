// SPDX-License-Identifier: Apache-2.0

package selector

import (
	"slices"
	"testing"
)

func TestNames(t *testing.T) {
	const uuid, pci = "GPU-1c2dabcd-0000-0000-0000-000000000001", "00000000:3B:00.0"
	for word, want := range map[string]Match{
		uuid: Whole, "gpu-1C2DABCD-0000-0000-0000-000000000001": Whole, "3b:00.0": Whole, "0000:3b:00.0": Whole,
		"GPU-1c2d": Part, "1c2d": Part, "GPU-": Part, "1c2": Nothing, "GPU-2": Nothing, "0001:3b:00.0": Nothing, "0": Nothing, "": Nothing,
	} {
		if got := Names(word, uuid, pci); got != want {
			t.Errorf("%q: %v, want %v", word, got, want)
		}
	}
	if Names("", uuid, "") != Nothing {
		t.Error("an empty word names a GPU without an address")
	}
}

func TestNearest(t *testing.T) {
	names := []string{"bob", "alice", "alice-2", "train-large"}
	for word, want := range map[string][]string{
		"alcie": {"alice"}, "Alice": {"alice", "alice-2"}, "train": {"train-large"}, "xyzzy": nil, "": nil,
	} {
		got := Nearest(word, names)
		if len(want) > 0 && (len(got) == 0 || got[0] != want[0]) || len(want) == 0 && word != "" && len(got) > 0 {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
	if got := Nearest("aaaaa", slices.Repeat([]string{"aaaab"}, 9)); len(got) != mostNear {
		t.Errorf("%d names", len(got))
	}
}
