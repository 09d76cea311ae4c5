// SPDX-License-Identifier: Apache-2.0

package partition

import (
	"slices"
	"strings"
)

// Explanation says what a way of dividing a card gives, costs, needs and excludes.
type Explanation struct {
	Name      string   `json:"name"`
	Title     string   `json:"title"`
	Vendors   string   `json:"vendors"`
	Isolation []string `json:"isolation"` // memory, compute, faults, side channels
	Cost      string   `json:"cost"`
	Needs     string   `json:"needs"`
	Excludes  string   `json:"excludes"`
	Against   []string `json:"against,omitempty"` // techniques that a card cannot have beside it
	Goal      string   `json:"goal,omitempty"`    // how a rule of a goal asks for it
}

// Answers says whether a technique goes by a name: its own, or that of its field in a
// rule.
func (e Explanation) Answers(name string) bool {
	field, _, _ := strings.Cut(e.Goal, ":")
	return name != "" && (name == e.Name || name == field)
}

// techniqueShare is how Explanations calls shares, which no goal speaks of.
const techniqueShare = "share"

// excludes says whether a card cannot be divided by both of two techniques.
func excludes(one, other string) bool {
	return slices.ContainsFunc(Explanations(), func(e Explanation) bool {
		return e.Name == one && slices.Contains(e.Against, other) || e.Name == other && slices.Contains(e.Against, one)
	})
}

// Explanations lists the ways of dividing a card, the most isolated first.
func Explanations() []Explanation {
	return []Explanation{
		{
			Name: "passthrough", Title: "the whole card to one guest (VFIO)", Vendors: "all",
			Goal: "vfio: {enabled: true}",
			Isolation: []string{
				"memory: the whole card, behind the IOMMU", "compute: the whole card", "faults: the guest's alone; a card that cannot be reset may take the host's bus with it",
				"side channels: none within the card; the bus is shared",
			},
			Cost:     "one guest a card, and the host loses the card",
			Needs:    "an IOMMU that is on, and a group that holds nothing else; another card for the machine's console",
			Excludes: "every other way on this card",
			Against:  []string{"mig", "sriov", "vgpu", "amd-partition", "gvt-g", "mps", "replicas"},
		},
		{
			Name: "mig", Title: "Multi-Instance GPU", Vendors: "nvidia (A30, A100, H100 and later data-centre cards; not L4, L40S, A10, A40)",
			Goal: "mig: {enabled: true, devices: {3g.40gb: 2}}",
			Isolation: []string{
				"memory: own slices of memory, cache and bandwidth", "compute: own processors", "faults: most stay within an instance; a reset takes all",
				"side channels: narrow; PCIe, power and clock are shared",
			},
			Cost:     "fixed sizes; on A100 and H100 one slice of eight has no processors; no NVLink between instances; no graphics on most",
			Needs:    "mode on (Ampere: a reset, so an idle card)",
			Excludes: "passthrough; sharing of the whole card; a program sees one instance",
		},
		{
			Name: "sriov", Title: "virtual functions", Vendors: "amd (MxGPU), intel (i915, xe), nvidia (carries vGPU)",
			Goal: "sriov: {vfs: 4}",
			Isolation: []string{
				"memory: own part, behind the IOMMU", "compute: time slices, by the card's scheduler", "faults: a function reset as a rule; a hang can hold up others for a slice",
				"side channels: caches are shared in time",
			},
			Cost:     "equal or provisioned parts, set before functions are on; nvidia: all functions of a card or none",
			Needs:    "firmware, IOMMU, and a driver that allows functions; nvidia: its sriov-manage, and a card that nobody has open; amd: its host driver gim, which is loaded anew for all its cards",
			Excludes: "changing the provisioning of a function in use",
		},
		{
			Name: "vgpu", Title: "NVIDIA vGPU", Vendors: "nvidia",
			Goal: "vgpu: {devices: {NVIDIA A40-12Q: 2}}",
			Isolation: []string{
				"memory: a fixed frame buffer", "compute: time slices (best effort, equal, fixed), or MIG slices for MIG-backed types", "faults: the guest's as a rule",
				"side channels: time-sliced types share caches",
			},
			Cost:     "a licence, and the host driver of the vGPU package",
			Needs:    "types of one size a card, unless it is set to mixed placement; virtual functions on most, which are switched on first",
			Excludes: "use of the same card by programs on the host",
			Against:  []string{"mps", "replicas"},
		},
		{
			Name: "amd-partition", Title: "compute and memory partition modes", Vendors: "amd (MI300 and later)",
			Goal: "amd: {compute: CPX, memory: NPS4}",
			Isolation: []string{
				"memory: NPS4 keeps a partition to its quadrant; with NPS1 all is shared", "compute: own dies (XCD)", "faults: a reset takes the whole card",
				"side channels: the last cache and the fabric are shared",
			},
			Cost:     "equal parts only, all partitions at once",
			Needs:    "an idle card; NPS4 goes with CPX, QPX and TPX, NPS1 with all; for a memory mode, all cards that XGMI joins idle: the driver lets go of them and takes them again",
			Excludes: "SR-IOV at the same time on most drivers",
			Against:  []string{"sriov"},
		},
		{
			Name: "gvt-g", Title: "Intel GVT-g", Vendors: "intel (Broadwell to Comet Lake graphics)",
			Goal:      "gvtg: {devices: {i915-GVTg_V5_8: 1}}",
			Isolation: []string{"memory: own part of the aperture", "compute: time slices by weight", "faults: a guest can hang all", "side channels: not closed"},
			Cost:      "legacy: no longer developed",
			Needs:     "a kernel that still has it, i915.enable_gvt=1",
			Excludes:  "newer graphics",
		},
		{
			Name: techniqueShare, Title: "Divvy share", Vendors: "nvidia (CUDA)",
			Isolation: []string{
				"memory: held by a library in the program, for all APIs; not against a program that means to get around it", "compute: by leases between launches, where it is on", "faults: a fault that kills the card's context kills one program; a reset takes all",
				"side channels: not closed",
			},
			Cost:     "nanoseconds a call (docs/benchmarks.md)",
			Needs:    "nothing: no root, no change of programs",
			Excludes: "static programs that do without the driver's library; every way that takes the card or makes parts of it",
			Against:  []string{"passthrough", "mig", "sriov", "vgpu", "amd-partition", "gvt-g"},
		},
		{
			Name: "mps", Title: "NVIDIA MPS", Vendors: "nvidia",
			Goal: "mps: {enabled: true}",
			Isolation: []string{
				"memory: own address spaces (Volta on); a limit that a client is asked to keep", "compute: at the same time, a part of the processors each", "faults: one client's fault ends all clients of the server",
				"side channels: not closed",
			},
			Cost:     "a daemon for one user; concurrency, not time-slicing",
			Needs:    "clients of one user, or a daemon started for all; 48 or 60 clients at most",
			Excludes: "a second user at the same time; MIG on the same card (docs/mps.md)",
			Against:  []string{"mig"},
		},
		{
			Name: "replicas", Title: "several programs on a card, without limits", Vendors: "all",
			Isolation: []string{"memory: none, the first takes all", "compute: the driver's time slices", "faults: as between any two programs", "side channels: not closed"},
			Cost:      "nothing",
			Needs:     "programs that trust each other",
			Excludes:  "a promise of any kind; MIG on the same card",
			Against:   []string{"mig"},
		},
	}
}
