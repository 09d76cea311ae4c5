// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/cdi"
	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/gpu/inventory"
	"github.com/divvy-gpu/divvy/internal/library"
	"github.com/divvy-gpu/divvy/internal/private"
	"github.com/divvy-gpu/divvy/internal/simgpu"
)

// offers puts into a folder of CDI files what containers can have here. It is
// the agent's agent.Containers.
type offers struct {
	folder  cdi.Folder
	sockets string // folder of the shares' folders
	driver  *cdi.Driver
	front   cdi.Front
	machine inventory.Machine
	written []string // files
}

// offers returns what an agent with this driver offers in folder.
func (a *app) offers(folder, driverDirectory, simulator, sockets string) (*offers, error) {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return nil, err
	}
	o := &offers{folder: cdi.Folder(folder), sockets: sockets}
	if simulator == "" {
		if o.machine, err = a.machine(""); err != nil {
			return nil, err
		}
	} else if simulator, err = filepath.Abs(simulator); err != nil {
		return nil, err
	}
	return o, a.containerDriver(o, api.Version{DriverDirectory: driverDirectory, Simulator: simulator})
}

// containerDriver finds the driver, and the front for it, that containers get:
// the agent's, or what is installed. Without any, cards that need none remain.
func (a *app) containerDriver(o *offers, v api.Version) error {
	cuda, nvml := filepath.Join(v.DriverDirectory, library.CUDAName), filepath.Join(v.DriverDirectory, library.NVMLName)
	if v.DriverDirectory == "" {
		found, err := private.FindDriver("/")
		if errors.Is(err, private.ErrNoDriver) {
			return nil
		}
		if err != nil {
			return err
		}
		cuda, nvml = found.CUDA, found.NVML
	}
	driver, err := cdi.FindDriver(cuda, nvml, v.Simulator)
	if err != nil {
		return err
	}
	o.driver = &driver
	if v.DriverDirectory == "" {
		return nil // no agent: no shares, no front
	}
	libraries, err := a.libraries()
	if err != nil {
		return err
	}
	front, err := a.frontFor(v.DriverDirectory)
	o.front = cdi.Front{Library: filepath.Join(front, library.CUDAName), Preload: libraries.Preload()}
	return err
}

// Offer writes the file of a share.
func (o *offers) Offer(share api.Share, card gpu.Card) error {
	if o.driver == nil {
		return errors.New("no driver for containers")
	}
	described := cdi.Share{Name: share.Name, Socket: share.Socket}
	if share.MPS != nil {
		described.Folder, described.Env = share.MPS.PipeDirectory, share.MPS.Environment
	}
	if !card.Simulated {
		d := o.find(card)
		if d == nil {
			return fmt.Errorf("the kernel shows no device files of card %s", card.UUID)
		}
		described.Nodes = cardNodes(*d)
	}
	spec, err := cdi.ForShare(described, *o.driver, o.front)
	if err != nil {
		return err
	}
	path, err := o.folder.Put(spec)
	o.written = append(o.written, path)
	return err
}

// Withdraw removes the file of a share.
func (o *offers) Withdraw(share string) error { return o.folder.Remove(cdi.ClassShare, share) }

// Keep removes the files of this agent's shares but for the named ones.
func (o *offers) Keep(shares []string) error { return o.folder.KeepShares(o.sockets, shares) }

func (o *offers) find(card gpu.Card) *gpu.Device {
	for i := range o.machine.Devices {
		d := &o.machine.Devices[i]
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
		if tools := "/dev/nvidia-uvm-tools"; exists(tools) {
			nodes = append(nodes, tools)
		}
	}
	return nodes
}

func (o *offers) put(h cdi.Hardware, driver *cdi.Driver) error {
	spec, err := cdi.ForHardware(h, driver)
	if err != nil {
		return err
	}
	path, err := o.folder.Put(spec)
	o.written = append(o.written, path)
	return err
}

// putCards writes the files of whole cards.
func (o *offers) putCards(list deviceList) error {
	for _, c := range list.Cards {
		h := cdi.Hardware{Class: cdi.ClassCard, Name: c.id()}
		var driver *cdi.Driver
		switch {
		case c.Simulated:
			// Nothing but this keeps a program from the simulator's other cards.
			h.Env, driver = []string{"CUDA_VISIBLE_DEVICES=" + c.UUID}, o.driver
		case c.Hardware == nil || len(c.Hardware.Nodes) == 0:
			continue
		default:
			h.Nodes, driver = cardNodes(*c.Hardware), o.driverFor(*c.Hardware)
		}
		if err := o.put(h, driver); err != nil {
			return err
		}
	}
	return nil
}

// driverFor is the driver that goes into a container with a card: images for
// the cards of other vendors bring theirs.
func (o *offers) driverFor(d gpu.Device) *cdi.Driver {
	if d.Vendor == gpu.VendorNVIDIA {
		return o.driver
	}
	return nil
}

// putParts writes the files of parts that have device files of their own.
func (o *offers) putParts() error {
	for _, d := range o.machine.Devices {
		for _, p := range d.Partitions {
			if len(p.Nodes) == 0 {
				continue
			}
			h := cdi.Hardware{Class: p.Kind, Name: p.ID, Nodes: append([]string{}, p.Nodes...)}
			switch p.Kind {
			case gpu.PartitionMIG:
				h.Nodes = append(h.Nodes, cardNodes(d)...)
				if strings.HasPrefix(p.ID, "MIG-") {
					h.Env = []string{"CUDA_VISIBLE_DEVICES=" + p.ID}
				}
			case gpu.PartitionCompute:
				// The door to all AMD cards; the driver lets a program use those
				// whose other file it can open.
				h.Nodes = append(h.Nodes, "/dev/kfd")
			}
			if err := o.put(h, o.driverFor(d)); err != nil {
				return err
			}
		}
	}
	if slices.ContainsFunc(o.machine.Devices, tellsOfMIG) {
		return o.forgetMIG("")
	}
	return nil // no driver tells of MIG
}

// putSimulatedMIG writes the files of the MIG devices of simulated cards. As with
// whole ones, nothing but the environment keeps a program from other cards.
func (o *offers) putSimulatedMIG(ctx context.Context) (err error) {
	if o.driver == nil || o.driver.Simulator == "" {
		return nil
	}
	truth, err := simgpu.Dial(ctx, o.driver.Simulator)
	if errors.Is(err, simgpu.ErrNotListening) {
		return nil // nobody tells of MIG
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, truth.Close()) }()
	cards, err := truth.Cards(ctx)
	if err != nil {
		return err
	}
	for _, c := range cards {
		if !c.MIG {
			continue
		}
		devices, err := truth.MIGDevices(ctx, c.Index)
		if err != nil {
			return err
		}
		for _, id := range devices {
			if err := o.put(cdi.Hardware{Class: gpu.PartitionMIG, Name: id, Env: []string{"CUDA_VISIBLE_DEVICES=" + id}}, o.driver); err != nil {
				return err
			}
		}
	}
	return o.forgetMIG(o.driver.Simulator)
}

// forgetMIG removes the files of MIG devices that are no more, of a simulator's
// cards or, for "", of hardware: the numbers of its devices' capabilities go to
// others, which a container would get instead.
func (o *offers) forgetMIG(simulator string) error {
	devices, err := o.folder.Devices()
	if err != nil {
		return err
	}
	for _, d := range devices {
		if d.Class == gpu.PartitionMIG && d.Simulator == simulator && !slices.Contains(o.written, d.Path) {
			if err := o.folder.Remove(d.Class, d.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

func tellsOfMIG(d gpu.Device) bool {
	return slices.ContainsFunc(d.Capabilities, func(c gpu.Capability) bool { return c.Name == gpu.CanMIG && c.Current != "" })
}
