// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
)

func ns(n uint64) *uint64 { return &n }

// A card's share time is the sum of the snapshot's own shares, and of those that are gone.
func TestShareTimeIsTheSum(t *testing.T) {
	var s Series
	for number := uint64(1); number < 3; number++ {
		got := s.Next(api.Snapshot{
			Cards: []api.SnapshotCard{{UUID: "a"}, {UUID: "b"}},
			Shares: []api.SnapshotShare{
				{Cards: []api.SnapshotSlot{{CardUUID: "a", CardTimeNs: ns(3)}, {CardUUID: "b", CardTimeNs: ns(5)}}},
				{Cards: []api.SnapshotSlot{{CardUUID: "a", CardTimeNs: ns(7)}}}, {Cards: []api.SnapshotSlot{{CardUUID: "a"}}},
			},
			Gone: []api.SnapshotGone{{CardUUID: "b", CardTimeNs: 11}, {CardUUID: "a", CardTimeNs: 13}},
		})
		if got.Number != number || got.Cards[0].ShareTimeNs != 23 || got.Cards[1].ShareTimeNs != 16 || got.Gone[0].CardUUID != "a" {
			t.Errorf("%+v", got)
		}
	}
}

// A card that was slowed down counts until its driver says that it is not, once however often
// the same answer is read, and not through a long silence.
func TestSlowedFor(t *testing.T) {
	var s Series
	at := time.Unix(1000, 0)
	var last api.SlowedFor
	for _, step := range []struct {
		after time.Duration
		slow  api.Slowed
		want  api.SlowedFor
	}{
		{0, api.Slowed{Thermal: true}, api.SlowedFor{}},
		{0, api.Slowed{Thermal: true}, api.SlowedFor{}},
		{time.Second, api.Slowed{Thermal: true, Power: true}, api.SlowedFor{ThermalNs: 1e9}},
		{time.Second, api.Slowed{}, api.SlowedFor{ThermalNs: 2e9, PowerNs: 1e9}},
		{time.Hour, api.Slowed{Hardware: true}, api.SlowedFor{ThermalNs: 2e9, PowerNs: 1e9}},
		{time.Hour, api.Slowed{}, api.SlowedFor{ThermalNs: 2e9, PowerNs: 1e9, HardwareNs: uint64(maxPause)}},
	} {
		at = at.Add(step.after)
		asked := at
		got := s.Next(api.Snapshot{Cards: []api.SnapshotCard{{UUID: "a", SampledAt: &asked, Instruments: &api.Instruments{Slowed: &step.slow}}}})
		if last = *got.Cards[0].Instruments.SlowedFor; last != step.want {
			t.Errorf("%v: %+v, want %+v", step, last, step.want)
		}
	}
	if got := s.Next(api.Snapshot{Cards: []api.SnapshotCard{{UUID: "a", Instruments: &api.Instruments{}}}}); got.Cards[0].Instruments.SlowedFor != nil {
		t.Error("what is not known is a figure")
	}
}
