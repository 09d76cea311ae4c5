// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"math"
	"testing"
	"time"
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

func TestMostOfASecond(t *testing.T) {
	var samples []sample
	busy := time.Duration(0)
	for i := range 100 { // 100 ms apart; the card is its own from 3 s to 3.5 s
		samples = append(samples, sample{at: time.Duration(i) * 100 * time.Millisecond, busy: []time.Duration{0, busy}})
		if i >= 30 && i < 35 {
			busy += 100 * time.Millisecond
		} else {
			busy += 10 * time.Millisecond
		}
	}
	if got := mostOfASecond(samples, 0); got != 0 {
		t.Errorf("who had nothing had %v", got)
	}
	if got := mostOfASecond(samples, 1); math.Abs(got-55) > 1e-9 {
		t.Errorf("%v %% of a second, want 55", got)
	}
	if got := mostOfASecond(samples[:5], 1); math.Abs(got-10) > 1e-9 {
		t.Errorf("%v %% of less than a second, want 10", got)
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
		"more than a card": func(c *QuotaCase) { c.Together = true },
		"no share":         func(c *QuotaCase) { c.Cores = nil },
		"nothing of it":    func(c *QuotaCase) { c.Cores = []int{0} },
		"no time":          func(c *QuotaCase) { c.Kernel = 0 },
		"no pattern":       func(c *QuotaCase) { c.Pattern = "spiral" },
	} {
		c := good
		if spoil(&c); good.Validate() != nil || c.Validate() == nil {
			t.Errorf("%s: %v", name, c.Validate())
		}
	}
}
