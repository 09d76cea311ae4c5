// SPDX-License-Identifier: Apache-2.0

package fakekernel

import (
	"errors"
	"fmt"
	"slices"

	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/gpu/nvml"
)

// UUID is that of a Driver's card.
const UUID = "GPU-22222222-0e0e-4b4b-8c8c-000000000002"

// Driver is NVIDIA's driver with one card, of MIG and of vGPU hosts; an H100, if it has
// no other name. Its fields may be changed between calls.
type Driver struct {
	Name, Address string
	MIGNow        nvml.MIG
	VGPUNow       nvml.VGPU
	Changes       int // that were asked for
	// Left is how many changes it lives for, of which the last one fails; 0: for ever.
	Left int
	Dead bool
	// Before is called before each change; nil: nothing is.
	Before func()

	next int
}

// ErrDead is what a dead driver answers.
var ErrDead = errors.New("dead")

func (d *Driver) change(do func()) error {
	d.Changes++
	if d.Before != nil {
		d.Before()
	}
	if d.Left > 0 {
		d.Left--
		d.Dead = d.Left == 0
	}
	if d.Dead {
		return ErrDead
	}
	do()
	return nil
}

func (d *Driver) Cards() ([]gpu.Card, error) {
	name := d.Name
	if name == "" {
		name = "NVIDIA H100 80GB HBM3"
	}
	return []gpu.Card{{UUID: UUID, Name: name, PCIAddress: d.Address}}, nil
}

func (d *Driver) MIG(string) (nvml.MIG, error) {
	if d.Dead {
		return nvml.MIG{}, ErrDead
	}
	m := d.MIGNow
	m.Instances = slices.Clone(m.Instances)
	return m, nil
}

func (d *Driver) SetMIG(_ string, on bool) error {
	return d.change(func() { d.MIGNow.On, d.MIGNow.Pending = on, on })
}

// Find is the index of an instance; -1: there is none.
func (d *Driver) Find(kind, start int) int {
	return slices.IndexFunc(d.MIGNow.Instances, func(i nvml.Instance) bool { return i.Kind == kind && i.Start == start })
}

func (d *Driver) CreateInstance(_ string, kind, start int) error {
	return d.change(func() {
		d.next++
		d.MIGNow.Instances = append(d.MIGNow.Instances, nvml.Instance{Kind: kind, ID: d.next, Start: start, Compute: []int{}})
	})
}

func (d *Driver) DestroyInstance(_ string, kind, start int, computeOnly bool) error {
	n := d.Find(kind, start)
	if n < 0 {
		return gpu.ErrNoCard
	}
	if len(d.MIGNow.Instances[n].Processes) > 0 {
		return errors.New("in use")
	}
	return d.change(func() {
		if computeOnly {
			d.MIGNow.Instances[n].Compute, d.MIGNow.Instances[n].Devices = []int{}, nil
		} else {
			d.MIGNow.Instances = slices.Delete(d.MIGNow.Instances, n, n+1)
		}
	})
}

func (d *Driver) CreateCompute(_ string, kind, start, size int) error {
	n := d.Find(kind, start)
	if n < 0 {
		return gpu.ErrNoCard
	}
	return d.change(func() {
		i := &d.MIGNow.Instances[n]
		i.Compute = append(slices.Clone(i.Compute), size)
		i.Devices = append(slices.Clone(i.Devices), fmt.Sprintf("MIG-%d-%d", i.ID, len(i.Compute)))
	})
}

func (d *Driver) VGPU(string) (nvml.VGPU, error) { return d.VGPUNow, nil }

func (d *Driver) SetVGPUMixed(_ string, on bool) error {
	return d.change(func() { d.VGPUNow.Mixed = gpu.Known(on) })
}

func (d *Driver) SetVGPUScheduler(_, policy string) error {
	return d.change(func() { d.VGPUNow.Scheduler = gpu.Known(policy) })
}
