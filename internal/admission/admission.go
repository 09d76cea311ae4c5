// SPDX-License-Identifier: Apache-2.0

// Package admission says how strongly shares are held, by all enforcers together, and how
// strongly a process that attaches is. It keeps nothing: who asks keeps what was found.
package admission

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
	HoldFor    = 10 * time.Second // the longest that holding one share may take
	answerFor  = 3 * time.Second  // the longest that looking at one GPU may take
	withoutMIG = "shares are on whole GPUs; a MIG device is given to a container whole, by divvy cdi"
)

// errWeaker refuses a process that is not held as its share demands.
var errWeaker = errors.New("not held as the share demands")

var errStopping = errors.New("the agent is stopping")

// Enforcers are all that can hold shares, and are asked beside the loop: a driver and
// a control daemon may take long to answer.
type Enforcers struct {
	All   []enforce.Enforcer // strongest first
	Front func() error       // why the front library is not there; nil: it is
}

// Enforcement is what holds a share, when last looked at.
type Enforcement struct {
	Share     enforce.Share
	Enforcers []enforce.Enforcer // that hold it, strongest first
	Base      Fallback
	Level     share.Enforcement // of the strongest of these
	reasons   []string          // why others do not hold it, each after its level and a colon
	Demanded  share.Enforcement
}

// Fallback is what holds shares that no enforcer holds, and why nothing does.
type Fallback struct {
	Level share.Enforcement
	Why   string
}

// Fallback is the front library, if it is there for the driver.
func (e Enforcers) Fallback() Fallback {
	if e.Front != nil {
		if err := e.Front(); err != nil {
			return Fallback{share.Booked, fmt.Sprintf("front: %v", err)}
		}
	}
	return Fallback{share.EnforcedFront, ""}
}

// Take has a share held by all enforcers that can, and says how strongly it is.
func (e Enforcers) Take(ctx context.Context, v core.ShareView) Enforcement {
	g := Enforcement{
		Share:    enforce.Share{Name: v.Name, CardUUIDs: v.CardUUIDs(), MemoryBytes: v.MemoryBytes, ThreadsPercent: v.ThreadsPercent},
		Demanded: v.Enforce, Base: e.Fallback(),
	}
	return e.Rate(ctx, g, enforce.Enforcer.Hold)
}

// Rate says how strongly a share is held, by what each enforcer answers. One that did
// not hold it before may do so now.
func (e Enforcers) Rate(ctx context.Context, g Enforcement, ask func(enforce.Enforcer, context.Context, enforce.Share) error) Enforcement {
	ctx, cancel := context.WithTimeout(ctx, HoldFor)
	defer cancel()
	g.Enforcers, g.reasons = nil, []string{"mig: " + withoutMIG}
	for _, m := range e.All {
		if err := ask(m, ctx, g.Share); err != nil {
			g.reasons = append(g.reasons, reason(m, err))
			continue
		}
		g.Enforcers = append(g.Enforcers, m)
	}
	if g.Base.Why != "" {
		g.reasons = append(g.reasons, g.Base.Why)
	}
	g.Level = strongest(g.Enforcers, g.Base.Level)
	return g
}

// Release lets a share go that is no more, whatever becomes of who asks.
func (e Enforcers) Release(ctx context.Context, g Enforcement) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), HoldFor)
	defer cancel()
	var failed error
	for _, m := range e.All {
		failed = errors.Join(failed, m.Drop(ctx, g.Share))
	}
	return failed
}

// Rest lets go of what nobody uses, before the agent ends.
func (e Enforcers) Rest(g Enforcement) error {
	var failed error
	for _, m := range e.All {
		failed = errors.Join(failed, m.Rest(g.Share))
	}
	return failed
}

// Strongest is the level that a new share of a card would get, if it has a quota.
func (e Enforcers) Strongest(ctx context.Context, card string) share.Enforcement {
	ctx, cancel := context.WithTimeout(ctx, answerFor)
	defer cancel()
	able := slices.DeleteFunc(slices.Clone(e.All), func(m enforce.Enforcer) bool { return m.Offers(ctx, card) != nil })
	return strongest(able, e.Fallback().Level)
}

// Serve says whether several programs can use a card that is for one process.
func (e Enforcers) Serve(ctx context.Context, card string) bool {
	ctx, cancel := context.WithTimeout(ctx, answerFor)
	defer cancel()
	return slices.ContainsFunc(e.All, func(m enforce.Enforcer) bool { return m.Serves(ctx, card) })
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

// JoinReason puts one reason after others.
func JoinReason(before, reason string) string {
	switch {
	case before == "":
		return reason
	case reason == "":
		return before
	}
	return before + "; " + reason
}

// Why says why no stronger level is in force: a weaker enforcer that fails does not
// matter.
func (g Enforcement) Why() string {
	return strings.Join(slices.DeleteFunc(slices.Clone(g.reasons), func(reason string) bool {
		level, _, _ := strings.Cut(reason, ":")
		return g.Level.Meets(share.Enforcement(level))
	}), "; ")
}

// By returns the enforcer of a level, if it holds the share.
func (g Enforcement) By(level share.Enforcement) (enforce.Enforcer, bool) {
	i := slices.IndexFunc(g.Enforcers, func(m enforce.Enforcer) bool { return m.Level() == level })
	if i < 0 {
		return nil, false
	}
	return g.Enforcers[i], true
}

// failing says why an enforcer does not hold the share.
func (g Enforcement) failing(level share.Enforcement) string {
	i := slices.IndexFunc(g.reasons, func(reason string) bool { return strings.HasPrefix(reason, string(level)+":") })
	if i < 0 {
		return string(level) + ": not among the enforcers of this agent"
	}
	return g.reasons[i]
}

// Missing says why the share is not held as it demands; empty: it is.
func (g Enforcement) Missing() string {
	if g.Level.Meets(g.Demanded) {
		return ""
	}
	return g.failing(g.Demanded)
}

// Inside is what programs in containers need to be held by MPS; nil: it does not hold
// the share.
func (g Enforcement) Inside() *api.MPS {
	for _, m := range g.Enforcers {
		c, ok := m.(enforce.Container)
		if !ok {
			continue
		}
		if folder, environment, err := c.Inside(g.Share); err == nil {
			return &api.MPS{PipeDirectory: folder, Environment: environment}
		}
	}
	return nil
}

// Short says why a share is held less than is asked of it; nil: it is not.
func (g Enforcement) Short() error {
	if _, under := g.By(share.EnforcedMPS); g.Share.ThreadsPercent > 0 && !under {
		return &api.Error{
			Code:    api.CodeNotAllowed,
			Message: fmt.Sprintf("only MPS limits the processors of share %q: %s", g.Share.Name, g.failing(share.EnforcedMPS)),
			Hint:    "leave --mps-threads out, or start MPS on the GPU: docs/mps.md",
		}
	}
	if g.Level.Meets(g.Demanded) {
		return nil
	}
	return &api.Error{
		Code:    api.CodeNotAllowed,
		Message: fmt.Sprintf("share %q would be held at level %q, not at %q: %s", g.Share.Name, g.Level, g.Demanded, g.Why()),
		Hint:    "--enforce " + string(g.Level) + ", or leave it out",
	}
}

// Enter puts a process under the share, by what holds it.
func (g Enforcement) Enter(ctx context.Context, pid int) (api.Entry, error) {
	entry := api.Entry{}
	var entered []enforce.Enforcer
	for _, m := range g.Enforcers {
		env, err := m.Enter(ctx, g.Share, pid)
		switch {
		case errors.Is(err, enforce.ErrOutside):
			entry.Why = JoinReason(entry.Why, reason(m, err))
			continue
		case err != nil:
			return entry, &api.Error{Code: api.CodeUnavailable, Message: fmt.Sprintf("enter share %q at level %q: %v", g.Share.Name, m.Level(), err)}
		}
		entered = append(entered, m)
		entry.Environment = append(entry.Environment, env...)
	}
	if entry.Enforcement = strongest(entered, g.Base.Level); !entry.Enforcement.Meets(g.Demanded) {
		return entry, &api.Error{Code: api.CodeNotAllowed,
			Message: fmt.Sprintf("share %q demands level %q: %s", g.Share.Name, g.Demanded, JoinReason(entry.Why, g.Missing()))}
	}
	return entry, nil
}

// Admitted is how strongly a process is held that attaches.
type Admitted struct {
	Enforcement Enforcement
	Level       share.Enforcement  // now
	Pending     []enforce.Enforcer // that can be looked at once its driver runs
	Why         string             // it is held less than its share
}

// Admit looks at a process before its driver starts: what holds the share may
// not hold it, as a container's, and what would keep it waiting for ever is said.
func (g Enforcement) Admit(ctx context.Context, pid, uid int) (Admitted, error) {
	a := Admitted{Enforcement: g, Level: g.Base.Level}
	could := a.Level
	for _, m := range g.Enforcers {
		err := m.Admit(ctx, g.Share, pid, uid)
		if errors.Is(err, enforce.ErrBlocked) {
			return a, err
		}
		if err != nil {
			a.Why = JoinReason(a.Why, fmt.Sprintf("%s: %v", m.Level(), err))
			continue
		}
		could = strongest([]enforce.Enforcer{m}, could)
		if m.Level() == share.EnforcedMPS {
			a.Pending = append(a.Pending, m)
		} else {
			a.Level = strongest([]enforce.Enforcer{m}, a.Level)
		}
	}
	if !could.Meets(g.Demanded) {
		return a, fmt.Errorf("%w: at level %q, not %q: %s", errWeaker, could, g.Demanded, JoinReason(a.Why, g.Missing()))
	}
	return a, nil
}

const (
	verifyFor   = 30 * time.Second // for a program to initialise its driver
	verifyFirst = 50 * time.Millisecond
	verifyLast  = 2 * time.Second
)

// Verify looks whether a process is held once its driver runs, until ended is closed: by the
// level, and why by no more, it says what came out.
func (a *Admitted) Verify(ctx context.Context, ended <-chan struct{}, pid int) {
	for _, m := range a.Pending {
		if err := awaitVerified(ctx, ended, m, a.Enforcement.Share, pid); err != nil {
			a.Why = JoinReason(a.Why, fmt.Sprintf("%s: %v", m.Level(), err))
			continue
		}
		a.Level = strongest([]enforce.Enforcer{m}, a.Level)
	}
}

// awaitVerified asks again until the process is held, is gone, or has had time
// enough.
func awaitVerified(ctx context.Context, ended <-chan struct{}, m enforce.Enforcer, s enforce.Share, pid int) error {
	asking, cancel := context.WithTimeout(ctx, verifyFor)
	defer cancel()
	wait := verifyFirst
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return errStopping
		case <-ended:
			return errStopping
		}
		err := m.Verify(asking, s, pid)
		if err == nil || asking.Err() != nil || !errors.Is(err, enforce.ErrOutside) {
			return err
		}
		wait = min(2*wait, verifyLast)
		timer.Reset(wait)
	}
}
