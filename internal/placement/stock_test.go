// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"math"
	"math/rand"
	"slices"
	"testing"
)

// planned returns the cards that the plan needs for the demand, by the prices.
func planned(weight map[int32]float64) (cards, size float64, prices []float64, sizes []int) {
	sizes, demand := roundedSizes(weight)
	prices = patternPrices(sizes, demand)
	for i := range sizes {
		cards += prices[i] * demand[i]
		size += float64(sizes[i]*stockGrain) * demand[i] / WholeCard
	}
	return cards, size, prices, sizes
}

func TestPricesOfKnownPlans(t *testing.T) {
	for _, c := range []struct {
		weight map[int32]float64
		cards  float64
	}{
		{map[int32]float64{810: 7}, 7},
		{map[int32]float64{500: 7}, 3.5},
		{map[int32]float64{600: 5, 400: 3}, 5}, // each 600 has room for a 400
		{map[int32]float64{600: 3, 400: 5}, 4}, // two 400 left over share a card
		{map[int32]float64{340: 9}, 4.5},       // two on a card, not three
		{map[int32]float64{333: 9}, 4.5},       // rounded up to 340
		{map[int32]float64{700: 10, 300: 4, 150: 8}, 10},
	} {
		if cards, _, _, _ := planned(c.weight); math.Abs(cards-c.cards) > 1e-6 {
			t.Errorf("%v needs %.3f GPUs by the prices, want %.3f", c.weight, cards, c.cards)
		}
	}
}

// TestPricesAreOptimal checks random demands from both sides: no card is worth
// more than one at the prices, so the plan needs at least so many cards; and a
// simple packing needs at most what its proven bound allows above the optimum.
func TestPricesAreOptimal(t *testing.T) {
	r := rand.New(rand.NewSource(8))
	for range 60 {
		weight := map[int32]float64{}
		var items []int
		for range 1 + r.Intn(60) {
			milli := int32(1 + r.Intn(999))
			n := r.Intn(300)
			weight[milli] += float64(n)
		}
		sizes, demand := roundedSizes(weight)
		for i, size := range sizes {
			for range int(demand[i]) {
				items = append(items, size)
			}
		}
		cards, size, prices, _ := planned(weight)
		worth, _ := fill(sizes, prices)
		if worth[len(worth)-1] > 1+1e-6 {
			t.Fatalf("a whole GPU is worth %g", worth[len(worth)-1])
		}
		if !slices.IsSorted(worth[:]) || worth[0] != 0 {
			t.Fatalf("more room is worth less: %v", worth)
		}
		firstFit := 0
		var rooms []int
		for _, item := range items { // largest first
			at := slices.IndexFunc(rooms, func(room int) bool { return room >= item })
			if at < 0 {
				rooms, at = append(rooms, WholeCard/stockGrain), firstFit
				firstFit++
			}
			rooms[at] -= item
		}
		if cards < size-1e-6 || cards > float64(firstFit)+1e-6 || float64(firstFit) > 11.0/9*(cards+1)+1 {
			t.Fatalf("the plan needs %.2f GPUs for %.2f GPUs' worth, first fit %d", cards, size, firstFit)
		}
	}
}

func BenchmarkStock(b *testing.B) {
	weight := map[int32]float64{}
	for i := range mostSizes {
		weight[int32(20*(i+1))] = float64(1 + i*i%7)
	}
	for b.Loop() {
		newStock(weight)
	}
}
