// SPDX-License-Identifier: Apache-2.0

// Package amd divides AMD's cards by the modes that the amdgpu driver offers in
// current_compute_partition and current_memory_partition.
//
// A compute mode is taken when it is written. A memory mode is only asked for:
// when the driver lets go of the first card of those that XGMI joins, it hands
// the request to the firmware of all of them, and when it has taken the last one
// again it resets them together into the new mode. So all of them are let go of
// first, then all are taken again; with one of them elsewhere the others would
// wait for it. In which compute mode they come back is the driver's choice.
// Nothing shows a request, and writing the mode that is does not withdraw it.
//
// Facts are from the driver of Linux 6.13 and later (amdgpu_gmc.c:
// current_memory_partition_store, amdgpu_gmc_prepare_nps_mode_change;
// amdgpu_xgmi.c: amdgpu_xgmi_request_nps_change, amdgpu_xgmi_reset_on_init;
// amdgpu_xcp.c; aqua_vanjaram.c) and AMD's guides on partitioning.
package amd

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/gpu/amd"
	"github.com/divvy-gpu/divvy/internal/gpu/sysfs"
	"github.com/divvy-gpu/divvy/internal/partition"
	"github.com/divvy-gpu/divvy/internal/partition/kernel"
	"github.com/divvy-gpu/divvy/internal/partition/vfio"
)

// Goal is the modes that are wanted; an absent one stays as it is.
type Goal struct {
	Compute string `yaml:"compute,omitempty" json:"compute,omitempty"` // SPX, DPX, TPX, QPX, CPX
	Memory  string `yaml:"memory,omitempty" json:"memory,omitempty"`   // NPS1, NPS2, NPS4, NPS8
}

func (a *Goal) Validate() error {
	if a.Compute == "" && a.Memory == "" {
		return errors.New("neither compute nor memory is given")
	}
	for _, mode := range []string{a.Compute, a.Memory} {
		if err := checkMode(mode); err != nil {
			return err
		}
	}
	return nil
}

// Modes is the modes of a card, and those that its driver offers.
type Modes struct {
	Compute      string   `yaml:"compute" json:"compute"`
	Memory       string   `yaml:"memory,omitempty" json:"memory,omitempty"`
	ComputeModes []string `yaml:"computeModes,flow" json:"computeModes"`
	MemoryModes  []string `yaml:"memoryModes,omitempty,flow" json:"memoryModes,omitempty"`
	// Hive is the addresses of the cards that XGMI joins, this one too: they have
	// one memory mode. Strangers are cards that may be joined with it too, but that
	// another driver has.
	Hive      []string `yaml:"hive,omitempty,flow" json:"hive,omitempty"`
	Strangers []string `yaml:"strangers,omitempty,flow" json:"strangers,omitempty"`
}

func (m *Modes) Validate() error {
	for _, mode := range append([]string{m.Compute, m.Memory}, append(m.ComputeModes, m.MemoryModes...)...) {
		if err := checkMode(mode); err != nil {
			return err
		}
	}
	return nil
}

func (m *Modes) Layout(partition.Card) string {
	return strings.TrimSuffix("partition mode "+m.Compute+"/"+m.Memory, "/")
}

// Of is a card's modes; nil: it has none, or nobody was asked.
func Of(c partition.Card) *Modes { return partition.DivisionOf[*Modes](c, partition.TechniqueAMD) }

// Beside is nothing while vfio-pci has the card, and nobody knows of them.
func (m *Modes) Beside(now partition.Card) partition.Division {
	if p := vfio.Of(now); p != nil && p.Handed() {
		return nil
	}
	return m
}

// Brings says whether a change of modes gives cards back to a driver.
func (*Modes) Brings(name string) bool { return name == driver }

func (m *Modes) Lines() []string {
	line := m.Layout(partition.Card{}) + " of " + strings.Join(m.ComputeModes, ", ")
	if m.MemoryModes != nil {
		line += " and " + strings.Join(m.MemoryModes, ", ")
	}
	return []string{line}
}

func checkMode(mode string) error {
	if !regexp.MustCompile(`^([A-Z]{3}|NPS[1-9])?$`).MatchString(mode) {
		return fmt.Errorf("%q is no mode: they are called like CPX and NPS4", mode)
	}
	return nil
}

// Technique is AMD's partition modes.
type Technique struct{ kernel.Files }

var _ partition.Joiner = Technique{}

// New returns the modes of a kernel's cards; nil: it plans only.
func New(k *kernel.Kernel) partition.Technique {
	return Technique{kernel.Files{Kernel: k, Look: observe}}
}

// driver is the only one that has partition modes.
const driver = "amdgpu"

// Files that are written.
const (
	computeMode = "current_compute_partition"
	memoryMode  = "current_memory_partition"
	unbind      = "sys/bus/pci/drivers/" + driver + "/unbind"
	probe       = "sys/bus/pci/drivers_probe"
)

// Turns in which cards that XGMI joins take their steps.
const (
	turnAsk = 1 + iota
	turnLetGo
	turnTake
	turnCompute
)

// legal says with which memory modes a compute mode goes. What a card offers is
// its driver's word; this is the union over MI300 and MI350.
func legal(compute string) []string {
	return map[string][]string{
		"SPX": {"NPS1"}, "DPX": {"NPS1", "NPS2"}, "TPX": {"NPS1", "NPS4"}, "QPX": {"NPS1", "NPS4"}, "CPX": {"NPS1", "NPS2", "NPS4"},
	}[compute]
}

// fitting is the compute mode for a memory mode with which the present one does
// not go: as many partitions as the memory has, which is what the driver takes by
// itself (three on an MI300A, whose NPS4 has three).
func fitting(memory string, offered []string) string {
	for _, compute := range map[string][]string{"NPS1": {"SPX"}, "NPS2": {"DPX"}, "NPS4": {"QPX", "TPX"}}[memory] {
		if slices.Contains(offered, compute) {
			return compute
		}
	}
	return "CPX"
}

// observe reads a card's modes; one that has no attribute for them has one mode.
func observe(bus *sysfs.Bus, f sysfs.Function, c *partition.Card) {
	if c.Vendor != gpu.VendorAMD {
		return
	}
	tree := bus.Tree()
	compute := mode(tree, f, computeMode)
	if compute == "" {
		return
	}
	m := &Modes{Compute: compute, Memory: mode(tree, f, memoryMode)}
	// Those of all memory modes, where the driver tells them.
	m.ComputeModes = offered(tree, f, m.Compute, "compute_partition_config/supported_xcp_configs", "available_compute_partition")
	m.MemoryModes = offered(tree, f, m.Memory, "available_memory_partition")
	m.Hive, m.Strangers = amd.Hive(bus, f)
	*c = c.With(partition.TechniqueAMD, m)
}

func mode(tree *sysfs.Tree, f sysfs.Function, name string) string {
	return strings.TrimSuffix(tree.Text(path.Join(f.Folder, name)).Value, "UNKNOWN")
}

// offered lists the modes in the first of some files that is there, and the
// present one.
func offered(tree *sysfs.Tree, f sysfs.Function, current string, names ...string) []string {
	var modes []string
	for _, name := range names {
		text := tree.Text(path.Join(f.Folder, name))
		if modes = strings.FieldsFunc(text.Value, func(r rune) bool { return r == ',' || r == ' ' }); text.Known {
			break
		}
	}
	if current != "" && !slices.Contains(modes, current) {
		modes = append(modes, current)
	}
	return modes
}

func (Technique) Name() string { return partition.TechniqueAMD }

func (Technique) About() partition.About {
	return partition.About{
		Want: func() partition.Want { return &Goal{} }, Division: func() partition.Division { return &Modes{} },
		Explanation: partition.Explanation{
			Title: "compute and memory partition modes", Vendors: "amd (MI300 and later)",
			Goal: "amd: {compute: CPX, memory: NPS4}",
			Isolation: []string{
				"memory: NPS4 keeps a partition to its quadrant; with NPS1 all is shared", "compute: own dies (XCD)", "faults: a reset takes the whole GPU",
				"side channels: the last cache and the fabric are shared",
			},
			Cost:  "equal parts only, all partitions at once",
			Needs: "an idle GPU; NPS4 goes with CPX, QPX and TPX, NPS1 with all; for a memory mode, all GPUs that XGMI joins idle: the driver lets go of them and takes them again",
		},
	}
}

// On says whether a card is more than one partition.
func (Technique) On(c partition.Card) bool { return Of(c) != nil && Of(c).Compute != "SPX" }

// Aim sets the modes. What is in use is not given up with force either: the
// driver would refuse, or be taken from under its users.
func (t Technique) Aim(c partition.Card, r partition.Rule, _ bool) (partition.Card, error) {
	has, goal := Of(c), r.Wants[t.Name()].(*Goal)
	if has == nil {
		return c, fmt.Errorf("%w: %s has no partition modes", partition.ErrImpossible, c.Name)
	}
	want := *has
	if goal.Memory != "" {
		want.Memory = goal.Memory
	}
	switch with := legal(want.Compute); {
	case goal.Compute != "":
		want.Compute = goal.Compute
	case want.Memory != has.Memory && with != nil && !slices.Contains(with, want.Memory):
		want.Compute = fitting(want.Memory, has.ComputeModes)
	}
	for _, mode := range []struct {
		what, name string
		offered    []string
	}{{"compute", want.Compute, has.ComputeModes}, {"memory", want.Memory, has.MemoryModes}} {
		if mode.name != "" && !slices.Contains(mode.offered, mode.name) {
			return c, fmt.Errorf("%w: %s has no %s mode %s; it has %s", partition.ErrImpossible, c.Name, mode.what, mode.name, cmp.Or(strings.Join(mode.offered, ", "), "none"))
		}
	}
	if with := legal(want.Compute); want.Memory != "" && with != nil && !slices.Contains(with, want.Memory) {
		return c, fmt.Errorf("%w: %s goes with %s, not with %s", partition.ErrImpossible, want.Compute, strings.Join(with, " or "), want.Memory)
	}
	changes := want.Compute != has.Compute || want.Memory != has.Memory
	if want.Memory != has.Memory && len(has.Hive) > 1 && vfio.Wanted(r) {
		return c, fmt.Errorf("%w: GPUs that XGMI joins go back to their memory mode only while %s has them all: apply the memory mode first, then hand GPUs to guests", partition.ErrImpossible, driver)
	}
	if want.Memory != has.Memory && len(has.Strangers) > 0 {
		return c, fmt.Errorf("%w: a memory mode is for all GPUs that XGMI joins, and %s, which may be one of them, is not driven by %s", partition.ErrImpossible, strings.Join(has.Strangers, ", "), driver)
	}
	if changes && len(c.Processes) > 0 {
		return c, fmt.Errorf("%w: the mode of a GPU changes only when no program uses it; it is used by %s", partition.ErrInUse, partition.Describe(c.Processes))
	}
	return c.With(t.Name(), &want), nil
}

// Joined are the cards that XGMI joins, where the memory mode changes.
func (Technique) Joined(from, to partition.Card) ([]string, string) {
	has, want := Of(from), Of(to)
	if has == nil || want == nil || has.Memory == want.Memory || len(has.Hive) < 2 {
		return nil, ""
	}
	return has.Hive, "memory mode " + want.Memory + " instead of " + has.Memory
}

// Rejoin lets all cards of a hive go through what one does: they come back only
// together. While one tells no modes they come back first, whatever they are then.
func (Technique) Rejoin(c partition.Card, own, all []partition.Step) []partition.Step {
	asked, taken := inTurn(all, turnAsk), inTurn(all, turnTake)
	if taken == 0 || asked == taken && inTurn(own, turnTake) > 0 {
		return own
	}
	return anew(c)
}

func inTurn(steps []partition.Step, turn int) int {
	n := 0
	for _, s := range steps {
		if s.Turn == turn {
			n++
		}
	}
	return n
}

func write(file, value string, turn int, why string) partition.Step {
	return partition.Step{Action: partition.ActionWrite, File: file, Value: value, Turn: turn, Why: why}
}

// anew has the driver take a card anew.
func anew(c partition.Card) []partition.Step {
	var steps []partition.Step
	if c.Driver == driver {
		steps = append(steps, write(unbind, c.Address, turnLetGo, driver+" lets go of it"))
	}
	return append(steps, write(probe, c.Address, turnTake, driver+" takes it again"))
}

// Steps is one write for a compute mode: the driver makes all partitions anew. A
// card that tells no modes is one that the driver let go of, or that waits for
// others; when it is back there is more to be seen.
func (Technique) Steps(from, to partition.Card) []partition.Step {
	has, want := Of(from), Of(to)
	switch {
	case want == nil, has == nil && from.Driver != "" && from.Driver != driver:
		return nil
	case has == nil:
		return anew(from)
	}
	compute := write(sysfs.Attribute(from.Address, computeMode), want.Compute, 0, "it is "+has.Compute+"; all partitions of the GPU are made anew")
	switch {
	case has.Memory != want.Memory:
		ask := write(sysfs.Attribute(from.Address, memoryMode), want.Memory, turnAsk, "it is "+has.Memory+"; asked for now, taken when "+driver+" takes the GPU again")
		compute.Turn, compute.Why = turnCompute, "whichever it came back in"
		return slices.Concat([]partition.Step{ask}, anew(from), []partition.Step{compute})
	case has.Compute != want.Compute:
		return []partition.Step{compute}
	}
	return nil
}

// Busy words who uses the card.
func (Technique) Busy(c partition.Card, _ []partition.Step) string {
	return partition.Describe(c.Processes)
}
