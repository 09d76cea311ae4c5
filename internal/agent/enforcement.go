// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/core"
	"github.com/divvy-gpu/divvy/internal/enforce"
	"github.com/divvy-gpu/divvy/internal/socket"
)

const (
	holdFor     = 10 * time.Second // the longest that holding one share may take
	verifyFor   = 30 * time.Second // for a program to initialise its driver
	verifyFirst = 50 * time.Millisecond
	verifyLast  = 2 * time.Second
	withoutMIG  = "shares are on whole cards; a MIG device is given to a container whole, by divvy cdi"
)

// grip is what holds a share.
type grip struct {
	share    enforce.Share
	means    []enforce.Means // that were found to hold it, strongest first
	base     api.Enforcement // what holds it when no means does
	level    api.Enforcement // that it had when last looked at
	now      string          // why no stronger level was in force then
	reasons  []string        // of means that did not hold it from the start, each after its level and a colon
	demanded api.Enforcement
}

// why says why no stronger level is in force: a weaker means that fails does not
// matter.
func (g grip) why() string {
	return strings.Join(slices.DeleteFunc(slices.Clone(g.reasons), func(reason string) bool {
		level, _, _ := strings.Cut(reason, ":")
		return g.level.Meets(api.Enforcement(level))
	}), "; ")
}

// failing says why a means does not hold the share.
func (g grip) failing(level api.Enforcement) string {
	i := slices.IndexFunc(g.reasons, func(reason string) bool { return strings.HasPrefix(reason, string(level)+":") })
	if i < 0 {
		return string(level) + ": not among the means of this agent"
	}
	return g.reasons[i]
}

// baseline is what holds a share when no other means does: the front library, if
// it is there for the driver.
func (d *daemon) baseline() (api.Enforcement, string) {
	if d.cfg.Front == nil {
		return api.EnforcedFront, ""
	}
	if err := d.cfg.Front(); err != nil {
		return api.Booked, fmt.Sprintf("front: %v", err)
	}
	return api.EnforcedFront, ""
}

// reason words why a means does not hold a share.
func reason(m enforce.Means, err error) string {
	return fmt.Sprintf("%s: %s", m.Level(), strings.TrimPrefix(err.Error(), enforce.ErrCannot.Error()+": "))
}

// take has a share held by all means that can, and says how strongly it is.
func (d *daemon) take(ctx context.Context, v core.ShareView) grip {
	ctx, cancel := context.WithTimeout(ctx, holdFor)
	defer cancel()
	g := grip{
		share:    enforce.Share{Name: v.Name, CardUUID: v.CardUUID, MemoryBytes: v.MemoryBytes, ThreadsPercent: v.ThreadsPercent},
		demanded: api.Enforcement(v.Enforce),
		reasons:  []string{"mig: " + withoutMIG},
	}
	for _, m := range d.cfg.Means {
		if err := m.Hold(ctx, g.share); err != nil {
			g.reasons = append(g.reasons, reason(m, err))
			continue
		}
		g.means = append(g.means, m)
	}
	return d.rate(g)
}

// recheck says how strongly a share is held now.
func (d *daemon) recheck(ctx context.Context, g grip) grip {
	ctx, cancel := context.WithTimeout(ctx, holdFor)
	defer cancel()
	held := g
	held.means, held.reasons = nil, slices.Clone(g.reasons)
	for _, m := range g.means {
		if err := m.Holds(ctx, g.share); err != nil {
			held.reasons = append(held.reasons, reason(m, err))
			continue
		}
		held.means = append(held.means, m)
	}
	rated := d.rate(held)
	g.level, g.now = rated.level, rated.why() // one that fails now may hold again
	return g
}

// rate sets the level of a share by its means.
func (d *daemon) rate(g grip) grip {
	base, why := d.baseline()
	if why != "" {
		g.reasons = append(g.reasons, why)
	}
	g.base, g.level = base, strongest(g.means, base)
	g.now = g.why()
	return g
}

func strongest(means []enforce.Means, base api.Enforcement) api.Enforcement {
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
	if g.share.ThreadsPercent > 0 && !slices.ContainsFunc(g.means, func(m enforce.Means) bool { return m.Level() == api.EnforcedMPS }) {
		return &api.Error{
			Code:    api.CodeNotAllowed,
			Message: fmt.Sprintf("only MPS limits the processors of share %q: %s", g.share.Name, g.failing(api.EnforcedMPS)),
			Hint:    "leave --mps-threads out, or start MPS on the card: docs/mps.md",
		}
	}
	if g.level.Meets(g.demanded) {
		return nil
	}
	return &api.Error{
		Code:    api.CodeNotAllowed,
		Message: fmt.Sprintf("share %q would be held at level %q, not at %q: %s", g.share.Name, g.level, g.demanded, g.now),
		Hint:    "--enforce " + string(g.level) + ", or leave it out",
	}
}

// secure has a new share held as is asked of it; a failure leaves nothing behind.
func (d *daemon) secure(r *http.Request, v core.ShareView) error {
	g := d.take(r.Context(), v)
	failed := g.short()
	if failed == nil {
		failed = d.ask(r, func(time.Time) error {
			d.grips[v.Name] = g
			return nil
		})
	}
	if failed != nil {
		return errors.Join(failed, d.release(g))
	}
	return nil
}

// secureAgain holds a share whose limits have changed.
func (d *daemon) secureAgain(r *http.Request, v core.ShareView) error {
	g := d.take(r.Context(), v)
	return d.ask(r, func(now time.Time) error {
		d.setGrip(now, g)
		if v, err := d.core.Share(v.Name); err == nil { // it may be gone
			d.offer(now, v)
		}
		return nil
	})
}

// recoverGrips holds the shares of an earlier agent again.
func (d *daemon) recoverGrips(now time.Time) {
	for _, v := range d.core.Shares() {
		g := d.take(context.Background(), v)
		if !g.level.Meets(g.demanded) {
			d.log(core.Event{Time: now, Kind: "enforcement-changed", Share: v.Name, Card: v.CardUUID,
				Message: fmt.Sprintf("held at level %q, and %q was asked for: %s", g.level, g.demanded, g.now)})
		}
		d.grips[v.Name] = g
	}
}

// setGrip keeps what was found, and tells of a change. The share may be gone.
func (d *daemon) setGrip(now time.Time, g grip) {
	old, ok := d.grips[g.share.Name]
	if !ok {
		return
	}
	if old.level != g.level {
		d.log(core.Event{Time: now, Kind: "enforcement-changed", Share: g.share.Name, Card: g.share.CardUUID,
			Message: fmt.Sprintf("held at level %q instead of %q: %s", g.level, old.level, g.now)})
	}
	d.grips[g.share.Name] = g
}

// lookAgain finds out for a reader how strongly shares are held now.
func (d *daemon) lookAgain(r *http.Request) {
	var all []grip
	if d.ask(r, func(time.Time) error {
		for _, g := range d.grips {
			if len(g.means) > 0 {
				all = append(all, g)
			}
		}
		return nil
	}) != nil {
		return
	}
	for i := range all {
		all[i] = d.recheck(r.Context(), all[i])
	}
	_ = d.ask(r, func(now time.Time) error {
		for _, g := range all {
			d.setGrip(now, g)
		}
		return nil
	})
}

// release lets a share go that is no more.
func (d *daemon) release(g grip) error {
	ctx, cancel := context.WithTimeout(context.Background(), holdFor)
	defer cancel()
	var failed error
	for _, m := range g.means {
		failed = errors.Join(failed, m.Drop(ctx, g.share))
	}
	return failed
}

// restGrips lets go of what nobody uses; the loop has ended.
func (d *daemon) restGrips() {
	for _, g := range d.grips {
		for _, m := range g.means {
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
	if ok && len(g.means) > 0 {
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
	entry := api.Entry{}
	var entered []enforce.Means
	for _, m := range g.means {
		env, err := m.Enter(r.Context(), g.share, peer.PID)
		switch {
		case errors.Is(err, enforce.ErrOutside):
			entry.Why = joinReason(entry.Why, reason(m, err))
			continue
		case err != nil:
			return &api.Error{Code: api.CodeUnavailable, Message: fmt.Sprintf("enter share %q at level %q: %v", name, m.Level(), err)}
		}
		entered = append(entered, m)
		entry.Environment = append(entry.Environment, env...)
	}
	if entry.Enforcement = strongest(entered, g.base); !entry.Enforcement.Meets(g.demanded) {
		return &api.Error{Code: api.CodeNotAllowed, Message: fmt.Sprintf("share %q demands level %q: %s", name, g.demanded, entry.Why)}
	}
	write(w, http.StatusOK, entry)
	return nil
}
