// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"testing"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/simgpu"
	"github.com/divvy-gpu/divvy/internal/simgpu/condition"
)

// A GPU is lost while others attack: who is on another GPU notices nothing, the loss is
// told, and what is new goes elsewhere. The control is the GPU that is lost: its
// programs get errors.
func TestGPULostUnderAttack(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, hostOptions{cards: "2xH100-80GB"})
	devices, err := c.client.Devices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	lost, well := devices.Cards[0].UUID, devices.Cards[1].UUID
	for name, gpu := range map[string]string{"witness": well, "on-the-lost": lost} {
		if _, err := c.client.CreateShare(t.Context(), api.ShareSpec{Name: name, GPU: gpu, MemoryBytes: witnessQuota}); err != nil {
			t.Fatal(err)
		}
	}
	w := c.witnessOf(t, c.look(t, "witness"))
	victim := c.holder(t, c.look(t, "on-the-lost"))
	do(t, victim, "start")
	address := alloc(t, victim, mib)
	var attacks []*attack
	for i, uid := range []int{attackerOne, attackerTwo} {
		attacks = append(attacks, c.attack(t, uid, uint64(i), c.look(t, "on-the-lost").Socket, "storm", "claims", "places", "lies", "events", "churn", "rubbish", "burn"))
	}
	if _, _, err := c.truth(t).Inject(t.Context(), simgpu.Injection{Fault: condition.Fault{Kind: condition.CardLost}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the loss is told", func() error {
		events, err := c.client.Events(t.Context(), 0)
		if err != nil {
			return err
		}
		for _, e := range events.Events {
			if e.Kind == "card-lost" && e.CardUUID == lost {
				return nil
			}
		}
		return errors.New("no event says so")
	})
	if _, err := victim.Do("write %d 4096", address); err == nil {
		t.Error("a program on the lost GPU notices nothing")
	}
	made, err := c.client.CreateShare(t.Context(), api.ShareSpec{Name: "new", MemoryBytes: witnessQuota})
	if err != nil || made.CardUUID != well {
		t.Errorf("a new share: %+v, %v", made, err)
	}
	w.content(t, c.host)
	for i, a := range attacks {
		done := a.end(t)
		if delete(done, "connections"); len(done) == 0 {
			t.Errorf("attacker %d did nothing", i)
		}
	}
	w.content(t, c.host)
}
