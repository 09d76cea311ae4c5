// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/share"
)

// usage is what shares used of the GPU, when all of it is written, and what their programs had by the
// simulator's account. All have ended.
func (h *host) usage(t testing.TB, shareOf map[int]string) (used, had map[string]time.Duration) {
	t.Helper()
	h.empty(t)
	since := time.Now()
	eventually(t, "usage is written with all of it", func() error {
		s, err := h.client.Snapshot(t.Context())
		if err == nil && (s.Agent.UsageWritten == nil || s.Agent.UsageWritten.Before(since)) {
			err = errors.New("it is not yet")
		}
		return err
	}, h.agent)
	hours, err := h.client.Usage(t.Context(), since.Add(-24*time.Hour), since.Add(24*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	used, had = map[string]time.Duration{}, map[string]time.Duration{}
	for _, row := range hours.Rows {
		used[row.Share] += time.Duration(row.CardTimeNs)
	}
	states, err := h.truth(t).CardTime(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range states {
		if name, ok := shareOf[s.PID]; ok {
			had[name] += time.Duration(s.BusyNS)
		}
	}
	return used, had
}

// However often the agent is killed while programs run and end, usage has no more of the GPU's time
// than they had, of those that live all of it, and of one that ended while there was no agent up to ten
// seconds less. The same goes for the history, and both files are whole.
func TestUsageOverKills(t *testing.T) {
	t.Parallel()
	kills := fromEnvironment(t, "DIVVY_AUDIT_KILLS", 8)
	h := newHost(t, hostOptions{})
	lives := h.spec(t, api.ShareSpec{Name: "lives", MemoryBytes: 1 << 30, Policy: share.Fixed, CoresPercent: 30})
	ends := h.spec(t, api.ShareSpec{Name: "ends", MemoryBytes: 1 << 30, Policy: share.Fixed, CoresPercent: 40})
	living, ending := h.load(t, lives, 1000), h.load(t, ends, 1000)
	owner := map[int]string{living.pid: lives.Name, ending.pid: ends.Name}
	away := 0
	for range kills {
		<-time.After(time.Duration(rand.IntN(700)) * time.Millisecond)
		if rand.IntN(2) == 0 {
			h.killWorker(t, nil)
		} else {
			h.killWorker(t, ending.kill)
			away++
			ending = h.load(t, ends, 1000)
			owner[ending.pid] = ends.Name
		}
	}
	// What ends while its agent is away may miss seconds: it is back first.
	eventually(t, "the program that lived is attached", func() error {
		l, err := h.client.Clients(t.Context())
		if err == nil && !slices.ContainsFunc(l.Clients, func(c api.Client) bool { return c.PID == living.pid && c.State == "attached" }) {
			err = fmt.Errorf("the agent knows %+v", l.Clients)
		}
		return err
	}, h.agent)
	living.kill()
	ending.kill()
	used, had := h.usage(t, owner)
	t.Logf("%d kills, %d programs ended meanwhile: used %v, had %v", kills, away, used, had)
	right := func(name string, got time.Duration) error {
		is := had[name]
		slack := is/100 + 50*time.Millisecond
		least := is - slack
		if name == ends.Name {
			least -= time.Duration(away) * 10 * time.Second
		}
		if got > is+slack || got < least || is == 0 {
			return fmt.Errorf("share %s used %v, its programs had %v", name, got, is)
		}
		return nil
	}
	for name := range had {
		if err := right(name, used[name]); err != nil {
			t.Errorf("usage: %v", err)
		}
		// It was written at other moments, so that a kill may have cost it more or less.
		eventually(t, "the history is as true", func() error {
			shown, err := h.history(t, "--share", name)
			if err != nil {
				return err
			}
			return right(name, time.Duration(counted(shown)))
		}, h.agent)
	}
	for _, file := range []string{"usage.db", "history.db"} {
		got := run(t, h.Unheld(), "python3", "-c", "import sqlite3, sys; print(*sqlite3.connect(sys.argv[1]).execute('PRAGMA integrity_check').fetchone())",
			filepath.Join(h.directory, file))
		if strings.TrimSpace(got.stdout) != "ok" {
			t.Errorf("%s: %s%s", file, got.stdout, got.stderr)
		}
	}
}
