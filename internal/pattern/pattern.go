// SPDX-License-Identifier: Apache-2.0

// Package pattern holds regular expressions that are compiled when they are first used.
// `divvy run` uses none, and should not wait for those of other commands.
package pattern

import (
	"regexp"
	"sync"
)

// Of returns the compiled expression each time it is called. The first call panics if the
// expression is wrong.
func Of(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}
