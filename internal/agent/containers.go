// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"slices"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/core"
	"github.com/divvy-gpu/divvy/internal/event"
	"github.com/divvy-gpu/divvy/internal/gpu"
)

// Containers offers declared shares to container runtimes. It is called by the
// loop, in which everybody waits for it.
type Containers interface {
	// Offer makes a share known, or known anew.
	Offer(share api.Share, cards []gpu.Card) error
	// Withdraw takes a share away; one that was never offered is no error.
	Withdraw(share string) error
	// Keep withdraws what an earlier agent has offered but for these shares.
	Keep(shares []string) error
}

// offer makes a declared share known to container runtimes. A share that
// cannot be is a share all the same.
func (l *loop) offer(v core.ShareView) {
	if l.cfg.Containers == nil || v.Ephemeral {
		return
	}
	var cards []gpu.Card
	for _, of := range v.Slots {
		if i := slices.IndexFunc(l.cards, func(c gpu.Card) bool { return c.UUID == of.CardUUID }); i >= 0 {
			cards = append(cards, l.cards[i])
		}
	}
	if len(cards) == 0 {
		return
	}
	if err := l.cfg.Containers.Offer(l.apiShare(v), cards); err != nil {
		l.notOffered(v.Name, fmt.Sprintf("containers cannot have share %s: %v", v.Name, err))
	}
}

// offerAll makes the shares of an earlier agent known again: paths may have
// changed with the version.
func (l *loop) offerAll() {
	if l.cfg.Containers == nil {
		return
	}
	var names []string
	for _, v := range l.core.Shares() {
		if !v.Ephemeral {
			names = append(names, v.Name)
		}
	}
	if err := l.cfg.Containers.Keep(names); err != nil {
		l.notOffered("", err.Error())
	}
	for _, v := range l.core.Shares() {
		l.offer(v)
	}
}

func (l *loop) withdraw(share string) {
	if l.cfg.Containers == nil {
		return
	}
	if err := l.cfg.Containers.Withdraw(share); err != nil {
		l.notOffered(share, err.Error())
	}
}

func (l *loop) notOffered(share, message string) {
	l.log(core.Event{Time: l.now, Kind: event.ContainerDeviceFailed, Share: share, Message: message})
	l.cfg.Logger.Warn("containers", "share", share, "error", message)
}
