// SPDX-License-Identifier: Apache-2.0

// Package enforce holds shares to their limits by the driver
// and by MPS, besides the front library. Each enforcer is one level of enforcement; the
// agent tries all of them for a share, and the strongest that holds is the share's
// level. An enforcer says that it holds only what it has read back.
//
// What no enforcer here holds, the front library holds, or it is only booked: that is
// the agent's to say.
package enforce

import (
	"context"
	"errors"
	"slices"

	"github.com/divvy-gpu/divvy/internal/share"
)

// ErrCannot says that an enforcer cannot hold a share, as things are on this machine.
// The error that wraps it says why.
var ErrCannot = errors.New("cannot hold it")

// ErrOutside says that a process is not under the enforcer that holds its share.
var ErrOutside = errors.New("the process is outside")

// ErrBlocked says that a process would wait in its driver for others to end.
var ErrBlocked = errors.New("the process would wait for others to end")

// Share is what is to be held.
type Share struct {
	Name           string
	CardUUIDs      []string // at least one; what follows is of each
	MemoryBytes    uint64   // 0: no quota
	ThreadsPercent int      // of the card's processors at once; 0: no limit
}

// Equal says whether the same is to be held.
func (s Share) Equal(other Share) bool {
	return s.Name == other.Name && slices.Equal(s.CardUUIDs, other.CardUUIDs) && s.MemoryBytes == other.MemoryBytes && s.ThreadsPercent == other.ThreadsPercent
}

// Enforcer is one way of holding shares. Its methods may block for as long as the
// driver or a control daemon does, and may be called at once.
type Enforcer interface {
	Level() share.Enforcement
	// Serves says whether several programs can use a card through it that is set to
	// serve one process at a time.
	Serves(ctx context.Context, cardUUID string) bool
	// Offers says why no share of a card could be held, whatever is asked of it.
	Offers(ctx context.Context, cardUUID string) error
	// Hold begins to hold a share, or goes on with changed limits.
	Hold(ctx context.Context, s Share) error
	// Holds says whether the share is held now.
	Holds(ctx context.Context, s Share) error
	// Enter puts a process, and what it starts from then on, under the share, and
	// returns the environment that its programs need. ErrOutside: it may not.
	Enter(ctx context.Context, s Share, pid int) ([]string, error)
	// Admit says whether a process that is about to initialise its driver will be
	// held, and whether it can come up at all.
	Admit(ctx context.Context, s Share, pid, uid int) error
	// Verify says whether a process that has initialised its driver is held.
	Verify(ctx context.Context, s Share, pid int) error
	// Rest lets go of what nobody uses, before the agent ends; what is held stays so.
	Rest(s Share) error
	// Drop lets a share go. One that was never held is no error.
	Drop(ctx context.Context, s Share) error
}

// Container is an Enforcer that holds programs in containers too, if they are given
// something.
type Container interface {
	// Inside says which folder of the host a container needs at the same path, and
	// which environment.
	Inside(s Share) (folder string, environment []string, err error)
}
