// SPDX-License-Identifier: Apache-2.0

// Package nvml knows cards through libnvidia-ml.so.1: the vendor's, or a
// stand-in's, by the same code. It is the only package that loads a vendor
// library. The library's functions resolve in the whole process, so a process
// opens one driver in its life.
package nvml

import (
	"errors"
	"fmt"
	"math/bits"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/divvy-gpu/divvy/internal/gpu"
)

const (
	library         = "libnvidia-ml.so.1"
	standinSymbol   = "divvy_standin"
	simulatedSuffix = "(simulated)"
	unknownBytes    = ^uint64(0)
)

// Source is one open driver. It is safe for concurrent use.
type Source struct {
	library nvml.Interface
	cards   []gpu.Card

	// mutex is held for reading while the library is called: NVML locks too, but shutdown
	// must not overtake a call, nor one that hangs keep others about other cards.
	mutex   sync.RWMutex
	devices map[string]nvml.Device
	// profiles are what drivers have told of MIG, by the card's UUID.
	profiles map[string]told

	listening sync.Mutex // held while somebody waits for faults; taken before mutex
	ears      nvml.EventSet
	listens   bool
}

var _ gpu.Source = (*Source)(nil)

// Open loads the driver in directory and lists its cards.
func Open(directory string) (*Source, error) {
	path := filepath.Join(directory, library)
	s := &Source{library: nvml.New(nvml.WithLibraryPath(path)), devices: map[string]nvml.Device{}}
	if result := s.library.Init(); result != nvml.SUCCESS {
		return nil, fmt.Errorf("%w: initialise %s: %s", gpu.ErrNoDriver, path, describe(result))
	}
	if err := s.list(); err != nil {
		s.library.Shutdown()
		return nil, fmt.Errorf("list the GPUs of %s: %w", path, err)
	}
	return s, nil
}

// describe does not ask the library, which may not be loaded.
func describe(result nvml.Return) string {
	switch result {
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return "the library cannot be loaded"
	case nvml.ERROR_DRIVER_NOT_LOADED:
		return "the kernel driver is not loaded"
	case nvml.ERROR_LIB_RM_VERSION_MISMATCH:
		return "library and kernel driver have different versions"
	case nvml.ERROR_NO_PERMISSION:
		return "no permission"
	}
	return fmt.Sprintf("NVML error %d", result)
}

func failure(what string, result nvml.Return) error {
	cause := gpu.ErrNoDriver
	switch result {
	case nvml.SUCCESS:
		return nil
	case nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_FUNCTION_NOT_FOUND:
		cause = gpu.ErrNotSupported
	case nvml.ERROR_NOT_FOUND, nvml.ERROR_GPU_IS_LOST, nvml.ERROR_INVALID_ARGUMENT:
		cause = gpu.ErrNoCard
	}
	return fmt.Errorf("%s: %w: %s", what, cause, describe(result))
}

func (s *Source) list() error {
	version, result := s.library.SystemGetDriverVersion()
	if result != nvml.SUCCESS {
		return failure("driver version", result)
	}
	standin := s.library.Extensions().LookupSymbol(standinSymbol) == nil
	count, result := s.library.DeviceGetCount()
	if result != nvml.SUCCESS {
		return failure("count", result)
	}
	for i := range count {
		device, result := s.library.DeviceGetHandleByIndex(i)
		if result == nvml.ERROR_GPU_IS_LOST {
			continue // the others can be shared
		}
		if result != nvml.SUCCESS {
			return failure(fmt.Sprintf("GPU %d", i), result)
		}
		card, err := s.describe(device)
		if err != nil {
			return fmt.Errorf("GPU %d: %w", i, err)
		}
		card.DriverVersion = version
		card.Simulated = standin || strings.HasSuffix(card.Name, simulatedSuffix)
		s.cards = append(s.cards, card)
		s.devices[card.UUID] = device
	}
	s.findRoots()
	return nil
}

func (s *Source) describe(device nvml.Device) (gpu.Card, error) {
	var card gpu.Card
	var result nvml.Return
	if card.UUID, result = s.library.DeviceGetUUID(device); result != nvml.SUCCESS {
		return card, failure("UUID", result)
	}
	if card.Name, result = s.library.DeviceGetName(device); result != nvml.SUCCESS {
		return card, failure("name", result)
	}
	if pci, result := s.library.DeviceGetPciInfo(device); result == nvml.SUCCESS {
		card.PCIAddress = address(pci)
	}
	card.Architecture, card.NUMANode, card.MIG = s.architecture(device), s.node(device), s.mig(device)
	_, usable, err := s.memory(device)
	if errors.Is(err, gpu.ErrNotSupported) {
		usable, err = hostMemory()
		card.MemoryShared = true
	}
	card.MemoryBytes = usable
	return card, err
}

// hostMemory is all of the host's. A card that has none of its own uses that, and what the
// driver's CUDA gives as its total is about as much; NVML says of it that it is not supported
// (seen of GB10 with drivers 580: reports of users; and of Tegra's).
func hostMemory() (uint64, error) {
	var info syscall.Sysinfo_t
	if err := syscall.Sysinfo(&info); err != nil {
		return 0, fmt.Errorf("memory of the host: %w", err)
	}
	return uint64(info.Totalram) * uint64(info.Unit), nil
}

// architectures are the names of NVML's numbers (nvmlDeviceArchitecture_t).
var architectures = map[nvml.DeviceArchitecture]string{
	nvml.DEVICE_ARCH_KEPLER: "Kepler", nvml.DEVICE_ARCH_MAXWELL: "Maxwell", nvml.DEVICE_ARCH_PASCAL: "Pascal", nvml.DEVICE_ARCH_VOLTA: "Volta",
	nvml.DEVICE_ARCH_TURING: "Turing", nvml.DEVICE_ARCH_AMPERE: "Ampere", nvml.DEVICE_ARCH_ADA: "Ada Lovelace", nvml.DEVICE_ARCH_HOPPER: "Hopper",
	nvml.DEVICE_ARCH_BLACKWELL: "Blackwell",
}

func (s *Source) architecture(device nvml.Device) string {
	if !s.has("nvmlDeviceGetArchitecture") {
		return ""
	}
	number, result := s.library.DeviceGetArchitecture(device)
	if result != nvml.SUCCESS {
		return ""
	}
	return architectures[number]
}

// node is the first of the nodes that the driver names.
func (s *Source) node(device nvml.Device) *int {
	if !s.has("nvmlDeviceGetMemoryAffinity") {
		return nil
	}
	const most = 256 // nodes
	set, result := s.library.DeviceGetMemoryAffinity(device, most, nvml.AFFINITY_SCOPE_NODE)
	if result != nvml.SUCCESS {
		return nil
	}
	for i, word := range set {
		if word != 0 {
			node := i*bits.UintSize + bits.TrailingZeros(word)
			return &node
		}
	}
	return nil
}

func (s *Source) mig(device nvml.Device) gpu.MIGMode {
	if !s.has("nvmlDeviceGetMigMode") {
		return gpu.WithoutMIG
	}
	now, _, result := s.library.DeviceGetMigMode(device)
	switch {
	case result != nvml.SUCCESS:
		return gpu.WithoutMIG
	case now == nvml.DEVICE_MIG_ENABLE:
		return gpu.MIGOn
	}
	return gpu.MIGOff
}

// memory returns what is in use and what programs can use. Newer drivers tell
// apart what they keep for themselves.
func (s *Source) memory(device nvml.Device) (used, usable uint64, err error) {
	used, usable, result := s.memoryOf(device)
	return used, usable, failure("memory", result)
}

func (s *Source) memoryOf(device nvml.Device) (used, usable uint64, result nvml.Return) {
	if s.has("nvmlDeviceGetMemoryInfo_v2") {
		newer, result := s.library.DeviceGetMemoryInfo_v2(device)
		if result == nvml.SUCCESS && newer.Total > newer.Reserved {
			return newer.Used, newer.Total - newer.Reserved, nvml.SUCCESS
		}
	}
	older, result := s.library.DeviceGetMemoryInfo(device)
	if result != nvml.SUCCESS {
		return 0, 0, result
	}
	return older.Used, older.Total, nvml.SUCCESS
}

// Cards lists the cards that were there when the source was opened.
func (s *Source) Cards() ([]gpu.Card, error) { return s.cards, nil }

// deviceLocked finds a card's device; the source is locked.
func (s *Source) deviceLocked(uuid string) (nvml.Device, error) {
	device, ok := s.devices[uuid]
	if !ok {
		return nil, fmt.Errorf("%w: %s", gpu.ErrNoCard, uuid)
	}
	return device, nil
}

// Account asks the driver who uses what. Of a card whose memory is the host's it tells at
// most what each process has.
func (s *Source) Account(uuid string) (gpu.Account, error) {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	device, err := s.deviceLocked(uuid)
	if err != nil {
		return gpu.Account{}, err
	}
	used, _, err := s.memory(device)
	shared := errors.Is(err, gpu.ErrNotSupported)
	if err != nil && !shared {
		return gpu.Account{}, err
	}
	all, err := s.processes(device)
	if shared {
		for _, p := range all {
			used += min(p.Bytes, ^uint64(0)-used)
		}
	}
	return gpu.Account{UsedBytes: used, Processes: all}, err
}

// Processes asks the driver who uses a card.
func (s *Source) Processes(uuid string) ([]gpu.Process, error) {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	device, err := s.deviceLocked(uuid)
	if err != nil {
		return nil, err
	}
	return s.processes(device)
}

func (s *Source) processes(device nvml.Device) ([]gpu.Process, error) {
	compute, result := s.library.DeviceGetComputeRunningProcesses(device)
	if result != nvml.SUCCESS {
		return nil, failure("processes", result)
	}
	all := make([]gpu.Process, 0, len(compute))
	seen := make(map[uint32]bool, len(compute))
	for _, p := range compute {
		seen[p.Pid] = true
		all = append(all, process(p))
	}
	// A process that renders too is in both lists with the same memory. Under MPS
	// the first list has the server, and its clients are in a list of their own.
	graphics, result := s.library.DeviceGetGraphicsRunningProcesses(device)
	if result != nvml.SUCCESS && result != nvml.ERROR_NOT_SUPPORTED {
		return nil, failure("graphics processes", result)
	}
	var clients []nvml.ProcessInfo
	if s.has("nvmlDeviceGetMPSComputeRunningProcesses") {
		clients, result = s.library.DeviceGetMPSComputeRunningProcesses(device)
		if result != nvml.SUCCESS && result != nvml.ERROR_NOT_SUPPORTED {
			return nil, failure("processes under MPS", result)
		}
	}
	for _, p := range slices.Concat(graphics, clients) {
		if !seen[p.Pid] {
			seen[p.Pid] = true
			all = append(all, process(p))
		}
	}
	return all, nil
}

func process(p nvml.ProcessInfo) gpu.Process {
	if p.UsedGpuMemory == unknownBytes {
		return gpu.Process{PID: int(p.Pid)}
	}
	return gpu.Process{PID: int(p.Pid), Bytes: p.UsedGpuMemory, Known: true}
}

// Close unloads the driver. It waits for Faults.
func (s *Source) Close() error {
	s.listening.Lock()
	defer s.listening.Unlock()
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.listens {
		_ = s.ears.Free()
		s.listens = false
	}
	s.devices = nil
	return failure("shut down", s.library.Shutdown())
}
