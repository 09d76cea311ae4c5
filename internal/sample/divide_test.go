// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

func TestDivide(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name         string
		busy, others float64
		claims       []Claim
		want         []time.Duration
	}{
		{"one alone is believed", 100, 0, []Claim{{503 * ms, 100, 0}}, []time.Duration{503 * ms}},
		{"one alone that the driver does not show", -1, 0, []Claim{{503 * ms, 0, 0}}, []time.Duration{503 * ms}},
		{"one has ended", 100, 0, []Claim{{500 * ms, 40, 0}, {500 * ms, 40, 0}, {180 * ms, 0, 0}}, []time.Duration{200 * ms, 200 * ms, 100 * ms}},
		{"all have ended", 100, 0, []Claim{{500 * ms, 0, 0.25}, {400 * ms, 0, 0.5}}, []time.Duration{125 * ms, 200 * ms}},
		{"from the middle on", 50, 0, []Claim{{250 * ms, 25, 0}, {0, 25, 0}}, []time.Duration{125 * ms, 125 * ms}},
		{"in turns", 100, 0, []Claim{{500 * ms, 50, 0}, {500 * ms, 25, 0}, {20 * ms, 25, 0}}, []time.Duration{250 * ms, 125 * ms, 125 * ms}},
		{"percents are rounded", 100, 0, []Claim{{500 * ms, 33, 0}, {500 * ms, 33, 0}, {500 * ms, 33, 0}},
			[]time.Duration{166666666, 166666666, 166666666}},
		{"beside a stranger", 100, 75, []Claim{{480 * ms, 25, 0}}, []time.Duration{125 * ms}},
		{"too little to show", 100, 0, []Claim{{500 * ms, 50, 0}, {500 * ms, 50, 0}, {9 * ms, 0, 0}}, []time.Duration{250 * ms, 250 * ms, 2500 * time.Microsecond}},
		{"time for both", 60, 0, []Claim{{100 * ms, 20, 0}, {200 * ms, 40, 0}}, []time.Duration{100 * ms, 200 * ms}},
		{"the driver does not tell", -1, 0, []Claim{{500 * ms, 0, 0}, {500 * ms, 0, 0}}, []time.Duration{250 * ms, 250 * ms}},
		{"none", 0, 0, nil, nil},
	} {
		got := Divide(500*ms, c.busy, c.others, c.claims)
		if len(got) != len(c.want) {
			t.Fatalf("%s: %v", c.name, got)
		}
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("%s: %d had %v, want %v", c.name, i, got[i], c.want[i])
			}
		}
	}
}

// Shares that run in turns have together what the driver says that the card was busy with them,
// whatever they measure.
func TestDividedIsAllThereWas(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		claims := make([]Claim, 2+random.IntN(6))
		sum := 0.0
		for i := range claims {
			claims[i] = Claim{time.Second, float64(1 + random.IntN(10)), 0}
			sum += claims[i].Percent
		}
		others := random.Float64() * (100 - sum)
		busy := sum + others
		total := time.Duration(0)
		for _, had := range Divide(time.Second, busy, others, claims) {
			total += had
		}
		if want := 1e9 * sum / 100; math.Abs(float64(total)-want) > float64(len(claims)) {
			t.Fatalf("%v had %v, want %v", claims, total, time.Duration(want))
		}
	}
}
