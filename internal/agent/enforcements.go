// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/internal/admission"
	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/core"
	"github.com/divvy-gpu/divvy/internal/enforce"
	"github.com/divvy-gpu/divvy/internal/event"
	"github.com/divvy-gpu/divvy/internal/share"
)

// recoverEnforcements holds the shares of an earlier agent again.
func (l *loop) recoverEnforcements(ctx context.Context) {
	for _, v := range l.core.Shares() {
		g := l.enforcers.Take(ctx, v)
		if !g.Level.Meets(g.Demanded) {
			l.log(core.Event{Time: l.now, Kind: event.EnforcementChanged, Share: v.Name, Card: v.CardUUID,
				Message: fmt.Sprintf("held at level %q, and %q was asked for: %s", g.Level, g.Demanded, g.Why())})
		}
		l.enforcements[v.Name] = g
	}
}

// setEnforcement keeps what was found, and tells of a change: container runtimes first, so
// that they have what the event says. The share may be gone.
func (l *loop) setEnforcement(g admission.Enforcement) {
	old, ok := l.enforcements[g.Share.Name]
	if !ok {
		return
	}
	l.enforcements[g.Share.Name] = g
	if _, before := old.By(share.EnforcedMPS); !before {
		l.verifyAgain(g)
	}
	if !reflect.DeepEqual(old.Inside(), g.Inside()) || !old.Share.Equal(g.Share) {
		if v, err := l.core.Share(g.Share.Name); err == nil {
			l.offer(v)
		}
	}
	if old.Level != g.Level {
		l.logBounded(core.Event{Time: l.now, Kind: event.EnforcementChanged, Share: g.Share.Name, Card: g.Share.CardUUIDs[0],
			Message: fmt.Sprintf("held at level %q instead of %q: %s", g.Level, old.Level, g.Why())})
	}
}

// verifyAgain looks at the processes that MPS held before it had gone from a share:
// they need not be clients of the daemon that is there now.
func (l *loop) verifyAgain(g admission.Enforcement) {
	m, under := g.By(share.EnforcedMPS)
	if !under {
		return
	}
	for _, v := range l.core.ClientsOf(g.Share.Name) {
		was := l.members[v.ID]
		if was == nil || was.level != share.EnforcedMPS {
			continue
		}
		was.level = g.Base.Level
		if c := was.conn; c != nil {
			l.begin(func(ctx context.Context, _ *daemon) {
				c.verify(ctx, v.ID, v.PID, admission.Admitted{Enforcement: g, Level: g.Base.Level, Pending: []enforce.Enforcer{m}})
			})
		}
	}
}

// toHold is a share that is to be held, in its place among all that is done about its name.
type toHold struct {
	core.ShareView
	place *place
}

func (l *loop) toHold(v core.ShareView) toHold {
	return toHold{v, l.enforcing.next(v.Name)}
}

// secure has a share held that the ledger has got, and lets processes come to it. A
// failure takes it off the ledger again.
func (h handlers) secure(r *http.Request, made toHold, peer asker, also func(*loop, string) error) (share api.Share, g admission.Enforcement, failed error) {
	defer made.place.end()
	if failed = made.place.await(r.Context()); failed == nil {
		// Not in the loop: a driver and a control daemon are asked.
		g = h.enforcers.Take(r.Context(), made.ShareView)
		failed = g.Short()
	}
	if failed == nil {
		_ = h.cfg.makeShareFolder(made.Name) // the loop would take long for it; it makes it again where somebody takes it away
		failed = h.ask(r, func(l *loop) (err error) {
			if !l.core.Is(made.Name, made.Created) {
				return &core.Failure{Kind: core.NotFound, Message: fmt.Sprintf("share %q was deleted before it was held", made.Name)}
			}
			l.enforcements[made.Name] = g
			share, err = l.open(made.Name, also)
			return err
		})
	}
	if failed == nil {
		h.onDisk(r, made.ShareView)
		return share, g, nil
	}
	var known bool // to the loop, which lets it go with the share
	_ = h.do(context.WithoutCancel(r.Context()), func(l *loop) {
		if l.core.Is(made.Name, made.Created) {
			_, known = l.enforcements[made.Name]
			_ = l.core.DeleteShare(l.now, made.Name, true, peer.UID)
		} else if l.sockets[made.Name] == nil {
			l.dropSocket(made.Name) // somebody has deleted it before it had one
		}
	})
	if !known && g.Share.Name != "" {
		failed = errors.Join(failed, h.enforcers.Release(r.Context(), g))
	}
	return share, g, failed
}

// secureAgain holds a share whose limits have changed.
func (h handlers) secureAgain(r *http.Request, changed toHold) error {
	defer changed.place.end()
	if err := changed.place.await(r.Context()); err != nil {
		return err
	}
	g := h.enforcers.Take(r.Context(), changed.ShareView)
	var gone bool
	if h.do(context.WithoutCancel(r.Context()), func(l *loop) {
		if gone = !l.core.Is(changed.Name, changed.Created); !gone {
			l.setEnforcement(g)
		}
	}) != nil {
		return errLeaving
	}
	if gone {
		return h.enforcers.Release(r.Context(), g)
	}
	return nil
}

// dropEnforcement lets a share go that is no more.
func (l *loop) dropEnforcement(share string) {
	g, ok := l.enforcements[share]
	delete(l.enforcements, share)
	if !ok || len(l.enforcers.All) == 0 {
		return
	}
	place := l.enforcing.next(share)
	l.begin(func(ctx context.Context, d *daemon) {
		defer place.end()
		err := place.await(ctx)
		if err == nil {
			err = d.enforcers.Release(ctx, g)
		}
		if err != nil {
			d.cfg.Logger.Warn("let a share go", "share", share, "error", err)
		}
	})
}

// allEnforcements is a copy of them, for whoever looks; nil when the agent or ctx ends.
func (d *driverWatch) allEnforcements(ctx context.Context) []admission.Enforcement {
	var names []string
	if d.do(ctx, func(l *loop) { names = l.core.ShareNames() }) != nil {
		return nil
	}
	return d.enforcementsOf(ctx, names)
}

func (d *driverWatch) enforcementsOf(ctx context.Context, names []string) (all []admission.Enforcement) {
	if inTurns(ctx, d.door, names, enforcementsAtOnce, func(l *loop, some []string) {
		for _, name := range some {
			if g, ok := l.enforcements[name]; ok {
				all = append(all, g)
			}
		}
	}) != nil {
		return nil
	}
	return all
}

// enforcementsAtOnce is how many one turn of the loop reads, or compares.
const enforcementsAtOnce = 64

// lookAtAll finds out for a reader how strongly shares are held now. What does not answer
// in time leaves what is known.
func (d *driverWatch) lookAtAll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, answerFor)
	defer cancel()
	d.lookAgain(ctx, d.allEnforcements(ctx))
}

// lookAt is lookAtAll for one share.
func (d *driverWatch) lookAt(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(ctx, answerFor)
	defer cancel()
	d.lookAgain(ctx, d.enforcementsOf(ctx, []string{name}))
}

// lookAgain brings enforcements up to date, and what the loop has of them.
func (d *driverWatch) lookAgain(ctx context.Context, enforcements []admission.Enforcement) {
	if len(enforcements) == 0 {
		return
	}
	base := d.enforcers.Fallback()
	for i := range enforcements {
		enforcements[i].Base = base
		enforcements[i] = d.enforcers.Rate(ctx, enforcements[i], enforce.Enforcer.Holds)
	}
	if ctx.Err() != nil {
		return // which may be what failed
	}
	_ = inTurns(ctx, d.door, enforcements, enforcementsAtOnce, func(l *loop, some []admission.Enforcement) {
		for _, g := range some {
			old := l.enforcements[g.Share.Name]
			if old.Share.Equal(g.Share) && old.Demanded == g.Demanded { // else it is another one by now
				l.setEnforcement(g)
			}
		}
	})
}

// watchMPS notices that MPS has come to a card with shares, or has gone from it: its
// daemons are started and ended by others, and nobody tells. Other enforcers stay what
// they are for as long as nobody meddles with them.
func (d *driverWatch) watchMPS(ctx context.Context) {
	i := slices.IndexFunc(d.enforcers.All, func(m enforce.Enforcer) bool { return m.Level() == share.EnforcedMPS })
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
		d.lookAgain(ctx, slices.DeleteFunc(d.allEnforcements(ctx), func(g admission.Enforcement) bool {
			card := g.Share.CardUUIDs[0]
			now, asked := serves[card]
			if !asked {
				now = d.enforcers.All[i].Serves(ctx, card)
				serves[card] = now
			}
			_, before := g.By(share.EnforcedMPS)
			return now == before || len(g.Share.CardUUIDs) > 1 // which MPS does not hold
		}))
	}
}
