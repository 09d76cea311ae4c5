// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/wire"
)

const (
	secondUUID = "GPU-10111213-1415-1617-1819-1a1b1c1d1e1f"
	thirdUUID  = "GPU-20212223-2425-2627-2829-2a2b2c2d2e2f"
)

// newRigOfThree has three GPUs, of which the first and the last are linked.
func newRigOfThree(t *testing.T) *rig {
	t.Helper()
	r := newRig(t)
	must(t, r.stop())
	r.source.more = []gpu.Card{
		{UUID: secondUUID, Name: "H100 (simulated)", PCIAddress: "0000:02:00.0", MemoryBytes: 80 * gib, Simulated: true},
		{UUID: thirdUUID, Name: "L4 (simulated)", PCIAddress: "0000:03:00.0", MemoryBytes: 24 * gib, Simulated: true},
	}
	r.source.links = []gpu.Link{{A: "0000:01:00.0", B: "0000:03:00.0"}}
	r.source.others = map[string]map[int]uint64{}
	r.start()
	return r
}

// charge asks for memory of one GPU.
func (f *front) charge(slot uint32, bytes uint64) (wire.Message, error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	answer, _, err := f.call(wire.Message{Type: wire.Charge, Slot: slot, Kind: wire.ChargeFinal, Amount: bytes})
	return answer, err
}

// A share of several GPUs: its page has a slot for each, with its own quota, credit and
// lease; messages go by slot.
func TestSlots(t *testing.T) {
	r := newRigOfThree(t)
	share := r.share(api.ShareSpec{Name: "two", GPUs: 2, MemoryBytes: gib, CoresPercent: 30})
	if got := share.CardUUIDs(); !slices.Equal(got, []string{testUUID, thirdUUID}) {
		t.Fatalf("on %q, and the first and the third are linked", got)
	}
	one, two := r.front("two"), r.front("two")
	words := one.limits.Load().Read()
	if words.Cards != 2 || words.Card[0].LimitBytes != gib || words.Card[1].LimitBytes != gib || words.Card[1].CoresPercent != 30 ||
		words.Card[0].UUID == words.Card[1].UUID {
		t.Fatalf("page %+v", words)
	}
	for slot := range uint32(2) {
		if a, err := one.charge(slot, 700*mib); err != nil || a.Type != wire.Charged {
			t.Fatalf("slot %d: %+v, %v", slot, a, err)
		}
		if a, err := two.charge(slot, 700*mib); err != nil || a.Type != wire.Denied {
			t.Fatalf("slot %d: %+v, %v", slot, a, err)
		}
		if granted, credit := one.page.Load().Memory(int(slot)); granted-credit != 700*mib {
			t.Errorf("slot %d: %d of %d used", slot, granted-credit, granted)
		}
	}

	// A lease of one GPU is none of the other.
	must(t, one.send(one.request(wire.Message{Type: wire.LeaseWant, Slot: 1})))
	eventually(t, "a lease of slot 1", func() bool { return one.limits.Load().Lease(1).EndNs > 0 })
	if other := one.limits.Load().Lease(0); !other.Gated || other.EndNs != 0 {
		t.Errorf("lease of slot 0: %+v", other)
	}

	shares, err := r.client.Shares(context.Background())
	must(t, err)
	s := shares.Shares[0]
	if s.UsedBytes != 1400*mib || s.LimitBytes != 2*gib || s.Denials != 2 || len(s.Cards) != 2 ||
		s.Cards[1].UsedBytes != 700*mib || s.Cards[1].LimitBytes != gib || s.Cards[1].Denials != 1 || s.Cards[1].CardName != "L4 (simulated)" {
		t.Errorf("share %+v", s)
	}
	clients, err := r.client.Clients(context.Background())
	must(t, err)
	if c := clients.Clients[0]; len(c.Cards) != 2 || c.UsedBytes != 1400*mib || c.Cards[1].UsedBytes != 700*mib || c.Cards[1].CardUUID != thirdUUID {
		t.Errorf("client %+v", c)
	}

	// What a restarted agent is told, and what it has written.
	must(t, r.stop())
	r.start()
	one.mutex.Lock()
	_ = one.conn.Close()
	must(t, one.dial())
	_, used0 := one.page.Load().SetAside(0)
	_, used1 := one.page.Load().SetAside(1)
	must(t, one.hello([wire.MaxCards]uint64{used0, used1}))
	one.mutex.Unlock()
	must(t, r.awaitShare("two", func(s api.Share) bool { return s.Cards[0].UsedBytes >= 700*mib && s.Cards[1].UsedBytes >= 700*mib }))

	// A slot that the share has not ends the connection.
	if a, err := one.charge(2, mib); err == nil {
		t.Errorf("slot 2 of two: %+v", a)
	}
}

func (r *rig) awaitShare(name string, f func(api.Share) bool) error {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var last error
	eventually(r.t, "share "+name, func() bool {
		var s api.Share
		s, last = r.client.Share(ctx, name)
		return last != nil || f(s)
	})
	return last
}
