// SPDX-License-Identifier: Apache-2.0

package metrics

import "github.com/divvy-gpu/divvy/internal/sample"

// ofShares is a metric with one series a share and GPU; nil: it is not known.
func ofShares(value func(sample.Row) *float64) func(*reading, emit) {
	return func(r *reading, emit emit) {
		for _, one := range r.rows {
			if v := value(one); v != nil {
				emit(*v, one.Share, one.Tenant, one.UUID)
			}
		}
	}
}

func bytes(value func(sample.Row) uint64) func(*reading, emit) {
	return ofShares(func(r sample.Row) *float64 { v := float64(value(r)); return &v })
}

// optional is of what may not be known.
func optional(value func(sample.Row) *uint64) func(*reading, emit) {
	return shownAs(func(n uint64) float64 { return float64(n) }, value)
}

// nanoseconds are shown as seconds.
func nanoseconds(value func(sample.Row) *uint64) func(*reading, emit) { return shownAs(seconds, value) }

func shownAs(show func(uint64) float64, value func(sample.Row) *uint64) func(*reading, emit) {
	return ofShares(func(r sample.Row) *float64 {
		n := value(r)
		if n == nil {
			return nil
		}
		v := show(*n)
		return &v
	})
}

func shareMetrics() []metric {
	return []metric{
		{"share_info", "What was asked for and how it is; always 1. Sums have none.", []string{"policy", "enforcement", "state"}, fromCore,
			func(r *reading, emit emit) {
				for _, one := range r.rows {
					if one.Of != nil {
						emit(1, one.Share, one.Tenant, one.UUID, string(one.Of.Policy), string(one.Of.Enforcement), one.Of.State)
					}
				}
			}},
		{"share_memory_limit_bytes", "Its quota, or the GPU's memory.", nil, fromCore, bytes(func(r sample.Row) uint64 { return r.LimitBytes })},
		{"share_memory_promised_bytes", "Memory that is kept for it; a share without a promise has none.", nil, fromCore,
			optional(func(r sample.Row) *uint64 { return r.PromisedBytes })},
		{"share_memory_used_bytes", "Memory that its processes use.", nil, fromCore, bytes(func(r sample.Row) uint64 { return r.UsedBytes })},
		{"share_memory_peak_bytes", "The most that they have used: of one of them at any moment, of several together when it was looked at. Sums have none.", nil, fromCore, optional(func(r sample.Row) *uint64 { return r.PeakBytes })},
		{"share_memory_context_bytes", "Of the memory in use, what contexts cost.", nil, fromCore, bytes(func(r sample.Row) uint64 { return r.ContextBytes })},
		{"share_clients", "Processes attached to it.", nil, fromCore, bytes(func(r sample.Row) uint64 { return uint64(r.Clients) })},
		{"share_cores_limit_ratio", "Part of the GPU's time that a fixed share was promised; others have none.", nil, fromCore,
			ofShares(func(r sample.Row) *float64 { return r.Cores })},
		{"share_card_seconds_total", "GPU time that its processes used: what they measured, corrected for what others ran in between. None where nothing of Divvy is in them.", nil, fromPages + ", " + fromArbiter,
			nanoseconds(func(r sample.Row) *uint64 { return r.CardTimeNs })},
		{"share_wait_seconds_total", "How long their launches waited for a turn.", nil, fromPages, nanoseconds(func(r sample.Row) *uint64 { return r.WaitNs })},
		{"share_launches_total", "Calls that launch kernels and graphs, those that a capture records included.", nil, fromPages, optional(func(r sample.Row) *uint64 { return r.Launches })},
		{"share_denials_total", "Allocations that were refused.", []string{"reason"}, fromCore, func(r *reading, emit emit) {
			for _, one := range r.rows {
				for reason, n := range inOrder(one.Denials) {
					emit(float64(n), one.Share, one.Tenant, one.UUID, reason)
				}
			}
		}},
		{"share_overruns_total", "How often its work outlasted a turn so long that others went on beside it.", nil, fromArbiter,
			bytes(func(r sample.Row) uint64 { return r.Overruns })},
	}
}
