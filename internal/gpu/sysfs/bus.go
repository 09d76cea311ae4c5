// SPDX-License-Identifier: Apache-2.0

package sysfs

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/internal/gpu"
)

const devices = "sys/bus/pci/devices"

// Class codes of PCI functions.
const (
	classDisplay     = 0x03
	classProcessing  = 0x12 // accelerators
	classBridge      = 0x06
	classCoprocessor = 0x0b40
)

// maxFunctions bounds the functions of one machine that are looked at.
const maxFunctions = 65536

// Function is one function on the PCI bus.
type Function struct {
	Address  string
	VendorID uint16
	DeviceID uint16
	Class    uint32 // 0x030200
	Folder   string // where its attributes are
	// Physical is the address of the physical function when this is a virtual one.
	Physical string
}

// IsCard says whether the function's class is that of a display, an accelerator
// or a coprocessor.
func (f Function) IsCard() bool {
	switch f.Class >> 16 {
	case classDisplay, classProcessing:
		return true
	}
	return f.Class>>8 == classCoprocessor
}

// Bus is the PCI bus as it was when it was read.
type Bus struct {
	tree      *Tree
	functions []Function
	names     *names
}

// ReadBus lists the functions on the bus.
func ReadBus(tree *Tree) *Bus {
	b := &Bus{tree: tree}
	for _, address := range tree.Names(devices) {
		if !IsAddress(address) || len(b.functions) == maxFunctions {
			continue
		}
		folder := path.Join(devices, address)
		vendor, device, class := tree.Uint(path.Join(folder, "vendor")), tree.Uint(path.Join(folder, "device")), tree.Uint(path.Join(folder, "class"))
		if !vendor.Known || !device.Known || vendor.Value > 0xffff || device.Value > 0xffff {
			continue
		}
		f := Function{
			Address: address, Folder: folder, VendorID: uint16(vendor.Value), DeviceID: uint16(device.Value),
			Class: uint32(class.Value & 0xffffff), Physical: tree.LinkBase(path.Join(folder, "physfn")).Value,
		}
		if !IsAddress(f.Physical) {
			f.Physical = ""
		}
		b.functions = append(b.functions, f)
	}
	return b
}

// IsAddress says whether text is a PCI address like 0000:c1:00.0.
func IsAddress(text string) bool {
	domain, rest, ok := strings.Cut(text, ":")
	if !ok || len(domain) < 4 || len(domain) > 8 || !hexadecimal(domain) {
		return false
	}
	return len(rest) == 7 && rest[2] == ':' && rest[5] == '.' && hexadecimal(rest[:2]) && hexadecimal(rest[3:5]) &&
		rest[6] >= '0' && rest[6] <= '7'
}

func hexadecimal(text string) bool {
	return strings.Trim(text, "0123456789abcdef") == ""
}

// Cards lists the cards of a vendor: functions of a card's class that are
// physical, or whose physical function is not on this bus.
func (b *Bus) Cards(vendor uint16, matches func(Function) bool) []Function {
	var cards []Function
	for _, f := range b.functions {
		if f.VendorID != vendor || !f.IsCard() || matches != nil && !matches(f) {
			continue
		}
		if f.Physical != "" && b.has(f.Physical) {
			continue
		}
		cards = append(cards, f)
	}
	return cards
}

func (b *Bus) has(address string) bool {
	return slices.ContainsFunc(b.functions, func(f Function) bool { return f.Address == address })
}

// Find returns the function at an address.
func (b *Bus) Find(address string) (Function, bool) {
	i := slices.IndexFunc(b.functions, func(f Function) bool { return f.Address == address })
	if i < 0 {
		return Function{}, false
	}
	return b.functions[i], true
}

// Tree is where the bus was read from.
func (b *Bus) Tree() *Tree { return b.tree }

// Describe fills in what the bus tells of any card.
func (b *Bus) Describe(f Function, vendor string) gpu.Device {
	t, folder := b.tree, f.Folder
	d := gpu.Device{
		Address: f.Address, Vendor: vendor, VendorID: hex4(f.VendorID), DeviceID: hex4(f.DeviceID),
		Driver:     t.LinkBase(path.Join(folder, "driver")),
		NUMANode:   t.Int(path.Join(folder, "numa_node")),
		IOMMUGroup: Int(Uint(t.LinkBase(path.Join(folder, "iommu_group")))),
		Virtual:    gpu.Known(f.Physical != ""),
		Bridges:    []string{},
		Nodes:      b.drmNodes(folder),
		PCIe: gpu.PCIe{
			Speed:    speed(t.Text(path.Join(folder, "current_link_speed"))),
			Width:    t.Int(path.Join(folder, "current_link_width")),
			MaxSpeed: speed(t.Text(path.Join(folder, "max_link_speed"))),
			MaxWidth: t.Int(path.Join(folder, "max_link_width")),
		},
		Partitions: []gpu.Partition{},
	}
	if d.Driver.Known {
		d.DriverVersion = t.Text(path.Join("sys/module", d.Driver.Value, "version"))
	}
	d.Root, d.Bridges = place(t.Link(folder))
	d.Name = b.Name(f)
	return d
}

// speed shortens "16.0 GT/s PCIe" to "16.0 GT/s".
func speed(text gpu.Fact[string]) gpu.Fact[string] {
	if !text.Known || !strings.Contains(text.Value, "GT/s") {
		return gpu.Fact[string]{}
	}
	return gpu.Known(strings.TrimSuffix(text.Value, " PCIe"))
}

// RootOf is the root of the PCIe tree below which a device of this machine is.
func (t *Tree) RootOf(address string) gpu.Fact[string] {
	if !IsAddress(address) {
		return gpu.Fact[string]{}
	}
	root, _ := place(t.Link(path.Join(devices, address)))
	return root
}

// place reads root and bridges off the link of a device's folder:
// ../../../devices/pci0000:c0/0000:c0:01.1/0000:c1:00.0.
func place(link gpu.Fact[string]) (gpu.Fact[string], []string) {
	bridges := []string{}
	var root gpu.Fact[string]
	steps := strings.Split(link.Value, "/")
	for i, step := range steps {
		switch {
		case strings.HasPrefix(step, "pci") && strings.Contains(step, ":"):
			root = gpu.Known(step)
		case root.Known && IsAddress(step) && i < len(steps)-1:
			bridges = append(bridges, step)
		}
	}
	return root, bridges
}

// drmNodes lists the files under /dev/dri that a function has.
func (b *Bus) drmNodes(folder string) []string {
	nodes := []string{}
	for _, name := range b.tree.Names(path.Join(folder, "drm")) {
		if strings.HasPrefix(name, "card") && !strings.Contains(name, "-") || strings.HasPrefix(name, "renderD") {
			nodes = append(nodes, "/dev/dri/"+name)
		}
	}
	for _, name := range b.tree.Names(path.Join(folder, "accel")) {
		nodes = append(nodes, "/dev/accel/"+name)
	}
	return nodes
}

// DRMCard is the folder of the function's DRM card, empty if it has none.
func (b *Bus) DRMCard(f Function) string {
	for _, name := range b.tree.Names(path.Join(f.Folder, "drm")) {
		if strings.HasPrefix(name, "card") && !strings.Contains(name, "-") {
			return path.Join(f.Folder, "drm", name)
		}
	}
	return ""
}

// Hwmon is the folder of the function's sensors, empty if it has none.
func (b *Bus) Hwmon(f Function) string {
	for _, name := range b.tree.Names(path.Join(f.Folder, "hwmon")) {
		return path.Join(f.Folder, "hwmon", name)
	}
	return ""
}

func hex4(n uint16) string {
	text := strconv.FormatUint(uint64(n), 16)
	return "0x" + strings.Repeat("0", 4-len(text)) + text
}

// Attribute names a file of the PCI function at an address.
func Attribute(address, name string) string { return path.Join(devices, address, name) }
