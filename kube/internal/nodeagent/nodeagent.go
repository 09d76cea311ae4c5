// SPDX-License-Identifier: Apache-2.0

// Package nodeagent is what both ways of serving a node do with its agent: they make shares and
// wait for what stands in their way, remove those that are their own, and hear what happens.
package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/client"
	"github.com/divvy-gpu/divvy/internal/event"
	"github.com/divvy-gpu/divvy/internal/share"
)

// MiB is the unit of a share's memory.
const MiB = 1 << 20

// The pauses between two tries: the first, and the longest.
const (
	RetryFirst = 100 * time.Millisecond
	RetryLast  = 2 * time.Second
)

// Agent is what is needed of the node's agent.
type Agent interface {
	Devices(ctx context.Context) (api.Devices, error)
	Shares(ctx context.Context) (api.Shares, error)
	// SharesWith lists those that have all of these labels.
	SharesWith(ctx context.Context, labels share.Labels) (api.Shares, error)
	EnsureShare(ctx context.Context, spec api.ShareSpec) (s api.Share, made bool, err error)
	DeleteShare(ctx context.Context, name string, force bool) error
	Follow(ctx context.Context, since uint64, handle func(api.Event) error) error
}

// Instances is what is needed of the node's agent to make MIG instances; client.Client is one.
type Instances interface {
	Instances(ctx context.Context) (api.Instances, error)
	EnsureInstance(ctx context.Context, spec api.InstanceSpec) (i api.Instance, made bool, err error)
	DeleteInstance(ctx context.Context, name string) error
}

// New returns the agent behind a socket.
func New(socket string) Agent { return labelled{client.New(socket)} }

type labelled struct{ *client.Client }

func (l labelled) SharesWith(ctx context.Context, labels share.Labels) (api.Shares, error) {
	return l.Labelled(labels).Shares(ctx)
}

// ErrHeld says that programs of a share of the same name are not gone.
var ErrHeld = errors.New("its last programs are not gone")

// Ensure makes a share, or finds it as it is wanted. The cluster may have given away what
// the node has not taken back yet: a pod that was deleted by force, a program that does
// not end. That is waited for, since the kubelet tries again only after a minute or so.
func Ensure(ctx context.Context, a Agent, spec api.ShareSpec, patience time.Duration) (api.Share, error) {
	var made api.Share
	err := await(ctx, patience, func() (again bool, err error) {
		made, err = ensure(ctx, a, spec)
		return errors.Is(err, ErrHeld) || Code(err) == api.CodeNoRoom, err
	})
	return made, err
}

func ensure(ctx context.Context, a Agent, spec api.ShareSpec) (api.Share, error) {
	made, _, err := a.EnsureShare(ctx, spec)
	var failure *api.Error
	if !errors.As(err, &failure) || failure.Code != api.CodeExists {
		return made, Explain(err)
	}
	if len(failure.Differs) == 0 {
		return api.Share{}, held(ctx, a, spec)
	}
	// Of an allocation before this one, which nobody took back here.
	if err := remove(ctx, a, spec.Name); err != nil {
		return api.Share{}, fmt.Errorf("share %s has another %s, and cannot be removed: %w", spec.Name, strings.Join(failure.Differs, ", "), Explain(err))
	}
	made, _, err = a.EnsureShare(ctx, spec)
	if Code(err) == api.CodeExists {
		err = held(ctx, a, spec)
	}
	return made, Explain(err)
}

// held says who stands in the way of a share: the programs of one of its name.
func held(ctx context.Context, a Agent, spec api.ShareSpec) error {
	shares, err := a.SharesWith(ctx, spec.Labels)
	if err == nil {
		for _, s := range shares.Shares {
			if s.Name == spec.Name {
				return fmt.Errorf("share %s: %w: %d hold %d MiB of GPU %s", s.Name, ErrHeld, s.Clients, s.UsedBytes/MiB, strings.Join(s.CardUUIDs(), ", "))
			}
		}
	}
	return fmt.Errorf("share %s: %w", spec.Name, ErrHeld)
}

// Remove removes the shares with these labels of which it is so. What the driver has not taken
// back of them yet stays booked until it has.
func Remove(ctx context.Context, a Agent, labels share.Labels, is func(api.Share) bool) error {
	shares, err := a.SharesWith(ctx, labels)
	if err != nil {
		return Explain(err)
	}
	for _, s := range shares.Shares {
		if s.State == StateRevoked || !is(s) {
			continue
		}
		if err := remove(ctx, a, s.Name); err != nil {
			return Explain(err)
		}
	}
	return nil
}

// remove removes a share, unless it is gone.
func remove(ctx context.Context, a Agent, name string) error {
	if err := a.DeleteShare(ctx, name, true); err != nil && Code(err) != api.CodeNotFound {
		return err
	}
	return nil
}

// EnsureInstance makes a MIG instance, or finds it as it is wanted. As with shares, what the node has
// not taken back yet is waited for.
func EnsureInstance(ctx context.Context, a Instances, spec api.InstanceSpec, patience time.Duration) (made api.Instance, err error) {
	err = await(ctx, patience, func() (again bool, err error) {
		made, _, err = a.EnsureInstance(ctx, spec)
		if Code(err) == api.CodeExists { // of an allocation before this one
			if err = a.DeleteInstance(ctx, spec.Name); err == nil || Code(err) == api.CodeNotFound {
				made, _, err = a.EnsureInstance(ctx, spec)
			}
		}
		return Code(err) == api.CodeNoRoom || Code(err) == api.CodeUnavailable, Explain(err)
	})
	return made, err
}

// RemoveInstances destroys the MIG instances with these labels. One that a program uses is waited for.
func RemoveInstances(ctx context.Context, a Instances, labels share.Labels, patience time.Duration) error {
	return await(ctx, patience, func() (again bool, err error) {
		all, err := a.Instances(ctx)
		if Code(err) == api.CodeNotFound { // an agent that makes none
			return false, nil
		}
		for _, i := range all.Instances {
			if !i.Labels.Match(labels) {
				continue
			}
			if failed := a.DeleteInstance(ctx, i.Name); Code(failed) != api.CodeNotFound {
				err = errors.Join(err, failed)
			}
		}
		return Code(err) == api.CodeNotAllowed, Explain(err)
	})
}

// await tries until there is no use in trying again, or patience ends.
func await(ctx context.Context, patience time.Duration, try func() (again bool, err error)) error {
	deadline := time.Now().Add(patience)
	for {
		again, err := try()
		if err == nil || !again || time.Now().After(deadline) || !Pause(ctx, RetryFirst) {
			return err
		}
	}
}

// Follow calls handle for each event until ctx ends, and connected whenever it begins to hear
// them: an agent that is back starts to count anew, so that everything is looked at again.
func Follow(ctx context.Context, a Agent, log *slog.Logger, connected func(), handle func(event.Kind)) {
	retry := RetryFirst
	for ctx.Err() == nil {
		connected()
		err := a.Follow(ctx, 0, func(e api.Event) error {
			retry = RetryFirst
			handle(e.Kind)
			return nil
		})
		if ctx.Err() != nil {
			return
		}
		log.Warn("the agent's events ended", "error", err)
		Pause(ctx, retry)
		retry = min(2*retry, RetryLast)
	}
}

// OfHealth says whether an event is about how a GPU is, or may be: some were left out.
func OfHealth(kind event.Kind) bool {
	switch kind {
	case event.CardLost, event.CardNeedsReset, event.CardDegraded, event.CardUnshareable, event.CardUnresponsive, event.CardWell, event.CardCordoned, event.CardUncordoned,
		event.EventsDropped:
		return true
	}
	return false
}

// Pause waits; false: ctx has ended before.
func Pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// Code is the agent's code of an error; empty: it is not the agent's.
func Code(err error) api.Code {
	var failure *api.Error
	if errors.As(err, &failure) {
		return failure.Code
	}
	return ""
}

// Explain adds the agent's hint, which is what a pod's event has to say.
func Explain(err error) error {
	var failure *api.Error
	if errors.As(err, &failure) && failure.Hint != "" {
		return fmt.Errorf("%w (%s)", err, failure.Hint)
	}
	return err
}

// States of shares and of GPUs' health, as the agent says them (docs/json.md).
const (
	StateRevoked   = "revoked"
	HealthOK       = "ok"
	HealthDegraded = "degraded"
	// HealthUnresponsive is of a GPU whose figures are those of before.
	HealthUnresponsive = "unresponsive"
	// HealthUnshareable is of a GPU that takes no shares, as one in MIG mode.
	HealthUnshareable = "unshareable"
)

// TakesShares says whether a GPU of such a health does; of one without a health it is not known
// that it does not.
func TakesShares(health string) bool {
	return health == "" || health == HealthOK || health == HealthDegraded
}
