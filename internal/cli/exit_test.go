// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/client"
)

func TestExitCodes(t *testing.T) {
	wrapped := func(err error) error { return fmt.Errorf("something: %w", withHint(err, "do this")) }
	for _, c := range []struct {
		err      error
		code     int
		runsCode int // of divvy run
	}{
		{nil, 0, 0},
		{errors.New("x"), 1, 125},
		{usage(errors.New("x")), 2, 2},
		{notThere(errors.New("x")), 3, 3},
		{client.ErrUnreachable, 5, 5},
		{&api.Error{Code: api.CodeUsage}, 2, 2},
		{&api.Error{Code: api.CodeNotFound}, 3, 3},
		{&api.Error{Code: api.CodeNotAllowed}, 4, 4},
		{&api.Error{Code: api.CodeUnavailable}, 5, 5},
		{&api.Error{Code: "what-comes-later"}, 1, 125},
		{&exitError{code: 42}, 42, 42},
		{&codedError{code: 126, cause: errors.New("x")}, 126, 126},
	} {
		if got := exitCode(c.err); got != c.code {
			t.Errorf("exitCode(%v) = %d, want %d", c.err, got, c.code)
		}
		if c.err == nil {
			continue
		}
		if got := exitCode(wrapped(c.err)); got != c.code {
			t.Errorf("exitCode of wrapped %v = %d, want %d", c.err, got, c.code)
		}
		if got := exitCode(runFailed(c.err)); got != c.runsCode {
			t.Errorf("exitCode of run's %v = %d, want %d", c.err, got, c.runsCode)
		}
	}
}

func TestComplaintsAreOneLineOfASCII(t *testing.T) {
	var stderr bytes.Buffer
	a := &app{stderr: &stderr}
	a.complain(withHint(errors.New("two\nlines of caf\u00e9\x1b[31m"), "one\ttab"))
	want := "divvy: error: two lines of caf??[31m\ndivvy: hint: one tab\n"
	if got := stderr.String(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	stderr.Reset()
	a.complain(&api.Error{Message: "m", Hint: "h"})
	if got, want := stderr.String(), "divvy: error: m\ndivvy: hint: h\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
