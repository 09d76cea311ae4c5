// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/divvy-gpu/divvy/internal/gpu"
)

// maxMIGDevices bounds the MIG devices of one card that are listed.
const maxMIGDevices = 64

// Reading tells all that the driver's library knows of the card at a PCI
// address, and whether there is one.
func (s *Source) Reading(address string) (gpu.Reading, bool) {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	i := slices.IndexFunc(s.cards, func(c gpu.Card) bool { return c.PCIAddress == address })
	if i < 0 {
		return gpu.Reading{}, false
	}
	card := s.cards[i]
	device, ok := s.devices[card.UUID]
	if !ok {
		return gpu.Reading{}, false
	}
	r := gpu.Reading{
		UUID: gpu.Known(card.UUID), Name: gpu.Known(card.Name), MemoryBytes: gpu.Known(card.MemoryBytes), MemoryShared: card.MemoryShared,
		Use: s.use(device), Condition: s.condition(device), Simulated: card.Simulated,
	}
	if s.has("nvmlDeviceGetMigMode") {
		if current, _, result := s.library.DeviceGetMigMode(device); result == nvml.SUCCESS {
			r.MIG = gpu.Known(current == nvml.DEVICE_MIG_ENABLE)
		}
	}
	if r.MIG.Value {
		r.Instances = s.instances(device)
	}
	return r, true
}

// number is a fact of what a question answered, divided.
func number(n uint32, result nvml.Return, divisor float64) gpu.Fact[float64] {
	if result != nvml.SUCCESS {
		return gpu.Fact[float64]{}
	}
	return gpu.Known(float64(n) / divisor)
}

func (s *Source) use(device nvml.Device) gpu.Use {
	use := gpu.Use{}
	if used, _, err := s.memory(device); err == nil {
		use.MemoryUsedBytes = gpu.Known(used)
	}
	if s.has("nvmlDeviceGetUtilizationRates") {
		rates, result := s.library.DeviceGetUtilizationRates(device)
		use.BusyPercent = number(rates.Gpu, result, 1)
	}
	if s.has("nvmlDeviceGetPowerUsage") {
		milliwatts, result := s.library.DeviceGetPowerUsage(device)
		use.PowerWatts = number(milliwatts, result, 1000)
	}
	if s.has("nvmlDeviceGetEnforcedPowerLimit") {
		milliwatts, result := s.library.DeviceGetEnforcedPowerLimit(device)
		use.PowerLimitWatts = number(milliwatts, result, 1000)
	}
	if s.has("nvmlDeviceGetTemperature") {
		degrees, result := s.library.DeviceGetTemperature(device, nvml.TEMPERATURE_GPU)
		use.TemperatureC = number(degrees, result, 1)
	}
	if s.has("nvmlDeviceGetClockInfo") {
		mhz, result := s.library.DeviceGetClockInfo(device, nvml.CLOCK_SM)
		use.ClockMHz = number(mhz, result, 1)
	}
	return use
}

// condition words the same damage as Health, with the counters beside it.
func (s *Source) condition(device nvml.Device) gpu.Condition {
	c := gpu.Condition{Troubles: []string{}}
	if s.has("nvmlDeviceGetTotalEccErrors") {
		for kind, fact := range map[nvml.MemoryErrorType]*gpu.Fact[uint64]{
			nvml.MEMORY_ERROR_TYPE_CORRECTED: &c.CorrectedErrors, nvml.MEMORY_ERROR_TYPE_UNCORRECTED: &c.UncorrectedErrors,
		} {
			if n, result := s.library.DeviceGetTotalEccErrors(device, kind, nvml.VOLATILE_ECC); result == nvml.SUCCESS {
				*fact = gpu.Known(n)
			}
		}
	}
	if s.has("nvmlDeviceGetCurrentClocksThrottleReasons") {
		if reasons, result := s.library.DeviceGetCurrentClocksThrottleReasons(device); result == nvml.SUCCESS {
			var words []string
			for _, r := range slowReasons {
				if reasons&r.bit != 0 {
					words = append(words, r.text)
				}
			}
			c.Throttled = gpu.Known(strings.Join(words, ", "))
		}
	}
	if detail := s.damage(device); detail != "" && detail != c.Throttled.Value && !strings.HasPrefix(c.Throttled.Value, detail+",") {
		c.Troubles = append(c.Troubles, detail)
	}
	return c
}

// place is where a MIG device is on its card: a GPU instance, and a compute
// instance in it, by the driver's numbers.
type place struct{ gpu, compute int }

// eachDevice visits a card's MIG devices.
func (s *Source) eachDevice(device nvml.Device, visit func(uuid string, at place, instance nvml.Device)) {
	for _, symbol := range []string{
		"nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigDeviceHandleByIndex", "nvmlDeviceGetGpuInstanceId", "nvmlDeviceGetComputeInstanceId",
	} {
		if !s.has(symbol) {
			return
		}
	}
	count, result := s.library.DeviceGetMaxMigDeviceCount(device)
	if result != nvml.SUCCESS {
		return
	}
	for i := range min(count, maxMIGDevices) {
		instance, result := s.library.DeviceGetMigDeviceHandleByIndex(device, i)
		if result != nvml.SUCCESS {
			continue // there are fewer than there may be
		}
		uuid, result := s.library.DeviceGetUUID(instance)
		if result != nvml.SUCCESS {
			continue
		}
		gpuInstance, result := s.library.DeviceGetGpuInstanceId(instance)
		if result != nvml.SUCCESS {
			continue
		}
		compute, result := s.library.DeviceGetComputeInstanceId(instance)
		if result != nvml.SUCCESS {
			continue
		}
		visit(uuid, place{gpuInstance, compute}, instance)
	}
}

// migDevices are the UUIDs of a card's MIG devices.
func (s *Source) migDevices(device nvml.Device) map[place]string {
	found := map[place]string{}
	s.eachDevice(device, func(uuid string, at place, _ nvml.Device) { found[at] = uuid })
	return found
}

// instances lists a card's MIG devices.
func (s *Source) instances(device nvml.Device) []gpu.Partition {
	var parts []gpu.Partition
	s.eachDevice(device, func(uuid string, at place, instance nvml.Device) {
		p := gpu.Partition{Kind: gpu.PartitionMIG, ID: uuid, Nodes: []string{}, MIG: &gpu.MIGPlace{GPU: at.gpu, Compute: at.compute}}
		if name, result := s.library.DeviceGetName(instance); result == nvml.SUCCESS {
			if _, profile, ok := strings.Cut(name, " MIG "); ok {
				name = profile
			}
			p.Name = name
		}
		if _, usable, err := s.memory(instance); err == nil {
			p.MemoryBytes = gpu.Known(usable)
		}
		parts = append(parts, p)
	})
	return parts
}

// Links tells of NVLink: lanes that lead to another card, or through switches,
// where each card has as many lanes to each other as the narrower one has in all.
func (s *Source) Links() []gpu.Link {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	links := []gpu.Link{}
	if !s.has("nvmlDeviceGetNvLinkState") || !s.has("nvmlDeviceGetNvLinkRemotePciInfo") {
		return links
	}
	known := map[string]bool{}
	for _, c := range s.cards {
		known[c.PCIAddress] = true
	}
	direct := map[[2]string]int{}
	switched := map[string]int{}
	for _, c := range s.cards {
		device, ok := s.devices[c.UUID]
		if !ok {
			continue
		}
		for n := range nvml.NVLINK_MAX_LINKS {
			state, result := s.library.DeviceGetNvLinkState(device, n)
			if result != nvml.SUCCESS || state != nvml.FEATURE_ENABLED {
				continue
			}
			remote, result := s.library.DeviceGetNvLinkRemotePciInfo(device, n)
			if result != nvml.SUCCESS {
				continue
			}
			to := address(remote)
			switch {
			case !known[to]:
				switched[c.PCIAddress]++
			case c.PCIAddress < to: // the other end tells the same lane
				direct[[2]string{c.PCIAddress, to}]++
			}
		}
	}
	for i, a := range s.cards {
		for _, b := range s.cards[i+1:] {
			pair := [2]string{min(a.PCIAddress, b.PCIAddress), max(a.PCIAddress, b.PCIAddress)}
			if lanes := direct[pair] + min(switched[a.PCIAddress], switched[b.PCIAddress]); lanes > 0 {
				links = append(links, gpu.Link{A: pair[0], B: pair[1], Kind: "nvlink", Lanes: gpu.Known(lanes)})
			}
		}
	}
	slices.SortFunc(links, func(x, y gpu.Link) int { return cmp.Or(cmp.Compare(x.A, y.A), cmp.Compare(x.B, y.B)) })
	return links
}

func address(pci nvml.PciInfo) string {
	return fmt.Sprintf("%04x:%02x:%02x.0", pci.Domain, pci.Bus, pci.Device)
}
