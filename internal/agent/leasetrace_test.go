// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/divvy-gpu/divvy/internal/arbiter"
)

// The first line of an agent is its own, also where the one before was killed while it wrote.
func TestLeaseTraceAfterACutLine(t *testing.T) {
	name := filepath.Join(t.TempDir(), "trace")
	for _, c := range []struct{ before, want string }{
		{"", "{\"card\":\"\",\"method\":\"tick\"}\n"},
		{"{\"card\":\"x\"}\n", "{\"card\":\"x\"}\n{\"card\":\"\",\"method\":\"tick\"}\n"},
		{"{\"card\":\"x", "{\"card\":\"x\n{\"card\":\"\",\"method\":\"tick\"}\n"},
	} {
		must(t, os.WriteFile(name, []byte(c.before), 0o600))
		trace, err := openLeaseTrace(name)
		must(t, err)
		trace.keep(arbiter.Call{Method: "tick"})
		must(t, trace.close())
		if got, err := os.ReadFile(name); err != nil || string(got) != c.want {
			t.Errorf("after %q: %q, %v", c.before, got, err)
		}
	}
}
