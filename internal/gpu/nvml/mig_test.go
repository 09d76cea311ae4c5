// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"

	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/mig"
)

// TestMIG divides a card of go-nvml's mock of a DGX A100.
func TestMIG(t *testing.T) {
	machine := dgxa100.New()
	device := machine.Devices[0].(*server.Device)
	device.GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) { return nil, nvml.SUCCESS }
	// The mock answers neither of these.
	machine.LookupSymbolFunc = func(symbol string) error {
		if slices.Contains([]string{"nvmlDeviceGetGpuInstanceProfileInfoV", "nvmlDeviceGetMaxMigDeviceCount"}, symbol) {
			return errors.New("not there")
		}
		return nil
	}
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
	checkProfiles(t, m.Profiles)
	want := MIG{DeviceID: m.DeviceID, On: true, Pending: true, Profiles: m.Profiles, Instances: []Instance{
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
		t.Errorf("no such GPU: %v", err)
	}
	device.SetMigModeFunc = func(int) (nvml.Return, nvml.Return) { return nvml.ERROR_IN_USE, nvml.SUCCESS }
	if err := s.SetMIG(uuid, false); err == nil {
		t.Error("a mode that waits for a reset is a success")
	}
}

// checkProfiles: the driver's numbers, sizes and starts, with the names that
// nvidia-smi has for them, although this driver tells none.
func checkProfiles(t *testing.T, profiles []mig.Profile) {
	t.Helper()
	var names []string
	for _, f := range profiles {
		names = append(names, f.Name)
	}
	if want := []string{"1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb", "1g.5gb+me", "1g.10gb"}; !slices.Equal(names, want) {
		t.Fatalf("profiles %q, want %q", names, want)
	}
	three := profiles[2]
	if three.NVML != nvml.GPU_INSTANCE_PROFILE_3_SLICE || three.Slices != 3 || three.Most != 2 || three.Size != 4 || !slices.Equal(three.Starts, []int{0, 4}) {
		t.Errorf("3g.20gb is %+v", three)
	}
}
