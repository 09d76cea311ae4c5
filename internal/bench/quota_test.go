// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/simgpu"
)

func TestJudgeQuota(t *testing.T) {
	for _, c := range []struct {
		cores             int
		achieved, control float64
		points            float64
		limited           bool
	}{
		{30, 30.4, 100, 0.4, false},
		{30, 29, 100, -1, false},
		{60, 58, 60, -0.2, true}, // 97 % of 60 are 58.2
		{60, 59, 60, 0, true},    // between what it must get and what it may
		{60, 61, 60, 1, true},
	} {
		r := QuotaRow{CoresPercent: c.cores, AchievedPercent: c.achieved}
		r.judge(c.control)
		if math.Abs(r.ErrorPoints-c.points) > 1e-9 || r.DemandLimited != c.limited || r.ControlPercent != c.control {
			t.Errorf("%+v: %+v", c, r)
		}
	}
}

func TestMissedQuota(t *testing.T) {
	for _, c := range []struct {
		row    QuotaRow
		missed []string
	}{
		{QuotaRow{CoresPercent: 30, AchievedPercent: 30.5, MostPercent: 30.1, LaunchUs: 1000}, []string{}},
		{QuotaRow{CoresPercent: 30, AchievedPercent: 29.4, MostPercent: 30.2, LaunchUs: 1000}, []string{MissedError, MissedSecond}},
		{QuotaRow{CoresPercent: 5, AchievedPercent: 5.3, MostPercent: 7, LaunchUs: 20000}, []string{MissedError}},
		{QuotaRow{CoresPercent: 50, AchievedPercent: 98, MostPercent: 100, Mode: modeUngated}, []string{}},
	} {
		c.row.judge(100)
		if !slices.Equal(c.row.Missed, c.missed) {
			t.Errorf("%+v: not %v", c.row, c.missed)
		}
	}
}

func TestLaunchOfQuota(t *testing.T) {
	for _, c := range []struct {
		kernel  time.Duration
		pattern string
		want    time.Duration
	}{
		{50 * time.Microsecond, PatternGraph, 400 * time.Microsecond},
		{3 * time.Millisecond, PatternGraph, 18 * time.Millisecond},
		{30 * time.Millisecond, PatternGraph, 30 * time.Millisecond},
		{time.Millisecond, PatternAsync, time.Millisecond},
	} {
		if got := (QuotaCase{Kernel: c.kernel, Pattern: c.pattern}).launch(); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// The most that runs have within a window, beside a look at every window there is.
func TestMostOf(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var runs []simgpu.Run
		var busy [400]int
		for at := random.IntN(20); ; {
			to := at + 1 + random.IntN(30)
			if to >= len(busy) {
				break
			}
			runs = append(runs, simgpu.Run{FromNS: int64(at), ToNS: int64(to)})
			for ; at < to; at++ {
				busy[at] = 1
			}
			at += random.IntN(30)
		}
		window := 1 + random.IntN(150)
		want := 0
		for from := -window; from < len(busy); from++ {
			sum := 0
			for i := max(from, 0); i < min(from+window, len(busy)); i++ {
				sum += busy[i]
			}
			want = max(want, sum)
		}
		if got := mostOf(runs, time.Duration(window)); got != time.Duration(want) {
			t.Fatalf("%v of %d: %d, want %d", runs, window, got, want)
		}
	}
	if got := mostOf(nil, time.Second); got != 0 {
		t.Errorf("who had nothing had %v", got)
	}
}

func TestQuotaCases(t *testing.T) {
	for _, c := range append(QuotaSuite(), QuotaMatrix()...) {
		if err := c.Validate(); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
	good := QuotaCase{Cores: []int{60, 60}, Kernel: time.Millisecond, Pattern: PatternSync}
	for name, spoil := range map[string]func(*QuotaCase){
		"more than a GPU": func(c *QuotaCase) { c.Together = true },
		"no share":        func(c *QuotaCase) { c.Cores = nil },
		"nothing of it":   func(c *QuotaCase) { c.Cores = []int{0} },
		"no time":         func(c *QuotaCase) { c.Kernel = 0 },
		"no pattern":      func(c *QuotaCase) { c.Pattern = "spiral" },
	} {
		c := good
		if spoil(&c); good.Validate() != nil || c.Validate() == nil {
			t.Errorf("%s: %v", name, c.Validate())
		}
	}
}
