// SPDX-License-Identifier: Apache-2.0

package silicon

import (
	"errors"
	"testing"
)

// Two devices in one memory, one in another: what one takes the other lacks, and
// the third knows nothing of it.
func TestSlots(t *testing.T) {
	cards, err := ParseSpec("H100-80GB,L4", 0)
	if err != nil {
		t.Fatal(err)
	}
	m := New(cards, DefaultLimits())
	first := m.AddSlots(3)
	if first != 2 || m.Cards() != 2 || m.Slots() != 5 {
		t.Fatalf("first slot %d, %d GPUs, %d slots", first, m.Cards(), m.Slots())
	}
	id, err := m.Attach(7, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Charge(id, first, Linear, 512, 1); !errors.Is(err, ErrNotFound) {
		t.Errorf("charge a closed slot: %v", err)
	}
	device := Card{Model: Model{TotalMiB: 100}, Index: first}
	for slot, beside := range []int{-1, first, -1} {
		if err := m.OpenSlot(first+slot, device, beside); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.OpenSlot(first, device, -1); !errors.Is(err, ErrInvalid) {
		t.Errorf("open a slot twice: %v", err)
	}
	if err := m.OpenSlot(0, device, -1); !errors.Is(err, ErrInvalid) {
		t.Errorf("open a GPU: %v", err)
	}
	if err := m.Charge(id, first, Linear, 60*MiB, 2); err != nil {
		t.Fatal(err)
	}
	if err := m.Charge(id, first+1, Linear, 60*MiB, 2); !errors.Is(err, ErrNoRoom) {
		t.Errorf("more than both have: %v", err)
	}
	if err := m.Charge(id, first+2, Linear, 60*MiB, 2); err != nil {
		t.Errorf("the other memory: %v", err)
	}
	if got := m.FreeBytes(first + 1); got != 40*MiB {
		t.Errorf("%d bytes free beside", got)
	}
	if err := m.CloseSlot(first); !errors.Is(err, ErrInUse) {
		t.Errorf("close a slot with bytes: %v", err)
	}
	if err := m.Use(id, first+1); err != nil {
		t.Fatal(err)
	}
	if err := m.CloseSlot(first + 1); !errors.Is(err, ErrInUse) {
		t.Errorf("close a slot that is open in a process: %v", err)
	}
	if list, _ := m.Processes(-1, 0, 10); len(list) != 3 {
		t.Errorf("listed %+v", list)
	}
	m.End(id, 3)
	for slot := first; slot < m.Slots(); slot++ {
		if err := m.CloseSlot(slot); err != nil {
			t.Errorf("close slot %d: %v", slot, err)
		}
	}
	if err := m.CloseSlot(first); !errors.Is(err, ErrNotFound) {
		t.Errorf("close a slot twice: %v", err)
	}
}

// A divided card is there to look at, and takes nothing.
func TestDivide(t *testing.T) {
	cards, _ := ParseSpec("A100-40GB", 0)
	m := New(cards, DefaultLimits())
	id, err := m.Attach(7, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Charge(id, 0, Context, 64*MiB, 1); err != nil {
		t.Fatal(err)
	}
	if err := m.Divide(0, true); !errors.Is(err, ErrInUse) {
		t.Errorf("divide a GPU in use: %v", err)
	}
	if err := m.Release(id, 0, Context, 64*MiB); err != nil {
		t.Fatal(err)
	}
	if err := m.Divide(0, true); err != nil {
		t.Fatal(err)
	}
	if err := m.Charge(id, 0, Context, 64*MiB, 1); !errors.Is(err, ErrNotFound) {
		t.Errorf("charge a divided GPU: %v", err)
	}
	if card, used, _, err := m.Card(0); err != nil || used != 0 || card.TotalMiB != 40960 {
		t.Errorf("a divided GPU: %+v, %d, %v", card, used, err)
	}
	if err := m.Divide(0, false); err != nil {
		t.Fatal(err)
	}
	if err := m.Charge(id, 0, Context, 64*MiB, 1); err != nil {
		t.Errorf("a whole GPU again: %v", err)
	}
}
