// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/share"
)

var update = flag.Bool("update", false, "rewrite generated documents")

func of[T any](v T) *T { return &v }

const (
	oneCard   = "GPU-00000000-0000-0000-0000-000000000001"
	otherCard = "GPU-00000000-0000-0000-0000-000000000002"
)

// full is a snapshot in which everything is known.
func full() *api.Snapshot {
	at := time.Unix(1000, 5e8)
	return &api.Snapshot{
		Time: at, Simulated: true,
		Cards: []api.SnapshotCard{{
			UUID: oneCard, Name: "H100", PCIAddress: "0000:01:00.0", DriverVersion: "535", Vendor: "nvidia", Managed: true, Answers: true, Health: "ok",
			MemoryBytes: 80, UsedBytes: 7, BookedBytes: 40, FreeToBookBytes: 33, UnledgeredBytes: 2, DriftBytes: -1, CoresBooked: 30, Shares: 2, ShareTimeNs: 15e9,
			SampledAt: &at, XIDs: []api.XIDCount{{XID: 31, Count: 2}}, Faults: map[string]uint64{"application": 2, "drain": 0},
			Cordon: &api.Cordon{Automatic: true, Class: "drain"},
			Instruments: &api.Instruments{
				BusyPercent: of(97.0), PowerWatts: of(300.0), PowerLimitWatts: of(700.0), EnergyJoules: of(1e6), TemperatureC: of(60.0), MemoryTemperatureC: of(70.0),
				SMClockMHz: of(1980.0), MemoryClockMHz: of(2619.0), Slowed: &api.Slowed{}, SlowedFor: &api.SlowedFor{ThermalNs: 1e9}, CorrectedErrors: of(uint64(3)),
				UncorrectedErrors: of(uint64(0)), Rows: &api.Rows{Correctable: 1, Pending: true},
				Devices: []api.Device{{ID: "MIG-1", Profile: "1g.10gb", MemoryBytes: 10, UsedBytes: 4}},
			},
		}, {UUID: otherCard, Name: "H100", Health: "lost"}},
		Shares: []api.SnapshotShare{
			{Name: "a", Tenant: "x", Policy: share.Fixed, CoresPercent: 30, Promised: true, State: "active", Enforcement: share.EnforcedFront, Clients: 1,
				Cards: []api.SnapshotSlot{
					{CardUUID: oneCard, LimitBytes: 40, UsedBytes: 5, PeakBytes: 9, ContextBytes: 1, CardTimeNs: of(uint64(4e9)), WaitNs: of(uint64(1e9)),
						Launches: of(uint64(12)), Denials: map[string]uint64{"over-quota": 2}, Overruns: 1},
					{CardUUID: otherCard, LimitBytes: 40, CardTimeNs: of(uint64(5e9)), WaitNs: of(uint64(0)), Launches: of(uint64(1))},
				}},
			{Name: "b", Tenant: "y", Policy: share.BestEffort, State: "active", Enforcement: share.Booked, Cards: []api.SnapshotSlot{{CardUUID: oneCard, LimitBytes: 80}}},
			{Name: "share-7", Unnamed: true, Tenant: "y", Policy: share.Fixed, CoresPercent: 10, Clients: 2, Cards: []api.SnapshotSlot{
				{CardUUID: oneCard, UsedBytes: 3, CardTimeNs: of(uint64(2e9)), WaitNs: of(uint64(0)), Launches: of(uint64(1))}}},
		},
		Gone: []api.SnapshotGone{
			{CardUUID: oneCard, Tenant: "y", Unnamed: true, CardTimeNs: 6e9, Launches: 5, Denials: map[string]uint64{"over-quota": 1}},
			{CardUUID: oneCard, Tenant: "x", CardTimeNs: 3e9},
		},
		Agent: api.SnapshotAgent{Version: "1", PID: 77, UsageWritten: &at, HistoryBytes: new(uint64(4096)), AuditSequence: new(uint64(4711)), Clients: 3, Events: map[string]uint64{"denied": 2}, Requests: map[string]uint64{"200": 9}},
	}
}

// scrape returns what a scrape of a snapshot says of Divvy, line by line.
func scrape(t testing.TB, s *api.Snapshot) []string {
	t.Helper()
	w := httptest.NewRecorder()
	Handler(func(context.Context) (*api.Snapshot, error) { return s, nil }).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	var lines []string
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, "divvy_") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// Each figure is where it belongs, in base units; sharers of a GPU have figures of their own;
// what is not known has no series.
func TestSeries(t *testing.T) {
	lines := scrape(t, full())
	for _, want := range []string{
		`divvy_card_busy_ratio{UUID="` + oneCard + `"} 0.97`,
		`divvy_card_share_seconds_total{UUID="` + oneCard + `"} 15`,
		`divvy_card_sm_clock_hertz{UUID="` + oneCard + `"} 1.98e+09`,
		`divvy_card_slowed_seconds_total{UUID="` + oneCard + `",reason="thermal"} 1`,
		`divvy_card_state{UUID="` + otherCard + `",state="lost"} 1`,
		`divvy_card_state{UUID="` + otherCard + `",state="ok"} 0`,
		`divvy_card_answers{UUID="` + otherCard + `"} 0`,
		`divvy_card_xid_errors_total{UUID="` + oneCard + `",xid="31"} 2`,
		`divvy_card_drift_bytes{UUID="` + oneCard + `"} -1`,
		`divvy_card_sample_timestamp_seconds{UUID="` + oneCard + `"} 1000.5`,
		`divvy_partition_memory_used_bytes{UUID="` + oneCard + `",id="MIG-1",profile="1g.10gb"} 4`,
		`divvy_share_card_seconds_total{UUID="` + oneCard + `",share="a",tenant="x"} 4`,
		`divvy_share_card_seconds_total{UUID="` + otherCard + `",share="a",tenant="x"} 5`,
		`divvy_share_card_seconds_total{UUID="` + oneCard + `",share="-",tenant="y"} 8`,
		`divvy_share_launches_total{UUID="` + oneCard + `",share="-",tenant="y"} 6`,
		`divvy_share_clients{UUID="` + oneCard + `",share="-",tenant="y"} 2`,
		`divvy_share_memory_promised_bytes{UUID="` + oneCard + `",share="a",tenant="x"} 40`,
		`divvy_share_memory_promised_bytes{UUID="` + oneCard + `",share="-",tenant="y"} 0`,
		`divvy_card_cordoned_by_fault{UUID="` + oneCard + `",class="drain"} 1`,
		`divvy_card_cordoned_by_fault{UUID="` + oneCard + `",class="application"} 0`,
		`divvy_share_cores_limit_ratio{UUID="` + oneCard + `",share="a",tenant="x"} 0.3`,
		`divvy_share_denials_total{UUID="` + oneCard + `",reason="over-quota",share="a",tenant="x"} 2`,
		`divvy_share_denials_total{UUID="` + otherCard + `",reason="over-quota",share="a",tenant="x"} 0`,
		`divvy_share_denials_total{UUID="` + oneCard + `",reason="card-full",share="b",tenant="y"} 0`,
		`divvy_share_denials_total{UUID="` + oneCard + `",reason="over-quota",share="-",tenant="y"} 1`,
		`divvy_share_info{UUID="` + oneCard + `",enforcement="booked",policy="best-effort",share="b",state="active",tenant="y"} 1`,
		`divvy_agent_events_total{kind="denied"} 2`,
		`divvy_agent_api_requests_total{code="200"} 9`,
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("lacks %s", want)
		}
	}
	for _, never := range []string{
		`card_(busy|power|energy|temp|memory_temp|sm_|memory_clock|slowed|ecc|remap|sample).*` + otherCard, // its driver has told nothing
		`share_(card_seconds|wait|launches).*share="b"`,                                                    // nothing of ours is in it
		`share_cores_limit.*share="b"`,
		`share_memory_promised.*share="b"`,
		`share-7`, `77`, // a name that was made up, a process
		`share_(info|memory_peak).*share="-"`,
	} {
		for _, line := range lines {
			if regexp.MustCompile(never).MatchString(line) {
				t.Errorf("%s: there is %s", never, line)
			}
		}
	}
}

// The Prometheus linter has nothing to say, and no label is one that Prometheus or Kubernetes
// give, or names a process.
func TestLint(t *testing.T) {
	w := httptest.NewRecorder()
	Handler(func(context.Context) (*api.Snapshot, error) { return full(), nil }).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	var ours strings.Builder
	for line := range strings.Lines(w.Body.String()) {
		if strings.Contains(line, "divvy_") {
			ours.WriteString(line)
		}
	}
	problems, err := promlint.New(strings.NewReader(ours.String())).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v %+v", err, problems)
	}
	told := map[string]bool{}
	for line := range strings.Lines(ours.String()) {
		if name, ok := strings.CutPrefix(line, "# TYPE "); ok {
			told[strings.Fields(name)[0]] = true
		}
	}
	seen := map[string]bool{}
	for _, table := range tables() {
		for _, m := range table.all {
			if seen[m.name] {
				t.Errorf("%s is given twice", m.name)
			}
			seen[m.name] = true
			if !told[m.fullName()] {
				t.Errorf("a snapshot in which everything is known has no %s", m.fullName())
			}
			for _, label := range slices.Concat(table.labels, m.labels) {
				if slices.Contains([]string{"pod", "namespace", "container", "instance", "job", "pid", "command", "uid", "user", "process"}, label) {
					t.Errorf("%s has a label %s", m.name, label)
				}
			}
		}
	}
}

// What is not known is absent, whatever it is: a snapshot of nothing has only what is there.
func TestUnknown(t *testing.T) {
	var s api.Snapshot
	if err := json.Unmarshal([]byte(`{"cards":[{"uuid":"GPU-1","instruments":{}},{"uuid":"GPU-2"}],"shares":[{"name":"a","enforcement":"booked","cards":[{"cardUuid":"GPU-1"}]}]}`), &s); err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, line := range scrape(t, &s) {
		known[line[:strings.IndexAny(line, "{ ")]] = true
	}
	for _, absent := range []string{"card_busy_ratio", "card_power_watts", "card_energy_joules_total", "card_temperature_celsius", "card_slowed_seconds_total",
		"card_ecc_errors_total", "card_remapped_rows", "card_remap_pending", "card_sample_timestamp_seconds", "share_card_seconds_total", "share_wait_seconds_total",
		"share_launches_total", "share_cores_limit_ratio", "partition_memory_used_bytes"} {
		if known["divvy_"+absent] {
			t.Errorf("%s is told", absent)
		}
	}
}

// However many commands have run under shares of their own, there are as many series as after
// the first.
func TestRunsLeaveNoSeries(t *testing.T) {
	s := full()
	s.Shares = s.Shares[:2]
	after := func(n uint64) []string {
		s.Gone[0].Launches = n
		var names []string
		for _, line := range scrape(t, s) {
			names = append(names, line[:strings.LastIndex(line, " ")])
		}
		return names
	}
	if before, now := after(1), after(10000); !slices.Equal(before, now) {
		t.Error("there are other series")
	}
}

// many is a snapshot of n shares with one client each.
func many(n int) *api.Snapshot {
	s := full()
	s.Shares = nil
	for i := range n {
		s.Shares = append(s.Shares, api.SnapshotShare{Name: fmt.Sprint("team-", i), Tenant: "research", Policy: share.Fixed, CoresPercent: 1, Promised: true,
			State: "active", Enforcement: share.EnforcedFront, Clients: 1, Cards: []api.SnapshotSlot{{CardUUID: oneCard, LimitBytes: 1 << 30, UsedBytes: 1 << 29,
				PeakBytes: 1 << 29, ContextBytes: 1 << 26, CardTimeNs: of(uint64(123456789012)), WaitNs: of(uint64(12345678901)), Launches: of(uint64(123456))}}})
	}
	return s
}

// A thousand shares stay within 2 MiB.
func TestSizeOfAScrape(t *testing.T) {
	bytes := 0
	for _, line := range scrape(t, many(1000)) {
		bytes += len(line) + 1
	}
	t.Logf("%d bytes", bytes)
	if bytes > 2<<20 {
		t.Errorf("a scrape of 1,000 shares is %d bytes", bytes)
	}
}

func BenchmarkScrape(b *testing.B) {
	s := many(1000)
	handler := Handler(func(context.Context) (*api.Snapshot, error) { return s, nil })
	for b.Loop() {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		_, _ = io.Copy(io.Discard, w.Body)
	}
}

// The document lists what there is.
func TestDocument(t *testing.T) {
	const path, begin, end = "../../docs/metrics.md", "<!-- generated: go test ./internal/metrics -run TestDocument -update -->\n", "<!-- end -->\n"
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(raw), begin)
	_, after, more := strings.Cut(rest, end)
	if !ok || !more {
		t.Fatal("the document has no place for it")
	}
	if text := before + begin + Document() + end + after; text != string(raw) {
		if !*update {
			t.Fatal("it is not what the code has: go test ./internal/metrics -run TestDocument -update")
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
