// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"math/bits"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
)

// turnTimes counts the turns of the loop by how long they took, to a quarter of an
// octave: everybody waits for a turn.
type turnTimes struct {
	counts  [256]uint64
	all     uint64
	long    uint64 // that took longer than longTurn
	longest time.Duration
}

// longTurn is how long a turn may take, with a thousand shares and clients.
const longTurn = time.Millisecond

func (t *turnTimes) add(took time.Duration) {
	t.counts[bucket(uint64(max(took, 4)))]++
	t.all++
	if took > longTurn {
		t.long++
	}
	t.longest = max(t.longest, took)
}

// bucket is of nanoseconds, 4 or more.
func bucket(ns uint64) int {
	octave := bits.Len64(ns) - 1
	return 4*octave + int(ns>>(octave-2)&3)
}

// within is in what time so many percent of the turns were done.
func (t *turnTimes) within(percent uint64) time.Duration {
	done := uint64(0)
	for i, n := range t.counts {
		if done += n; n > 0 && 100*done >= percent*t.all {
			return min(time.Duration(4+i%4+1)<<(i/4-2), t.longest)
		}
	}
	return 0
}

// shown is what a snapshot has of them.
func (t *turnTimes) shown() api.Turns {
	return api.Turns{Count: t.all, Long: t.long, P99Ns: uint64(t.within(99)), LongestNs: uint64(t.longest)}
}
