// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/gpu"
)

// Offers puts into a folder what containers can have on a machine. It is the
// agent's agent.Containers.
type Offers struct {
	Folder  Folder
	Sockets string  // folder of the shares' folders
	Driver  *Driver // that containers get; nil: cards that need none remain
	Front   Front
	Devices []gpu.Device // the machine's hardware
	Written []string     // files
}

// Offer writes the file of a share on cards.
func (o *Offers) Offer(share api.Share, cards []gpu.Card) error {
	if o.Driver == nil {
		return errors.New("no driver for containers")
	}
	described := Share{Name: share.Name, Socket: share.Socket}
	if share.MPS != nil {
		described.Folder = share.MPS.PipeDirectory
		for _, entry := range share.MPS.Environment {
			// The front is in the driver's place, and tells it the share's GPU: programs
			// count from that.
			if strings.HasPrefix(entry, visible) {
				entry = visible + "0"
			}
			described.Env = append(described.Env, entry)
		}
	}
	for _, card := range cards {
		if card.Simulated {
			continue
		}
		d := o.find(card)
		if d == nil {
			return noFiles(card)
		}
		described.Nodes = append(described.Nodes, cardNodes(*d)...)
	}
	spec, err := ForShare(described, *o.Driver, o.Front)
	if err != nil {
		return err
	}
	path, err := o.Folder.Put(spec)
	o.Written = append(o.Written, path)
	return err
}

// Withdraw removes the file of a share.
func (o *Offers) Withdraw(share string) error { return o.Folder.Remove(ClassShare, share) }

// Keep removes the files of this agent's shares but for the named ones.
func (o *Offers) Keep(shares []string) error { return o.Folder.KeepShares(o.Sockets, shares) }

func (o *Offers) find(card gpu.Card) *gpu.Device {
	for i := range o.Devices {
		d := &o.Devices[i]
		if d.Address == card.PCIAddress || d.UUID.Known && d.UUID.Value == card.UUID {
			return d
		}
	}
	return nil
}

// cardNodes are the device files of a card; those of NVIDIA's unified memory
// belong to no card, and no program starts without them.
func cardNodes(d gpu.Device) []string {
	nodes := append([]string{}, d.Nodes...)
	if d.Vendor == gpu.VendorNVIDIA && len(nodes) > 0 {
		nodes = append(nodes, "/dev/nvidia-uvm")
		const tools = "/dev/nvidia-uvm-tools"
		if _, err := os.Stat(tools); err == nil {
			nodes = append(nodes, tools)
		}
	}
	return nodes
}

func (o *Offers) put(h Hardware, driver *Driver) error {
	spec, err := ForHardware(h, driver)
	if err != nil {
		return err
	}
	path, err := o.Folder.Put(spec)
	o.Written = append(o.Written, path)
	return err
}

// Whole offers a whole card under a name.
func (o *Offers) Whole(class, name string, card gpu.Card) error {
	h := Hardware{Class: class, Name: name}
	if card.Simulated {
		// Nothing but this keeps a program from the simulator's other cards.
		h.Env = []string{visible + card.UUID}
		return o.put(h, o.Driver)
	}
	d := o.find(card)
	if d == nil {
		return noFiles(card)
	}
	h.Nodes = cardNodes(*d)
	return o.put(h, o.driverFor(*d))
}

// visible makes CUDA see the named devices alone.
const visible = "CUDA_VISIBLE_DEVICES="

func noFiles(card gpu.Card) error {
	return fmt.Errorf("the kernel shows no device files of GPU %s: %w", card.UUID, os.ErrNotExist)
}

// driverFor is the driver that goes into a container with a card: images for
// the cards of other vendors bring theirs.
func (o *Offers) driverFor(d gpu.Device) *Driver {
	if d.Vendor == gpu.VendorNVIDIA {
		return o.Driver
	}
	return nil
}

// Parts writes the files of parts that have device files of their own.
func (o *Offers) Parts() error {
	for _, d := range o.Devices {
		for _, p := range d.Partitions {
			if len(p.Nodes) == 0 {
				continue
			}
			if err := o.put(part(d, p), o.driverFor(d)); err != nil {
				return err
			}
		}
	}
	if slices.ContainsFunc(o.Devices, tellsOfMIG) {
		return o.forgetMIG("")
	}
	return nil // no driver tells of MIG
}

// part is a part of a card that has device files of its own, by its own name.
func part(d gpu.Device, p gpu.Partition) Hardware {
	h := Hardware{Class: p.Kind, Name: p.ID, Nodes: append([]string{}, p.Nodes...)}
	switch p.Kind {
	case gpu.PartitionMIG:
		h.Nodes = append(h.Nodes, cardNodes(d)...)
		if strings.HasPrefix(p.ID, "MIG-") {
			h.Env = []string{visible + p.ID}
		}
	case gpu.PartitionCompute:
		// The door to all AMD cards; the driver lets a program use those
		// whose other file it can open.
		h.Nodes = append(h.Nodes, "/dev/kfd")
	}
	return h
}

// Instance offers a MIG device by the name under which its instance was made.
func (o *Offers) Instance(name, device string) error {
	if o.Driver != nil && o.Driver.Simulator != "" {
		return o.put(Hardware{Class: ClassInstance, Name: name, Env: []string{visible + device}}, o.Driver)
	}
	for _, d := range o.Devices {
		for _, p := range d.Partitions {
			if p.Kind == gpu.PartitionMIG && p.ID == device && len(p.Nodes) > 0 {
				h := part(d, p)
				h.Class, h.Name = ClassInstance, name
				return o.put(h, o.driverFor(d))
			}
		}
	}
	return fmt.Errorf("the kernel shows no device files of MIG device %s: %w", device, os.ErrNotExist)
}

// KeepInstances removes the files of MIG instances of this driver but for the named ones.
func (o *Offers) KeepInstances(names []string) error {
	simulator := ""
	if o.Driver != nil {
		simulator = o.Driver.Simulator
	}
	return o.forget(ClassInstance, simulator, func(d Device) bool { return slices.Contains(names, d.ID) })
}

// SimulatedMIG offers the MIG devices of simulated cards, by their UUIDs, and no
// others from then on. As with whole ones, nothing but the environment keeps a
// program from other cards.
func (o *Offers) SimulatedMIG(devices []string) error {
	for _, id := range devices {
		if err := o.put(Hardware{Class: gpu.PartitionMIG, Name: id, Env: []string{visible + id}}, o.Driver); err != nil {
			return err
		}
	}
	return o.forgetMIG(o.Driver.Simulator)
}

// forgetMIG removes the files of MIG devices that are no more, of a simulator's
// cards or, for "", of hardware: the numbers of its devices' capabilities go to
// others, which a container would get instead.
func (o *Offers) forgetMIG(simulator string) error {
	return o.forget(gpu.PartitionMIG, simulator, func(d Device) bool { return slices.Contains(o.Written, d.Path) })
}

// forget removes the files of a class, of a simulator's devices or, for "", of hardware's, but for those
// that stay.
func (o *Offers) forget(class, simulator string, stays func(Device) bool) error {
	devices, err := o.Folder.Devices()
	if err != nil {
		return err
	}
	for _, d := range devices {
		if d.Class == class && d.Simulator == simulator && !stays(d) {
			if err := o.Folder.Remove(d.Class, d.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

func tellsOfMIG(d gpu.Device) bool {
	return slices.ContainsFunc(d.Capabilities, func(c gpu.Capability) bool { return c.Name == gpu.CanMIG && c.Current != "" })
}
