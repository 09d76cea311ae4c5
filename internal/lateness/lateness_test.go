// SPDX-License-Identifier: Apache-2.0

package lateness

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]Profile{
		"slow":            Slow,
		Slow.String():     Slow,
		"usual=1ms":       {Usual: time.Millisecond, Rare: time.Millisecond, Most: time.Millisecond},
		"launch=60us":     {Launch: 60 * time.Microsecond},
		"rare=2ms":        {Rare: 2 * time.Millisecond, Most: 2 * time.Millisecond},
		"most=0,launch=0": {},
	} {
		if got, err := Parse(text); err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for text, complaint := range map[string]string{
		"":                           `"" is none of slow, or usual=`,
		"fast":                       `"fast" is none of`,
		"usual=1ms,usual=2ms":        `"usual" is none of`,
		"usual=soon":                 `"soon" is no time`,
		"usual=-1ms":                 "a time below 0",
		"usual=3ms,rare=2ms":         "do not follow each other",
		"most=10s":                   "most 10s is more than 100ms",
		"launch=1h":                  "launch 1h0m0s is more than 10ms",
		"usual=1ms,rare=2ms,most=1s": "most 1s is more than",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), complaint) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("slow")
	f.Add(Slow.String())
	f.Add("usual=1ms,rare=1h")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Parse(text)
		if err != nil {
			return
		}
		if again, err := Parse(p.String()); err != nil || again != p {
			t.Errorf("%q is %v, which is %v: %v", text, p, again, err)
		}
		for _, part := range []float64{0, 1e-9, 0.001, 0.25, 0.5, 0.75, 1} {
			if late := p.Late(part); late < 0 || late > p.Most {
				t.Errorf("%v wakes %v late", p, late)
			}
		}
	})
}

// What is drawn from a profile has its quantiles.
func TestLate(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var r Record
	for range 200_000 {
		r.Note(Slow.Late(1 - random.Float64()))
	}
	for part, want := range map[float64]time.Duration{0.5: Slow.Usual, 0.999: Slow.Rare, 1: Slow.Most} {
		if got := r.Quantile(part); got < want*8/10 || got > want*12/10 {
			t.Errorf("quantile %v: %v, want %v", part, got, want)
		}
	}
}

// A record knows quantiles to an eighth of what a sorted list does.
func TestRecord(t *testing.T) {
	var none Record
	if none.Quantile(0.5) != 0 || none.Most() != 0 || none.Count() != 0 {
		t.Error("something in an empty record")
	}
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 3))
		var r Record
		var all []time.Duration
		for range 1 + random.IntN(2000) {
			d := time.Duration(random.Int64N(1 << (1 + random.IntN(40))))
			r.Note(d)
			all = append(all, d)
		}
		slices.Sort(all)
		for _, part := range []float64{0.001, 0.5, 0.9, 0.99, 0.999, 1} {
			want := all[min(int(part*float64(len(all))+0.999999), len(all))-1]
			if got := r.Quantile(part); got < want || got > want+want/8+127 {
				t.Errorf("seed %d, %v of %d: %v, want %v", seed, part, len(all), got, want)
			}
		}
		if r.Most() != all[len(all)-1] || r.Count() != uint64(len(all)) {
			t.Errorf("seed %d: %v of %d", seed, r.Most(), r.Count())
		}
	}
}
