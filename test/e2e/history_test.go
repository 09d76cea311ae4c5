// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/share"
)

// history is what the command shows of a figure, of the last hour.
func (h *host) history(t testing.TB, arguments ...string) (api.History, error) {
	t.Helper()
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + h.directory, "DIVVY_LIBDIR=" + built(t, "lib", "divvy")}
	ended := run(t, env, divvy(t), append([]string{"history", "--agent", h.AgentSocket, "-o", "json", "--step", "10s"}, arguments...)...)
	if ended.code != 0 {
		return api.History{}, fmt.Errorf("exit code %d: %s", ended.code, ended.stderr)
	}
	var shown api.History
	err := json.Unmarshal([]byte(ended.stdout), &shown)
	return shown, err
}

// counted is what a counter's points add up to.
func counted(h api.History) (sum uint64) {
	for _, s := range h.Series {
		for _, p := range s.Points {
			sum += uint64(*p.Sum)
		}
	}
	return sum
}

// What a share holds and does is in the history as the snapshots had it, to the byte and the nanosecond,
// also over the death of the agent; of a tenant and of the GPU it is the same.
func TestHistory(t *testing.T) {
	t.Parallel()
	h := newHost(t, hostOptions{cards: "A100-40GB"})
	if _, err := h.client.CreateShare(t.Context(), api.ShareSpec{Name: "train", MemoryBytes: 4 << 30, Tenant: "uni", Policy: share.Fixed, CoresPercent: 50}); err != nil {
		t.Fatal(err)
	}
	env := h.Environ(h.look(t, "train").Socket)
	holder := h.holderIn(t, env)
	if _, err := holder.Do("start"); err != nil {
		t.Fatal(err)
	}
	if _, err := holder.Number("alloc %d", 1<<30); err != nil {
		t.Fatal(err)
	}
	seconds := func(n int) {
		t.Helper()
		b := h.burnerIn(t, env, "--us", "1000", "--seconds", strconv.Itoa(n))
		b.start()
		_ = b.command.Wait()
	}
	last := func() (api.Snapshot, api.SnapshotSlot) {
		t.Helper()
		var s api.Snapshot
		since := time.Now()
		eventually(t, "a snapshot of one program", func() (err error) {
			if s, err = h.client.Snapshot(t.Context()); err == nil && (s.Time.Before(since) || len(s.Shares) != 1 || s.Shares[0].Clients != 1) {
				err = fmt.Errorf("%+v", s.Shares)
			}
			return err
		}, h.agent)
		return s, s.Shares[0].Cards[0]
	}
	equal := func(when string) {
		t.Helper()
		s, slot := last()
		eventually(t, when+": the history has what the snapshot has", func() error {
			for _, c := range []struct {
				want uint64
				of   []string
			}{
				{*slot.CardTimeNs, []string{"--share", "train"}}, {*slot.CardTimeNs, []string{"--tenant", "uni"}}, {s.Cards[0].ShareTimeNs, []string{"--gpu", "GPU-"}},
				{*slot.WaitNs, []string{"--share", "train", "--figure", "wait"}}, {*slot.Launches, []string{"--share", "train", "--figure", "launches"}},
			} {
				if shown, err := h.history(t, c.of...); err != nil || counted(shown) != c.want {
					return fmt.Errorf("%v: %d, want %d (%w)", c.of, counted(shown), c.want, err)
				}
			}
			shown, err := h.history(t, "--share", "train", "--figure", "memory-used")
			if err != nil {
				return err
			}
			points := shown.Series[0].Points
			if p := points[len(points)-1]; *p.Max < float64(slot.UsedBytes) || *p.Mean > *p.Max || *p.Min > *p.Mean {
				return fmt.Errorf("%v, want %d", *p.Max, slot.UsedBytes)
			}
			return nil
		}, h.agent)
		if *slot.CardTimeNs == 0 || slot.UsedBytes < 1<<30 {
			t.Errorf("%s: it was nothing: %+v", when, slot)
		}
	}
	seconds(3)
	equal("at first")
	h.killWorker(t, nil)
	seconds(1)
	equal("after a kill")
	eventually(t, "the last ten seconds are of what it holds", func() error {
		_, slot := last()
		shown, err := h.history(t, "--share", "train", "--figure", "memory-used")
		if err != nil {
			return err
		}
		points := shown.Series[0].Points
		if p := points[len(points)-1]; *p.Mean != float64(slot.UsedBytes) || *p.Min != *p.Max {
			return fmt.Errorf("%v to %v, want %d", *p.Min, *p.Max, slot.UsedBytes)
		}
		return nil
	}, h.agent)
	if info, err := os.Stat(filepath.Join(h.directory, "history.db")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
}
