// SPDX-License-Identifier: Apache-2.0

package private

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// playRelay listens at its last argument and notes in the file before it that it has begun.
func playRelay(args []string) int {
	if args[0] == "broken" {
		fmt.Fprintln(os.Stderr, "no such certificate")
		return 1
	}
	log, err := os.OpenFile(args[0], os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err == nil {
		_, err = log.WriteString("begun\n")
	}
	if err != nil {
		return 1
	}
	listener, err := net.Listen("unix", args[1])
	if err != nil {
		return 1
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			return 1
		}
		_ = conn.Close()
	}
}

// Many who want a relay at once get one, another identity another, and cleanup leaves none.
func TestRelay(t *testing.T) {
	root, program := shortRoot(t), os.Args[0]
	log := filepath.Join(t.TempDir(), "log")
	paths := make([]string, 16)
	var all sync.WaitGroup
	for i := range paths {
		all.Go(func() {
			path, err := root.Relay(t.Context(), program, fmt.Sprint("key", i%2), "relaying", log)
			if err != nil {
				t.Error(err)
			}
			paths[i] = path
		})
	}
	all.Wait()
	for i, path := range paths {
		if path != paths[i%2] || paths[0] == paths[1] {
			t.Errorf("%q", paths)
		}
	}
	raw, err := os.ReadFile(log)
	if err != nil || strings.Count(string(raw), "begun") != 2 {
		t.Errorf("begun: %q, %v", raw, err)
	}
	if _, err := root.Relay(t.Context(), program, "key", "relaying", "broken"); !errors.Is(err, ErrNotStarted) || !strings.Contains(err.Error(), "no such certificate") {
		t.Errorf("%v", err)
	}
	// Those that run stay, unless they are to go.
	if _, err := root.Clean(t.Context(), false); err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("unix", paths[0]); err != nil {
		t.Errorf("cleanup ended a relay: %v", err)
	}
	if _, err := root.Clean(t.Context(), true); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(root.Path(), ".relay-*")); len(left) > 0 {
		t.Errorf("%q is left", left)
	}
}
