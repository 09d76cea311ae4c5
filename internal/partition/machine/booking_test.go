// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/partition"
	"github.com/divvy-gpu/divvy/internal/partition/fakekernel"
	"github.com/divvy-gpu/divvy/internal/partition/machine"
	"github.com/divvy-gpu/divvy/internal/partition/mig"
	"github.com/divvy-gpu/divvy/internal/partition/vfio"
)

// h100 is the address of a card of the machine mixed.
const h100 = "0000:1a:00.0"

// TestBooking: instances are made and destroyed one by one, each beside what there is,
// and what is in the way is said.
func TestBooking(t *testing.T) {
	driver, open := &fakekernel.Driver{Address: h100}, 0
	m, _ := host(t, "mixed", driver, &open)
	path := filepath.Join(t.TempDir(), "deeper/journal")
	j := openJournal(t, path)
	if _, err := machine.OpenJournal(path); !errors.Is(err, machine.ErrBusy) {
		t.Errorf("beside another: %v", err)
	}
	layout := func(want string) {
		t.Helper()
		c, err := m.Observe(t.Context(), h100)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Divided[partition.TechniqueMIG].Layout(c); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	refused := func(why error, profile string) {
		t.Helper()
		before := driver.Changes
		if _, err := m.Create(t.Context(), j, h100, profile, mig.Anywhere); !errors.Is(err, why) || driver.Changes != before {
			t.Errorf("%s: %v, %d changes", profile, err, driver.Changes-before)
		}
	}

	// The mode is switched on for the first, not while somebody has the card.
	m.Shares = func(_ context.Context, cards []partition.Card) error {
		cards[0].Shares = []string{"train"}
		return nil
	}
	refused(partition.ErrInUse, "3g.40gb")
	m.Shares = nil
	driver.MIGNow.Processes = []int{os.Getpid()}
	refused(partition.ErrInUse, "3g.40gb")
	driver.MIGNow.Processes = nil
	var made []mig.Instance
	for _, profile := range []string{"3g.40gb", "1g.10gb", "2g.20gb"} {
		i, err := m.Create(t.Context(), j, h100, profile, mig.Anywhere)
		if err != nil || i.Profile != profile || i.ID < 1 {
			t.Fatalf("%s: %+v, %v", profile, i, err)
		}
		made = append(made, i)
	}
	layout("MIG on 00:2g.20gb[2] 03:1g.10gb[1] 04:3g.40gb[3]")
	refused(mig.ErrNoRoom, "3g.40gb")
	refused(mig.ErrNoRoom, "7g.80gb")
	refused(partition.ErrImpossible, "7g.79gb")
	for start, why := range map[int]error{0: mig.ErrNoRoom, 7: partition.ErrImpossible} {
		if _, err := m.Create(t.Context(), j, h100, "1g.10gb", start); !errors.Is(err, why) {
			t.Errorf("at %d: %v", start, err)
		}
	}

	// What is in use stays; what is gone is no error, and nothing else goes for it.
	driver.MIGNow.Instances[driver.Find(2, 4)].Processes = []int{os.Getpid()}
	if err := m.Remove(t.Context(), j, h100, made[0]); !errors.Is(err, partition.ErrInUse) {
		t.Errorf("in use: %v", err)
	}
	for range 2 {
		if err := m.Remove(t.Context(), j, h100, made[1]); err != nil {
			t.Error(err)
		}
	}
	if _, err := m.Create(t.Context(), j, h100, "1g.10gb", 2); err != nil {
		t.Error(err)
	}
	layout("MIG on 00:2g.20gb[2] 02:1g.10gb[1] 04:3g.40gb[3]")

	if _, err := m.Create(t.Context(), j, "0000:ff:00.0", "1g.10gb", mig.Anywhere); !errors.Is(err, gpu.ErrNoCard) {
		t.Errorf("no GPU: %v", err)
	}
	bare := fakekernel.Open(t, "mixed", vfio.New)
	if _, err := bare.Create(t.Context(), j, h100, "1g.10gb", mig.Anywhere); !errors.Is(err, partition.ErrImpossible) {
		t.Errorf("without a driver: %v", err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestBookingDies: wherever the driver dies, the next booking finds the card as it was
// or with the instance.
func TestBookingDies(t *testing.T) {
	for left := 1; ; left++ {
		driver, open := &fakekernel.Driver{Address: h100}, 0
		m, _ := host(t, "mixed", driver, &open)
		path := filepath.Join(t.TempDir(), "journal")
		j := openJournal(t, path)
		if _, err := m.Create(t.Context(), j, h100, "1g.10gb", mig.Anywhere); err != nil {
			t.Fatal(err)
		}
		driver.Left = left
		_, err := m.Create(t.Context(), j, h100, "3g.40gb", mig.Anywhere)
		if left%2 == 0 { // by the journal that is open as well as by what is on disk
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
			j = openJournal(t, path)
		}
		if err == nil {
			if left < 3 {
				t.Errorf("an instance with its compute instance took %d changes", left-1)
			}
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
			return
		}
		driver.Dead, driver.Left = false, 0
		if _, err := m.Create(t.Context(), j, h100, "2g.20gb", mig.Anywhere); err != nil {
			t.Fatalf("after %d changes: %v", left, err)
		}
		if n := len(driver.MIGNow.Instances); n != 2 && n != 3 || driver.Find(0, 6) < 0 {
			t.Errorf("after %d changes: %+v", left, driver.MIGNow.Instances)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
