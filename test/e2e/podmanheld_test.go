// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/bench"
	terms "github.com/divvy-gpu/divvy/internal/share"
)

// holderInside starts a holder in a container, by a command line that it ends.
func (h *host) holderInside(t *testing.T, p *podman, flags []string, line ...string) *bench.Holder {
	t.Helper()
	flags = append(flags, "--volume", h.ToolsDirectory+":/tools:ro")
	holder, err := bench.HolderOf(p.run(context.Background(), flags, append(line, "/tools/holder")...), p.command(t.Context()).Env)
	if err != nil {
		t.Fatal(err)
	}
	outside := holder.PID
	t.Cleanup(func() {
		holder.PID = outside // its greeting tells the number in its own namespace
		holder.Kill()
	})
	if err := holder.Greeting(); err != nil {
		t.Fatal(err)
	}
	return holder
}

// TestPodmanUnderMPS: a container of a share that MPS holds is a client of the
// card's daemon (the fake one), within its limits also where the front is not.
func TestPodmanUnderMPS(t *testing.T) {
	fakeMPS(t)
	folder := t.TempDir()
	h := newHost(t, hostOptions{agentFlags: []string{"--cdi-dir", folder}})
	p := newPodman(t, folder)
	h.shareOf(t, api.ShareSpec{Name: "early", MemoryBytes: 512 * mib}) // before the daemon
	h.startMPS(t)
	h.event(t, "enforcement-changed", "early")
	later := h.holderInside(t, p, device("share=early"))
	do(t, later, "start")
	h.wantLevels(t, "early", terms.EnforcedMPS)
	share := h.shareOf(t, api.ShareSpec{Name: "train", MemoryBytes: 512 * mib, ThreadsPercent: 40, Enforce: terms.EnforcedMPS})
	if share.MPS == nil || share.Enforcement != terms.EnforcedMPS {
		t.Fatalf("level %q: %+v", share.Enforcement, share.MPS)
	}
	inside := h.holderInside(t, p, device("share=train"))
	do(t, inside, "start")
	alloc(t, inside, 256*mib)
	refused(t, inside, outOfMemory, "alloc %d", 512*mib)
	h.wantLevels(t, "train", terms.EnforcedMPS)

	bare := h.holderInside(t, p, append(device("share=train"), "--env", "LD_PRELOAD=/run/divvy/driver/libcuda.so.1"))
	do(t, bare, "start")
	alloc(t, bare, 384*mib) // a limit for each process: that is MPS
	refused(t, bare, outOfMemory, "alloc %d", 256*mib)

	// One that leaves it is refused: the share demands MPS.
	astray := h.holderInside(t, p, device("share=train"), "/bin/busybox", "env", "CUDA_MPS_PIPE_DIRECTORY=/nowhere")
	if _, err := astray.Do("start"); err == nil {
		t.Error("a program that goes past MPS came under a share that demands it")
	}
	for _, holder := range []*bench.Holder{later, inside, bare, astray} {
		do(t, holder, "exit")
	}
}

// TestGroupBelowAShares: a program in a control group below a share's, as a container
// runtime makes it that is given the share's as parent, is held by the driver, also
// where the front is not.
func TestGroupBelowAShares(t *testing.T) {
	t.Parallel()
	tree := needGroups(t)
	h := newHost(t, hostOptions{generation: generations[2]})
	share := h.shareOf(t, api.ShareSpec{Name: "train", MemoryBytes: 512 * mib, Enforce: terms.EnforcedDriver})
	said := run(t, h.Unheld(), divvy(t), "run", "--agent", h.AgentSocket, "--share", "train", "--", "grep", "^0::", "/proc/self/cgroup")
	_, parent, ok := strings.Cut(strings.TrimSpace(said.stdout), "0::")
	if !ok || !strings.HasSuffix(parent, "/train") {
		t.Fatalf("%q %s", said.stdout, said.stderr)
	}
	group, err := tree.Make(parent + "/container")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		eventually(t, "the group below is empty", func() error { return tree.Remove(group) })
	})
	enter := "sh -c 'echo $$ >" + group + "/cgroup.procs && exec \"$0\"' %s"
	inside := h.wrapped(t, h.Environ(share.Socket), enter)
	if _, err := inside.Do("start"); err != nil {
		t.Fatal(h.event(t, "client-refused", "train").Message)
	}
	alloc(t, inside, 128*mib)
	h.wantLevels(t, "train", terms.EnforcedDriver)
	bare := h.wrapped(t, h.Unheld(), enter)
	do(t, bare, "start")
	refused(t, bare, outOfMemory, "alloc %d", 384*mib) // with what the other has
	alloc(t, bare, 64*mib)
	for _, holder := range []*bench.Holder{inside, bare} {
		holder.Kill()
	}
}

// TestPodmanMIG: a container is given a MIG device of a simulated card by its name,
// and the devices of a card that was divided anew are no more.
func TestPodmanMIG(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	d := &divided{host: newHost(t, hostOptions{cards: "2xH100-80GB"})}
	d.journal = d.directory + "/partition.journal"
	p := newPodman(t, folder)
	generate := func(want int) {
		t.Helper()
		got := run(t, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + d.directory, "DIVVY_LIBDIR=" + built(t, "lib", "divvy")},
			divvy(t), "cdi", "generate", "--agent", d.AgentSocket, "--class", "part", "--output", folder)
		if n := strings.Count(got.stdout, "divvy.dev/mig=MIG-"); got.code != 0 || n != want || strings.Count(got.stdout, "  ready") != want {
			t.Fatalf("code %d, want %d devices\n%s%s", got.code, want, got.stdout, got.stderr)
		}
	}
	generate(0)
	d.apply(t, d.goal(t, mix), 0)
	generate(4)
	devices := d.devices(t)
	for profile, c := range map[string]struct{ total, allocate uint64 }{"1g.10gb": {10 << 30, 16 << 30}, "3g.40gb": {40 << 30, 60 << 30}} {
		got := p.sees(t, device("mig="+devices[profile][0]), c.allocate)
		var total uint64
		if _, err := fmt.Sscanf(got[strings.Index(got, "total"):], "total %d", &total); err != nil || !strings.HasPrefix(got, "cards 1 ") || !strings.HasSuffix(got, fmt.Sprint("alloc ", outOfMemory)) {
			t.Errorf("%s: %q", profile, got)
		}
		if total > c.total || total < c.total*8/10 {
			t.Errorf("%s has %d bytes", profile, total)
		}
	}
	d.apply(t, d.goal(t, ""), 0)
	generate(0)
	if files, err := os.ReadDir(folder); err != nil || len(files) != 0 {
		t.Errorf("left in the folder: %v, %v", files, err)
	}
}
