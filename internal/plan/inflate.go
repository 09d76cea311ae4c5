// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"math/rand"
	"slices"

	"github.com/divvy-gpu/divvy/internal/plan/trace"
)

// maxArrivals bounds the sequence that inflation may make of a list of jobs
// that ask for next to nothing.
const maxArrivals = 8_000_000

func shuffled[T any](list []T, seed int64) []T {
	out := slices.Clone(list)
	random := rand.New(rand.NewSource(seed))
	random.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// inflate returns the sequence of arrivals of the public protocol, as indices
// into groups of the jobs sorted by name: all of them shuffled, then more drawn
// with replacement until the asked percent of the fleet's cards would be
// passed; a list that asks for more from the start loses some drawn at random.
// The generator is math/rand's of the seed, used in the published order, so a
// seed gives the published sequence.
func inflate(sorted []group, capacityMilli int64, arrivePercent float64, seed int64) ([]int, error) {
	var sum int64
	out := make([]int, len(sorted))
	for i := range sorted {
		out[i] = i
		sum += sorted[i].demand
	}
	random := rand.New(rand.NewSource(seed))
	random.Int()
	random.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	target := int64(float64(capacityMilli) * arrivePercent / 100)
	if sum == 0 {
		return out, nil
	}
	if sum > target {
		out, sum = prune(out, sorted, sum, target, random)
	}
	for {
		i := random.Intn(len(sorted))
		if sum+sorted[i].demand > target {
			return out, nil
		}
		if len(out) == maxArrivals {
			return nil, fmt.Errorf("the jobs ask for so little that more than %d would have to arrive", maxArrivals)
		}
		sum += sorted[i].demand
		out = append(out, i)
	}
}

// prune removes arrivals drawn at random until the rest asks for no more than
// target. It draws the n-th of those that are left, which a tree of counts
// finds: lists may have millions of jobs.
func prune(order []int, sorted []group, sum, target int64, random *rand.Rand) ([]int, int64) {
	n := len(order)
	tree := make([]int, n+1) // Fenwick tree of arrivals left
	for i := 1; i <= n; i++ {
		tree[i]++
		if up := i + i&-i; up <= n {
			tree[up] += tree[i]
		}
	}
	top := 1
	for top*2 <= n {
		top *= 2
	}
	gone := make([]bool, n)
	for left := n; sum > target && left > 0; left-- {
		skip, at := random.Intn(left), 0
		for step := top; step > 0; step /= 2 {
			if at+step <= n && tree[at+step] <= skip {
				at += step
				skip -= tree[at]
			}
		}
		gone[at] = true
		sum -= sorted[order[at]].demand
		for i := at + 1; i <= n; i += i & -i {
			tree[i]--
		}
	}
	kept := order[:0]
	for i, g := range order {
		if !gone[i] {
			kept = append(kept, g)
		}
	}
	return kept, sum
}

// byName sorts jobs as the protocol starts from.
func byName(jobs []trace.Job) []trace.Job {
	out := slices.Clone(jobs)
	slices.SortStableFunc(out, func(a, b trace.Job) int { return cmp.Compare(a.Name, b.Name) })
	return out
}
