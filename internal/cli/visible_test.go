// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"
)

func TestReadVisible(t *testing.T) {
	for _, c := range []struct{ list, kind, refused string }{
		{"", "", ""}, {"-1", "", ""}, {"none", "", ""}, {"0", kindNumber, ""}, {"0,1,2", kindNumber, ""}, {" 1 , 0 ", kindNumber, ""},
		{"GPU-ab", kindUUID, ""}, {"gpu-ab,GPU-cd", kindUUID, ""}, {"MIG-ab", kindMIG, ""}, {"MIG-GPU-ab/1/0", kindMIG, ""},
		// It ends at what is no name, and what follows is not looked at.
		{"0,-1,GPU-ab", kindNumber, ""}, {"0,,0", kindNumber, ""}, {"-1,0,GPU-ab", "", ""}, {"1x,GPU-ab", "", ""},
		{"0,GPU-ab", "", "by number and by UUID"}, {"GPU-ab,0", "", "by UUID and by number"}, {"MIG-ab,0", "", "by MIG device and by number"},
		{"GPU-ab,MIG-ab", "", "by UUID and by MIG device"}, {"0,1,0", "", "names 0 twice"}, {"GPU-AB,gpu-ab", "", "names gpu-ab twice"},
	} {
		kind, err := readVisible(c.list)
		switch {
		case c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)):
			t.Errorf("%q: %v, want a refusal: %s", c.list, err, c.refused)
		case c.refused == "" && (err != nil || kind != c.kind):
			t.Errorf("%q: %q, %v, want %q", c.list, kind, err, c.kind)
		}
	}
}

// What the driver shows nothing by is told apart from what is not here.
func TestNamedTwice(t *testing.T) {
	for list, want := range map[string]string{
		"": "", "7": "", "1,2": "", "1,01": "01", "GPU-ab,GPU-a": "gpu-a", "gpu-a, GPU-abc": "gpu-abc", "GPU-ab,GPU-ac": "",
		"x,1,1": "", "1,-1,1": "", "MIG-a,MIG-ab": "",
	} {
		if got := namedTwice(list); got != want {
			t.Errorf("%q: %q, want %q", list, got, want)
		}
	}
}

// FuzzReadVisible: whatever is taken has one kind of names up to the first that is none.
func FuzzReadVisible(f *testing.F) {
	for _, list := range []string{"", "0,1", "GPU-1,GPU-2", "MIG-x", "0,GPU-1", "0,0", "-1"} {
		f.Add(list)
	}
	f.Fuzz(func(t *testing.T, list string) {
		kind, err := readVisible(list)
		first, _ := readVisible(strings.SplitN(list, ",", 2)[0])
		if err == nil && kind != first {
			t.Errorf("%q has kind %q, and its first name %q", list, kind, first)
		}
	})
}
