// SPDX-License-Identifier: Apache-2.0

package partition

import (
	"slices"
	"strings"
)

// Names of techniques.
const (
	TechniqueVFIO     = "passthrough"
	TechniqueMIG      = "mig"
	TechniqueSRIOV    = "sriov"
	TechniqueVGPU     = "vgpu"
	TechniqueAMD      = "amd-partition"
	TechniqueGVTg     = "gvt-g"
	TechniqueMPS      = "mps"
	TechniqueReplicas = "replicas"

	techniqueShare = "share" // which no goal speaks of
)

// inOrder is the techniques in the order in which a card's divisions are told, with
// the names of their fields in documents.
var inOrder = []struct{ name, field string }{
	{TechniqueMIG, "mig"}, {TechniqueAMD, "amd"}, {TechniqueSRIOV, "sriov"}, {TechniqueVGPU, "vgpu"}, {TechniqueGVTg, "gvtg"},
	{TechniqueVFIO, "vfio"}, {TechniqueMPS, "mps"}, {TechniqueReplicas, "replicas"},
}

// byIsolation is all ways of dividing a card, the most isolated first.
var byIsolation = []string{
	TechniqueVFIO, TechniqueMIG, TechniqueSRIOV, TechniqueVGPU, TechniqueAMD, TechniqueGVTg, techniqueShare, TechniqueMPS, TechniqueReplicas,
}

// exclusions is what one card cannot have at once: the first beside any of the
// others.
var exclusions = []struct {
	one    string
	others []string
}{
	{TechniqueVFIO, []string{TechniqueMIG, TechniqueSRIOV, TechniqueVGPU, TechniqueAMD, TechniqueGVTg, TechniqueMPS, TechniqueReplicas}},
	{TechniqueVGPU, []string{TechniqueMPS, TechniqueReplicas}},
	{TechniqueAMD, []string{TechniqueSRIOV}},
	{techniqueShare, []string{TechniqueVFIO, TechniqueMIG, TechniqueSRIOV, TechniqueVGPU, TechniqueAMD, TechniqueGVTg}},
	{TechniqueMPS, []string{TechniqueMIG}},
	{TechniqueReplicas, []string{TechniqueMIG}},
}

// excludes says whether a card cannot be divided by both of two techniques.
func excludes(one, other string) bool { return slices.Contains(against(one), other) }

// against lists what a technique excludes on the same card.
func against(name string) []string {
	var all []string
	for _, e := range exclusions {
		if e.one == name {
			all = append(all, e.others...)
		} else if slices.Contains(e.others, name) {
			all = append(all, e.one)
		}
	}
	slices.SortFunc(all, func(a, b string) int { return slices.Index(byIsolation, a) - slices.Index(byIsolation, b) })
	return all
}

// Explanation says what a way of dividing a card gives, costs, needs and excludes.
type Explanation struct {
	Name      string   `json:"name"`
	Title     string   `json:"title"`
	Vendors   string   `json:"vendors"`
	Isolation []string `json:"isolation"` // memory, compute, faults, side channels
	Cost      string   `json:"cost"`
	Needs     string   `json:"needs"`
	Excludes  string   `json:"excludes"`          // what is said of a technique is besides those of Against
	Against   []string `json:"against,omitempty"` // techniques that a card cannot have beside it
	Goal      string   `json:"goal,omitempty"`    // how a rule of a goal asks for it
}

// Answers says whether a technique goes by a name: its own, or that of its field in a
// rule.
func (e Explanation) Answers(name string) bool {
	field, _, _ := strings.Cut(e.Goal, ":")
	return name != "" && (name == e.Name || name == field)
}

// Explanations lists the ways of dividing a card, the most isolated first.
func (all Techniques) Explanations() []Explanation {
	list := []Explanation{{
		Name: techniqueShare, Title: "Divvy share", Vendors: "nvidia (CUDA)",
		Isolation: []string{
			"memory: held by a library in the program, for all APIs; not against a program that means to get around it", "compute: by leases between launches, where it is on", "faults: a fault that kills the GPU's context kills one program; a reset takes all",
			"side channels: not closed",
		},
		Cost:     "nanoseconds a call (docs/benchmarks.md)",
		Needs:    "nothing: no root, no change of programs",
		Excludes: "static programs that do without the driver's library",
	}}
	for _, t := range all {
		e := t.About().Explanation
		e.Name = t.Name()
		list = append(list, e)
	}
	for i := range list {
		e := &list[i]
		e.Against = against(e.Name)
		var words []string
		if e.Against != nil {
			words = []string{strings.Join(e.Against, ", ") + " on the same GPU"}
		}
		if e.Excludes != "" {
			words = append(words, e.Excludes)
		}
		e.Excludes = strings.Join(words, "; ")
	}
	slices.SortFunc(list, func(a, b Explanation) int {
		return slices.Index(byIsolation, a.Name) - slices.Index(byIsolation, b.Name)
	})
	return list
}
