// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// TestMonitorsRun runs programs of NVIDIA's own over NVML, as they are, on the bare
// stand-in and in a share: a share's view has its card and its processes alone.
func TestMonitorsRun(t *testing.T) {
	t.Parallel()
	for _, g := range generations[1:] { // 11.8 knows no addressing mode, and the program insists
		t.Run(g.name, func(t *testing.T) {
			h := newHost(t, hostOptions{cards: "2xA100-40GB", generation: g})
			cards, err := h.truth(t).Cards(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			mine, other := h.shareOn(t, "mine", cards[1].UUID), h.shareOn(t, "other", cards[1].UUID)
			one, two := h.holder(t, mine), h.holder(t, other)
			do(t, one, "start")
			do(t, two, "start")
			for _, c := range []struct {
				name      string
				env       []string
				devices   []string
				processes []int
				hidden    []int
			}{
				{"bare", h.Unheld(), []string{cards[0].UUID, cards[1].UUID}, []int{one.PID, two.PID}, nil},
				{"share", h.Environ(mine.Socket), []string{cards[1].UUID}, []int{one.PID}, []int{two.PID}},
			} {
				listed := run(t, c.env, built(t, "build", "test", "monitor-devices"))
				if listed.code != 0 || strings.Count(listed.stdout, "uuid=") != len(c.devices) {
					t.Errorf("%s: devices: exit code %d\n%s%s", c.name, listed.code, listed.stdout, listed.stderr)
				}
				for _, uuid := range c.devices {
					if !strings.Contains(listed.stdout, "uuid="+uuid+"\n") {
						t.Errorf("%s: %s is not listed:\n%s", c.name, uuid, listed.stdout)
					}
				}
				found := run(t, c.env, built(t, "build", "test", "monitor-compute-processes"))
				if found.code != 0 || strings.Count(found.stdout, "ProcessInfo:") != len(c.processes) {
					t.Errorf("%s: processes: exit code %d\n%s%s", c.name, found.code, found.stdout, found.stderr)
				}
				for _, pid := range c.processes {
					if !strings.Contains(found.stdout, fmt.Sprintf("{Pid:%d UsedGpuMemory:%d ", pid, contextBytes)) {
						t.Errorf("%s: process %d is not listed:\n%s", c.name, pid, found.stdout)
					}
				}
				for _, pid := range c.hidden {
					if strings.Contains(found.stdout, fmt.Sprintf("Pid:%d ", pid)) {
						t.Errorf("%s: process %d of another share is listed:\n%s", c.name, pid, found.stdout)
					}
				}
			}
		})
	}
}

// TestInstrumentsFollowTheWork: what a monitor reads goes up with work and down
// with its end.
func TestInstrumentsFollowTheWork(t *testing.T) {
	h := newHost(t, hostOptions{cards: "T4"})
	t.Setenv("DIVVY_SIMULATOR", h.SimulatorSocket)
	n := nvml.New(nvml.WithLibraryPath(built(t, "lib", "divvy", "standin", "libnvidia-ml.so.1")))
	if r := n.Init(); r != nvml.SUCCESS {
		t.Fatalf("init: %v", r)
	}
	defer n.Shutdown()
	d, r := n.DeviceGetHandleByIndex(0)
	if r != nvml.SUCCESS {
		t.Fatalf("card: %v", r)
	}
	read := func() (percent, power, clock uint32, state nvml.Pstates, reasons uint64) {
		t.Helper()
		use, r1 := d.GetUtilizationRates()
		power, r2 := d.GetPowerUsage()
		clock, r3 := d.GetClockInfo(nvml.CLOCK_SM)
		state, r4 := d.GetPerformanceState()
		reasons, r5 := d.GetCurrentClocksThrottleReasons()
		for _, r := range []nvml.Return{r1, r2, r3, r4, r5} {
			if r != nvml.SUCCESS {
				t.Fatalf("read: %v", r)
			}
		}
		return use.Gpu, power, clock, state, reasons
	}
	percent, idle, clock, state, reasons := read()
	if percent != 0 || idle != 9_000 || clock != 300 || state != nvml.PSTATE_8 || reasons != nvml.ClocksThrottleReasonGpuIdle {
		t.Errorf("at rest: %d %%, %d mW, %d MHz, P%d, reasons %#x", percent, idle, clock, state, reasons)
	}
	b := h.burner(t, "--us", "1000", "--ahead-ms", "500")
	b.start()
	eventually(t, "the card is busy", func() error {
		percent, power, clock, state, reasons := read()
		if percent < 90 || power < 55_000 || power > 70_000 || clock != 1590 || state != nvml.PSTATE_0 || reasons != 0 {
			return fmt.Errorf("%d %%, %d mW, %d MHz, P%d, reasons %#x", percent, power, clock, state, reasons)
		}
		return nil
	}, h.simulator)
	samples, r := d.GetProcessUtilization(0)
	if r != nvml.SUCCESS || len(samples) != 1 || int(samples[0].Pid) != b.pid || samples[0].SmUtil < 90 {
		t.Errorf("processes: %+v, %v", samples, r)
	}
	warm, r := d.GetTemperature(nvml.TEMPERATURE_GPU)
	if r != nvml.SUCCESS || warm <= 32 {
		t.Errorf("%d degrees at work, %v", warm, r)
	}
	b.kill()
	eventually(t, "the card is at rest again", func() error {
		if percent, power, _, state, _ := read(); percent != 0 || power != idle || state != nvml.PSTATE_8 {
			return fmt.Errorf("%d %%, %d mW, P%d", percent, power, state)
		}
		return nil
	}, h.simulator)
}
