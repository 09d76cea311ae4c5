// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/core"
	"github.com/divvy-gpu/divvy/internal/gpu"
)

func (r *rig) card() api.Card {
	r.t.Helper()
	list, err := r.client.Devices(r.t.Context())
	must(r.t, err)
	return list.Cards[0]
}

// A card that is lost is told of, with the shares on it, takes no new share, and
// the agent goes on; so it does when the card is back.
func TestLostCard(t *testing.T) {
	r := newRig(t)
	r.share(api.ShareSpec{Name: "alice", MemoryBytes: 8 * gib})
	if c := r.card(); c.Health != "ok" || c.HealthDetail != "" {
		t.Errorf("at first: %+v", c)
	}
	r.source.become(gpu.Health{State: gpu.Lost, Detail: "it has fallen off the bus"}, 79)
	if e := r.awaitEvent("card-fault"); e.CardUUID != testUUID || !strings.Contains(e.Message, "XID 79: the GPU has fallen off the bus") {
		t.Errorf("event %+v", e)
	}
	if e := r.awaitEvent("card-lost"); e.CardUUID != testUUID {
		t.Errorf("event %+v", e)
	}
	if e := r.awaitEvent("share-unusable"); e.Share != "alice" {
		t.Errorf("event %+v", e)
	}
	if c := r.card(); c.Health != "lost" || c.HealthDetail == "" {
		t.Errorf("lost: %+v", c)
	}
	if _, err := r.client.CreateShare(t.Context(), api.ShareSpec{Name: "bob", MemoryBytes: gib}); err == nil || !strings.Contains(err.Error(), "fallen off the bus") {
		t.Errorf("a share on a lost GPU: %v", err)
	}
	// Nothing tells of its return: the agent looks.
	r.source.mutex.Lock()
	r.source.health = gpu.Health{State: gpu.Well}
	r.source.mutex.Unlock()
	r.awaitEvent("card-well")
	if e := r.awaitEvent("share-usable"); e.Share != "alice" {
		t.Errorf("event %+v", e)
	}
	r.share(api.ShareSpec{Name: "bob", MemoryBytes: gib})
}

// A card that somebody divides, of which no driver tells, takes no share from then
// on, and its share is told; so when it is whole again.
func TestDividedCard(t *testing.T) {
	r := newRig(t)
	r.share(api.ShareSpec{Name: "alice", MemoryBytes: 8 * gib})
	set := func(health gpu.Health) {
		r.source.mutex.Lock()
		defer r.source.mutex.Unlock()
		r.source.health = health
	}
	set(gpu.Health{State: gpu.Unshareable, Detail: "MIG mode is on"})
	_, err := r.client.CreateShare(t.Context(), api.ShareSpec{Name: "bob", MemoryBytes: gib})
	wantCode(t, err, api.CodeUnavailable)
	if !strings.Contains(err.Error(), "MIG mode is on") {
		t.Errorf("refused with %v", err)
	}
	if e := r.awaitEvent("card-unshareable"); e.CardUUID != testUUID || !strings.Contains(e.Message, "MIG mode is on") {
		t.Errorf("event %+v", e)
	}
	if e := r.awaitEvent("share-unusable"); e.Share != "alice" {
		t.Errorf("event %+v", e)
	}
	if c := r.card(); c.Health != "unshareable" || c.HealthDetail != "MIG mode is on" {
		t.Errorf("divided: %+v", c)
	}
	set(gpu.Health{State: gpu.Well})
	r.share(api.ShareSpec{Name: "bob", MemoryBytes: gib})
	if e := r.awaitEvent("share-usable"); e.Share != "alice" {
		t.Errorf("event %+v", e)
	}
}

// A driver that cannot be asked leaves what is known.
func TestHealthOfABrokenDriver(t *testing.T) {
	r := newRig(t)
	if c := r.card(); c.Health != "ok" {
		t.Errorf("at first: %+v", c)
	}
	r.source.fail(gpu.ErrNoDriver)
	if c := r.card(); c.Health != "ok" {
		t.Errorf("when the driver does not answer: %+v", c)
	}
}

// hastySource answers every question for faults at once, and the same way.
type hastySource struct {
	*fakeSource
	faults []gpu.Fault
	err    error
	asked  int
	enough func() // called when it has been asked far too often
}

func (s *hastySource) Faults(time.Duration) ([]gpu.Fault, error) {
	if s.asked++; s.asked > 100000 {
		s.enough()
	}
	return s.faults, s.err
}

// Whatever a driver answers, and however soon, it is asked for faults four times a
// second at most.
func TestHastyDriver(t *testing.T) {
	for name, s := range map[string]hastySource{
		"nothing":        {},
		"faults":         {faults: []gpu.Fault{{UUID: testUUID, XID: 79}}},
		"strange faults": {faults: make([]gpu.Fault, 100)},
		"not supported":  {err: gpu.ErrNotSupported},
		"no driver":      {err: gpu.ErrNoDriver},
		"no GPU":         {err: gpu.ErrNoCard},
		"anything":       {err: errors.New("anything")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s.fakeSource = newFakeSource()
				cards, _ := s.Cards()
				l := &loop{
					daemon: &daemon{clock: monotonic,
						cfg: defaults(), cards: cards, driver: newDriver(&s, cards), events: newEventLog(10),
						jobs: newFairQueue[*job](), stopped: make(chan struct{}), samples: newSampler(),
					},
					state: &state{}, pages: &pages{}, core: core.New(core.Config{}, []core.Card{{UUID: testUUID}}, &pages{}),
				}
				ctx, leave := context.WithCancel(t.Context())
				s.enough = leave
				end := make(chan struct{})
				d := l.daemon
				go l.run(ctx, end)
				go d.watchCards(ctx)
				const seconds = 100
				<-time.After(seconds * time.Second)
				synctest.Wait()
				if s.asked < seconds/10 || s.asked > 4*seconds+1 {
					t.Errorf("asked %d times in %d seconds", s.asked, seconds)
				}
				leave()
				close(end)
			})
		})
	}
}
