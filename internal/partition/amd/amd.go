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
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/gpu/amd"
	"github.com/divvy-gpu/divvy/internal/gpu/sysfs"
	"github.com/divvy-gpu/divvy/internal/partition"
)

// Technique is AMD's partition modes.
type Technique struct{}

var (
	_ partition.Technique = Technique{}
	_ partition.Joiner    = Technique{}
)

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

// Observe reads a card's modes; one that has no attribute for them has one mode.
func (Technique) Observe(bus *sysfs.Bus, f sysfs.Function, c *partition.Card) {
	if c.Vendor != gpu.VendorAMD {
		return
	}
	tree := bus.Tree()
	compute := mode(tree, f, computeMode)
	if compute == "" {
		return
	}
	c.AMD = &partition.AMDModes{Compute: compute, Memory: mode(tree, f, memoryMode)}
	// Those of all memory modes, where the driver tells them.
	c.AMD.ComputeModes = offered(tree, f, c.AMD.Compute, "compute_partition_config/supported_xcp_configs", "available_compute_partition")
	c.AMD.MemoryModes = offered(tree, f, c.AMD.Memory, "available_memory_partition")
	c.AMD.Hive, c.AMD.Strangers = amd.Hive(bus, f)
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

// Name is partition.TechniqueAMD.
func (Technique) Name() string { return partition.TechniqueAMD }

// On says whether a card is more than one partition.
func (Technique) On(c partition.Card) bool { return c.AMD != nil && c.AMD.Compute != "SPX" }

// Aim sets the modes. What is in use is not given up with force either: the
// driver would refuse, or be taken from under its users.
func (Technique) Aim(c partition.Card, r partition.Rule, _ bool) (partition.Card, error) {
	if c.AMD == nil {
		return c, fmt.Errorf("%w: %s has no partition modes", partition.ErrImpossible, c.Name)
	}
	want := *c.AMD
	if r.AMD.Memory != "" {
		want.Memory = r.AMD.Memory
	}
	switch with := legal(want.Compute); {
	case r.AMD.Compute != "":
		want.Compute = r.AMD.Compute
	case want.Memory != c.AMD.Memory && with != nil && !slices.Contains(with, want.Memory):
		want.Compute = fitting(want.Memory, c.AMD.ComputeModes)
	}
	for _, mode := range []struct {
		what, name string
		offered    []string
	}{{"compute", want.Compute, c.AMD.ComputeModes}, {"memory", want.Memory, c.AMD.MemoryModes}} {
		if mode.name != "" && !slices.Contains(mode.offered, mode.name) {
			return c, fmt.Errorf("%w: %s has no %s mode %s; it has %s", partition.ErrImpossible, c.Name, mode.what, mode.name, cmp.Or(strings.Join(mode.offered, ", "), "none"))
		}
	}
	if with := legal(want.Compute); want.Memory != "" && with != nil && !slices.Contains(with, want.Memory) {
		return c, fmt.Errorf("%w: %s goes with %s, not with %s", partition.ErrImpossible, want.Compute, strings.Join(with, " or "), want.Memory)
	}
	changes := want.Compute != c.AMD.Compute || want.Memory != c.AMD.Memory
	if want.Memory != c.AMD.Memory && len(c.AMD.Hive) > 1 && r.VFIO != nil && r.VFIO.Enabled {
		return c, fmt.Errorf("%w: cards that XGMI joins go back to their memory mode only while %s has them all: apply the memory mode first, then hand cards to guests", partition.ErrImpossible, driver)
	}
	if want.Memory != c.AMD.Memory && len(c.AMD.Strangers) > 0 {
		return c, fmt.Errorf("%w: a memory mode is for all cards that XGMI joins, and %s, which may be one of them, is not driven by %s", partition.ErrImpossible, strings.Join(c.AMD.Strangers, ", "), driver)
	}
	if changes && len(c.Processes) > 0 {
		return c, fmt.Errorf("%w: the mode of a card changes only when nobody uses it; it is used by %s", partition.ErrInUse, partition.Describe(c.Processes))
	}
	c.AMD = &want
	return c, nil
}

// Joined are the cards that XGMI joins, where the memory mode changes.
func (Technique) Joined(from, to partition.Card) ([]string, string) {
	if from.AMD == nil || to.AMD == nil || from.AMD.Memory == to.AMD.Memory || len(from.AMD.Hive) < 2 {
		return nil, ""
	}
	return from.AMD.Hive, "memory mode " + to.AMD.Memory + " instead of " + from.AMD.Memory
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
	switch {
	case to.AMD == nil, from.AMD == nil && from.Driver != "" && from.Driver != driver:
		return nil
	case from.AMD == nil:
		return anew(from)
	}
	compute := write(sysfs.Attribute(from.Address, computeMode), to.AMD.Compute, 0, "it is "+from.AMD.Compute+"; all partitions of the card are made anew")
	switch {
	case from.AMD.Memory != to.AMD.Memory:
		ask := write(sysfs.Attribute(from.Address, memoryMode), to.AMD.Memory, turnAsk, "it is "+from.AMD.Memory+"; asked for now, taken when "+driver+" takes the card again")
		compute.Turn, compute.Why = turnCompute, "whichever it came back in"
		return slices.Concat([]partition.Step{ask}, anew(from), []partition.Step{compute})
	case from.AMD.Compute != to.AMD.Compute:
		return []partition.Step{compute}
	}
	return nil
}

// Busy words who uses the card.
func (Technique) Busy(c partition.Card, _ []partition.Step) string {
	return partition.Describe(c.Processes)
}
