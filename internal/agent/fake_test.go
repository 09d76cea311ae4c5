// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	_ "modernc.org/sqlite" // the database of history and usage

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/client"
	"github.com/divvy-gpu/divvy/internal/event"
	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/history"
	"github.com/divvy-gpu/divvy/internal/metrics"
)

const (
	gib      = 1 << 30
	mib      = 1 << 20
	testUUID = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
)

// fakeSource is a driver that says what the test tells it.
type fakeSource struct {
	mutex     sync.Mutex
	held      map[int]uint64
	broken    error
	asked     int
	account   func() map[int]uint64 // instead of held
	health    gpu.Health
	telemetry gpu.Telemetry
	activity  gpu.Activity
	faults    chan fakeFault
	more      []gpu.Card // besides the one that there always is
	links     []gpu.Link
	others    map[string]map[int]uint64 // held of the other cards, by UUID
}

func newFakeSource() *fakeSource {
	return &fakeSource{held: map[int]uint64{}, health: gpu.Health{State: gpu.Well}, faults: make(chan fakeFault, 10)}
}

func (s *fakeSource) Cards() ([]gpu.Card, error) {
	return append([]gpu.Card{{UUID: testUUID, Name: "H100 (simulated)", PCIAddress: "0000:01:00.0", DriverVersion: "535.0",
		MemoryBytes: 80 * gib, Simulated: true}}, s.more...), nil
}

func (s *fakeSource) Links() []gpu.Link { return s.links }

func (s *fakeSource) Account(uuid string) (gpu.Account, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.asked++
	if s.broken != nil {
		return gpu.Account{}, s.broken
	}
	held := s.held
	if s.account != nil {
		held = s.account()
	}
	if uuid != testUUID {
		held = s.others[uuid]
	}
	var a gpu.Account
	for pid, bytes := range held {
		a.UsedBytes += bytes
		a.Processes = append(a.Processes, gpu.Process{PID: pid, Bytes: bytes, Known: true})
	}
	return a, nil
}

func (s *fakeSource) Processes(uuid string) ([]gpu.Process, error) {
	a, err := s.Account(uuid)
	return a.Processes, err
}

func (s *fakeSource) Close() error { return nil }

func (s *fakeSource) Health(string) (gpu.Health, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.health, s.broken
}

func (s *fakeSource) Telemetry(string) (gpu.Telemetry, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.telemetry, s.broken
}

func (s *fakeSource) Activity(string, time.Time) (gpu.Activity, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.activity, s.broken
}

func (s *fakeSource) Faults(patience time.Duration) ([]gpu.Fault, error) {
	select {
	case f := <-s.faults:
		s.mutex.Lock()
		defer s.mutex.Unlock()
		s.health = f.health
		return []gpu.Fault{f.Fault}, nil
	case <-time.After(min(patience, 10*time.Millisecond)):
		return nil, nil
	}
}

// fakeFault is an XID, and how the card is from then on.
type fakeFault struct {
	gpu.Fault
	health gpu.Health
}

// become makes the card so when it tells of an XID: the agent looks at cards by itself, too, and
// would tell of a lost one that it found before its XID.
func (s *fakeSource) become(health gpu.Health, xid uint64) {
	s.faults <- fakeFault{gpu.Fault{UUID: testUUID, XID: xid}, health}
}

func (s *fakeSource) hold(pid int, bytes uint64) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if bytes == 0 {
		delete(s.held, pid)
		return
	}
	s.held[pid] = bytes
}

func (s *fakeSource) fail(err error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.broken = err
}

func (s *fakeSource) questions() int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.asked
}

// rig is an agent in this process.
type rig struct {
	t      testing.TB
	cfg    Config
	source *fakeSource
	client *client.Client
	daemon *daemon
	// prepare is called before the daemon runs; nil: nothing is.
	prepare func(*daemon)
	cancel  context.CancelFunc
	done    chan error
}

func testConfig(t testing.TB) Config {
	// t.TempDir may be too long for a socket; this is long enough for a share of the longest name to have none.
	folder, err := os.MkdirTemp("", "divvy-agent-to-test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	cfg := Private(filepath.Join(folder, "a"), folder)
	cfg.IdleExit, cfg.DivideEvery = 0, -1 // what a front says is what it had
	cfg.History = history.Bounds{}        // under the race detector a database takes a while
	cfg.Metrics = metrics.Handler
	if testing.Verbose() && os.Getenv("AGENT_TEST_LOG") != "" {
		cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	return cfg
}

func newRig(t testing.TB, change ...func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, cfg: testConfig(t), source: newFakeSource()}
	for _, f := range change {
		f(&r.cfg)
	}
	r.client = client.New(r.cfg.APISocket())
	r.start()
	t.Cleanup(func() { r.stop() })
	return r
}

func (r *rig) start() {
	r.t.Helper()
	if err := r.cfg.Validate(); err != nil {
		r.t.Fatal(err)
	}
	if err := makeFolders(r.cfg); err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	l, err := newLoop(ctx, r.cfg, r.source, nil, nil)
	if err != nil {
		cancel()
		r.t.Fatal(err)
	}
	r.daemon, r.cancel, r.done = l.daemon, cancel, make(chan error, 1)
	if r.prepare != nil {
		r.prepare(r.daemon)
	}
	go func() { r.done <- serve(ctx, l) }()
}

// do runs f in the agent's loop.
func (r *rig) do(f func(*loop)) {
	r.t.Helper()
	must(r.t, r.daemon.do(context.Background(), f))
}

func (r *rig) stop() error {
	if r.cancel == nil {
		return nil
	}
	r.cancel()
	r.cancel = nil
	return <-r.done
}

func (r *rig) share(spec api.ShareSpec) api.Share {
	r.t.Helper()
	s, err := r.client.CreateShare(context.Background(), spec)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

func (r *rig) front(share string) *front {
	r.t.Helper()
	f, err := newFront(r.cfg.ShareSocket(share))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(f.close)
	return f
}

// eventually waits for what the agent does by itself.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !f() {
		if time.Now().After(deadline) {
			t.Fatalf("did not happen: %s", what)
		}
		<-time.After(time.Millisecond)
	}
}

// awaitEvent waits for an event of a kind, and returns it.
func (r *rig) awaitEvent(kind event.Kind) api.Event {
	r.t.Helper()
	var found api.Event
	eventually(r.t, "event "+string(kind), func() bool {
		events, err := r.client.Events(context.Background(), 0)
		if err != nil {
			r.t.Fatal(err)
		}
		for _, e := range events.Events {
			if e.Kind == kind {
				found = e
				return true
			}
		}
		return false
	})
	return found
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantCode(t testing.TB, err error, code api.Code) *api.Error {
	t.Helper()
	var e *api.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Fatalf("error %v, want code %s", err, code)
	}
	return e
}
