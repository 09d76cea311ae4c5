// SPDX-License-Identifier: Apache-2.0

package simgpu

import (
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// first drops all results but the last of a call.
func first[T any](_ T, r nvml.Return) nvml.Return { return r }

func second[A, B any](_ A, _ B, r nvml.Return) nvml.Return { return r }

// TestNVMLMonitors asks what monitors like nvidia-smi, nvtop, gpustat and the exporter of
// DCGM ask of a card: everything is answered, or
// refused as a card of that kind refuses it.
func TestNVMLMonitors(t *testing.T) {
	socket, _ := serve(t, Config{Cards: "H100-80GB,T4,RTX4090"})
	n := startNVML(t, "standin", socket)
	d := make([]nvml.Device, 3)
	for i := range d {
		d[i] = must[nvml.Device](t, "card")(n.DeviceGetHandleByIndex(i))
	}
	const all, none = "yyy", "nnn"
	for _, c := range []struct {
		what     string
		supports string // by the H100, the T4, the RTX 4090
		ask      func(nvml.Device) nvml.Return
	}{
		{"name", all, func(d nvml.Device) nvml.Return { return first(d.GetName()) }},
		{"UUID", all, func(d nvml.Device) nvml.Return { return first(d.GetUUID()) }},
		{"serial", all, func(d nvml.Device) nvml.Return { return first(d.GetSerial()) }},
		{"board id", all, func(d nvml.Device) nvml.Return { return first(d.GetBoardId()) }},
		{"board part", all, func(d nvml.Device) nvml.Return { return first(d.GetBoardPartNumber()) }},
		{"VBIOS", all, func(d nvml.Device) nvml.Return { return first(d.GetVbiosVersion()) }},
		{"InfoROM image", all, func(d nvml.Device) nvml.Return { return first(d.GetInforomImageVersion()) }},
		{"InfoROM of ECC", all, func(d nvml.Device) nvml.Return { return first(d.GetInforomVersion(nvml.INFOROM_ECC)) }},
		{"brand", all, func(d nvml.Device) nvml.Return { return first(d.GetBrand()) }},
		{"architecture", all, func(d nvml.Device) nvml.Return { return first(d.GetArchitecture()) }},
		{"compute capability", all, func(d nvml.Device) nvml.Return { return second(d.GetCudaComputeCapability()) }},
		{"minor", all, func(d nvml.Device) nvml.Return { return first(d.GetMinorNumber()) }},
		{"PCI", all, func(d nvml.Device) nvml.Return { return first(d.GetPciInfo()) }},
		{"PCIe generation", all, func(d nvml.Device) nvml.Return { return first(d.GetCurrPcieLinkGeneration()) }},
		{"highest PCIe generation", all, func(d nvml.Device) nvml.Return { return first(d.GetMaxPcieLinkGeneration()) }},
		{"PCIe width", all, func(d nvml.Device) nvml.Return { return first(d.GetCurrPcieLinkWidth()) }},
		{"highest PCIe width", all, func(d nvml.Device) nvml.Return { return first(d.GetMaxPcieLinkWidth()) }},
		{"PCIe sent", all, func(d nvml.Device) nvml.Return { return first(d.GetPcieThroughput(nvml.PCIE_UTIL_TX_BYTES)) }},
		{"PCIe replays", all, func(d nvml.Device) nvml.Return { return first(d.GetPcieReplayCounter()) }},
		{"memory", all, func(d nvml.Device) nvml.Return { return first(d.GetMemoryInfo()) }},
		{"memory v2", all, func(d nvml.Device) nvml.Return { return first(d.GetMemoryInfo_v2()) }},
		{"BAR1", all, func(d nvml.Device) nvml.Return { return first(d.GetBAR1MemoryInfo()) }},
		{"memory bus", all, func(d nvml.Device) nvml.Return { return first(d.GetMemoryBusWidth()) }},
		{"utilisation", all, func(d nvml.Device) nvml.Return { return first(d.GetUtilizationRates()) }},
		{"encoder", all, func(d nvml.Device) nvml.Return { return second(d.GetEncoderUtilization()) }},
		{"decoder", all, func(d nvml.Device) nvml.Return { return second(d.GetDecoderUtilization()) }},
		{"JPEG", all, func(d nvml.Device) nvml.Return { return second(d.GetJpgUtilization()) }},
		{"OFA", all, func(d nvml.Device) nvml.Return { return second(d.GetOfaUtilization()) }},
		{"encoder sessions", all, func(d nvml.Device) nvml.Return { return first(d.GetEncoderSessions()) }},
		{"encoder statistics", all, func(d nvml.Device) nvml.Return { _, _, _, r := d.GetEncoderStats(); return r }},
		{"frame buffer capture", all, func(d nvml.Device) nvml.Return { return first(d.GetFBCStats()) }},
		{"samples of power", all, func(d nvml.Device) nvml.Return { return second(d.GetSamples(nvml.TOTAL_POWER_SAMPLES, 0)) }},
		{"samples of utilisation", all, func(d nvml.Device) nvml.Return { return second(d.GetSamples(nvml.GPU_UTILIZATION_SAMPLES, 0)) }},
		{"violations", all, func(d nvml.Device) nvml.Return { return first(d.GetViolationStatus(nvml.PERF_POLICY_THERMAL)) }},
		{"temperature", all, func(d nvml.Device) nvml.Return { return first(d.GetTemperature(nvml.TEMPERATURE_GPU)) }},
		{"shutdown threshold", all, func(d nvml.Device) nvml.Return {
			return first(d.GetTemperatureThreshold(nvml.TEMPERATURE_THRESHOLD_SHUTDOWN))
		}},
		{"slowdown threshold", all, func(d nvml.Device) nvml.Return {
			return first(d.GetTemperatureThreshold(nvml.TEMPERATURE_THRESHOLD_SLOWDOWN))
		}},
		{"power", all, func(d nvml.Device) nvml.Return { return first(d.GetPowerUsage()) }},
		{"power limit", all, func(d nvml.Device) nvml.Return { return first(d.GetPowerManagementLimit()) }},
		{"enforced power limit", all, func(d nvml.Device) nvml.Return { return first(d.GetEnforcedPowerLimit()) }},
		{"default power limit", all, func(d nvml.Device) nvml.Return { return first(d.GetPowerManagementDefaultLimit()) }},
		{"power limits", all, func(d nvml.Device) nvml.Return { return second(d.GetPowerManagementLimitConstraints()) }},
		{"energy", all, func(d nvml.Device) nvml.Return { return first(d.GetTotalEnergyConsumption()) }},
		{"fan", "nny", func(d nvml.Device) nvml.Return { return first(d.GetFanSpeed()) }},
		{"second fan", "nny", func(d nvml.Device) nvml.Return { return first(d.GetFanSpeed_v2(1)) }},
		{"fans", all, func(d nvml.Device) nvml.Return { return first(d.GetNumFans()) }},
		{"clock", all, func(d nvml.Device) nvml.Return { return first(d.GetClockInfo(nvml.CLOCK_SM)) }},
		{"memory clock", all, func(d nvml.Device) nvml.Return { return first(d.GetClockInfo(nvml.CLOCK_MEM)) }},
		{"video clock", all, func(d nvml.Device) nvml.Return { return first(d.GetClockInfo(nvml.CLOCK_VIDEO)) }},
		{"highest clock", all, func(d nvml.Device) nvml.Return { return first(d.GetMaxClockInfo(nvml.CLOCK_SM)) }},
		{"application clock", all, func(d nvml.Device) nvml.Return { return first(d.GetApplicationsClock(nvml.CLOCK_SM)) }},
		{"reasons", all, func(d nvml.Device) nvml.Return { return first(d.GetCurrentClocksThrottleReasons()) }},
		{"supported reasons", all, func(d nvml.Device) nvml.Return { return first(d.GetSupportedClocksThrottleReasons()) }},
		{"P-state", all, func(d nvml.Device) nvml.Return { return first(d.GetPerformanceState()) }},
		{"P-states", all, func(d nvml.Device) nvml.Return { return first(d.GetSupportedPerformanceStates()) }},
		{"clocks of P0", all, func(d nvml.Device) nvml.Return { return second(d.GetMinMaxClockOfPState(nvml.CLOCK_SM, nvml.PSTATE_0)) }},
		{"clocks of P8", "nyy", func(d nvml.Device) nvml.Return { return second(d.GetMinMaxClockOfPState(nvml.CLOCK_SM, nvml.PSTATE_8)) }},
		{"dynamic P-states", all, func(d nvml.Device) nvml.Return { return first(d.GetDynamicPstatesInfo()) }},
		{"persistence", all, func(d nvml.Device) nvml.Return { return first(d.GetPersistenceMode()) }},
		{"compute mode", all, func(d nvml.Device) nvml.Return { return first(d.GetComputeMode()) }},
		{"display", all, func(d nvml.Device) nvml.Return { return first(d.GetDisplayActive()) }},
		{"accounting", all, func(d nvml.Device) nvml.Return { return first(d.GetAccountingMode()) }},
		{"ECC", "yyn", func(d nvml.Device) nvml.Return { return second(d.GetEccMode()) }},
		{"ECC errors", "yyn", func(d nvml.Device) nvml.Return {
			return first(d.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.AGGREGATE_ECC))
		}},
		{"ECC errors of L2", "nyn", func(d nvml.Device) nvml.Return {
			return first(d.GetMemoryErrorCounter(nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.VOLATILE_ECC, nvml.MEMORY_LOCATION_L2_CACHE))
		}},
		{"ECC errors of SRAM", "ynn", func(d nvml.Device) nvml.Return {
			return first(d.GetMemoryErrorCounter(nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.VOLATILE_ECC, nvml.MEMORY_LOCATION_SRAM))
		}},
		{"retired pages", "nyn", func(d nvml.Device) nvml.Return {
			return first(d.GetRetiredPages(nvml.PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR))
		}},
		{"remapped rows", "ynn", func(d nvml.Device) nvml.Return { _, _, _, _, r := d.GetRemappedRows(); return r }},
		{"row histogram", "ynn", func(d nvml.Device) nvml.Return { return first(d.GetRowRemapperHistogram()) }},
		{"MIG", "ynn", func(d nvml.Device) nvml.Return { return second(d.GetMigMode()) }},
		{"compute processes", all, func(d nvml.Device) nvml.Return { return first(d.GetComputeRunningProcesses()) }},
		{"graphics processes", all, func(d nvml.Device) nvml.Return { return first(d.GetGraphicsRunningProcesses()) }},
		{"MPS processes", all, func(d nvml.Device) nvml.Return { return first(d.GetMPSComputeRunningProcesses()) }},
		{"virtualisation", all, func(d nvml.Device) nvml.Return { return first(d.GetVirtualizationMode()) }},
		{"affinity", all, func(d nvml.Device) nvml.Return { return first(d.GetCpuAffinity(4)) }},
		{"addressing", all, func(d nvml.Device) nvml.Return { return first(d.GetAddressingMode()) }},
		{"a power limit cannot be set", none, func(d nvml.Device) nvml.Return { return d.SetPowerManagementLimit(100_000) }},
		{"clocks cannot be locked", none, func(d nvml.Device) nvml.Return { return d.SetGpuLockedClocks(300, 900) }},
	} {
		for i := range d {
			want := nvml.SUCCESS
			if c.supports[i] == 'n' {
				want = nvml.ERROR_NOT_SUPPORTED
			}
			if r := c.ask(d[i]); r != want {
				t.Errorf("%s of GPU %d: %v, want %v", c.what, i, r, want)
			}
		}
	}
}

// Values by number, as the exporter of DCGM reads them, agree with those by name.
func TestNVMLFields(t *testing.T) {
	socket, _ := serve(t, Config{Cards: "A100-40GB"})
	n := startNVML(t, "standin", socket)
	d := must[nvml.Device](t, "card")(n.DeviceGetHandleByIndex(0))
	fields := []nvml.FieldValue{
		{FieldId: nvml.FI_DEV_POWER_INSTANT}, {FieldId: nvml.FI_DEV_POWER_DEFAULT_LIMIT}, {FieldId: nvml.FI_DEV_MEMORY_TEMP},
		{FieldId: nvml.FI_DEV_TOTAL_ENERGY_CONSUMPTION}, {FieldId: nvml.FI_DEV_ECC_CURRENT}, {FieldId: nvml.FI_DEV_REMAPPED_PENDING},
		{FieldId: nvml.FI_DEV_NVLINK_LINK_COUNT}, {FieldId: nvml.FI_DEV_RETIRED_SBE}, {FieldId: 100_000},
	}
	before := must[uint64](t, "energy")(d.GetTotalEnergyConsumption())
	if r := d.GetFieldValues(fields); r != nvml.SUCCESS {
		t.Fatal(r)
	}
	word := func(i int) uint64 {
		var n uint64
		for j := 7; j >= 0; j-- {
			n = n<<8 | uint64(fields[i].Value[j])
		}
		return n
	}
	power := must[uint32](t, "power")(d.GetPowerUsage())
	limit := must[uint32](t, "limit")(d.GetPowerManagementDefaultLimit())
	for i, want := range []uint64{uint64(power), uint64(limit), 38, 0, 1, 0, 0} {
		if got := word(i); nvml.Return(fields[i].NvmlReturn) != nvml.SUCCESS || (i != 3 && got != want) || (i == 3 && got < before) {
			t.Errorf("field %d: %d, %v; want %d", fields[i].FieldId, got, nvml.Return(fields[i].NvmlReturn), want)
		}
		if fields[i].Timestamp == 0 {
			t.Errorf("field %d has no time", fields[i].FieldId)
		}
	}
	for _, i := range []int{7, 8} {
		if r := nvml.Return(fields[i].NvmlReturn); r != nvml.ERROR_NOT_SUPPORTED {
			t.Errorf("field %d: %v", fields[i].FieldId, r)
		}
	}
	support := must[nvml.GpmSupport](t, "GPM")(d.GpmQueryDeviceSupport())
	if support.IsSupportedDevice != 0 {
		t.Error("it has GPM metrics")
	}
}

// Cards reach each other over PCIe, as the driver interface says.
func TestNVMLPeers(t *testing.T) {
	socket, _ := serve(t, Config{Cards: "2xA100-40GB"})
	n := startNVML(t, "standin", socket)
	a := must[nvml.Device](t, "GPU 0")(n.DeviceGetHandleByIndex(0))
	b := must[nvml.Device](t, "GPU 1")(n.DeviceGetHandleByIndex(1))
	for index, want := range map[nvml.GpuP2PCapsIndex]nvml.GpuP2PStatus{
		nvml.P2P_CAPS_INDEX_READ: nvml.P2P_STATUS_OK, nvml.P2P_CAPS_INDEX_WRITE: nvml.P2P_STATUS_OK, nvml.P2P_CAPS_INDEX_NVLINK: nvml.P2P_STATUS_NOT_SUPPORTED,
	} {
		if got := must[nvml.GpuP2PStatus](t, "peers")(a.GetP2PStatus(b, index)); got != want {
			t.Errorf("capability %d: status %d, want %d", index, got, want)
		}
	}
	if _, r := a.GetP2PStatus(a, nvml.P2P_CAPS_INDEX_READ); r != nvml.ERROR_INVALID_ARGUMENT {
		t.Errorf("a GPU and itself: %v", r)
	}
}
