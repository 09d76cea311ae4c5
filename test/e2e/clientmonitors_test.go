// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// nvitopProgram asks nvitop's own interface; its screens are made from the same.
const nvitopProgram = `
import json
from nvitop import Device
print(json.dumps([dict(total=d.memory_total(), used=d.memory_used(), free=d.memory_free(), busy=d.gpu_utilization(),
    processes={str(pid): p.gpu_memory() for pid, p in d.processes().items()}) for d in Device.all()]))
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
	Processes         map[string]uint64
}

// TestClientMonitors: monitors inside a share see it as their GPU, with the figures of
// `divvy ps`; beside the agent they see the GPU.
func TestClientMonitors(t *testing.T) {
	c := newClients(t, "python", "monitors")
	const quota, held = 1024 * mib, 300 * mib
	share := c.share(t, "seen", quota)
	holder := c.holder(t, share)
	do(t, holder, "start")
	alloc(t, holder, held)
	used, total := c.look(t, share.Name).UsedBytes, uint64(quota)
	pid := holder.PID
	for _, where := range []struct {
		name  string
		env   []string
		total uint64
	}{
		{"in the share", c.Environ(share.Socket), total},
		{"beside the agent", c.Unheld(), 0},
	} {
		t.Run(where.name, func(t *testing.T) {
			python := func(program string) string {
				return c.monitor(t, where.env, "python", "-c", program)
			}
			var devices []nvitopDevice
			if text := python(nvitopProgram); json.Unmarshal([]byte(text), &devices) != nil || len(devices) != 1 {
				t.Fatalf("nvitop: %q", text)
			}
			d := devices[0]
			if where.total != 0 && (d.Total != total || d.Used != used || d.Free != total-used || len(d.Processes) != 1) {
				t.Errorf("nvitop: %+v, want %d bytes used of %d", d, used, total)
			}
			if d.Used < used || d.Processes[fmt.Sprint(pid)] != used {
				t.Errorf("nvitop: %+v, want process %d with %d bytes", d, pid, used)
			}
			said := python(nvmlProgram)
			if where.total != 0 && !strings.Contains(said, fmt.Sprintf("memory %d %d %d\nmemory v2 %d\n", total, used, total-used, total)) {
				t.Errorf("nvidia-ml-py: %s", said)
			}
			if !strings.Contains(said, fmt.Sprintf("process %d %d\n", pid, used)) || !strings.Contains(said, "Device 0 : NVIDIA A100") {
				t.Errorf("nvidia-ml-py: %s, want process %d with %d bytes", said, pid, used)
			}
			c.gpustat(t, where.env, pid, where.total, used)
			screen := c.monitor(t, where.env, "nvitop", "--once", "--no-unicode")
			if !strings.Contains(screen, fmt.Sprint(pid)) || !strings.Contains(screen, fmt.Sprintf("%d.", used/mib)) {
				t.Errorf("nvitop: %s", tail(screen, 2500))
			}
		})
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

func (c *clients) gpustat(t *testing.T, env []string, pid int, total, used uint64) {
	t.Helper()
	var stat struct {
		GPUs []struct {
			Used      uint64 `json:"memory.used"`
			Total     uint64 `json:"memory.total"`
			Processes []struct {
				PID  int
				Used uint64 `json:"gpu_memory_usage"`
			}
		}
	}
	text := c.monitor(t, env, "gpustat", "--json")
	if err := json.Unmarshal([]byte(text), &stat); err != nil || len(stat.GPUs) != 1 || len(stat.GPUs[0].Processes) != 1 {
		t.Fatalf("gpustat: %v: %s", err, tail(text, 1500))
	}
	g := stat.GPUs[0]
	if g.Processes[0].PID != pid || g.Processes[0].Used != used/mib || (total != 0 && (g.Total != total/mib || g.Used != used/mib)) {
		t.Errorf("gpustat: %+v, want process %d with %d MiB, %d of %d in all", g, pid, used/mib, used/mib, total/mib)
	}
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
