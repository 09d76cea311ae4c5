// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/history"
)

// What cannot be written waits, what shares did that are gone too; that it fails, and that it does
// no more, is told once each.
func TestUsageWaits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "usage.db")
	var k usageKeeper
	at := time.Date(2026, 11, 1, 10, 0, 0, 0, time.UTC)
	write := func(wantChanged, wantFailed bool, ended ...history.Counters) {
		t.Helper()
		at = at.Add(10 * time.Second)
		changed, err := k.write(path, history.Moment{Life: "a", Time: at, MonotonicNs: at.UnixNano(), Ended: ended,
			Cards: []history.CardCounters{{UUID: testUUID, Model: "H100", MemoryKiB: 1 << 20}}})
		if changed != wantChanged || (err != nil) != wantFailed {
			t.Fatalf("changed %v, %v", changed, err)
		}
		if failed, _ := k.state(); failed != wantFailed {
			t.Errorf("failed is %v", failed)
		}
	}
	gone := func(name string) history.Counters {
		return history.Counters{Share: name, Tenant: "t", Card: testUUID, Created: at, Ms: 3000, CardTimeNs: 1e9}
	}
	write(false, false)
	must(t, k.db.Close()) // from now on it cannot be written
	write(true, true, gone("one"))
	write(false, true, gone("two"))
	k.db = nil
	write(true, false, gone("three"))
	write(false, false)
	rows, cards, _, err := k.database().Read(t.Context(), at.Add(-time.Hour), at.Add(time.Hour))
	must(t, err)
	sum := int64(0)
	for _, row := range rows {
		sum += row.CardTimeNs
	}
	if len(rows) != 3 || sum != 3e9 || len(cards) != 1 || cards[0].Ms != 40_000 {
		t.Errorf("%+v %+v", rows, cards)
	}
	must(t, k.close())
}

// A share that is gone before anybody looked is in usage, by whom it is paid and whose it is.
func TestUsageOfAnAgent(t *testing.T) {
	r := newRig(t)
	eventually(t, "usage is written", func() bool {
		_, committed := r.daemon.usage.state()
		return !committed.IsZero()
	})
	r.share(api.ShareSpec{Name: "a", MemoryBytes: gib, Tenant: "uni"})
	f := r.front("a")
	f.work(3*time.Second, 0)
	eventually(t, "it is seen", func() bool {
		s, err := r.client.Share(t.Context(), "a")
		must(t, err)
		return s.CardTimeNs == uint64(3*time.Second)
	})
	f.close()
	eventually(t, "it is gone", func() bool { return r.client.DeleteShare(t.Context(), "a", false) == nil })
	must(t, r.stop())
	r.start()
	now := time.Now()
	var hours api.UsageHours
	eventually(t, "the next agent tells", func() (ok bool) {
		var err error
		hours, err = r.client.Usage(t.Context(), now.Add(-2*time.Hour), now.Add(time.Hour))
		return err == nil && len(hours.Rows) > 0
	})
	sum := int64(0)
	for _, row := range hours.Rows {
		sum += row.CardTimeNs
		if row.Share != "a" || row.Tenant != "uni" || row.CardUUID != testUUID {
			t.Errorf("%+v", row)
		}
	}
	if sum != int64(3*time.Second) || len(hours.Gaps) != 0 {
		t.Errorf("GPU time %v, gaps %v", time.Duration(sum), hours.Gaps)
	}
	for _, span := range [][2]time.Time{{now, now}, {now, now.Add(-time.Hour)}, {now, now.Add(32 * 24 * time.Hour)}} {
		_, err := r.client.Usage(t.Context(), span[0], span[1])
		wantCode(t, err, api.CodeUsage)
	}
}
