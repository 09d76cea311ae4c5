// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// everything is the environment that divvy run sets.
func everything(more ...string) func(h *host, socket string) []string {
	return func(h *host, socket string) []string { return append(h.Environ(socket), more...) }
}

// A program is held to its share however it comes to its driver. RPATH and
// RUNPATH lead straight to the driver's own folder.
func TestLoading(t *testing.T) {
	t.Parallel()
	h := newHost(t, hostOptions{})
	share := h.share(t, "loading", snippetQuota)
	for _, w := range []way{
		{name: "linked", program: "snippets-linked", env: everything()},
		{name: "dlopen libcuda.so.1", program: "snippets-named", env: everything()},
		{name: "dlopen libcuda.so", program: "snippets-named", env: everything("SNIPPET_LIBCUDA=libcuda.so")},
		{name: "RPATH", program: "snippets-rpath", env: everything()},
		{name: "RUNPATH", program: "snippets-runpath", env: everything()},
	} {
		for _, area := range []string{"linear", "view"} {
			t.Run(w.name+"/"+area, func(t *testing.T) { runSnippets(t, h, w, area, share.Socket) })
		}
	}
	for _, program := range []string{"snippets-rpath", "snippets-runpath", "snippets-linked"} {
		t.Run("control/"+program, func(t *testing.T) {
			control := way{program: program, flags: []string{"--control"}, control: true,
				env: func(h *host, _ string) []string { return h.Unheld() }}
			runSnippets(t, h, control, "linear", share.Socket)
		})
	}
}

const ctypesProgram = `
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *arguments):
    result = getattr(cuda, name)(*arguments)
    if result:
        sys.exit("%s: %d" % (name, result))
device, context = ctypes.c_int(), ctypes.c_void_p()
free, total = ctypes.c_size_t(), ctypes.c_size_t()
call("cuInit", 0)
call("cuDeviceGet", ctypes.byref(device), 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
call("cuCtxSetCurrent", context)
call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
address = ctypes.c_ulonglong()
result = cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(int(sys.argv[1])))
print("total", total.value, "free", free.value, "alloc", result)
`

// Other languages than C: Python's ctypes, and Go without cgo.
func TestLoadingFromOtherLanguages(t *testing.T) {
	t.Parallel()
	const quota = 256 * mib
	h := newHost(t, hostOptions{})
	share := h.share(t, "languages", quota)
	tooMuch := strconv.FormatUint(quota, 10) // a context is in it already
	for _, language := range []struct {
		name    string
		program []string
	}{
		{"ctypes", []string{"/usr/bin/python3", "-c", ctypesProgram, tooMuch}},
		{"go", []string{built(t, "build", "test", "dlopen-go"), tooMuch}},
	} {
		t.Run(language.name, func(t *testing.T) {
			held := run(t, h.Environ(share.Socket), language.program[0], language.program[1:]...)
			want := fmt.Sprintf("total %d free %d alloc %d", quota, quota-contextBytes, outOfMemory)
			if got := strings.TrimSpace(held.stdout); held.code != 0 || got != want {
				t.Errorf("under the share: %q (code %d, %s), want %q", got, held.code, tail(held.stderr, 500), want)
			}
			bare := run(t, h.Unheld(), language.program[0], language.program[1:]...)
			if bare.code != 0 || !strings.HasSuffix(strings.TrimSpace(bare.stdout), "alloc 0") {
				t.Errorf("control without the front: %q (code %d, %s), want an allocation over the quota",
					bare.stdout, bare.code, tail(bare.stderr, 500))
			}
		})
	}
}

func TestThreadsShareTheLedger(t *testing.T) {
	t.Parallel()
	h := newHost(t, hostOptions{})
	holder := h.holder(t, h.share(t, "threads", 256*mib))
	do(t, holder, "start")
	before, _ := room(t, holder)
	if failed := do(t, holder, "threads 16 2000"); failed[0] != "0" {
		t.Errorf("%s calls failed", failed[0])
	}
	if after, _ := room(t, holder); after != before {
		t.Errorf("%d bytes free after the threads, %d before", after, before)
	}
}

// exec drops the program and what it held; the new image is a client of its own.
func TestExecStartsAnew(t *testing.T) {
	t.Parallel()
	const quota = 256 * mib
	h := newHost(t, hostOptions{})
	share := h.share(t, "exec", quota)
	holder := h.holder(t, share)
	do(t, holder, "start")
	alloc(t, holder, 100*mib)
	do(t, holder, "exec")
	if err := holder.Greeting(); err != nil {
		t.Fatal(err)
	}
	do(t, holder, "start")
	eventually(t, "the old image's memory is back", func() error {
		if free, _ := room(t, holder); free != quota-contextBytes {
			return fmt.Errorf("%d bytes free", free)
		}
		return nil
	})
	address := alloc(t, holder, 100*mib)
	refused(t, holder, outOfMemory, "alloc %d", 100*mib)
	do(t, holder, "write %d %d", address, mib)
	do(t, holder, "check %d %d", address, mib)
}

// A program that closes all its descriptors goes on: its memory stays charged,
// nobody else gets it, and its data is there.
func TestClosedDescriptors(t *testing.T) {
	t.Parallel()
	const quota = 512 * mib
	h := newHost(t, hostOptions{})
	share := h.share(t, "closer", quota)
	h.resetPeak(t)
	closer := h.holder(t, share)
	do(t, closer, "start")
	address := alloc(t, closer, 100*mib)
	do(t, closer, "write %d %d", address, mib)
	do(t, closer, "close")
	do(t, closer, "check %d %d", address, mib)

	other := h.holder(t, share)
	do(t, other, "start")
	// 512 - 64 - 100 - 64 are left.
	refused(t, other, outOfMemory, "alloc %d", 300*mib)
	second := alloc(t, other, 200*mib)

	// It goes on: what it frees others can have, and it may allocate again.
	more := alloc(t, closer, 10*mib)
	do(t, closer, "write %d %d", more, mib)
	do(t, closer, "check %d %d", more, mib)
	do(t, closer, "free %d", more)
	do(t, closer, "free %d", address)
	do(t, other, "grab %d", 100*mib)
	do(t, other, "free %d", second)
	if peak := h.peak(t); peak > quota {
		t.Errorf("the driver saw %d bytes in use, quota %d", peak, quota)
	}
	do(t, closer, "exit")
	eventually(t, "the closer's context is free", func() error {
		if used := h.look(t, share.Name).UsedBytes; used != contextBytes+100*mib {
			return fmt.Errorf("%d bytes used", used)
		}
		return nil
	})
}

// A process that forks before it uses the card is not in its child's way, and
// a child of a process that uses the card gets the driver's own answer.
func TestForkAfterInit(t *testing.T) {
	t.Parallel()
	h := newHost(t, hostOptions{})
	share := h.share(t, "fork", 256*mib)
	holder := h.holder(t, share)
	do(t, holder, "start")
	address := alloc(t, holder, 50*mib)
	do(t, holder, "write %d %d", address, mib)
	child, err := holder.Number("fork")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(int(child), syscall.SIGKILL) })
	// The parent is not disturbed by its child's life or death.
	do(t, holder, "check %d %d", address, mib)
	if err := syscall.Kill(int(child), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	do(t, holder, "free %d", address)
	if free, _ := room(t, holder); free != 256*mib-contextBytes {
		t.Errorf("%d bytes free", free)
	}
	if share := h.look(t, share.Name); share.Clients != 1 {
		t.Errorf("%d clients, want 1: the child is none", share.Clients)
	}
}

// A card without a share is not there, whatever the program asks to see.
func TestSecondCardIsInvisible(t *testing.T) {
	t.Parallel()
	h := newHost(t, hostOptions{cards: "2xH100-80GB"})
	devices, err := h.client.Devices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(devices.Cards) != 2 {
		t.Fatalf("%d cards, want 2", len(devices.Cards))
	}
	share := h.share(t, "one-card", 256*mib)
	other := devices.Cards[0].UUID
	if other == share.CardUUID {
		other = devices.Cards[1].UUID
	}
	for _, visible := range []string{"", "0", "1", "0,1", "1,0", share.CardUUID, other, share.CardUUID + "," + other, other + "," + share.CardUUID, "-1", "7"} {
		t.Run("CUDA_VISIBLE_DEVICES="+visible, func(t *testing.T) {
			var more []string
			if visible != "" {
				more = append(more, "CUDA_VISIBLE_DEVICES="+visible)
			}
			seen := cards(t, h, append(h.Environ(share.Socket), more...))
			for _, uuid := range seen {
				if uuid != share.CardUUID {
					t.Errorf("sees %s, its share is on %s", uuid, share.CardUUID)
				}
			}
			bare := cards(t, h, append(h.Unheld(), more...))
			if visible == "" && len(bare) != 2 {
				t.Errorf("control without the front sees %v, want both cards", bare)
			}
		})
	}
}

// NVML tells the same story on a machine with two cards.
func TestSecondCardIsInvisibleInNVML(t *testing.T) {
	t.Parallel()
	h := newHost(t, hostOptions{cards: "2xH100-80GB"})
	share := h.share(t, "one-card", snippetQuota)
	runSnippets(t, h, way{name: "dlopen", program: "snippets-named", env: everything()}, "nvml", share.Socket)
	bare := run(t, h.Unheld(), built(t, "build", "test", "snippets-named"), "nvml", fmt.Sprint(snippetQuota), "--control")
	if !strings.Contains(bare.stdout, "not ok nvmlDeviceGetCount_v2") {
		t.Errorf("control without the front: NVML shows one card of two\n%s", tail(bare.stdout, 1000))
	}
}

// cards are the UUIDs a program sees in this environment; none when the driver
// says that there is no device.
func cards(t *testing.T, h *host, env []string) []string {
	t.Helper()
	holder := h.holderIn(t, env)
	words, err := holder.Do("cards")
	if err != nil {
		const noDevice = 100
		refused(t, holder, noDevice, "cards")
		return nil
	}
	if count, err := strconv.Atoi(words[0]); err != nil || count != len(words)-1 {
		t.Fatalf("cards: %q", words)
	}
	return words[1:]
}
