// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"github.com/divvy-gpu/divvy/internal/bench"
	"github.com/divvy-gpu/divvy/internal/size"
)

// TestJudge: nothing but a share that was used up to its limit, denied more,
// and read back what it wrote passes.
func TestJudge(t *testing.T) {
	const good = `{"totalBytes":8589934592,"allocatedBytes":1,"comparedBytes":1,"denials":1,"correct":true}`
	for name, c := range map[string]struct {
		output string
		ended  error
		peak   uint64
		fault  string
	}{
		"held":           {good, nil, 8 * size.GiB, ""},
		"over":           {good, nil, 8*size.GiB + 1, "limit exceeded"},
		"never denied":   {`{"totalBytes":8589934592,"comparedBytes":1,"denials":0,"correct":true}`, nil, 8 * size.GiB, "no allocation was denied"},
		"wrong":          {`{"totalBytes":8589934592,"comparedBytes":1,"denials":1,"correct":false}`, nil, 8 * size.GiB, "results wrong"},
		"compared nil":   {`{"totalBytes":8589934592,"comparedBytes":0,"denials":1,"correct":true}`, nil, 8 * size.GiB, "results wrong"},
		"computed wrong": {good, nil, 8 * size.GiB, "results wrong"},
		"starved":        {good, nil, size.GiB, "its own memory was denied to it"},
		"whole GPU":      {`{"totalBytes":85899345920,"comparedBytes":1,"denials":1,"correct":true}`, nil, 8 * size.GiB, "the GPU did not look like the share"},
		"too much":       {good, nil, 8 * size.GiB, "got 31.5 % of the GPU's time, not 30 %"},
		"crashed":        {"", errors.New("exit status 1"), 8 * size.GiB, "program failed: exit status 1: "},
	} {
		tenant := &tenant{ended: c.ended, correct: name != "computed wrong", report: ShareReport{MemoryLimitBytes: 8 * size.GiB, MemoryPeakBytes: c.peak, CoresPercent: 30, CoresAchievedPercent: 30.9}}
		if name == "too much" {
			tenant.report.CoresAchievedPercent = 31.5
		}
		tenant.output.WriteString(c.output)
		tenant.judge(5)
		if tenant.report.Fault != c.fault {
			t.Errorf("%s: fault %q, want %q", name, tenant.report.Fault, c.fault)
		}
	}
}

func TestReportForPeople(t *testing.T) {
	report := Report{
		Card: Card{Name: "NVIDIA X (simulated)", MemoryBytes: 80 * size.GiB},
		Shares: []ShareReport{
			{Name: "small", MemoryLimitBytes: 8 * size.GiB, MemoryPeakBytes: 8 * size.GiB, CoresPercent: 20, CoresAchievedPercent: 20.04, DeniedAllocations: 3, ResultsCorrect: true},
			{Name: "half-used", MemoryLimitBytes: 40 * size.GiB, MemoryPeakBytes: 20 * size.GiB, CoresPercent: 30, CoresAchievedPercent: 29.96, DeniedAllocations: 1, ResultsCorrect: true},
			{Name: "over", MemoryLimitBytes: 16 * size.GiB, MemoryPeakBytes: 32 * size.GiB, CoresPercent: 50, CoresAchievedPercent: 100, Fault: "limit exceeded"},
		},
	}
	var got bytes.Buffer
	Write(&got, report)
	want, err := os.ReadFile("testdata/report.txt")
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got.String(), want)
	}
}

// A demo that missed its parts says why, and what to try; what has nothing to do with
// time is not explained by it.
func TestExplains(t *testing.T) {
	missed := []ShareReport{{Name: "a", CoresPercent: 50, CoresAchievedPercent: 45, Fault: "got 45.0 % of the GPU's time, not 50 %"}}
	host := bench.Wakes{P50Us: 90, P99Us: 6800, MostUs: 36900}
	for name, c := range map[string]struct {
		report Report
		wants  []string
	}{
		"a busy host": {Report{Shares: missed, Host: &host, Idle: &bench.Idle{RanDryPercent: 3.5, AgentLatePercent: 1.5}},
			[]string{"idle for 5.0% of the time", "    3.5%  the program whose turn it was", "    1.5%  the host did not let the agent run", "1 of 100 by 6.8, one by 36.9", "Try: end other programs"}},
		"late programs": {Report{Shares: missed, Host: &host, Idle: &bench.Idle{UnwantedPercent: 9, RanDryPercent: 1}},
			[]string{"    9.0%  no program wanted the GPU", "Try: the programs took long to begin"}},
		"Divvy": {Report{Shares: missed, Host: &host, Idle: &bench.Idle{IneligiblePercent: 4}},
			[]string{"    4.0%  the programs that wanted it had used up their parts", "a fault of Divvy's"}},
		"a busy GPU, divided wrongly": {Report{Shares: missed, Host: &host, Idle: &bench.Idle{}},
			[]string{"idle for 0.0%", "a fault of Divvy's"}},
		"memory":        {Report{Shares: []ShareReport{{Name: "a", CoresPercent: 50, CoresAchievedPercent: 50, Fault: "limit exceeded"}}, Host: &host, Idle: &bench.Idle{IneligiblePercent: 4}}, nil},
		"without Divvy": {Report{Shares: missed}, nil},
	} {
		c.report.Seconds = 5
		var got bytes.Buffer
		explain(&got, c.report)
		if c.wants == nil && got.Len() > 0 {
			t.Errorf("%s: %s", name, got.String())
		}
		for _, want := range c.wants {
			if !bytes.Contains(got.Bytes(), []byte(want)) {
				t.Errorf("%s: no %q in\n%s", name, want, got.String())
			}
		}
	}
}
