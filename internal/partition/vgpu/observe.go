// SPDX-License-Identifier: Apache-2.0

package vgpu

import (
	"path"

	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/gpu/nvidia"
	"github.com/divvy-gpu/divvy/internal/gpu/sysfs"
	"github.com/divvy-gpu/divvy/internal/partition"
)

const mediated = "sys/bus/mdev/devices"

// Observe reads which virtual cards a card has and offers: on itself, or on its
// virtual functions.
func (t Technique) Observe(bus *sysfs.Bus, f sysfs.Function, c *partition.Card) {
	if c.Vendor != t.vendor {
		return
	}
	if types := bus.MdevTypes(f); len(types) > 0 {
		*t.of(c) = &partition.Hosts{By: partition.ByMediated, On: []partition.Host{byMediated(bus, f, types)}}
		return
	}
	hosts := &partition.Hosts{}
	for _, vf := range bus.VFs(f) {
		at, ok := bus.Find(vf.ID)
		if !ok {
			continue
		}
		var host partition.Host
		if types := bus.MdevTypes(at); len(types) > 0 {
			hosts.By, host = partition.ByMediated, byMediated(bus, at, types)
		} else if current := bus.Tree().Text(path.Join(at.Folder, "nvidia/current_vgpu_type")); current.Known {
			hosts.By, host = partition.ByFunction, byFunction(bus, at, current.Value)
		} else {
			continue
		}
		host.Single = true
		hosts.On = append(hosts.On, host)
	}
	if len(hosts.On) > 0 {
		*t.of(c) = hosts
	}
}

func byMediated(bus *sysfs.Bus, f sysfs.Function, types []sysfs.MdevType) partition.Host {
	host := partition.Host{Address: f.Address}
	for _, offer := range types {
		host.Types = append(host.Types, partition.VirtualType{ID: offer.ID, Name: offer.Name, Available: offer.Available.Value})
		for _, uuid := range offer.Devices {
			card := partition.VirtualCard{UUID: uuid, Type: offer.ID}
			card.Processes = holders(bus, uuid, bus.VFIONodes(path.Join(mediated, uuid)))
			host.Made = append(host.Made, card)
		}
	}
	return host
}

func byFunction(bus *sysfs.Bus, f sysfs.Function, current string) partition.Host {
	host := partition.Host{Address: f.Address}
	for _, offer := range nvidia.CreatableTypes(bus.Tree().Text(path.Join(f.Folder, "nvidia/creatable_vgpu_types")).Value) {
		host.Types = append(host.Types, partition.VirtualType{ID: offer.ID, Name: offer.Name, Available: 1})
	}
	if current != "0" && current != "" {
		host.Made = []partition.VirtualCard{{Type: current, Processes: holders(bus, f.Address, bus.VFIONodes(f.Folder))}}
	}
	return host
}

func holders(bus *sysfs.Bus, address string, nodes []string) []partition.Process {
	var list []partition.Process
	for _, h := range bus.Holders(gpu.Device{Address: address, Nodes: nodes}) {
		list = append(list, partition.Process{PID: h.PID, Command: h.Command})
	}
	return list
}
