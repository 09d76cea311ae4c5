// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"cmp"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/share"
)

// unnamed is the name under which shares are added up whose names the agent made up: a sum for
// each GPU and tenant, which stays when they go.
const unnamed = "-"

// row is a share on one GPU.
type row struct {
	share, tenant, uuid string
	of                  *api.SnapshotShare // nil: a sum

	limit, used, context       uint64
	promised                   *uint64 // of memory; nil: nothing was
	peak                       *uint64
	clients                    int
	cores                      *float64
	cardTime, waited, launched *uint64
	denials                    map[string]uint64
	overruns                   uint64
}

// noDenials has the reasons of which every share has a series from its creation: of memory with
// a promise, and without. Others come when they happen.
func noDenials(promised ...bool) map[string]uint64 {
	none := map[string]uint64{}
	for _, is := range promised {
		if is {
			none["over-quota"], none["shrinking"] = 0, 0
		} else {
			none["card-full"] = 0
		}
	}
	return none
}

func rowsOf(s *api.Snapshot) []row {
	var rows []row
	sums := map[[2]string]*row{}
	sumOf := func(tenant, uuid string) *row {
		tenant = strings.ToValidUTF8(tenant, "?") // as it is shown: none stands there twice
		sum := sums[[2]string{tenant, uuid}]
		if sum == nil {
			sum = &row{share: unnamed, tenant: tenant, uuid: uuid, cores: new(float64), promised: new(uint64), cardTime: new(uint64), waited: new(uint64), launched: new(uint64),
				denials: noDenials(true, false)}
			sums[[2]string{tenant, uuid}] = sum
		}
		return sum
	}
	for i := range s.Shares {
		of := &s.Shares[i]
		for _, slot := range of.Cards {
			one := row{share: of.Name, tenant: of.Tenant, uuid: slot.CardUUID, of: of, limit: slot.LimitBytes, used: slot.UsedBytes, context: slot.ContextBytes,
				peak: &slot.PeakBytes, clients: of.Clients, cardTime: slot.CardTimeNs, waited: slot.WaitNs, launched: slot.Launches, denials: noDenials(of.Promised),
				overruns: slot.Overruns}
			if of.Promised {
				one.promised = &slot.LimitBytes
			}
			if of.Policy == share.Fixed {
				part := float64(of.CoresPercent) / 100
				one.cores = &part
			}
			if of.Unnamed {
				sumOf(of.Tenant, slot.CardUUID).add(one, slot.Denials)
				continue
			}
			addUp(one.denials, slot.Denials)
			rows = append(rows, one)
		}
	}
	for _, gone := range s.Gone {
		if gone.Unnamed {
			sumOf(gone.Tenant, gone.CardUUID).add(row{cardTime: &gone.CardTimeNs, waited: &gone.WaitNs, launched: &gone.Launches, overruns: gone.Overruns}, gone.Denials)
		}
	}
	for _, sum := range sums {
		rows = append(rows, *sum)
	}
	slices.SortStableFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(a.share, b.share), cmp.Compare(a.tenant, b.tenant), cmp.Compare(a.uuid, b.uuid))
	})
	return rows
}

func addUp(to, from map[string]uint64) {
	for reason, n := range from {
		to[reason] += n
	}
}

// add adds a share to a sum.
func (r *row) add(one row, denials map[string]uint64) {
	r.limit += one.limit
	r.used += one.used
	r.context += one.context
	r.clients += one.clients
	r.overruns += one.overruns
	addUp(r.denials, denials)
	if one.cores != nil {
		*r.cores += *one.cores
	}
	for _, pair := range [][2]*uint64{{r.promised, one.promised}, {r.cardTime, one.cardTime}, {r.waited, one.waited}, {r.launched, one.launched}} {
		if pair[1] != nil {
			*pair[0] += *pair[1]
		}
	}
}

// ofShares is a metric with one series a share and GPU; nil: it is not known.
func ofShares(value func(row) *float64) func(*reading, emit) {
	return func(r *reading, emit emit) {
		for _, one := range r.rows {
			if v := value(one); v != nil {
				emit(*v, one.share, one.tenant, one.uuid)
			}
		}
	}
}

func bytes(value func(row) uint64) func(*reading, emit) {
	return ofShares(func(r row) *float64 { v := float64(value(r)); return &v })
}

// nanoseconds are shown as seconds.
func nanoseconds(value func(row) *uint64) func(*reading, emit) {
	return ofShares(func(r row) *float64 {
		ns := value(r)
		if ns == nil {
			return nil
		}
		v := seconds(*ns)
		return &v
	})
}

func shareMetrics() []metric {
	return []metric{
		{"share_info", "What was asked for and how it is; always 1. Sums have none.", []string{"policy", "enforcement", "state"}, fromCore,
			func(r *reading, emit emit) {
				for _, one := range r.rows {
					if one.of != nil {
						emit(1, one.share, one.tenant, one.uuid, string(one.of.Policy), string(one.of.Enforcement), one.of.State)
					}
				}
			}},
		{"share_memory_limit_bytes", "Its quota, or the GPU's memory.", nil, fromCore, bytes(func(r row) uint64 { return r.limit })},
		{"share_memory_promised_bytes", "Memory that is kept for it; a share without a promise has none.", nil, fromCore, ofShares(func(r row) *float64 {
			if r.promised == nil {
				return nil
			}
			v := float64(*r.promised)
			return &v
		})},
		{"share_memory_used_bytes", "Memory that its processes use.", nil, fromCore, bytes(func(r row) uint64 { return r.used })},
		{"share_memory_peak_bytes", "The most that they have used: of one of them at any moment, of several together when it was looked at. Sums have none.", nil, fromCore, ofShares(func(r row) *float64 {
			if r.peak == nil {
				return nil
			}
			v := float64(*r.peak)
			return &v
		})},
		{"share_memory_context_bytes", "Of the memory in use, what contexts cost.", nil, fromCore, bytes(func(r row) uint64 { return r.context })},
		{"share_clients", "Processes attached to it.", nil, fromCore, bytes(func(r row) uint64 { return uint64(r.clients) })},
		{"share_cores_limit_ratio", "Part of the GPU's time that a fixed share was promised; others have none.", nil, fromCore,
			ofShares(func(r row) *float64 { return r.cores })},
		{"share_card_seconds_total", "GPU time that its processes used: what they measured, corrected for what others ran in between. None where nothing of Divvy is in them.", nil, fromPages + ", " + fromArbiter,
			nanoseconds(func(r row) *uint64 { return r.cardTime })},
		{"share_wait_seconds_total", "How long their launches waited for a turn.", nil, fromPages, nanoseconds(func(r row) *uint64 { return r.waited })},
		{"share_launches_total", "Calls that launch kernels and graphs, those that a capture records included.", nil, fromPages, ofShares(func(r row) *float64 {
			if r.launched == nil {
				return nil
			}
			v := float64(*r.launched)
			return &v
		})},
		{"share_denials_total", "Allocations that were refused.", []string{"reason"}, fromCore, func(r *reading, emit emit) {
			for _, one := range r.rows {
				for reason, n := range inOrder(one.denials) {
					emit(float64(n), one.share, one.tenant, one.uuid, reason)
				}
			}
		}},
		{"share_overruns_total", "How often its work outlasted a turn so long that others went on beside it.", nil, fromArbiter,
			bytes(func(r row) uint64 { return r.overruns })},
	}
}
