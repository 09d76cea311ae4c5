// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/core"
	"github.com/divvy-gpu/divvy/internal/event"
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
	// Somebody has to look at a GPU that fell off the bus before it takes shares again.
	_, err := r.client.CreateShare(t.Context(), api.ShareSpec{Name: "bob", MemoryBytes: gib})
	wantCode(t, err, api.CodeUnavailable)
	if c := r.card(); c.Cordon == nil || !c.Cordon.Automatic || c.Cordon.LiftSeconds != 0 || c.Cordon.UID != nil {
		t.Errorf("%+v", c.Cordon)
	}
	_, err = r.client.Uncordon(t.Context(), testUUID)
	must(t, err)
	r.share(api.ShareSpec{Name: "bob", MemoryBytes: gib})
}

// What somebody cordons takes no new share until it is uncordoned, also by the next agent; what
// is on it goes on.
func TestCordon(t *testing.T) {
	r := newRig(t)
	r.share(api.ShareSpec{Name: "alice", MemoryBytes: gib})
	if _, err := r.client.Cordon(t.Context(), "GPU-nonsense", ""); err == nil {
		t.Error("a GPU that is not there is cordoned")
	} else {
		wantCode(t, err, api.CodeNotFound)
	}
	for _, reason := range []string{strings.Repeat("x", 257), "a\nb"} {
		_, err := r.client.Cordon(t.Context(), testUUID, reason)
		wantCode(t, err, api.CodeUsage)
	}
	is, err := r.client.Cordon(t.Context(), testUUID[:12], "ticket 4711")
	must(t, err)
	if is.CardUUID != testUUID || is.Cordon == nil || is.Cordon.Automatic || *is.Cordon.UID != os.Getuid() || is.Cordon.Reason != "ticket 4711" {
		t.Errorf("%+v", is)
	}
	r.awaitEvent("card-cordoned")
	r.front("alice")
	for range 2 {
		_, err = r.client.CreateShare(t.Context(), api.ShareSpec{Name: "bob", MemoryBytes: gib})
		wantCode(t, err, api.CodeUnavailable)
		if !strings.Contains(err.Error(), "ticket 4711") {
			t.Errorf("refused with %v", err)
		}
		snapshot, err := r.client.Snapshot(t.Context())
		must(t, err)
		if c := snapshot.Cards[0].Cordon; c == nil || c.Reason != "ticket 4711" {
			t.Errorf("the snapshot has %+v", c)
		}
		r.kill()
		r.start()
	}
	is, err = r.client.Uncordon(t.Context(), testUUID)
	must(t, err)
	if is.Cordon != nil {
		t.Errorf("%+v", is)
	}
	r.awaitEvent("card-uncordoned")
	r.share(api.ShareSpec{Name: "bob", MemoryBytes: gib})
}

// Each XID counts, the same one twice too, by number and by class, also for the next agent;
// clocks that are held down are a fault of their own, once.
func TestFaultsCount(t *testing.T) {
	r := newRig(t, func(c *Config) { c.LookEvery = 10 * time.Millisecond })
	r.source.become(gpu.Health{State: gpu.Degraded, Detail: "slowed down: too hot", Slowed: "slowed down: too hot"}, 31)
	r.source.become(gpu.Health{State: gpu.Degraded, Detail: "slowed down: too hot", Slowed: "slowed down: too hot"}, 31)
	r.source.become(gpu.Health{State: gpu.Degraded, Detail: "slowed down: too hot", Slowed: "slowed down: too hot"}, 999)
	for range 2 {
		eventually(t, "all are counted", func() bool {
			s, err := r.client.Snapshot(t.Context())
			must(t, err)
			c := s.Cards[0]
			return fmt.Sprint(c.XIDs) == "[{31 2} {999 1}]" && c.Faults["application"] == 2 && c.Faults["watch"] == 1 && c.Faults["slowed"] == 1 &&
				len(c.Faults) == 6 && c.Cordon == nil
		})
		must(t, r.stop())
		r.source.mutex.Lock()
		r.source.health = gpu.Health{State: gpu.Well}
		r.source.mutex.Unlock()
		r.start()
	}
}

// A program of which nothing ends is told of once, if its GPU works for it.
func TestStuck(t *testing.T) {
	r := newRig(t, func(c *Config) { c.StuckAfter, c.LookEvery = 50*time.Millisecond, 10*time.Millisecond })
	r.share(api.ShareSpec{Name: "a", MemoryBytes: gib})
	f := r.front("a")
	f.work(time.Second, time.Millisecond)
	told := func() (n int) {
		list, err := r.client.Events(t.Context(), 0)
		must(t, err)
		for _, e := range list.Events {
			if e.Kind == event.ClientStuck {
				n++
			}
		}
		return n
	}
	<-time.After(200 * time.Millisecond)
	if told() != 0 {
		t.Error("told of a program that the GPU does not work for: it may not look whether its work has ended")
	}
	r.source.mutex.Lock()
	r.source.activity.Processes = []gpu.ProcessActivity{{PID: os.Getpid(), Percent: 100}}
	r.source.mutex.Unlock()
	if e := r.awaitEvent(event.ClientStuck); e.Share != "a" || e.PID != os.Getpid() {
		t.Errorf("%+v", e)
	}
	stuck := func() *uint64 { return r.fresh().Shares[0].Processes[0].Cards[0].StuckNs }
	if ns := stuck(); ns == nil || *ns < uint64(50*time.Millisecond) {
		t.Errorf("a snapshot says %v", ns)
	}
	f.work(2*time.Second, time.Millisecond) // something has ended
	eventually(t, "it is told again", func() bool { return told() == 2 })
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
				saved, _, _, err := readState(filepath.Join(t.TempDir(), "journal"))
				must(t, err)
				defer saved.journal.Close()
				l := &loop{
					slowed: map[string]bool{},
					daemon: newDaemon(defaults(), &s, cards, nil),
					state:  saved, pages: &pages{}, core: core.New(core.Config{}, []core.Card{{UUID: testUUID}}, &pages{}),
				}
				ctx, leave := context.WithCancel(t.Context())
				s.enough = leave
				end := make(chan struct{})
				d := l.driverWatch
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
