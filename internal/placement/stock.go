// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"math"
	"slices"
)

// stock is what a part of a card is worth to the workload's shares: the value
// of the best way to fill it, at the prices of an optimal plan that packs the
// workload's shares on whole cards (the dual of the cutting-stock problem of
// Gilmore and Gomory). A whole card is worth one. What is left beside a share
// and fits nothing is worth nothing; what fits a share that else would open a
// card is worth much.
type stock [WholeCard/stockGrain + 1]float64

const (
	stockGrain    = 10 // thousandths of a card
	mostSizes     = 48 // of shares, before they are rounded
	mostRounds    = 400
	stockDecimals = 1e-9
)

// newStock plans for shares of the given sizes (thousandths of a card) with
// their weights.
func newStock(weight map[int32]float64) *stock {
	sizes, demand := roundedSizes(weight)
	if len(sizes) == 0 {
		return nil
	}
	prices := patternPrices(sizes, demand)
	s, _ := fill(sizes, prices)
	return s
}

// roundedSizes returns sizes in grains, rounded up, largest first; more than
// mostSizes are rounded up more coarsely.
func roundedSizes(weight map[int32]float64) (sizes []int, demand []float64) {
	for coarse := 1; ; coarse *= 2 {
		sum := map[int]float64{}
		for milli, w := range weight {
			grains := (int(milli) + stockGrain - 1) / stockGrain
			grains = min((grains+coarse-1)/coarse*coarse, WholeCard/stockGrain)
			sum[grains] += w
		}
		if len(sum) > mostSizes {
			continue
		}
		for size := range sum {
			sizes = append(sizes, size)
		}
		slices.SortFunc(sizes, func(a, b int) int { return cmp.Compare(b, a) })
		for _, size := range sizes {
			demand = append(demand, sum[size])
		}
		return sizes, demand
	}
}

// fill returns the worth of each amount at the given prices, and the best
// filling of a whole card.
func fill(sizes []int, prices []float64) (*stock, []float64) {
	s := &stock{}
	var choice [len(s)]int
	for room := 1; room < len(s); room++ {
		s[room], choice[room] = s[room-1], -1
		for i, size := range sizes {
			if size <= room && s[room-size]+prices[i] > s[room]+stockDecimals {
				s[room], choice[room] = s[room-size]+prices[i], i
			}
		}
	}
	pattern := make([]float64, len(sizes))
	for room := len(s) - 1; room > 0; {
		if i := choice[room]; i >= 0 {
			pattern[i]++
			room -= sizes[i]
		} else {
			room--
		}
	}
	return s, pattern
}

// patternPrices solves the cutting-stock problem by column generation and
// returns the price of each size. The inverse of the basis is kept by pivots.
func patternPrices(sizes []int, demand []float64) []float64 {
	n := len(sizes)
	inverse := make([][]float64, n) // of the basis; row i belongs to pattern i
	used := make([]float64, n)      // how many cards follow pattern i
	for i := range inverse {
		inverse[i] = make([]float64, n)
		fits := float64(WholeCard / stockGrain / sizes[i])
		inverse[i][i] = 1 / fits
		used[i] = demand[i] / fits
	}
	prices := make([]float64, n)
	for range mostRounds {
		for j := range prices {
			prices[j] = 0
			for i := range inverse {
				prices[j] += inverse[i][j]
			}
			prices[j] = max(0, prices[j])
		}
		worth, pattern := fill(sizes, prices)
		if worth[len(worth)-1] <= 1+1e-7 {
			break
		}
		column := make([]float64, n)
		leave, least := -1, math.Inf(1)
		for i := range inverse {
			for j := range pattern {
				column[i] += inverse[i][j] * pattern[j]
			}
			if column[i] > stockDecimals && used[i]/column[i] < least {
				leave, least = i, used[i]/column[i]
			}
		}
		if leave < 0 {
			break
		}
		pivot := column[leave]
		for j := range inverse[leave] {
			inverse[leave][j] /= pivot
		}
		used[leave] = least
		for i := range inverse {
			if i == leave || column[i] == 0 {
				continue
			}
			for j := range inverse[i] {
				inverse[i][j] -= column[i] * inverse[leave][j]
			}
			used[i] -= column[i] * least
		}
	}
	return prices
}

// of returns the worth of a free part of a card.
func (s *stock) of(milli int32) float64 { return s[milli/stockGrain] }
