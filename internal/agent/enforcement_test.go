// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/core"
	"github.com/divvy-gpu/divvy/internal/enforce"
	"github.com/divvy-gpu/divvy/internal/event"
	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/share"
)

// fakeEnforcer holds shares as the test says.
type fakeEnforcer struct {
	level share.Enforcement

	mutex               sync.Mutex
	holds, admits       error
	verifies, enters    error
	held                map[string]enforce.Share
	dropped, entered    []string
	environment         []string
	verified, admission int
	serves              bool
}

func newFakeEnforcer(level share.Enforcement) *fakeEnforcer {
	return &fakeEnforcer{level: level, held: map[string]enforce.Share{}}
}

func (f *fakeEnforcer) set(change func(*fakeEnforcer)) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	change(f)
}

func (f *fakeEnforcer) Level() share.Enforcement { return f.level }

func (f *fakeEnforcer) Serves(context.Context, string) bool {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.serves
}

func (f *fakeEnforcer) Offers(context.Context, string) error {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.holds
}

func (f *fakeEnforcer) Hold(_ context.Context, s enforce.Share) error {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if f.holds == nil {
		f.held[s.Name] = s
	}
	return f.holds
}

func (f *fakeEnforcer) Holds(context.Context, enforce.Share) error {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.holds
}

func (f *fakeEnforcer) Enter(_ context.Context, s enforce.Share, pid int) ([]string, error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.entered = append(f.entered, fmt.Sprintf("%s %d", s.Name, pid))
	return f.environment, f.enters
}

func (f *fakeEnforcer) Admit(context.Context, enforce.Share, int, int) error {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.admission++
	return f.admits
}

func (f *fakeEnforcer) Verify(context.Context, enforce.Share, int) error {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.verified++
	return f.verifies
}

func (f *fakeEnforcer) Rest(enforce.Share) error { return nil }

func (f *fakeEnforcer) Drop(_ context.Context, s enforce.Share) error {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	delete(f.held, s.Name)
	f.dropped = append(f.dropped, s.Name)
	return nil
}

// heldRig is an agent whose driver and MPS are fakes.
func heldRig(t *testing.T, change ...func(*Config)) (r *rig, driver, mps *fakeEnforcer) {
	t.Helper()
	driver, mps = newFakeEnforcer(share.EnforcedDriver), newFakeEnforcer(share.EnforcedMPS)
	r = newRig(t, append(change, func(c *Config) { c.Enforcers = []enforce.Enforcer{driver, mps} })...)
	return r, driver, mps
}

func (r *rig) clientLevel(share string) share.Enforcement {
	r.t.Helper()
	list, err := r.client.Clients(r.t.Context())
	must(r.t, err)
	for _, c := range list.Clients {
		if c.Share == share {
			return c.Enforcement
		}
	}
	return ""
}

func TestStrongestLevelIsChosen(t *testing.T) {
	r, driver, mps := heldRig(t)
	spec := api.ShareSpec{Name: "a", MemoryBytes: gib}
	if s := r.share(spec); s.Enforcement != share.EnforcedDriver || !strings.HasPrefix(s.EnforcementWhy, "mig:") {
		t.Errorf("all hold: %q, %q", s.Enforcement, s.EnforcementWhy)
	}
	driver.set(func(f *fakeEnforcer) { f.holds = errors.New("an old driver") })
	spec.Name = "b"
	if s := r.share(spec); s.Enforcement != share.EnforcedMPS || !strings.Contains(s.EnforcementWhy, "driver: an old driver") {
		t.Errorf("MPS only: %q, %q", s.Enforcement, s.EnforcementWhy)
	}
	mps.set(func(f *fakeEnforcer) { f.holds = errors.New("no daemon") })
	spec.Name = "c"
	if s := r.share(spec); s.Enforcement != share.EnforcedFront || strings.Contains(s.EnforcementWhy, "front") {
		t.Errorf("neither: %q, %q", s.Enforcement, s.EnforcementWhy)
	}
	// What held once and does not now is seen by who looks, and told.
	s, err := r.client.Share(t.Context(), "a")
	must(t, err)
	if s.Enforcement != share.EnforcedFront || !strings.Contains(s.EnforcementWhy, "an old driver") {
		t.Errorf("an enforcer that stopped: %q, %q", s.Enforcement, s.EnforcementWhy)
	}
	if e := r.awaitEvent("enforcement-changed"); e.Share != "a" && e.Share != "b" {
		t.Errorf("event %+v", e)
	}
	driver.set(func(f *fakeEnforcer) { f.holds = nil })
	if s, err = r.client.Share(t.Context(), "a"); err != nil || s.Enforcement != share.EnforcedDriver {
		t.Errorf("an enforcer that is back: %q, %v", s.Enforcement, err)
	}
	must(t, r.client.DeleteShare(t.Context(), "a", false))
	eventually(t, "the driver lets the share go", func() bool {
		driver.mutex.Lock()
		defer driver.mutex.Unlock()
		return len(driver.held) == 0 && len(driver.dropped) == 1
	})
}

func TestDemandIsMetOrRefused(t *testing.T) {
	r, driver, mps := heldRig(t)
	driver.set(func(f *fakeEnforcer) { f.holds = errors.New("an old driver") })
	for level, ok := range map[share.Enforcement]bool{share.EnforcedMIG: false, share.EnforcedDriver: false, share.EnforcedMPS: true, share.EnforcedFront: true, share.Booked: true} {
		s, err := r.client.CreateShare(t.Context(), api.ShareSpec{Name: string(level), MemoryBytes: gib, Enforce: level})
		if ok {
			if err != nil || s.Enforcement != share.EnforcedMPS {
				t.Errorf("%s: %q, %v", level, s.Enforcement, err)
			}
			continue
		}
		if e := wantCode(t, err, api.CodeNotAllowed); !strings.Contains(e.Message, string(level)+": ") || e.Hint == "" {
			t.Errorf("%s: %q, hint %q", level, e.Message, e.Hint)
		}
		if _, err := r.client.Share(t.Context(), string(level)); err == nil {
			t.Errorf("%s left a share", level)
		}
	}
	mps.set(func(f *fakeEnforcer) { f.holds = errors.New("no daemon") })
	_, err := r.client.CreateShare(t.Context(), api.ShareSpec{Name: "threads", MemoryBytes: gib, ThreadsPercent: 30})
	if e := wantCode(t, err, api.CodeNotAllowed); !strings.Contains(e.Message, "no daemon") {
		t.Error(e.Message)
	}
}

// Without the front library a share is only booked, unless something else holds it.
func TestBooked(t *testing.T) {
	r, driver, mps := heldRig(t, func(c *Config) { c.Front = func() error { return errors.New("not prepared") } })
	if s := r.share(api.ShareSpec{Name: "a", MemoryBytes: gib}); s.Enforcement != share.EnforcedDriver {
		t.Errorf("with a driver: %q", s.Enforcement)
	}
	for _, f := range []*fakeEnforcer{driver, mps} {
		f.set(func(f *fakeEnforcer) { f.holds = errors.New("none") })
	}
	if s := r.share(api.ShareSpec{Name: "b", MemoryBytes: gib}); s.Enforcement != share.Booked || !strings.Contains(s.EnforcementWhy, "front: not prepared") {
		t.Errorf("without: %q, %q", s.Enforcement, s.EnforcementWhy)
	}
	_, err := r.client.CreateShare(t.Context(), api.ShareSpec{MemoryBytes: gib, Enforce: share.EnforcedFront})
	wantCode(t, err, api.CodeNotAllowed)
}

func TestEnter(t *testing.T) {
	r, driver, mps := heldRig(t)
	mps.set(func(f *fakeEnforcer) { f.environment = []string{"A=1"} })
	r.share(api.ShareSpec{Name: "a", MemoryBytes: gib})
	entry, err := r.client.Enter(t.Context(), "a")
	must(t, err)
	if entry.Enforcement != share.EnforcedDriver || len(entry.Environment) != 1 || len(driver.entered) != 1 {
		t.Errorf("%+v, %v", entry, driver.entered)
	}
	// A process that would escape from limits by it is held less, or refused.
	driver.set(func(f *fakeEnforcer) { f.enters = fmt.Errorf("%w of it", enforce.ErrOutside) })
	entry, err = r.client.Enter(t.Context(), "a")
	must(t, err)
	if entry.Enforcement != share.EnforcedMPS || entry.Why == "" {
		t.Errorf("%+v", entry)
	}
	r.share(api.ShareSpec{Name: "strict", MemoryBytes: gib, Enforce: share.EnforcedDriver})
	_, err = r.client.Enter(t.Context(), "strict")
	wantCode(t, err, api.CodeNotAllowed)
	_, err = r.client.Enter(t.Context(), "nobody")
	wantCode(t, err, api.CodeNotFound)
}

// A changed quota is what is held from then on.
func TestChangedQuotaIsHeld(t *testing.T) {
	r, driver, _ := heldRig(t)
	r.share(api.ShareSpec{Name: "a", MemoryBytes: gib})
	larger := uint64(2 * gib)
	_, err := r.client.ChangeShare(t.Context(), "a", api.ShareChange{MemoryBytes: &larger})
	must(t, err)
	if got := driver.held["a"].MemoryBytes; got != larger {
		t.Errorf("held to %d", got)
	}
}

// A restarted agent holds its shares again.
func TestRestartHoldsAgain(t *testing.T) {
	r, driver, _ := heldRig(t)
	r.share(api.ShareSpec{Name: "a", MemoryBytes: gib, Enforce: share.EnforcedDriver})
	must(t, r.stop())
	driver.set(func(f *fakeEnforcer) { f.held = map[string]enforce.Share{} })
	r.start()
	if s, err := r.client.Share(t.Context(), "a"); err != nil || s.Enforcement != share.EnforcedDriver || driver.held["a"].MemoryBytes != gib {
		t.Errorf("%q, %v, %v", s.Enforcement, driver.held, err)
	}
	must(t, r.stop())
	for _, f := range r.cfg.Enforcers {
		f.(*fakeEnforcer).set(func(f *fakeEnforcer) { f.holds = errors.New("gone") })
	}
	r.start()
	if e := r.awaitEvent("enforcement-changed"); !strings.Contains(e.Message, `"driver" was asked for`) {
		t.Error(e.Message)
	}
}

// A process that came past what holds the share is held by the front, and that is
// said; one in a share that demands more is refused.
func TestProcessOutside(t *testing.T) {
	r, driver, mps := heldRig(t)
	for _, f := range []*fakeEnforcer{driver, mps} {
		f.set(func(f *fakeEnforcer) { f.admits = fmt.Errorf("%w of it", enforce.ErrOutside) })
	}
	r.share(api.ShareSpec{Name: "open", MemoryBytes: gib})
	r.share(api.ShareSpec{Name: "strict", MemoryBytes: gib, Enforce: share.EnforcedMPS})
	r.front("open")
	if e := r.awaitEvent("not-enforced"); e.Share != "open" || e.PID == 0 {
		t.Errorf("%+v", e)
	}
	if got := r.clientLevel("open"); got != share.EnforcedFront {
		t.Errorf("level %q", got)
	}
	if _, err := newFront(r.cfg.ShareSocket("strict")); err == nil {
		t.Error("a process that is not held attached to a share that demands it")
	}
	if e := r.awaitEvent("client-refused"); !strings.Contains(e.Message, "not held as the share demands") {
		t.Error(e.Message)
	}
}

// A client of another user would wait in its driver for ever: it is told instead.
func TestProcessThatWouldWait(t *testing.T) {
	r, _, mps := heldRig(t)
	mps.set(func(f *fakeEnforcer) { f.admits = fmt.Errorf("%w: uid 7", enforce.ErrBlocked) })
	r.share(api.ShareSpec{Name: "a", MemoryBytes: gib})
	if _, err := newFront(r.cfg.ShareSocket("a")); err == nil {
		t.Error("it attached")
	}
	if e := r.awaitEvent("client-refused"); !strings.Contains(e.Message, "uid 7") {
		t.Error(e.Message)
	}
}

// What MPS holds is known once the driver of a process runs.
func TestVerifiedAfterTheStart(t *testing.T) {
	r, driver, mps := heldRig(t)
	driver.set(func(f *fakeEnforcer) { f.holds = errors.New("none") })
	mps.set(func(f *fakeEnforcer) { f.verifies = fmt.Errorf("%w of MPS", enforce.ErrOutside) })
	r.share(api.ShareSpec{Name: "a", MemoryBytes: gib})
	r.front("a")
	if got := r.clientLevel("a"); got != share.EnforcedFront {
		t.Errorf("before it is seen: %q", got)
	}
	mps.set(func(f *fakeEnforcer) { f.verifies = nil })
	eventually(t, "MPS holds it", func() bool { return r.clientLevel("a") == share.EnforcedMPS })
}

// A process that is not held though its share demands it gets nothing more.
func TestWithheld(t *testing.T) {
	r, driver, mps := heldRig(t)
	driver.set(func(f *fakeEnforcer) { f.holds = errors.New("none") })
	mps.set(func(f *fakeEnforcer) { f.verifies = errors.New("the daemon is gone") })
	r.share(api.ShareSpec{Name: "a", MemoryBytes: gib, Enforce: share.EnforcedMPS})
	f := r.front("a")
	r.awaitEvent("not-enforced")
	if err := f.alloc(256 * mib); err == nil {
		t.Error("it got memory")
	}
}

// A card in exclusive mode is for one process, or for MPS, which has it then.
func TestExclusiveCardUnderMPS(t *testing.T) {
	r, _, mps := heldRig(t)
	r.source.mutex.Lock()
	r.source.health = gpu.Health{State: gpu.Unshareable, Detail: "exclusive", Exclusive: true}
	r.source.mutex.Unlock()
	if _, err := r.client.CreateShare(t.Context(), api.ShareSpec{Name: "a", MemoryBytes: gib}); err == nil {
		t.Error("a share on a GPU for one process")
	}
	mps.set(func(f *fakeEnforcer) { f.serves = true })
	r.share(api.ShareSpec{Name: "b", MemoryBytes: gib})
}

// Devices say how strongly a new share would be held.
func TestStrongestOfDevices(t *testing.T) {
	r, driver, mps := heldRig(t, func(c *Config) { c.Front = func() error { return nil } })
	level := func() share.Enforcement {
		devices, err := r.client.Devices(t.Context())
		must(t, err)
		return devices.Cards[0].Enforcement
	}
	for _, c := range []struct {
		driver, mps error
		want        share.Enforcement
	}{
		{nil, nil, share.EnforcedDriver},
		{enforce.ErrCannot, nil, share.EnforcedMPS},
		{enforce.ErrCannot, enforce.ErrCannot, share.EnforcedFront},
	} {
		driver.set(func(f *fakeEnforcer) { f.holds = c.driver })
		mps.set(func(f *fakeEnforcer) { f.holds = c.mps })
		if got := level(); got != c.want {
			t.Errorf("driver %v, MPS %v: %s, want %s", c.driver, c.mps, got, c.want)
		}
		s := r.share(api.ShareSpec{MemoryBytes: gib})
		if s.Enforcement != c.want {
			t.Errorf("a share is held at %s, devices said %s", s.Enforcement, c.want)
		}
	}
}

// A process that is seen past the library again and again, and a daemon that comes and goes, fill no
// log: of both together a share, of root's too, has as many events as one may have.
func TestFloodOfLevels(t *testing.T) {
	r := newRig(t)
	s := r.share(api.ShareSpec{Name: "s", MemoryBytes: gib})
	const rounds = 500
	r.do(func(l *loop) {
		past := bypass{Holding: core.Holding{PID: 1 << 30, Bytes: gib}, share: s.Name, level: share.Booked}
		for range rounds {
			for range 2 { // only then it is sure
				past.at = past.at.Add(time.Second)
				l.setBypasses(s.CardUUID, past.at, []bypass{past})
			}
			past.at = past.at.Add(time.Second)
			l.setBypasses(s.CardUUID, past.at, nil)
			g := l.enforcements[s.Name]
			was := g.Level
			g.Level = share.Booked
			l.setEnforcement(g)
			g.Level = was
			l.setEnforcement(g)
		}
	})
	events, err := r.client.Events(t.Context(), 0)
	must(t, err)
	told := 0
	for _, e := range events.Events {
		if e.Kind == event.EnforcementChanged && e.Share == s.Name {
			told++
		}
	}
	if told == 0 || told > 25 {
		t.Errorf("%d changes of %d are told", told, 4*rounds)
	}
}

// Of processes past the library, in a share of root, a user has as many events as of his own share's.
func TestFloodOfBypasses(t *testing.T) {
	r := newRig(t)
	s := r.share(api.ShareSpec{Name: "s", MemoryBytes: gib})
	const attacker, processes = 12001, 1000
	r.do(func(l *loop) {
		var found []bypass
		for n := range processes {
			found = append(found, bypass{Holding: core.Holding{PID: 1<<30 + n, Bytes: gib}, uid: attacker, share: s.Name, level: share.Booked})
		}
		for n := range 2 { // only then they are sure
			for i := range found {
				found[i].at = time.Time{}.Add(time.Duration(n+1) * time.Second)
			}
			l.setBypasses(s.CardUUID, found[0].at, slices.Clone(found))
		}
	})
	events, err := r.client.Events(t.Context(), 0)
	must(t, err)
	told := 0
	for _, e := range events.Events {
		if e.Kind == event.NotEnforced && e.UID != nil && *e.UID == attacker {
			told++
		}
	}
	if told != 256 {
		t.Errorf("%d of %d processes are told of, want 256", told, processes)
	}
}
