// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"math"
	"slices"

	"github.com/divvy-gpu/divvy/internal/estimate"
	"github.com/divvy-gpu/divvy/internal/estimate/reference"
)

// Fit sets constants from the rows that each names.
type Fit struct {
	file *reference.File
	rows map[string]*reference.Row
}

// NewFit is a fit to the rows of a file.
func NewFit(file *reference.File) (*Fit, error) {
	f := &Fit{file: file, rows: map[string]*reference.Row{}}
	for i := range file.Rows {
		f.rows[file.Rows[i].ID] = &file.Rows[i]
	}
	for _, c := range estimate.Default() {
		for _, id := range c.Rows {
			if f.rows[id] == nil {
				return nil, fmt.Errorf("constant %s: no row %s", c.Name, id)
			}
		}
	}
	return f, nil
}

// Miss is by how much a row is missed, as the logarithm of a ratio; false: it
// cannot be computed.
func (f *Fit) Miss(k *estimate.Constants, row *reference.Row) (float64, bool) {
	published, ok := reference.Number(row.Value)
	predicted, _, err := Predict(&estimate.Estimator{K: *k}, f.file, row)
	if !ok || err != nil || published <= 0 || predicted.Mid <= 0 {
		return 0, false
	}
	return math.Log(predicted.Mid / published), true
}

// mostMiss is the miss beyond which a row counts no more: a program that was slow
// for reasons of its own does not move a constant.
const mostMiss = 0.6

// Cost is the root of the mean square of the misses of a constant's rows, but
// for those left out (nil: none).
func (f *Fit) Cost(k *estimate.Constants, i int, out func(*reference.Row) bool) float64 {
	sum, n := 0.0, 0
	for _, id := range k[i].Rows {
		if row := f.rows[id]; out == nil || !out(row) {
			if x, ok := f.Miss(k, row); ok {
				x = min(math.Abs(x), mostMiss)
				sum += x * x
				n++
			}
		}
	}
	if n == 0 {
		return 0
	}
	return math.Sqrt(sum / float64(n))
}

// Set finds each constant's best value while the others stay, round after round
// until none moves.
func (f *Fit) Set(k estimate.Constants, out func(*reference.Row) bool) estimate.Constants {
	for range 12 {
		moved := false
		for i := range k {
			was := k[i].Mid
			best, least := was, f.Cost(&k, i, out)
			for _, step := range []float64{-5, -2, -1, 1, 2, 5} {
				to := math.Round((was+step*k[i].Step)/k[i].Step) * k[i].Step
				if to < k[i].Step/2 || k[i].Most > 0 && to > k[i].Most {
					continue
				}
				k[i].Mid = to
				if c := f.Cost(&k, i, out); c < least-1e-6 {
					best, least = to, c
				}
			}
			k[i].Mid = best
			moved = moved || best != was
		}
		if !moved {
			break
		}
	}
	return k
}

// Alone gives the values with which each of a constant's rows would be met by
// itself, as far as any would do.
func (f *Fit) Alone(k estimate.Constants, i int) []float64 {
	var all []float64
	for _, id := range k[i].Rows {
		if x, ok := f.solve(k, i, f.rows[id]); ok {
			all = append(all, x)
		}
	}
	slices.Sort(all)
	return all
}

func (f *Fit) solve(k estimate.Constants, i int, row *reference.Row) (float64, bool) {
	low, high := k[i].Mid/8, k[i].Mid*8
	at := func(x float64) float64 {
		k[i].Mid = x
		m, _ := f.Miss(&k, row)
		return m
	}
	a, b := at(low), at(high)
	if a*b >= 0 {
		return 0, false
	}
	for range 40 {
		x := math.Sqrt(low * high)
		if m := at(x); m*a > 0 {
			low, a = x, m
		} else {
			high = x
		}
	}
	return math.Sqrt(low * high), true
}

// Judged are the kinds whose errors depend on constants.
var Judged = []string{"train_throughput", "mfu", "step_time", "serve_throughput", "latency_decode", "latency_request", "decode_throughput", "latency_prefill"}

// LeftOut is a group of rows, missed by constants that were set with and without
// it: errors in percent.
type LeftOut struct {
	Name          string
	With, Without []float64
	Constants     estimate.Constants // set without it
}

// Validate leaves out each group of judged rows in turn: how much the estimates
// owe to the rows they are compared with.
func (f *Fit) Validate(all estimate.Constants, group func(*reference.Row) string) []LeftOut {
	var out []LeftOut
	seen := map[string]bool{}
	for i := range f.file.Rows {
		name := group(&f.file.Rows[i])
		if !slices.Contains(Judged, f.file.Rows[i].Kind) || seen[name] {
			continue
		}
		seen[name] = true
		left := LeftOut{Name: name}
		left.Constants = f.Set(all, func(r *reference.Row) bool { return group(r) == name })
		for j := range f.file.Rows {
			r := &f.file.Rows[j]
			if !slices.Contains(Judged, r.Kind) || group(r) != name || r.Confidence == "low" {
				continue
			}
			if with, ok := f.Miss(&all, r); ok {
				without, _ := f.Miss(&left.Constants, r)
				left.With, left.Without = append(left.With, 100*math.Abs(math.Expm1(with))), append(left.Without, 100*math.Abs(math.Expm1(without)))
			}
		}
		if len(left.With) > 0 {
			out = append(out, left)
		}
	}
	return out
}
