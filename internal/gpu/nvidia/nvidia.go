// SPDX-License-Identifier: Apache-2.0

// Package nvidia reads NVIDIA cards from the kernel's files: the PCI bus, what
// the driver shows in /proc, virtual functions and vGPUs by mediated devices or
// by the driver's own attributes on virtual functions. What only the driver's
// library knows (use, health, MIG, NVLink) is asked of a Library where there is
// one; see package nvml.
package nvidia

import (
	"fmt"
	"path"
	"strings"

	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/gpu/sysfs"
	"github.com/divvy-gpu/divvy/internal/mig"
)

const (
	vendorID = 0x10de
	procGPUs = "proc/driver/nvidia/gpus"
)

// Library is the driver's own library.
type Library interface {
	// Reading tells of the card at a PCI address, and whether there is one.
	Reading(address string) (gpu.Reading, bool)
	// Links tells of NVLink between cards.
	Links() []gpu.Link
}

// Reader reads the NVIDIA cards of one machine. It is not for concurrent use.
type Reader struct {
	bus      *sysfs.Bus
	tree     *sysfs.Tree
	cards    []sysfs.Function
	products *mig.Table
	library  Library // nil where there is none
}

var _ gpu.Reader = (*Reader)(nil)

// New returns a reader; library may be nil.
func New(bus *sysfs.Bus, products *mig.Table, library Library) *Reader {
	return &Reader{bus: bus, tree: bus.Tree(), cards: bus.Cards(vendorID, nil), products: products, library: library}
}

// Information reads the lines "Key: value" that the driver shows of a card.
func Information(text string) map[string]string {
	found := map[string]string{}
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(line, ":"); ok {
			found[strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
	}
	return found
}

// Inventory lists the machine's NVIDIA cards.
func (r *Reader) Inventory() []gpu.Device {
	var devices []gpu.Device
	for _, f := range r.cards {
		d := r.bus.Describe(f, gpu.VendorNVIDIA)
		d.Resource = "nvidia.com/gpu"
		info := Information(r.tree.Text(path.Join(procGPUs, f.Address, "information")).Value)
		if model := info["Model"]; model != "" && model != "Unknown" {
			d.Name = model
		} else if p, ok := r.products.ByDevice(f.DeviceID); ok {
			d.Name = p.Names[0]
		}
		if uuid := info["GPU UUID"]; strings.HasPrefix(uuid, "GPU-") && !strings.Contains(uuid, "?") {
			d.UUID = gpu.Known(uuid)
		}
		minor := sysfs.Uint(gpu.Known(info["Device Minor"]))
		if minor.Known {
			d.Nodes = append([]string{fmt.Sprintf("/dev/nvidia%d", minor.Value), "/dev/nvidiactl"}, d.Nodes...)
		}
		if !d.DriverVersion.Known && d.Driver.Value == "nvidia" {
			d.DriverVersion = Version(r.tree.Text("proc/driver/nvidia/version").Value)
		}
		if p, ok := r.products.ByDevice(f.DeviceID); ok {
			d.Architecture = gpu.Known(p.Architecture)
		}
		types := r.bus.MdevTypes(f)
		d.Partitions = append(d.Partitions, sysfs.Mdevs(types)...)
		d.Partitions = append(d.Partitions, r.vfs(f)...)
		if reading, ok := r.reading(f.Address); ok {
			d.UUID, d.MemoryBytes = prefer(reading.UUID, d.UUID), reading.MemoryBytes
			d.MemoryShared = reading.MemoryShared
			d.Name = reading.Name.Or(d.Name)
			for _, part := range reading.Instances {
				if minor.Known && part.MIG != nil {
					part.Nodes = r.migNodes(minor.Value, *part.MIG)
				}
				d.Partitions = append(d.Partitions, part)
			}
		}
		devices = append(devices, d)
	}
	return devices
}

func prefer[T any](first, second gpu.Fact[T]) gpu.Fact[T] {
	if first.Known {
		return first
	}
	return second
}

func (r *Reader) reading(address string) (gpu.Reading, bool) {
	if r.library == nil {
		return gpu.Reading{}, false
	}
	return r.library.Reading(address)
}

// Version finds the driver's version in the driver's line about itself.
func Version(text string) gpu.Fact[string] {
	for _, word := range strings.Fields(text) {
		if strings.Count(word, ".") >= 1 && strings.Trim(word, "0123456789.") == "" {
			return gpu.Known(word)
		}
	}
	return gpu.Fact[string]{}
}

// vfs lists virtual functions with the vGPU that each has: by the driver's
// attributes, or by a mediated device on it.
func (r *Reader) vfs(f sysfs.Function) []gpu.Partition {
	vfs := r.bus.VFs(f)
	for i := range vfs {
		vf := &vfs[i]
		function, ok := r.bus.Find(vf.ID)
		if !ok {
			continue
		}
		current := r.tree.Text(path.Join(function.Folder, "nvidia/current_vgpu_type"))
		if current.Known {
			vf.Settings = map[string]string{"current_vgpu_type": current.Value}
			if current.Value != "0" {
				vf.Name += " " + r.typeName(f, current.Value)
			}
			continue
		}
		for _, p := range sysfs.Mdevs(r.bus.MdevTypes(function)) {
			vf.Name += " " + p.Name
			vf.Settings = map[string]string{"mdev": p.ID, "type": p.Settings["type"]}
		}
	}
	return vfs
}

// typeName looks a vGPU type up among those that some virtual function of the
// card can still become; a full card offers none, and the number stands.
func (r *Reader) typeName(f sysfs.Function, id string) string {
	for _, vf := range r.bus.VFs(f) {
		if function, ok := r.bus.Find(vf.ID); ok {
			for _, t := range CreatableTypes(r.tree.Text(path.Join(function.Folder, "nvidia/creatable_vgpu_types")).Value) {
				if t.ID == id {
					return t.Name
				}
			}
		}
	}
	return "vGPU type " + id
}

// Type is a vGPU type by its number.
type Type struct{ ID, Name string }

// CreatableTypes reads lines like "1428 : NVIDIA H200X-141C".
func CreatableTypes(text string) []Type {
	var types []Type
	for line := range strings.Lines(text) {
		id, name, ok := strings.Cut(line, ":")
		id, name = strings.TrimSpace(id), strings.TrimSpace(name)
		if ok && id != "" && name != "" && strings.Trim(id, "0123456789") == "" {
			types = append(types, Type{id, name})
		}
	}
	return types
}

// Topology tells of NVLink, which only the library knows.
func (r *Reader) Topology() []gpu.Link {
	if r.library == nil || len(r.cards) == 0 {
		return []gpu.Link{}
	}
	return r.library.Links()
}

func (r *Reader) find(address string) (sysfs.Function, error) {
	for _, f := range r.cards {
		if f.Address == address {
			return f, nil
		}
	}
	return sysfs.Function{}, fmt.Errorf("%w: %s is no NVIDIA GPU", gpu.ErrNoCard, address)
}

// Use asks the library; without it only the holders are known.
func (r *Reader) Use(address string) (gpu.Use, error) {
	f, err := r.find(address)
	if err != nil {
		return gpu.Use{}, err
	}
	reading, _ := r.reading(address)
	use := reading.Use
	if use.Holders == nil {
		info := Information(r.tree.Text(path.Join(procGPUs, f.Address, "information")).Value)
		d := r.bus.Describe(f, gpu.VendorNVIDIA)
		if minor := info["Device Minor"]; minor != "" {
			d.Nodes = append(d.Nodes, "/dev/nvidia"+minor)
		}
		use.Holders = r.bus.Holders(d)
	}
	return use, nil
}

// Health asks the library.
func (r *Reader) Health(address string) (gpu.Condition, error) {
	f, err := r.find(address)
	if err != nil {
		return gpu.Condition{}, err
	}
	reading, _ := r.reading(address)
	h := reading.Condition
	if h.Troubles == nil {
		h.Troubles = []string{}
	}
	if !r.bus.Describe(f, gpu.VendorNVIDIA).Driver.Known {
		h.Troubles = append(h.Troubles, "no driver is bound to it")
	}
	return h, nil
}

// Capabilities says how an NVIDIA card can be divided.
func (r *Reader) Capabilities(address string) ([]gpu.Capability, error) {
	f, err := r.find(address)
	if err != nil {
		return nil, err
	}
	driver := r.bus.Describe(f, gpu.VendorNVIDIA).Driver
	byDriver := func(name string) gpu.Capability {
		if driver.Value != "nvidia" {
			return gpu.Capability{Name: name, Can: gpu.No, Reason: "it is not bound to NVIDIA's driver but to " + driver.Or("none")}
		}
		return gpu.Capability{Name: name, Can: gpu.Yes}
	}
	share := byDriver(gpu.CanShare)
	switch reading, ok := r.reading(f.Address); {
	case ok && reading.MIG.Value:
		share = gpu.Capability{Name: gpu.CanShare, Can: gpu.No, Reason: "MIG mode is on: shares divide whole GPUs"}
	case ok && reading.MemoryShared:
		share = gpu.Capability{Name: gpu.CanShare, Can: gpu.No, Reason: "its memory is the host's, and the driver does not tell how much of it is in use"}
	}
	return []gpu.Capability{
		share, byDriver(gpu.CanReplicas), byDriver(gpu.CanMPS),
		r.canMIG(f), r.canVGPU(f), r.bus.SRIOV(f), r.bus.Passthrough(f),
	}, nil
}

func (r *Reader) canMIG(f sysfs.Function) gpu.Capability {
	c := gpu.Capability{Name: gpu.CanMIG, Can: gpu.No, Reason: "the GPU's model has no MIG"}
	p, ok := r.products.ByDevice(f.DeviceID)
	if !ok {
		if name := r.bus.Describe(f, gpu.VendorNVIDIA).Name; r.products.DocumentedOnly(f.DeviceID) {
			c.Can, c.Reason = gpu.Unknown, "NVIDIA lists profiles for "+name+", but no placements are known: the driver decides"
		}
		return c
	}
	if d := r.bus.Describe(f, gpu.VendorNVIDIA); d.Driver.Value != "nvidia" {
		c.Reason = "it is not bound to NVIDIA's driver but to " + d.Driver.Or("none")
		return c
	}
	c.Can, c.Reason = gpu.Yes, ""
	for _, profile := range p.Profiles {
		c.Options = append(c.Options, fmt.Sprintf("%s: %d", profile.Name, profile.Most))
	}
	if reading, ok := r.reading(f.Address); ok && reading.MIG.Known {
		c.Current = map[bool]string{true: "on", false: "off"}[reading.MIG.Value]
	}
	return c
}

// canVGPU finds vGPU types on the card itself, on its virtual functions as
// mediated devices, or as the driver's attributes.
func (r *Reader) canVGPU(f sysfs.Function) gpu.Capability {
	c := gpu.Capability{Name: gpu.CanVGPU, Can: gpu.No, Reason: "the driver here is not that of a vGPU host, or no virtual functions are on"}
	if types := r.bus.MdevTypes(f); len(types) > 0 {
		return gpu.Capability{Name: gpu.CanVGPU, Can: gpu.Yes, Current: "mdev", Options: sysfs.Offer(types)}
	}
	for _, vf := range r.bus.VFs(f) {
		function, ok := r.bus.Find(vf.ID)
		if !ok {
			continue
		}
		if types := r.bus.MdevTypes(function); len(types) > 0 && c.Can != gpu.Yes {
			c = gpu.Capability{Name: gpu.CanVGPU, Can: gpu.Yes, Current: "mdev on virtual functions", Options: sysfs.Offer(types)}
		}
		creatable := r.tree.Text(path.Join(function.Folder, "nvidia/creatable_vgpu_types"))
		if !creatable.Known {
			continue
		}
		if c.Can != gpu.Yes {
			c = gpu.Capability{Name: gpu.CanVGPU, Can: gpu.Yes, Current: "vendor VFIO on virtual functions"}
		}
		if types := CreatableTypes(creatable.Value); len(types) > len(c.Options) {
			c.Options = nil
			for _, t := range types {
				c.Options = append(c.Options, fmt.Sprintf("%s (%s)", t.Name, t.ID))
			}
		}
	}
	return c
}

// Events compares the cards' health with what it was.
func (r *Reader) Events(since gpu.Snapshot) ([]gpu.Event, gpu.Snapshot) {
	now := gpu.Look(r)
	return gpu.Changes(since, now), now
}
