// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/internal/core"
	"github.com/divvy-gpu/divvy/internal/enforce"
	"github.com/divvy-gpu/divvy/internal/event"
	"github.com/divvy-gpu/divvy/internal/share"
)

// recoverEnforcements holds the shares of an earlier agent again.
func (l *loop) recoverEnforcements(ctx context.Context) {
	for _, v := range l.core.Shares() {
		g := l.enforcers.take(ctx, v)
		if !g.level.Meets(g.demanded) {
			l.log(core.Event{Time: l.now, Kind: event.EnforcementChanged, Share: v.Name, Card: v.CardUUID,
				Message: fmt.Sprintf("held at level %q, and %q was asked for: %s", g.level, g.demanded, g.why())})
		}
		l.enforcements[v.Name] = g
	}
}

// setEnforcement keeps what was found, and tells of a change: container runtimes first, so
// that they have what the event says. The share may be gone.
func (l *loop) setEnforcement(g enforcement) {
	old, ok := l.enforcements[g.share.Name]
	if !ok {
		return
	}
	l.enforcements[g.share.Name] = g
	if _, before := old.by(share.EnforcedMPS); !before {
		l.verifyAgain(g)
	}
	if !reflect.DeepEqual(old.inside(), g.inside()) || !old.share.Equal(g.share) {
		if v, err := l.core.Share(g.share.Name); err == nil {
			l.offer(v)
		}
	}
	if old.level != g.level {
		l.log(core.Event{Time: l.now, Kind: event.EnforcementChanged, Share: g.share.Name, Card: g.share.CardUUIDs[0],
			Message: fmt.Sprintf("held at level %q instead of %q: %s", g.level, old.level, g.why())})
	}
}

// verifyAgain looks at the processes that MPS held before it had gone from a share:
// they need not be clients of the daemon that is there now.
func (l *loop) verifyAgain(g enforcement) {
	m, under := g.by(share.EnforcedMPS)
	if !under {
		return
	}
	for _, v := range l.core.Clients() {
		was := l.members[v.ID]
		if v.Share != g.share.Name || was == nil || was.level != share.EnforcedMPS {
			continue
		}
		was.level = g.base.level
		if c := was.conn; c != nil {
			l.begin(func(ctx context.Context, _ *daemon) {
				c.verify(ctx, v.ID, v.PID, admitted{enforcement: g, level: g.base.level, pending: []enforce.Enforcer{m}})
			})
		}
	}
}

// dropEnforcement lets a share go that is no more.
func (l *loop) dropEnforcement(share string) {
	g, ok := l.enforcements[share]
	delete(l.enforcements, share)
	if ok && len(l.enforcers.all) > 0 {
		l.begin(func(ctx context.Context, d *daemon) {
			if err := d.enforcers.release(ctx, g); err != nil {
				d.cfg.Logger.Warn("let a share go", "share", share, "error", err)
			}
		})
	}
}

// allEnforcements is a copy of them, for whoever looks; nil when the agent or ctx ends.
func (d *daemon) allEnforcements(ctx context.Context) (all []enforcement) {
	_ = d.do(ctx, func(l *loop) { all = slices.Collect(maps.Values(l.enforcements)) })
	return all
}

// lookAtAll finds out for a reader how strongly shares are held now. What does not answer
// in time leaves what is known.
func (d *daemon) lookAtAll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, answerFor)
	defer cancel()
	d.lookAgain(ctx, d.allEnforcements(ctx))
}

// lookAgain brings enforcements up to date, and what the loop has of them.
func (d *daemon) lookAgain(ctx context.Context, enforcements []enforcement) {
	if len(enforcements) == 0 {
		return
	}
	base := d.enforcers.fallback()
	for i := range enforcements {
		enforcements[i].base = base
		enforcements[i] = d.enforcers.rate(ctx, enforcements[i], enforce.Enforcer.Holds)
	}
	if ctx.Err() != nil {
		return // which may be what failed
	}
	_ = d.do(ctx, func(l *loop) {
		for _, g := range enforcements {
			old := l.enforcements[g.share.Name]
			if old.share.Equal(g.share) && old.demanded == g.demanded { // else it is another one by now
				l.setEnforcement(g)
			}
		}
	})
}

// watchMPS notices that MPS has come to a card with shares, or has gone from it: its
// daemons are started and ended by others, and nobody tells. Other enforcers stay what
// they are for as long as nobody meddles with them.
func (d *daemon) watchMPS(ctx context.Context) {
	i := slices.IndexFunc(d.enforcers.all, func(m enforce.Enforcer) bool { return m.Level() == share.EnforcedMPS })
	if i < 0 {
		return
	}
	look := time.NewTicker(d.cfg.LookEvery)
	defer look.Stop()
	for {
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
		serves := map[string]bool{} // by card
		d.lookAgain(ctx, slices.DeleteFunc(d.allEnforcements(ctx), func(g enforcement) bool {
			card := g.share.CardUUIDs[0]
			now, asked := serves[card]
			if !asked {
				now = d.enforcers.all[i].Serves(ctx, card)
				serves[card] = now
			}
			_, before := g.by(share.EnforcedMPS)
			return now == before || len(g.share.CardUUIDs) > 1 // which MPS does not hold
		}))
	}
}
