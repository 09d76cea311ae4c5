// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/divvy-gpu/divvy/internal/api"
	terms "github.com/divvy-gpu/divvy/internal/share"
	"github.com/divvy-gpu/divvy/internal/wire"
)

func TestQuotaOverTheWire(t *testing.T) {
	r := newRig(t)
	ctx := context.Background()
	share := r.share(api.ShareSpec{Name: "train", MemoryBytes: gib, CoresPercent: 30})
	if share.CardUUID != testUUID || share.Policy != terms.Fixed || share.Socket != r.cfg.ShareSocket("train") {
		t.Errorf("share %+v", share)
	}
	one := r.front("train")
	words := one.limits.Load().Read()
	if card := words.Card[0]; card.LimitBytes != gib || card.CoresPercent != 30 || card.ContextBytes != 64*mib || words.Clients != 1 {
		t.Errorf("limits %+v", words)
	}
	must(t, one.alloc(gib))
	if one.asked.Load() != 0 {
		t.Error("a process alone asked for leave")
	}
	if err := one.alloc(512); !errors.Is(err, errDenied) {
		t.Fatalf("over quota: %v", err)
	}
	e := r.awaitEvent("denied")
	if e.Share != "train" || e.PID != os.Getpid() || e.Bytes != 512 || e.Message != "cuMemAlloc of 1KiB denied: 0 free of 1GiB" {
		t.Errorf("event %+v", e)
	}
	two := r.front("train")
	if words := one.limits.Load().Read(); words.Clients != 2 {
		t.Errorf("%d clients on the page of the first, want 2", words.Clients)
	}
	one.free(300 * mib)
	must(t, two.alloc(300*mib))
	if err := one.alloc(1); !errors.Is(err, errDenied) {
		t.Errorf("over quota together: %v", err)
	}
	if words, stamp := one.limits.Load().Read(), one.limits.Load().StampNs(0); words.Card[0].UsedBytes != gib || stamp == 0 {
		t.Errorf("after a denial the page says %d used", words.Card[0].UsedBytes)
	}
	got, err := r.client.Share(ctx, "train")
	must(t, err)
	if got.UsedBytes != gib || got.Clients != 2 || got.PeakBytes != gib || got.Denials != 2 {
		t.Errorf("share %+v", got)
	}
	clients, err := r.client.Clients(ctx)
	must(t, err)
	if len(clients.Clients) != 2 || clients.Clients[1].UsedBytes != 300*mib || clients.Clients[0].Command == "" {
		t.Errorf("clients %+v", clients)
	}

	// They end; both connections belong to this process, which lives on with
	// nothing held by the driver.
	one.close()
	two.close()
	eventually(t, "both clients leave", func() bool {
		got, err := r.client.Share(ctx, "train")
		must(t, err)
		return got.Clients == 0 && got.UsedBytes == 0
	})
}

func TestMeasureAndProcesses(t *testing.T) {
	r := newRig(t)
	r.share(api.ShareSpec{Name: "s", MemoryBytes: gib})
	f := r.front("s")
	r.source.hold(os.Getpid(), 70*mib)
	answer, _, err := f.call(wire.Message{Type: wire.Measure})
	must(t, err)
	if answer.Type != wire.Measured || answer.Status != wire.StatusOK || answer.Amount != 70*mib {
		t.Errorf("measured %+v", answer)
	}
	must(t, f.alloc(100*mib))
	answer, _, err = f.call(wire.Message{Type: wire.Processes})
	must(t, err)
	if pids := answer.ProcessIDs(); answer.Type != wire.Processed || answer.Amount != 1 || len(pids) != 1 || pids[0] != uint32(os.Getpid()) || answer.Bytes[0] != 100*mib {
		t.Errorf("processes %+v", answer)
	}
	answer, _, err = f.call(wire.Message{Type: wire.Processes, Amount: ^uint64(0)})
	must(t, err)
	if len(answer.ProcessIDs()) != 0 {
		t.Errorf("processes past the end: %+v", answer)
	}
	answer, _, err = f.call(wire.Message{Type: wire.Sync})
	must(t, err)
	if words, stamp := f.limits.Load().Read(), f.limits.Load().StampNs(0); answer.Type != wire.Synced || words.Card[0].UsedBytes != 100*mib || stamp == 0 {
		t.Errorf("synced %+v, page %+v", answer, words.Card[0])
	}
	r.source.fail(errors.New("driver hangs"))
	answer, _, err = f.call(wire.Message{Type: wire.Measure})
	must(t, err)
	if answer.Status != wire.StatusUnknown {
		t.Errorf("measured without a driver: %+v", answer)
	}
}
