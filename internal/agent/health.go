// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"time"

	"github.com/divvy-gpu/divvy/internal/core"
	"github.com/divvy-gpu/divvy/internal/gpu"
)

const (
	// A driver cannot be woken while it waits for faults; the agent ends so much
	// later at most.
	faultPatience = 250 * time.Millisecond
	// sickEvery is how often a card is looked at that is not well, and how long a
	// driver is left alone that cannot be asked.
	sickEvery = time.Second
	// faultEvery is the least from one question for faults to the next: a driver may
	// answer without waiting.
	faultEvery = faultPatience
)

// watchFaults tells the core of what happens to cards. What a card is like is
// looked at after each fault, whenever the ledger is compared with the driver,
// before a share is made, for as long as it is not well, and now and then: no driver
// tells that somebody divided a card, or set its compute mode.
func (d *daemon) watchFaults(ctx context.Context) {
	d.examine(ctx)
	looked := time.Now()
	for {
		asked := time.Now()
		faults, err := d.driver.source.Faults(faultPatience)
		pause := faultEvery - time.Since(asked)
		if errors.Is(err, gpu.ErrNotSupported) {
			pause = max(pause, d.cfg.LookEvery)
		} else if err != nil {
			pause = sickEvery
		}
		for _, f := range faults {
			if d.do(ctx, func(l *loop) { l.core.Fault(l.now, f.UUID, f.String()) }) != nil {
				return
			}
		}
		since := time.Since(looked)
		if len(faults) > 0 || since >= d.cfg.LookEvery || d.sick.Load() && since >= sickEvery {
			d.examine(ctx)
			looked = time.Now()
		}
		if err != nil {
			d.cfg.Logger.Debug("wait for faults", "error", err)
		}
		if !pauseFor(ctx, pause) {
			return
		}
	}
}

// examine looks at all cards, and notes whether one is not well.
func (d *daemon) examine(ctx context.Context) {
	sick := false
	for _, c := range d.cards {
		health, err := d.driver.health(ctx, c.UUID, releasePatience)
		if err != nil {
			d.cfg.Logger.Debug("health", "card", c.UUID, "error", err)
			continue
		}
		if health.Exclusive && d.enforcers.serve(ctx, c.UUID) {
			health = gpu.Health{State: gpu.Well}
		}
		if ctx.Err() != nil {
			return // which may be why nothing serves the card
		}
		sick = sick || health.State != gpu.Well
		if d.do(ctx, func(l *loop) {
			l.core.SetCondition(l.now, c.UUID, core.Condition(health.State), health.Detail)
		}) != nil {
			return
		}
	}
	d.sick.Store(sick)
}
