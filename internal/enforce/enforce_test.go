// SPDX-License-Identifier: Apache-2.0

package enforce

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/cgroup"
)

// fakeLimits is a driver that limits control groups, or fails.
type fakeLimits struct {
	limits map[string]uint64
	broken error
	lies   bool // takes limits and keeps none
}

func (f *fakeLimits) LimitsMemory(string) error { return f.broken }

func (f *fakeLimits) SetMemoryLimit(_, group string, bytes uint64) error {
	if f.broken == nil && !f.lies {
		f.limits[filepath.Base(group)] = bytes
	}
	return f.broken
}

func (f *fakeLimits) MemoryLimit(_, group string) (uint64, uint64, error) {
	return f.limits[filepath.Base(group)], 0, f.broken
}

// tree needs control groups that the test may make.
func tree(t *testing.T) (cgroup.Tree, string) {
	t.Helper()
	found, err := cgroup.Find("/proc")
	if err != nil {
		t.Skipf("needs control groups of version 2: %v", err)
	}
	folder := fmt.Sprintf("divvy-test-%d", os.Getpid())
	path, err := found.Make(folder)
	if err != nil {
		t.Skipf("needs the right to make control groups: %v", err)
	}
	if err := found.Remove(path); err != nil {
		t.Fatal(err)
	}
	return found, folder
}

func TestDriver(t *testing.T) {
	groups, folder := tree(t)
	limits := &fakeLimits{limits: map[string]uint64{}}
	d := NewDriver(limits, "/proc", folder)
	s := Share{Name: "a", CardUUIDs: []string{"GPU-1"}, MemoryBytes: 1 << 30}
	path := groups.Path(folder + "/a")

	if err := d.Hold(t.Context(), Share{Name: "a"}); !errors.Is(err, ErrCannot) {
		t.Errorf("without a quota: %v", err)
	}
	limits.broken = errors.New("an old driver")
	if err := d.Hold(t.Context(), s); !errors.Is(err, ErrCannot) || groups.Has(path) {
		t.Errorf("a driver without limits: %v, group %v", err, groups.Has(path))
	}
	limits.broken = nil
	if err := d.Hold(t.Context(), s); err != nil || !groups.Has(path) || limits.limits["a"] != 1<<30 {
		t.Fatalf("hold: %v, %v", err, limits.limits)
	}
	if err := d.Holds(t.Context(), s); err != nil {
		t.Error(err)
	}
	if err := d.Admit(t.Context(), s, os.Getpid(), 0); !errors.Is(err, ErrOutside) {
		t.Errorf("a process outside: %v", err)
	}
	if err := d.Rest(s); err != nil || groups.Has(path) {
		t.Errorf("rest: %v", err)
	}
	if err := d.Hold(t.Context(), s); err != nil || !groups.Has(path) {
		t.Errorf("hold again: %v", err)
	}
	limits.limits["a"] = 0
	if err := d.Holds(t.Context(), s); !errors.Is(err, ErrCannot) {
		t.Errorf("a limit that is gone: %v", err)
	}
	if err := d.Drop(t.Context(), s); err != nil || groups.Has(path) || groups.Has(groups.Path(folder)) {
		t.Errorf("drop: %v", err)
	}
	if err := d.Drop(t.Context(), s); err != nil {
		t.Errorf("drop again: %v", err)
	}
}

// A driver that takes a limit and does not show it holds nothing.
func TestDriverThatForgets(t *testing.T) {
	_, folder := tree(t)
	d := NewDriver(&fakeLimits{limits: map[string]uint64{}, lies: true}, "/proc", folder)
	s := Share{Name: "a", CardUUIDs: []string{"GPU-1"}, MemoryBytes: 1 << 30}
	err := errors.Join(d.Hold(t.Context(), s), d.Holds(t.Context(), s))
	if !errors.Is(err, ErrCannot) {
		t.Error(err)
	}
	if err := d.Drop(t.Context(), s); err != nil {
		t.Error(err)
	}
}

// A daemon is asked once for all shares of its card, and whether it runs is looked at
// each time.
func TestMPSIsAskedOnceForAll(t *testing.T) {
	bin, err := os.MkdirTemp("/tmp", "divvy-mps-") // short enough for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(bin) })
	if out, err := exec.Command("go", "build", "-o", filepath.Join(bin, "nvidia-cuda-mps-control"), "../../test/fakemps").CombinedOutput(); err != nil {
		t.Fatalf("build the fake: %v: %s", err, out)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	m := NewMPS(filepath.Join(bin, "mps"))
	m.lasts = time.Hour
	daemon, err := m.daemon(Share{CardUUIDs: []string{"GPU-1"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(m.folder, 0o755); err != nil {
		t.Fatal(err)
	}
	start := func() {
		t.Helper()
		if err := daemon.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	start()
	t.Cleanup(func() { _ = daemon.Stop(context.Background(), true) })
	asked := func() int {
		t.Helper()
		log, err := os.ReadFile(filepath.Join(daemon.LogDirectory(), "control.log"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(log), "get_default_active_thread_percentage")
	}
	before := asked()
	for _, name := range []string{"a", "b", "c"} {
		if err := m.Hold(t.Context(), Share{Name: name, CardUUIDs: []string{"GPU-1"}, MemoryBytes: 1 << 30}); err != nil {
			t.Fatal(err)
		}
	}
	if !m.Serves(t.Context(), "GPU-1") || asked() != before+1 {
		t.Errorf("asked %d times", asked()-before)
	}
	if err := daemon.Stop(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if m.Serves(t.Context(), "GPU-1") {
		t.Error("a daemon that has ended serves")
	}
	start()
	before = asked()
	if !m.Serves(t.Context(), "GPU-1") || asked() != before+1 {
		t.Errorf("another daemon: asked %d times", asked()-before)
	}
	m.lasts = 0
	if !m.Serves(t.Context(), "GPU-1") || asked() != before+2 {
		t.Errorf("later: asked %d times", asked()-before)
	}
}

func TestMPSWithoutADaemon(t *testing.T) {
	m := NewMPS(t.TempDir())
	for _, s := range []Share{
		{Name: "a", CardUUIDs: []string{"GPU-1"}},
		{Name: "a", CardUUIDs: []string{"GPU-1"}, MemoryBytes: 1 << 30},
		{Name: "a", CardUUIDs: []string{"GPU-1"}, MemoryBytes: 1},
		{Name: "a", CardUUIDs: []string{"1"}, ThreadsPercent: 10},
	} {
		if err := m.Hold(t.Context(), s); !errors.Is(err, ErrCannot) {
			t.Errorf("%+v: %v", s, err)
		}
	}
}
