// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"regexp"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

const eventuallyDeadline = 30 * time.Second

// eventuallyCommand is: eventually PATTERN PROGRAM ARGUMENTS...: the program is
// run until its output matches.
func eventuallyCommand(ts *testscript.TestScript, negated bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: [!] eventually PATTERN PROGRAM ARGUMENTS...")
	}
	pattern, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	deadline := time.NewTimer(eventuallyDeadline)
	defer deadline.Stop()
	for {
		err := ts.Exec(args[1], args[2:]...)
		output := ts.ReadFile("stdout") + ts.ReadFile("stderr")
		if pattern.MatchString(output) != negated {
			return
		}
		poll := time.NewTimer(20 * time.Millisecond)
		select {
		case <-deadline.C:
			ts.Fatalf("%s: after %v still (%v):\n%s", strings.Join(args[1:], " "), eventuallyDeadline, err, output)
		case <-poll.C:
		}
	}
}
