// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/divvy-gpu/divvy/internal/simgpu"
)

// history collects when shares had the first card, by the simulator's account.
type history struct {
	truth *simgpu.Truth
	until int64
	runs  [][]simgpu.Run // by share, in order
}

// read goes on from where it was; the first time it begins now, and asks for nothing
// of the past, for the programs wait while the simulator answers.
func (h *history) read(ctx context.Context, owner map[uint64]int) error {
	begins := h.until == 0
	if begins {
		at, err := now()
		if err != nil {
			return err
		}
		h.until = int64(at)
	}
	list, until, err := h.truth.Runs(ctx, 0, h.until)
	if err != nil && !(begins && errors.Is(err, simgpu.ErrForgotten)) {
		return fmt.Errorf("ask who had the GPU: %w", err)
	}
	h.until = until
	if begins {
		return nil
	}
	for _, r := range list {
		if i, ok := owner[uint64(r.Process)]; ok {
			h.runs[i] = append(h.runs[i], r)
		}
	}
	return nil
}

// between is how long runs had the card from one moment to another.
func between(runs []simgpu.Run, from, to time.Duration) time.Duration {
	sum := int64(0)
	for _, r := range runs {
		sum += max(min(r.ToNS, int64(to))-max(r.FromNS, int64(from)), 0)
	}
	return time.Duration(sum)
}

// mostOf is the most time that runs, which are in order, have within any window
// of so long: it begins where a run begins, or ends where one ends.
func mostOf(runs []simgpu.Run, window time.Duration) time.Duration {
	most := int64(0)
	for _, edge := range [2]int64{0, -int64(window)} {
		first, last, sum := 0, 0, int64(0) // of the runs that the window touches
		for _, r := range runs {
			from := r.FromNS
			if edge < 0 {
				from = r.ToNS + edge
			}
			to := from + int64(window)
			for ; last < len(runs) && runs[last].FromNS < to; last++ {
				sum += runs[last].ToNS - runs[last].FromNS
			}
			for ; first < last && runs[first].ToNS <= from; first++ {
				sum -= runs[first].ToNS - runs[first].FromNS
			}
			if first < last {
				most = max(most, sum-max(from-runs[first].FromNS, 0)-max(runs[last-1].ToNS-to, 0))
			}
		}
	}
	return time.Duration(most)
}
