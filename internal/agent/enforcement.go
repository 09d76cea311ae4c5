// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/core"
	"github.com/divvy-gpu/divvy/internal/enforce"
	"github.com/divvy-gpu/divvy/internal/event"
	"github.com/divvy-gpu/divvy/internal/share"
	"github.com/divvy-gpu/divvy/internal/socket"
)

const (
	holdFor     = 10 * time.Second // the longest that holding one share may take
	verifyFor   = 30 * time.Second // for a program to initialise its driver
	verifyFirst = 50 * time.Millisecond
	verifyLast  = 2 * time.Second
	withoutMIG  = "shares are on whole cards; a MIG device is given to a container whole, by divvy cdi"
)

// grip is what holds a share, when last looked at.
type grip struct {
	share    enforce.Share
	means    []enforce.Means // that hold it, strongest first
	base     floor
	level    share.Enforcement // of the strongest of these
	reasons  []string          // why others do not hold it, each after its level and a colon
	demanded share.Enforcement
}

// floor is what holds shares that no means holds, and why nothing does.
type floor struct {
	level share.Enforcement
	why   string
}

// why says why no stronger level is in force: a weaker means that fails does not
// matter.
func (g grip) why() string {
	return strings.Join(slices.DeleteFunc(slices.Clone(g.reasons), func(reason string) bool {
		level, _, _ := strings.Cut(reason, ":")
		return g.level.Meets(share.Enforcement(level))
	}), "; ")
}

// by returns the means of a level, if it holds the share.
func (g grip) by(level share.Enforcement) (enforce.Means, bool) {
	i := slices.IndexFunc(g.means, func(m enforce.Means) bool { return m.Level() == level })
	if i < 0 {
		return nil, false
	}
	return g.means[i], true
}

// failing says why a means does not hold the share.
func (g grip) failing(level share.Enforcement) string {
	i := slices.IndexFunc(g.reasons, func(reason string) bool { return strings.HasPrefix(reason, string(level)+":") })
	if i < 0 {
		return string(level) + ": not among the means of this agent"
	}
	return g.reasons[i]
}

// missing says why the share is not held as it demands; empty: it is.
func (g grip) missing() string {
	if g.level.Meets(g.demanded) {
		return ""
	}
	return g.failing(g.demanded)
}

// floor is the front library, if it is there for the driver.
func (d *daemon) floor() floor {
	if d.cfg.Front != nil {
		if err := d.cfg.Front(); err != nil {
			return floor{share.Booked, fmt.Sprintf("front: %v", err)}
		}
	}
	return floor{share.EnforcedFront, ""}
}

// reason words why a means does not hold a share.
func reason(m enforce.Means, err error) string {
	return fmt.Sprintf("%s: %s", m.Level(), strings.TrimPrefix(err.Error(), enforce.ErrCannot.Error()+": "))
}

// take has a share held by all means that can, and says how strongly it is.
func (d *daemon) take(ctx context.Context, v core.ShareView) grip {
	g := grip{
		share:    enforce.Share{Name: v.Name, CardUUID: v.CardUUID, MemoryBytes: v.MemoryBytes, ThreadsPercent: v.ThreadsPercent},
		demanded: v.Enforce, base: d.floor(),
	}
	return d.rate(ctx, g, enforce.Means.Hold)
}

// rate says how strongly a share is held, by what each means answers. One that did
// not hold it before may do so now.
func (d *daemon) rate(ctx context.Context, g grip, ask func(enforce.Means, context.Context, enforce.Share) error) grip {
	ctx, cancel := context.WithTimeout(ctx, holdFor)
	defer cancel()
	g.means, g.reasons = nil, []string{"mig: " + withoutMIG}
	for _, m := range d.cfg.Means {
		if err := ask(m, ctx, g.share); err != nil {
			g.reasons = append(g.reasons, reason(m, err))
			continue
		}
		g.means = append(g.means, m)
	}
	if g.base.why != "" {
		g.reasons = append(g.reasons, g.base.why)
	}
	g.level = strongest(g.means, g.base.level)
	return g
}

func strongest(means []enforce.Means, base share.Enforcement) share.Enforcement {
	level := base
	for _, m := range means {
		if m.Level().Meets(level) {
			level = m.Level()
		}
	}
	return level
}

// inside is what programs in containers need to be held by MPS; nil: it does not hold
// the share.
func (g grip) inside() *api.MPS {
	for _, m := range g.means {
		c, ok := m.(enforce.Container)
		if !ok {
			continue
		}
		if folder, environment, err := c.Inside(g.share); err == nil {
			return &api.MPS{PipeDirectory: folder, Environment: environment}
		}
	}
	return nil
}

// short says why a share is held less than is asked of it; nil: it is not.
func (g grip) short() error {
	if _, under := g.by(share.EnforcedMPS); g.share.ThreadsPercent > 0 && !under {
		return &api.Error{
			Code:    api.CodeNotAllowed,
			Message: fmt.Sprintf("only MPS limits the processors of share %q: %s", g.share.Name, g.failing(share.EnforcedMPS)),
			Hint:    "leave --mps-threads out, or start MPS on the card: docs/mps.md",
		}
	}
	if g.level.Meets(g.demanded) {
		return nil
	}
	return &api.Error{
		Code:    api.CodeNotAllowed,
		Message: fmt.Sprintf("share %q would be held at level %q, not at %q: %s", g.share.Name, g.level, g.demanded, g.why()),
		Hint:    "--enforce " + string(g.level) + ", or leave it out",
	}
}

// secureAgain holds a share whose limits have changed.
func (d *daemon) secureAgain(r *http.Request, v core.ShareView) error {
	g := d.take(r.Context(), v)
	return d.ask(r, func(now time.Time) error {
		d.setGrip(now, g)
		return nil
	})
}

// recoverGrips holds the shares of an earlier agent again.
func (d *daemon) recoverGrips(now time.Time) {
	for _, v := range d.core.Shares() {
		g := d.take(context.Background(), v)
		if !g.level.Meets(g.demanded) {
			d.log(core.Event{Time: now, Kind: event.EnforcementChanged, Share: v.Name, Card: v.CardUUID,
				Message: fmt.Sprintf("held at level %q, and %q was asked for: %s", g.level, g.demanded, g.why())})
		}
		d.grips[v.Name] = g
	}
}

// setGrip keeps what was found, and tells of a change: container runtimes first, so
// that they have what the event says. The share may be gone.
func (d *daemon) setGrip(now time.Time, g grip) {
	old, ok := d.grips[g.share.Name]
	if !ok {
		return
	}
	d.grips[g.share.Name] = g
	if _, before := old.by(share.EnforcedMPS); !before {
		d.verifyAgain(g)
	}
	if !reflect.DeepEqual(old.inside(), g.inside()) || old.share != g.share {
		if v, err := d.core.Share(g.share.Name); err == nil {
			d.offer(now, v)
		}
	}
	if old.level != g.level {
		d.log(core.Event{Time: now, Kind: event.EnforcementChanged, Share: g.share.Name, Card: g.share.CardUUID,
			Message: fmt.Sprintf("held at level %q instead of %q: %s", g.level, old.level, g.why())})
	}
}

// allGrips is a copy of them, for whoever looks; nil when the agent or ctx ends.
func (d *daemon) allGrips(ctx context.Context) (all []grip) {
	_ = d.do(ctx.Done(), func(time.Time) { all = slices.Collect(maps.Values(d.grips)) })
	return all
}

// lookAtAll finds out for a reader how strongly shares are held now.
func (d *daemon) lookAtAll(ctx context.Context) { d.lookAgain(ctx, d.allGrips(ctx)) }

// lookAgain brings grips up to date, and what the loop has of them.
func (d *daemon) lookAgain(ctx context.Context, grips []grip) {
	if len(grips) == 0 {
		return
	}
	base := d.floor()
	for i := range grips {
		grips[i].base = base
		grips[i] = d.rate(ctx, grips[i], enforce.Means.Holds)
	}
	if ctx.Err() != nil {
		return // which may be what failed
	}
	_ = d.do(ctx.Done(), func(now time.Time) {
		for _, g := range grips {
			old := d.grips[g.share.Name]
			if old.share == g.share && old.demanded == g.demanded { // else it is another one by now
				d.setGrip(now, g)
			}
		}
	})
}

// watchMPS notices that MPS has come to a card with shares, or has gone from it: its
// daemons are started and ended by others, and nobody tells. Other means stay what
// they are for as long as nobody meddles with them.
func (d *daemon) watchMPS(ctx context.Context) {
	i := slices.IndexFunc(d.cfg.Means, func(m enforce.Means) bool { return m.Level() == share.EnforcedMPS })
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
		d.lookAgain(ctx, slices.DeleteFunc(d.allGrips(ctx), func(g grip) bool {
			now, asked := serves[g.share.CardUUID]
			if !asked {
				now = d.cfg.Means[i].Serves(ctx, g.share.CardUUID)
				serves[g.share.CardUUID] = now
			}
			_, before := g.by(share.EnforcedMPS)
			return now == before
		}))
	}
}

// release lets a share go that is no more.
func (d *daemon) release(g grip) error {
	ctx, cancel := context.WithTimeout(context.Background(), holdFor)
	defer cancel()
	var failed error
	for _, m := range d.cfg.Means {
		failed = errors.Join(failed, m.Drop(ctx, g.share))
	}
	return failed
}

// restGrips lets go of what nobody uses; the loop has ended.
func (d *daemon) restGrips() {
	for _, g := range d.grips {
		for _, m := range d.cfg.Means {
			if err := m.Rest(g.share); err != nil {
				d.cfg.Logger.Warn("rest", "share", g.share.Name, "error", err)
			}
		}
	}
}

// dropGrip is the loop's part of release.
func (d *daemon) dropGrip(share string) {
	g, ok := d.grips[share]
	delete(d.grips, share)
	if ok && len(d.cfg.Means) > 0 {
		d.task(func() {
			if err := d.release(g); err != nil {
				d.cfg.Logger.Warn("let a share go", "share", share, "error", err)
			}
		})
	}
}

// enterShare puts the process that asks under a share, before it starts a program.
func (d *daemon) enterShare(w http.ResponseWriter, r *http.Request, peer socket.Peer) error {
	name := r.PathValue("name")
	var g grip
	if err := d.ask(r, func(time.Time) error {
		g = d.grips[name]
		return d.core.MayJoin(name, peer.UID)
	}); err != nil {
		return err
	}
	fresh := []grip{g}
	d.lookAgain(r.Context(), fresh)
	entry, err := d.enter(r.Context(), fresh[0], peer.PID)
	if err != nil {
		return err
	}
	write(w, http.StatusOK, entry)
	return nil
}

// enter puts a process under a share, by what holds that.
func (d *daemon) enter(ctx context.Context, g grip, pid int) (api.Entry, error) {
	entry := api.Entry{}
	var entered []enforce.Means
	for _, m := range g.means {
		env, err := m.Enter(ctx, g.share, pid)
		switch {
		case errors.Is(err, enforce.ErrOutside):
			entry.Why = joinReason(entry.Why, reason(m, err))
			continue
		case err != nil:
			return entry, &api.Error{Code: api.CodeUnavailable, Message: fmt.Sprintf("enter share %q at level %q: %v", g.share.Name, m.Level(), err)}
		}
		entered = append(entered, m)
		entry.Environment = append(entry.Environment, env...)
	}
	if entry.Enforcement = strongest(entered, g.base.level); !entry.Enforcement.Meets(g.demanded) {
		return entry, &api.Error{Code: api.CodeNotAllowed,
			Message: fmt.Sprintf("share %q demands level %q: %s", g.share.Name, g.demanded, joinReason(entry.Why, g.missing()))}
	}
	return entry, nil
}
