// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"math"
	"slices"
)

// Spread is a mean over seeds with the sample standard deviation.
type Spread struct {
	Mean float64 `json:"mean"`
	SD   float64 `json:"sd"`
}

func spreadOf(values []float64) Spread {
	s := Spread{Mean: mean(values)}
	if len(values) < 2 {
		return s
	}
	var squares float64
	for _, v := range values {
		squares += (v - s.Mean) * (v - s.Mean)
	}
	s.SD = math.Sqrt(squares / float64(len(values)-1))
	return s
}

func mean(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	var sum float64
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// quantile returns the smallest value that at least the part q of the sorted
// values does not exceed.
func quantile[T int32 | float64](sorted []T, q float64) T {
	if len(sorted) == 0 {
		return 0
	}
	i := int(math.Ceil(q*float64(len(sorted)))) - 1
	return sorted[min(max(0, i), len(sorted)-1)]
}

// Distribution describes how values spread.
type Distribution struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
}

func distributionOf(values []float64) Distribution {
	if len(values) == 0 {
		return Distribution{}
	}
	slices.Sort(values)
	return Distribution{
		Mean: mean(values), P50: quantile(values, 0.5), P95: quantile(values, 0.95), P99: quantile(values, 0.99),
		Max: values[len(values)-1],
	}
}
