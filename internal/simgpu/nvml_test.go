// SPDX-License-Identifier: Apache-2.0

package simgpu

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// standin is the built stand-in library of a driver generation.
func standin(t *testing.T, folder string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", "lib", "divvy", folder, "libnvidia-ml.so.1"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v; run make build first", err)
	}
	return path
}

// startNVML initialises go-nvml over a stand-in.
func startNVML(t *testing.T, folder, socket string) nvml.Interface {
	t.Helper()
	t.Setenv("DIVVY_SIMULATOR", socket)
	n := nvml.New(nvml.WithLibraryPath(standin(t, folder)))
	if r := n.Init(); r != nvml.SUCCESS {
		t.Fatalf("init: %v", n.ErrorString(r))
	}
	t.Cleanup(func() { _ = n.Shutdown() })
	return n
}

func must[T any](t *testing.T, what string) func(T, nvml.Return) T {
	return func(value T, r nvml.Return) T {
		t.Helper()
		if r != nvml.SUCCESS {
			t.Errorf("%s: %v", what, r)
		}
		return value
	}
}

// TestNVMLCards: what go-nvml says of the cards is what the simulator has.
func TestNVMLCards(t *testing.T) {
	socket, truth := serve(t, Config{Cards: "H100-80GB,T4,RTX4090", Seed: 3})
	n := startNVML(t, "standin", socket)
	cards, err := truth.Cards(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if count := must[int](t, "count")(n.DeviceGetCount()); count != len(cards) {
		t.Fatalf("%d GPUs, not %d", count, len(cards))
	}
	for i, card := range cards {
		d := must[nvml.Device](t, "by index")(n.DeviceGetHandleByIndex(i))
		if name := must[string](t, "name")(d.GetName()); name != card.Name || !strings.HasSuffix(name, "(simulated)") {
			t.Errorf("GPU %d: name %q, not %q", i, name, card.Name)
		}
		if uuid := must[string](t, "uuid")(d.GetUUID()); uuid != card.UUID {
			t.Errorf("GPU %d: UUID %s, not %s", i, uuid, card.UUID)
		}
		if again := must[nvml.Device](t, "by UUID")(n.DeviceGetHandleByUUID(card.UUID)); again != d {
			t.Errorf("GPU %d: another GPU by its UUID", i)
		}
		pci := must[nvml.PciInfo](t, "pci")(d.GetPciInfo())
		if address := cText(pci.BusId[:]); !strings.EqualFold(address, card.PCIAddress) {
			t.Errorf("GPU %d: address %s, not %s", i, address, card.PCIAddress)
		}
		for _, address := range []string{card.PCIAddress, card.PCIAddress[4:], strings.ToUpper(card.PCIAddress), card.PCIAddress[9:]} {
			if again := must[nvml.Device](t, "by address "+address)(n.DeviceGetHandleByPciBusId(address)); again != d {
				t.Errorf("GPU %d: another GPU by %s", i, address)
			}
		}
		serial := must[string](t, "serial")(d.GetSerial())
		if again := must[nvml.Device](t, "by serial")(n.DeviceGetHandleBySerial(serial)); again != d {
			t.Errorf("GPU %d: another GPU by its serial", i)
		}
		if index := must[int](t, "index")(d.GetIndex()); index != i {
			t.Errorf("GPU %d: index %d", i, index)
		}
		memory := must[nvml.Memory](t, "memory")(d.GetMemoryInfo())
		if memory.Total != card.TotalBytes || memory.Free != card.UsableBytes || memory.Used != card.ReservedBytes {
			t.Errorf("GPU %d: memory %+v", i, memory)
		}
		v2 := must[nvml.Memory_v2](t, "memory v2")(d.GetMemoryInfo_v2())
		if v2.Total != card.TotalBytes || v2.Free != card.UsableBytes || v2.Used != 0 || v2.Reserved != card.ReservedBytes {
			t.Errorf("GPU %d: memory v2 %+v", i, v2)
		}
		must[uint32](t, "power")(d.GetPowerUsage())
		must[uint32](t, "temperature")(d.GetTemperature(nvml.TEMPERATURE_GPU))
		must[uint32](t, "clock")(d.GetClockInfo(nvml.CLOCK_SM))
		must[nvml.Utilization](t, "utilisation")(d.GetUtilizationRates())
		must[nvml.ComputeMode](t, "compute mode")(d.GetComputeMode())
		must[nvml.BAR1Memory](t, "BAR1")(d.GetBAR1MemoryInfo())
	}
	h100 := must[nvml.Device](t, "H100")(n.DeviceGetHandleByIndex(0))
	if major, minor, r := h100.GetCudaComputeCapability(); r != nvml.SUCCESS || major != 9 || minor != 0 {
		t.Errorf("compute capability %d.%d, %v", major, minor, r)
	}
	if cores := must[int](t, "cores")(h100.GetNumGpuCores()); cores != 16896 {
		t.Errorf("%d cores", cores)
	}
	if arch := must[nvml.DeviceArchitecture](t, "architecture")(h100.GetArchitecture()); arch != nvml.DEVICE_ARCH_HOPPER {
		t.Errorf("architecture %d", arch)
	}
	if mode, _, r := h100.GetMigMode(); r != nvml.SUCCESS || mode != nvml.DEVICE_MIG_DISABLE {
		t.Errorf("MIG mode %d, %v", mode, r)
	}
	gaming := must[nvml.Device](t, "RTX 4090")(n.DeviceGetHandleByIndex(2))
	if _, _, r := gaming.GetMigMode(); r != nvml.ERROR_NOT_SUPPORTED {
		t.Errorf("MIG mode of a GPU without it: %v", r)
	}
	if _, _, r := gaming.GetEccMode(); r != nvml.ERROR_NOT_SUPPORTED {
		t.Errorf("ECC mode of a GPU without it: %v", r)
	}
}

func cText[C ~int8 | ~uint8](field []C) string {
	var text strings.Builder
	for _, c := range field {
		if c == 0 {
			break
		}
		text.WriteByte(byte(c))
	}
	return text.String()
}

func TestNVMLProcesses(t *testing.T) {
	socket, _ := serve(t, Config{Cards: "T4,L4"})
	n := startNVML(t, "standin", socket)
	first := must[nvml.Device](t, "GPU 0")(n.DeviceGetHandleByIndex(0))
	second := must[nvml.Device](t, "GPU 1")(n.DeviceGetHandleByIndex(1))
	if list := must[[]nvml.ProcessInfo](t, "nobody")(first.GetComputeRunningProcesses()); len(list) != 0 {
		t.Errorf("processes on an idle GPU: %+v", list)
	}
	want := map[uint32]uint64{}
	for i := range 40 { // more than one packet holds
		p := startCompute(t, socket)
		if i%4 == 3 {
			p.want("charge 1 0 4096", "0")
			continue
		}
		p.want("charge 0 4 67108864", "0")
		want[uint32(p.pid())] = 64 * mib
	}
	list := must[[]nvml.ProcessInfo](t, "processes")(first.GetComputeRunningProcesses())
	if len(list) != 30 {
		t.Errorf("%d processes on GPU 0, not 30", len(list))
	}
	for _, p := range list {
		if want[p.Pid] != p.UsedGpuMemory {
			t.Errorf("process %+v, not %d", p, want[p.Pid])
		}
		delete(want, p.Pid)
	}
	if list := must[[]nvml.ProcessInfo](t, "GPU 1")(second.GetComputeRunningProcesses()); len(list) != 10 {
		t.Errorf("%d processes on GPU 1, not 10", len(list))
	}
	if list := must[[]nvml.ProcessInfo](t, "graphics")(first.GetGraphicsRunningProcesses()); len(list) != 0 {
		t.Errorf("somebody draws: %+v", list)
	}
	memory := must[nvml.Memory_v2](t, "memory")(first.GetMemoryInfo_v2())
	if memory.Used != 30*64*mib {
		t.Errorf("used %d", memory.Used)
	}
	name := must[string](t, "process name")(n.SystemGetProcessName(os.Getpid()))
	if !strings.Contains(name, "simgpu") {
		t.Errorf("process name %q", name)
	}
	if _, r := n.SystemGetProcessName(1 << 30); r != nvml.ERROR_NOT_FOUND {
		t.Errorf("name of a process that is not there: %v", r)
	}
}

// TestNVMLGenerations: each library says which driver it is, and refuses a
// simulator that plays another. Each runs in a process of its own: a program
// keeps the driver library that it opened first.
func TestNVMLGenerations(t *testing.T) {
	folders := map[string]string{"11.8": "standin-11.8", "12.2": "standin", "13.0": "standin-13.0", "13.1": "standin-13.1"}
	for _, driver := range Drivers() {
		socket, _ := serve(t, Config{Driver: driver.Name})
		for name, folder := range folders {
			want := "init: 18\n"
			if name == driver.Name {
				major, _, _ := strings.Cut(driver.Name, ".")
				want = fmt.Sprintf("driver %s nvml %s.%s cuda %d\n", driver.Version, major, driver.Version, driver.CUDA)
			}
			if got := askVersions(t, folder, socket); got != want {
				t.Errorf("library %s, simulator %s: %q, want %q", name, driver.Name, got, want)
			}
		}
	}
	if got := askVersions(t, "standin", filepath.Join(t.TempDir(), "none.sock")); got != "init: 9\n" {
		t.Errorf("without a simulator: %q", got)
	}
}

func askVersions(t *testing.T, folder, socket string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), "DIVVY_SIMULATOR="+socket, versionsOf+"="+standin(t, folder), "GORACE=atexit_sleep_ms=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// versionsOf is the variable that makes the test binary print what the library
// it names says of itself.
const versionsOf = "DIVVY_TEST_VERSIONS_OF"

func printVersions(library string) {
	n := nvml.New(nvml.WithLibraryPath(library))
	if r := n.Init(); r != nvml.SUCCESS {
		fmt.Printf("init: %d\n", int(r))
		return
	}
	driver, _ := n.SystemGetDriverVersion()
	version, _ := n.SystemGetNVMLVersion()
	cuda, _ := n.SystemGetCudaDriverVersion()
	fmt.Printf("driver %s nvml %s cuda %d\n", driver, version, cuda)
	_ = n.Shutdown()
}

// Initialisations are counted, and nothing works before or after.
func TestNVMLInit(t *testing.T) {
	socket, truth := serve(t, Config{})
	n := startNVML(t, "standin", socket)
	if r := n.Init(); r != nvml.SUCCESS {
		t.Fatal(r)
	}
	device := must[nvml.Device](t, "card")(n.DeviceGetHandleByIndex(0))
	if r := n.Shutdown(); r != nvml.SUCCESS {
		t.Fatal(r)
	}
	must[string](t, "one initialisation is left")(device.GetName())
	if _, r := n.DeviceGetHandleByIndex(1); r != nvml.ERROR_INVALID_ARGUMENT {
		t.Errorf("GPU 1 of one: %v", r)
	}
	if _, r := n.DeviceGetHandleByUUID("GPU-00000000-0000-0000-0000-000000000000"); r != nvml.ERROR_NOT_FOUND {
		t.Errorf("no such UUID: %v", r)
	}
	for _, address := range []string{"", "nonsense", "0:0", "00000000:07:00.0x", "00000000:07:00.0 "} {
		if _, r := n.DeviceGetHandleByPciBusId(address); r != nvml.ERROR_INVALID_ARGUMENT {
			t.Errorf("address %q: %v", address, r)
		}
	}
	set := must[nvml.EventSet](t, "event set")(n.EventSetCreate())
	if r := device.RegisterEvents(nvml.EventTypeXidCriticalError, set); r != nvml.SUCCESS {
		t.Errorf("register: %v", r)
	}
	before := time.Now()
	if _, r := set.Wait(20); r != nvml.ERROR_TIMEOUT || time.Since(before) < 20*time.Millisecond {
		t.Errorf("wait: %v after %v", r, time.Since(before))
	}
	if r := set.Free(); r != nvml.SUCCESS {
		t.Errorf("free: %v", r)
	}
	if list, err := truth.Processes(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("who only looks is shown: %+v, %v", list, err)
	}
	if r := n.Shutdown(); r != nvml.SUCCESS {
		t.Fatal(r)
	}
	if _, r := device.GetName(); r != nvml.ERROR_UNINITIALIZED {
		t.Errorf("after the end: %v", r)
	}
	for r := nvml.SUCCESS; r < 31; r++ {
		if text := n.ErrorString(r); text == "" || strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsPrint(c) }) {
			t.Errorf("error %d: %q", int(r), text)
		}
	}
}
