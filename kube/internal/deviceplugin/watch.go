// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/event"
	"github.com/divvy-gpu/divvy/internal/share"
	"github.com/divvy-gpu/divvy/kube/internal/names"
	"github.com/divvy-gpu/divvy/kube/internal/nodeagent"
)

const (
	reapInterval = 500 * time.Millisecond
	lookInterval = time.Minute // in case that an event was missed
)

// Run takes back the shares of pods that have ended, and watches the GPUs' health, until ctx
// ends.
func (p *Plugin) Run(ctx context.Context) {
	news := make(chan struct{}, 1)
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		p.follow(ctx, news)
	}()
	defer func() { <-followed }()
	reap, look := time.NewTicker(reapInterval), time.NewTicker(lookInterval)
	defer reap.Stop()
	defer look.Stop()
	known := false // the shares of an earlier life are
	for {
		select {
		case <-ctx.Done():
			return
		case <-news:
			known = p.look(ctx)
		case <-look.C:
			known = p.look(ctx)
		case <-reap.C:
			if !known {
				known = p.look(ctx)
			}
			p.reap(ctx)
		}
	}
}

// follow hears of GPUs; an agent that is back is looked at anew.
func (p *Plugin) follow(ctx context.Context, news chan<- struct{}) {
	poke := func() {
		select {
		case news <- struct{}{}:
		default:
		}
	}
	nodeagent.Follow(ctx, p.config.Agent, p.config.Log, poke, func(kind event.Kind) {
		if nodeagent.OfHealth(kind) {
			poke()
		}
	})
}

// look asks the agent for what is this part's own, and for the health of GPUs.
func (p *Plugin) look(ctx context.Context) bool {
	devices, err := p.config.Agent.Devices(ctx)
	if err != nil {
		p.config.Log.Warn("the agent cannot be asked for GPUs", "error", err)
		return false
	}
	shares, err := p.config.Agent.SharesWith(ctx, share.Labels{names.LabelBy: names.ByPlugin})
	if err != nil {
		p.config.Log.Warn("the agent cannot be asked for shares", "error", err)
		return false
	}
	well := map[string]bool{}
	for _, card := range devices.Cards {
		well[card.UUID] = nodeagent.TakesShares(card.Health)
	}
	for _, uuid := range devices.Unresponsive {
		well[uuid] = false
	}
	ill := map[int]bool{}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range shares.Shares {
		slot, ok := names.ShareSlot(s.Name)
		if !ok || s.State == nodeagent.StateRevoked {
			continue
		}
		p.pods[s.Name] = s.Labels[names.LabelPod]
		for _, uuid := range s.CardUUIDs() {
			if !well[uuid] {
				ill[slot] = true
			}
		}
	}
	if !maps.Equal(ill, p.ill) {
		p.ill = ill
		close(p.changed)
		p.changed = make(chan struct{})
	}
	return true
}

// reap removes shares whose pods have no sandbox any more that is ready: the interface says
// nothing when a container has ended for good. A sandbox is there before PreStartContainer
// is called, so that none of a pod that starts is taken.
func (p *Plugin) reap(ctx context.Context) {
	p.mu.Lock()
	pods := maps.Clone(p.pods)
	p.mu.Unlock()
	if err := reapEnded(ctx, p.config.Runtime, pods, p.release); err != nil {
		p.config.Log.Warn("shares of pods that have ended cannot be removed", "error", err)
	}
}

// reapEnded has what pods had, by name, released where they have no sandbox any more that is ready.
func reapEnded(ctx context.Context, runtime Runtime, pods map[string]string, release func(ctx context.Context, name, pod string) error) error {
	if len(pods) == 0 {
		return nil
	}
	sandboxes, err := runtime.Sandboxes(ctx)
	if err != nil {
		return err
	}
	for name, pod := range pods {
		if !sandboxes[pod].Ready {
			err = errors.Join(err, release(ctx, name, pod))
		}
	}
	return err
}

func (p *Plugin) release(ctx context.Context, name, pod string) error {
	if slot, ok := names.ShareSlot(name); ok {
		p.slots[slot].Lock()
		defer p.slots[slot].Unlock()
	}
	sandbox, _, err := p.config.Runtime.Sandbox(ctx, pod)
	if err != nil || sandbox.Ready {
		return err
	}
	if err := nodeagent.Remove(ctx, p.config.Agent, share.Labels{names.LabelBy: names.ByPlugin, names.LabelPod: pod},
		func(s api.Share) bool { return s.Name == name }); err != nil {
		return fmt.Errorf("share %s: %w", name, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pods[name] == pod {
		delete(p.pods, name)
	}
	return nil
}
