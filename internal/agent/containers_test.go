// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/enforce"
	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/share"
)

// fakeContainers notes what it is told.
type fakeContainers struct {
	mutex sync.Mutex // guards told and fail
	told  []string
	fail  error
}

func (f *fakeContainers) note(words string) error {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.told = append(f.told, words)
	return f.fail
}

func (f *fakeContainers) Offer(share api.Share, cards []gpu.Card) error {
	card := cards[0]
	if share.CardUUID != card.UUID || share.Socket == "" {
		return errors.New("not the share's GPU")
	}
	words := "offer " + share.Name
	if share.MPS != nil {
		words += fmt.Sprintf(" in %s with %v", share.MPS.PipeDirectory, share.MPS.Environment)
	}
	return f.note(words)
}

func (f *fakeContainers) Withdraw(share string) error { return f.note("withdraw " + share) }

func (f *fakeContainers) Keep(shares []string) error {
	words := "keep"
	for _, s := range shares {
		words += " " + s
	}
	return f.note(words)
}

func (f *fakeContainers) take() []string {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	told := f.told
	f.told = nil
	return told
}

// Container runtimes know a declared share before its maker hears of it, after
// a restart too, and not when it is gone; a share of one command they never do.
func TestContainersKnowDeclaredShares(t *testing.T) {
	f := &fakeContainers{}
	r := newRig(t, func(c *Config) { c.Containers = f })
	expect := func(want ...string) {
		t.Helper()
		if got := f.take(); !slices.Equal(got, want) {
			t.Errorf("told %q, want %q", got, want)
		}
	}
	expect("keep")
	r.share(api.ShareSpec{Name: "a", MemoryBytes: 1 << 30})
	expect("offer a")
	r.share(api.ShareSpec{Name: "b", MemoryBytes: 1 << 30})
	expect("offer b")
	r.share(api.ShareSpec{Name: "passing", MemoryBytes: 1 << 30, Ephemeral: true})
	expect()
	must(t, r.client.DeleteShare(t.Context(), "a", false))
	expect("withdraw a")
	must(t, r.stop())
	f.take() // the passing one
	r.start()
	told := f.take()
	if len(told) < 2 || told[0] != "keep b" || told[1] != "offer b" {
		t.Errorf("after a restart: %q", told)
	}

	// A share that containers cannot have is a share all the same.
	f.mutex.Lock()
	f.fail = errors.New("the disk is full")
	f.mutex.Unlock()
	r.share(api.ShareSpec{Name: "c", MemoryBytes: 1 << 30})
	if e := r.awaitEvent("container-device-failed"); e.Share != "c" {
		t.Errorf("%+v", e)
	}
}

// insideEnforcer is MPS as far as containers need it.
type insideEnforcer struct{ *fakeEnforcer }

func (insideEnforcer) Inside(s enforce.Share) (string, []string, error) {
	return "/pipe", []string{fmt.Sprint("LIMIT=", s.MemoryBytes)}, nil
}

// slowEnforcer takes its time to hold a share, and to let it go.
type slowEnforcer struct {
	*fakeEnforcer
	meanwhile, dropping func()
}

func (f *slowEnforcer) Drop(ctx context.Context, s enforce.Share) error {
	if f.dropping != nil {
		f.dropping()
	}
	return f.fakeEnforcer.Drop(ctx, s)
}

func (f *slowEnforcer) Hold(ctx context.Context, s enforce.Share) error {
	if f.meanwhile != nil {
		f.meanwhile()
	}
	return f.fakeEnforcer.Hold(ctx, s)
}

// A share that is deleted while its new limits are set is not offered after that.
func TestContainersAreNotOfferedWhatIsGone(t *testing.T) {
	f, enforcer := &fakeContainers{}, &slowEnforcer{fakeEnforcer: newFakeEnforcer(share.EnforcedMPS)}
	r := newRig(t, func(c *Config) { c.Containers, c.Enforcers = f, []enforce.Enforcer{enforcer} })
	r.share(api.ShareSpec{Name: "a", MemoryBytes: gib})
	f.take()
	enforcer.meanwhile = func() {
		if err := r.client.DeleteShare(t.Context(), "a", false); err != nil {
			t.Error(err)
		}
	}
	larger := uint64(2 * gib)
	if _, err := r.client.ChangeShare(t.Context(), "a", api.ShareChange{MemoryBytes: &larger}); err == nil {
		t.Error("a share that is gone was changed")
	}
	if told := f.take(); !slices.Equal(told, []string{"withdraw a"}) {
		t.Errorf("told %q", told)
	}
}

// What holds a share by MPS is offered with it, anew when its limits change.
func TestContainersAreGivenMPS(t *testing.T) {
	f, enforcer := &fakeContainers{}, insideEnforcer{newFakeEnforcer(share.EnforcedMPS)}
	r := newRig(t, func(c *Config) { c.Containers, c.Enforcers = f, []enforce.Enforcer{enforcer} })
	f.take()
	s := r.share(api.ShareSpec{Name: "a", MemoryBytes: gib})
	if want := fmt.Sprintf("offer a in /pipe with [LIMIT=%d]", gib); !slices.Equal(f.take(), []string{want}) || s.MPS == nil || s.MPS.PipeDirectory != "/pipe" {
		t.Errorf("%+v", s.MPS)
	}
	larger := uint64(2 * gib)
	if _, err := r.client.ChangeShare(t.Context(), "a", api.ShareChange{MemoryBytes: &larger}); err != nil {
		t.Fatal(err)
	}
	if want := []string{fmt.Sprintf("offer a in /pipe with [LIMIT=%d]", larger)}; !slices.Equal(f.take(), want) {
		t.Errorf("not offered with its new limit")
	}
	enforcer.set(func(f *fakeEnforcer) { f.holds = errors.New("no daemon") })
	if s, err := r.client.Share(t.Context(), "a"); err != nil || s.MPS != nil || !slices.Equal(f.take(), []string{"offer a"}) {
		t.Errorf("when the daemon has ended: %+v, %v", s.MPS, err)
	}
	if s := r.share(api.ShareSpec{Name: "b", MemoryBytes: gib}); s.MPS != nil || !slices.Equal(f.take(), []string{"offer b"}) {
		t.Errorf("without a daemon: %+v", s.MPS)
	}
}
