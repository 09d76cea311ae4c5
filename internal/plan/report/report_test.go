// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/xml"
	"errors"
	"fmt"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/placement"
	"github.com/divvy-gpu/divvy/internal/plan"
	"github.com/divvy-gpu/divvy/internal/plan/chart"
	"github.com/divvy-gpu/divvy/internal/plan/chart/draw"
	"github.com/divvy-gpu/divvy/internal/plan/trace"
)

// made returns a report of every kind of result, about a list with a name that
// tries to be markup.
func made(t *testing.T) *Report {
	t.Helper()
	var nodes []placement.Node
	for i := range 30 {
		nodes = append(nodes, placement.Node{Name: fmt.Sprint("n", i), Model: "NVIDIA-H100-80GB-HBM3", CPUMilli: 32000, Cards: make([]placement.Card, 1+i%8)})
	}
	jobs := &trace.Jobs{File: `<script>alert("x")&.csv`}
	for i := range 300 {
		j := trace.Job{Timed: true, Created: float64(i), Deleted: float64(i + 200 + i%70), Request: placement.Request{Name: fmt.Sprint(i), CPUMilli: 500, GPUs: 1, GPUMilli: int64(100 + 37*i%900)}}
		jobs.Jobs = append(jobs.Jobs, j)
	}
	fleet, lists, policies := plan.Fleet{Nodes: nodes}, []*trace.Jobs{jobs}, []string{"divvy", "random"}
	r := &Report{Command: "divvy plan --pods '<b>'", Fleet: "30 nodes", Notes: []string{"<i>note</i>"}}
	var err, err2, err3 error
	inflation := plan.Inflation{Fleet: fleet, Workloads: lists, Policies: policies, Seeds: []int64{1, 2}, ArrivePercent: 130}
	r.Inflation, err = inflation.Run(context.Background(), nil)
	replay := plan.Replay{Fleet: fleet, Workloads: lists, Policies: policies, Seeds: []int64{1}, Queue: plan.QueueFIFO, SpeedUp: 2}
	r.Replay, err2 = replay.Run(context.Background(), nil)
	sharing := plan.Sharing{Fleet: fleet, Workloads: lists, Policies: policies, Seeds: []int64{1}, Modes: []plan.Mode{plan.ModeWhole, plan.ModeShares, plan.ModeMIG}}
	r.Sharing, err3 = sharing.Run(context.Background(), nil)
	if err := errors.Join(err, err2, err3); err != nil {
		t.Fatal(err)
	}
	return r
}

func drawn(t *testing.T, r *Report) []Drawing {
	t.Helper()
	drawn, err := r.Drawings(func(charts []chart.Chart) ([]chart.Drawing, error) {
		return draw.All(chart.Order{Charts: charts, PNG: true})
	})
	if err != nil {
		t.Fatal(err)
	}
	return drawn
}

func TestPageIsOnePieceAndHarmless(t *testing.T) {
	var b bytes.Buffer
	r := made(t)
	if err := r.HTML(&b, drawn(t, r)); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	for _, bad := range []string{"<script", "<b>", "<i>", "<link", "<img", "src=", "@import", "url("} {
		if strings.Contains(page, bad) {
			t.Errorf("the page contains %q", bad)
		}
	}
	for _, want := range []string{"How full the fleet gets", "How long jobs wait", "What dividing GPUs saves", "nothing was measured on hardware", "&lt;script&gt;"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if n := strings.Count(page, "<svg "); n != 3+2+3+2+1 {
		t.Errorf("%d drawings", n)
	}
}

func TestPlotsAreWellFormed(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "plots")
	names, err := Plots(folder, drawn(t, made(t)))
	if err != nil {
		t.Fatal(err)
	}
	if len(names) != 22 {
		t.Errorf("%d files", len(names))
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Dir(name) != folder {
			t.Errorf("%s is outside the folder", name)
		}
		if filepath.Ext(name) == ".png" {
			if _, err := png.Decode(bytes.NewReader(text)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		d := xml.NewDecoder(bytes.NewReader(text))
		for {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if start, ok := token.(xml.StartElement); ok && start.Name.Local == "script" {
				t.Errorf("%s has a script", name)
			}
		}
	}
}

func TestCSVHasARowPerResult(t *testing.T) {
	r := made(t)
	for _, c := range []struct {
		report Report
		rows   int
	}{{Report{Inflation: r.Inflation}, 3}, {Report{Replay: r.Replay}, 3}, {Report{Sharing: r.Sharing}, 7}} {
		var b bytes.Buffer
		if err := c.report.CSV(&b); err != nil {
			t.Fatal(err)
		}
		rows, err := csv.NewReader(&b).ReadAll() // demands equal numbers of fields
		if err != nil || len(rows) != c.rows {
			t.Errorf("%d rows, %v; want %d", len(rows), err, c.rows)
		}
	}
}
