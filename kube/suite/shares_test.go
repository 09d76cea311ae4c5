// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package suite

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/event"
	"github.com/divvy-gpu/divvy/internal/simgpu"
	"github.com/divvy-gpu/divvy/kube/internal/names"
)

// look prints what CUDA and NVML say of the container's GPU.
const look = `
import ctypes
cuda, nvml = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libnvidia-ml.so.1")
class Memory(ctypes.Structure):
    _fields_ = [(n, ctypes.c_ulonglong) for n in ("total", "free", "used")]
def call(library, name, *arguments):
    result = getattr(library, name)(*arguments)
    if result: raise SystemExit("%s: %d" % (name, result))
count, cards, card, memory, total = ctypes.c_int(), ctypes.c_uint(), ctypes.c_void_p(), Memory(), ctypes.c_size_t()
call(cuda, "cuInit", 0)
call(cuda, "cuDeviceGetCount", ctypes.byref(count))
call(cuda, "cuDeviceTotalMem_v2", ctypes.byref(total), 0)
call(nvml, "nvmlInit_v2")
call(nvml, "nvmlDeviceGetCount_v2", ctypes.byref(cards))
call(nvml, "nvmlDeviceGetHandleByIndex_v2", 0, ctypes.byref(card))
call(nvml, "nvmlDeviceGetMemoryInfo", card, ctypes.byref(memory))
print("sees", count.value, cards.value, total.value, memory.total, flush=True)
`

// example looks, runs an example and takes all the memory that it gets.
func example(program string, seconds int) []string {
	return []string{"/bin/sh", "-c", fmt.Sprintf("python3 -c '%s' && /programs/%s --json && /tools/memload %d", look, program, seconds)}
}

// staying is a command that says "done" in the end and keeps its container.
func staying(command []string) []string {
	return append(command[:2:2], command[2]+" && echo done && sleep 1000")
}

type exampleResult struct {
	Example  string
	Correct  bool
	Wrong    int
	Checksum string
}

type loadResult struct {
	TotalBytes, AllocatedBytes, ComparedBytes, Denials uint64
	Correct                                            bool
}

// checkExample checks what such a container said: results, and that it saw the share.
func checkExample(t *testing.T, said string, limit uint64) loadResult {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(strings.TrimSuffix(said, "done\n")), "\n")
	if len(lines) != 3 {
		t.Fatalf("%q", said)
	}
	if want := fmt.Sprintf("sees 1 1 %d %d", limit, limit); lines[0] != want {
		t.Errorf("%q, want %q", lines[0], want)
	}
	var result exampleResult
	lastLine(t, lines[1], &result)
	if !result.Correct || result.Wrong != 0 {
		t.Errorf("%+v", result)
	}
	var load loadResult
	lastLine(t, lines[2], &load)
	if !load.Correct || load.AllocatedBytes > limit || load.Denials == 0 {
		t.Errorf("%+v: within %d MiB, correct, and denied more", load, limit/mib)
	}
	return load
}

// attached lists which processes came under which share, by the agent's events.
func (c *cluster) attached(since uint64) map[int]string {
	c.t.Helper()
	events, err := c.agent.Events(c.t.Context(), since)
	if err != nil {
		c.t.Fatal(err)
	}
	found := map[int]string{}
	for _, e := range events.Events {
		if e.Kind == event.ClientAttached {
			found[e.PID] = e.Share
		}
	}
	return found
}

// Five pods with different shares of one GPU: right results, each sees its share, and by
// the simulator's account no process ever held more than its share.
func TestFiveShares(t *testing.T) {
	c := newCluster(t)
	truth := c.truth()
	device := c.wholeDevices()[0]
	uuid, _ := names.UUID(device.Name)
	whole := device.Capacity[names.CapacityMemory].Value
	programs := []string{"vectoradd", "matmul", "reduction", "histogram", "nbody"}
	sizes := []uint64{1 * gib, 2 * gib, 4 * gib, 6 * gib}
	left := uint64(whole.Value())
	for _, size := range sizes {
		left -= size
	}
	sizes = append(sizes, left)
	for i, program := range programs {
		name := "pod-" + strconv.Itoa(i)
		c.claim(name, request{name: "gpu", memory: strconv.FormatUint(sizes[i], 10), cores: strconv.Itoa(10 + 5*i), uuid: uuid})
		c.pod(name, container{name: "main", claim: name, command: staying(example(program, 5))})
	}
	// One more that does not fit waits, and runs when there is room.
	c.claim("sixth", request{name: "gpu", memory: "1Gi", uuid: uuid})
	var shares []api.Share
	for i := range programs {
		// A kubelet whose authorizer does not know the pod's claim yet tries again after a minute.
		c.running("pod-"+strconv.Itoa(i), 2*patience)
		shares = append(shares, c.shareOf("pod-"+strconv.Itoa(i), 0))
		if s := shares[i]; s.MemoryBytes != sizes[i] || s.CoresPercent != 10+5*i || s.CardUUID != uuid || s.Tenant != c.space {
			t.Errorf("%+v", s)
		}
	}
	c.pod("sixth", container{name: "main", claim: "sixth", command: example("texture", 1)})
	c.unschedulable("sixth")
	for i := range programs {
		name := "pod-" + strconv.Itoa(i)
		c.says(name, "main", "done")
		checkExample(t, c.log(name, "main"), sizes[i])
	}
	if p := c.get("sixth"); p.Status.Phase != corev1.PodPending {
		t.Errorf("the sixth pod: %s", phase(p))
	}
	if err := c.kube.CoreV1().Pods(c.space).Delete(t.Context(), "pod-0", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.gone("pod-0")
	released := time.Now()
	c.until("the sixth pod is no longer pending", patience, func() error {
		if p := c.get("sixth"); p.Status.Phase == corev1.PodPending {
			return errors.New(phase(p))
		}
		return nil
	})
	if waited := time.Since(released); waited > 5*time.Second {
		t.Errorf("the sixth pod ran %.1f s after the release", waited.Seconds())
	} else {
		t.Logf("the sixth pod ran %.1f s after the release", waited.Seconds())
	}
	checkExample(t, c.succeeded("sixth")["main"], gib)

	limits := map[string]uint64{}
	for i, s := range shares {
		limits[s.Name] = sizes[i]
	}
	owners := c.attached(0)
	dead, err := truth.Dead(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	most := map[string]uint64{}
	for _, p := range dead {
		share := owners[p.PID]
		if limit, ok := limits[share]; ok && p.PeakBytes > 0 {
			most[share] = max(most[share], p.PeakBytes)
			if p.PeakBytes > limit {
				t.Errorf("process %d of %s held %d MiB of %d", p.PID, share, p.PeakBytes/mib, limit/mib)
			}
		}
	}
	if len(most) != len(limits) {
		t.Errorf("the simulator knows processes of %d shares, want %d: %v", len(most), len(limits), slices.Collect(maps.Keys(most)))
	}
	for share, peak := range most {
		if peak < limits[share]*8/10 {
			t.Errorf("%s held %d of %d MiB at most: its program did not press against the limit", share, peak/mib, limits[share]/mib)
		}
	}
}

// The control: without limits the same programs take more than any of those shares.
func TestWholeCardPassesLimits(t *testing.T) {
	c := newCluster(t)
	device := c.wholeDevices()[0]
	uuid, _ := names.UUID(device.Name)
	whole := device.Capacity[names.CapacityMemory].Value
	c.claim("whole", request{name: "gpu", uuid: uuid})
	c.pod("whole", container{name: "main", claim: "whole", command: example("vectoradd", 3)})
	load := checkExample(t, c.succeeded("whole")["main"], uint64(whole.Value()))
	if load.AllocatedBytes < 30*gib {
		t.Errorf("%d MiB: limits of 1 to 26 GiB would not have been seen", load.AllocatedBytes/mib)
	}
}

// burn keeps the GPU busy with kernels of a millisecond.
func burn(seconds int) []string {
	return []string{"/bin/sh", "-c", fmt.Sprintf("exec /tools/burn --us 1000 --seconds %d </dev/null", seconds)}
}

// cardTimes is how much of the GPUs each process had, at some moments.
type cardTimes map[int][]moment

type moment struct{ busy, at int64 }

func (h cardTimes) look(c *cluster, truth *simgpu.Truth) {
	c.t.Helper()
	states, err := truth.CardTime(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	for _, s := range states {
		if !s.Dead {
			h[s.PID] = append(h[s.PID], moment{s.BusyNS, s.AtNS})
		}
	}
}

// check checks that no process had more of the time between two moments, a second or more apart, than the cores of its
// share, by one kernel and a point, and returns of which shares there were enough moments.
func (h cardTimes) check(t *testing.T, owners map[int]string, cores map[string]int) (seen map[string]bool) {
	t.Helper()
	seen = map[string]bool{}
	for pid, moments := range h {
		percent, ours := cores[owners[pid]]
		if !ours || len(moments) < 3 {
			continue
		}
		first, last := moments[0], moments[len(moments)-1]
		if last.busy == first.busy {
			continue
		}
		seen[owners[pid]] = true
		most, from := 0.0, 0
		for _, to := range moments {
			for from+1 < len(moments) && to.at-moments[from+1].at >= int64(time.Second) {
				from++
			}
			passed, busy := to.at-moments[from].at, to.busy-moments[from].busy
			if passed < int64(time.Second) {
				continue
			}
			if limit := passed*int64(percent+1)/100 + int64(time.Millisecond); busy > limit {
				t.Errorf("%s had %.2f %% of a second, and has %d cores", owners[pid], 100*float64(busy)/float64(passed), percent)
			}
			most = max(most, 100*float64(busy)/float64(passed))
		}
		t.Logf("%d cores had %.2f %%, at most %.2f", percent, 100*float64(last.busy-first.busy)/float64(last.at-first.at), most)
	}
	return seen
}

// No second in which a share has more of the GPU than its cores, by one kernel and a
// point; and nobody else's limit moves it.
func TestCores(t *testing.T) {
	c := newCluster(t)
	truth := c.truth()
	uuid, _ := names.UUID(c.wholeDevices()[0].Name)
	cores := map[string]int{}
	for i, percent := range []int{15, 30, 50} {
		name := "burn-" + strconv.Itoa(i)
		c.claim(name, request{name: "gpu", memory: "1Gi", cores: strconv.Itoa(percent), uuid: uuid})
		c.pod(name, container{name: "main", claim: name, command: burn(12)})
		cores[name] = percent
	}
	byShare := map[string]int{}
	for name, percent := range cores {
		c.running(name, patience)
		byShare[c.shareOf(name, 0).Name] = percent
	}
	times := cardTimes{}
	for range 9 {
		times.look(c, truth)
		c.pause(time.Second)
	}
	if seen := times.check(t, c.attached(0), byShare); len(seen) != len(cores) {
		t.Errorf("the simulator saw kernels of %d shares, want %d", len(seen), len(cores))
	}
	for name := range cores {
		c.succeeded(name)
	}

	// The control: alone on the whole GPU it has nearly all of it.
	for name := range cores {
		c.deletePod(name)
	}
	c.claim("whole", request{name: "gpu", memory: "1Gi", uuid: uuid})
	c.pod("whole", container{name: "main", claim: "whole", command: burn(3)})
	var result struct{ BusyPercent float64 }
	lastLine(t, c.succeeded("whole")["main"], &result)
	if result.BusyPercent < 52 {
		t.Errorf("without cores it had %.1f %%: a limit of 50 would not have been seen", result.BusyPercent)
	}
}

// One claim for two containers and for two pods is one limit together; two requests for
// two containers are two.
func TestOneClaimManyContainers(t *testing.T) {
	c := newCluster(t)
	c.claim("shared", request{name: "gpu", memory: "2Gi", cores: "20"})
	hold := func(most int) []string {
		return []string{"/bin/sh", "-c", fmt.Sprintf("python3 -c '%s%s'", look, strings.Replace(holdMemory, "MOST", strconv.Itoa(most), 1))}
	}
	c.pod("a", container{name: "one", claim: "shared", command: hold(5)}, container{name: "two", claim: "shared", command: hold(5)})
	c.says("a", "one", "holds 5\n")
	c.says("a", "two", "holds 5\n")
	c.pod("b", container{name: "one", claim: "shared", command: hold(16)})
	// 2 GiB for three contexts of 64 MiB and 14 pieces of 128 MiB.
	c.says("b", "one", "holds 4\n")
	if share := c.shareOf("shared", 0); share.Clients != 3 || share.UsedBytes > 2*gib {
		t.Errorf("%d clients use %d MiB", share.Clients, share.UsedBytes/mib)
	}
	for _, of := range [][2]string{{"a", "one"}, {"a", "two"}, {"b", "one"}} {
		if want, said := fmt.Sprintf("sees 1 1 %d %d\n", 2*gib, 2*gib), c.log(of[0], of[1]); !strings.HasPrefix(said, want) {
			t.Errorf("%v: %q, want %q", of, said, want)
		}
	}
	c.deletePod("a")
	c.deletePod("b")

	c.claim("two", request{name: "small", memory: "1Gi"}, request{name: "large", memory: "3Gi"})
	c.pod("each", container{name: "small", claim: "two", request: "small", command: example("vectoradd", 1)},
		container{name: "large", claim: "two", request: "large", command: example("matmul", 1)})
	said := c.succeeded("each")
	checkExample(t, said["small"], gib)
	checkExample(t, said["large"], 3*gib)
}

// holdMemory takes pieces until it is refused, and keeps them.
const holdMemory = `
import time
context, address, n = ctypes.c_void_p(), ctypes.c_ulonglong(), 0
call(cuda, "cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call(cuda, "cuCtxSetCurrent", context)
while n < MOST and cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(128 << 20)) == 0: n += 1
print("holds", n, flush=True)
time.sleep(600)
`

// What cannot be is told in the pod's events, with what would do; nothing is left booked.
func TestRefusals(t *testing.T) {
	c := newCluster(t)
	c.claim("both", request{name: "a", memory: "1Gi"}, request{name: "b", memory: "1Gi"})
	c.pod("both", container{name: "main", claim: "both", command: []string{"/bin/true"}})
	c.warned("both", "would have 2 shares")
	c.claim("first", request{name: "a", memory: "1Gi"})
	c.claim("second", request{name: "a", memory: "1Gi"})
	c.pod("twice", container{name: "main", claim: "first", claims: []string{"second"}, command: []string{"/bin/true"}})
	c.warned("twice", "would have 2 shares")
	c.claim("unknown", request{name: "a", memory: "1Gi", opaque: `{"apiVersion":"divvy.dev/v1","kind":"ShareParameters","polcy":"equal"}`})
	c.pod("unknown", container{name: "main", claim: "unknown", command: []string{"/bin/true"}})
	c.warned("unknown", "polcy")
	c.claim("large", request{name: "a", memory: "100Gi"})
	c.pod("large", container{name: "main", claim: "large", command: []string{"/bin/true"}})
	c.warned("large", "cannot allocate all claims")
	// Less than a context is rounded up to one, as its published range says.
	c.claim("small", request{name: "a", memory: "1"})
	c.pod("small", container{name: "main", claim: "small", command: []string{"/bin/sh", "-c", "python3 -c '" + look + "'"}})
	said := c.succeeded("small")["main"]
	devices, err := c.agent.Devices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("sees 1 1 %d %d\n", devices.Cards[0].ContextBytes, devices.Cards[0].ContextBytes); said != want {
		t.Errorf("%q, want %q", said, want)
	}
}

// A container's own environment gains nothing, a shell that is entered later is held as the first program,
// whatever it knows of the container, and a container that asks for no GPU sees none.
func TestEnvironmentGainsNothing(t *testing.T) {
	c := newCluster(t)
	c.claim("share", request{name: "gpu", memory: "1Gi"})
	c.pod("tricks", container{name: "main", claim: "share", command: example("vectoradd", 1), env: map[string]string{
		"LD_PRELOAD": "/nowhere.so", "CUDA_VISIBLE_DEVICES": "0", "NVIDIA_VISIBLE_DEVICES": "all", "LD_LIBRARY_PATH": "/nowhere",
	}})
	said := c.succeeded("tricks")["main"]
	if at := strings.Index(said, "sees"); at > 0 {
		said = said[at:] // the linker tells of the library that is not there
	}
	lines := strings.Split(said, "\n")
	if want := fmt.Sprintf("sees 1 1 %d %d", gib, gib); lines[0] != want {
		t.Errorf("%q, want %q", lines[0], want)
	}
	c.pod("entered", container{name: "main", claim: "share", command: []string{"sleep", "1000"}})
	c.running("entered", patience)
	said = c.kubectl("-n", c.space, "exec", "entered", "--", "python3", "-c", "import os, sys; os.execve(sys.executable, ['python3', '-c', sys.argv[1]], {})", look)
	if want := fmt.Sprintf("sees 1 1 %d %d\n", gib, gib); said != want {
		t.Errorf("a shell of its own: %q, want %q", said, want)
	}
	// Where it leads the front away from its share, it has no GPU.
	c.pod("away", container{name: "main", claim: "share", command: []string{"/bin/sh", "-c", "python3 -c '" + look + "' 2>&1; true"},
		env: map[string]string{"DIVVY_SHARE": "/nowhere", "DIVVY_SOCKET": "/nowhere"}})
	if said := c.succeeded("away")["main"]; !strings.Contains(said, "cuInit: 802") || strings.Contains(said, "sees") {
		t.Errorf("%q", said)
	}
	c.pod("none", container{name: "main", command: []string{"/bin/sh", "-c",
		"python3 -c 'import ctypes; ctypes.CDLL(\"libcuda.so.1\")' 2>&1; ls /run/divvy /dev/nvidia* 2>&1; true"},
		env: map[string]string{"NVIDIA_VISIBLE_DEVICES": "all"}})
	if said := c.succeeded("none")["main"]; !strings.Contains(said, "libcuda.so.1: cannot open shared object file") || strings.Contains(said, "share.sock") {
		t.Errorf("%q", said)
	}
}
