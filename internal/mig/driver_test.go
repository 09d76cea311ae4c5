// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

// What a driver does not tell follows from what it tells, for every model.
func TestDriverThatAgrees(t *testing.T) {
	table, err := Default()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range table.Products() {
		got, differences, err := WithDriver(p, p.Names[0], p.Profiles)
		if err != nil || len(differences) > 0 {
			t.Errorf("%s: %v, %v", p.Key, differences, err)
		}
		if !reflect.DeepEqual(got, p) {
			t.Errorf("%s: %+v, want %+v", p.Key, got, p)
		}
	}
}

// A driver that tells otherwise is believed, and each difference has both values.
func TestDriverThatDiffers(t *testing.T) {
	table, err := Default()
	if err != nil {
		t.Fatal(err)
	}
	a100, _ := table.ByName("NVIDIA A100-SXM4-80GB")
	told := slices.Clone(a100.Profiles)
	at := func(name string) *Profile { return &told[a100.Index(name)] }
	at("7g.80gb").Name = "7g.79gb"
	at("2g.20gb").Name = "2g.19gb"
	at("3g.40gb").Starts = []int{4, 0, 2}
	at("1g.10gb").MemoryMiB += 100
	at("1g.20gb").NVML = 99 // another profile, then
	at("4g.40gb").ID = 77
	got, differences, err := WithDriver(a100, "A100", told)
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, d := range differences {
		words = append(words, d.String())
	}
	want := []string{
		"1g.20gb: there in the table, not there by the driver",
		"2g.20gb: name: 2g.20gb in the table, 2g.19gb by the driver",
		"3g.40gb: starts: [0 4] in the table, [0 2 4] by the driver",
		"1g.20gb: not there in the table, there by the driver",
	}
	if !slices.Equal(words, want) {
		t.Errorf("%s", strings.Join(words, "\n"))
	}
	for _, names := range [][]string{{"7g.79gb", "7g.80gb"}, {"2g.19gb", "2g.20gb"}} {
		if i := got.Index(names[0]); i < 0 || i != got.Index(names[1]) || got.Profiles[i].Name != names[0] {
			t.Errorf("%v: %d and %d", names, got.Index(names[0]), got.Index(names[1]))
		}
	}
	if f := got.Profiles[got.Index("4g.40gb")]; f.ID != 77 {
		t.Errorf("4g.40gb has number %d", f.ID)
	}
	if a100.Index("2g.19gb") >= 0 {
		t.Error("the table itself was changed")
	}
}

// A card that the table does not know is what its driver says; nonsense is not.
func TestDriverAlone(t *testing.T) {
	told := []Profile{
		{Name: "1g.20gb", NVML: 0, Slices: 1, Most: 3, Size: 1, Starts: []int{0, 1, 2}, Engines: Engines{Dec: 1}},
		{Name: "3g.60gb", NVML: 2, Slices: 3, Most: 1, Size: 3, Starts: []int{0}, Engines: Engines{Dec: 3, OFA: 1}},
	}
	p, differences, err := WithDriver(nil, "NVIDIA X900", told)
	if err != nil || len(differences) > 0 || p.Units != 3 || p.Slices != 3 || p.Engines != (Engines{Dec: 3, OFA: 1}) || p.Index("3g.60gb") != 1 {
		t.Errorf("%+v, %v, %v", p, differences, err)
	}
	told[1].Starts = []int{20}
	if _, _, err := WithDriver(nil, "NVIDIA X900", told); err == nil {
		t.Error("a GPU of 23 units")
	}
	if _, _, err := WithDriver(nil, "NVIDIA X900", nil); err == nil {
		t.Error("a GPU without profiles")
	}
}
