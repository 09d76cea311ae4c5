// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/bench"
	terms "github.com/divvy-gpu/divvy/internal/share"
)

// The tests of this file look at whole kinds of fault, as docs/fault-kinds.md
// lists them, where no other file does.

// classed returns the symbols of the one list that are in a class.
func classed(t *testing.T, class string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), "clib", "gen", "symbols.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for line := range strings.Lines(string(text)) {
		if columns := strings.Split(strings.TrimSpace(line), "\t"); !strings.HasPrefix(line, "#") && columns[len(columns)-1] == class {
			found = append(found, columns[1])
		}
	}
	return found
}

// Kind 1: whatever takes or gives back memory of a card goes through a hook, and
// so through a snippet with a control (TestEveryHookedSymbolHasASnippet).
func TestAllocationSurfaceHasNoHole(t *testing.T) {
	hooked := hookedSymbols(t)
	for _, class := range []string{"allocates", "frees", "launches"} {
		all := classed(t, class)
		if len(all) < 10 {
			t.Fatalf("%d symbols are of class %s: is the form of the list a new one?", len(all), class)
		}
		for _, symbol := range all {
			if !slices.Contains(hooked, symbol) {
				t.Errorf("%s %s and is not hooked", symbol, class)
			}
		}
	}
}

// everyLaunch runs each way to start a kernel, and gives the part of the time in
// percent that its kernels were running.
func everyLaunch(t *testing.T, env []string, seconds float64) map[string]float64 {
	t.Helper()
	ended := run(t, env, built(t, "build", "test", "everylaunch"), fmt.Sprint(seconds))
	if ended.code != 0 {
		t.Fatalf("everylaunch: %+v", ended)
	}
	percents := map[string]float64{}
	for line := range strings.Lines(ended.stdout) {
		var symbol string
		var kernels, wall, kernel float64
		if strings.HasSuffix(line, " absent\n") {
			continue
		}
		if _, err := fmt.Sscan(line, &symbol, &kernels, &wall, &kernel); err != nil {
			t.Fatalf("everylaunch: %q: %v", line, err)
		}
		percents[symbol] = 100 * kernels * kernel / wall
	}
	return percents
}

// Kind 2: each way to start a kernel is held to a share of the time.
func TestLaunchSurfaceHasNoHole(t *testing.T) {
	const cores, slack = 20, 2 // over a second: a kernel, and a lease handed over
	h := newHost(t, hostOptions{})
	share, err := h.client.CreateShare(t.Context(), api.ShareSpec{Name: "gated", MemoryBytes: 1 << 30, Policy: terms.Fixed, CoresPercent: cores})
	if err != nil {
		t.Fatal(err)
	}
	// What is promised is promised over a second: in less, who was held up before may
	// have more.
	held := everyLaunch(t, h.Environ(share.Socket), 1)
	control := map[string]float64{}
	for range 4 { // a busy host leaves the card idle
		for symbol, percent := range everyLaunch(t, h.Unheld(), 0.1) {
			control[symbol] = max(control[symbol], percent)
		}
	}
	for _, symbol := range classed(t, "launches") {
		if _, ok := held[symbol]; !ok {
			t.Errorf("nothing was launched by %s", symbol)
		}
		if held[symbol] > cores+slack {
			t.Errorf("%s got %.1f %% in a share of %d %%", symbol, held[symbol], cores)
		}
		if control[symbol] < cores+slack {
			t.Errorf("%s got %.1f %% without Divvy: that it got no more in a share says nothing", symbol, control[symbol])
		}
	}
}

// Kind 5: a tenant cannot write what it is told, whichever way it takes; its own
// page, by the same ways, it can.
func TestTenantCannotEditItsLimits(t *testing.T) {
	t.Parallel()
	h := newHost(t, hostOptions{})
	share := h.share(t, "tamper", 256*mib)
	tamper := built(t, "build", "test", "tamper")
	ended := run(t, h.Environ(share.Socket), tamper, fmt.Sprint(512*mib))
	ways := []string{"store", "memory-file", "file", "mapping", "mprotect"}
	for _, way := range ways {
		if !strings.Contains(ended.stdout, "limits "+way+" held\n") {
			t.Errorf("the limits page by %s: not held", way)
		}
	}
	// Reopening a mapping's file wants privileges.
	for _, way := range []string{"store", "memory-file", "mprotect"} {
		if !strings.Contains(ended.stdout, "client "+way+" written\n") {
			t.Errorf("control: the process's own page by %s: not written", way)
		}
	}
	if !strings.Contains(ended.stdout, fmt.Sprintf("over %d\n", outOfMemory)) || ended.code != 0 {
		t.Errorf("a request over the quota: %+v", ended)
	}
	// What else a tenant may set is its environment: the most it can name is
	// another share's socket, and that share's own limit.
	for _, more := range [][]string{
		{"DIVVY_MEM=64GiB", "DIVVY_MEMORY=64GiB", "DIVVY_LIMIT=64GiB", "DIVVY_CORES=100"},
		{"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=64G", "GPU_MEMORY_LIMIT=64g", "CUDA_DEVICE_MEMORY_LIMIT=64g"},
	} {
		holder := h.holderIn(t, append(h.Environ(share.Socket), more...))
		do(t, holder, "start")
		if _, total := room(t, holder); total != 256*mib {
			t.Errorf("with %v the share has %d bytes", more, total)
		}
		refused(t, holder, outOfMemory, "alloc %d", 512*mib)
	}
	bare := run(t, h.Unheld(), tamper, fmt.Sprint(512*mib))
	if !strings.Contains(bare.stdout, "over 0\n") {
		t.Errorf("control without the front: %+v", bare)
	}
}

// Kind 7: a program finds itself after a session with the driver as it was before:
// signals, mask, umask, environment, folder, locale, timers, limits, descriptors.
func TestAGuestLeavesNothingChanged(t *testing.T) {
	t.Parallel()
	h := newHost(t, hostOptions{})
	share := h.share(t, "guest", 256*mib)
	manners := built(t, "build", "test", "manners")
	bytes := fmt.Sprint(512 * mib)
	want := fmt.Sprintf("over %d\ndone\n", outOfMemory)
	if ended := run(t, h.Environ(share.Socket), manners, bytes); ended.stdout != want || ended.code != 0 {
		t.Errorf("under a share: %+v", ended)
	}
	if ended := run(t, h.Unheld(), manners, bytes); ended.stdout != "over 0\ndone\n" {
		t.Errorf("control without the front: %+v", ended)
	}
	messy := run(t, h.Environ(share.Socket), manners, bytes, "--mess")
	for _, thing := range []string{"handler", "mask", "umask", "directory", "environment", "timer", "open", "dumpable", "deathsignal", "subreaper", "name", "rounding"} {
		if !strings.Contains(messy.stdout, "changed "+thing+"\n") {
			t.Errorf("control: a changed %s is not seen: %s", thing, messy.stdout)
		}
	}
}

// Kind 7: a library that wraps a driver call and goes on by RTLD_NEXT, as
// profilers do, works before the front, and the share holds.
func TestLibrariesThatGoOnByNext(t *testing.T) {
	t.Parallel()
	h := newHost(t, hostOptions{})
	share := h.share(t, "next", 256*mib)
	interposer := built(t, "build", "test", "interposer.so")
	bytes := 512 * mib
	before := func(env []string, driver string) []string {
		env = slices.DeleteFunc(env, func(entry string) bool { return strings.HasPrefix(entry, "LD_PRELOAD=") })
		return append(env, "LD_PRELOAD="+interposer+":"+filepath.Join(driver, "libcuda.so.1"))
	}
	for _, c := range []struct {
		name string
		env  []string
		over int
	}{
		{"under a share", before(h.Environ(share.Socket), h.FrontDirectory), outOfMemory},
		{"control without the front", before(h.Unheld(), h.DriverDirectory), 0},
	} {
		ended := run(t, c.env, built(t, "build", "test", "manners"), fmt.Sprint(bytes))
		if !strings.Contains(ended.stderr, fmt.Sprintf("interposed %d\n", bytes)) || !strings.Contains(ended.stdout, fmt.Sprintf("over %d\n", c.over)) {
			t.Errorf("%s: %+v", c.name, ended)
		}
	}
}

// views is what one place says of a share's memory.
type views struct{ total, free uint64 }

// inside asks a program's NVML under the share.
func (h *host) inside(t *testing.T, share api.Share) views {
	t.Helper()
	ended := run(t, h.Environ(share.Socket), divvy(t), "devices", "--json")
	var devices struct {
		InsideShare bool `json:"insideShare"`
		Cards       []struct {
			MemoryBytes uint64 `json:"memoryBytes"`
			UsedBytes   uint64 `json:"usedBytes"`
			FreeBytes   uint64 `json:"freeBytes"`
		} `json:"cards"`
	}
	if err := json.Unmarshal([]byte(ended.stdout), &devices); err != nil || !devices.InsideShare || len(devices.Cards) != 1 {
		t.Fatalf("devices in a share: %v: %+v", err, ended)
	}
	card := devices.Cards[0]
	if card.UsedBytes+card.FreeBytes != card.MemoryBytes {
		t.Errorf("NVML says that %d are used and %d free of %d", card.UsedBytes, card.FreeBytes, card.MemoryBytes)
	}
	return views{card.MemoryBytes, card.FreeBytes}
}

// Kind 6: the driver's interface in two processes, NVML in a third, the agent's
// account and the simulator's truth say the same, in every state that a share
// can be in. Numbers never wrap.
func TestAllViewsAgree(t *testing.T) {
	t.Parallel()
	h := newHost(t, hostOptions{})
	share := h.share(t, "views", 1024*mib)
	one, other := h.holder(t, share), h.holder(t, share)
	agree := func(state string, limit, used uint64) {
		t.Helper()
		want := views{limit, limit - min(used, limit)}
		eventually(t, state, func() error {
			told := h.look(t, "views")
			if told.LimitBytes != limit || told.UsedBytes != used {
				return fmt.Errorf("the agent says %d of %d, want %d of %d", told.UsedBytes, told.LimitBytes, used, limit)
			}
			for i, holder := range []*bench.Holder{one, other} {
				free, total := room(t, holder)
				if got := (views{total, free}); got != want {
					return fmt.Errorf("process %d sees %+v, want %+v", i, got, want)
				}
			}
			if got := h.inside(t, share); got != want {
				return fmt.Errorf("NVML in a third process says %+v, want %+v", got, want)
			}
			return nil
		})
	}
	do(t, one, "start")
	do(t, other, "start")
	agree("contexts only", 1024*mib, 2*contextBytes)
	first := alloc(t, one, 300*mib)
	agree("one has allocated", 1024*mib, 2*contextBytes+300*mib)
	second := alloc(t, other, 200*mib+1) // rounded up to 512
	agree("both have", 1024*mib, 2*contextBytes+500*mib+512)
	refused(t, one, outOfMemory, "alloc %d", 600*mib)
	agree("after a denial", 1024*mib, 2*contextBytes+500*mib+512)
	set := func(limit uint64) {
		t.Helper()
		if _, err := h.client.ChangeShare(t.Context(), "views", api.ShareChange{MemoryBytes: &limit}); err != nil {
			t.Fatal(err)
		}
	}
	set(256 * mib)
	agree("shrunk below its use", 256*mib, 2*contextBytes+500*mib+512)
	do(t, one, "free %d", first)
	agree("still over", 256*mib, 2*contextBytes+200*mib+512)
	do(t, other, "free %d", second)
	set(2048 * mib)
	agree("grown", 2048*mib, 2*contextBytes)

	// Without a quota everybody sees the card, never nothing.
	open := h.share(t, "no-quota", 0)
	holder := h.holder(t, open)
	do(t, holder, "start")
	_, total := room(t, holder)
	bare := h.holderIn(t, h.Unheld())
	do(t, bare, "start")
	if _, card := room(t, bare); total != card || total == 0 || h.inside(t, open).total != card {
		t.Errorf("without a quota: %d by CUDA, %d by NVML, the card has %d", total, h.inside(t, open).total, card)
	} else if card == 1024*mib {
		t.Errorf("control without the front: the card is as large as the share")
	}
}

// inNamespace starts a holder that is process 1 of a namespace of its own.
func (h *host) inNamespace(t *testing.T, env []string) *bench.Holder {
	t.Helper()
	program := exec.Command(filepath.Join(h.ToolsDirectory, "holder"))
	program.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	if os.Geteuid() != 0 {
		program.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		program.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}}
		program.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}}
	}
	holder, err := bench.HolderOf(program, env)
	if err != nil {
		t.Fatal(err)
	}
	pid := holder.PID
	t.Cleanup(func() {
		holder.PID = pid // not the 1 that it says
		holder.Kill()
	})
	if err := holder.Greeting(); err != nil {
		t.Fatal(err)
	}
	if holder.PID != 1 {
		t.Fatalf("the holder is process %d of its namespace", holder.PID)
	}
	holder.PID = pid
	return holder
}

// Kind 8: a process that calls itself 1 is on the ledger as who it is, is held,
// and its end is seen; two that call themselves 1 are two.
func TestProcessesOfOtherNamespaces(t *testing.T) {
	t.Parallel()
	h := newHost(t, hostOptions{})
	share := h.share(t, "namespaces", 512*mib)
	one, other := h.inNamespace(t, h.Environ(share.Socket)), h.inNamespace(t, h.Environ(share.Socket))
	for _, holder := range []*bench.Holder{one, other} {
		do(t, holder, "start")
		alloc(t, holder, 100*mib)
	}
	clients, err := h.client.Clients(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var seen []int
	for _, client := range clients.Clients {
		seen = append(seen, client.PID)
		if client.UsedBytes != contextBytes+100*mib {
			t.Errorf("process %d uses %d bytes", client.PID, client.UsedBytes)
		}
	}
	want := []int{one.PID, other.PID}
	slices.Sort(seen)
	slices.Sort(want)
	if !slices.Equal(seen, want) {
		t.Errorf("the ledger has processes %v, want %v", seen, want)
	}
	refused(t, one, outOfMemory, "alloc %d", 300*mib)
	other.Kill()
	eventually(t, "the memory of the dead one is free", func() error {
		if _, err := one.Do("alloc %d", 300*mib); errors.Is(err, bench.ErrRefused) {
			return err
		} else if err != nil {
			t.Fatal(err)
		}
		return nil
	})
	bare := h.inNamespace(t, h.Unheld())
	do(t, bare, "start")
	alloc(t, bare, 600*mib) // control: nothing but Divvy holds it
}

// Kind 9: a level that this machine cannot hold is refused with the reason, and
// nothing is left behind; what can be had is said to be in force.
func TestDemandedEnforcementIsHeldOrRefused(t *testing.T) {
	t.Parallel()
	h := newHost(t, hostOptions{})
	for _, level := range []terms.Enforcement{terms.EnforcedMIG, terms.EnforcedDriver, terms.EnforcedMPS} {
		_, err := h.client.CreateShare(t.Context(), api.ShareSpec{Name: "demand", MemoryBytes: 256 * mib, Enforce: level})
		if err == nil || !strings.Contains(err.Error(), string(level)) {
			t.Errorf("a demand of %s: %v", level, err)
		}
		if _, err := h.client.Share(t.Context(), "demand"); err == nil {
			t.Errorf("a demand of %s left a share", level)
		}
	}
	for _, level := range []terms.Enforcement{"", terms.Booked, terms.EnforcedFront} {
		share, err := h.client.CreateShare(t.Context(), api.ShareSpec{Name: "demand-" + string(level) + "x", MemoryBytes: 256 * mib, Enforce: level})
		if err != nil || share.Enforcement != terms.EnforcedFront {
			t.Errorf("a demand of %q: %s in force, %v", level, share.Enforcement, err)
			continue
		}
		holder := h.holder(t, share) // and it is
		do(t, holder, "start")
		refused(t, holder, outOfMemory, "alloc %d", 256*mib)
	}
	bare := h.holderIn(t, h.Unheld())
	do(t, bare, "start")
	alloc(t, bare, 256*mib)
}

// Kind 12: an upgrade under a running program leaves it what it has loaded. The
// control does what the others did: it overwrites the file in place.
func TestUpgradeUnderARunningProgram(t *testing.T) {
	t.Parallel()
	h := newHost(t, hostOptions{})
	share := h.share(t, "upgrade", 512*mib)
	prefix := filepath.Join(h.directory, "prefix")
	install := func(version string) string {
		t.Helper()
		if ended := run(t, os.Environ(), filepath.Join(root(t), "scripts", "install"), "", prefix, version); ended.code != 0 {
			t.Fatalf("install: %+v", ended)
		}
		front, err := filepath.EvalSymlinks(filepath.Join(prefix, "lib", "divvy", "current", "lib", "divvy", "front"))
		if err != nil {
			t.Fatal(err)
		}
		return front
	}
	under := func(front string) *bench.Holder {
		t.Helper()
		target := h.Target
		target.FrontDirectory = front
		holder := h.holderIn(t, target.Environ(share.Socket))
		do(t, holder, "start")
		return holder
	}
	works := func(holder *bench.Holder) error {
		address, err := holder.Number("alloc %d", 4*mib)
		if err == nil {
			_, err = holder.Do("write %d %d", address, mib)
		}
		if err == nil {
			_, err = holder.Do("check %d %d", address, mib)
		}
		if err == nil {
			_, err = holder.Do("free %d", address)
		}
		return err
	}
	first := install("1.0")
	old := under(first)
	if err := works(old); err != nil {
		t.Fatal(err)
	}
	second := install("2.0")
	if first == second {
		t.Fatalf("both versions are in %s", first)
	}
	if err := works(old); err != nil {
		t.Errorf("a program that runs since before the upgrade: %v", err)
	}
	if err := works(under(second)); err != nil {
		t.Errorf("a program that starts after it: %v", err)
	}
	data, err := os.ReadFile(filepath.Join(first, "libcuda.so.1"))
	if err != nil {
		t.Fatal(err)
	}
	in := filepath.Join(h.directory, "in-place")
	if err := os.Mkdir(in, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(in, "libcuda.so.1"), data, 0o755); err != nil {
		t.Fatal(err)
	}
	control := under(in)
	if err := os.Truncate(filepath.Join(in, "libcuda.so.1"), 0); err != nil {
		t.Fatal(err)
	}
	if err := works(control); err == nil {
		t.Error("control: a library that is overwritten in place does no harm here")
	}
}

// Kind 13: memory that is on no ledger is told and counted, and what is under a
// share is not.
func TestMemoryOnNoLedgerIsTold(t *testing.T) {
	t.Parallel()
	h := newHost(t, hostOptions{})
	share := h.share(t, "ledger", 512*mib)
	card := func() api.Card {
		t.Helper()
		devices, err := h.client.Devices(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return devices.Cards[0]
	}
	held := h.holder(t, share)
	do(t, held, "start")
	alloc(t, held, 128*mib)
	stranger := h.holderIn(t, h.Unheld())
	do(t, stranger, "start")
	alloc(t, stranger, 300*mib)
	look := func(state string, unledgered uint64) {
		t.Helper()
		eventually(t, state, func() error {
			// A comparison comes when something happens.
			if address, err := held.Number("alloc 512"); err == nil {
				do(t, held, "free %d", address)
			}
			now := card()
			if now.UnledgeredBytes != unledgered || now.DriftBytes != 0 {
				return fmt.Errorf("%d bytes on no ledger, want %d; drift %d", now.UnledgeredBytes, unledgered, now.DriftBytes)
			}
			return nil
		})
	}
	look("the stranger is counted", contextBytes+300*mib)
	told := h.event(t, "unledgered-memory", "")
	if told.PID != stranger.PID || told.Bytes == 0 {
		t.Errorf("told %+v, want process %d", told, stranger.PID)
	}
	stranger.Kill()
	look("it is gone", 0)
	for _, event := range h.events(t, "unledgered-memory", "") {
		if event.PID == held.PID {
			t.Errorf("control: a program under a share was told of, too: %+v", event)
		}
	}
}
