// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"reflect"
	"slices"
	"time"

	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/event"
	"github.com/divvy-gpu/divvy/kube/internal/names"
	"github.com/divvy-gpu/divvy/kube/internal/nodeagent"
)

const (
	healthInterval = 10 * time.Second // the kubelet forgets what it has not heard for 30 s
	lookInterval   = time.Minute      // in case that an event was missed
	migInterval    = 5 * time.Second  // MIG devices come and go without an event
)

// Run publishes the node's GPUs until ctx ends: when it starts, when an agent comes back,
// and when its events say that something changed. While the agent is away what was
// published stays: pods keep running without it.
func (d *Driver) Run(ctx context.Context, publisher Publisher) error {
	news := make(chan bool, 1) // true: at once
	poke := func(urgent bool) {
		select {
		case waiting := <-news:
			urgent = urgent || waiting
		default:
		}
		news <- urgent
	}
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		d.follow(ctx, poke)
	}()
	defer func() { <-followed }()
	look, migs := time.NewTicker(lookInterval), time.NewTicker(migInterval)
	defer look.Stop()
	defer migs.Stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var due time.Time // when timer fires; zero: it does not
	within := func(wait time.Duration) {
		if at := time.Now().Add(wait); due.IsZero() || at.Before(due) {
			due = at
			timer.Reset(wait)
		}
	}
	retry := nodeagent.RetryFirst
	for {
		select {
		case <-ctx.Done():
			return nil
		case urgent := <-news:
			if !urgent {
				within(d.config.Settle)
				continue
			}
		case <-look.C:
		case <-migs.C:
			// An agent that is away is asked again; what was published stays.
			if !d.changedMIG(ctx) {
				continue
			}
		case <-timer.C:
		}
		due = time.Time{}
		timer.Stop()
		if err := d.publish(ctx, publisher); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			d.config.Log.Warn("the node's GPUs cannot be published", "error", err)
			within(retry)
			retry = min(2*retry, nodeagent.RetryLast)
			continue
		}
		retry = nodeagent.RetryFirst
	}
}

// follow hears the agent's events.
func (d *Driver) follow(ctx context.Context, poke func(urgent bool)) {
	nodeagent.Follow(ctx, d.config.Agent, d.config.Log, func() { poke(true) }, func(kind event.Kind) {
		switch kind {
		case event.ShareCreated, event.ShareChanged, event.ShareDeleted, event.ShareRevoked, event.ShareLost, event.EnforcementChanged:
			poke(false)
		default:
			if nodeagent.OfHealth(kind) {
				poke(true)
			}
		}
	})
}

func (d *Driver) publish(ctx context.Context, publisher Publisher) error {
	cards, shares, err := d.look(ctx)
	if err != nil {
		return err
	}
	migs, err := d.config.MIG.List(ctx)
	if err != nil {
		return err
	}
	d.inMIG = slices.ContainsFunc(cards, func(c api.Card) bool { return c.Health == nodeagent.HealthUnshareable })
	parts, err := d.lookAtParts(ctx)
	if err != nil {
		return err
	}
	resources := resources(d.config.Node, cards, shares, migs, parts)
	d.setHealth(cards, resources.Pools[d.config.Node])
	if err := publisher.PublishResources(ctx, resources); err != nil {
		return err
	}
	d.migs, d.parts = migs, parts
	return nil
}

// changedMIG says whether MIG devices have come or gone, or what can be made has changed. An agent that
// is away is asked again; what was published stays.
func (d *Driver) changedMIG(ctx context.Context) bool {
	if now, err := d.config.MIG.List(ctx); err == nil && !slices.Equal(now, d.migs) {
		return true
	}
	now, err := d.lookAtParts(ctx)
	return err == nil && !reflect.DeepEqual(now, d.parts)
}

// lookAtParts asks for the MIG devices that are made and that can be. Where a driver does not answer
// it is what was published.
func (d *Driver) lookAtParts(ctx context.Context) (api.Instances, error) {
	if !d.inMIG {
		return api.Instances{}, nil
	}
	now, err := d.config.Instances.Instances(ctx)
	switch {
	case nodeagent.Code(err) == api.CodeNotFound: // an agent that makes none
		return api.Instances{}, nil
	case err == nil && now.Cards == nil:
		return d.parts, nil
	}
	return now, err
}

const maxLooks = 5

// look asks for GPUs and shares of the same moment: a share that came or went between the
// two answers would make a GPU look smaller or larger than it is.
func (d *Driver) look(ctx context.Context) ([]api.Card, []api.Share, error) {
	before, err := d.config.Agent.Shares(ctx)
	if err != nil {
		return nil, nil, err
	}
	for looks := 1; ; looks++ {
		devices, err := d.config.Agent.Devices(ctx)
		if err != nil {
			return nil, nil, err
		}
		after, err := d.config.Agent.Shares(ctx)
		if err != nil {
			return nil, nil, err
		}
		same := slices.EqualFunc(before.Shares, after.Shares, func(a, b api.Share) bool {
			return a.Name == b.Name && a.Created.Equal(b.Created) && a.State == b.State && a.MemoryBytes == b.MemoryBytes
		})
		if same || looks == maxLooks { // the next event comes soon, and with it the next look
			for i, card := range devices.Cards {
				if slices.Contains(devices.Unresponsive, card.UUID) {
					devices.Cards[i].Health = nodeagent.HealthUnresponsive
				}
			}
			return devices.Cards, after.Shares, nil
		}
		before = after
	}
}

func (d *Driver) setHealth(cards []api.Card, pool resourceslice.Pool) {
	now := time.Now()
	var all []kubeletplugin.DeviceHealth
	add := func(device string, card api.Card) {
		h := kubeletplugin.DeviceHealth{
			PoolName: d.config.Node, DeviceName: device, Health: kubeletplugin.HealthStatusUnhealthy, LastUpdated: now,
			Message: card.Health,
		}
		if card.HealthDetail != "" {
			h.Message += ": " + card.HealthDetail
		}
		switch card.Health {
		case nodeagent.HealthOK, nodeagent.HealthDegraded:
			h.Health = kubeletplugin.HealthStatusHealthy
		case "":
			h.Health = kubeletplugin.HealthStatusUnknown
		}
		all = append(all, h)
	}
	for _, card := range cards {
		add(names.Device(card.UUID), card)
		if card.Health == nodeagent.HealthUnshareable { // its MIG devices are well
			card.Health, card.HealthDetail = nodeagent.HealthOK, ""
		}
		for _, slice := range pool.Slices {
			for _, device := range slice.Devices {
				if of := device.Attributes[names.AttributeGPU].StringValue; of != nil && *of == card.UUID {
					add(device.Name, card)
				}
			}
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	same := slices.EqualFunc(all, d.health, func(a, b kubeletplugin.DeviceHealth) bool {
		return a.DeviceName == b.DeviceName && a.Health == b.Health && a.Message == b.Message
	})
	d.health = all
	if !same {
		close(d.changed)
		d.changed = make(chan struct{})
	}
}

// WatchHealthStatus tells the kubelet of the GPUs' health, again and again.
func (d *Driver) WatchHealthStatus(ctx context.Context, reports chan<- kubeletplugin.DeviceHealthReport) error {
	ticker := time.NewTicker(healthInterval)
	defer ticker.Stop()
	for {
		d.mu.Lock()
		report := kubeletplugin.DeviceHealthReport{Devices: slices.Clone(d.health)}
		changed := d.changed
		d.mu.Unlock()
		if len(report.Devices) > 0 {
			select {
			case <-ctx.Done():
				return nil
			case reports <- report:
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-ticker.C:
		}
	}
}
