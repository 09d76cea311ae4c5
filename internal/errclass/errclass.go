// SPDX-License-Identifier: Apache-2.0

// Package errclass makes errors that belong to a class, for errors.Is, without saying so
// in their text.
package errclass

import "fmt"

type marked struct{ class, cause error }

func (e *marked) Error() string   { return e.cause.Error() }
func (e *marked) Unwrap() []error { return []error{e.class, e.cause} }

// Of puts an error into a class besides those that it is of.
func Of(class, err error) error { return &marked{class, err} }

// Errorf is fmt.Errorf for an error of a class.
func Errorf(class error, format string, args ...any) error {
	return Of(class, fmt.Errorf(format, args...))
}
