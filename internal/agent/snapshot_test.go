// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/client"
	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/history"
	"github.com/divvy-gpu/divvy/internal/metrics"
	"github.com/divvy-gpu/divvy/internal/share"
)

func (r *rig) snapshot() api.Snapshot {
	r.t.Helper()
	s, err := r.client.Snapshot(context.Background())
	must(r.t, err)
	return s
}

// fresh is a snapshot that was begun after the call.
func (r *rig) fresh() api.Snapshot {
	r.t.Helper()
	since := time.Now()
	var s api.Snapshot
	eventually(r.t, "a snapshot", func() bool { s = r.snapshot(); return s.Time.After(since) })
	return s
}

// Three sharers of a GPU have three figures, each of its own processes; the GPU's is their
// sum; what goes is kept in sums; and all is what the other documents say.
func TestSnapshot(t *testing.T) {
	r := newRig(t)
	r.source.mutex.Lock() // the sampler may be at it
	r.source.telemetry = gpu.Telemetry{BusyPercent: gpu.Known(97.0), Slowed: gpu.Known(gpu.Slowed{Thermal: true})}
	r.source.mutex.Unlock()
	ctx := context.Background()
	me, err := user.Current()
	must(t, err)
	var fronts []*front
	for i, name := range []string{"a", "b", ""} {
		s := r.share(api.ShareSpec{Name: name, MemoryBytes: gib, Ephemeral: name == "", Tenant: map[string]string{"a": "x"}[name]})
		f := r.front(s.Name)
		must(t, f.alloc(uint64(i+1)*mib))
		f.work(time.Duration(i+1)*time.Second, 0)
		fronts = append(fronts, f)
	}
	if err := fronts[0].alloc(2 * gib); !errors.Is(err, errDenied) {
		t.Fatal(err)
	}
	r.source.hold(os.Getpid(), 6*mib)
	r.source.hold(1, 5*mib) // an unaccounted process
	r.do(func(l *loop) {
		l.fault(gpu.Fault{UUID: testUUID, XID: 31}, 0, "")
		l.fault(gpu.Fault{UUID: testUUID, XID: 31}, 0, "")
	})
	eventually(t, "the unaccounted process is seen", func() bool { return len(r.fresh().Cards[0].Unaccounted) == 1 })
	s := r.fresh()
	if s.Schema != api.SchemaSnapshot || s.Number == 0 || s.Life == "" || !s.Simulated || len(s.Shares) != 3 || len(s.Cards) != 1 {
		t.Fatalf("%+v", s)
	}
	var sum uint64
	list, err := r.client.Shares(ctx)
	must(t, err)
	for i, share := range s.Shares {
		slot := share.Cards[0]
		want, bytes := uint64(i+1)*1e9, uint64(i+1)*mib
		if *slot.CardTimeNs != want || slot.UsedBytes != bytes || slot.PeakBytes != bytes || slot.LimitBytes != gib || len(share.Processes) != 1 ||
			share.Processes[0].Cards[0].CardTimeNs != want || share.Processes[0].Cards[0].UsedBytes != bytes {
			t.Errorf("%+v", share)
		}
		if listed := list.Shares[i]; listed.CardTimeNs != *slot.CardTimeNs || listed.UsedBytes != slot.UsedBytes || listed.PeakBytes != slot.PeakBytes {
			t.Errorf("%+v, the list says %+v", slot, listed)
		}
		if tenant := map[int]string{0: "x", 1: me.Username, 2: me.Username}[i]; share.Tenant != tenant || share.Unnamed != (i == 2) {
			t.Errorf("tenant %q, unnamed %v", share.Tenant, share.Unnamed)
		}
		sum += *slot.CardTimeNs
	}
	if got := s.Shares[0].Cards[0].Denials["over-quota"]; got != 1 {
		t.Errorf("%d denials", got)
	}
	card := s.Cards[0]
	if card.ShareTimeNs != sum || *card.Instruments.BusyPercent != 97 || card.Instruments.PowerWatts != nil || card.Instruments.SlowedFor == nil ||
		fmt.Sprint(card.XIDs) != "[{31 2}]" || !card.Answers || s.Agent.Clients != 3 || s.Agent.Events["card-fault"] != 2 {
		t.Errorf("%+v %+v", card, s.Agent)
	}
	if c := card.Unaccounted[0]; c.PID != 1 || c.Bytes != 5*mib || c.Command == "" || c.UID == nil {
		t.Errorf("unaccounted process %+v", c)
	}
	// A scrape shows the same snapshot to the digit.
	body, kind, err := r.client.Metrics(ctx, "")
	must(t, err)
	raw, err := io.ReadAll(body)
	must(t, errors.Join(err, body.Close()))
	for _, want := range []string{
		`divvy_share_card_seconds_total{UUID="` + testUUID + `",share="a",tenant="x"} 1`,
		`divvy_share_card_seconds_total{UUID="` + testUUID + `",share="b",tenant="` + me.Username + `"} 2`,
		`divvy_share_card_seconds_total{UUID="` + testUUID + `",share="-",tenant="` + me.Username + `"} 3`,
		`divvy_card_share_seconds_total{UUID="` + testUUID + `"} 6`,
		`divvy_card_xid_errors_total{UUID="` + testUUID + `",xid="31"} 2`,
		`divvy_share_denials_total{UUID="` + testUUID + `",reason="over-quota",share="a",tenant="x"} 1`,
	} {
		if !strings.Contains(string(raw), want+"\n") {
			t.Errorf("%s lacks %s", kind, want)
		}
	}
	if !strings.Contains(string(raw), "go_goroutines ") || strings.Contains(string(raw), `share="share-`) {
		t.Errorf("%s", raw)
	}
	// What is gone is kept, by GPU and tenant, and is still of the GPU's.
	for _, f := range fronts {
		f.close()
	}
	r.source.hold(os.Getpid(), 0)
	must(t, r.client.DeleteShare(ctx, "a", true))
	eventually(t, "two shares are gone", func() bool { return len(r.fresh().Shares) == 1 })
	s = r.fresh()
	if len(s.Gone) != 2 || s.Cards[0].ShareTimeNs != sum {
		t.Fatalf("%+v %d", s.Gone, s.Cards[0].ShareTimeNs)
	}
	for _, gone := range s.Gone {
		want := map[bool]uint64{false: 1e9, true: 3e9}[gone.Unnamed]
		if gone.CardTimeNs != want || gone.Unnamed == (gone.Tenant == "x") || gone.Denials["over-quota"] != want%3 {
			t.Errorf("%+v", gone)
		}
	}
}

// A share that waits for a lease says since when, and by what level each process is held.
func TestSnapshotOfWaiting(t *testing.T) {
	r := newRig(t)
	r.share(api.ShareSpec{Name: "a", MemoryBytes: gib})
	free := r.fresh().Shares[0]
	if slot := free.Cards[0]; slot.Gated || slot.WaitingNs != nil || slot.KernelNs != nil || free.Enforcement != share.EnforcedFront {
		t.Errorf("%+v", free)
	}
	r.share(api.ShareSpec{Name: "b", MemoryBytes: gib, CoresPercent: 30})
	paused := true
	_, err := r.client.ChangeShare(t.Context(), "b", api.ShareChange{Paused: &paused})
	must(t, err)
	must(t, r.front("b").want())
	var first uint64
	eventually(t, "it waits", func() bool {
		of := r.fresh().Shares[1]
		if of.Cards[0].WaitingNs == nil {
			return false
		}
		first = *of.Cards[0].WaitingNs
		return of.Cards[0].Gated && len(of.Processes) == 1 && of.Processes[0].Enforcement == share.EnforcedFront && of.Processes[0].Cards[0].StuckNs == nil
	})
	s := r.fresh()
	if now := s.Shares[1].Cards[0].WaitingNs; now == nil || *now <= first || s.Agent.QuantumNs != uint64(r.cfg.Quantum) {
		t.Errorf("it waits for %v, before for %d", now, first)
	}
	if slot := s.Shares[0].Cards[0]; !slot.Gated || slot.WaitingNs != nil {
		t.Errorf("its neighbour: %+v", slot)
	}
}

// A snapshot waits for no driver that hangs: that GPU's time of asking stands still, the
// other's goes on.
func TestSnapshotOfAHangingDriver(t *testing.T) {
	source := newHangingSource()
	source.answer()
	r := &rig{t: t, cfg: testConfig(t), source: source.fakeSource}
	must(t, makeFolders(r.cfg))
	ctx, cancel := context.WithCancel(context.Background())
	l, err := newLoop(ctx, r.cfg, source, nil, nil)
	must(t, err)
	done := make(chan error, 1)
	go func() { done <- serve(ctx, l) }()
	r.client = client.New(r.cfg.APISocket())
	var s api.Snapshot
	eventually(t, "both are asked", func() bool { s = r.fresh(); return s.Cards[0].SampledAt != nil && s.Cards[1].SampledAt != nil })
	source.hang()
	r.fresh() // one answer may be on its way
	still := r.fresh()
	for range 3 {
		begun := time.Now()
		next := r.fresh()
		if took := time.Since(begun); took > 2*sampleLooked {
			t.Errorf("it took %v", took)
		}
		if !next.Cards[1].SampledAt.Equal(*still.Cards[1].SampledAt) || !next.Cards[0].SampledAt.After(*still.Cards[0].SampledAt) {
			t.Errorf("asked at %v and %v, before at %v and %v", next.Cards[0].SampledAt, next.Cards[1].SampledAt, still.Cards[0].SampledAt, still.Cards[1].SampledAt)
		}
	}
	source.answer()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// Snapshots of a life are numbered, and who follows gets one a second; that keeps no agent
// that nobody needs.
func TestFollowSnapshots(t *testing.T) {
	r := newRig(t, withHistory, func(cfg *Config) { cfg.IdleExit = 2500 * time.Millisecond })
	var last api.Snapshot
	got := 0
	begun := time.Now()
	var followers sync.WaitGroup
	followers.Go(func() {
		_ = r.client.FollowSnapshots(context.Background(), func(s api.Snapshot) error {
			if s.Number != last.Number+1 && last.Number != 0 || s.Life == "" {
				t.Errorf("%d after %d", s.Number, last.Number)
			}
			last = s
			got++
			_, _ = r.client.History(context.Background(), history.Query{Figure: history.Figures()[0], From: s.Time.Add(-time.Hour), To: s.Time, Step: time.Minute}.Values())
			return nil
		})
	})
	followers.Go(func() { // nor do other questions of who says that he only looks
		ctx := client.Looking(context.Background())
		for {
			if _, err := r.client.Version(ctx); err != nil {
				return
			}
			if _, err := r.client.Events(ctx, 0); err != nil {
				return
			}
			<-time.After(100 * time.Millisecond)
		}
	})
	if err := <-r.done; !errors.Is(err, ErrIdle) {
		t.Errorf("left with %v", err)
	}
	r.cancel = nil
	followers.Wait()
	if took := time.Since(begun); took > 6*time.Second || got < 2 {
		t.Errorf("left after %v, %d snapshots", took, got)
	}
}

// dcgm-exporter's names are off by default: beside a dcgm-exporter sums would be twice as large.
func TestDCGMMetrics(t *testing.T) {
	r := newRig(t)
	_, _, err := r.client.DCGMMetrics(t.Context(), "")
	if e := wantCode(t, err, api.CodeNotFound); e.Hint != "divvy agent --dcgm-metrics" {
		t.Errorf("%+v", e)
	}
	must(t, r.stop())
	r.cfg.DCGMMetrics = metrics.DCGMHandler("node-1")
	r.start()
	r.do(func(l *loop) { l.fault(gpu.Fault{UUID: testUUID, XID: 31}, 0, "") })
	r.fresh()
	body, _, err := r.client.DCGMMetrics(t.Context(), "")
	must(t, err)
	defer body.Close()
	text, err := io.ReadAll(body)
	must(t, err)
	for _, want := range []string{`DCGM_FI_DEV_FB_FREE{`, `UUID="` + testUUID + `",device="nvidia0",gpu="0"`, "DCGM_FI_DEV_XID_ERRORS{"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
}
