// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/event"
	terms "github.com/divvy-gpu/divvy/internal/share"
)

// Shares of a card's time are held while their programs run, and may change
// meanwhile: parts, priorities, pauses. How soon they act is for a bench and the
// scenarios of internal/arbiter; here it is that they do. Without Divvy the same
// two programs have half of the card each, whatever anybody declares.
func TestSharesOfTimeChangeLive(t *testing.T) {
	h := newHost(t, hostOptions{})
	truth := h.truth(t)
	for _, name := range []string{"a", "b"} {
		if _, err := h.client.CreateShare(t.Context(), api.ShareSpec{Name: name, MemoryBytes: 1 << 30, Policy: terms.Equal}); err != nil {
			t.Fatal(err)
		}
	}
	var pids [2]int
	for i, name := range []string{"a", "b"} {
		b := h.burnerIn(t, h.Environ(h.look(t, name).Socket), "--us", "1000")
		b.start()
		pids[i] = b.pid
	}
	change := func(name string, c api.ShareChange) {
		t.Helper()
		if _, err := h.client.ChangeShare(t.Context(), name, c); err != nil {
			t.Fatal(err)
		}
	}
	fixed, weighted, equal := terms.Fixed, terms.Weighted, terms.Equal
	yes, no := true, false
	number := func(n int) *int { return &n }
	// The part of a in what both had: a busy host leaves the card idle now and
	// then, but takes no sides.
	for _, step := range []struct {
		what  string
		do    func()
		least float64
		most  float64
	}{
		{"equal", func() {}, 45, 55},
		{"three to one", func() {
			change("a", api.ShareChange{Policy: &weighted, Weight: number(3)})
		}, 68, 80},
		{"a goes first", func() { change("a", api.ShareChange{Priority: number(5)}) }, 97, 100},
		{"a is fixed, and goes first", func() {
			change("a", api.ShareChange{Policy: &fixed, CoresPercent: number(20)})
		}, 15, 24},
		{"a is paused", func() { change("a", api.ShareChange{Paused: &yes}) }, 0, 0.5},
		{"b is paused, a fixed", func() {
			change("b", api.ShareChange{Paused: &yes})
			change("a", api.ShareChange{Paused: &no})
		}, 99, 100},
		{"as in the beginning", func() {
			change("a", api.ShareChange{Policy: &equal, Priority: number(0)})
			change("b", api.ShareChange{Paused: &no})
		}, 45, 55},
	} {
		step.do()
		eventually(t, step.what, func() error {
			had := h.busyOver(t, truth, 400*time.Millisecond)
			a, b := had[pids[0]], had[pids[1]]
			if part := 100 * a / max(a+b, 1); part < step.least || part > step.most {
				return fmt.Errorf("a had %.1f %% of what both had (%.1f %% and %.1f %% of the card)", part, a, b)
			}
			return nil
		}, h.simulator, h.agent)
	}
	for _, kind := range []event.Kind{event.ShareChanged, event.SharePaused, event.ShareResumed} {
		h.event(t, kind, "a")
	}
}

// A deleted share's programs are held to its part until they end.
func TestDeletedShareIsHeld(t *testing.T) {
	t.Parallel()
	h := newHost(t, hostOptions{})
	truth := h.truth(t)
	if _, err := h.client.CreateShare(t.Context(), api.ShareSpec{Name: "gone", MemoryBytes: 1 << 30, CoresPercent: 20}); err != nil {
		t.Fatal(err)
	}
	b := h.burnerIn(t, h.Environ(h.look(t, "gone").Socket), "--us", "1000")
	b.start()
	held := func() error {
		if had := h.busyOver(t, truth, 400*time.Millisecond)[b.pid]; had < 10 || had > 25 {
			return fmt.Errorf("it had %.1f %% of the card, not 20", had)
		}
		return nil
	}
	eventually(t, "20 %", held, h.simulator, h.agent)
	if err := h.client.DeleteShare(t.Context(), "gone", true); err != nil {
		t.Fatal(err)
	}
	if _, most := parts(h.watch(t, truth, b.pid, 2*time.Second)); most > 23 {
		t.Errorf("after its share was deleted it had %.1f %% of a second", most)
	}
}
