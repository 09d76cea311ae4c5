// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"math/rand"
	"slices"

	"github.com/divvy-gpu/divvy/internal/placement"
)

// demand is what a request asks of cards, in thousandths.
func demand(r placement.Request) int64 { return int64(r.GPUs) * r.GPUMilli }

// inflate returns the sequence of arrivals of the public protocol: the jobs
// sorted by name, shuffled, then more drawn with replacement until the asked
// percent of the fleet's cards would be passed; a list that asks for more from
// the start loses jobs drawn at random. The generator is math/rand's of the
// seed, used in the published order, so a seed gives the published sequence.
func inflate(jobs []Job, capacityMilli int64, arrivePercent float64, seed int64) []placement.Request {
	sorted := slices.Clone(jobs)
	slices.SortStableFunc(sorted, func(a, b Job) int { return cmp.Compare(a.Name, b.Name) })
	original := make([]placement.Request, len(sorted))
	var sum int64
	for i, j := range sorted {
		original[i] = j.Request
		sum += demand(j.Request)
	}
	random := rand.New(rand.NewSource(seed))
	random.Int()
	out := slices.Clone(original)
	random.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	target := int64(float64(capacityMilli) * arrivePercent / 100)
	if sum == 0 {
		return out
	}
	for sum > target {
		i := random.Intn(len(out))
		sum -= demand(out[i])
		out = slices.Delete(out, i, i+1)
	}
	for {
		r := original[random.Intn(len(original))]
		if sum+demand(r) > target {
			return out
		}
		sum += demand(r)
		out = append(out, r)
	}
}
