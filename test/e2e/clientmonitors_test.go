// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/simgpu"
)

// nvitopProgram asks nvitop's own interface; its screens are made from the same.
const nvitopProgram = `
import json
from nvitop import Device
print(json.dumps([dict(total=d.memory_total(), used=d.memory_used(), free=d.memory_free(), busy=d.gpu_utilization(),
    processes={str(pid): dict(used=p.gpu_memory(), busy=p.gpu_sm_utilization()) for pid, p in d.processes().items()})
    for d in Device.all()]))
`

// nvmlProgram is what nvidia-ml-py's page shows, and then what monitors ask besides.
const nvmlProgram = `
from pynvml import *
nvmlInit()
print(f"Driver Version: {nvmlSystemGetDriverVersion()}")
for i in range(nvmlDeviceGetCount()):
    handle = nvmlDeviceGetHandleByIndex(i)
    print(f"Device {i} : {nvmlDeviceGetName(handle)}")
    memory = nvmlDeviceGetMemoryInfo(handle)
    print("memory", memory.total, memory.used, memory.free)
    print("memory v2", nvmlDeviceGetMemoryInfo(handle, version=nvmlMemory_v2).total)
    print("busy", nvmlDeviceGetUtilizationRates(handle).gpu)
    for p in nvmlDeviceGetComputeRunningProcesses(handle):
        print("process", p.pid, p.usedGpuMemory)
    nvmlDeviceGetTemperature(handle, NVML_TEMPERATURE_GPU), nvmlDeviceGetPowerUsage(handle), nvmlDeviceGetUUID(handle)
nvmlShutdown()
`

// nvitopDevice is a GPU as nvitop tells of it.
type nvitopDevice struct {
	Total, Used, Free uint64
	Busy              int
	Processes         map[int]struct {
		Used uint64
		Busy int
	}
}

// view is what a monitor has to see at one place.
type view struct {
	*clients
	env       []string
	total     uint64         // 0: the GPU's own
	used      uint64         // of processes
	processes map[int]uint64 // and what each has
	worker    int            // the one that computes
}

// TestClientMonitors: monitors inside a share see its memory and its processes alone, with
// the figures of `divvy ps`; beside the agent they see the GPU with those of all. How busy
// the GPU is they see everywhere.
func TestClientMonitors(t *testing.T) {
	c := newClients(t, "python", "monitors")
	const quota = 1024 * mib
	idle := c.share(t, "idle", quota)
	holder := c.holder(t, idle)
	do(t, holder, "start")
	alloc(t, holder, 300*mib)
	busy := c.spec(t, api.ShareSpec{Name: "busy", MemoryBytes: quota, CoresPercent: 40})
	worker := c.load(t, busy, 1000).pid
	c.awaitBusy(t)
	for _, where := range []struct {
		name   string
		env    []string
		total  uint64
		shares []string
	}{
		{"in the idle share", c.Environ(idle.Socket), quota, []string{"idle"}},
		{"in the busy share", c.Environ(busy.Socket), quota, []string{"busy"}},
		{"beside the agent", c.Unheld(), 0, []string{"idle", "busy"}},
	} {
		t.Run(where.name, func(t *testing.T) {
			v := view{clients: c, env: where.env, total: where.total, processes: c.ps(t, where.shares...), worker: worker}
			for _, used := range v.processes {
				v.used += used
			}
			if len(v.processes) != len(where.shares) {
				t.Fatalf("divvy ps: processes %v in shares %v", v.processes, where.shares)
			}
			v.nvitop(t)
			v.nvml(t)
			v.gpustat(t)
			v.screen(t)
		})
	}
}

// ps is what `divvy ps` says that each process of these shares has.
func (c *clients) ps(t *testing.T, shares ...string) map[int]uint64 {
	t.Helper()
	got := run(t, c.Bare(), divvy(t), "ps", "--json", "--agent", c.AgentSocket)
	var list api.Clients
	if err := json.Unmarshal([]byte(got.stdout), &list); err != nil || got.code != 0 {
		t.Fatalf("divvy ps: code %d, %v: %s%s", got.code, err, got.stdout, got.stderr)
	}
	found := map[int]uint64{}
	for _, one := range list.Clients {
		if slices.Contains(shares, one.Share) {
			found[one.PID] = one.UsedBytes
		}
	}
	return found
}

const (
	busyWindow = int64(500 * time.Millisecond) // over which simulated drivers tell how busy a GPU is
	busyOff    = 5                             // points that a monitor may be off
)

// awaitBusy waits until the simulator knows of half a second in which the GPU was busy.
func (c *clients) awaitBusy(t *testing.T) {
	t.Helper()
	truth := c.truth(t)
	eventually(t, "the GPU is busy", func() error {
		_, now, err := truth.CardBusy(t.Context(), 0)
		if err != nil {
			return err
		}
		runs, until, err := truth.Runs(t.Context(), 0, now-busyWindow) // it remembers from the first question on
		if percent := busyUntil(runs, until); err != nil || percent < 20 {
			return fmt.Errorf("%d %%, %w", percent, err)
		}
		return nil
	}, c.simulator)
}

// busyUntil is the percent for which the GPU was busy in the half second until a moment.
func busyUntil(runs []simgpu.Run, to int64) int {
	var busy int64
	for _, r := range runs {
		busy += max(0, min(r.ToNS, to)-max(r.FromNS, to-busyWindow))
	}
	return int(100 * busy / busyWindow)
}

// busyWhile runs a monitor, and says for which percent the GPU was busy in any half second
// that ended meanwhile, by the simulator's account of who had it when; likely compares.
func (v view) busyWhile(t *testing.T, program string, args ...string) (said string, likely func(percent int) error) {
	t.Helper()
	truth := v.truth(t)
	_, begin, err := truth.CardBusy(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	said = v.monitor(t, v.env, program, args...)
	runs, end, err := truth.Runs(t.Context(), 0, begin-busyWindow)
	if err != nil {
		t.Fatal(err)
	}
	least, most := 100, 0
	for to := begin; to <= end; to += busyWindow / 100 {
		least, most = min(least, busyUntil(runs, to)), max(most, busyUntil(runs, to))
	}
	return said, func(percent int) error {
		if percent < least-busyOff || percent > most+busyOff {
			return fmt.Errorf("%d %% busy, the simulator had %d to %d %%", percent, least, most)
		}
		return nil
	}
}

func (v view) nvitop(t *testing.T) {
	t.Helper()
	var devices []nvitopDevice
	text, likely := v.busyWhile(t, "python", "-c", nvitopProgram)
	if json.Unmarshal([]byte(text), &devices) != nil || len(devices) != 1 {
		t.Fatalf("nvitop: %q", text)
	}
	d := devices[0]
	inside := v.total != 0
	if inside && (d.Total != v.total || d.Used != v.used || d.Free != v.total-v.used) || d.Used < v.used {
		t.Errorf("nvitop: %+v, want %d bytes used of %d", d, v.used, v.total)
	}
	if err := likely(d.Busy); err != nil {
		t.Errorf("nvitop: %v", err)
	}
	have := map[int]uint64{}
	for pid, p := range d.Processes {
		have[pid] = p.Used
		if pid != v.worker && p.Busy != 0 {
			t.Errorf("nvitop: process %d is %d %% busy, and does nothing", pid, p.Busy)
		}
		if pid == v.worker {
			if err := likely(p.Busy); err != nil {
				t.Errorf("nvitop: process %d: %v", pid, err)
			}
		}
	}
	if !maps.Equal(have, v.processes) {
		t.Errorf("nvitop: processes with bytes %v, divvy ps has %v", have, v.processes)
	}
}

func (v view) nvml(t *testing.T) {
	t.Helper()
	said, likely := v.busyWhile(t, "python", "-c", nvmlProgram)
	want := []string{"Device 0 : NVIDIA A100"}
	if v.total != 0 {
		want = append(want, fmt.Sprintf("memory %d %d %d\nmemory v2 %d\n", v.total, v.used, v.total-v.used, v.total))
	}
	for pid, used := range v.processes {
		want = append(want, fmt.Sprintf("process %d %d\n", pid, used))
	}
	for _, part := range want {
		if !strings.Contains(said, part) {
			t.Errorf("nvidia-ml-py: %s, want %q", said, part)
		}
	}
	if strings.Count(said, "process ") != len(v.processes) {
		t.Errorf("nvidia-ml-py: %s, want %d processes", said, len(v.processes))
	}
	var percent int
	_, rest, _ := strings.Cut(said, "busy ")
	if _, err := fmt.Sscan(rest, &percent); err != nil {
		t.Errorf("nvidia-ml-py: %s: %v", said, err)
	} else if err := likely(percent); err != nil {
		t.Errorf("nvidia-ml-py: %v", err)
	}
}

func (v view) gpustat(t *testing.T) {
	t.Helper()
	var stat struct {
		GPUs []struct {
			Used      uint64 `json:"memory.used"`
			Total     uint64 `json:"memory.total"`
			Busy      int    `json:"utilization.gpu"`
			Processes []struct {
				PID  int
				Used uint64 `json:"gpu_memory_usage"`
			}
		}
	}
	text, likely := v.busyWhile(t, "gpustat", "--json")
	if err := json.Unmarshal([]byte(text), &stat); err != nil || len(stat.GPUs) != 1 {
		t.Fatalf("gpustat: %v: %s", err, tail(text, 1500))
	}
	g := stat.GPUs[0]
	if v.total != 0 && (g.Total != v.total/mib || g.Used != v.used/mib) {
		t.Errorf("gpustat: %+v, want %d MiB of %d", g, v.used/mib, v.total/mib)
	}
	if err := likely(g.Busy); err != nil {
		t.Errorf("gpustat: %v", err)
	}
	have, want := map[int]uint64{}, map[int]uint64{}
	for _, p := range g.Processes {
		have[p.PID] = p.Used
	}
	for pid, used := range v.processes {
		want[pid] = used / mib
	}
	if !maps.Equal(have, want) {
		t.Errorf("gpustat: processes with MiB %v, divvy ps has %v", have, want)
	}
}

// screen is what nvitop shows people.
func (v view) screen(t *testing.T) {
	t.Helper()
	said := v.monitor(t, v.env, "nvitop", "--once", "--no-unicode")
	for pid, used := range v.processes {
		if !strings.Contains(said, fmt.Sprint(pid)) || !strings.Contains(said, fmt.Sprintf("%d.", used/mib)) {
			t.Errorf("nvitop: %s, want process %d with %d MiB", tail(said, 2500), pid, used/mib)
		}
	}
}

// monitor runs one of the installed monitors.
func (c *clients) monitor(t *testing.T, env []string, program string, args ...string) string {
	t.Helper()
	command := bounded(t, filepath.Join(c.folder, "python", "bin", program), args...)
	command.Env = append(env, "HOME="+c.home, "LANG=C.UTF-8", "TERM=dumb")
	got := finish(t, command, command.Env)
	if got.code != 0 || strings.Contains(got.stderr, "Traceback") {
		t.Fatalf("%s: code %d: %s%s", program, got.code, tail(got.stdout, 1500), tail(got.stderr, 3000))
	}
	return got.stdout
}

// runtimeProgram calls NVIDIA's runtime library as it comes from the registry.
const runtimeProgram = `
import ctypes, glob, sys
library = ctypes.CDLL(glob.glob(sys.prefix + "/lib/python3*/site-packages/nvidia/cuda_runtime/lib/libcudart.so.12")[0])
count, place = ctypes.c_int(), ctypes.c_void_p()
print(library.cudaGetDeviceCount(ctypes.byref(count)), library.cudaMalloc(ctypes.byref(place), 100))
`

// TestClientRuntime: the runtime library does not start on a simulated GPU, says so at
// once, and never succeeds with nothing.
func TestClientRuntime(t *testing.T) {
	c := newClients(t, "python")
	share := c.share(t, "runtime", 512*mib)
	command := bounded(t, filepath.Join(c.folder, "python", "bin", "python"), "-c", runtimeProgram)
	command.Env = c.Environ(share.Socket)
	got := finish(t, command, command.Env)
	if got.code != 0 || got.stdout != "500 500\n" || strings.Count(got.stderr, "private tables") != 1 {
		t.Errorf("code %d, %q: %s", got.code, got.stdout, tail(got.stderr, 1500))
	}
}
