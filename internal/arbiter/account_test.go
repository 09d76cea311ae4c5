// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"math/rand/v2"
	"testing"
	"time"
)

// interleaved plays a turn of a program that waits for each of its kernels and then pauses, while work of the
// share before it runs on for a while: kernels alternate. It returns the turn as its pages tell of it, until
// when it was, and how long it had the card after the other's work had ended.
func interleaved(random *rand.Rand, others, kernel, pause time.Duration, kernels int) (t turn, edge, end, after time.Duration) {
	now := time.Duration(random.Int64N(int64(kernel))) // somewhere in a kernel of the other's
	t.due, t.granted = now, now
	free := time.Duration(0)
	var starts []time.Duration
	for range kernels {
		for others > 0 && free <= now {
			free, others = free+kernel, others-kernel
			edge = free
		}
		starts = append(starts, max(now, free))
		end = max(now, free) + kernel
		free = end
		t.span += end - now
		t.charged += kernel
		now = end + pause/2 + time.Duration(random.Int64N(int64(pause)))
	}
	for _, start := range starts {
		if start >= edge {
			after += kernel
		}
	}
	return t, edge, end, after
}

// What turns are charged and how long they were is the same over many of them, also where a program waits
// for each of its kernels beside the rest of another one's work: else shares that are measured exactly
// pay for the difference, or get it.
func TestTurnBesideTheRestOfAnother(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	const kernel = time.Millisecond
	for _, pause := range []time.Duration{20 * time.Microsecond, 100 * time.Microsecond, 300 * time.Microsecond, 600 * time.Microsecond} {
		for _, others := range []time.Duration{2 * kernel, 4 * kernel, 8 * kernel} {
			sum, charged := time.Duration(0), time.Duration(0)
			const turns = 2000
			for range turns {
				one, edge, end, after := interleaved(random, others, kernel, pause, 20)
				least, most := one.bounds(edge, end)
				is := min(max(one.charged, least), most)
				sum += is - after
				charged += one.charged
			}
			if off := 100 * float64(sum) / float64(charged); off > 1.5 || off < -1.5 {
				t.Errorf("pauses of %v, %v of another's work: turns seem %.2f %% longer than they were, %v each", pause, others, off, sum/turns)
			}
		}
	}
}
