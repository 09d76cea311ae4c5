// SPDX-License-Identifier: Apache-2.0

// Package check compares estimates with what was published: it computes every
// measurement of a file in the form of data/llm-reference.yaml from its settings
// alone, and reports the error by kind. A setting that it does not understand
// skips the row and is named, never guessed.
package check

import (
	"errors"
	"math"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/estimate"
	"github.com/divvy-gpu/divvy/internal/estimate/reference"
)

// Row is one measurement and what was computed for it, in its unit.
type Row struct {
	ID           string   `json:"id"`
	Kind         string   `json:"kind"`
	Predicted    *float64 `json:"predicted"` // null: skipped
	Low          *float64 `json:"low"`
	High         *float64 `json:"high"`
	Published    *float64 `json:"published"` // null: no number
	Unit         string   `json:"unit"`
	ErrorPercent *float64 `json:"errorPercent"` // of predicted, against published
	Within       bool     `json:"within"`
	Skipped      string   `json:"skipped"` // why; empty: it was computed
	Confidence   string   `json:"confidence"`
	Source       string   `json:"source"`
	// Known says that a skipped row has a shape and a card that we know: it
	// counts as a miss.
	Known bool `json:"known"`
}

// Kind is all measurements of a kind.
type Kind struct {
	Kind          string   `json:"kind"`
	Rows          int      `json:"rows"`
	Skipped       int      `json:"skipped"`
	Within        int      `json:"within"`
	Tolerance     *float64 `json:"tolerancePercent"` // null: the file gives none
	MedianError   *float64 `json:"medianErrorPercent"`
	Missed        int      `json:"missed"` // skipped with a known shape and card
	LowConfidence int      `json:"lowConfidence"`
}

// Report is a comparison.
type Report struct {
	Schema string `json:"schema"`
	Rows   []Row  `json:"rows"`
	Kinds  []Kind `json:"kinds"`
}

// Schema of a report.
const Schema = "divvy.estimate.check/v1"

// like gives kinds that a file has no tolerance for that of their like.
var like = map[string]string{
	"latency_request": "latency_decode", "decode_throughput": "latency_decode", "latency_decode_per_generated_token": "latency_decode",
	"hfu": "mfu", "train_hw_tflops": "mfu", "train_model_tflops": "mfu", "finetune_throughput": "train_throughput", "layer_time": "step_time", "train_days": "train_gpu_hours",
	"train_gpu_hours_total": "train_gpu_hours", "activation_fraction": "model_states_per_gpu", "recompute_flops": "model_states_per_gpu",
}

func tolerance(file *reference.File, kind string) (float64, bool) {
	if t, ok := file.Tolerances[kind]; ok {
		return t, true
	}
	t, ok := file.Tolerances[like[kind]]
	return t, ok
}

// ranged are the kinds whose answer is a range: published values should lie
// within it.
func ranged(kind string) bool { return kind == "train_gpu_hours" || kind == "train_days" }

// Run computes every row.
func Run(e *estimate.Estimator, file *reference.File) Report {
	r := Report{Schema: Schema, Rows: []Row{}, Kinds: []Kind{}}
	for i := range file.Rows {
		r.Rows = append(r.Rows, compare(e, file, &file.Rows[i]))
	}
	r.summarise(file)
	return r
}

func compare(e *estimate.Estimator, file *reference.File, row *reference.Row) Row {
	out := Row{ID: row.ID, Kind: row.Kind, Unit: row.Unit, Confidence: row.Confidence, Source: row.Source}
	published, isNumber := reference.Number(row.Value)
	if isNumber {
		out.Published = &published
	}
	predicted, known, err := Predict(e, file, row)
	out.Known = known
	if err != nil {
		out.Skipped = err.Error()
		return out
	}
	out.Predicted, out.Low, out.High = &predicted.Mid, &predicted.Low, &predicted.High
	if !isNumber {
		var truth bool
		if row.Value.Decode(&truth) == nil { // does it fit
			was := 0.0
			if truth {
				was = 1
			}
			out.Published, out.Within = &was, predicted.Mid == was
		}
		return out
	}
	if published != 0 {
		x := 100 * (predicted.Mid/published - 1)
		out.ErrorPercent = &x
	}
	if ranged(row.Kind) {
		out.Within = published >= predicted.Low && published <= predicted.High
		return out
	}
	if t, ok := tolerance(file, row.Kind); ok {
		out.Within = math.Abs(predicted.Mid-published) <= t*math.Abs(published)*(1+1e-12) || printsAs(predicted.Mid, row.Value.Value)
	}
	return out
}

// printsAs says that a figure rounded to the digits of a published one is that
// one: 1.875 is what a paper prints as 1.9.
func printsAs(x float64, published string) bool {
	_, digits, ok := strings.Cut(published, ".")
	if !ok || strings.ContainsAny(digits, "eE") {
		return false
	}
	scale := math.Pow10(len(digits))
	var y float64
	for _, c := range strings.Replace(published, ".", "", 1) {
		if c < '0' || c > '9' {
			return false
		}
		y = 10*y + float64(c-'0')
	}
	return math.Floor(x*scale+0.5) == y
}

// summarise adds up by kind, in the order in which kinds appear. Rows of low
// confidence are kept as negative controls and do not count.
func (r *Report) summarise(file *reference.File) {
	at := map[string]int{}
	errors := map[string][]float64{}
	for _, row := range r.Rows {
		i, ok := at[row.Kind]
		if !ok {
			i = len(r.Kinds)
			at[row.Kind] = i
			r.Kinds = append(r.Kinds, Kind{Kind: row.Kind})
			if t, ok := tolerance(file, row.Kind); ok {
				percent := 100 * t
				r.Kinds[i].Tolerance = &percent
			}
		}
		k := &r.Kinds[i]
		k.Rows++
		switch {
		case row.Confidence == "low":
			k.LowConfidence++
		case row.Skipped != "":
			k.Skipped++
			if row.Known {
				k.Missed++
			}
		default:
			if row.Within {
				k.Within++
			}
			if row.ErrorPercent != nil {
				errors[row.Kind] = append(errors[row.Kind], math.Abs(*row.ErrorPercent))
			}
		}
	}
	for i := range r.Kinds {
		if all := errors[r.Kinds[i].Kind]; len(all) > 0 {
			x := Median(all)
			r.Kinds[i].MedianError = &x
		}
	}
}

// Median is the middle of some figures.
func Median(x []float64) float64 {
	x = slices.Clone(x)
	slices.Sort(x)
	n := len(x)
	if n%2 == 1 {
		return x[n/2]
	}
	return (x[n/2-1] + x[n/2]) / 2
}

// errNoEstimate marks kinds that are no estimates.
var errNoEstimate = errors.New("a measurement of something else: not estimated")
