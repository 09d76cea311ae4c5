// SPDX-License-Identifier: Apache-2.0

// Package sample makes the numbered snapshots of an agent out of what was read: it adds up
// what no source keeps, and gives sums that are of a snapshot's own parts, so that all views
// of one snapshot agree to the digit. It is pure: reading is the agent's, showing others'.
//
//	var s sample.Series
//	first := s.Next(read)
//
// Not here: asking drivers, prices, history.
package sample

import (
	"cmp"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
)

// Series numbers snapshots and knows what the one before said.
type Series struct {
	number uint64
	slowed map[string]slowed // by card
}

// slowed is for how long a card was seen slowed down.
type slowed struct {
	at  time.Time // of the last answer
	was api.Slowed
	sum api.SlowedFor
}

// maxPause is the longest time between two answers of a driver that what the first said is
// taken to have held.
const maxPause = 2 * time.Minute

// Next numbers what was read, and adds what follows from it and from what was read before.
func (s *Series) Next(read api.Snapshot) api.Snapshot {
	s.number++
	read.Schema, read.Number = api.SchemaSnapshot, s.number
	if s.slowed == nil {
		s.slowed = map[string]slowed{}
	}
	slices.SortFunc(read.Gone, func(a, b api.SnapshotGone) int {
		return cmp.Or(cmp.Compare(a.CardUUID, b.CardUUID), cmp.Compare(a.Tenant, b.Tenant), compareBool(a.Unnamed, b.Unnamed))
	})
	for i := range read.Cards {
		c := &read.Cards[i]
		c.ShareTimeNs = shareTime(read, c.UUID)
		if c.Instruments != nil && c.Instruments.Slowed != nil && c.SampledAt != nil {
			sum := s.slow(c.UUID, *c.SampledAt, *c.Instruments.Slowed)
			instruments := *c.Instruments // others may hold what was read
			instruments.SlowedFor = &sum
			c.Instruments = &instruments
		}
	}
	return read
}

// shareTime is what all shares used of a card.
func shareTime(read api.Snapshot, uuid string) (sum uint64) {
	for _, share := range read.Shares {
		for _, slot := range share.Cards {
			if slot.CardUUID == uuid && slot.CardTimeNs != nil {
				sum += *slot.CardTimeNs
			}
		}
	}
	for _, gone := range read.Gone {
		if gone.CardUUID == uuid {
			sum += gone.CardTimeNs
		}
	}
	return sum
}

// slow adds the time since the last answer of a card's driver, if that said that it was slowed
// down.
func (s *Series) slow(uuid string, at time.Time, is api.Slowed) api.SlowedFor {
	before := s.slowed[uuid]
	if passed := at.Sub(before.at); !before.at.IsZero() && passed > 0 {
		ns := uint64(min(passed, maxPause))
		for _, add := range []struct {
			was bool
			to  *uint64
		}{{before.was.Thermal, &before.sum.ThermalNs}, {before.was.Power, &before.sum.PowerNs}, {before.was.Hardware, &before.sum.HardwareNs}} {
			if add.was {
				*add.to += ns
			}
		}
	}
	before.at, before.was = at, is
	s.slowed[uuid] = before
	return before.sum
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
