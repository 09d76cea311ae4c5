// SPDX-License-Identifier: Apache-2.0

package amd_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/gpu/inventory"
	"github.com/divvy-gpu/divvy/internal/gpu/sysfs"
	"github.com/divvy-gpu/divvy/internal/mig"
	"github.com/divvy-gpu/divvy/internal/partition"
	"github.com/divvy-gpu/divvy/internal/partition/amd"
	"github.com/divvy-gpu/divvy/internal/partition/fakekernel"
	"github.com/divvy-gpu/divvy/internal/partition/kernel"
)

// box is eight MI300X in CPX/NPS4; one process computes on the first.
func box(t *testing.T) (*fakekernel.Kernel, *kernel.Kernel) {
	t.Helper()
	fake, err := fakekernel.Unpack("../../gpu/testdata/machines/mi300x-cpx.txtar", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	tree, err := sysfs.Open(fake.Folder)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tree.Close() })
	products, err := mig.Default()
	if err != nil {
		t.Fatal(err)
	}
	return fake, kernel.New(inventory.Sources{Tree: tree, Products: products}, fake, amd.Technique{})
}

func all() partition.Techniques { return partition.Techniques{amd.Technique{}} }

func plan(t *testing.T, k *kernel.Kernel, card int, want partition.AMD) partition.CardPlan {
	t.Helper()
	state, err := k.State(t.Context())
	if err != nil || len(state.Cards) != 8 {
		t.Fatalf("%d cards, %v", len(state.Cards), err)
	}
	return partition.Planner{Techniques: all(), Force: true}.Card(state.Cards[card], partition.Rule{AMD: &want})
}

type log struct{ records [][]byte }

func (l *log) Append(record []byte) error {
	l.records = append(l.records, record)
	return nil
}

// TestModes: a mode is set and read back; a second time there is nothing to do.
func TestModes(t *testing.T) {
	fake, k := box(t)
	p := plan(t, k, 1, partition.AMD{Compute: "QPX"})
	if p.Refused != "" || len(p.Steps) != 1 || p.Steps[0].String() != `write "QPX" to /sys/bus/pci/devices/0000:27:00.0/current_compute_partition` {
		t.Fatalf("%+v", p)
	}
	if err := partition.Apply(t.Context(), all(), k, &log{}, p); err != nil || fake.Writes != 1 {
		t.Fatalf("%v, %d writes", err, fake.Writes)
	}
	if p := plan(t, k, 1, partition.AMD{Compute: "QPX", Memory: "NPS4"}); p.Refused != "" || len(p.Steps) != 0 {
		t.Errorf("again: %+v", p)
	}
}

// TestRefusals: with the reason, and whatever is forced.
func TestRefusals(t *testing.T) {
	_, k := box(t)
	for _, c := range []struct {
		card    int
		want    partition.AMD
		refused string
		reason  string
	}{
		{0, partition.AMD{Compute: "QPX"}, partition.RefusedInUse, "it is used by 4711 (python3)"},
		{0, partition.AMD{Compute: "CPX"}, "", ""},
		{1, partition.AMD{Compute: "SPX"}, partition.RefusedImpossible, "SPX goes with NPS1, not with NPS4"},
		{1, partition.AMD{Compute: "TPX"}, partition.RefusedImpossible, "no compute mode TPX; it has SPX, DPX, QPX, CPX"},
		{1, partition.AMD{Memory: "NPS1"}, partition.RefusedImpossible, "modprobe -r amdgpu"},
		{1, partition.AMD{Memory: "NPS2"}, partition.RefusedImpossible, "no memory mode NPS2"},
	} {
		if p := plan(t, k, c.card, c.want); p.Refused != c.refused || !strings.Contains(p.Reason, c.reason) {
			t.Errorf("%+v: %q, %s", c.want, p.Refused, p.Reason)
		}
	}
}

// TestFaults: a driver that refuses, lies or dies leaves the old mode or the new.
func TestFaults(t *testing.T) {
	fake, k := box(t)
	p := plan(t, k, 1, partition.AMD{Compute: "DPX"})
	if p.Refused == "" {
		t.Fatalf("DPX does not go with NPS4: %+v", p)
	}
	p = plan(t, k, 1, partition.AMD{Compute: "QPX"})
	fake.Lies = true
	if err := partition.Apply(t.Context(), all(), k, &log{}, p); err == nil || !strings.Contains(err.Error(), "reported success") {
		t.Errorf("lies: %v", err)
	}
	fake.Lies = false
	for _, late := range []bool{false, true} {
		*fake = fakekernel.Kernel{Folder: fake.Folder, FailAt: 1, Late: late, Dead: true}
		kept := &log{}
		if err := partition.Apply(t.Context(), all(), k, kept, p); err == nil {
			t.Fatal("it did not die")
		}
		fake.FailAt = 0
		if _, err := partition.Recover(t.Context(), all(), k, kept, kept.records); err != nil {
			t.Fatal(err)
		}
		now, err := k.Observe(t.Context(), p.Before.ID())
		if err != nil || now.Layout() != p.Before.Layout() && now.Layout() != p.After.Layout() {
			t.Errorf("late %v: %v, %s", late, err, now.Layout())
		}
		if late {
			break
		}
	}
	if _, err := k.Observe(t.Context(), "0000:ff:00.0"); err == nil {
		t.Error("observed a card that is not there")
	}
	if err := k.Do(t.Context(), "", partition.Step{Action: partition.ActionWrite, File: "etc/passwd"}); err == nil || errors.Is(err, sysfs.ErrReadOnly) {
		t.Errorf("wrote outside: %v", err)
	}
}
