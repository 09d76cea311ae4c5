// SPDX-License-Identifier: Apache-2.0

package silicon

import (
	"errors"
	"testing"
)

func TestLimits(t *testing.T) {
	m := New([]Card{{Model: Model{TotalMiB: 1000}}}, DefaultLimits())
	charge := func(id ProcessID, bytes uint64, want error) {
		t.Helper()
		if err := m.Charge(id, 0, Linear, bytes*MiB, 0); !errors.Is(err, want) {
			t.Errorf("process %d, %d MiB: %v, want %v", id, bytes, err, want)
		}
	}
	var ids [3]ProcessID
	for i, group := range []string{"/g", "/g/below", "/gg"} {
		id, err := m.Attach(i+1, 0)
		if err != nil {
			t.Fatal(err)
		}
		m.Place(id, group)
		ids[i] = id
	}
	if err := m.SetLimit(0, "/g", Limit{SoftBytes: 10 * MiB, HardBytes: 100 * MiB}); err != nil {
		t.Fatal(err)
	}
	charge(ids[0], 60, nil)
	charge(ids[1], 60, ErrNoRoom) // together with the first
	charge(ids[1], 40, nil)
	charge(ids[2], 300, nil) // another group whose name only begins alike
	if l, held := m.LimitOf(0, "/g"); l.HardBytes != 100*MiB || held != 100*MiB {
		t.Errorf("%+v, %d held", l, held)
	}
	if free := m.FreeFor(ids[0], 0); free != 0 {
		t.Errorf("%d bytes free", free)
	}
	if total, all := m.TotalFor(ids[0], 0), m.TotalFor(ids[2], 0); total != 100*MiB || all != NoLimit().HardBytes {
		t.Errorf("totals %d and %d", total, all)
	}
	// A lower limit takes nothing away, and gives nothing until it is kept.
	if err := m.SetLimit(0, "/g", Limit{HardBytes: 50 * MiB}); err != nil {
		t.Fatal(err)
	}
	charge(ids[0], 1, ErrNoRoom)
	if err := m.SetLimit(0, "/g", NoLimit()); err != nil {
		t.Fatal(err)
	}
	if m.HasLimits() {
		t.Error("a limit that is gone counts")
	}
	if err := m.Cap(ids[0], 0, 70*MiB); err != nil {
		t.Fatal(err)
	}
	charge(ids[0], 20, ErrNoRoom)
	charge(ids[0], 10, nil)
	charge(ids[1], 100, nil) // a cap is one process's
	if err := m.SetLimit(1, "/g", Limit{}); !errors.Is(err, ErrNotFound) {
		t.Errorf("a GPU that is not there: %v", err)
	}
	if err := m.SetLimit(0, "/g", Limit{SoftBytes: 2, HardBytes: 1}); !errors.Is(err, ErrInvalid) {
		t.Errorf("a soft limit over the hard one: %v", err)
	}
}
