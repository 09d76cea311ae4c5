// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/core"
	"github.com/divvy-gpu/divvy/internal/event"
	"github.com/divvy-gpu/divvy/internal/gpu"
)

// Containers offers declared shares to container runtimes. It is called by the
// loop, in which everybody waits for it.
type Containers interface {
	// Offer makes a share known, or known anew.
	Offer(share api.Share, card gpu.Card) error
	// Withdraw takes a share away; one that was never offered is no error.
	Withdraw(share string) error
	// Keep withdraws what an earlier agent has offered but for these shares.
	Keep(shares []string) error
}

// offer makes a declared share known to container runtimes. A share that
// cannot be is a share all the same.
func (d *daemon) offer(now time.Time, v core.ShareView) {
	if d.cfg.Containers == nil || v.Ephemeral {
		return
	}
	i := slices.IndexFunc(d.cards, func(c gpu.Card) bool { return c.UUID == v.CardUUID })
	if i < 0 {
		return
	}
	if err := d.cfg.Containers.Offer(d.apiShare(v), d.cards[i]); err != nil {
		d.notOffered(now, v.Name, fmt.Sprintf("containers cannot have share %s: %v", v.Name, err))
	}
}

// offerAll makes the shares of an earlier agent known again: paths may have
// changed with the version.
func (d *daemon) offerAll(now time.Time) {
	if d.cfg.Containers == nil {
		return
	}
	var names []string
	for _, v := range d.core.Shares() {
		if !v.Ephemeral {
			names = append(names, v.Name)
		}
	}
	if err := d.cfg.Containers.Keep(names); err != nil {
		d.notOffered(now, "", err.Error())
	}
	for _, v := range d.core.Shares() {
		d.offer(now, v)
	}
}

func (d *daemon) withdraw(share string) {
	if d.cfg.Containers == nil {
		return
	}
	if err := d.cfg.Containers.Withdraw(share); err != nil {
		d.notOffered(time.Now(), share, err.Error())
	}
}

func (d *daemon) notOffered(now time.Time, share, message string) {
	d.log(core.Event{Time: now, Kind: event.ContainerDeviceFailed, Share: share, Message: message})
	d.cfg.Logger.Warn("containers", "share", share, "error", message)
}
