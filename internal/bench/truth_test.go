// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"math"
	"testing"
)

func TestJudge(t *testing.T) {
	said := func(v float64) *float64 { return &v }
	for _, c := range []struct {
		name   string
		e      expected
		said   *float64
		missed bool
		off    *float64
	}{
		{"exact", expected{value: 64, exact: true}, said(64), false, said(0)},
		{"a byte off", expected{value: 64, exact: true}, said(65), true, said(1.5625)},
		{"absent", expected{value: 0, exact: true}, nil, true, nil},
		{"nothing", expected{value: 0, exact: true}, said(0), false, said(0)},
		{"something of nothing", expected{value: 0, exact: true}, said(1), true, nil},
		{"a hundredth", expected{value: 100}, said(101), false, said(1)},
		{"more than that", expected{value: 100}, said(98.9), true, said(-1.1)},
		{"one kernel", expected{value: 1, slack: 0.1}, said(1.1), false, said(10)},
		{"lost", expected{value: 10, slack: 0.001, under: 2}, said(8), false, said(-20)},
		{"never more", expected{value: 10, slack: 0.001, under: 2}, said(10.2), true, said(2)},
	} {
		row := judge("figure", "share", c.e, c.said)
		if row.Missed != c.missed {
			t.Errorf("%s: missed %v: %+v", c.name, row.Missed, row)
		}
		if (row.ErrorPercent == nil) != (c.off == nil) || c.off != nil && math.Abs(*row.ErrorPercent-*c.off) > 1e-9 {
			t.Errorf("%s: error %v, want %v", c.name, row.ErrorPercent, c.off)
		}
	}
}

func TestMetricsView(t *testing.T) {
	run := &truth{cards: []string{"GPU-a", "GPU-b"}}
	v, at, err := run.metricsView(`# HELP divvy_share_denials_total Allocations
divvy_share_denials_total{UUID="GPU-a",reason="over-quota",share="one",tenant="a \"b\\"} 3
divvy_share_denials_total{UUID="GPU-a",reason="shrinking",share="one",tenant="a"} 1
divvy_share_card_seconds_total{UUID="GPU-a",share="one",tenant="a"} 1.5e+01
divvy_card_ecc_errors_total{UUID="GPU-b",kind="corrected"} 2
divvy_card_ecc_errors_total{UUID="GPU-b",kind="uncorrected"} 7
divvy_snapshot_timestamp_seconds 1.79e+09
go_goroutines 12
`)
	if err != nil || at != 1.79e9 {
		t.Fatal(at, err)
	}
	for key, want := range map[figure]float64{
		{denialCount, "one"}: 4, {cardSeconds, "one"}: 15, {cardCorrected, "GPU 1"}: 2, {cardXIDs, "GPU 0"}: 0, {cardXIDs, "GPU 1"}: 0,
	} {
		if got, ok := v[key]; !ok || got != want {
			t.Errorf("%v is %v (%v), want %v", key, got, ok, want)
		}
	}
	for _, line := range []string{"name{a=1} 2", `name{a="b} 2`, "name", "name{} x", `{a="b"} 1`, `name{a="b" 3`} {
		if _, _, err := run.metricsView(line); err == nil {
			t.Errorf("%q is accepted", line)
		}
	}
}

func FuzzParseSeries(f *testing.F) {
	f.Add(`divvy_share_clients{UUID="GPU-a",share="-"} 3`)
	f.Add("# comment")
	f.Add(`a{b="\"}"} 1 2`)
	f.Fuzz(func(t *testing.T, line string) {
		name, labels, _, err := parseSeries(line)
		if err != nil && (name != "" || labels != nil) {
			t.Fatalf("%q: %q %v beside %v", line, name, labels, err)
		}
	})
}
