// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/client"
	"github.com/divvy-gpu/divvy/internal/errclass"
	"github.com/divvy-gpu/divvy/internal/private"
)

// Exit codes; docs/exit-codes.md says what a script may rely on.
const (
	exitOK            = 0
	exitFailed        = 1   // something else, or a check that did not pass
	exitUsage         = 2   // wrong usage
	exitNotThere      = 3   // no such share, card or file
	exitNotAllowed    = 4   // exists already, no room, over quota, not yours
	exitUnreachable   = 5   // no agent answers
	exitRunFailed     = 125 // run: Divvy failed before the command started
	exitNotExecutable = 126 // run: the command cannot be executed
	exitNotFound      = 127 // run: no such command
	exitSignalBase    = 128 // run: plus the number of the signal that ended the command
)

var (
	errUsage    = errors.New("usage")
	errNotThere = errors.New("not there")
)

// exitError ends divvy with a code and without a word: a command's own code, or
// a check whose result is already on stdout.
type exitError struct{ code int }

func (e *exitError) Error() string { return "exit" }

// codedError gives a cause a code of its own.
type codedError struct {
	code  int
	cause error
}

func (e *codedError) Error() string { return e.cause.Error() }
func (e *codedError) Unwrap() error { return e.cause }

func usage(err error) error    { return errclass.Of(errUsage, err) }
func notThere(err error) error { return errclass.Of(errNotThere, err) }

// plainFlagError says what a flag wants in words that are not Go's.
func plainFlagError(err error) error {
	number, is := errors.AsType[*strconv.NumError](err)
	if !is {
		return err
	}
	wants := "not a whole number"
	switch {
	case errors.Is(number.Err, strconv.ErrRange):
		wants = "out of range"
	case number.Func == "ParseFloat":
		wants = "not a number"
	case number.Func == "ParseBool":
		wants = "neither true nor false"
	}
	return errors.New(strings.TrimSuffix(err.Error(), number.Error()) + wants)
}

// hintedError carries the exact command or change that helps.
type hintedError struct {
	cause error
	hint  string
}

func (e *hintedError) Error() string { return e.cause.Error() }
func (e *hintedError) Unwrap() error { return e.cause }

func withHint(err error, hint string) error { return &hintedError{cause: err, hint: hint} }

// hintOf is what to do about an error, empty if nothing is known.
func hintOf(err error) string {
	var hinted *hintedError
	if errors.As(err, &hinted) {
		return hinted.hint
	}
	var answer *api.Error
	if errors.As(err, &answer) && answer.Hint != "" {
		return answer.Hint
	}
	if errors.Is(err, private.ErrUnsafe) {
		return "remove it, or set XDG_RUNTIME_DIR to a folder of yours with mode 0700"
	}
	return ""
}

// exitCode maps an error to an exit code. It is the only place that does.
func exitCode(err error) int {
	var exit *exitError
	var coded *codedError
	var answer *api.Error
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &exit):
		return exit.code
	case errors.As(err, &coded):
		return coded.code
	case errors.Is(err, errUsage):
		return exitUsage
	case errors.Is(err, errNotThere):
		return exitNotThere
	case errors.Is(err, client.ErrUnreachable):
		return exitUnreachable
	case errors.As(err, &answer):
		switch answer.Code {
		case api.CodeUsage:
			return exitUsage
		case api.CodeNotFound:
			return exitNotThere
		case api.CodeNotAllowed, api.CodeExists, api.CodeNoRoom:
			return exitNotAllowed
		case api.CodeUnavailable:
			return exitUnreachable
		}
	}
	return exitFailed
}

// runFailed is for errors of `divvy run` that have no class of their own: a
// script must be able to tell them from the command's own code. A machine
// without a GPU is one of them: no argument would have made a difference.
func runFailed(err error) error {
	if code := exitCode(err); code != exitFailed && !errors.Is(err, errNoGPU) {
		return err
	}
	return &codedError{code: exitRunFailed, cause: err}
}

// oneLine keeps a message on one line, in printable ASCII.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case r == 'µ': // of a time.Duration
			return 'u'
		case r < ' ' || r > '~':
			return '?'
		}
		return r
	}, strings.TrimSpace(text))
}
