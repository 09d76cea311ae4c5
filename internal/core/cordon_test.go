// SPDX-License-Identifier: Apache-2.0

package core

import (
	"strings"
	"testing"
	"time"
)

// played is a machine with a GPU, for lines of a scenario.
func played(t *testing.T) (w *world, play func(lines ...string)) {
	w = &world{t: t, out: &strings.Builder{}, fakePages: newFakePages(), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	play = func(lines ...string) {
		for _, line := range lines {
			w.do(strings.Fields(line))
			w.drain()
		}
	}
	play("card GPU-a A100 0000:07:00.0 40GiB", "health GPU-a ok")
	return w, play
}

// Of two faults, that counts whose rule asks for longer.
func TestLongerCordon(t *testing.T) {
	w, play := played(t)
	play("xid GPU-a 48 drain 10m")
	if !w.core.CordonedFor("GPU-a", 10*time.Minute) || w.core.CordonedFor("GPU-a", time.Hour) || w.core.CordonedFor("GPU-a", 0) {
		t.Error("10 minutes are not 10 minutes")
	}
	play("xid GPU-a 119 reset 1h", "xid GPU-a 48 drain 10m", "after 59m", "lift")
	if w.core.Cards()[0].Cordon == nil {
		t.Error("it was lifted by the milder rule")
	}
	play("after 1m", "lift")
	if w.core.Cards()[0].Cordon != nil {
		t.Error("it was not lifted")
	}
}

// The number of the last XID is known over restarts, of a GPU that is away meanwhile too.
func TestLastXID(t *testing.T) {
	w, play := played(t)
	if last := w.core.Cards()[0].LastXID; last != 0 {
		t.Errorf("before there was one: %d", last)
	}
	play("xid GPU-a 48 drain 10m", "xid GPU-a 13 application 0")
	saved := w.core.SavedCards()
	if len(saved) != 1 || saved[0].Last != 13 || w.core.Cards()[0].LastXID != 13 {
		t.Fatalf("%+v", saved)
	}
	next, _ := played(t)
	next.core.RecoverCards(saved)
	if last := next.core.Cards()[0].LastXID; last != 13 {
		t.Errorf("after a restart: %d", last)
	}
}
