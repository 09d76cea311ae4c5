// SPDX-License-Identifier: Apache-2.0

package simgpu

import (
	"errors"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/divvy-gpu/divvy/internal/simgpu/condition"
)

func injectFault(t *testing.T, truth *Truth, what Injection) uint64 {
	t.Helper()
	number, _, err := truth.Inject(t.Context(), what)
	if err != nil {
		t.Fatalf("%+v: %v", what, err)
	}
	return number
}

// listen makes an event set for one card.
func listen(t *testing.T, n nvml.Interface, device nvml.Device, types uint64) nvml.EventSet {
	t.Helper()
	set := must[nvml.EventSet](t, "event set")(n.EventSetCreate())
	t.Cleanup(func() { _ = set.Free() })
	if r := device.RegisterEvents(types, set); r != nvml.SUCCESS {
		t.Fatalf("register: %v", r)
	}
	return set
}

// TestNVMLFaults: what is injected comes as events, in counters and in states, as
// go-nvml has them.
func TestNVMLFaults(t *testing.T) {
	socket, truth := serve(t, Config{Cards: "A100-40GB,T4,RTX4090"})
	n := startNVML(t, "standin", socket)
	a100 := must[nvml.Device](t, "A100")(n.DeviceGetHandleByIndex(0))
	t4 := must[nvml.Device](t, "T4")(n.DeviceGetHandleByIndex(1))
	gaming := must[nvml.Device](t, "RTX 4090")(n.DeviceGetHandleByIndex(2))
	supported := must[uint64](t, "types")(a100.GetSupportedEventTypes())
	if supported != nvml.EventTypeXidCriticalError|nvml.EventTypeSingleBitEccError|nvml.EventTypeDoubleBitEccError|nvml.EventTypePState|nvml.EventTypeClock {
		t.Errorf("event types %#x", supported)
	}
	injectFault(t, truth, Injection{Fault: condition.Fault{Kind: condition.XID, XID: 63}}) // before anybody listens
	set := listen(t, n, a100, supported&^nvml.EventTypeClock)
	if r := gaming.RegisterEvents(nvml.EventTypeDoubleBitEccError, set); r != nvml.ERROR_NOT_SUPPORTED {
		t.Errorf("ECC events of a GPU without: %v", r)
	}
	expect := func(device nvml.Device, kind, data uint64) {
		t.Helper()
		e, r := set.Wait(5000)
		if r != nvml.SUCCESS || e.Device != device || e.EventType != kind || e.EventData != data ||
			e.GpuInstanceId != 0xffffffff || e.ComputeInstanceId != 0xffffffff {
			t.Errorf("event %+v, %v; want type %d data %d", e, r, kind, data)
		}
	}
	quiet := func() {
		t.Helper()
		if e, r := set.Wait(0); r != nvml.ERROR_TIMEOUT {
			t.Errorf("one more event: %+v, %v", e, r)
		}
	}
	quiet()
	injectFault(t, truth, Injection{Fault: condition.Fault{Kind: condition.ECCSingle, Count: 3}})
	expect(a100, nvml.EventTypeSingleBitEccError, 0)
	injectFault(t, truth, Injection{Fault: condition.Fault{Kind: condition.ECCDouble}})
	expect(a100, nvml.EventTypeDoubleBitEccError, 0)
	for _, xid := range []uint64{48, 63, 94} {
		expect(a100, nvml.EventTypeXidCriticalError, xid)
	}
	quiet()
	injectFault(t, truth, Injection{Fault: condition.Fault{Card: 1, Kind: condition.ECCDouble}}) // nobody listens there
	quiet()
	// Who waits is woken, not late.
	go func() { injectFault(t, truth, Injection{Fault: condition.Fault{Kind: condition.XID, XID: 13}}) }()
	expect(a100, nvml.EventTypeXidCriticalError, 13)

	count := func(d nvml.Device, kind nvml.MemoryErrorType, counter nvml.EccCounterType, want uint64) {
		t.Helper()
		if got := must[uint64](t, "ECC")(d.GetTotalEccErrors(kind, counter)); got != want {
			t.Errorf("%d ECC errors of kind %d in counter %d, not %d", got, kind, counter, want)
		}
		if got := must[uint64](t, "ECC of memory")(d.GetMemoryErrorCounter(kind, counter, nvml.MEMORY_LOCATION_DEVICE_MEMORY)); got != want {
			t.Errorf("%d errors of memory of kind %d in counter %d, not %d", got, kind, counter, want)
		}
	}
	count(a100, nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.VOLATILE_ECC, 3)
	count(a100, nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.AGGREGATE_ECC, 1)
	count(t4, nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.VOLATILE_ECC, 0)
	if corrected, uncorrected, pending, failed, r := a100.GetRemappedRows(); r != nvml.SUCCESS || corrected != 0 || uncorrected != 2 || !pending || failed {
		t.Errorf("remapped rows: %d, %d, %v, %v, %v", corrected, uncorrected, pending, failed, r)
	}
	if _, r := a100.GetRetiredPages(nvml.PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR); r != nvml.ERROR_NOT_SUPPORTED {
		t.Errorf("retired pages of a GPU that remaps rows: %v", r)
	}
	if pages := must[[]uint64](t, "retired pages")(t4.GetRetiredPages(nvml.PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR)); len(pages) != 1 {
		t.Errorf("retired pages %v", pages)
	}
	if pending := must[nvml.EnableState](t, "pending")(t4.GetRetiredPagesPendingStatus()); pending != nvml.FEATURE_ENABLED {
		t.Error("no retirement is pending")
	}
	injectFault(t, truth, Injection{Fault: condition.Fault{Kind: condition.XID, XID: 64}})
	expect(a100, nvml.EventTypeXidCriticalError, 64)
	if _, _, _, failed, _ := a100.GetRemappedRows(); !failed {
		t.Error("no remap has failed")
	}
	fields := []nvml.FieldValue{{FieldId: nvml.FI_DEV_ECC_DBE_AGG_TOTAL}, {FieldId: nvml.FI_DEV_REMAPPED_UNC}, {FieldId: nvml.FI_DEV_RETIRED_DBE}}
	if r := a100.GetFieldValues(fields); r != nvml.SUCCESS || fields[0].Value[0] != 1 || fields[1].Value[0] != 2 ||
		nvml.Return(fields[0].NvmlReturn) != nvml.SUCCESS || nvml.Return(fields[2].NvmlReturn) != nvml.ERROR_NOT_SUPPORTED {
		t.Errorf("fields: %+v, %v", fields, r)
	}
	if cleared, err := truth.ClearFaults(t.Context(), -1); err != nil || cleared != 4 {
		t.Errorf("cleared %d, %v", cleared, err)
	}
	count(a100, nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.VOLATILE_ECC, 0)
	count(a100, nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.AGGREGATE_ECC, 3)
	list, err := truth.Faults(t.Context())
	if err != nil || len(list) != 6 || list[0].XID != 63 || list[2].Kind != condition.ECCDouble || list[2].Active {
		t.Errorf("list: %+v, %v", list, err)
	}
}

// A slowdown is seen in reasons, clocks, heat and events, and is gone when it is
// cleared.
func TestNVMLSlowdown(t *testing.T) {
	socket, truth := serve(t, Config{Cards: "RTX4090"})
	n := startNVML(t, "standin", socket)
	d := must[nvml.Device](t, "card")(n.DeviceGetHandleByIndex(0))
	set := listen(t, n, d, nvml.EventTypeClock)
	fan := must[uint32](t, "fan")(d.GetFanSpeed())
	injectFault(t, truth, Injection{Fault: condition.Fault{Kind: condition.Thermal}})
	if e, r := set.Wait(5000); r != nvml.SUCCESS || e.EventType != nvml.EventTypeClock {
		t.Errorf("event %+v, %v", e, r)
	}
	reasons := must[uint64](t, "reasons")(d.GetCurrentClocksThrottleReasons())
	if want := uint64(nvml.ClocksThrottleReasonHwSlowdown | nvml.ClocksThrottleReasonHwThermalSlowdown | nvml.ClocksThrottleReasonGpuIdle); reasons != want {
		t.Errorf("reasons %#x, not %#x", reasons, want)
	}
	hot := must[uint32](t, "temperature")(d.GetTemperature(nvml.TEMPERATURE_GPU))
	if limit := must[uint32](t, "threshold")(d.GetTemperatureThreshold(nvml.TEMPERATURE_THRESHOLD_SLOWDOWN)); hot <= limit {
		t.Errorf("%d degrees, the threshold is %d", hot, limit)
	}
	if got := must[uint32](t, "fan")(d.GetFanSpeed()); got <= fan {
		t.Errorf("the fan turns at %d %%, before at %d %%", got, fan)
	}
	if _, err := truth.ClearFaults(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if reasons = must[uint64](t, "reasons")(d.GetCurrentClocksThrottleReasons()); reasons != nvml.ClocksThrottleReasonGpuIdle {
		t.Errorf("reasons %#x after a reset", reasons)
	}
}

// A lost card says so at every call but those that tell which one it was, other
// cards are well, and it comes back.
func TestNVMLCardLost(t *testing.T) {
	socket, truth := serve(t, Config{Cards: "2xH100-80GB"})
	n := startNVML(t, "standin", socket)
	d := must[nvml.Device](t, "card")(n.DeviceGetHandleByIndex(0))
	other := must[nvml.Device](t, "other GPU")(n.DeviceGetHandleByIndex(1))
	uuid := must[string](t, "UUID")(d.GetUUID())
	set := listen(t, n, d, nvml.EventTypeXidCriticalError)
	injectFault(t, truth, Injection{Fault: condition.Fault{Kind: condition.CardLost}})
	if e, r := set.Wait(5000); r != nvml.SUCCESS || e.EventData != 79 || must[string](t, "UUID")(e.Device.GetUUID()) != uuid {
		t.Errorf("event %+v, %v", e, r)
	}
	gone := func(what string, r nvml.Return) {
		t.Helper()
		if r != nvml.ERROR_GPU_IS_LOST {
			t.Errorf("%s: %v", what, r)
		}
	}
	_, r := n.DeviceGetHandleByIndex(0)
	gone("handle", r)
	_, r = n.DeviceGetHandleByUUID(uuid)
	gone("handle by UUID", r)
	_, r = d.GetMemoryInfo()
	gone("memory", r)
	_, r = d.GetTemperature(nvml.TEMPERATURE_GPU)
	gone("temperature", r)
	_, r = d.GetComputeRunningProcesses()
	gone("processes", r)
	_, r = d.GetUtilizationRates()
	gone("utilisation", r)
	gone("fields", d.GetFieldValues([]nvml.FieldValue{{FieldId: nvml.FI_DEV_ECC_CURRENT}}))
	must[string](t, "UUID")(d.GetUUID())
	must[int](t, "index")(d.GetIndex())
	must[nvml.PciInfo](t, "address")(d.GetPciInfo())
	must[nvml.Memory](t, "memory of the other")(other.GetMemoryInfo())
	if _, err := truth.ClearFaults(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	must[nvml.Memory](t, "memory when it is back")(d.GetMemoryInfo())
}

// TestInjectChoosesItsVictim: one process alone is it, of several one must be
// named, and who is not on the card cannot be hit.
func TestInjectChoosesItsVictim(t *testing.T) {
	socket, truth := serve(t, Config{Cards: "2xA100-40GB"})
	fault := Injection{Fault: condition.Fault{Kind: condition.XID, XID: 31}}
	if _, hit, err := truth.Inject(t.Context(), fault); err != nil || hit != 0 {
		t.Errorf("nobody is there: %d, %v", hit, err)
	}
	first, second, elsewhere := startCompute(t, socket), startCompute(t, socket), startCompute(t, socket)
	first.want("charge 0 4 67108864", "0")
	if _, hit, err := truth.Inject(t.Context(), fault); err != nil || hit != 1 {
		t.Errorf("one is there: %d, %v", hit, err)
	}
	second.want("charge 0 4 67108864", "0")
	elsewhere.want("charge 1 4 67108864", "0")
	if _, _, err := truth.Inject(t.Context(), fault); !errors.Is(err, condition.ErrInvalid) {
		t.Errorf("two are there: %v", err)
	}
	fault.PID = second.pid()
	if _, hit, err := truth.Inject(t.Context(), fault); err != nil || hit != 1 {
		t.Errorf("the second: %d, %v", hit, err)
	}
	fault.PID = elsewhere.pid()
	if _, _, err := truth.Inject(t.Context(), fault); !errors.Is(err, condition.ErrNotFound) {
		t.Errorf("one that is elsewhere: %v", err)
	}
	fault.PID, fault.XID = 0, 95
	if _, hit, err := truth.Inject(t.Context(), fault); err != nil || hit != 2 {
		t.Errorf("all on the GPU: %d, %v", hit, err)
	}
	for _, c := range []struct {
		process *process
		want    string
	}{{first, "2 214"}, {second, "2 214"}, {elsewhere, "0 0"}} {
		c.process.want("faulted 0", c.want)
	}
	elsewhere.want("faulted 1", "0 0")
	list, err := truth.Faults(t.Context())
	if err != nil || len(list) != 4 || list[1].PID != first.pid() || list[2].PID != second.pid() || list[3].Hit != 2 || list[3].PID != 0 {
		t.Errorf("list: %+v, %v", list, err)
	}
	for _, bad := range []Injection{
		{Fault: condition.Fault{Card: 7, Kind: condition.Thermal}}, {Fault: condition.Fault{Kind: condition.XID, XID: 1}},
		{Fault: condition.Fault{Kind: condition.ECCSingle, Count: 1 << 40}},
	} {
		if _, _, err := truth.Inject(t.Context(), bad); !errors.Is(err, condition.ErrInvalid) && !errors.Is(err, condition.ErrNotFound) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// A reading through the socket is the reading.
func TestCondition(t *testing.T) {
	_, truth := serve(t, Config{Cards: "L4"})
	r, err := truth.Condition(t.Context(), 0)
	if err != nil || r.Celsius != condition.IdleCelsius || r.PowerMW != 12_000 || r.Performance != 8 || r.SlowPercent != 100 {
		t.Errorf("at rest: %+v, %v", r, err)
	}
	before := time.Now()
	eventually(t, "energy is counted", func() bool {
		later, err := truth.Condition(t.Context(), 0)
		return err == nil && later.EnergyMJ > r.EnergyMJ && time.Since(before) > time.Millisecond
	})
}

// TestProcessReportsItsFault: a kernel's own fault is an event and stands in the
// list; nobody can claim what is no program's fault, or fill the list.
func TestProcessReportsItsFault(t *testing.T) {
	socket, truth := serve(t, Config{Cards: "A100-40GB,L4"})
	n := startNVML(t, "standin", socket)
	d := must[nvml.Device](t, "L4")(n.DeviceGetHandleByIndex(1))
	set := listen(t, n, d, nvml.EventTypeXidCriticalError)
	p := startCompute(t, socket)
	p.want("charge 1 4 67108864", "0")
	p.want("report 1 31 700", "0")
	if e, r := set.Wait(5000); r != nvml.SUCCESS || e.EventData != 31 || e.Device != d {
		t.Errorf("event %+v, %v", e, r)
	}
	p.want("faulted 1", "0 0") // it knows
	list, err := truth.Faults(t.Context())
	if err != nil || len(list) != 1 || !list[0].Reported || list[0].Active || list[0].PID != p.pid() || list[0].Error != 700 || list[0].Card != 1 {
		t.Errorf("list: %+v, %v", list, err)
	}
	for _, xid := range []string{"79", "94", "48", "1"} {
		p.want("report 1 "+xid+" 1", "-22")
	}
	p.want("report 7 31 700", "-2")
	for range maxReports - 1 {
		p.want("report 0 13 719", "0")
	}
	p.want("report 0 13 719", "-24")
}
