// SPDX-License-Identifier: Apache-2.0

package core

import (
	"errors"
	"fmt"
)

// Kind says what sort of failure it is, in the word of the agent's interface.
type Kind string

// Kinds of failure.
const (
	Usage       Kind = "usage"       // the request makes no sense
	NotFound    Kind = "not-found"   // no such share or card
	NotAllowed  Kind = "not-allowed" // over a bound, not yours
	Exists      Kind = "exists"      // a share of that name is there, and another one
	NoRoom      Kind = "no-room"     // less is left than is asked for; Missing says how much
	Unavailable Kind = "unavailable" // not now
)

// Failure is why a request is refused, and what to do instead where we know.
type Failure struct {
	Kind    Kind
	Message string
	Hint    string
	Missing Missing
	Differs []string // of Exists: the fields of Spec that are not as asked for
	cause   error    // for errors.Is, where somebody tells this failure from others
}

// Missing is how much more a card would have to have left for what was asked of it.
type Missing struct {
	MemoryBytes  uint64
	CoresPercent int
}

func (f *Failure) Error() string { return f.Message }
func (f *Failure) Unwrap() error { return f.cause }

// ErrAttached refuses to delete a share under its processes.
var ErrAttached = errors.New("processes are attached")

func refuse(kind Kind, format string, args ...any) *Failure {
	return &Failure{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

// noRoom refuses for want of memory or cores.
func noRoom(missing Missing, format string, args ...any) *Failure {
	f := refuse(NoRoom, format, args...)
	f.Missing = missing
	return f
}

func (f *Failure) hint(format string, args ...any) *Failure {
	f.Hint = fmt.Sprintf(format, args...)
	return f
}

// Why a process may not attach; for errors.Is.
var (
	ErrGone  = refuse(NotFound, "the share does not exist any more")
	ErrBusy  = refuse(NotAllowed, "too many clients")
	ErrToken = refuse(NotAllowed, "the token belongs to another process")
	// ErrClaim comes wrapped, with how much.
	ErrClaim = refuse(NotAllowed, "its token is not known, and it claims to use memory")
	// ErrNotYours comes wrapped, with whose it is.
	ErrNotYours = refuse(NotAllowed, "the share is for another user")
)
