// SPDX-License-Identifier: Apache-2.0

// Package estimate computes how much memory and time a large language model
// takes to train, fine-tune and serve. It is arithmetic: every figure is a Term
// with its formula, the numbers put in, and a low, an expected and a high value.
// What arithmetic cannot tell are the constants of Constants, each set from
// published measurements that it names.
//
//	estimator := estimate.New()
//	result, err := estimator.Serve(estimate.Serving{Setup: estimate.Setup{Model: model, Card: &card, Cards: 1}})
//
// The package is pure: no files, network, goroutines, locks, logs or clock.
// Package reference has the models and cards, package check compares with what
// was published. Non-goals: to promise; to know a model's quality.
package estimate

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/errclass"
)

// ErrInvalid says that a question makes no sense as it is asked.
var ErrInvalid = errors.New("invalid")

func invalidf(format string, args ...any) error { return errclass.Errorf(ErrInvalid, format, args...) }

// Units of terms.
const (
	Bytes     = "bytes"
	Seconds   = "s"
	Count     = ""
	Percent   = "percent"
	Tokens    = "tokens"
	PerSecond = "tokens/s"
	Hours     = "GPU-hours"
	FLOPs     = "FLOP"
)

// Range is a figure of which the low and the high end are known as well.
type Range struct {
	Low  float64 `json:"low"`
	Mid  float64 `json:"expected"`
	High float64 `json:"high"`
}

// exactly is a figure that arithmetic gives.
func exactly(x float64) Range { return Range{x, x, x} }

func (r Range) plus(o Range) Range    { return Range{r.Low + o.Low, r.Mid + o.Mid, r.High + o.High} }
func (r Range) times(k float64) Range { return Range{r.Low * k, r.Mid * k, r.High * k} }

// product multiplies figures that are not negative.
func (r Range) product(o Range) Range { return Range{r.Low * o.Low, r.Mid * o.Mid, r.High * o.High} }

// per is work divided by a rate: the highest rate gives the least time.
func (r Range) per(rate Range) Range {
	return Range{r.Low / rate.High, r.Mid / rate.Mid, r.High / rate.Low}
}

// most is the larger of two figures.
func (r Range) most(o Range) Range {
	return Range{max(r.Low, o.Low), max(r.Mid, o.Mid), max(r.High, o.High)}
}

// finite says that no part of it is infinite or no number.
func (r Range) finite() bool {
	for _, x := range []float64{r.Low, r.Mid, r.High} {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return false
		}
	}
	return true
}

// Term is one figure of an estimate.
type Term struct {
	Name    string `json:"name"`
	Formula string `json:"formula"` // with the numbers put in
	Unit    string `json:"unit"`
	Range
	Constants []string `json:"constants,omitempty"` // that it depends on
	Measured  bool     `json:"measured,omitempty"`  // given by the user in the place of a formula
	Note      string   `json:"note,omitempty"`
}

// sheet collects terms, and puts measured figures into their places. A mute one
// serves to compare: it writes no formulas.
type sheet struct {
	terms    []Term
	measured map[string]float64
	met      map[string]bool
	mute     bool
}

// expected is how many terms an estimate has, about.
const expected = 24

func newSheet(measured map[string]float64, mute bool) *sheet {
	return &sheet{measured: measured, mute: mute, terms: make([]Term, 0, expected)}
}

// say writes a formula.
func (s *sheet) say(format string, args ...any) string {
	if s.mute {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

// An amount is written whole, with commas; a brief one with few digits.
type (
	amount float64
	brief  float64
)

func (a amount) String() string { return grouped(float64(a)) }
func (b brief) String() string  { return short(float64(b)) }

// add notes a term and returns its figure, which is the measured one if there
// is one.
func (s *sheet) add(t Term) Range {
	if value, ok := s.measured[t.Name]; ok {
		if s.met == nil {
			s.met = map[string]bool{}
		}
		s.met[t.Name] = true
		t.Range, t.Measured, t.Constants, t.Formula = exactly(value), true, nil, "measured"
	}
	s.terms = append(s.terms, t)
	return t.Range
}

// unmet is an error when a figure was given for no term of this estimate.
func (s *sheet) unmet() error {
	var names []string
	for _, t := range s.terms {
		names = append(names, t.Name)
	}
	for _, name := range sortedKeys(s.measured) {
		if !s.met[name] {
			return invalidf("--measured %s: no term of that name here; there are %s", name, strings.Join(names, ", "))
		}
	}
	return nil
}

func sortedKeys[V any](m map[string]V) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// grouped writes a whole number with commas.
func grouped(n float64) string {
	if math.Abs(n) >= 1e18 || math.IsNaN(n) {
		return fmt.Sprintf("%.4g", n)
	}
	text := fmt.Sprintf("%.0f", n)
	sign := ""
	if strings.HasPrefix(text, "-") {
		sign, text = "-", text[1:]
	}
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return sign + text
}

// Short writes a figure with few digits: 70.6B, 1.5T.
func Short(n float64) string { return short(n) }

func short(n float64) string {
	for _, u := range []struct {
		at   float64
		name string
	}{{1e15, "P"}, {1e12, "T"}, {1e9, "B"}, {1e6, "M"}} {
		if math.Abs(n) >= u.at {
			return fmt.Sprintf("%.3g%s", n/u.at, u.name)
		}
	}
	return fmt.Sprintf("%.6g", n)
}

// UnitOf is the unit of a term, by its name.
func UnitOf(term string) string {
	switch term {
	case "weights", "gradients", "optimizer", "adapters", "gathered", "dequantised", "activations", "logits", "overhead", "workspace", "kv cache", "cache room", "host":
		return Bytes
	case "throughput":
		return PerSecond
	case "cache capacity":
		return Tokens
	case "hours":
		return Hours
	case "products", "attention", "elementwise", "tensor-parallel", "context-parallel", "expert-parallel", "pipeline", "bubble", "micro-batch", "data-parallel", "update", "offload", "step",
		"prefill", "decode step", "decode step alone", "first token", "between tokens":
		return Seconds
	}
	return Count
}
