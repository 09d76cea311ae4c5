// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"strconv"
	"strings"
)

// profiles7 is the geometry that all parts with seven compute slices and eight
// memory units have; memory holds the sizes in the names of 1, 2, 4 and 8 units.
func profiles7(memory [4]string) []Profile {
	return []Profile{
		{Name: "1g." + memory[0], Slices: 1, Width: 1, Most: 7, Starts: []int8{0, 1, 2, 3, 4, 5, 6}},
		{Name: "1g." + memory[0] + "+me", Slices: 1, Width: 1, Most: 1, Starts: []int8{0, 1, 2, 3, 4, 5, 6}, Media: true},
		{Name: "1g." + memory[1], Slices: 1, Width: 2, Most: 4, Starts: []int8{0, 2, 4, 6}},
		{Name: "2g." + memory[1], Slices: 2, Width: 2, Most: 3, Starts: []int8{0, 2, 4}},
		{Name: "3g." + memory[2], Slices: 3, Width: 4, Most: 2, Starts: []int8{0, 4}},
		{Name: "4g." + memory[2], Slices: 4, Width: 4, Most: 1, Starts: []int8{0}},
		{Name: "7g." + memory[3], Slices: 7, Width: 8, Most: 1, Starts: []int8{0}, Media: true},
	}
}

// Geometries returns the partitioning rules of the card models that the
// planner knows, by the keys of data/mig-profiles.yaml. On a live card the
// driver's own answer wins.
func Geometries() map[string]*Geometry {
	out := map[string]*Geometry{
		"a30-24gb": {Product: "a30-24gb", Names: []string{"NVIDIA A30"}, Units: 4, MaxSlices: 4, Profiles: []Profile{
			{Name: "1g.6gb", Slices: 1, Width: 1, Most: 4, Starts: []int8{0, 1, 2, 3}},
			{Name: "1g.6gb+me", Slices: 1, Width: 1, Most: 1, Starts: []int8{0, 1, 2, 3}, Media: true},
			{Name: "2g.12gb", Slices: 2, Width: 2, Most: 2, Starts: []int8{0, 2}},
			{Name: "2g.12gb+me", Slices: 2, Width: 2, Most: 1, Starts: []int8{0, 2}, Media: true},
			{Name: "4g.24gb", Slices: 4, Width: 4, Most: 1, Starts: []int8{0}, Media: true},
		}},
	}
	for _, part := range []struct {
		key    string
		memory [4]string
		names  []string
	}{
		{"a100-40gb", [4]string{"5gb", "10gb", "20gb", "40gb"},
			[]string{"NVIDIA A100-SXM4-40GB", "NVIDIA A100-PCIE-40GB", "NVIDIA A800-SXM4-40GB", "NVIDIA A800 40GB"}},
		{"a100-80gb", [4]string{"10gb", "20gb", "40gb", "80gb"},
			[]string{"NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB PCIe", "NVIDIA A100-PCIE-80GB", "NVIDIA A800-SXM4-80GB", "NVIDIA A800 80GB PCIe"}},
		{"h100-sxm-80gb", [4]string{"10gb", "20gb", "40gb", "80gb"}, []string{"NVIDIA H100 80GB HBM3", "NVIDIA H800"}},
		{"h100-pcie-80gb", [4]string{"10gb", "20gb", "40gb", "80gb"}, []string{"NVIDIA H100 PCIe", "NVIDIA H800 PCIe"}},
		{"h100-94gb", [4]string{"12gb", "24gb", "47gb", "94gb"}, []string{"NVIDIA H100 NVL", "NVIDIA H800 NVL", "NVIDIA H100 SXM5 94GB"}},
		{"gh200-96gb", [4]string{"12gb", "24gb", "48gb", "96gb"}, []string{"NVIDIA GH200 480GB", "NVIDIA GH200 120GB", "NVIDIA H100 96GB"}},
		{"h20-96gb", [4]string{"12gb", "24gb", "48gb", "96gb"}, []string{"NVIDIA H20"}},
		{"gh200-144gb", [4]string{"18gb", "36gb", "72gb", "144gb"}, []string{"NVIDIA GH200 144G HBM3e"}},
		{"h200-141gb", [4]string{"18gb", "35gb", "71gb", "141gb"}, []string{"NVIDIA H200", "NVIDIA H200 NVL"}},
		{"b200-180gb", [4]string{"23gb", "45gb", "90gb", "180gb"}, []string{"NVIDIA B200"}},
		{"gb200-186gb", [4]string{"23gb", "47gb", "93gb", "186gb"}, []string{"NVIDIA GB200"}},
		{"b300-269gb", [4]string{"34gb", "67gb", "135gb", "269gb"}, []string{"NVIDIA B300"}},
		{"gb300-278gb", [4]string{"35gb", "70gb", "139gb", "278gb"}, []string{"NVIDIA GB300"}},
	} {
		out[part.key] = &Geometry{Product: part.key, Names: part.names, Units: 8, MaxSlices: 7, Profiles: profiles7(part.memory)}
	}
	return out
}

// GeometryOf returns the rules of a card model, by its key, by the driver's
// name of it, or by the cluster label made from that name; nil when unknown.
func GeometryOf(model string) *Geometry {
	plain := func(name string) string {
		name = strings.ToLower(strings.ReplaceAll(name, " ", "-"))
		name, _, _ = strings.Cut(name, "-mig-")
		return strings.TrimSuffix(strings.TrimPrefix(name, "nvidia-"), "-shared")
	}
	for key, g := range Geometries() {
		if plain(model) == key {
			return g
		}
		for _, name := range g.Names {
			if plain(model) == plain(name) {
				return g
			}
		}
	}
	return nil
}

// Smallest returns the narrowest profile that has at least the given part of
// the card's cores and that memory; empty when only the whole card does.
// Partitions have a little less memory than their names say: 95 % is counted.
func (g *Geometry) Smallest(milli, needMiB int64) string {
	best := -1
	for i := range g.Profiles {
		p := &g.Profiles[i]
		if strings.Contains(p.Name, "+") || int64(p.Slices)*WholeCard < milli*int64(g.MaxSlices) || needMiB > p.memoryMiB() {
			continue
		}
		if best < 0 || cmp.Or(cmp.Compare(p.Width, g.Profiles[best].Width), cmp.Compare(p.Slices, g.Profiles[best].Slices)) < 0 {
			best = i
		}
	}
	if best < 0 || g.Profiles[best].Slices == g.MaxSlices {
		return ""
	}
	return g.Profiles[best].Name
}

// memoryMiB reads the memory off a profile's name, less 5 %.
func (p *Profile) memoryMiB() int64 {
	_, rest, _ := strings.Cut(p.Name, "g.")
	digits, _, _ := strings.Cut(rest, "gb")
	gib, err := strconv.ParseInt(digits, 10, 32)
	if err != nil {
		return 0
	}
	return gib * 1024 * 95 / 100
}

// AsShare returns the request with a part of a card in place of a partition of
// this geometry.
func (g *Geometry) AsShare(r Request) Request {
	if i := g.index(r.Profile); i >= 0 {
		r.Profile = ""
		r.GPUMilli = int64(g.Profiles[i].Slices) * WholeCard / int64(g.MaxSlices)
		r.GPUMemoryMiB = g.Profiles[i].memoryMiB()
	}
	return r
}
