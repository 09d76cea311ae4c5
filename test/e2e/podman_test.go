// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/simgpu"
)

// podman is a container runtime with storage of its own and one image, over a
// folder of CDI files.
type podman struct {
	work  string
	flags []string
}

// podmanScript runs podman where /etc/cdi is our folder, and where the control
// groups are of one kind, as crun wants them; nothing of that outlives it.
//
//	$1 work folder  $2 folder of CDI files  then podman and its arguments
const podmanScript = `
set -eu
work=$1 cdi=$2
shift 2
mkdir -p "$work/upper" "$work/lower"
mount -t overlay -o "lowerdir=/etc,upperdir=$work/upper,workdir=$work/lower" none /etc
mkdir -p /etc/cdi
mount --bind "$cdi" /etc/cdi
mount -t tmpfs none /sys/fs/cgroup
mount -t cgroup2 none /sys/fs/cgroup
exec "$@"
`

const image = "localhost/divvy-test:1"

// newPodman makes the image: Debian's C library and Python, nothing of ours.
func newPodman(t *testing.T, cdi string) *podman {
	t.Helper()
	for _, program := range []string{"podman", "crun", "conmon"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%v: apt-get install --no-install-recommends podman crun", err)
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can give podman a /etc/cdi of this test's own")
	}
	if err := os.MkdirAll(cdi, 0o755); err != nil {
		t.Fatal(err)
	}
	work, err := os.MkdirTemp("/tmp", "dvp-")
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(work, name) }
	p := &podman{work: work, flags: []string{
		"unshare", "--mount", "sh", "-c", podmanScript, "podman", work, cdi,
		"podman", "--root", at("root"), "--runroot", at("run"), "--tmpdir", at("tmp"), "--cgroup-manager", "cgroupfs",
		"--storage-driver", "overlay", "--events-backend", "file",
	}}
	t.Cleanup(func() {
		if text, err := p.command(context.Background(), "rm", "--all", "--force", "--time", "0").CombinedOutput(); err != nil {
			t.Errorf("remove containers: %v\n%s", err, tail(string(text), 1000))
		}
		// What podman leaves behind to clean up after a container may still write there.
		eventually(t, "podman has left its folder", func() error { return os.RemoveAll(work) })
	})
	archive := exec.CommandContext(t.Context(), "tar", "-C", rootfs(t), "-cf", at("image.tar"), ".")
	if text, err := archive.CombinedOutput(); err != nil {
		t.Fatalf("pack the image: %v\n%s", err, text)
	}
	if text, err := p.command(t.Context(), "import", at("image.tar"), image).CombinedOutput(); err != nil {
		t.Skipf("podman does not work here: %v\n%s", err, tail(string(text), 1000))
	}
	if text, err := p.run(t.Context(), nil, "/bin/busybox", "true").CombinedOutput(); err != nil {
		t.Skipf("podman starts no container here: %v\n%s", err, tail(string(text), 1000))
	}
	return p
}

func (p *podman) command(ctx context.Context, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, p.flags[0], append(p.flags[1:len(p.flags):len(p.flags)], args...)...)
	command.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.work}
	return command
}

// run is a container with devices by CDI and the test's programs in /programs
// and /tools.
func (p *podman) run(ctx context.Context, flags []string, program ...string) *exec.Cmd {
	args := []string{"run", "--rm", "--interactive", "--network", "none", "--cgroups", "disabled",
		"--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096"}
	args = append(append(args, flags...), image)
	return p.command(ctx, append(args, program...)...)
}

func device(name string) []string { return []string{"--device", "divvy.dev/" + name} }

// lookProgram says what a program in a container sees, by both libraries, and
// whether an allocation of a size is denied.
const lookProgram = `
import ctypes, sys
try:
    cuda = ctypes.CDLL("libcuda.so")
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
except OSError:
    print("no driver")
    sys.exit()
def call(library, name, *arguments):
    result = getattr(library, name)(*arguments)
    if result:
        print("%s: %d" % (name, result))
        sys.exit()
class Memory(ctypes.Structure):
    _fields_ = [(n, ctypes.c_ulonglong) for n in ("total", "free", "used")]
count, cards, device, card = ctypes.c_int(), ctypes.c_uint(), ctypes.c_int(), ctypes.c_void_p()
context, free, total, address = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_ulonglong()
uuid, memory = ctypes.create_string_buffer(96), Memory()
call(cuda, "cuInit", 0)
call(cuda, "cuDeviceGetCount", ctypes.byref(count))
call(cuda, "cuDeviceGet", ctypes.byref(device), 0)
call(cuda, "cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
call(cuda, "cuCtxSetCurrent", context)
call(cuda, "cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
call(nvml, "nvmlInit_v2")
call(nvml, "nvmlDeviceGetCount_v2", ctypes.byref(cards))
call(nvml, "nvmlDeviceGetHandleByIndex_v2", 0, ctypes.byref(card))
call(nvml, "nvmlDeviceGetUUID", card, uuid, 96)
call(nvml, "nvmlDeviceGetMemoryInfo", card, ctypes.byref(memory))
denied = cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(int(sys.argv[1])))
print("cards", count.value, cards.value, uuid.value.decode(), "total", total.value, memory.total, "alloc", denied)
`

// reachProgram asks NVML for its own first card, and for another one by its UUID, by
// its PCI address and by the next index; it prints what each came to.
const reachProgram = `
import ctypes, sys
nvml = ctypes.CDLL("libnvidia-ml.so.1")
card = ctypes.c_void_p()
nvml.nvmlInit_v2()
print("own", nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(card)),
    "other", nvml.nvmlDeviceGetHandleByUUID(sys.argv[1].encode(), ctypes.byref(card)),
    nvml.nvmlDeviceGetHandleByPciBusId_v2(sys.argv[2].encode(), ctypes.byref(card)),
    "index", nvml.nvmlDeviceGetHandleByIndex_v2(1, ctypes.byref(card)))
`

// sees runs lookProgram in a container.
func (p *podman) sees(t *testing.T, flags []string, allocate uint64) string {
	t.Helper()
	got := finish(t, p.run(t.Context(), flags, "/usr/bin/python3", "-c", lookProgram, fmt.Sprint(allocate)), p.command(t.Context()).Env)
	if got.code != 0 {
		t.Errorf("code %d\n%s", got.code, tail(got.stderr, 1500))
	}
	return strings.TrimSpace(got.stdout)
}

// A real container runtime, a share by its name, and nothing else: no
// environment, no hook, no library in the image.
func TestPodman(t *testing.T) {
	t.Parallel()
	const quota = 512 * mib
	folder := t.TempDir()
	h := newHost(t, hostOptions{cards: "2xA100-40GB", agentFlags: []string{"--cdi-dir", folder}})
	p := newPodman(t, folder)
	devices, err := h.client.Devices(t.Context())
	if err != nil || len(devices.Cards) != 2 {
		t.Fatalf("%+v (%v)", devices, err)
	}
	train := h.shareOf(t, api.ShareSpec{Name: "train", GPU: devices.Cards[0].UUID, MemoryBytes: quota, CoresPercent: 30})
	other := h.shareOf(t, api.ShareSpec{Name: "other", GPU: devices.Cards[1].UUID, MemoryBytes: 2 * quota})
	tools := []string{"--volume", h.ToolsDirectory + ":/tools:ro"}

	t.Run("sees its share only", func(t *testing.T) {
		for _, share := range []api.Share{train, other} {
			want := fmt.Sprintf("cards 1 1 %s total %d %d alloc %d", share.CardUUID, share.MemoryBytes, share.MemoryBytes, outOfMemory)
			if got := p.sees(t, device("share="+share.Name), share.MemoryBytes); got != want {
				t.Errorf("%s: %q, want %q", share.Name, got, want)
			}
		}
	})
	t.Run("however it is started", func(t *testing.T) {
		want := fmt.Sprintf("cards 1 1 %s total %d %d alloc %d", train.CardUUID, quota, quota, outOfMemory)
		for _, flags := range [][]string{
			{"--user", "1000:1000"}, {"--read-only"}, {"--tmpfs", "/run"}, {"--cap-drop", "all"}, {"--security-opt", "no-new-privileges"},
			{"--env", "LD_LIBRARY_PATH=/nowhere"}, {"--env", "NVIDIA_VISIBLE_DEVICES=all"},
		} {
			if got := p.sees(t, append(device("share=train"), flags...), quota); got != want {
				t.Errorf("%v: %q, want %q", flags, got, want)
			}
		}
	})
	t.Run("no way to the other card", func(t *testing.T) {
		other := other.CardUUID
		for _, flags := range [][]string{
			{"--env", "CUDA_VISIBLE_DEVICES=" + other}, {"--env", "CUDA_VISIBLE_DEVICES=1"}, {"--env", "CUDA_VISIBLE_DEVICES=0,1"},
		} {
			// The card that it has, or none.
			if got := p.sees(t, append(device("share=train"), flags...), quota); strings.Contains(got, other) || strings.HasPrefix(got, "cards 2") {
				t.Errorf("%v: %q", flags, got)
			}
		}
		got := finish(t, p.run(t.Context(), device("share=train"), "/usr/bin/python3", "-c", reachProgram, other, devices.Cards[1].PCIAddress), p.command(t.Context()).Env)
		if want := "own 0 other 6 6 index 2"; got.code != 0 || strings.TrimSpace(got.stdout) != want {
			t.Errorf("code %d, %q, want %q\n%s", got.code, got.stdout, want, tail(got.stderr, 1000))
		}
	})
	t.Run("every call is held", func(t *testing.T) {
		h.resetPeak(t)
		flags := append(device("share=train"), "--volume", built(t, "build", "test")+":/programs:ro")
		got := finish(t, p.run(t.Context(), flags, "/programs/snippets-linked", "linear", fmt.Sprint(quota)), p.command(t.Context()).Env)
		if got.code != 0 || !strings.Contains(got.stdout, "ok cuMemAlloc_v2") || strings.Contains(got.stdout, "not ok") {
			t.Errorf("code %d\n%s%s", got.code, tail(got.stdout, 1500), tail(got.stderr, 1500))
		}
		if peak := h.peak(t); peak == 0 || peak > quota {
			t.Errorf("the driver saw %d bytes in use, quota %d", peak, quota)
		}
	})
	t.Run("time", func(t *testing.T) {
		if whole := lookAgain(10, 10, func() float64 {
			whole, most := parts(h.containerBurn(t, p.run(t.Context(), append(device("share=train"), tools...), "/tools/burn", "--us", "1000", "--ahead-ms", "500", "--seconds", "3")))
			if most > 31 {
				t.Errorf("the share of 30 %% of the cores had %.1f %% of a second", most)
			}
			return whole
		}); whole < 10 {
			t.Errorf("the share of 30 %% of the cores had %.1f %% of the card", whole)
		}
	})
	t.Run("no device no GPU", func(t *testing.T) {
		if got := p.sees(t, nil, quota); got != "no driver" {
			t.Errorf("a container without a device sees %q", got)
		}
	})
	t.Run("control", func(t *testing.T) {
		uuid := devices.Cards[0].UUID
		got := run(t, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + h.directory, "DIVVY_LIBDIR=" + built(t, "lib", "divvy")},
			divvy(t), "cdi", "generate", "--agent", h.AgentSocket, "--class", "card", "--output", folder)
		if got.code != 0 || !strings.Contains(got.stdout, "divvy.dev/card="+uuid+"  ready") {
			t.Fatalf("code %d\n%s%s", got.code, got.stdout, got.stderr)
		}
		// The whole card, with the driver itself: nothing holds it.
		if got := p.sees(t, device("card="+uuid), quota); !strings.HasSuffix(got, "alloc 0") || strings.Contains(got, fmt.Sprint("total ", quota)) {
			t.Errorf("on the whole card: %q", got)
		}
		reached := finish(t, p.run(t.Context(), device("card="+uuid), "/usr/bin/python3", "-c", reachProgram, other.CardUUID, devices.Cards[1].PCIAddress), p.command(t.Context()).Env)
		if want := "own 0 other 0 0 index 0"; strings.TrimSpace(reached.stdout) != want {
			t.Errorf("without the front NVML says %q, want %q", reached.stdout, want)
		}
	})
	t.Run("gone with its share", func(t *testing.T) {
		if err := h.client.DeleteShare(t.Context(), "other", true); err != nil {
			t.Fatal(err)
		}
		got := finish(t, p.run(t.Context(), device("share=other"), "/bin/busybox", "true"), p.command(t.Context()).Env)
		if got.code == 0 || !strings.Contains(got.stderr, "divvy.dev/share=other") {
			t.Errorf("code %d: %s", got.code, got.stderr)
		}
		files, err := os.ReadDir(folder)
		if err != nil || len(files) != 3 { // train and two cards
			t.Errorf("left: %v (%v)", files, err)
		}
	})
	// The last one: the agent that it starts ends with it.
	t.Run("survives its agent", func(t *testing.T) {
		compute := h.shareOf(t, api.ShareSpec{Name: "compute", GPU: devices.Cards[1].UUID, MemoryBytes: quota})
		busy := h.shareOf(t, api.ShareSpec{Name: "busy", GPU: devices.Cards[0].UUID, MemoryBytes: quota, CoresPercent: 30})
		h.restartUnder(t, p, train, h.busyUnder(t, p, busy, compute, tools), tools)
	})
}

// shareOf makes a share that the test removes by itself or leaves to the end of
// its host.
func (h *host) shareOf(t *testing.T, spec api.ShareSpec) api.Share {
	t.Helper()
	share, err := h.client.CreateShare(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return share
}

// containerBurn runs a burner that ends by itself and says what it had of the card
// while it ran, by the simulator's account.
func (h *host) containerBurn(t *testing.T, command *exec.Cmd) (seen []simgpu.TimeState) {
	t.Helper()
	truth := h.truth(t)
	before := h.cardTimes(t, truth)
	command.Stdin = strings.NewReader("\n")
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 64)
	if n, err := out.Read(buffer); err != nil || !strings.HasPrefix(string(buffer[:n]), "ready ") {
		t.Fatalf("burn says %q (%v)", buffer[:n], err)
	}
	eventually(t, "the burner ends", func() error {
		for pid, s := range h.cardTimes(t, truth) {
			if _, old := before[pid]; old {
				continue
			}
			if s.Dead && len(seen) > 1 {
				return nil
			}
			if s.BusyNS > 0 {
				seen = append(seen, s)
			}
		}
		return errors.New("it runs")
	}, h.simulator)
	if err := command.Wait(); err != nil {
		t.Fatal(err)
	}
	return seen
}
