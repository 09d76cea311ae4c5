// SPDX-License-Identifier: Apache-2.0

package core

import (
	"errors"
	"fmt"
)

// Kind says what sort of failure it is.
type Kind int

// Kinds of failure.
const (
	Usage       Kind = iota + 1 // the request makes no sense
	NotFound                    // no such share or card
	NotAllowed                  // exists already, no room, not yours
	Unavailable                 // not now
)

// Failure is why a request is refused, and what to do instead where we know.
type Failure struct {
	Kind    Kind
	Message string
	Hint    string
	cause   error // for errors.Is, where somebody tells this failure from others
}

func (f *Failure) Error() string { return f.Message }
func (f *Failure) Unwrap() error { return f.cause }

// ErrAttached refuses to delete a share under its processes.
var ErrAttached = errors.New("processes are attached")

func refuse(kind Kind, format string, args ...any) *Failure {
	return &Failure{Kind: kind, Message: fmt.Sprintf(format, args...)}
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
