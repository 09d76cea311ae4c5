// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"fmt"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/mig"
)

// MIG is how a card is divided.
type MIG struct {
	DeviceID uint16 // on PCI; 0: not told
	On       bool
	Pending  bool // the mode after the next reset
	// Processes are those on the card as a whole.
	Processes []int
	Instances []Instance
	// Profiles are those that the card has, by its driver; nil: it does not tell
	// (Ampere does only while the mode is on).
	Profiles []mig.Profile
}

// Instance is one GPU instance.
type Instance struct {
	Kind    int // NVML's number of its profile
	ID      int
	Start   int
	Compute []int // slices of its compute instances
	// Devices are the UUIDs (MIG-...) by which CUDA and containers know these
	// compute instances, in the same order; empty where the driver does not tell.
	Devices   []string
	Processes []int
}

// maxOfKind bounds instances of one profile, as drivers do.
const maxOfKind = 16

// computeSlices is how many slices compute instances have, by NVML's number of
// their profiles, NVML_COMPUTE_INSTANCE_PROFILE_*.
var computeSlices = [nvml.COMPUTE_INSTANCE_PROFILE_COUNT]int{1, 2, 3, 4, 7, 8, 6, 1}

// migSymbols are what MIG takes of a driver.
func migSymbols() []string {
	return []string{
		"nvmlDeviceGetMigMode", "nvmlDeviceSetMigMode", "nvmlDeviceGetGpuInstanceProfileInfo", "nvmlDeviceGetGpuInstances",
		"nvmlDeviceCreateGpuInstanceWithPlacement", "nvmlGpuInstanceDestroy", "nvmlGpuInstanceGetInfo",
		"nvmlGpuInstanceGetComputeInstanceProfileInfo", "nvmlGpuInstanceGetComputeInstances", "nvmlGpuInstanceCreateComputeInstance",
		"nvmlComputeInstanceDestroy", "nvmlComputeInstanceGetInfo", "nvmlDeviceGetGpuInstancePossiblePlacements",
	}
}

// migDevice finds a card for a question about MIG.
func (s *Source) migDeviceLocked(uuid string) (nvml.Device, error) {
	device, err := s.deviceLocked(uuid)
	if err != nil {
		return nil, err
	}
	for _, symbol := range migSymbols() {
		if !s.has(symbol) {
			return nil, fmt.Errorf("MIG: %w: it has no %s", gpu.ErrNotSupported, symbol)
		}
	}
	return device, nil
}

// MIG reads how a card is divided, and who uses it.
func (s *Source) MIG(uuid string) (MIG, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	device, err := s.deviceLocked(uuid)
	if err != nil {
		return MIG{}, err
	}
	var m MIG
	if pci, result := device.GetPciInfo(); result == nvml.SUCCESS {
		m.DeviceID = uint16(pci.PciDeviceId >> 16)
	}
	if _, err := s.migDeviceLocked(uuid); err != nil {
		return m, err
	}
	current, pending, result := device.GetMigMode()
	if result == nvml.ERROR_NOT_SUPPORTED {
		return m, nil // a card without MIG has its mode off
	}
	if result != nvml.SUCCESS {
		return m, failure("MIG mode", result)
	}
	m.On, m.Pending = current == nvml.DEVICE_MIG_ENABLE, pending == nvml.DEVICE_MIG_ENABLE
	if m.Profiles, err = s.profilesLocked(uuid, device, m.On); err != nil {
		return m, err
	}
	users := map[int][]int{}
	processes, result := device.GetComputeRunningProcesses()
	if result != nvml.SUCCESS && result != nvml.ERROR_NOT_SUPPORTED {
		return m, failure("processes", result)
	}
	for _, p := range processes {
		users[int(p.GpuInstanceId)] = append(users[int(p.GpuInstanceId)], int(p.Pid))
	}
	if !m.On {
		for _, p := range processes {
			m.Processes = append(m.Processes, int(p.Pid))
		}
		return m, nil
	}
	devices := s.migDevices(device)
	err = eachInstance(device, m.Profiles, func(of mig.Profile, instance nvml.GpuInstance, info nvml.GpuInstanceInfo) error {
		made := Instance{
			Kind: of.NVML, ID: int(info.Id), Start: int(info.Placement.Start), Compute: []int{}, Processes: users[int(info.Id)],
		}
		err := eachCompute(instance, of.Slices, func(slices int, c nvml.ComputeInstance) error {
			made.Compute = append(made.Compute, slices)
			if own, result := c.GetInfo(); result == nvml.SUCCESS && len(devices) > 0 {
				made.Devices = append(made.Devices, devices[place{int(info.Id), int(own.Id)}])
			}
			return nil
		})
		m.Instances = append(m.Instances, made)
		return err
	})
	slices.SortFunc(m.Instances, func(a, b Instance) int { return a.Start - b.Start })
	return m, err
}

// eachInstance visits the GPU instances of a card with these profiles.
func eachInstance(device nvml.Device, profiles []mig.Profile, visit func(of mig.Profile, instance nvml.GpuInstance, info nvml.GpuInstanceInfo) error) error {
	for _, f := range profiles {
		instances, result := device.GetGpuInstances(&nvml.GpuInstanceProfileInfo{Id: uint32(f.ID), InstanceCount: uint32(f.Most)})
		if result != nvml.SUCCESS {
			return failure("GPU instances", result)
		}
		for _, instance := range instances[:min(len(instances), maxOfKind)] {
			info, result := instance.GetInfo()
			if result != nvml.SUCCESS {
				return failure("a GPU instance", result)
			}
			if err := visit(f, instance, info); err != nil {
				return err
			}
		}
	}
	return nil
}

// eachCompute visits the compute instances of a GPU instance of so many slices.
func eachCompute(instance nvml.GpuInstance, most int, visit func(slices int, c nvml.ComputeInstance) error) error {
	for kind, slices := range computeSlices {
		if slices > most {
			continue
		}
		profile, result := instance.GetComputeInstanceProfileInfo(kind, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
		if result != nvml.SUCCESS {
			continue
		}
		list, result := instance.GetComputeInstances(&profile)
		if result != nvml.SUCCESS {
			return failure("compute instances", result)
		}
		for _, c := range list[:min(len(list), maxOfKind)] {
			if err := visit(int(profile.SliceCount), c); err != nil {
				return err
			}
		}
	}
	return nil
}

// SetMIG switches the mode. The driver resets the card where that is needed and
// nobody uses it; else the mode is pending, and an error says so.
func (s *Source) SetMIG(uuid string, on bool) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	device, err := s.migDeviceLocked(uuid)
	if err != nil {
		return err
	}
	mode := nvml.DEVICE_MIG_DISABLE
	if on {
		mode = nvml.DEVICE_MIG_ENABLE
	}
	activation, result := device.SetMigMode(mode)
	if result != nvml.SUCCESS {
		return failure("set the MIG mode", result)
	}
	if activation != nvml.SUCCESS {
		return failure("the new MIG mode waits for a reset of the GPU", activation)
	}
	return nil
}

// CreateInstance makes a GPU instance of a kind at a start.
func (s *Source) CreateInstance(uuid string, kind, start int) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	device, err := s.migDeviceLocked(uuid)
	if err != nil {
		return err
	}
	profile, result := device.GetGpuInstanceProfileInfo(kind)
	if result != nvml.SUCCESS {
		return failure("profile", result)
	}
	placements, result := device.GetGpuInstancePossiblePlacements(&profile)
	if result != nvml.SUCCESS {
		return failure("placements", result)
	}
	for _, placement := range placements {
		if int(placement.Start) == start {
			_, result = device.CreateGpuInstanceWithPlacement(&profile, &placement)
			return failure("create a GPU instance", result)
		}
	}
	return fmt.Errorf("create a GPU instance: the driver knows no start at %d: %w", start, gpu.ErrNotSupported)
}

// DestroyInstance destroys what is in a GPU instance, and itself unless only
// its compute instances are meant.
func (s *Source) DestroyInstance(uuid string, kind, start int, computeOnly bool) error {
	return s.withInstance(uuid, kind, start, func(of mig.Profile, instance nvml.GpuInstance) error {
		err := eachCompute(instance, of.Slices, func(_ int, c nvml.ComputeInstance) error {
			return failure("destroy a compute instance", c.Destroy())
		})
		if err != nil || computeOnly {
			return err
		}
		return failure("destroy a GPU instance", instance.Destroy())
	})
}

// CreateCompute makes a compute instance of so many slices in a GPU instance.
func (s *Source) CreateCompute(uuid string, kind, start, size int) error {
	return s.withInstance(uuid, kind, start, func(_ mig.Profile, instance nvml.GpuInstance) error {
		number := slices.Index(computeSlices[:], size)
		if number < 0 {
			return fmt.Errorf("compute instances of %d slices: %w", size, gpu.ErrNotSupported)
		}
		profile, result := instance.GetComputeInstanceProfileInfo(number, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
		if result != nvml.SUCCESS {
			return failure("profile", result)
		}
		_, result = instance.CreateComputeInstance(&profile)
		return failure("create a compute instance", result)
	})
}

func (s *Source) withInstance(uuid string, kind, start int, do func(mig.Profile, nvml.GpuInstance) error) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	device, err := s.migDeviceLocked(uuid)
	if err != nil {
		return err
	}
	profiles, err := s.profilesLocked(uuid, device, true)
	if err != nil {
		return err
	}
	var found nvml.GpuInstance
	var foundOf mig.Profile
	err = eachInstance(device, profiles, func(of mig.Profile, instance nvml.GpuInstance, info nvml.GpuInstanceInfo) error {
		if of.NVML == kind && int(info.Placement.Start) == start {
			found, foundOf = instance, of
		}
		return nil
	})
	if err != nil {
		return err
	}
	if found == nil {
		return fmt.Errorf("no GPU instance of profile %d at %d: %w", kind, start, gpu.ErrNoCard)
	}
	return do(foundOf, found)
}
