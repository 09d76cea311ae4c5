// SPDX-License-Identifier: Apache-2.0

package simgpu

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// startHolder runs a CUDA program that does what it is told, with visible as its
// CUDA_VISIBLE_DEVICES ("": not set).
func startHolder(t *testing.T, socket, visible string) *process {
	t.Helper()
	return startHolderOf(t, "standin", socket, visible)
}

func startHolderOf(t *testing.T, folder, socket, visible string) *process {
	t.Helper()
	library := filepath.Dir(standin(t, folder))
	cmd := exec.Command(filepath.Join(library, "..", "tools", "holder"))
	cmd.Env = append(os.Environ(), "DIVVY_SIMULATOR="+socket, "LD_LIBRARY_PATH="+library)
	if visible != "" {
		cmd.Env = append(cmd.Env, "CUDA_VISIBLE_DEVICES="+visible)
	}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, cmd: cmd, in: in, out: bufio.NewReader(out)}
	t.Cleanup(p.kill)
	if line, err := p.out.ReadString('\n'); err != nil || !strings.HasPrefix(line, "ready") {
		t.Fatalf("holder: %q, %v", line, err)
	}
	return p
}

func setMode(t *testing.T, d nvml.Device, mode int, activation nvml.Return) {
	t.Helper()
	if got, r := d.SetMigMode(mode); r != nvml.SUCCESS || got != activation {
		t.Fatalf("set MIG mode %d: %v, activation %v", mode, r, got)
	}
}

// createDevice makes a GPU instance of a profile with one compute instance that
// fills it, at a start (-1: anywhere).
func createDevice(t *testing.T, d nvml.Device, profile, start int) (nvml.GpuInstance, nvml.ComputeInstance) {
	t.Helper()
	info := must[nvml.GpuInstanceProfileInfo](t, "profile")(d.GetGpuInstanceProfileInfo(profile))
	var gi nvml.GpuInstance
	var r nvml.Return
	if start < 0 {
		gi, r = d.CreateGpuInstance(&info)
	} else {
		placements := must[[]nvml.GpuInstancePlacement](t, "placements")(d.GetGpuInstancePossiblePlacements(&info))
		for _, p := range placements {
			if int(p.Start) == start {
				gi, r = d.CreateGpuInstanceWithPlacement(&info, &p)
			}
		}
	}
	if r != nvml.SUCCESS || gi == nil {
		t.Fatalf("create a GPU instance of profile %d at %d: %v", profile, start, r)
	}
	computeProfile := map[uint32]int{1: nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE, 2: nvml.COMPUTE_INSTANCE_PROFILE_2_SLICE,
		3: nvml.COMPUTE_INSTANCE_PROFILE_3_SLICE, 4: nvml.COMPUTE_INSTANCE_PROFILE_4_SLICE, 7: nvml.COMPUTE_INSTANCE_PROFILE_7_SLICE}[info.SliceCount]
	ciInfo := must[nvml.ComputeInstanceProfileInfo](t, "compute profile")(
		gi.GetComputeInstanceProfileInfo(computeProfile, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED))
	ci, r := gi.CreateComputeInstance(&ciInfo)
	if r != nvml.SUCCESS {
		t.Fatalf("create a compute instance: %v", r)
	}
	return gi, ci
}

func wantReturn(t *testing.T, what string, got, want nvml.Return) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// toldDevices compares the MIG devices that the simulator tells of its first card
// with those that its driver does, and its second card has no MIG.
func toldDevices(t *testing.T, socket string, d nvml.Device) {
	t.Helper()
	truth, err := Dial(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := truth.Close(); err != nil {
			t.Error(err)
		}
	}()
	cards, err := truth.Cards(t.Context())
	if err != nil || !cards[0].MIG || cards[1].MIG {
		t.Fatalf("%+v, %v", cards, err)
	}
	told, err := truth.MIGDevices(t.Context(), 0)
	if err != nil || len(told) != 4 {
		t.Fatalf("%v, %v", told, err)
	}
	for i := range told {
		device := must[nvml.Device](t, "MIG device")(d.GetMigDeviceHandleByIndex(i))
		if uuid := must[string](t, "UUID")(device.GetUUID()); !slices.Contains(told, uuid) {
			t.Errorf("%v without %s", told, uuid)
		}
	}
	if _, err := truth.MIGDevices(t.Context(), 1); err == nil {
		t.Error("a GPU without MIG has devices of it")
	}
}

// TestMIG: an H100 from whole to 3g.40gb + 2g.20gb + 2x 1g.10gb, as go-nvml sees it.
func TestMIG(t *testing.T) {
	socket, _ := serve(t, Config{Cards: "H100-80GB,T4", Seed: 5})
	n := startNVML(t, "standin", socket)
	d := must[nvml.Device](t, "card")(n.DeviceGetHandleByIndex(0))
	t4 := must[nvml.Device](t, "T4")(n.DeviceGetHandleByIndex(1))
	_, r := t4.SetMigMode(nvml.DEVICE_MIG_ENABLE)
	wantReturn(t, "MIG of a T4", r, nvml.ERROR_NOT_SUPPORTED)

	// Hopper tells of its profiles before it is divided.
	info := must[nvml.GpuInstanceProfileInfo](t, "profile")(d.GetGpuInstanceProfileInfo(nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV2))
	if info.Id != 15 || info.SliceCount != 1 || info.InstanceCount != 4 || info.MultiprocessorCount != 26 || info.MemorySizeMB != 20096 {
		t.Errorf("1g.20gb: %+v", info)
	}
	_, r = d.CreateGpuInstance(&info)
	wantReturn(t, "an instance without MIG mode", r, nvml.ERROR_NOT_SUPPORTED)
	setMode(t, d, nvml.DEVICE_MIG_ENABLE, nvml.SUCCESS)
	if current, pending, r := d.GetMigMode(); r != nvml.SUCCESS || current != nvml.DEVICE_MIG_ENABLE || pending != nvml.DEVICE_MIG_ENABLE {
		t.Errorf("mode %d, %d, %v", current, pending, r)
	}
	named := d.GetGpuInstanceProfileInfoV(nvml.GPU_INSTANCE_PROFILE_3_SLICE)
	if v2, r := named.V2(); r != nvml.SUCCESS || cText(v2.Name[:]) != "MIG 3g.40gb" || v2.Id != 9 {
		t.Errorf("3g by its second version: %+v, %v", v2, r)
	}
	if v3, r := named.V3(); r != nvml.SUCCESS || cText(v3.Name[:]) != "MIG 3g.40gb" || v3.MultiprocessorCount != 60 {
		t.Errorf("3g by its third version: %+v, %v", v3, r)
	}
	_, r = d.GetGpuInstanceProfileInfo(nvml.GPU_INSTANCE_PROFILE_6_SLICE)
	wantReturn(t, "a profile that it has not", r, nvml.ERROR_NOT_SUPPORTED)

	three, _ := createDevice(t, d, nvml.GPU_INSTANCE_PROFILE_3_SLICE, 4)
	two, _ := createDevice(t, d, nvml.GPU_INSTANCE_PROFILE_2_SLICE, 0)
	createDevice(t, d, nvml.GPU_INSTANCE_PROFILE_1_SLICE, -1)
	createDevice(t, d, nvml.GPU_INSTANCE_PROFILE_1_SLICE, -1)
	toldDevices(t, socket, d)
	one := must[nvml.GpuInstanceProfileInfo](t, "1g")(d.GetGpuInstanceProfileInfo(nvml.GPU_INSTANCE_PROFILE_1_SLICE))
	_, r = d.CreateGpuInstance(&one)
	wantReturn(t, "an eighth slice", r, nvml.ERROR_INSUFFICIENT_RESOURCES)
	if left := must[int](t, "remaining")(d.GetGpuInstanceRemainingCapacity(&one)); left != 0 {
		t.Errorf("%d more fit", left)
	}
	if list := must[[]nvml.GpuInstance](t, "instances")(d.GetGpuInstances(&one)); len(list) != 2 {
		t.Errorf("%d instances of 1g", len(list))
	}
	where := must[nvml.GpuInstanceInfo](t, "info")(three.GetInfo())
	if where.Placement != (nvml.GpuInstancePlacement{Start: 4, Size: 4}) || where.ProfileId != 9 || where.Device != d {
		t.Errorf("3g is %+v", where)
	}
	again := must[nvml.GpuInstance](t, "by id")(d.GetGpuInstanceById(int(where.Id)))
	if again != three {
		t.Error("another instance by its id")
	}
	wantReturn(t, "destroy with a compute instance", two.Destroy(), nvml.ERROR_IN_USE)

	checkDevices(t, n, d)
}

// checkDevices: four MIG devices, each with what its profile says.
func checkDevices(t *testing.T, n nvml.Interface, d nvml.Device) {
	t.Helper()
	if most := must[int](t, "most")(d.GetMaxMigDeviceCount()); most != 7 {
		t.Errorf("at most %d devices", most)
	}
	seen := map[string]bool{}
	memory := map[uint64]int{}
	for i := range 4 {
		m := must[nvml.Device](t, "device")(d.GetMigDeviceHandleByIndex(i))
		if is := must[bool](t, "is a device")(m.IsMigDeviceHandle()); !is {
			t.Errorf("device %d is none", i)
		}
		if parent := must[nvml.Device](t, "parent")(m.GetDeviceHandleFromMigDeviceHandle()); parent != d {
			t.Errorf("device %d has another parent", i)
		}
		uuid := must[string](t, "uuid")(m.GetUUID())
		if by := must[nvml.Device](t, "by UUID")(n.DeviceGetHandleByUUID(uuid)); by != m || !strings.HasPrefix(uuid, "MIG-") || seen[uuid] {
			t.Errorf("device %d: UUID %s", i, uuid)
		}
		seen[uuid] = true
		if index := must[int](t, "index")(m.GetIndex()); index != i {
			t.Errorf("device %d has index %d", i, index)
		}
		attributes := must[nvml.DeviceAttributes](t, "attributes")(m.GetAttributes())
		info := must[nvml.Memory](t, "memory")(m.GetMemoryInfo())
		memory[attributes.MemorySizeMB]++
		if info.Total != attributes.MemorySizeMB*mib || info.Free != info.Total || info.Used != 0 {
			t.Errorf("device %d: memory %+v, attributes %+v", i, info, attributes)
		}
		if want := map[uint32]uint32{1: 16, 2: 32, 3: 60}[attributes.GpuInstanceSliceCount]; attributes.MultiprocessorCount != want {
			t.Errorf("device %d: attributes %+v", i, attributes)
		}
		_, r := m.GetTemperature(nvml.TEMPERATURE_GPU)
		wantReturn(t, "temperature of a device", r, nvml.ERROR_NOT_SUPPORTED)
	}
	if fmt.Sprint(memory) != "map[9984:2 20096:1 40448:1]" {
		t.Errorf("memories %v", memory)
	}
	_, r := d.GetMigDeviceHandleByIndex(4)
	wantReturn(t, "a fifth device", r, nvml.ERROR_NOT_FOUND)
}

// TestMIGPrograms: a program sees the MIG device that it names and no other, gets
// its memory and no more, and keeps it from being destroyed.
func TestMIGPrograms(t *testing.T) {
	socket, truth := serve(t, Config{Cards: "H100-80GB"})
	n := startNVML(t, "standin", socket)
	d := must[nvml.Device](t, "card")(n.DeviceGetHandleByIndex(0))
	whole := startHolder(t, socket, "")
	whole.want("start", "ok")
	setMode(t, d, nvml.DEVICE_MIG_ENABLE, nvml.ERROR_IN_USE)
	if current, pending, _ := d.GetMigMode(); current != nvml.DEVICE_MIG_DISABLE || pending != nvml.DEVICE_MIG_ENABLE {
		t.Errorf("in use: mode %d, pending %d", current, pending)
	}
	endAndWait(t, truth, whole)
	setMode(t, d, nvml.DEVICE_MIG_ENABLE, nvml.SUCCESS)

	gi, ci := createDevice(t, d, nvml.GPU_INSTANCE_PROFILE_1_SLICE, 0)
	createDevice(t, d, nvml.GPU_INSTANCE_PROFILE_3_SLICE, 4)
	var uuids []string
	for i := range 2 {
		m := must[nvml.Device](t, "device")(d.GetMigDeviceHandleByIndex(i))
		uuids = append(uuids, must[string](t, "uuid")(m.GetUUID()))
	}
	small := must[nvml.Device](t, "small")(n.DeviceGetHandleByUUID(uuids[1]))
	if a := must[nvml.DeviceAttributes](t, "attributes")(small.GetAttributes()); a.GpuInstanceSliceCount != 1 {
		t.Fatalf("the second device: %+v", a)
	}
	p := startHolder(t, socket, uuids[1]+","+uuids[0])
	if cards := p.do("cards"); !strings.HasPrefix(cards, "ok 1 ") || !strings.Contains(strings.ReplaceAll(cards, "-", ""), strings.ReplaceAll(uuids[1][4:], "-", "")) {
		t.Fatalf("visible: %s, not %s", cards, uuids[1])
	}
	p.want("start", "ok")
	if info := p.do("info"); info != fmt.Sprintf("ok %d %d", (9984-64)*mib, 9984*mib) {
		t.Errorf("memory: %s", info)
	}
	if got := p.do("alloc %d", 9984*mib); !strings.HasPrefix(got, "error 2") {
		t.Errorf("more than the device has: %s", got)
	}
	if got := p.do("alloc %d", 9000*mib); !strings.HasPrefix(got, "ok") {
		t.Errorf("most of the device: %s", got)
	}
	for _, where := range []nvml.Device{d, small} {
		list := must[[]nvml.ProcessInfo](t, "processes")(where.GetComputeRunningProcesses())
		if len(list) != 1 || int(list[0].Pid) != p.pid() || list[0].GpuInstanceId != 7 || list[0].ComputeInstanceId != 0 {
			t.Errorf("processes: %+v", list)
		}
	}
	if info := must[nvml.Memory_v2](t, "memory")(d.GetMemoryInfo_v2()); info.Used != 9064*mib {
		t.Errorf("the GPU's memory: %+v", info)
	}
	wantReturn(t, "destroy in use", ci.Destroy(), nvml.ERROR_IN_USE)
	setMode(t, d, nvml.DEVICE_MIG_DISABLE, nvml.ERROR_IN_USE)

	// The first is what a program gets that asks for nothing, or for the card.
	for _, visible := range []string{"", "0"} {
		if cards := startHolder(t, socket, visible).do("cards"); !strings.Contains(strings.ReplaceAll(cards, "-", ""), strings.ReplaceAll(uuids[0][4:], "-", "")) {
			t.Errorf("with %q: %s, not %s", visible, cards, uuids[0])
		}
	}
	endAndWait(t, truth, p)
	wantReturn(t, "destroy", ci.Destroy(), nvml.SUCCESS)
	wantReturn(t, "destroy again", ci.Destroy(), nvml.ERROR_INVALID_ARGUMENT)
	_, r := small.GetName()
	wantReturn(t, "a device that is no more", r, nvml.ERROR_NOT_FOUND)
	wantReturn(t, "destroy the GPU instance", gi.Destroy(), nvml.SUCCESS)
	wantReturn(t, "destroy it again", gi.Destroy(), nvml.ERROR_INVALID_ARGUMENT)
}

// endAndWait ends a program and waits until the simulator knows.
func endAndWait(t *testing.T, truth *Truth, p *process) {
	t.Helper()
	pid := p.pid()
	p.kill()
	eventually(t, "the end of a program", func() bool {
		list, err := truth.Processes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range list {
			if u.PID == pid {
				return false
			}
		}
		return true
	})
}

// TestMIGTime: each device has time of its own, so two programs on two devices are
// both busy all the time.
func TestMIGTime(t *testing.T) {
	socket, truth := serve(t, Config{Cards: "A100-40GB"})
	n := startNVML(t, "standin", socket)
	d := must[nvml.Device](t, "card")(n.DeviceGetHandleByIndex(0))
	_, r := d.GetGpuInstanceProfileInfo(nvml.GPU_INSTANCE_PROFILE_1_SLICE)
	wantReturn(t, "profiles of an Ampere that is whole", r, nvml.ERROR_NOT_SUPPORTED)
	setMode(t, d, nvml.DEVICE_MIG_ENABLE, nvml.SUCCESS)
	library := filepath.Dir(standin(t, "standin"))
	running := make([]*exec.Cmd, 2)
	for range running {
		createDevice(t, d, nvml.GPU_INSTANCE_PROFILE_1_SLICE, -1)
	}
	for i := range running {
		m := must[nvml.Device](t, "device")(d.GetMigDeviceHandleByIndex(i))
		cmd := exec.Command(filepath.Join(library, "..", "tools", "burn"), "--us", "5000", "--seconds", "0.5", "--ahead-ms", "400")
		cmd.Env = append(os.Environ(), "DIVVY_SIMULATOR="+socket, "LD_LIBRARY_PATH="+library,
			"CUDA_VISIBLE_DEVICES="+must[string](t, "uuid")(m.GetUUID()))
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		running[i] = cmd
	}
	for _, cmd := range running {
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	times, err := truth.CardTime(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	on := map[int]int64{}
	for _, s := range times {
		if s.BusyNS > 0 {
			on[s.Card] += s.BusyNS
		}
	}
	if len(on) != 2 || on[0] != 0 {
		t.Errorf("busy by device: %v", on)
	}
}
