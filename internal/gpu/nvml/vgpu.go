// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/divvy-gpu/divvy/internal/gpu"
)

// VGPU is how a card carries vGPUs, as far as its driver tells.
type VGPU struct {
	Mixed     gpu.Fact[bool]   // vGPUs of different sizes may be made
	Scheduler gpu.Fact[string] // one of schedulers
}

// schedulers names the policies by which vGPUs share time, by NVML's numbers.
func schedulers() map[uint32]string {
	return map[uint32]string{
		nvml.VGPU_SCHEDULER_POLICY_BEST_EFFORT: "best-effort", nvml.VGPU_SCHEDULER_POLICY_EQUAL_SHARE: "equal-share", nvml.VGPU_SCHEDULER_POLICY_FIXED_SHARE: "fixed-share",
	}
}

// VGPU reads how a card carries vGPUs. A driver that is no vGPU host tells
// nothing.
func (s *Source) VGPU(uuid string) (VGPU, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	device, err := s.deviceLocked(uuid)
	if err != nil {
		return VGPU{}, err
	}
	var v VGPU
	if s.has("nvmlDeviceGetVgpuHeterogeneousMode") {
		if mode, result := device.GetVgpuHeterogeneousMode(); result == nvml.SUCCESS {
			v.Mixed = gpu.Known(mode.Mode != 0)
		}
	}
	if s.has("nvmlDeviceGetVgpuSchedulerState") {
		if state, result := device.GetVgpuSchedulerState(); result == nvml.SUCCESS {
			if name, ok := schedulers()[state.SchedulerPolicy]; ok {
				v.Scheduler = gpu.Known(name)
			}
		}
	}
	return v, nil
}

// SetVGPUMixed lets a card without vGPUs carry those of different sizes, or of one.
// The mode ends when virtual functions are switched.
func (s *Source) SetVGPUMixed(uuid string, on bool) error {
	device, unlock, err := s.vgpuDevice(uuid, "nvmlDeviceSetVgpuHeterogeneousMode")
	if err != nil {
		return err
	}
	defer unlock()
	mode := nvml.VgpuHeterogeneousMode{}
	if on {
		mode.Mode = 1
	}
	if result := device.SetVgpuHeterogeneousMode(mode); result != nvml.SUCCESS {
		return failure("set the mixed-size mode", result)
	}
	return nil
}

// SetVGPUScheduler sets how the card's vGPUs share time, with the driver's own time
// slices, until the driver is loaded anew. No guest may run.
func (s *Source) SetVGPUScheduler(uuid, policy string) error {
	device, unlock, err := s.vgpuDevice(uuid, "nvmlDeviceSetVgpuSchedulerState")
	if err != nil {
		return err
	}
	defer unlock()
	for number, name := range schedulers() {
		if name != policy {
			continue
		}
		if result := device.SetVgpuSchedulerState(&nvml.VgpuSchedulerSetState{SchedulerPolicy: number}); result != nvml.SUCCESS {
			return failure("set the vGPU scheduler", result)
		}
		return nil
	}
	return fmt.Errorf("set the vGPU scheduler: no policy %q", policy)
}

// vgpuDevice finds a card for a change that takes a symbol, and locks the source.
func (s *Source) vgpuDevice(uuid, symbol string) (device nvml.Device, unlock func(), err error) {
	s.mutex.Lock()
	device, ok := s.devices[uuid]
	switch {
	case !ok:
		err = fmt.Errorf("%w: %s", gpu.ErrNoCard, uuid)
	case !s.has(symbol):
		err = fmt.Errorf("vGPU: %w: it has no %s", gpu.ErrNotSupported, symbol)
	}
	if err != nil {
		s.mutex.Unlock()
		return nil, nil, err
	}
	return device, s.mutex.Unlock, nil
}
