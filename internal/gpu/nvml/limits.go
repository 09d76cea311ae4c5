// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"fmt"
	"math"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/divvy-gpu/divvy/internal/gpu"
)

// limitSymbols are what memory limits of control groups take of a driver: from
// release 615 on (https://docs.nvidia.com/deploy/nvml-api/change-log.html).
func limitSymbols() []string {
	return []string{"nvmlDeviceSetMemoryLimits_v1", "nvmlDeviceGetMemoryLimits_v1"}
}

// LimitsMemory says why a card's driver limits no control groups; nil: it has the
// calls.
func (s *Source) LimitsMemory(uuid string) error {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	_, err := s.limitedLocked(uuid)
	return err
}

// SetMemoryLimit lets the processes of a control group, whose folder is group, hold
// at most so many bytes of a card together, and reads back whether the driver says
// so too. The driver guarantees as much only by the kernel's dmem controller; it is
// not asked to here. 0 takes the limit away. It takes root.
// https://docs.nvidia.com/deploy/mps/mpsv3-memory-partitioning.html
func (s *Source) SetMemoryLimit(uuid, group string, bytes uint64) error {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	device, err := s.limitedLocked(uuid)
	if err != nil {
		return err
	}
	if bytes == 0 {
		bytes = math.MaxUint64
	}
	if result := device.SetMemoryLimits_v1(group, 0, bytes); result != nvml.SUCCESS {
		return failure("set a memory limit", result)
	}
	told, result := device.GetMemoryLimits_v1(group)
	if result != nvml.SUCCESS {
		return failure("read a memory limit back", result)
	}
	if told.HardLimit != bytes {
		return fmt.Errorf("the driver took a memory limit of %d bytes and says %d: %w", bytes, told.HardLimit, gpu.ErrNotSupported)
	}
	return nil
}

// MemoryLimit returns the limit of a control group on a card, 0 for none, and what
// its processes hold, in bytes.
func (s *Source) MemoryLimit(uuid, group string) (limit, held uint64, err error) {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	device, err := s.limitedLocked(uuid)
	if err != nil {
		return 0, 0, err
	}
	told, result := device.GetMemoryLimits_v1(group)
	if result != nvml.SUCCESS {
		return 0, 0, failure("memory limit", result)
	}
	if told.HardLimit == math.MaxUint64 {
		told.HardLimit = 0
	}
	return told.HardLimit, told.CurrentUsed, nil
}

func (s *Source) limitedLocked(uuid string) (nvml.Device, error) {
	device, err := s.deviceLocked(uuid)
	if err != nil {
		return nil, err
	}
	for _, symbol := range limitSymbols() {
		if !s.has(symbol) {
			return nil, fmt.Errorf("memory limits: %w: it has no %s", gpu.ErrNotSupported, symbol)
		}
	}
	return device, nil
}
