// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/event"
)

// Memory that no ledger knows is told within a look, without anybody's asking, with the
// process, its user and its share, and cannot be promised to others: whether a program
// takes it by the driver alone, or is under a share and reaches past the front. The
// control: one that takes as much of its quota is told of by nobody, and a share fits
// as far as the promises go.
func TestPastTheLedger(t *testing.T) {
	t.Parallel()
	const most = 20 << 30
	h := newHost(t, hostOptions{})
	told := func(pid int, since time.Time, within time.Duration) api.Event {
		t.Helper()
		var found api.Event
		eventually(t, fmt.Sprintf("process %d is told of", pid), func() error {
			for _, e := range h.events(t, event.UnledgeredMemory, "") {
				if e.PID == pid && e.Time.After(since) {
					found = e
					return nil
				}
			}
			return errors.New("it is not")
		})
		if took := found.Time.Sub(since); took > within {
			t.Errorf("told after %v, want %v", took, within)
		}
		if found.UID == nil || *found.UID != os.Getuid() || found.Bytes < most {
			t.Errorf("told %+v", found)
		}
		return found
	}
	room := func() uint64 {
		t.Helper()
		devices, err := h.client.Devices(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return devices.Cards[0].FreeToBookBytes
	}
	wide := func(bytes uint64) error {
		_, err := h.client.CreateShare(t.Context(), api.ShareSpec{Name: "wide", MemoryBytes: bytes})
		if err == nil {
			err = h.client.DeleteShare(t.Context(), "wide", false)
		}
		return err
	}
	all := room()

	// Nobody shares the GPU: every five seconds is looked.
	bare := h.holderIn(t, h.Unheld())
	since := time.Now()
	do(t, bare, "start")
	alloc(t, bare, most)
	if e := told(bare.PID, since, 7*time.Second); e.Share != "" {
		t.Errorf("told %+v", e)
	}
	if got := room(); got != all-most-contextBytes {
		t.Errorf("%d to promise of %d", got, all)
	}
	if err := wide(all - most); err == nil {
		t.Error("what is held was promised")
	}
	bare.Kill()
	eventually(t, "the memory is back", func() error { return wide(all) })

	// With shares every second. What a share was promised its programs may hold.
	share, honest := h.share(t, "past", 1<<30), h.share(t, "honest", most+contextBytes)
	control := h.holder(t, honest)
	do(t, control, "start")
	alloc(t, control, most)
	held := h.holder(t, share)
	do(t, held, "start")
	since = time.Now()
	do(t, held, "past %d", most)
	if e := told(held.PID, since, 3*time.Second); e.Share != "past" || e.Bytes != most {
		t.Errorf("told %+v", e)
	}
	promised := share.LimitBytes + honest.LimitBytes
	if got, want := room(), all-promised-(most+contextBytes-share.LimitBytes); got != want {
		t.Errorf("%d to promise, want %d", got, want)
	}
	if err := wide(all - promised - most/2); err == nil {
		t.Error("what is held was promised")
	}
	for _, e := range h.events(t, event.UnledgeredMemory, "") {
		if e.PID == control.PID {
			t.Errorf("control: told %+v", e)
		}
	}
	held.Kill()
	eventually(t, "the memory is back", func() error { return wide(all - promised) })
}
