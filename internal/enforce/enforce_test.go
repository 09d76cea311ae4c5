// SPDX-License-Identifier: Apache-2.0

package enforce

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

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
	s := Share{Name: "a", CardUUID: "GPU-1", MemoryBytes: 1 << 30}
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
	s := Share{Name: "a", CardUUID: "GPU-1", MemoryBytes: 1 << 30}
	err := errors.Join(d.Hold(t.Context(), s), d.Holds(t.Context(), s))
	if !errors.Is(err, ErrCannot) {
		t.Error(err)
	}
	if err := d.Drop(t.Context(), s); err != nil {
		t.Error(err)
	}
}

func TestMPSWithoutADaemon(t *testing.T) {
	m := NewMPS(t.TempDir())
	for _, s := range []Share{
		{Name: "a", CardUUID: "GPU-1"},
		{Name: "a", CardUUID: "GPU-1", MemoryBytes: 1 << 30},
		{Name: "a", CardUUID: "GPU-1", MemoryBytes: 1},
		{Name: "a", CardUUID: "1", ThreadsPercent: 10},
	} {
		if err := m.Hold(t.Context(), s); !errors.Is(err, ErrCannot) {
			t.Errorf("%+v: %v", s, err)
		}
	}
}
