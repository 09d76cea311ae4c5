// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/enforce"
	"github.com/divvy-gpu/divvy/internal/share"
)

// comes starts or ends the daemon of MPS, as others do.
func (f *fakeEnforcer) comes(up bool) {
	f.set(func(f *fakeEnforcer) {
		f.serves, f.holds = up, errors.New("no daemon")
		if up {
			f.holds = nil
		}
	})
}

// awaitLevel waits until the agent tells, without that anybody looks at the share,
// that it is held otherwise.
func (r *rig) awaitLevel(share, level string, changes int) {
	r.t.Helper()
	eventually(r.t, fmt.Sprintf("share %s at level %s", share, level), func() bool {
		log, err := r.client.Events(r.t.Context(), 0)
		must(r.t, err)
		told := slices.DeleteFunc(log.Events, func(e api.Event) bool { return e.Kind != "enforcement-changed" || e.Share != share })
		if len(told) < changes {
			return false
		}
		if last := told[len(told)-1].Message; len(told) != changes || !strings.HasPrefix(last, fmt.Sprintf("held at level %q", level)) {
			r.t.Fatalf("%d changes, the last: %s", len(told), last)
		}
		return true
	})
}

// A share that was there before MPS ran on its card is held by it from then on, for
// containers too, and it is told when that is over; nobody has to look.
func TestMPSComesAndGoes(t *testing.T) {
	f, mps := &fakeContainers{}, insideEnforcer{newFakeEnforcer(share.EnforcedMPS)}
	mps.comes(false)
	r := newRig(t, func(c *Config) {
		c.Containers, c.Enforcers, c.LookEvery = f, []enforce.Enforcer{mps}, 5*time.Millisecond
	})
	f.take()
	offered := func(want string) {
		t.Helper()
		var told []string
		eventually(t, want, func() bool { told = append(told, f.take()...); return len(told) > 0 })
		if !slices.Equal(told, []string{want}) {
			t.Errorf("told %q, want %q", told, want)
		}
	}
	r.share(api.ShareSpec{Name: "a", MemoryBytes: gib})
	offered("offer a")
	early := r.front("a")

	mps.comes(true)
	r.awaitLevel("a", "mps", 1)
	offered(fmt.Sprintf("offer a in /pipe with [LIMIT=%d]", gib))
	if s, err := r.client.Share(t.Context(), "a"); err != nil || s.Enforcement != share.EnforcedMPS || s.MPS == nil {
		t.Errorf("%+v, %v", s, err)
	}
	if got := r.clientLevel("a"); got != share.EnforcedFront {
		t.Errorf("a program that was there before MPS is shown at level %q", got)
	}
	early.close()
	eventually(t, "it is gone", func() bool { return r.clientLevel("a") == "" })
	r.front("a")
	eventually(t, "MPS holds a later one", func() bool { return r.clientLevel("a") == share.EnforcedMPS })

	mps.comes(false)
	r.awaitLevel("a", "front", 2)
	offered("offer a")

	// It need not be a client of the next daemon.
	mps.set(func(f *fakeEnforcer) { f.verifies = errors.New("the daemon does not have it as a client") })
	mps.comes(true)
	r.awaitLevel("a", "mps", 3)
	if e := r.awaitEvent("not-enforced"); !strings.Contains(e.Message, "does not have it") {
		t.Error(e.Message)
	}
	if got := r.clientLevel("a"); got != share.EnforcedFront {
		t.Errorf("a program of the daemon before is shown at level %q", got)
	}
}

// A share that demands MPS takes no program while that is away, and says why.
func TestDemandedMPSIsAway(t *testing.T) {
	mps := newFakeEnforcer(share.EnforcedMPS)
	mps.comes(true)
	r := newRig(t, func(c *Config) { c.Enforcers, c.LookEvery = []enforce.Enforcer{mps}, 5*time.Millisecond })
	r.share(api.ShareSpec{Name: "a", MemoryBytes: gib, Enforce: share.EnforcedMPS})
	mps.comes(false)
	_, err := r.client.Enter(t.Context(), "a") // looks by itself
	if e := wantCode(t, err, api.CodeNotAllowed); !strings.Contains(e.Message, "no daemon") {
		t.Error(e.Message)
	}
	if _, err := newFront(r.cfg.ShareSocket("a")); err == nil || !strings.Contains(err.Error(), "no daemon") {
		t.Errorf("attached: %v", err)
	}
	mps.comes(true)
	entry, err := r.client.Enter(t.Context(), "a")
	must(t, err)
	if entry.Enforcement != share.EnforcedMPS {
		t.Errorf("%+v", entry)
	}
}

// A look that began under old limits does not bring them back.
func TestOutdatedLook(t *testing.T) {
	r, driver, mps := heldRig(t)
	mps.comes(false)
	r.share(api.ShareSpec{Name: "a", MemoryBytes: gib})
	old := r.daemon.driverWatch.allEnforcements(t.Context())
	larger := uint64(2 * gib)
	_, err := r.client.ChangeShare(t.Context(), "a", api.ShareChange{MemoryBytes: &larger})
	must(t, err)
	driver.set(func(f *fakeEnforcer) { f.holds = errors.New("as of then") })
	r.daemon.driverWatch.lookAgain(t.Context(), old)
	now := r.daemon.driverWatch.allEnforcements(t.Context())
	if len(now) != 1 || now[0].Share.MemoryBytes != larger || now[0].Level != share.EnforcedDriver {
		t.Errorf("%+v", now)
	}
}
