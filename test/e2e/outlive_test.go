// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/divvy-gpu/divvy/internal/api"
)

// A killed client's memory goes back to the share, and not before the driver
// has released it.
func TestKilledClient(t *testing.T) {
	t.Parallel()
	const quota = 512 * mib
	h := newHost(t, hostOptions{})
	share := h.share(t, "killed", quota)
	h.resetPeak(t)
	heir := h.holder(t, share)
	do(t, heir, "start")
	for range 5 {
		victim := h.holder(t, share)
		do(t, victim, "start")
		alloc(t, victim, 300*mib)
		refused(t, heir, outOfMemory, "alloc %d", 300*mib)
		victim.Kill()
		address, err := strconv.ParseUint(do(t, heir, "grab %d", 300*mib)[0], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		do(t, heir, "free %d", address)
	}
	if peak := h.peak(t); peak > quota {
		t.Errorf("the driver saw %d bytes in use, quota %d", peak, quota)
	}
}

// A forked child keeps what the driver gave its dead parent: the memory stays
// booked, an event names the holder, and it is free when the child ends.
func TestForkedChildOutlivesParent(t *testing.T) {
	t.Parallel()
	const quota = 512 * mib
	h := newHost(t, hostOptions{})
	share := h.share(t, "orphan", quota)
	h.resetPeak(t)
	heir := h.holder(t, share)
	do(t, heir, "start")
	parent := h.holder(t, share)
	do(t, parent, "start")
	alloc(t, parent, 300*mib)
	number, err := parent.Number("fork")
	if err != nil {
		t.Fatal(err)
	}
	child := int(number)
	t.Cleanup(func() { _ = syscall.Kill(child, syscall.SIGKILL) })
	parent.Kill()

	var held []api.Event
	eventually(t, "an event names the holder", func() error {
		events, err := h.client.Events(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		held = slices.DeleteFunc(events.Events, func(e api.Event) bool {
			return e.Share != share.Name || !strings.Contains(e.Message, strconv.Itoa(child))
		})
		if len(held) == 0 {
			return fmt.Errorf("no event names process %d", child)
		}
		return nil
	})
	t.Logf("event: %s: %s", held[0].Kind, held[0].Message)
	refused(t, heir, outOfMemory, "alloc %d", 300*mib)
	if used := h.look(t, share.Name).UsedBytes; used != 2*contextBytes+300*mib {
		t.Errorf("%d bytes booked while the child lives, want %d", used, 2*contextBytes+300*mib)
	}
	if err := syscall.Kill(child, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	do(t, heir, "grab %d", 300*mib)
	if peak := h.peak(t); peak > quota {
		t.Errorf("the driver saw %d bytes in use, quota %d", peak, quota)
	}
}

// Two shares on a card do not feel each other: one is at its limit, the other
// has all its own.
func TestSharesAreApart(t *testing.T) {
	t.Parallel()
	h := newHost(t, hostOptions{})
	full, roomy := h.share(t, "full", 256*mib), h.share(t, "roomy", 512*mib)
	a, b := h.holder(t, full), h.holder(t, roomy)
	do(t, a, "start")
	do(t, b, "start")
	alloc(t, a, 192*mib)
	refused(t, a, outOfMemory, "alloc %d", 512)
	if free, total := room(t, a); free != 0 || total != 256*mib {
		t.Errorf("the full share shows %d of %d free", free, total)
	}
	if free, total := room(t, b); free != 448*mib || total != 512*mib {
		t.Errorf("the roomy share shows %d of %d free", free, total)
	}
	alloc(t, b, 448*mib)
	refused(t, b, outOfMemory, "alloc %d", 512)
}

// All processes of a share together are held to it, and each sees what the
// others use.
func TestProcessesOfAShareAddUp(t *testing.T) {
	t.Parallel()
	const quota = 512 * mib
	h := newHost(t, hostOptions{})
	share := h.share(t, "together", quota)
	h.resetPeak(t)
	a, b := h.holder(t, share), h.holder(t, share)
	do(t, a, "start")
	do(t, b, "start")
	alloc(t, a, 200*mib)
	eventually(t, "the other process sees it", func() error {
		if free, _ := room(t, b); free != quota-2*contextBytes-200*mib {
			return fmt.Errorf("%d bytes free", free)
		}
		return nil
	})
	refused(t, b, outOfMemory, "alloc %d", quota-2*contextBytes-200*mib+512)
	alloc(t, b, quota-2*contextBytes-200*mib)
	refused(t, a, outOfMemory, "alloc 1")
	if peak := h.peak(t); peak != quota {
		t.Errorf("the driver saw %d bytes in use, want exactly the quota %d", peak, quota)
	}
}

// A share that grows has the room at once; one that shrinks below its use
// grants nothing until it is under its limit again, and keeps what it has.
func TestLiveChange(t *testing.T) {
	t.Parallel()
	h := newHost(t, hostOptions{})
	share := h.share(t, "changing", 256*mib)
	holder := h.holder(t, share)
	do(t, holder, "start")
	first := alloc(t, holder, 192*mib)
	refused(t, holder, outOfMemory, "alloc %d", 128*mib)
	set := func(bytes uint64) {
		t.Helper()
		if _, err := h.client.ChangeShare(t.Context(), share.Name, api.ShareChange{MemoryBytes: &bytes}); err != nil {
			t.Fatal(err)
		}
	}
	set(512 * mib)
	second := alloc(t, holder, 128*mib)
	if free, total := room(t, holder); total != 512*mib || free != 128*mib {
		t.Errorf("grown: %d of %d free", free, total)
	}
	set(256 * mib)
	if free, total := room(t, holder); total != 256*mib || free != 0 {
		t.Errorf("shrunk below its use: %d of %d free", free, total)
	}
	refused(t, holder, outOfMemory, "alloc 512")
	do(t, holder, "write %d %d", second, mib)
	do(t, holder, "check %d %d", second, mib)
	do(t, holder, "free %d", first) // 192 of 256 are used now
	alloc(t, holder, 64*mib)
	refused(t, holder, outOfMemory, "alloc 512")
}

// A share without a quota sees the card as it is and may use what is not
// promised to others.
func TestShareWithoutQuota(t *testing.T) {
	t.Parallel()
	h := newHost(t, hostOptions{cards: "T4"})
	devices, err := h.client.Devices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	card := devices.Cards[0].MemoryBytes
	promised := h.share(t, "promised", 2048*mib)
	holder := h.holder(t, h.share(t, "open", 0))
	do(t, holder, "start")
	bare := h.holderIn(t, h.Unheld())
	do(t, bare, "start")
	_, total := room(t, bare)
	if _, got := room(t, holder); got != total || total == 0 {
		t.Errorf("total of %d bytes, the bare card has %d", got, total)
	}
	bare.Kill()
	refused(t, holder, outOfMemory, "alloc %d", card-2048*mib)
	alloc(t, holder, card-2048*mib-1024*mib)
	other := h.holder(t, promised)
	do(t, other, "start")
	alloc(t, other, 2048*mib-contextBytes)
}
