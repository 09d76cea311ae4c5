// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"encoding/binary"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/divvy-gpu/divvy/internal/gpu"
)

// Telemetry asks for all that the driver's library measures.
func (s *Source) Telemetry(uuid string) (gpu.Telemetry, error) {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	device, err := s.deviceLocked(uuid)
	if err != nil {
		return gpu.Telemetry{}, err
	}
	if _, _, result := s.memoryOf(device); result != nvml.SUCCESS && result != nvml.ERROR_NOT_SUPPORTED {
		return gpu.Telemetry{}, failure("telemetry", result)
	}
	use, condition := s.use(device), s.condition(device)
	t := gpu.Telemetry{
		BusyPercent: use.BusyPercent, PowerWatts: use.PowerWatts, PowerLimitWatts: use.PowerLimitWatts, TemperatureC: use.TemperatureC,
		SMClockMHz: use.ClockMHz, CorrectedErrors: condition.CorrectedErrors, UncorrectedErrors: condition.UncorrectedErrors,
		MemoryTemperatureC: s.memoryTemperature(device),
	}
	if s.has("nvmlDeviceGetTotalEnergyConsumption") {
		if millijoules, result := s.library.DeviceGetTotalEnergyConsumption(device); result == nvml.SUCCESS {
			t.EnergyJoules = gpu.Known(float64(millijoules) / 1000)
		}
	}
	if s.has("nvmlDeviceGetUtilizationRates") {
		rates, result := s.library.DeviceGetUtilizationRates(device)
		t.MemoryBusyPercent = number(rates.Memory, result, 1)
	}
	if s.has("nvmlDeviceGetEncoderUtilization") {
		percent, _, result := s.library.DeviceGetEncoderUtilization(device)
		t.EncoderPercent = number(percent, result, 1)
	}
	if s.has("nvmlDeviceGetDecoderUtilization") {
		percent, _, result := s.library.DeviceGetDecoderUtilization(device)
		t.DecoderPercent = number(percent, result, 1)
	}
	if s.has("nvmlDeviceGetPcieReplayCounter") {
		if replays, result := s.library.DeviceGetPcieReplayCounter(device); result == nvml.SUCCESS {
			t.PCIeReplays = gpu.Known(float64(replays))
		}
	}
	if s.has("nvmlDeviceGetClockInfo") {
		mhz, result := s.library.DeviceGetClockInfo(device, nvml.CLOCK_MEM)
		t.MemoryClockMHz = number(mhz, result, 1)
	}
	if s.has("nvmlDeviceGetCurrentClocksThrottleReasons") {
		if reasons, result := s.library.DeviceGetCurrentClocksThrottleReasons(device); result == nvml.SUCCESS {
			t.Slowed = gpu.Known(slowed(reasons))
		}
	}
	if s.has("nvmlDeviceGetRemappedRows") {
		if correctable, uncorrectable, pending, failed, result := s.library.DeviceGetRemappedRows(device); result == nvml.SUCCESS {
			t.Rows = gpu.Known(gpu.Rows{Correctable: uint64(correctable), Uncorrectable: uint64(uncorrectable), Pending: pending, Failed: failed})
		}
	}
	s.eachDevice(device, func(uuid string, at place, instance nvml.Device) {
		d := gpu.DeviceUse{ID: uuid, Instance: at.gpu}
		if name, result := s.library.DeviceGetName(instance); result == nvml.SUCCESS {
			if _, profile, ok := strings.Cut(name, " MIG "); ok {
				d.Profile = strings.TrimSuffix(profile, " "+simulatedSuffix)
			}
		}
		if used, usable, err := s.memory(instance); err == nil {
			d.TotalBytes, d.UsedBytes = usable, used
			t.Devices = append(t.Devices, d)
		}
	})
	return t, nil
}

// Activity averages the samples that the driver has of each process.
func (s *Source) Activity(uuid string, since time.Time) (gpu.Activity, error) {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	device, err := s.deviceLocked(uuid)
	if err != nil {
		return gpu.Activity{}, err
	}
	if !s.has("nvmlDeviceGetProcessUtilization") {
		return gpu.Activity{}, fmt.Errorf("activity: %w", gpu.ErrNotSupported)
	}
	after := uint64(max(since.UnixMicro(), 0))
	samples, result := s.utilization(device, after)
	switch result {
	case nvml.SUCCESS, nvml.ERROR_NOT_FOUND: // none had a kernel
	case nvml.ERROR_NOT_SUPPORTED:
		return gpu.Activity{}, fmt.Errorf("activity: %w", gpu.ErrNotSupported)
	default:
		return gpu.Activity{}, failure("activity", result)
	}
	return gpu.Activity{BusyPercent: s.use(device).BusyPercent, Processes: averages(samples, after)}, nil
}

// utilization asks for the samples of processes. The library asks how many there are, and then
// for as many: where more have come meanwhile it ends in a panic (go-nvml 0.13.4). It is asked
// again then.
func (s *Source) utilization(device nvml.Device, after uint64) ([]nvml.ProcessUtilizationSample, nvml.Return) {
	for range 10 {
		if samples, result, grown := s.utilizationOnce(device, after); !grown {
			return samples, result
		}
	}
	return nil, nvml.ERROR_INSUFFICIENT_SIZE
}

func (s *Source) utilizationOnce(device nvml.Device, after uint64) (samples []nvml.ProcessUtilizationSample, result nvml.Return, grown bool) {
	defer func() {
		if broken := recover(); broken != nil {
			if _, is := broken.(runtime.Error); !is {
				panic(broken)
			}
			grown = true
		}
	}()
	samples, result = s.library.DeviceGetProcessUtilization(device, after)
	return samples, result, false
}

// averages adds up the samples of each process over the moments of which there are any. Drivers
// leave entries of moments before, or of none.
func averages(samples []nvml.ProcessUtilizationSample, after uint64) (all []gpu.ProcessActivity) {
	moments := map[uint64]bool{}
	sums := map[int]float64{}
	for _, sample := range samples {
		if sample.TimeStamp > after {
			moments[sample.TimeStamp] = true
			sums[int(sample.Pid)] += float64(min(sample.SmUtil, 100))
		}
	}
	for _, pid := range slices.Sorted(maps.Keys(sums)) {
		all = append(all, gpu.ProcessActivity{PID: pid, Percent: sums[pid] / float64(len(moments))})
	}
	return all
}

// slowed sorts the reasons for which clocks are down. Those of idle cards and of limits that
// somebody set are none. The hardware's own without one of the others is what it is.
func slowed(reasons uint64) gpu.Slowed {
	var is gpu.Slowed
	is.Thermal = reasons&(nvml.ClocksThrottleReasonHwThermalSlowdown|nvml.ClocksThrottleReasonSwThermalSlowdown) != 0
	is.Power = reasons&nvml.ClocksThrottleReasonHwPowerBrakeSlowdown != 0
	is.Hardware = reasons&nvml.ClocksThrottleReasonHwSlowdown != 0 && !is.Thermal && !is.Power
	return is
}

// memoryTemperature is a field, which cards without a sensor in their memory lack.
func (s *Source) memoryTemperature(device nvml.Device) gpu.Fact[float64] {
	if !s.has("nvmlDeviceGetFieldValues") {
		return gpu.Fact[float64]{}
	}
	values := []nvml.FieldValue{{FieldId: nvml.FI_DEV_MEMORY_TEMP}}
	if s.library.DeviceGetFieldValues(device, values) != nvml.SUCCESS || nvml.Return(values[0].NvmlReturn) != nvml.SUCCESS {
		return gpu.Fact[float64]{}
	}
	degrees := binary.LittleEndian.Uint32(values[0].Value[:])
	if degrees == 0 || degrees > 1000 {
		return gpu.Fact[float64]{} // drivers fill it with nothing where there is no sensor
	}
	return gpu.Known(float64(degrees))
}
