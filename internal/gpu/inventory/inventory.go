// SPDX-License-Identifier: Apache-2.0

// Package inventory puts the readers of all vendors together into one list of a
// machine's cards, with the ways between them and the labels that follow.
package inventory

import (
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/gpu/amd"
	"github.com/divvy-gpu/divvy/internal/gpu/descriptor"
	"github.com/divvy-gpu/divvy/internal/gpu/intel"
	"github.com/divvy-gpu/divvy/internal/gpu/nvidia"
	"github.com/divvy-gpu/divvy/internal/gpu/sysfs"
	"github.com/divvy-gpu/divvy/internal/mig"
)

// Sources is what a machine is read from.
type Sources struct {
	Tree        *sysfs.Tree
	Products    *mig.Table
	Descriptors []descriptor.Descriptor
	Library     nvidia.Library // nil where NVIDIA's library is not asked
}

// Machine is the cards of one machine and what lies between them.
type Machine struct {
	Devices []gpu.Device `json:"devices"`
	Links   []gpu.Link   `json:"links"`
}

// Readers returns the readers of all vendors that have cards here or not.
func Readers(from Sources) []gpu.Reader {
	bus := sysfs.ReadBus(from.Tree)
	readers := []gpu.Reader{nvidia.New(bus, from.Products, from.Library), amd.New(bus), intel.New(bus)}
	for _, d := range from.Descriptors {
		readers = append(readers, descriptor.New(bus, d))
	}
	return readers
}

// Read lists the machine's cards in the order of the bus, each with its use,
// health and capabilities.
func Read(from Sources) Machine {
	m := Machine{Devices: []gpu.Device{}, Links: []gpu.Link{}}
	for _, r := range Readers(from) {
		for _, d := range r.Inventory() {
			// A card that went away between the questions has nothing to tell.
			d.Use, _ = r.Use(d.Address)
			d.Health, _ = r.Health(d.Address)
			d.Capabilities, _ = r.Capabilities(d.Address)
			m.Devices = append(m.Devices, d)
		}
		m.Links = append(m.Links, r.Topology()...)
	}
	slices.SortFunc(m.Devices, func(a, b gpu.Device) int { return strings.Compare(a.Address, b.Address) })
	return m
}

// Ways between two cards, closest first.
const (
	WaySelf    = "X"
	WayPIX     = "PIX"  // at most one PCIe switch
	WayPXB     = "PXB"  // several PCIe switches, no host bridge
	WayPHB     = "PHB"  // a host bridge
	WayNode    = "NODE" // several host bridges of one NUMA node
	WaySystem  = "SYS"  // between NUMA nodes
	WayUnknown = "?"
)

// Matrix says how each card reaches each other one: by fabric where there is
// some, else by the way over PCIe.
func (m Machine) Matrix() [][]string {
	fabric := map[[2]string]string{}
	for _, l := range m.Links {
		way := strings.ToUpper(l.Kind)
		if l.Lanes.Known {
			way += l.Lanes.String()
		}
		fabric[[2]string{l.A, l.B}], fabric[[2]string{l.B, l.A}] = way, way
	}
	matrix := make([][]string, len(m.Devices))
	for i, a := range m.Devices {
		for j, b := range m.Devices {
			way, linked := fabric[[2]string{a.Address, b.Address}]
			switch {
			case i == j:
				way = WaySelf
			case !linked:
				way = Way(a, b)
			}
			matrix[i] = append(matrix[i], way)
		}
	}
	return matrix
}

// Way is how two cards reach each other over PCIe.
func Way(a, b gpu.Device) string {
	if !a.Root.Known || !b.Root.Known {
		return byNode(a, b)
	}
	if a.Root.Value != b.Root.Value {
		return byNode(a, b)
	}
	common := 0
	for common < len(a.Bridges) && common < len(b.Bridges) && a.Bridges[common] == b.Bridges[common] {
		common++
	}
	switch {
	case common == 0:
		return WayPHB
	case len(a.Bridges)-common <= 1 && len(b.Bridges)-common <= 1:
		return WayPIX
	}
	return WayPXB
}

func byNode(a, b gpu.Device) string {
	switch {
	case !a.NUMANode.Known || !b.NUMANode.Known:
		return WayUnknown
	case a.NUMANode.Value == b.NUMANode.Value:
		return WayNode
	}
	return WaySystem
}
