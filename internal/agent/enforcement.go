// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/core"
	"github.com/divvy-gpu/divvy/internal/enforce"
	"github.com/divvy-gpu/divvy/internal/share"
)

const (
	holdFor    = 10 * time.Second // the longest that holding one share may take
	withoutMIG = "shares are on whole GPUs; a MIG device is given to a container whole, by divvy cdi"
)

// errWeaker refuses a process that is not held as its share demands.
var errWeaker = errors.New("not held as the share demands")

// enforcers are all that can hold shares, and are asked beside the loop: a driver and
// a control daemon may take long to answer.
type enforcers struct {
	all   []enforce.Enforcer // strongest first
	front func() error       // why the front library is not there; nil: it is
}

// enforcement is what holds a share, when last looked at.
type enforcement struct {
	share     enforce.Share
	enforcers []enforce.Enforcer // that hold it, strongest first
	base      fallback
	level     share.Enforcement // of the strongest of these
	reasons   []string          // why others do not hold it, each after its level and a colon
	demanded  share.Enforcement
}

// fallback is what holds shares that no enforcer holds, and why nothing does.
type fallback struct {
	level share.Enforcement
	why   string
}

// fallback is the front library, if it is there for the driver.
func (e enforcers) fallback() fallback {
	if e.front != nil {
		if err := e.front(); err != nil {
			return fallback{share.Booked, fmt.Sprintf("front: %v", err)}
		}
	}
	return fallback{share.EnforcedFront, ""}
}

// take has a share held by all enforcers that can, and says how strongly it is.
func (e enforcers) take(ctx context.Context, v core.ShareView) enforcement {
	g := enforcement{
		share:    enforce.Share{Name: v.Name, CardUUIDs: v.CardUUIDs(), MemoryBytes: v.MemoryBytes, ThreadsPercent: v.ThreadsPercent},
		demanded: v.Enforce, base: e.fallback(),
	}
	return e.rate(ctx, g, enforce.Enforcer.Hold)
}

// rate says how strongly a share is held, by what each enforcer answers. One that did
// not hold it before may do so now.
func (e enforcers) rate(ctx context.Context, g enforcement, ask func(enforce.Enforcer, context.Context, enforce.Share) error) enforcement {
	ctx, cancel := context.WithTimeout(ctx, holdFor)
	defer cancel()
	g.enforcers, g.reasons = nil, []string{"mig: " + withoutMIG}
	for _, m := range e.all {
		if err := ask(m, ctx, g.share); err != nil {
			g.reasons = append(g.reasons, reason(m, err))
			continue
		}
		g.enforcers = append(g.enforcers, m)
	}
	if g.base.why != "" {
		g.reasons = append(g.reasons, g.base.why)
	}
	g.level = strongest(g.enforcers, g.base.level)
	return g
}

// release lets a share go that is no more, whatever becomes of who asks.
func (e enforcers) release(ctx context.Context, g enforcement) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), holdFor)
	defer cancel()
	var failed error
	for _, m := range e.all {
		failed = errors.Join(failed, m.Drop(ctx, g.share))
	}
	return failed
}

// rest lets go of what nobody uses, before the agent ends.
func (e enforcers) rest(g enforcement) error {
	var failed error
	for _, m := range e.all {
		failed = errors.Join(failed, m.Rest(g.share))
	}
	return failed
}

// strongest is the level that a new share of a card would get, if it has a quota.
func (e enforcers) strongest(ctx context.Context, card string) share.Enforcement {
	ctx, cancel := context.WithTimeout(ctx, answerFor)
	defer cancel()
	able := slices.DeleteFunc(slices.Clone(e.all), func(m enforce.Enforcer) bool { return m.Offers(ctx, card) != nil })
	return strongest(able, e.fallback().level)
}

// serve says whether several programs can use a card that is for one process.
func (e enforcers) serve(ctx context.Context, card string) bool {
	ctx, cancel := context.WithTimeout(ctx, answerFor)
	defer cancel()
	return slices.ContainsFunc(e.all, func(m enforce.Enforcer) bool { return m.Serves(ctx, card) })
}

func strongest(enforcers []enforce.Enforcer, base share.Enforcement) share.Enforcement {
	level := base
	for _, m := range enforcers {
		if m.Level().Meets(level) {
			level = m.Level()
		}
	}
	return level
}

// reason words why an enforcer does not hold a share.
func reason(m enforce.Enforcer, err error) string {
	return fmt.Sprintf("%s: %s", m.Level(), strings.TrimPrefix(err.Error(), enforce.ErrCannot.Error()+": "))
}

func joinReason(before, reason string) string {
	switch {
	case before == "":
		return reason
	case reason == "":
		return before
	}
	return before + "; " + reason
}

// why says why no stronger level is in force: a weaker enforcer that fails does not
// matter.
func (g enforcement) why() string {
	return strings.Join(slices.DeleteFunc(slices.Clone(g.reasons), func(reason string) bool {
		level, _, _ := strings.Cut(reason, ":")
		return g.level.Meets(share.Enforcement(level))
	}), "; ")
}

// by returns the enforcer of a level, if it holds the share.
func (g enforcement) by(level share.Enforcement) (enforce.Enforcer, bool) {
	i := slices.IndexFunc(g.enforcers, func(m enforce.Enforcer) bool { return m.Level() == level })
	if i < 0 {
		return nil, false
	}
	return g.enforcers[i], true
}

// failing says why an enforcer does not hold the share.
func (g enforcement) failing(level share.Enforcement) string {
	i := slices.IndexFunc(g.reasons, func(reason string) bool { return strings.HasPrefix(reason, string(level)+":") })
	if i < 0 {
		return string(level) + ": not among the enforcers of this agent"
	}
	return g.reasons[i]
}

// missing says why the share is not held as it demands; empty: it is.
func (g enforcement) missing() string {
	if g.level.Meets(g.demanded) {
		return ""
	}
	return g.failing(g.demanded)
}

// inside is what programs in containers need to be held by MPS; nil: it does not hold
// the share.
func (g enforcement) inside() *api.MPS {
	for _, m := range g.enforcers {
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
func (g enforcement) short() error {
	if _, under := g.by(share.EnforcedMPS); g.share.ThreadsPercent > 0 && !under {
		return &api.Error{
			Code:    api.CodeNotAllowed,
			Message: fmt.Sprintf("only MPS limits the processors of share %q: %s", g.share.Name, g.failing(share.EnforcedMPS)),
			Hint:    "leave --mps-threads out, or start MPS on the GPU: docs/mps.md",
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

// enter puts a process under the share, by what holds it.
func (g enforcement) enter(ctx context.Context, pid int) (api.Entry, error) {
	entry := api.Entry{}
	var entered []enforce.Enforcer
	for _, m := range g.enforcers {
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

// admitted is how strongly a process is held that attaches.
type admitted struct {
	enforcement enforcement
	level       share.Enforcement  // now
	pending     []enforce.Enforcer // that can be looked at once its driver runs
	why         string             // it is held less than its share
}

// admit looks at a process before its driver starts: what holds the share may
// not hold it, as a container's, and what would keep it waiting for ever is said.
func (g enforcement) admit(ctx context.Context, pid, uid int) (admitted, error) {
	a := admitted{enforcement: g, level: g.base.level}
	could := a.level
	for _, m := range g.enforcers {
		err := m.Admit(ctx, g.share, pid, uid)
		if errors.Is(err, enforce.ErrBlocked) {
			return a, err
		}
		if err != nil {
			a.why = joinReason(a.why, fmt.Sprintf("%s: %v", m.Level(), err))
			continue
		}
		could = strongest([]enforce.Enforcer{m}, could)
		if m.Level() == share.EnforcedMPS {
			a.pending = append(a.pending, m)
		} else {
			a.level = strongest([]enforce.Enforcer{m}, a.level)
		}
	}
	if !could.Meets(g.demanded) {
		return a, fmt.Errorf("%w: at level %q, not %q: %s", errWeaker, could, g.demanded, joinReason(a.why, g.missing()))
	}
	return a, nil
}
