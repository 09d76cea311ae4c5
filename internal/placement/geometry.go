// SPDX-License-Identifier: Apache-2.0

package placement

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
		"a30-24gb": {Product: "a30-24gb", Units: 4, MaxSlices: 4, Profiles: []Profile{
			{Name: "1g.6gb", Slices: 1, Width: 1, Most: 4, Starts: []int8{0, 1, 2, 3}},
			{Name: "1g.6gb+me", Slices: 1, Width: 1, Most: 1, Starts: []int8{0, 1, 2, 3}, Media: true},
			{Name: "2g.12gb", Slices: 2, Width: 2, Most: 2, Starts: []int8{0, 2}},
			{Name: "2g.12gb+me", Slices: 2, Width: 2, Most: 1, Starts: []int8{0, 2}, Media: true},
			{Name: "4g.24gb", Slices: 4, Width: 4, Most: 1, Starts: []int8{0}, Media: true},
		}},
	}
	for key, memory := range map[string][4]string{
		"a100-40gb":      {"5gb", "10gb", "20gb", "40gb"},
		"a100-80gb":      {"10gb", "20gb", "40gb", "80gb"},
		"h100-sxm-80gb":  {"10gb", "20gb", "40gb", "80gb"},
		"h100-pcie-80gb": {"10gb", "20gb", "40gb", "80gb"},
		"h100-94gb":      {"12gb", "24gb", "47gb", "94gb"},
		"gh200-96gb":     {"12gb", "24gb", "48gb", "96gb"},
		"h20-96gb":       {"12gb", "24gb", "48gb", "96gb"},
		"gh200-144gb":    {"18gb", "36gb", "72gb", "144gb"},
		"h200-141gb":     {"18gb", "35gb", "71gb", "141gb"},
		"b200-180gb":     {"23gb", "45gb", "90gb", "180gb"},
		"gb200-186gb":    {"23gb", "47gb", "93gb", "186gb"},
		"b300-269gb":     {"34gb", "67gb", "135gb", "269gb"},
		"gb300-278gb":    {"35gb", "70gb", "139gb", "278gb"},
	} {
		out[key] = &Geometry{Product: key, Units: 8, MaxSlices: 7, Profiles: profiles7(memory)}
	}
	return out
}
