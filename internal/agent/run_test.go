// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/client"
	"github.com/divvy-gpu/divvy/internal/enforce"
	"github.com/divvy-gpu/divvy/internal/share"
)

func (r *rig) hasShare(name string) bool {
	r.t.Helper()
	shares, err := r.client.Shares(r.t.Context())
	must(r.t, err)
	for _, s := range shares.Shares {
		if s.Name == name {
			return true
		}
	}
	return false
}

// One request gives a command all that it needs, and keeps its share until the
// connection ends.
func TestRun(t *testing.T) {
	r, driver, mps := heldRig(t)
	mps.set(func(f *fakeEnforcer) { f.environment = []string{"A=1"} })
	driver.set(func(f *fakeEnforcer) { f.environment = []string{"B=2"} })
	run, hold, err := r.client.Run(t.Context(), api.RunSpec{New: &api.ShareSpec{Name: "new", MemoryBytes: gib, Ephemeral: true}})
	must(t, err)
	if run.Version.PID != os.Getpid() || run.Version.DriverDirectory != r.cfg.DriverDirectory || run.Share.Socket != r.cfg.ShareSocket("new") ||
		run.Share.MemoryBytes != gib || run.Entry.Enforcement != share.EnforcedDriver || strings.Join(run.Entry.Environment, " ") != "B=2 A=1" {
		t.Errorf("run %+v", run)
	}
	driver.set(func(f *fakeEnforcer) {
		if want := fmt.Sprintf("new %d", os.Getpid()); strings.Join(f.entered, "") != want {
			t.Errorf("entered %q, want %q", f.entered, want)
		}
	})
	program := r.front("new")
	must(t, program.alloc(mib))
	program.close()
	eventually(t, "the program is off the ledger", func() bool {
		s, err := r.client.Share(t.Context(), "new")
		must(t, err)
		return s.Clients == 0
	})
	if !r.hasShare("new") {
		t.Error("the share went with its program, though it is held")
	}
	hold.Close()
	eventually(t, "the share goes with the connection", func() bool { return !r.hasShare("new") })
	eventually(t, "what held the share lets it go", func() bool {
		driver.mutex.Lock()
		defer driver.mutex.Unlock()
		return len(driver.held) == 0
	})

	// A declared share stays after its run.
	r.share(api.ShareSpec{Name: "declared", MemoryBytes: gib})
	run, hold, err = r.client.Run(t.Context(), api.RunSpec{Share: "declared"})
	if err != nil || run.Share.Name != "declared" || run.Entry.Enforcement != share.EnforcedDriver {
		t.Fatalf("declared: %+v, %v", run, err)
	}
	hold.Close()
	if !r.hasShare("declared") {
		t.Error("a declared share went with a run")
	}
	// An ephemeral one that somebody else made is held by both.
	_, first, err := r.client.Run(t.Context(), api.RunSpec{New: &api.ShareSpec{Name: "both", MemoryBytes: gib, Ephemeral: true}})
	must(t, err)
	_, second, err := r.client.Run(t.Context(), api.RunSpec{Share: "both"})
	must(t, err)
	first.Close()
	if !r.hasShare("both") {
		t.Error("the share went with the first of two")
	}
	second.Close()
	eventually(t, "the share goes with the second", func() bool { return !r.hasShare("both") })
}

// A run that is refused leaves nothing behind.
func TestRefusedRun(t *testing.T) {
	r, driver, mps := heldRig(t)
	r.share(api.ShareSpec{Name: "taken", MemoryBytes: gib})
	r.share(api.ShareSpec{Name: "strict", MemoryBytes: gib, Enforce: share.EnforcedDriver})
	driver.set(func(f *fakeEnforcer) { f.enters = fmt.Errorf("%w of it", enforce.ErrOutside) })
	mps.set(func(f *fakeEnforcer) { f.holds = errors.New("no daemon") })
	small := &api.ShareSpec{Name: "small", MemoryBytes: gib, Ephemeral: true}
	for name, c := range map[string]struct {
		spec api.RunSpec
		code api.Code
	}{
		"nothing":          {api.RunSpec{}, api.CodeUsage},
		"both":             {api.RunSpec{Share: "taken", New: small}, api.CodeUsage},
		"taken":            {api.RunSpec{New: &api.ShareSpec{Name: "taken", Ephemeral: true}}, api.CodeExists},
		"too large":        {api.RunSpec{New: &api.ShareSpec{Name: "x", MemoryBytes: 81 * gib, Ephemeral: true}}, api.CodeNotAllowed},
		"a bad name":       {api.RunSpec{New: &api.ShareSpec{Name: "../x", Ephemeral: true}}, api.CodeUsage},
		"not there":        {api.RunSpec{Share: "nobody"}, api.CodeNotFound},
		"held by less":     {api.RunSpec{New: &api.ShareSpec{Name: "x", MemoryBytes: gib, Ephemeral: true, Enforce: share.EnforcedMIG}}, api.CodeNotAllowed},
		"does not enter":   {api.RunSpec{New: &api.ShareSpec{Name: "x", MemoryBytes: gib, Ephemeral: true, Enforce: share.EnforcedDriver}}, api.CodeNotAllowed},
		"nor the declared": {api.RunSpec{Share: "strict"}, api.CodeNotAllowed},
	} {
		run, hold, err := r.client.Run(t.Context(), c.spec)
		if hold != nil {
			t.Errorf("%s: held: %+v", name, run)
			hold.Close()
			continue
		}
		if e := wantCode(t, err, c.code); e.Message == "" {
			t.Errorf("%s: no word of why", name)
		}
	}
	eventually(t, "nothing is left", func() bool {
		shares, err := r.client.Shares(t.Context())
		must(t, err)
		driver.mutex.Lock()
		defer driver.mutex.Unlock()
		return len(shares.Shares) == 2 && len(driver.held) == 2
	})
	entries, err := os.ReadDir(r.cfg.SharesFolder())
	must(t, err)
	if len(entries) != 2 {
		t.Errorf("folders of shares: %v", entries)
	}
}

// Who asks and goes before the answer leaves nothing behind either.
func TestRunWithoutItsAsker(t *testing.T) {
	asked, answer := make(chan struct{}), make(chan struct{})
	waits := &slowEnforcer{fakeEnforcer: newFakeEnforcer(share.EnforcedDriver), meanwhile: func() {
		asked <- struct{}{}
		<-answer
	}}
	r := newRig(t, func(c *Config) { c.Enforcers = []enforce.Enforcer{waits} })
	conn, err := net.Dial("unix", r.cfg.APISocket())
	must(t, err)
	const body = `{"new":{"name":"left","memoryBytes":1073741824,"ephemeral":true}}`
	_, err = fmt.Fprintf(conn, "POST /v1/runs HTTP/1.1\r\nHost: d\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	must(t, err)
	<-asked
	must(t, conn.Close())
	close(answer)
	r.awaitEvent("share-deleted")
	eventually(t, "what held the share lets it go", func() bool {
		waits.mutex.Lock()
		defer waits.mutex.Unlock()
		return len(waits.held) == 0 && len(waits.dropped) > 0
	})
	if r.hasShare("left") {
		t.Error("the share is still there")
	}
}

// Who makes a share of a name that another one has just had loses nothing to that one, which may
// have been deleted before it was held, or while its limits were changed, or be let go still.
func TestNameThatAnotherShareHad(t *testing.T) {
	for name, hold := range map[string]int32{"not held yet": 1, "being changed": 2, "being let go": 0} {
		t.Run(name, func(t *testing.T) {
			reached, proceed := make(chan struct{}), make(chan struct{})
			pause := func() {
				close(reached)
				<-proceed
			}
			waits := &slowEnforcer{fakeEnforcer: newFakeEnforcer(share.EnforcedDriver)}
			var holds, drops atomic.Int32
			waits.meanwhile = func() {
				if holds.Add(1) == hold {
					pause()
				}
			}
			waits.dropping = func() {
				if drops.Add(1) == 1 && hold == 0 {
					pause()
				}
			}
			r := newRig(t, func(c *Config) { c.Enforcers = []enforce.Enforcer{waits} })
			first := make(chan error, 1)
			go func() {
				_, err := r.client.CreateShare(t.Context(), api.ShareSpec{Name: "same", MemoryBytes: gib})
				if hold == 2 {
					half := uint64(gib / 2)
					_, err = r.client.ChangeShare(t.Context(), "same", api.ShareChange{MemoryBytes: &half})
				}
				first <- err
			}()
			if hold == 0 {
				must(t, <-first)
				must(t, r.client.DeleteShare(t.Context(), "same", false))
			}
			<-reached
			if hold != 0 {
				must(t, r.client.DeleteShare(t.Context(), "same", false))
			}
			second := make(chan error, 1)
			go func() {
				_, err := r.client.CreateShare(t.Context(), api.ShareSpec{Name: "same", MemoryBytes: 2 * gib})
				second <- err
			}()
			eventually(t, "the second one is booked", func() bool { return r.hasShare("same") })
			close(proceed)
			must(t, <-second)
			if hold == 1 {
				wantCode(t, <-first, api.CodeNotFound)
			} else if hold == 2 {
				<-first // which of them it tells of is open
			}
			waits.set(func(f *fakeEnforcer) {
				if held := f.held["same"].MemoryBytes; held != 2*gib {
					t.Errorf("the second one is held at %d bytes", held)
				}
			})
			r.front("same") // its socket is there
		})
	}
}

// Who held a share that was deleted holds nothing of the next one of its name, and lets nothing of it go.
func TestHoldOfAShareThatAnotherFollowed(t *testing.T) {
	r := newRig(t)
	spec := api.ShareSpec{Name: "same", MemoryBytes: gib, Ephemeral: true}
	hold := func() *client.Hold {
		r.share(spec)
		h, err := r.client.Hold(context.Background(), "same")
		must(t, err)
		return h
	}
	before := hold()
	must(t, r.client.DeleteShare(t.Context(), "same", true))
	after := hold()
	defer after.Close()
	open := len(r.daemon.conns.all)
	before.Close()
	eventually(t, "the agent knows that the first has let go", func() bool { return len(r.daemon.conns.all) < open })
	if !r.hasShare("same") {
		t.Error("the second one went with the hold of the first")
	}
}
