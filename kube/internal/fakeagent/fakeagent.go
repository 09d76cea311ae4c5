// SPDX-License-Identifier: Apache-2.0

// Package fakeagent is an agent for tests: the real ledger over GPUs that are said to be
// there, without sockets, processes and a driver.
package fakeagent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/client"
	"github.com/divvy-gpu/divvy/internal/core"
	"github.com/divvy-gpu/divvy/internal/share"
)

const contextBytes = 64 << 20

// Agent answers as an agent does. It is safe for concurrent use.
type Agent struct {
	// FailAt makes the nth question to it fail; every second time it was carried out all
	// the same. Zero: none.
	FailAt int
	// Full makes so many requests for a share find no room.
	Full int

	// Busy makes so many requests to destroy an instance find a program that uses it.
	Busy int

	mu     sync.Mutex
	calls  int
	made   []api.Instance
	ledger *core.Core
	health map[string]string
}

// New returns an agent of GPUs of one size, by their UUIDs.
func New(memoryBytes uint64, uuids ...string) *Agent {
	var cards []core.Card
	for i, uuid := range uuids {
		cards = append(cards, core.Card{
			UUID: uuid, Name: "A100", PCIAddress: fmt.Sprintf("0000:%02x:00.0", 0x65+i), UsableBytes: memoryBytes, ContextBytes: contextBytes,
			Island: i,
		})
	}
	config := core.Config{MaxShares: 1000, MaxClients: 1000, MaxShareClients: 1000, EphemeralGrace: time.Hour, ShrinkDeadline: time.Hour}
	return &Agent{ledger: core.New(config, cards, credits{}), health: map[string]string{}}
}

// question counts a call; done is called when it is carried out.
func (a *Agent) question(done func() error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls++
	broken := fmt.Errorf("ask: %w", client.ErrUnreachable)
	if a.calls != a.FailAt {
		return failure(done())
	}
	if a.calls%2 == 0 {
		return errors.Join(broken, failure(done()))
	}
	return broken
}

// Devices lists the GPUs.
func (a *Agent) Devices(context.Context) (devices api.Devices, err error) {
	return devices, a.question(func() error {
		for _, c := range a.ledger.Cards() {
			health := a.health[c.UUID]
			if health == "" {
				health = "ok"
			}
			island := c.Island
			devices.Cards = append(devices.Cards, api.Card{
				UUID: c.UUID, Name: c.Name, PCIAddress: c.PCIAddress, Simulated: true, DriverVersion: "535.0", MemoryBytes: c.UsableBytes,
				BookedBytes: c.BookedBytes, FreeToBookBytes: c.FreeToBookBytes, ContextBytes: c.ContextBytes, CoresBooked: c.CoresBooked, Shares: c.Shares,
				Health: health, Enforcement: share.EnforcedFront, Island: &island,
			})
		}
		return nil
	})
}

// Shares lists the shares.
func (a *Agent) Shares(ctx context.Context) (api.Shares, error) { return a.SharesWith(ctx, nil) }

// SharesWith lists the shares that have all of these labels.
func (a *Agent) SharesWith(_ context.Context, labels share.Labels) (shares api.Shares, err error) {
	return shares, a.question(func() error {
		for _, v := range a.ledger.Shares() {
			if v.Labels.Match(labels) {
				shares.Shares = append(shares.Shares, apiShare(v))
			}
		}
		return nil
	})
}

// EnsureShare makes a share, or finds it as asked for.
func (a *Agent) EnsureShare(_ context.Context, spec api.ShareSpec) (made api.Share, isNew bool, err error) {
	err = a.question(func() error {
		if a.Full > 0 {
			a.Full--
			return &api.Error{Code: api.CodeNoRoom, Message: "no room"}
		}
		view, created, err := a.ledger.EnsureShare(time.Unix(1, 0), core.Spec{
			Name: spec.Name, GPU: spec.GPU, GPUs: spec.GPUs, MemoryBytes: spec.MemoryBytes, CoresPercent: spec.CoresPercent, Policy: spec.Policy,
			Weight: spec.Weight, Tenant: spec.Tenant, Labels: spec.Labels, Enforce: spec.Enforce, Exclusive: spec.Exclusive,
		}, 0)
		made, isNew = apiShare(view), created
		return err
	})
	return made, isNew, err
}

// DeleteShare removes a share.
func (a *Agent) DeleteShare(_ context.Context, name string, force bool) error {
	return a.question(func() error { return a.ledger.DeleteShare(time.Unix(2, 0), name, force, 0) })
}

// Instances lists the MIG instances that were made.
func (a *Agent) Instances(context.Context) (all api.Instances, err error) {
	return all, a.question(func() error {
		all.Instances = slices.Clone(a.made)
		return nil
	})
}

// EnsureInstance makes one, or books one that is there, or finds it as asked for; no other has its place.
func (a *Agent) EnsureInstance(_ context.Context, spec api.InstanceSpec) (made api.Instance, isNew bool, err error) {
	err = a.question(func() error {
		for _, i := range a.made {
			place := i.GPU == spec.GPU && i.Device == spec.Device && (i.Device != "" || *i.Start == *spec.Start)
			switch {
			case i.Name == spec.Name && place && i.Profile == spec.Profile && maps.Equal(i.Labels, spec.Labels):
				made = i
				return nil
			case i.Name == spec.Name:
				return &api.Error{Code: api.CodeExists, Message: "another"}
			case place:
				return &api.Error{Code: api.CodeNoRoom, Message: "no room"}
			}
		}
		made, isNew = api.Instance{InstanceSpec: spec, Devices: []string{cmp.Or(spec.Device, "MIG-"+spec.Name)}}, true
		a.made = append(a.made, made)
		return nil
	})
	return made, isNew, err
}

// DeleteInstance destroys one.
func (a *Agent) DeleteInstance(_ context.Context, name string) error {
	return a.question(func() error {
		at := slices.IndexFunc(a.made, func(i api.Instance) bool { return i.Name == name })
		if at < 0 {
			return &api.Error{Code: api.CodeNotFound, Message: "no " + name}
		}
		if a.Busy > 0 {
			a.Busy--
			return &api.Error{Code: api.CodeNotAllowed, Message: "in use"}
		}
		a.made = slices.Delete(a.made, at, at+1)
		return nil
	})
}

// Made lists them without counting as a question.
func (a *Agent) Made() []api.Instance {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.made)
}

// Follow waits.
func (a *Agent) Follow(ctx context.Context, _ uint64, _ func(api.Event) error) error {
	<-ctx.Done()
	return ctx.Err()
}

// Held lists the shares without counting as a question.
func (a *Agent) Held() (shares []api.Share) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, v := range a.ledger.Shares() {
		shares = append(shares, apiShare(v))
	}
	return shares
}

// Run puts a program under a share; what it returns ends it.
func (a *Agent) Run(name string) (end func(), err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls++
	id := core.ClientID(a.calls)
	if err := a.ledger.Attach(time.Unix(1, 0), id, name, core.Process{PID: a.calls}); err != nil {
		return nil, err
	}
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.ledger.Detach(time.Unix(3, 0), id)
		a.ledger.Died(time.Unix(3, 0), id)
		for _, c := range a.ledger.Cards() {
			a.ledger.Reconcile(time.Unix(4, 0), c.UUID, core.Account{At: time.Unix(4, 0)})
		}
	}, nil
}

// Become gives a GPU another health.
func (a *Agent) Become(uuid, health string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.health[uuid] = health
}

func apiShare(v core.ShareView) api.Share {
	s := api.Share{
		ShareSpec: api.ShareSpec{
			Name: v.Name, GPU: v.GPU, GPUs: v.GPUs, MemoryBytes: v.MemoryBytes, CoresPercent: v.CoresPercent, Policy: v.Policy, Weight: v.Weight,
			Tenant: v.Tenant, Labels: v.Labels, Enforce: v.Enforce, Exclusive: v.Exclusive,
		},
		CardUUID: v.CardUUID, CardName: v.CardName, State: v.State, LimitBytes: v.LimitBytes, UsedBytes: v.UsedBytes, Clients: v.Clients,
		Enforcement: share.EnforcedFront, Created: v.Created,
	}
	if len(v.Slots) > 1 {
		for _, slot := range v.Slots {
			s.Cards = append(s.Cards, api.ShareCard{CardUUID: slot.CardUUID})
		}
	}
	return s
}

// failure is what the interface makes of the ledger's.
func failure(err error) error {
	var f *core.Failure
	if !errors.As(err, &f) {
		return err
	}
	return &api.Error{Code: api.Code(f.Kind), Message: f.Message, Hint: f.Hint, Differs: f.Differs}
}

// credits of programs that take nothing.
type credits struct{}

func (credits) Recall(core.ClientID, int, uint64, uint64) uint64 { return 0 }
func (credits) Grant(core.ClientID, int, uint64)                 {}
func (credits) Charge(core.ClientID, int, uint64)                {}
func (credits) Hand(core.ClientID, int, uint64)                  {}
func (credits) Discharge(core.ClientID, int, uint64)             {}
func (credits) Hold(core.ClientID, int, uint64)                  {}
func (credits) Read(core.ClientID, int) (core.Reading, bool)     { return core.Reading{}, true }
