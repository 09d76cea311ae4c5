// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"cmp"
	"fmt"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/divvy-gpu/divvy/internal/gpu"
)

// slowReasons are those that say the hardware holds clocks down. The others
// (idle, limits that somebody set) are no fault.
var slowReasons = []struct {
	bit  uint64
	text string
}{
	{nvml.ClocksThrottleReasonHwThermalSlowdown, "slowed down: too hot"},
	{nvml.ClocksThrottleReasonHwPowerBrakeSlowdown, "slowed down: external power brake"},
	{nvml.ClocksThrottleReasonHwSlowdown, "slowed down by the hardware"},
}

// Health asks the driver about a card. What an older driver or a smaller card
// does not tell is taken as well.
func (s *Source) Health(uuid string) (gpu.Health, error) {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	device, err := s.deviceLocked(uuid)
	if err != nil {
		return gpu.Health{}, err
	}
	for _, ask := range []func(nvml.Device) nvml.Return{
		func(d nvml.Device) nvml.Return { _, _, result := s.memoryOf(d); return result },
		func(d nvml.Device) nvml.Return {
			if !s.has("nvmlDeviceGetUtilizationRates") {
				return nvml.SUCCESS
			}
			_, result := s.library.DeviceGetUtilizationRates(d)
			return result
		},
	} {
		switch ask(device) {
		case nvml.ERROR_GPU_IS_LOST:
			return gpu.Health{State: gpu.Lost, Detail: "it has fallen off the bus"}, nil
		case nvml.ERROR_RESET_REQUIRED:
			return gpu.Health{State: gpu.NeedsReset, Detail: "the driver wants it to be reset"}, nil
		}
	}
	if detail, exclusive := s.unshareable(device); detail != "" {
		return gpu.Health{State: gpu.Unshareable, Detail: detail, Exclusive: exclusive}, nil
	}
	slowed := s.slowed(device)
	if detail := cmp.Or(s.damage(device), slowed); detail != "" {
		return gpu.Health{State: gpu.Degraded, Detail: detail, Slowed: slowed}, nil
	}
	return gpu.Health{State: gpu.Well}, nil
}

// unshareable words why programs cannot share the card as a whole, empty when they
// can, and says whether that is because it serves one process at a time.
func (s *Source) unshareable(device nvml.Device) (detail string, exclusive bool) {
	if _, _, result := s.memoryOf(device); result == nvml.ERROR_NOT_SUPPORTED {
		return "its memory is the host's, and the driver does not tell how much of it is in use: a share could not be held to its part", false
	}
	if s.has("nvmlDeviceGetMigMode") {
		if current, _, result := s.library.DeviceGetMigMode(device); result == nvml.SUCCESS && current == nvml.DEVICE_MIG_ENABLE {
			return "MIG mode is on: programs see its MIG devices, and shares divide whole GPUs", false
		}
	}
	if s.has("nvmlDeviceGetComputeMode") {
		switch mode, result := s.library.DeviceGetComputeMode(device); {
		case result != nvml.SUCCESS:
		case mode == nvml.COMPUTEMODE_EXCLUSIVE_PROCESS || mode == nvml.COMPUTEMODE_EXCLUSIVE_THREAD:
			return "its compute mode is exclusive: one process at a time can use it, or the MPS server", true
		case mode == nvml.COMPUTEMODE_PROHIBITED:
			return "its compute mode is prohibited: no program can use it", false
		}
	}
	return "", false
}

// damage words what is wrong with a card that works.
func (s *Source) damage(device nvml.Device) string {
	if s.has("nvmlDeviceGetRemappedRows") {
		_, _, pending, failed, result := s.library.DeviceGetRemappedRows(device)
		switch {
		case result != nvml.SUCCESS:
		case failed:
			return "damaged memory could not be remapped"
		case pending:
			return "damaged memory is remapped at the next reset"
		}
	}
	if s.has("nvmlDeviceGetRetiredPagesPendingStatus") {
		if pending, result := s.library.DeviceGetRetiredPagesPendingStatus(device); result == nvml.SUCCESS && pending == nvml.FEATURE_ENABLED {
			return "damaged pages are retired when the driver is loaded again"
		}
	}
	if s.has("nvmlDeviceGetTotalEccErrors") {
		count, result := s.library.DeviceGetTotalEccErrors(device, nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC)
		if result == nvml.SUCCESS && count > 0 {
			return fmt.Sprintf("%d uncorrected memory errors since the driver was loaded", count)
		}
	}
	return ""
}

// slowed words what holds the card's clocks down; empty: nothing.
func (s *Source) slowed(device nvml.Device) string {
	if s.has("nvmlDeviceGetCurrentClocksThrottleReasons") {
		reasons, result := s.library.DeviceGetCurrentClocksThrottleReasons(device)
		for _, r := range slowReasons {
			if result == nvml.SUCCESS && reasons&r.bit != 0 {
				return r.text
			}
		}
	}
	return ""
}

// has says whether the driver has a function; the library ends the process that
// calls one it lacks.
func (s *Source) has(symbol string) bool {
	return s.library.Extensions().LookupSymbol(symbol) == nil
}

// Faults waits for the driver to tell of an XID, on any card.
func (s *Source) Faults(patience time.Duration) ([]gpu.Fault, error) {
	s.listening.Lock()
	defer s.listening.Unlock()
	if err := s.listen(); err != nil {
		return nil, err
	}
	var faults []gpu.Fault
	wait := patience
	for range maxFaults {
		event, result := s.ears.Wait(uint32(wait.Milliseconds()))
		switch {
		case result == nvml.ERROR_TIMEOUT:
			return faults, nil
		case result != nvml.SUCCESS:
			return faults, failure("wait for events", result)
		}
		wait = 0 // what follows closely comes along
		if event.EventType != nvml.EventTypeXidCriticalError {
			continue // nobody asked for it
		}
		uuid, result := event.Device.GetUUID()
		if result != nvml.SUCCESS {
			return faults, failure("UUID of an event", result)
		}
		faults = append(faults, gpu.Fault{UUID: uuid, XID: event.EventData})
	}
	return faults, nil
}

// maxFaults bounds what is heard at once.
const maxFaults = 100

// listen asks for events, once.
func (s *Source) listen() error {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	if s.listens {
		return nil
	}
	if s.devices == nil {
		return fmt.Errorf("wait for events: %w", gpu.ErrNoDriver)
	}
	for _, symbol := range []string{"nvmlEventSetCreate", "nvmlEventSetFree", "nvmlEventSetWait", "nvmlDeviceRegisterEvents"} {
		if !s.has(symbol) {
			return fmt.Errorf("events: %w", gpu.ErrNotSupported)
		}
	}
	ears, result := s.library.EventSetCreate()
	if result != nvml.SUCCESS {
		return failure("event set", result)
	}
	heard := 0
	for _, device := range s.devices {
		if s.library.DeviceRegisterEvents(device, nvml.EventTypeXidCriticalError, ears) == nvml.SUCCESS {
			heard++
		}
	}
	if heard == 0 {
		_ = ears.Free()
		return fmt.Errorf("events: %w", gpu.ErrNotSupported)
	}
	s.ears, s.listens = ears, true
	return nil
}
