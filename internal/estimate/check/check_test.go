// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/divvy-gpu/divvy/data"
	"github.com/divvy-gpu/divvy/internal/estimate"
	"github.com/divvy-gpu/divvy/internal/estimate/reference"
	"github.com/divvy-gpu/divvy/internal/race"
)

func builtIn(t testing.TB) *reference.File {
	t.Helper()
	f, err := reference.Default()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// asPublished is how the built-in file is met; computed once, and only read.
var asPublished = sync.OnceValue(func() Report {
	f, err := reference.Default()
	if err != nil {
		panic(err)
	}
	return Run(estimate.New(), f)
})

// unsettled are rows that their settings do not tell from another row, with what
// is missing.
var unsettled = map[string]string{
	"ds-t5-large-case2-all-offload": "the same settings as case 1, which is without offload",
}

// TestExact: what is arithmetic is met, in every row of high or medium confidence
// that has a shape.
func TestExact(t *testing.T) {
	most := map[string]float64{"param_count": 0, "kv_bytes_per_token": 0, "model_states_per_gpu": 1, "host_memory": 1, "kv_cache": 2, "train_compute": 2, "weights_memory": 3}
	f := builtIn(t)
	met := map[string]int{}
	for _, row := range asPublished().Rows {
		limit, exact := most[row.Kind]
		if row.Kind == "kv_capacity_tokens" && slices.ContainsFunc(f.Rows, func(r reference.Row) bool {
			_, all := r.Settings["kv_memory_gb"]
			_, card := r.Settings["kv_memory_gib_per_card"]
			return r.ID == row.ID && (all || card)
		}) {
			limit, exact = 2, true
		}
		switch {
		case !exact || row.Confidence == "low" || unsettled[row.ID] != "":
		case row.Skipped != "" && row.Known:
			t.Errorf("%s: %s", row.ID, row.Skipped)
		case row.Skipped != "":
		case math.Abs(*row.ErrorPercent) > limit && !row.Within:
			t.Errorf("%s: %g, published %g: %.2f %% off", row.ID, *row.Predicted, *row.Published, *row.ErrorPercent)
		default:
			met[row.Kind]++
		}
	}
	for _, k := range []struct {
		kind string
		rows int
	}{{"model_states_per_gpu", 8}, {"host_memory", 2}, {"kv_cache", 5}, {"kv_bytes_per_token", 4}, {"train_compute", 2}, {"weights_memory", 2}, {"kv_capacity_tokens", 3}} {
		if met[k.kind] < k.rows {
			t.Errorf("%s: %d rows, want %d at least", k.kind, met[k.kind], k.rows)
		}
	}
}

// TestParameters: every total and every active total, to the last digit.
func TestParameters(t *testing.T) {
	for _, m := range builtIn(t).Models {
		plain := estimate.Model{Name: m.Name, Arch: m.Arch}
		sum := 0.0
		for _, term := range plain.ParameterTerms() {
			sum += term.Mid
		}
		if int64(sum) != m.Total() {
			t.Errorf("%s: terms sum to %.0f, not %d", m.Name, sum, m.Total())
		}
		if m.Active != 0 && plain.ActiveTotal() != m.Active {
			t.Errorf("%s: %d active, not %d", m.Name, plain.ActiveTotal(), m.Active)
		}
	}
}

// TestPredicted: the share of rows within the file's tolerance, and the median
// error. A skipped row with a known shape and card is a miss.
func TestPredicted(t *testing.T) {
	r := asPublished()
	for _, goal := range []struct {
		kinds  []string
		within float64 // percent of rows
		median float64 // percent
	}{
		{[]string{"train_throughput", "mfu"}, 92, 8},
		{[]string{"step_time"}, 85, 12},
		{[]string{"finetune_peak_memory"}, 80, 10},
		{[]string{"kv_capacity_tokens"}, 100, 5},
		{[]string{"serve_throughput"}, 88, 12},
		{[]string{"latency_decode", "latency_request", "decode_throughput"}, 85, 15},
		{[]string{"latency_prefill"}, 80, 25},
		{[]string{"train_gpu_hours"}, 85, 0},
	} {
		rows, within := 0, 0
		var errors []float64
		for _, row := range r.Rows {
			if !slices.Contains(goal.kinds, row.Kind) || row.Confidence == "low" || row.Skipped != "" && !row.Known {
				continue
			}
			rows++
			if row.Within {
				within++
			}
			if row.ErrorPercent != nil {
				errors = append(errors, math.Abs(*row.ErrorPercent))
			}
			if row.Kind == "train_gpu_hours" && row.Skipped == "" && *row.High > 3**row.Low*(1+1e-9) {
				t.Errorf("%s: from %g to %g is more than a factor of 3", row.ID, *row.Low, *row.High)
			}
		}
		share, middle := 100*float64(within)/float64(rows), Median(errors)
		t.Logf("%v: %d of %d rows within, median error %.1f %%", goal.kinds, within, rows, middle)
		if share < goal.within || goal.median > 0 && middle > goal.median {
			t.Errorf("%v: %.0f %% of rows within and a median error of %.1f %%, want %.0f %% and %.0f %%", goal.kinds, share, middle, goal.within, goal.median)
		}
	}
}

// TestNegativeControls: rows that are known to be wrong are not matched.
func TestNegativeControls(t *testing.T) {
	halves := 0
	for _, row := range asPublished().Rows {
		switch {
		case row.Kind == "kv_cache" && row.Confidence == "low":
			halves++
			if math.Abs(*row.Predicted / *row.Published - 0.5) > 0.001 {
				t.Errorf("%s: %g is not half of %g", row.ID, *row.Predicted, *row.Published)
			}
		case row.Kind == "train_rule_of_thumb" && row.Confidence == "low", row.ID == "hours-llama-3.2-3b":
			if row.Within {
				t.Errorf("%s: matched", row.ID)
			}
		}
	}
	if halves != 2 {
		t.Errorf("%d rows of the 405B cache, want 2", halves)
	}
}

// same fails unless two reports predict the same.
func same(t *testing.T, what string, a, b Report) {
	t.Helper()
	if len(a.Rows) != len(b.Rows) {
		t.Fatalf("%s: %d and %d rows", what, len(a.Rows), len(b.Rows))
	}
	number := func(x *float64) string {
		if x == nil {
			return "none"
		}
		return fmt.Sprint(*x)
	}
	computed := 0
	for i := range a.Rows {
		x, y := a.Rows[i], b.Rows[i]
		if number(x.Predicted) != number(y.Predicted) || number(x.Low) != number(y.Low) || number(x.High) != number(y.High) || (x.Skipped == "") != (y.Skipped == "") {
			t.Errorf("%s: %s is predicted %s, and then %s (%s)", what, x.ID, number(x.Predicted), number(y.Predicted), y.Skipped)
		}
		if x.Skipped == "" {
			computed++
		}
	}
	if computed < 150 {
		t.Errorf("%s: only %d rows are computed", what, computed)
	}
}

// TestValuesAreNotRead: with every published value replaced by 1 all predictions
// stay the same.
func TestValuesAreNotRead(t *testing.T) {
	value := regexp.MustCompile(`(, value: )(\[[^\]]*\]|[^,}]+)`)
	raw := value.ReplaceAll(data.LLMReference(), []byte("${1}1"))
	f, err := reference.Read(raw)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range f.Rows {
		if r.Value.Value != "1" {
			t.Fatalf("%s has still the value %q", r.ID, r.Value.Value)
		}
	}
	same(t, "values of 1", asPublished(), Run(estimate.New(), f))
}

// TestNamesAreNotRead: ids, names of models, and sources (but for other tools'
// output) decide nothing.
func TestNamesAreNotRead(t *testing.T) {
	before := asPublished()
	f := builtIn(t)
	for i := range f.Models {
		f.Models[i].Name = fmt.Sprintf("model-%d", i)
	}
	whole := builtIn(t)
	for i := range f.Rows {
		r := &f.Rows[i]
		r.ID, r.Note = fmt.Sprintf("row-%d", i), ""
		if r.Basis != "estimated" {
			r.Source = "somewhere"
		}
		if m, ok := whole.ModelNamed(r.Model); ok {
			at := slices.IndexFunc(whole.Models, func(x reference.Model) bool { return x.Name == m.Name })
			r.Model = f.Models[at].Name
		} else if !noShape[r.Kind] {
			r.Model = "some-model"
		}
	}
	same(t, "other names", before, Run(estimate.New(), f))
}

// TestConstants: at most 12, each from several rows of high or medium confidence
// and where these put it, its ends included.
func TestConstants(t *testing.T) {
	f := builtIn(t)
	fit, err := NewFit(f)
	if err != nil {
		t.Fatal(err)
	}
	k := estimate.Default()
	if len(k) > 12 {
		t.Errorf("%d constants, at most 12", len(k))
	}
	for i, c := range k {
		runs := map[string]bool{}
		for _, id := range c.Rows {
			at := slices.IndexFunc(f.Rows, func(r reference.Row) bool { return r.ID == id })
			if f.Rows[at].Confidence == "low" || f.Rows[at].Basis == "estimated" {
				t.Errorf("%s: %s is of low confidence, or another tool's output", c.Name, id)
			}
			runs[strings.TrimSuffix(strings.TrimSuffix(id, "-tps"), "-mfu")] = true
		}
		if len(runs) < 2 {
			t.Errorf("%s is set from %d row", c.Name, len(runs))
		}
		if !(c.Low <= c.Mid && c.Mid <= c.High) {
			t.Errorf("%s: %g is not between %g and %g", c.Name, c.Mid, c.Low, c.High)
		}
		here := fit.Cost(&k, i, nil)
		for _, step := range []float64{-1, 1} {
			moved := k
			moved[i].Mid += step * c.Step
			if moved[i].Mid > c.Step/2 && (c.Most == 0 || moved[i].Mid <= c.Most) && fit.Cost(&moved, i, nil) < here-1e-6 {
				t.Errorf("%s: its rows are met better with %g than with %g: go run ./tools/estimatefit", c.Name, moved[i].Mid, c.Mid)
			}
		}
		if race.Enabled { // what follows takes a minute there: make fuzz does it
			continue
		}
		if alone := fit.Alone(k, i); c.Low != c.Mid && c.Name != "run" && len(alone) > 1 {
			low, high := alone[len(alone)/10], alone[len(alone)-1-len(alone)/10]
			if c.Most > 0 {
				high = min(high, c.Most)
			}
			if math.Abs(math.Log(c.Low/low)) > 0.03 || math.Abs(math.Log(c.High/high)) > 0.03 {
				t.Errorf("%s: low %g and high %g; eight of ten of its rows lie from %.3g to %.3g", c.Name, c.Low, c.High, low, high)
			}
		}
	}
}

// TestLeavingSourcesOut: constants that were set without a source predict its rows
// about as well as those that were set with it.
func TestLeavingSourcesOut(t *testing.T) {
	if testing.Short() || race.Enabled {
		t.Skip("sets all constants once for each source, which takes minutes under the race detector: make fuzz does it")
	}
	f := builtIn(t)
	fit, err := NewFit(f)
	if err != nil {
		t.Fatal(err)
	}
	var with, without []float64
	for _, g := range fit.Validate(estimate.Default(), func(r *reference.Row) string { return r.Source }) {
		with, without = append(with, g.With...), append(without, g.Without...)
	}
	t.Logf("%d rows: median error %.1f %%, and %.1f %% with their source left out", len(with), Median(with), Median(without))
	if len(with) < 80 || Median(without) > 10 || Median(without) > Median(with)+3 {
		t.Errorf("median error %.1f %%, and %.1f %% with the source left out (%d rows)", Median(with), Median(without), len(with))
	}
}
