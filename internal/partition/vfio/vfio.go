// SPDX-License-Identifier: Apache-2.0

// Package vfio hands whole cards to guests: their functions are taken from their
// drivers and given to vfio-pci, by driver_override, unbind and drivers_probe.
// Facts are from the kernel's documents sysfs-bus-pci and vfio.
package vfio

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/gpu/sysfs"
	"github.com/divvy-gpu/divvy/internal/partition"
)

// Technique is passthrough by VFIO.
type Technique struct{}

var _ partition.Technique = Technique{}

const drivers = "sys/bus/pci/drivers"

// Observe reads who drives a card and what goes with it, and whether a guest could
// get it.
func (Technique) Observe(bus *sysfs.Bus, f sysfs.Function, c *partition.Card) {
	tree := bus.Tree()
	p := &partition.Passthrough{Group: tree.LinkBase(path.Join(f.Folder, "iommu_group")).Value, Console: bus.Console(f), Functions: []partition.DrivenFunction{function(tree, f.Address)}}
	for _, mate := range tree.Names(path.Join("sys/kernel/iommu_groups", p.Group, "devices")) {
		if other, _ := bus.Find(mate); p.Group != "" && mate != f.Address && sysfs.Slot(mate) == sysfs.Slot(f.Address) && other.Physical == "" {
			p.Functions = append(p.Functions, function(tree, mate))
		}
	}
	switch can := bus.Passthrough(f); {
	case can.Can == gpu.No:
		p.Cannot = can.Reason
	case can.Can == gpu.Unknown:
		p.Cannot = "the kernel tells of no IOMMU groups: switch the IOMMU on in firmware and kernel"
	case !tree.Exists(path.Join(drivers, partition.DriverVFIO)):
		p.Cannot = "vfio-pci is not loaded: run modprobe vfio-pci"
	}
	p.Users = slices.Clone(c.Processes)
	for _, h := range bus.Holders(gpu.Device{Address: f.Address, Nodes: bus.VFIONodes(f.Folder)}) {
		p.Users = append(p.Users, partition.Process{PID: h.PID, Command: h.Command})
	}
	c.VFIO = p
}

func function(tree *sysfs.Tree, address string) partition.DrivenFunction {
	f := partition.DrivenFunction{
		Address: address, Driver: tree.LinkBase(sysfs.Attribute(address, "driver")).Value,
		Override: tree.Text(sysfs.Attribute(address, "driver_override")).Value,
	}
	if f.Override == "(null)" {
		f.Override = ""
	}
	return f
}

// Name is partition.TechniqueVFIO.
func (Technique) Name() string { return partition.TechniqueVFIO }

// On says whether vfio-pci has the card.
func (Technique) On(c partition.Card) bool { return c.VFIO != nil && c.VFIO.Handed() }

// Aim hands a card over or takes it back. What is in use is not taken with force
// either: the kernel would wait for its user. The machine's console is spared.
func (t Technique) Aim(c partition.Card, r partition.Rule, force bool) (partition.Card, error) {
	if c.VFIO == nil || len(c.VFIO.Functions) == 0 {
		if !r.VFIO.Enabled {
			return c, nil
		}
		return c, fmt.Errorf("%w: %s is not on this machine's PCI bus", partition.ErrImpossible, c.Name)
	}
	if r.VFIO.Enabled && c.VFIO.Cannot != "" {
		return c, fmt.Errorf("%w: %s", partition.ErrImpossible, c.VFIO.Cannot)
	}
	after := *c.VFIO
	after.Functions = slices.Clone(c.VFIO.Functions)
	changes := false
	for i, f := range after.Functions {
		switch {
		case r.VFIO.Enabled && f.Driver != partition.DriverVFIO:
			after.Functions[i].Driver, after.Functions[i].Override, changes = partition.DriverVFIO, partition.DriverVFIO, true
		case !r.VFIO.Enabled && f.Driver == partition.DriverVFIO:
			after.Functions[i].Driver, after.Functions[i].Override, changes = partition.DriverAny, "", true
		}
	}
	if !changes {
		return c, nil
	}
	if r.VFIO.Enabled && c.VFIO.Console != "" && !force {
		return c, fmt.Errorf("%w: %s is this machine's console (%s), whose screen would go dark: "+
			"make another card the first one in the firmware's settings", partition.ErrSpared, c.Name, c.VFIO.Console)
	}
	if len(c.VFIO.Users) > 0 {
		return c, fmt.Errorf("%w: a card changes its driver only when nobody has it open; it is open in %s", partition.ErrInUse, partition.Describe(c.VFIO.Users))
	}
	c.VFIO = &after
	c.MIGUnknown = !c.MIG && (c.Vendor == "" || c.Vendor == gpu.VendorNVIDIA)
	return c, nil
}

// Steps takes functions from one driver and gives them to another.
func (Technique) Steps(from, to partition.Card) []partition.Step {
	if from.VFIO == nil || to.VFIO == nil {
		return nil
	}
	var steps []partition.Step
	write := func(file, value, why string) {
		steps = append(steps, partition.Step{Action: partition.ActionWrite, File: file, Value: value, Why: why})
	}
	for _, want := range to.VFIO.Functions {
		i := slices.IndexFunc(from.VFIO.Functions, func(f partition.DrivenFunction) bool { return f.Address == want.Address })
		if i < 0 {
			continue
		}
		now := from.VFIO.Functions[i]
		if now.Override != want.Override {
			why := "only " + want.Override + " is to take it"
			if want.Override == "" {
				why = "any driver may take it"
			}
			write(sysfs.Attribute(want.Address, "driver_override"), want.Override+"\n", why)
		}
		if now.Driver == want.Driver || want.Driver == partition.DriverAny && now.Driver != partition.DriverVFIO && now.Driver != "" {
			continue
		}
		if now.Driver != "" {
			write(path.Join(drivers, now.Driver, "unbind"), want.Address, now.Driver+" has it")
		}
		if want.Driver != "" && !brought(to, want.Driver) {
			write("sys/bus/pci/drivers_probe", want.Address, "a driver is to take it")
		}
	}
	return steps
}

// brought says whether AMD's techniques give a card back to its driver, which takes
// more than a probe: all cards of a hive, or the driver loaded.
func brought(to partition.Card, driver string) bool {
	return to.AMD != nil && driver == "amdgpu" || to.SRIOV != nil && to.SRIOV.Together != nil && driver == to.SRIOV.Driver
}

// Busy words who uses a card that would change its driver.
func (Technique) Busy(c partition.Card, steps []partition.Step) string {
	unbinds := func(s partition.Step) bool { return strings.HasSuffix(s.File, "/unbind") }
	if c.VFIO == nil || !slices.ContainsFunc(steps, unbinds) {
		return ""
	}
	return partition.Describe(c.VFIO.Users)
}
