// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"errors"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"

	"github.com/divvy-gpu/divvy/internal/gpu"
)

// TestVGPU sets the modes of a card of go-nvml's mock, as a vGPU host's driver
// would have them, and as another's has not.
func TestVGPU(t *testing.T) {
	machine := dgxa100.New()
	device := machine.Devices[0].(*server.Device)
	var mixed, policy uint32 = 0, nvml.VGPU_SCHEDULER_POLICY_BEST_EFFORT
	answer := nvml.SUCCESS
	device.GetVgpuHeterogeneousModeFunc = func() (nvml.VgpuHeterogeneousMode, nvml.Return) {
		return nvml.VgpuHeterogeneousMode{Mode: mixed}, answer
	}
	device.SetVgpuHeterogeneousModeFunc = func(m nvml.VgpuHeterogeneousMode) nvml.Return { mixed = m.Mode; return answer }
	device.GetVgpuSchedulerStateFunc = func() (nvml.VgpuSchedulerGetState, nvml.Return) {
		return nvml.VgpuSchedulerGetState{SchedulerPolicy: policy}, answer
	}
	device.SetVgpuSchedulerStateFunc = func(s *nvml.VgpuSchedulerSetState) nvml.Return { policy = s.SchedulerPolicy; return answer }
	var missing error
	machine.LookupSymbolFunc = func(string) error { return missing }
	s := &Source{library: machine, devices: map[string]nvml.Device{"GPU-a": device}}

	if v, err := s.VGPU("GPU-a"); err != nil || v.Mixed != gpu.Known(false) || v.Scheduler != gpu.Known("best-effort") {
		t.Errorf("%+v, %v", v, err)
	}
	if err := errors.Join(s.SetVGPUMixed("GPU-a", true), s.SetVGPUScheduler("GPU-a", "fixed-share")); err != nil {
		t.Fatal(err)
	}
	if v, err := s.VGPU("GPU-a"); err != nil || v.Mixed != gpu.Known(true) || v.Scheduler != gpu.Known("fixed-share") {
		t.Errorf("%+v, %v", v, err)
	}
	if err := s.SetVGPUScheduler("GPU-a", "bogus"); err == nil {
		t.Error("a policy that is none")
	}
	answer = nvml.ERROR_IN_USE
	if s.SetVGPUMixed("GPU-a", false) == nil || s.SetVGPUScheduler("GPU-a", "equal-share") == nil {
		t.Error("changed while in use")
	}
	answer = nvml.ERROR_NOT_SUPPORTED
	if v, err := s.VGPU("GPU-a"); err != nil || v.Mixed.Known || v.Scheduler.Known {
		t.Errorf("no vGPU host: %+v, %v", v, err)
	}
	missing = errors.New("not there")
	if err := s.SetVGPUMixed("GPU-a", true); !errors.Is(err, gpu.ErrNotSupported) {
		t.Errorf("an older driver: %v", err)
	}
	if _, err := s.VGPU("GPU-b"); !errors.Is(err, gpu.ErrNoCard) {
		t.Errorf("no GPU: %v", err)
	}
	if err := s.SetVGPUScheduler("GPU-b", "equal-share"); !errors.Is(err, gpu.ErrNoCard) {
		t.Errorf("no GPU: %v", err)
	}
}
