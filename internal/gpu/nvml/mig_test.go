// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"errors"
	"reflect"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"

	"github.com/divvy-gpu/divvy/internal/gpu"
)

// TestMIG divides a card of go-nvml's mock of a DGX A100.
func TestMIG(t *testing.T) {
	machine := dgxa100.New()
	device := machine.Devices[0].(*server.Device)
	device.GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) { return nil, nvml.SUCCESS }
	uuid, result := device.GetUUID()
	if result != nvml.SUCCESS {
		t.Fatal(result)
	}
	s := &Source{library: machine, devices: map[string]nvml.Device{uuid: device}}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	if m, err := s.MIG(uuid); err != nil || m.On {
		t.Fatalf("%+v, %v", m, err)
	}
	check(s.SetMIG(uuid, true))
	const slices1, slices3 = 0, 2
	check(s.CreateInstance(uuid, slices3, 4))
	check(s.CreateCompute(uuid, slices3, 4, 2))
	check(s.CreateCompute(uuid, slices3, 4, 1))
	check(s.CreateInstance(uuid, slices1, 0))
	if err := s.CreateInstance(uuid, slices3, 1); !errors.Is(err, gpu.ErrNotSupported) {
		t.Errorf("a start that is none: %v", err)
	}
	if err := s.CreateCompute(uuid, slices1, 5, 1); !errors.Is(err, gpu.ErrNoCard) {
		t.Errorf("an instance that is none: %v", err)
	}
	m, err := s.MIG(uuid)
	check(err)
	used := m.Instances[1].ID
	device.GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) {
		return []nvml.ProcessInfo{{Pid: 42, GpuInstanceId: uint32(used)}}, nvml.SUCCESS
	}
	m, err = s.MIG(uuid)
	check(err)
	want := MIG{DeviceID: m.DeviceID, On: true, Pending: true, Instances: []Instance{
		{Kind: slices1, ID: m.Instances[0].ID, Start: 0, Compute: []int{}},
		{Kind: slices3, ID: used, Start: 4, Compute: []int{1, 2}, Processes: []int{42}},
	}}
	if m.DeviceID == 0 || !reflect.DeepEqual(m, want) {
		t.Errorf("%+v, want %+v", m, want)
	}
	check(s.DestroyInstance(uuid, slices3, 4, true))
	check(s.DestroyInstance(uuid, slices1, 0, false))
	if m, err = s.MIG(uuid); err != nil || len(m.Instances) != 1 || len(m.Instances[0].Compute) != 0 {
		t.Errorf("%+v, %v", m, err)
	}
	if _, err := s.MIG("GPU-none"); !errors.Is(err, gpu.ErrNoCard) {
		t.Errorf("no such card: %v", err)
	}
	device.SetMigModeFunc = func(int) (nvml.Return, nvml.Return) { return nvml.ERROR_IN_USE, nvml.SUCCESS }
	if err := s.SetMIG(uuid, false); err == nil {
		t.Error("a mode that waits for a reset is a success")
	}
}
