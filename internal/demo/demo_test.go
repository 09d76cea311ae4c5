// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"bytes"
	"errors"
	"os"
	"testing"

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
		"whole card":     {`{"totalBytes":85899345920,"comparedBytes":1,"denials":1,"correct":true}`, nil, 8 * size.GiB, "the card did not look like the share"},
		"too much":       {good, nil, 8 * size.GiB, "got 31.5 % of the card's time, not 30 %"},
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
