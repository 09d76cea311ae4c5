// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/history"
)

var chartBegin = time.Date(2026, 11, 1, 10, 0, 0, 0, time.UTC)

func TestChart(t *testing.T) {
	var points []point
	for i := range 40 {
		if i >= 20 && i < 25 { // nobody was there
			continue
		}
		points = append(points, point{chartBegin.Add(time.Duration(i) * time.Minute), 50 + 50*math.Sin(float64(i)/6)})
	}
	c := timeChart{columns: 40, rows: 4, label: unitOf(api.History{Unit: "percent"}).text, from: chartBegin, to: chartBegin.Add(40 * time.Minute)}
	plain := strings.Join(c.draw(points, time.Minute), "\n")
	if want := strings.TrimPrefix(`
    100% |     **********
         |*****          ****                   **
     50% |                   *              ****
      0% |                         *********
         +----------------------------------------
          10:00             10:20        10:40 UTC`, "\n"); plain != want {
		t.Errorf("plain:\n%s\nwant:\n%s", plain, want)
	}
	c.braille, c.columns = true, 80
	if fine := strings.Join(c.draw(points, time.Minute), "\n"); strings.Count(fine, "\n") != 5 || !strings.Contains(fine, "100% |") || strings.ContainsRune(fine, '*') {
		t.Errorf("braille:\n%s", fine)
	} else {
		t.Log("\n" + fine)
	}
	if lines := c.draw(nil, time.Minute); len(lines) != 1 || !strings.Contains(lines[0], "nothing is known") {
		t.Errorf("%q", lines)
	}
}

// Whatever it shows, a chart has its size, and what is known is in it.
func TestChartOfAnything(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for range 2000 {
		span := time.Duration(1+random.IntN(1000)) * 10 * time.Second
		step := time.Duration(1+random.IntN(100)) * 10 * time.Second
		c := timeChart{columns: 2 * (10 + random.IntN(90)), rows: 1 + random.IntN(9), braille: random.IntN(2) == 0, binary: random.IntN(2) == 0,
			label: unitOf(api.History{Unit: "watts"}).text, from: chartBegin, to: chartBegin.Add(span)}
		var points []point
		for range random.IntN(50) {
			value := math.Exp(random.NormFloat64() * 20)
			if random.IntN(4) == 0 {
				value = 0
			}
			points = append(points, point{chartBegin.Add(time.Duration(random.Int64N(int64(span)))), value})
		}
		lines := c.draw(points, step)
		if len(points) == 0 {
			continue
		}
		if len(lines) != c.rows+2 {
			t.Fatalf("%d lines of %+v", len(lines), c)
		}
		set := false
		for _, line := range lines[:c.rows] {
			if utf8.RuneCountInString(line) > 400 || !utf8.ValidString(line) {
				t.Fatalf("%q", line)
			}
			_, values, _ := strings.Cut(line, "|")
			set = set || strings.TrimSpace(values) != ""
		}
		if !set {
			t.Fatalf("nothing is drawn of %v: %q", points, lines)
		}
	}
}

func TestScaleEnds(t *testing.T) {
	for _, c := range []struct {
		value  float64
		binary bool
		want   float64
	}{{0, false, 1}, {1, false, 1}, {1.1, false, 2}, {3, false, 5}, {51, false, 100}, {100, false, 100}, {0.03, false, 0.05}, {3 << 30, true, 4 << 30}, {4 << 30, true, 4 << 30},
		{math.Inf(1), false, 1}, {math.NaN(), false, 1}} {
		if got := roundUp(c.value, c.binary); math.Abs(got-c.want) > 1e-12*c.want {
			t.Errorf("%v: %v, want %v", c.value, got, c.want)
		}
	}
}

func TestHistoryQuery(t *testing.T) {
	now := time.Date(2026, 11, 29, 21, 30, 30, 0, time.UTC)
	for _, c := range []struct {
		flags historyFlags
		error string // empty: none
		hint  string
		step  time.Duration
	}{
		{historyFlags{}, "", "", time.Minute},
		{historyFlags{form: formPlot}, "", "", 30 * time.Second},
		{historyFlags{from: "2026-11-29"}, "", "", 30 * time.Minute},
		{historyFlags{from: "2026-11-27T10:00:00Z", to: "2026-11-27T10:10:00Z"}, "", "", time.Minute}, // 10 s are not kept so long
		{historyFlags{from: "2026-10-01", to: "2026-10-02"}, "", "", time.Hour},
		{historyFlags{share: "a", step: 90 * time.Second}, "", "", 90 * time.Second},
		{historyFlags{figure: "memory"}, "--figure: no figure \"memory\": did you mean memory-used", "", 0},
		{historyFlags{figure: "xyzzyxyzzyxyzzy"}, "there are card-time, memory-used", "", 0},
		{historyFlags{from: "yesterday"}, "--from: \"yesterday\" is not a time like", "", 0},
		{historyFlags{from: "2026-11-29T10:00:00Z", to: "2026-11-29T09:00:00Z"}, "from 2026-11-29T10:00:00Z is not before to 2026-11-29T09:00:00Z", "", 0},
		{historyFlags{step: 15 * time.Second}, "is not a multiple of 10s", "", 0},
		{historyFlags{step: -10 * time.Second}, "is not a multiple of 10s", "", 0},
		{historyFlags{from: "2026-01-01", step: time.Minute}, "10000 at most are read at once", "--step 1h", 0},
		{historyFlags{share: "a", card: "b"}, "not of several at once", "", 0},
		{historyFlags{share: "a", figure: "power"}, "power is of GPUs, not of shares", "", 0},
		{historyFlags{form: "yaml"}, "--output: \"yaml\" is not table, plot, csv or json", "", 0},
	} {
		if c.flags.figure == "" {
			c.flags.figure = history.DefaultFigure
		}
		if c.flags.form == "" {
			c.flags.form = formTable
		}
		q, err := c.flags.query(now, 138)
		switch {
		case c.error == "":
			if err != nil || q.Step != c.step {
				t.Errorf("%+v: %v, %v", c.flags, q.Step, err)
			}
		case err == nil || !strings.Contains(err.Error(), c.error) || hintOf(err) != c.hint || exitCode(err) != exitUsage:
			t.Errorf("%+v: %v (%s), exit %d", c.flags, err, hintOf(err), exitCode(err))
		}
	}
}
