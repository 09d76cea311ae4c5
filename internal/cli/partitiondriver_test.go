// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/gpu/nvml"
	"github.com/divvy-gpu/divvy/internal/mig"
	"github.com/divvy-gpu/divvy/internal/partition"
)

// fakeMIG is one H100 in memory.
type fakeMIG struct {
	mig  nvml.MIG
	next int
	sets int // changes that were asked for
}

func (f *fakeMIG) Cards() ([]gpu.Card, error) {
	return []gpu.Card{{UUID: "GPU-fake", Name: "NVIDIA H100 80GB HBM3"}}, nil
}

func (f *fakeMIG) MIG(string) (nvml.MIG, error) {
	m := f.mig
	m.Instances = slices.Clone(m.Instances)
	return m, nil
}

func (f *fakeMIG) SetMIG(_ string, on bool) error {
	f.sets++
	f.mig.On, f.mig.Pending = on, on
	return nil
}

func (f *fakeMIG) find(kind, start int) int {
	return slices.IndexFunc(f.mig.Instances, func(i nvml.Instance) bool { return i.Kind == kind && i.Start == start })
}

func (f *fakeMIG) CreateInstance(_ string, kind, start int) error {
	f.sets++
	f.next++
	f.mig.Instances = append(f.mig.Instances, nvml.Instance{Kind: kind, ID: f.next, Start: start, Compute: []int{}})
	return nil
}

func (f *fakeMIG) DestroyInstance(_ string, kind, start int, computeOnly bool) error {
	f.sets++
	n := f.find(kind, start)
	switch {
	case n < 0:
		return gpu.ErrNoCard
	case len(f.mig.Instances[n].Processes) > 0:
		return errors.New("in use")
	case computeOnly:
		f.mig.Instances[n].Compute = []int{}
	default:
		f.mig.Instances = slices.Delete(f.mig.Instances, n, n+1)
	}
	return nil
}

func (f *fakeMIG) CreateCompute(_ string, kind, start, size int) error {
	f.sets++
	n := f.find(kind, start)
	if n < 0 {
		return gpu.ErrNoCard
	}
	f.mig.Instances[n].Compute = append(slices.Clone(f.mig.Instances[n].Compute), size)
	return nil
}

// TestApplyGoals: from nothing to a mix, to seven small ones, which waits for
// the process that uses one; what is as wanted is not touched.
func TestApplyGoals(t *testing.T) {
	table, err := mig.Default()
	if err != nil {
		t.Fatal(err)
	}
	fake := &fakeMIG{}
	driver := &migDriver{source: fake, products: table, command: func(pid int) string { return fmt.Sprint("p", pid) }}
	path := filepath.Join(t.TempDir(), "deeper/journal")
	apply := func(devices map[string]int) (string, error) {
		lock, err := lockFile(path + ".lock") // as the command does
		if err != nil {
			return "", err
		}
		defer func() {
			if err := lock.Close(); err != nil {
				t.Error(err)
			}
		}()
		var out, complaints bytes.Buffer
		a := &app{stdout: &out, stderr: &complaints, getenv: func(string) string { return "" }}
		goal := partition.Goal{Schema: partition.SchemaGoal, Cards: []partition.Rule{{MIG: &partition.MIG{Enabled: true, Devices: devices}}}}
		err = a.applyGoal(t.Context(), driver, partition.Planner{Techniques: techniques(table)}, goal, path, false)
		return out.String(), err
	}
	layout := func() string {
		c, err := driver.Observe(t.Context(), "GPU-fake")
		if err != nil {
			t.Fatal(err)
		}
		return c.Layout()
	}
	mix := map[string]int{"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2}
	if out, err := apply(mix); err != nil || !strings.Contains(out, "done: 9 steps, verified") {
		t.Fatalf("%v\n%s", err, out)
	}
	before := layout()
	if before != "MIG on 00:2g.20gb[2] 02:1g.10gb[1] 03:1g.10gb[1] 04:3g.40gb[3]" {
		t.Errorf("the mix: %s", before)
	}
	asked := fake.sets
	if out, err := apply(mix); err != nil || !strings.Contains(out, "nothing to do") || fake.sets != asked {
		t.Errorf("again: %v, %d changes\n%s", err, fake.sets-asked, out)
	}
	used := fake.find(2, 4)
	fake.mig.Instances[used].Processes = []int{77}
	out, err := apply(map[string]int{"1g.10gb": 7})
	if exitCode(err) != exitNotAllowed || !strings.Contains(out, "3g.40gb at 4 is used by 77 (p77)") || layout() != before || fake.sets != asked {
		t.Errorf("in use: %v\n%s", err, out)
	}
	fake.mig.Instances[used].Processes = nil
	if out, err := apply(map[string]int{"1g.10gb": 7}); err != nil || strings.Count(layout(), "1g.10gb[1]") != 7 {
		t.Errorf("then: %v\n%s\n%s", err, out, layout())
	}

	// One apply at a time.
	lock, err := lockFile(path + ".lock")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := apply(mix); exitCode(err) != exitNotAllowed {
		t.Errorf("beside another: %v", err)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestInterruptedApply: what a dead apply left in the journal is ended first.
func TestInterruptedApply(t *testing.T) {
	table, err := mig.Default()
	if err != nil {
		t.Fatal(err)
	}
	fake := &fakeMIG{mig: nvml.MIG{On: true, Pending: true}}
	driver := &dyingDriver{migDriver: &migDriver{source: fake, products: table, command: func(int) string { return "" }}, left: 3}
	path := filepath.Join(t.TempDir(), "journal")
	goal := partition.Goal{Schema: partition.SchemaGoal, Cards: []partition.Rule{{MIG: &partition.MIG{Enabled: true, Devices: map[string]int{"1g.10gb": 3}}}}}
	a := &app{stdout: &bytes.Buffer{}, stderr: &bytes.Buffer{}, getenv: func(string) string { return "" }}
	planner := partition.Planner{Techniques: techniques(table)}
	if err := a.applyGoal(t.Context(), driver, planner, goal, path, false); err == nil || len(fake.mig.Instances) == 0 {
		t.Fatalf("it did not die: %v, %+v", err, fake.mig)
	}
	driver.left = 1000
	var notes bytes.Buffer
	a.stderr = &notes
	if err := a.applyGoal(t.Context(), driver, planner, partition.Goal{Schema: partition.SchemaGoal}, path, false); err != nil {
		t.Fatal(err)
	}
	if len(fake.mig.Instances) != 0 || !strings.Contains(notes.String(), "an interrupted apply on GPU-fake is undone") {
		t.Errorf("%+v\n%s", fake.mig, notes.String())
	}
}

// dyingDriver answers a few times and then no more.
type dyingDriver struct {
	*migDriver
	left int
}

func (d *dyingDriver) Observe(ctx context.Context, uuid string) (partition.Card, error) {
	if d.left <= 0 {
		return partition.Card{}, errors.New("dead")
	}
	return d.migDriver.Observe(ctx, uuid)
}

func (d *dyingDriver) Do(ctx context.Context, uuid string, s partition.Step) error {
	if d.left--; d.left < 0 {
		return errors.New("dead")
	}
	return d.migDriver.Do(ctx, uuid, s)
}
