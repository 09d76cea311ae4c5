// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"cmp"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/share"
)

// Unnamed is the name under which shares are added up whose names the agent made up: a sum for
// each GPU and tenant, which stays when they go.
const Unnamed = "-"

// Row is a share on one GPU, as metrics and history show it. What is not known is nil.
type Row struct {
	Share, Tenant, UUID string
	Of                  *api.SnapshotShare // nil: a sum

	LimitBytes, UsedBytes, ContextBytes uint64
	PromisedBytes                       *uint64 // nil: nothing was
	PeakBytes                           *uint64
	Clients                             int
	Cores                               *float64 // part of the GPU's time that a fixed share was promised
	CardTimeNs, WaitNs, Launches        *uint64
	Denials                             map[string]uint64 // by reason
	Overruns                            uint64
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

// Rows are a snapshot's shares on each of their GPUs, by name.
func Rows(s *api.Snapshot) []Row {
	rows := make([]Row, 0, len(s.Shares))
	sums := map[[2]string]*Row{}
	sumOf := func(tenant, uuid string) *Row {
		tenant = strings.ToValidUTF8(tenant, "?") // as it is shown: none is given twice
		sum := sums[[2]string{tenant, uuid}]
		if sum == nil {
			sum = &Row{Share: Unnamed, Tenant: tenant, UUID: uuid, Cores: new(float64), PromisedBytes: new(uint64), CardTimeNs: new(uint64), WaitNs: new(uint64), Launches: new(uint64),
				Denials: noDenials(true, false)}
			sums[[2]string{tenant, uuid}] = sum
		}
		return sum
	}
	for i := range s.Shares {
		of := &s.Shares[i]
		for _, slot := range of.Cards {
			one := Row{Share: of.Name, Tenant: of.Tenant, UUID: slot.CardUUID, Of: of, LimitBytes: slot.LimitBytes, UsedBytes: slot.UsedBytes, ContextBytes: slot.ContextBytes,
				PeakBytes: &slot.PeakBytes, Clients: of.Clients, CardTimeNs: slot.CardTimeNs, WaitNs: slot.WaitNs, Launches: slot.Launches, Denials: noDenials(of.Promised),
				Overruns: slot.Overruns}
			if of.Promised {
				one.PromisedBytes = &slot.LimitBytes
			}
			if of.Policy == share.Fixed {
				part := float64(of.CoresPercent) / 100
				one.Cores = &part
			}
			if of.Unnamed {
				sumOf(of.Tenant, slot.CardUUID).add(one, slot.Denials)
				continue
			}
			addUp(one.Denials, slot.Denials)
			rows = append(rows, one)
		}
	}
	for _, gone := range s.Gone {
		if gone.Unnamed {
			sumOf(gone.Tenant, gone.CardUUID).add(Row{CardTimeNs: &gone.CardTimeNs, WaitNs: &gone.WaitNs, Launches: &gone.Launches, Overruns: gone.Overruns}, gone.Denials)
		}
	}
	for _, sum := range sums {
		rows = append(rows, *sum)
	}
	slices.SortStableFunc(rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Share, b.Share), cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.UUID, b.UUID))
	})
	return rows
}

func addUp(to, from map[string]uint64) {
	for reason, n := range from {
		to[reason] += n
	}
}

// add adds a share to a sum.
func (r *Row) add(one Row, denials map[string]uint64) {
	r.LimitBytes += one.LimitBytes
	r.UsedBytes += one.UsedBytes
	r.ContextBytes += one.ContextBytes
	r.Clients += one.Clients
	r.Overruns += one.Overruns
	addUp(r.Denials, denials)
	if one.Cores != nil {
		*r.Cores += *one.Cores
	}
	for _, pair := range [][2]*uint64{{r.PromisedBytes, one.PromisedBytes}, {r.CardTimeNs, one.CardTimeNs}, {r.WaitNs, one.WaitNs}, {r.Launches, one.Launches}} {
		if pair[1] != nil {
			*pair[0] += *pair[1]
		}
	}
}
