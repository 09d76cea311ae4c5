// SPDX-License-Identifier: Apache-2.0

package sysfs

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/gpu"
)

// maxVFs bounds the virtual functions of one card; PCI numbers them with 16
// bits, drivers stop far below.
const maxVFs = 256

// Passthrough says whether a card can be handed to a guest by VFIO: alone in its
// IOMMU group, but for bridges and the other functions of its own slot.
func (b *Bus) Passthrough(f Function) gpu.Capability {
	c := gpu.Capability{Name: gpu.CanPassthrough}
	group := b.tree.LinkBase(path.Join(f.Folder, "iommu_group"))
	if !group.Known {
		if b.tree.Exists("sys/kernel/iommu_groups") {
			c.Can, c.Reason = gpu.No, "it is in no IOMMU group: switch the IOMMU on in firmware and kernel"
		} else {
			c.Can = gpu.Unknown
		}
		return c
	}
	var with, against []string
	for _, member := range b.tree.Names(path.Join("sys/kernel/iommu_groups", group.Value, "devices")) {
		other, ok := b.Find(member)
		switch {
		case member == f.Address, ok && other.Class>>16 == classBridge:
		case Slot(member) == Slot(f.Address):
			with = append(with, member)
		default:
			against = append(against, member)
		}
	}
	c.Can, c.Reason = gpu.Yes, "IOMMU group "+group.Value
	if with != nil {
		c.Reason += ", together with " + strings.Join(with, ", ")
	}
	if against != nil {
		c.Can, c.Reason = gpu.No, fmt.Sprintf("IOMMU group %s also holds %s", group.Value, strings.Join(against, ", "))
	}
	if b.tree.LinkBase(path.Join(f.Folder, "driver")).Value == "vfio-pci" {
		c.Current = "vfio-pci"
	}
	return c
}

// Console says why a card is the machine's console, empty if it is not: the
// firmware used it first (boot_vga; on newer kernels boot_display, for cards that
// are no VGA ones too), or it has all framebuffers that there are.
func (b *Bus) Console(f Function) string {
	for _, name := range []string{"boot_vga", "boot_display"} {
		if b.tree.Text(path.Join(f.Folder, name)).Value == "1" {
			return name + " is 1"
		}
	}
	const framebuffers = "sys/class/graphics"
	var own []string
	for _, name := range b.tree.Names(framebuffers) {
		if number, ok := strings.CutPrefix(name, "fb"); !ok || strings.Trim(number, "0123456789") != "" {
			continue
		}
		if b.tree.LinkBase(path.Join(framebuffers, name, "device")).Value != f.Address {
			return "" // another has one, or the firmware's own is in use
		}
		own = append(own, name)
	}
	if own == nil {
		return ""
	}
	return "it has the only framebuffer, " + own[0]
}

// VFIONodes lists the device files through which a guest would hold a function:
// those of its group, and its own under newer kernels.
func (b *Bus) VFIONodes(folder string) []string {
	var nodes []string
	if group := b.tree.LinkBase(path.Join(folder, "iommu_group")); group.Known {
		nodes = append(nodes, "/dev/vfio/"+group.Value)
	}
	for _, name := range b.tree.Names(path.Join(folder, "vfio-dev")) {
		nodes = append(nodes, "/dev/vfio/devices/"+name)
	}
	return nodes
}

// Slot is an address without its function.
func Slot(address string) string { s, _, _ := strings.Cut(address, "."); return s }

// SRIOV says whether the card has virtual functions, and how many are on.
func (b *Bus) SRIOV(f Function) gpu.Capability {
	c := gpu.Capability{Name: gpu.CanSRIOV, Can: gpu.No}
	total := b.tree.Uint(path.Join(f.Folder, "sriov_totalvfs"))
	switch {
	case f.Physical != "":
		c.Reason = "it is itself a virtual function"
	case !total.Known:
		c.Reason = "the GPU or its driver has no virtual functions"
	case total.Value == 0:
		c.Reason = "its driver allows no virtual functions"
	default:
		on := b.tree.Uint(path.Join(f.Folder, "sriov_numvfs"))
		c.Can, c.Current = gpu.Yes, fmt.Sprintf("%s of %d", on, total.Value)
	}
	return c
}

// VFs lists the virtual functions of a card that are on.
func (b *Bus) VFs(f Function) []gpu.Partition {
	var vfs []gpu.Partition
	for i := range maxVFs {
		address := b.tree.LinkBase(path.Join(f.Folder, fmt.Sprintf("virtfn%d", i)))
		if !IsAddress(address.Value) {
			break
		}
		folder := path.Join(devices, address.Value)
		vfs = append(vfs, gpu.Partition{
			Kind: gpu.PartitionVF, ID: address.Value, Name: fmt.Sprintf("vf%d", i+1),
			Driver: b.tree.LinkBase(path.Join(folder, "driver")), Nodes: b.drmNodes(folder),
		})
	}
	return vfs
}

// MdevType is a kind of mediated device that a function offers.
type MdevType struct {
	ID          string // nvidia-558, i915-GVTg_V5_4
	Name        string
	Description string
	Available   gpu.Fact[int]
	Devices     []string // UUIDs of those that exist
}

// maxTypes bounds the types of one function.
const maxTypes = 256

// MdevTypes lists what mediated devices the function in a folder offers.
func (b *Bus) MdevTypes(f Function) []MdevType {
	folder := path.Join(f.Folder, "mdev_supported_types")
	var types []MdevType
	for _, id := range b.tree.Names(folder) {
		if len(types) == maxTypes {
			break
		}
		at := path.Join(folder, id)
		types = append(types, MdevType{
			ID: id, Name: b.tree.Text(path.Join(at, "name")).Or(id),
			Description: b.tree.Text(path.Join(at, "description")).Value,
			Available:   b.tree.Int(path.Join(at, "available_instances")),
			Devices:     b.tree.Names(path.Join(at, "devices")),
		})
	}
	return types
}

// Mdevs lists the mediated devices of types as partitions.
func Mdevs(types []MdevType) []gpu.Partition {
	var parts []gpu.Partition
	for _, t := range types {
		for _, uuid := range t.Devices {
			parts = append(parts, gpu.Partition{
				Kind: gpu.PartitionMdev, ID: uuid, Name: t.Name, Nodes: []string{},
				Settings: map[string]string{"type": t.ID},
			})
		}
	}
	return parts
}

// Offer is how a capability lists its types: by name, with how many more can be
// made.
func Offer(types []MdevType) []string {
	var options []string
	for _, t := range types {
		option := t.Name
		if t.Name != t.ID {
			option += " (" + t.ID + ")"
		}
		options = append(options, fmt.Sprintf("%s: %s", option, t.Available))
	}
	slices.SortFunc(options, Natural)
	return options
}
