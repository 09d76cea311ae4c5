// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"testing"

	"github.com/divvy-gpu/divvy/internal/gpu/nvml"
	facts "github.com/divvy-gpu/divvy/internal/mig"
	"github.com/divvy-gpu/divvy/internal/partition"
	"github.com/divvy-gpu/divvy/internal/partition/machine"
	"github.com/divvy-gpu/divvy/internal/partition/mig"
)

// TestBookedInstances: MIG instances are made and removed one by one on a simulated
// card, as for bookings: programs compute in them, what is in use stays, and nobody
// else changes cards meanwhile.
func TestBookedInstances(t *testing.T) {
	d := newDivided(t, "H100-80GB")
	t.Setenv("DIVVY_SIMULATOR", d.SimulatorSocket)
	products, err := facts.Default()
	if err != nil {
		t.Fatal(err)
	}
	cards, err := machine.Open(machine.Config{Products: products, Library: func() (mig.Source, func() error, error) {
		source, err := nvml.Open(d.DriverDirectory)
		if err != nil {
			return nil, nil, err
		}
		return source, source.Close, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	j, err := machine.OpenJournal(d.journal)
	if err != nil {
		t.Fatal(err)
	}
	state, err := cards.State(t.Context())
	if err != nil || len(state.Cards) != 1 {
		t.Fatalf("%+v, %v", state, err)
	}
	id := state.Cards[0].ID()
	create := func(profile string, start int) mig.Instance {
		t.Helper()
		i, err := cards.Create(t.Context(), j, id, profile, start)
		if err != nil || len(i.Devices) != 1 {
			t.Fatalf("%s: %+v, %v", profile, i, err)
		}
		return i
	}
	one, two := create("3g.40gb", mig.Anywhere), create("1g.10gb", 0)
	if got := d.layout(t); got != "mig true 0:1g.10gb[1] 4:3g.40gb[3]" {
		t.Errorf("after two: %s", got)
	}
	if _, err := cards.Create(t.Context(), j, id, "7g.80gb", mig.Anywhere); !errors.Is(err, mig.ErrNoRoom) {
		t.Errorf("the whole card: %v", err)
	}
	if _, err := runExample(t, d.inside(two.Devices[0]), "vectoradd"); err != nil {
		t.Error(err)
	}
	d.apply(t, d.goal(t, seven), 4)

	user := d.holderIn(t, d.inside(one.Devices[0]))
	do(t, user, "start")
	if err := cards.Remove(t.Context(), j, id, one); !errors.Is(err, partition.ErrInUse) {
		t.Errorf("in use: %v", err)
	}
	user.Kill()
	eventually(t, "the instance is free", func() error { return cards.Remove(t.Context(), j, id, one) }, d.simulator)
	if err := cards.Remove(t.Context(), j, id, one); err != nil {
		t.Errorf("again: %v", err)
	}
	if got := d.layout(t); got != "mig true 0:1g.10gb[1]" {
		t.Errorf("after one is gone: %s", got)
	}
	if err := errors.Join(j.Close(), cards.Close()); err != nil {
		t.Error(err)
	}
	if got := d.apply(t, d.nothing(t), 0); got.stderr != "" {
		t.Errorf("something was left in the journal: %s", got.stderr)
	}
}
