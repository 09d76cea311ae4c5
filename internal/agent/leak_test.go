// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"testing"

	"github.com/divvy-gpu/divvy/internal/api"
)

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(entries)
}

// Clients and shares that have come and gone leave no goroutine and no
// descriptor behind, and neither does an agent that has ended.
func TestNothingIsLeftBehind(t *testing.T) {
	r := newRig(t)
	use := func() {
		r.share(api.ShareSpec{Name: "s", MemoryBytes: gib})
		for range 10 {
			f, err := newFront(r.cfg.ShareSocket("s"))
			must(t, err)
			must(t, f.alloc(mib))
			f.close()
		}
		c := startChild(t, r.cfg.ShareSocket("s"))
		if got := c.do("alloc", mib); got != "ok" {
			t.Fatal(got)
		}
		c.kill()
		hold, err := r.client.Hold(context.Background(), "s")
		must(t, err)
		hold.Close()
		eventually(t, "all have left", func() bool {
			s, err := r.client.Share(context.Background(), "s")
			must(t, err)
			return s.Clients == 0
		})
		must(t, r.client.DeleteShare(context.Background(), "s", false))
	}
	use() // opens what stays open, of the runtime and of the agent
	goroutines, files := runtime.NumGoroutine(), descriptors(t)
	for range 5 {
		use()
	}
	eventually(t, "as many goroutines and descriptors as before", func() bool {
		return runtime.NumGoroutine() <= goroutines && descriptors(t) <= files
	})
	must(t, r.stop())
	eventually(t, "the agent's own goroutines and descriptors are gone", func() bool {
		return runtime.NumGoroutine() < goroutines && descriptors(t) < files
	})
}

// Programs that are quiet, and shares to which nobody comes, have no goroutine each; they are served
// as before when they say something, end, or come.
func TestQuietHaveNoGoroutine(t *testing.T) {
	const many = 40
	r := newRig(t)
	r.share(api.ShareSpec{Name: "first", MemoryBytes: gib})
	must(t, r.front("first").alloc(mib)) // begins what stays
	var fronts []*front
	before := runtime.NumGoroutine()
	for n := range many {
		name := fmt.Sprint("s", n)
		r.share(api.ShareSpec{Name: name, MemoryBytes: 256 * mib})
		fronts = append(fronts, r.front(name))
	}
	child := startChild(t, r.cfg.ShareSocket("first"))
	quiet := func() {
		t.Helper()
		eventually(t, "all are quiet", func() bool { return runtime.NumGoroutine() < before+many/2 })
	}
	quiet()
	for n, f := range fronts {
		must(t, f.alloc(mib))
		must(t, r.front(fmt.Sprint("s", n)).alloc(mib))
	}
	if got := child.do("alloc", mib); got != "ok" {
		t.Fatal(got)
	}
	quiet()
	fronts[0].close()
	child.kill()
	for name, want := range map[string]int{"s0": 1, "first": 1} {
		eventually(t, name+" has one left", func() bool {
			s, err := r.client.Share(t.Context(), name)
			must(t, err)
			return s.Clients == want
		})
	}
	must(t, r.client.DeleteShare(t.Context(), "s1", true))
	if err := fronts[1].alloc(mib); err == nil {
		t.Error("a program of a share that was deleted is served")
	}
}
