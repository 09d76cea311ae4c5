// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/event"
	"github.com/divvy-gpu/divvy/internal/explain"
	terms "github.com/divvy-gpu/divvy/internal/share"
	"github.com/divvy-gpu/divvy/internal/simgpu"
	"github.com/divvy-gpu/divvy/internal/simgpu/condition"
)

// why asks as a user does.
func (h *host) why(t testing.TB, subject string) explain.Report {
	t.Helper()
	out := run(t, append(h.Unheld(), "DIVVY_AGENT="+h.AgentSocket), divvy(t), "why", subject, "--seconds", "2", "--json")
	var report explain.Report
	if err := json.Unmarshal([]byte(out.stdout), &report); err != nil || out.code != 0 || len(report.Causes) == 0 {
		t.Fatalf("why %s: exit code %d, %s %s (%v)", subject, out.code, out.stdout, out.stderr, err)
	}
	return report
}

// because waits until the first cause is this one, and its percent between the least and the most, where
// these are given, and returns it. A busy host leaves the GPU idle: it looks again.
func (h *host) because(t testing.TB, subject string, want explain.Name, between ...float64) explain.Cause {
	t.Helper()
	var c explain.Cause
	eventually(t, fmt.Sprintf("%s of %s", want, subject), func() error {
		report := h.why(t, subject)
		if c = report.Causes[0]; c.Cause != want {
			return fmt.Errorf("%+v", report.Causes)
		}
		if len(between) == 2 && (c.Percent == nil || *c.Percent < between[0] || *c.Percent > between[1]) {
			return fmt.Errorf("want %v to %v %%: %+v", between[0], between[1], c)
		}
		return nil
	}, h.agent, h.simulator)
	return c
}

func (h *host) spec(t testing.TB, spec api.ShareSpec) api.Share {
	t.Helper()
	share, err := h.client.CreateShare(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return share
}

// load keeps a share's GPU busy with kernels of so many microseconds.
func (h *host) load(t testing.TB, share api.Share, us int, more ...string) *burner {
	t.Helper()
	b := h.burnerIn(t, h.Environ(share.Socket), append([]string{"--us", strconv.Itoa(us)}, more...)...)
	b.start()
	return b
}

// TestWhy: what somebody is told first is what was done.
func TestWhy(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		stage func(*testing.T, *host)
	}{
		{"fixed quota", func(t *testing.T, h *host) {
			b := h.load(t, h.spec(t, api.ShareSpec{Name: "a", MemoryBytes: 2 << 30, CoresPercent: 30}), 1000)
			c := h.because(t, "a", explain.FixedQuota, 50, 100)
			if c.Command != "divvy share set a --cores 100" {
				t.Errorf("%+v", c)
			}
			h.because(t, strconv.Itoa(b.pid), explain.FixedQuota)
		}},
		{"paused, and a share that hardly launches", func(t *testing.T, h *host) {
			a := h.spec(t, api.ShareSpec{Name: "a", MemoryBytes: 2 << 30})
			h.because(t, "a", explain.Nothing)
			holder := h.holder(t, a)
			do(t, holder, "start")
			h.because(t, strconv.Itoa(holder.PID), explain.Nothing, 0, 1)
			paused := true
			if _, err := h.client.ChangeShare(t.Context(), "a", api.ShareChange{Paused: &paused}); err != nil {
				t.Fatal(err)
			}
			if c := h.because(t, "a", explain.Paused); c.Command != "divvy share resume a" || !strings.Contains(c.Evidence, string(event.SharePaused)) {
				t.Errorf("%+v", c)
			}
		}},
		{"higher priority", func(t *testing.T, h *host) {
			h.load(t, h.spec(t, api.ShareSpec{Name: "a", MemoryBytes: 2 << 30}), 1000)
			h.load(t, h.spec(t, api.ShareSpec{Name: "b", MemoryBytes: 2 << 30, Priority: 10}), 1000)
			h.because(t, "a", explain.HigherPriority, 50, 100)
			h.because(t, "b", explain.GPUBusy)
		}},
		{"equal sharing", func(t *testing.T, h *host) {
			for _, name := range []string{"a", "b"} {
				h.load(t, h.spec(t, api.ShareSpec{Name: name, MemoryBytes: 2 << 30, Policy: terms.Equal}), 1000)
			}
			h.because(t, "a", explain.EqualSharing, 40, 60)
			h.because(t, "b", explain.EqualSharing, 40, 60)
		}},
		{"a neighbour's long kernels", func(t *testing.T, h *host) {
			h.load(t, h.spec(t, api.ShareSpec{Name: "a", MemoryBytes: 2 << 30, Policy: terms.Equal}), 1000)
			h.load(t, h.spec(t, api.ShareSpec{Name: "b", MemoryBytes: 2 << 30, Policy: terms.Equal}), 300000)
			if c := h.because(t, "a", explain.LongKernels); c.Command != "divvy share pause b" || !strings.Contains(c.Evidence, "ms") {
				t.Errorf("%+v", c)
			}
			h.because(t, "b", explain.EqualSharing)
		}},
		{"memory", func(t *testing.T, h *host) {
			a := h.share(t, "a", 1<<30)
			holder := h.holder(t, a)
			do(t, holder, "start")
			address := alloc(t, holder, 700<<20)
			refused(t, holder, 2, "alloc %d", 500<<20)
			h.event(t, event.Denied, "a")
			c := h.because(t, "a", explain.OverMemory, 60, 100)
			if !strings.Contains(c.Evidence, "500MiB") || c.Command != "divvy share set a --mem 1524MiB" {
				t.Errorf("%+v", c)
			}
			smaller := uint64(512 << 20)
			if _, err := h.client.ChangeShare(t.Context(), "a", api.ShareChange{MemoryBytes: &smaller}); err != nil {
				t.Fatal(err)
			}
			h.because(t, "a", explain.Shrinking)
			do(t, holder, "free %d", address)
			if report := h.why(t, "a"); report.Causes[0].Cause == explain.Shrinking {
				t.Errorf("%+v", report.Causes)
			}
		}},
		{"contexts", func(t *testing.T, h *host) {
			a := h.share(t, "a", 160<<20)
			for range 2 {
				do(t, h.holder(t, a), "start")
			}
			third := h.holder(t, a)
			refused(t, third, 2, "start")
			h.event(t, event.Denied, "a")
			h.because(t, "a", explain.Contexts, 50, 100)
		}},
		{"a stranger", func(t *testing.T, h *host) {
			h.load(t, h.share(t, "a", 2<<30), 1000)
			stranger := h.burner(t, "--us", "1000")
			stranger.start()
			for _, subject := range []string{"a", h.look(t, "a").CardUUID} {
				if c := h.because(t, subject, explain.Stranger); c.Command != fmt.Sprintf("kill %d", stranger.pid) {
					t.Errorf("%+v", c)
				}
			}
			h.because(t, strconv.Itoa(stranger.pid), explain.NotHeld)
		}},
		{"cordoned, hot and lost", func(t *testing.T, h *host) {
			truth := h.truth(t)
			a := h.share(t, "a", 2<<30)
			h.load(t, a, 1000)
			if _, err := h.client.Cordon(t.Context(), a.CardUUID, "loud fan"); err != nil {
				t.Fatal(err)
			}
			if c := h.because(t, a.CardUUID, explain.Cordoned); !strings.Contains(c.Evidence, "loud fan") {
				t.Errorf("%+v", c)
			}
			h.because(t, "a", explain.GPUBusy)
			for kind, want := range map[condition.Kind]explain.Name{condition.Thermal: explain.HotCard, condition.CardLost: explain.LostCard} {
				if _, _, err := truth.Inject(t.Context(), simgpu.Injection{Fault: condition.Fault{Kind: kind}}); err != nil {
					t.Fatal(err)
				}
				h.because(t, "a", want)
				c := h.because(t, a.CardUUID, want)
				if c.Command != "divvy simulate fault clear --gpu "+a.CardUUID {
					t.Errorf("%+v", c)
				}
				if out := run(t, append(h.Unheld(), "DIVVY_AGENT="+h.AgentSocket), divvy(t), strings.Fields(c.Command)[1:]...); out.code != 0 {
					t.Errorf("%s: %s", c.Command, out.stderr)
				}
				eventually(t, "the GPU is well", func() error {
					if report := h.why(t, a.CardUUID); report.Causes[0].Cause == want {
						return fmt.Errorf("%+v", report.Causes)
					}
					return nil
				}, h.agent)
			}
		}},
		{"not held", func(t *testing.T, h *host) {
			h.share(t, "a", 1<<30)
			loose := h.startRun(t, "--share a", h.withoutFront()...)
			loose.do("start")
			h.wantLevel(t, "a", terms.Booked)
			if c := h.because(t, "a", explain.NotHeld); !strings.Contains(c.Evidence, "level booked") {
				t.Errorf("%+v", c)
			}
			if err := loose.stdin.Close(); err != nil {
				t.Fatal(err)
			}
			loose.code()
			h.wantLevel(t, "a", terms.EnforcedFront)
			h.because(t, "a", explain.Nothing)
		}},
		{"stuck", func(t *testing.T, h *host) {
			if testing.Short() {
				t.Skip("half a minute")
			}
			stuck := h.burnerIn(t, h.Environ(h.spec(t, api.ShareSpec{Name: "a", MemoryBytes: 2 << 30, CoresPercent: 50}).Socket), "--us", hour)
			stuck.start()
			select { // it is told of after half a minute
			case <-time.After(25 * time.Second):
			case <-t.Context().Done():
			}
			h.event(t, event.ClientStuck, "a")
			if c := h.because(t, "a", explain.Stuck); c.Command != fmt.Sprintf("kill %d", stuck.pid) {
				t.Errorf("%+v", c)
			}
			h.because(t, strconv.Itoa(stuck.pid), explain.Stuck)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.stage(t, newHost(t, hostOptions{}))
		})
	}
}
