// SPDX-License-Identifier: Apache-2.0

package vgpu

import (
	"context"
	"fmt"
	"path"

	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/gpu/nvidia"
	"github.com/divvy-gpu/divvy/internal/gpu/nvml"
	"github.com/divvy-gpu/divvy/internal/gpu/sysfs"
	"github.com/divvy-gpu/divvy/internal/partition"
	"github.com/divvy-gpu/divvy/internal/partition/kernel"
)

const mediated = "sys/bus/mdev/devices"

// Source is the part of NVIDIA's driver that vGPUs take.
type Source interface {
	VGPU(uuid string) (nvml.VGPU, error)
	SetVGPUMixed(uuid string, on bool) error
	SetVGPUScheduler(uuid, policy string) error
}

// Observe reads which virtual cards a card has and offers: on itself, or on its
// virtual functions.
func (t Technique) Observe(_ context.Context, c *partition.Card) error {
	if c.Vendor != t.vendor {
		return nil
	}
	var hosts *Hosts
	t.kernel.Show(c, func(bus *sysfs.Bus, f sysfs.Function, _ *partition.Card) { hosts = observe(bus, f) })
	if hosts == nil {
		return nil
	}
	*c = c.With(t.name, hosts)
	source, err := t.driver()
	if err != nil || source == nil {
		return err
	}
	told, _ := source.VGPU(c.UUID) // a card that went away tells nothing
	hosts.Scheduler = told.Scheduler.Value
	if told.Mixed.Known {
		hosts.Placement = map[bool]string{true: PlacementMixed, false: PlacementHomogeneous}[told.Mixed.Value]
	}
	return nil
}

// Do writes what a step says, or has NVIDIA's driver set it.
func (t Technique) Do(ctx context.Context, c partition.Card, s partition.Step) error {
	if s.Action != partition.ActionSet {
		return t.kernel.Do(ctx, s)
	}
	source, err := t.driver()
	switch {
	case err != nil:
		return err
	case source == nil:
		return fmt.Errorf("%s: %w", s, gpu.ErrNoDriver)
	case s.Setting == SettingPlacement:
		return source.SetVGPUMixed(c.UUID, s.Value == PlacementMixed)
	case s.Setting == SettingScheduler:
		return source.SetVGPUScheduler(c.UUID, s.Value)
	}
	return fmt.Errorf("unknown step %q", s)
}

// observe is nil where nothing carries virtual cards.
func observe(bus *sysfs.Bus, f sysfs.Function) *Hosts {
	if types := bus.MdevTypes(f); len(types) > 0 {
		return &Hosts{By: ByMediated, On: []Host{byMediated(bus, f, types)}}
	}
	hosts := &Hosts{}
	for _, vf := range bus.VFs(f) {
		at, ok := bus.Find(vf.ID)
		if !ok {
			continue
		}
		var host Host
		if types := bus.MdevTypes(at); len(types) > 0 {
			hosts.By, host = ByMediated, byMediated(bus, at, types)
		} else if current := bus.Tree().Text(path.Join(at.Folder, "nvidia/current_vgpu_type")); current.Known {
			hosts.By, host = ByFunction, byFunction(bus, at, current.Value)
		} else {
			continue
		}
		host.Single = true
		hosts.On = append(hosts.On, host)
	}
	if len(hosts.On) == 0 {
		return nil
	}
	return hosts
}

func byMediated(bus *sysfs.Bus, f sysfs.Function, types []sysfs.MdevType) Host {
	host := Host{Address: f.Address}
	for _, offer := range types {
		host.Types = append(host.Types, Type{ID: offer.ID, Name: offer.Name, Available: offer.Available.Value})
		for _, uuid := range offer.Devices {
			card := Instance{UUID: uuid, Type: offer.ID}
			card.Processes = kernel.Users(bus, uuid, bus.VFIONodes(path.Join(mediated, uuid)))
			host.Made = append(host.Made, card)
		}
	}
	return host
}

func byFunction(bus *sysfs.Bus, f sysfs.Function, current string) Host {
	host := Host{Address: f.Address}
	for _, offer := range nvidia.CreatableTypes(bus.Tree().Text(path.Join(f.Folder, "nvidia/creatable_vgpu_types")).Value) {
		host.Types = append(host.Types, Type{ID: offer.ID, Name: offer.Name, Available: 1})
	}
	if current != "0" && current != "" {
		host.Made = []Instance{{Type: current, Processes: kernel.Users(bus, f.Address, bus.VFIONodes(f.Folder))}}
	}
	return host
}
