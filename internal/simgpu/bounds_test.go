// SPDX-License-Identifier: Apache-2.0

package simgpu

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/divvy-gpu/divvy/internal/cgroup"
)

// group makes a control group, where the machine lets the test.
func group(t *testing.T) (cgroup.Tree, string) {
	t.Helper()
	tree, err := cgroup.Find("/proc")
	if err != nil {
		t.Skipf("needs control groups of version 2: %v", err)
	}
	path, err := tree.Make("divvy-test-" + filepath.Base(t.TempDir()))
	if err != nil {
		t.Skipf("needs the right to make control groups: %v", err)
	}
	t.Cleanup(func() {
		if err := tree.Remove(path); err != nil {
			t.Error(err)
		}
	})
	return tree, path
}

// alone says whether the test may load a driver of another generation: a process
// loads one. Else it runs the test in a process of its own.
func alone(t *testing.T) bool {
	t.Helper()
	const mark = "DIVVY_TEST_ALONE"
	if os.Getenv(mark) != "" {
		return true
	}
	again := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	again.Env = append(os.Environ(), mark+"=1")
	if out, err := again.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

const denied = "error 2" // CUDA_ERROR_OUT_OF_MEMORY

func wantDenied(t *testing.T, what, got string) {
	t.Helper()
	if !strings.HasPrefix(got, denied) {
		t.Errorf("%s: %s", what, got)
	}
}

func wantAllowed(t *testing.T, what, got string) {
	t.Helper()
	if !strings.HasPrefix(got, "ok") {
		t.Errorf("%s: %s", what, got)
	}
}

// TestMemoryLimits: the driver holds a control group to its limit, without anything
// of ours in the programs. The same program without a limit gets the memory.
func TestMemoryLimits(t *testing.T) {
	if !alone(t) {
		return
	}
	tree, path := group(t)
	socket, truth := serve(t, Config{Cards: "H100-80GB", Driver: "13.0"})
	n := startNVML(t, "standin-13.0", socket)
	d := must[nvml.Device](t, "card")(n.DeviceGetHandleByIndex(0))

	p := startHolderOf(t, "standin-13.0", socket, "")
	p.want("start", "ok")
	wantAllowed(t, "without a limit", p.do("alloc %d", 2048*mib))
	if info := must[nvml.MemoryLimits_v1](t, "limits")(d.GetMemoryLimits_v1(path)); info.SoftLimit != 0 || info.HardLimit != math.MaxUint64 || info.CurrentUsed != 0 {
		t.Errorf("before: %+v", info)
	}
	if err := tree.Enter(path, p.pid()); err != nil {
		t.Fatal(err)
	}
	wantReturn(t, "set", d.SetMemoryLimits_v1(path, 0, 3072*mib), nvml.SUCCESS)
	wantDenied(t, "over the limit", p.do("alloc %d", 2048*mib))
	if info := p.do("info"); info != fmt.Sprintf("ok %d %d", (3072-2048-64)*mib, 3072*mib) {
		t.Errorf("memory: %s", info)
	}
	second := startHolderOf(t, "standin-13.0", socket, "")
	second.want("start", "ok")
	wantAllowed(t, "outside of the group", second.do("alloc %d", 4096*mib))
	third := startHolderOf(t, "standin-13.0", socket, "")
	if err := tree.Enter(path, third.pid()); err != nil {
		t.Fatal(err)
	}
	third.want("start", "ok")
	wantDenied(t, "two of the group together", third.do("alloc %d", 1024*mib))
	wantAllowed(t, "what is left", third.do("alloc %d", 512*mib))
	if info := must[nvml.MemoryLimits_v1](t, "limits")(d.GetMemoryLimits_v1(path)); info.HardLimit != 3072*mib || info.CurrentUsed != (2048+512+2*64)*mib {
		t.Errorf("after: %+v", info)
	}
	wantReturn(t, "no such group", d.SetMemoryLimits_v1(path+"-none", 0, mib), nvml.ERROR_NOT_FOUND)
	wantReturn(t, "no group", d.SetMemoryLimits_v1("/etc", 0, mib), nvml.ERROR_NOT_FOUND)
	wantReturn(t, "soft over hard", d.SetMemoryLimits_v1(path, 2*mib, mib), nvml.ERROR_INVALID_ARGUMENT)
	wantReturn(t, "clear", d.SetMemoryLimits_v1(path, 0, math.MaxUint64), nvml.SUCCESS)
	wantAllowed(t, "after it is gone", p.do("alloc %d", 2048*mib))
	for _, p := range []*process{p, second, third} {
		endAndWait(t, truth, p)
	}
}

// TestMemoryLimitsOfAnOlderDriver: it has none.
func TestMemoryLimitsOfAnOlderDriver(t *testing.T) {
	_, path := group(t)
	socket, _ := serve(t, Config{Cards: "H100-80GB"})
	n := startNVML(t, "standin", socket)
	d := must[nvml.Device](t, "card")(n.DeviceGetHandleByIndex(0))
	wantReturn(t, "set", d.SetMemoryLimits_v1(path, 0, mib), nvml.ERROR_NOT_SUPPORTED)
}
