// SPDX-License-Identifier: Apache-2.0

// Package amd divides AMD's cards by the modes that the amdgpu driver offers in
// current_compute_partition and current_memory_partition. Facts are from the
// driver (amdgpu_gfx.c, amdgpu_gmc.c, aqua_vanjaram.c of Linux 6.16) and AMD's
// partitioning guide. The compute mode is written; the memory mode is only
// planned, since the driver takes it when it is loaded anew, for all cards that
// XGMI joins at once.
package amd

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/gpu/sysfs"
	"github.com/divvy-gpu/divvy/internal/partition"
)

// Technique is AMD's partition modes.
type Technique struct{}

var _ partition.Technique = Technique{}

// attribute is the file of a card's compute mode.
const attribute = "current_compute_partition"

// legal says with which memory modes a compute mode goes. What a card offers is
// its driver's word; this is the union over MI300 and MI350.
func legal(compute string) []string {
	return map[string][]string{
		"SPX": {"NPS1"}, "DPX": {"NPS1", "NPS2"}, "TPX": {"NPS1", "NPS4"}, "QPX": {"NPS1", "NPS4"}, "CPX": {"NPS1", "NPS2", "NPS4"},
	}[compute]
}

// Observe reads a card's modes; one that has no attribute for them has one mode.
func (Technique) Observe(bus *sysfs.Bus, f sysfs.Function, c *partition.Card) {
	if c.Vendor != gpu.VendorAMD {
		return
	}
	compute, computeModes := modes(bus.Tree(), f, "compute")
	if compute == "" {
		return
	}
	c.AMD = &partition.AMDModes{Compute: compute, ComputeModes: computeModes}
	c.AMD.Memory, c.AMD.MemoryModes = modes(bus.Tree(), f, "memory")
}

func modes(tree *sysfs.Tree, f sysfs.Function, what string) (current string, available []string) {
	current = tree.Text(path.Join(f.Folder, "current_"+what+"_partition")).Value
	if current == "UNKNOWN" {
		return "", nil
	}
	text := tree.Text(path.Join(f.Folder, "available_"+what+"_partition")).Value
	available = strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
	if current != "" && !slices.Contains(available, current) {
		available = append(available, current)
	}
	return current, available
}

// Name is partition.TechniqueAMD.
func (Technique) Name() string { return partition.TechniqueAMD }

// On says whether a card is more than one partition.
func (Technique) On(c partition.Card) bool { return c.AMD != nil && c.AMD.Compute != "SPX" }

// Aim sets the compute mode. What is in use is not given up with force either:
// the driver would refuse.
func (Technique) Aim(c partition.Card, r partition.Rule, _ bool) (partition.Card, error) {
	if c.AMD == nil {
		return c, fmt.Errorf("%w: %s has no partition modes", partition.ErrImpossible, c.Name)
	}
	want := *c.AMD
	if r.AMD.Compute != "" {
		want.Compute = r.AMD.Compute
	}
	if r.AMD.Memory != "" {
		want.Memory = r.AMD.Memory
	}
	for _, mode := range []struct {
		what, name string
		offered    []string
	}{{"compute", want.Compute, c.AMD.ComputeModes}, {"memory", want.Memory, c.AMD.MemoryModes}} {
		if mode.name != "" && !slices.Contains(mode.offered, mode.name) {
			return c, fmt.Errorf("%w: %s has no %s mode %s; it has %s", partition.ErrImpossible, c.Name, mode.what, mode.name, strings.Join(mode.offered, ", "))
		}
	}
	if with := legal(want.Compute); want.Memory != "" && with != nil && !slices.Contains(with, want.Memory) {
		return c, fmt.Errorf("%w: %s goes with %s, not with %s", partition.ErrImpossible, want.Compute, strings.Join(with, " or "), want.Memory)
	}
	if want.Memory != c.AMD.Memory {
		return c, fmt.Errorf("%w: the driver takes a memory mode when it is loaded, for all cards that XGMI joins: "+
			"write %s to /sys/bus/pci/devices/ADDRESS/current_memory_partition of each, end what uses them, run modprobe -r amdgpu and modprobe amdgpu, and apply again",
			partition.ErrImpossible, want.Memory)
	}
	if want.Compute != c.AMD.Compute && len(c.Processes) > 0 {
		return c, fmt.Errorf("%w: the mode of a card changes only when nobody uses it; it is used by %s", partition.ErrInUse, partition.Describe(c.Processes))
	}
	c.AMD = &want
	return c, nil
}

// Steps is one write: the driver makes all partitions anew.
func (Technique) Steps(from, to partition.Card) []partition.Step {
	if from.AMD == nil || to.AMD == nil || from.AMD.Compute == to.AMD.Compute {
		return nil
	}
	return []partition.Step{{
		Action: partition.ActionWrite, File: sysfs.Attribute(from.Address, attribute), Value: to.AMD.Compute,
		Why: "it is " + from.AMD.Compute + "; all partitions of the card are made anew",
	}}
}

// Busy words who uses the card.
func (Technique) Busy(c partition.Card, _ []partition.Step) string {
	return partition.Describe(c.Processes)
}
