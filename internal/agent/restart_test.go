// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/client"
	"github.com/divvy-gpu/divvy/internal/core"
	"github.com/divvy-gpu/divvy/internal/share"
)

// workerConfig is what a supervised worker of the tests is told.
type workerConfig struct {
	Directory string
	Account   string
	IdleExit  time.Duration
}

// supervised is an agent under a supervisor, in a process of its own.
type supervised struct {
	t      *testing.T
	cfg    Config
	client *client.Client
	cancel context.CancelFunc
	done   chan error
}

func newSupervised(t *testing.T, idleExit time.Duration) *supervised {
	t.Helper()
	cfg := testConfig(t)
	cfg.IdleExit = idleExit
	account := filepath.Join(filepath.Dir(cfg.Directory), "account")
	must(t, os.WriteFile(account, []byte("{}"), 0o600))
	raw, err := json.Marshal(workerConfig{Directory: cfg.Directory, Account: account, IdleExit: idleExit})
	must(t, err)
	t.Setenv("AGENT_TEST_WORKER", string(raw))
	s := &supervised{t: t, cfg: cfg, client: client.New(cfg.APISocket())}
	s.start()
	t.Cleanup(s.stop)
	if idleExit == 0 { // another may leave before it was seen
		s.awaitVersion()
	}
	return s
}

func (s *supervised) start() {
	var ctx context.Context
	ctx, s.cancel = context.WithCancel(context.Background())
	s.done = make(chan error, 1)
	go func() { s.done <- Supervise(ctx, s.cfg, os.Args[0]) }()
}

func (s *supervised) stop() {
	if s.cancel == nil {
		return
	}
	s.cancel()
	s.cancel = nil
	if err := <-s.done; err != nil {
		s.t.Error(err)
	}
}

// awaitVersion returns who serves.
func (s *supervised) awaitVersion() api.Version {
	s.t.Helper()
	var v api.Version
	eventually(s.t, "the agent serves", func() bool {
		var err error
		v, err = s.client.Version(context.Background())
		return err == nil
	})
	return v
}

// The agent is killed again and again under 20 programs that allocate and
// free: no call fails, and the quota holds at every moment.
func TestAgentKilledUnderClients(t *testing.T) {
	s := newSupervised(t, 0)
	const limit, clients, each = gib, 20, 40 * mib
	ctx := context.Background()
	_, err := s.client.CreateShare(ctx, api.ShareSpec{Name: "s", MemoryBytes: limit})
	must(t, err)
	var used, worst atomic.Int64
	var failed, calls atomic.Int64
	stop := make(chan struct{})
	var group, watchers sync.WaitGroup
	var fronts []*front
	count := func(n int64) {
		if sum := used.Add(n); sum > worst.Load() {
			worst.Store(sum)
		}
	}
	for range clients {
		f, err := newFront(s.cfg.ShareSocket("s"))
		must(t, err)
		fronts = append(fronts, f)
		watchers.Go(func() {
			if err := f.watch(stop); err != nil {
				t.Errorf("come back: %v", err)
			}
		})
		group.Go(func() {
			for n := uint64(7); ; n = n*6364136223846793005 + 1 {
				select {
				case <-stop:
					return
				default:
				}
				bytes := n % each
				calls.Add(1)
				if err := f.alloc(bytes); err != nil {
					failed.Add(1)
					t.Errorf("alloc: %v", err)
					return
				}
				count(int64(bytes))
				<-time.After(100 * time.Microsecond)
				count(-int64(bytes))
				f.free(bytes)
			}
		})
	}
	// One more that takes all it can get, so that the limit is always near.
	greedy, err := newFront(s.cfg.ShareSocket("s"))
	must(t, err)
	fronts = append(fronts, greedy)
	watchers.Go(func() { _ = greedy.watch(stop) })
	group.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := greedy.alloc(limit - clients*each); err == nil {
				count(limit - clients*each)
				<-time.After(200 * time.Microsecond)
				count(-(limit - clients*each))
				greedy.free(limit - clients*each)
			} else if !errors.Is(err, errDenied) {
				t.Errorf("greedy: %v", err)
				return
			}
		}
	})
	var away []time.Duration
	for range 5 {
		v := s.awaitVersion()
		<-time.After(150 * time.Millisecond)
		begun := time.Now()
		must(t, syscall.Kill(v.PID, syscall.SIGKILL))
		eventually(t, "another worker serves", func() bool {
			next, err := s.client.Version(ctx)
			return err == nil && next.PID != v.PID
		})
		eventually(t, "all are back", func() bool {
			list, err := s.client.Clients(ctx)
			if err != nil || len(list.Clients) != clients+1 {
				return false
			}
			for _, c := range list.Clients {
				if c.State != "attached" {
					return false
				}
			}
			return true
		})
		away = append(away, time.Since(begun))
	}
	close(stop)
	group.Wait()
	watchers.Wait()
	t.Logf("%d calls, %d failed, at most %d of %d bytes in use, all back after p50 %v p99 %v",
		calls.Load(), failed.Load(), worst.Load(), int64(limit), percentile(away, 50), percentile(away, 99))
	if worst.Load() > limit {
		t.Errorf("%d bytes over the quota", worst.Load()-limit)
	}
	for _, f := range fronts {
		f.sweep()
		if n := f.used(); n != 0 {
			t.Errorf("a client that uses nothing counts %d", n)
		}
	}
	// Everything can be had again.
	must(t, fronts[0].alloc(limit))
	for _, f := range fronts {
		f.close()
	}
}

// Supervisor and worker die together; the next ones bind the sockets anew, and
// the clients come back by the same path.
func TestBothKilled(t *testing.T) {
	r := newRig(t)
	r.share(api.ShareSpec{Name: "s", MemoryBytes: gib, CoresPercent: 20, Tenant: "x"})
	f := r.front("s")
	must(t, f.alloc(700*mib))
	c := startChild(t, r.cfg.ShareSocket("s"))
	if got := c.do("alloc", 200*mib); got != "ok" {
		t.Fatal(got)
	}
	dead := startChild(t, r.cfg.ShareSocket("s"))
	if got := dead.do("alloc", 100*mib); got != "ok" {
		t.Fatal(got)
	}
	r.source.hold(os.Getpid(), 700*mib)
	r.source.hold(c.pid, 200*mib)
	r.source.hold(dead.pid, 100*mib)
	must(t, r.stop())
	dead.kill()
	r.start()
	got, err := r.client.Share(context.Background(), "s")
	must(t, err)
	if got.MemoryBytes != gib || got.CoresPercent != 20 || got.Tenant != "x" || got.Policy != share.Fixed {
		t.Errorf("share %+v", got)
	}
	f.mutex.Lock()
	err = f.comeBack()
	f.mutex.Unlock()
	must(t, err)
	// The child has not come back: its charge stays. The dead one's too, as
	// long as the driver holds it.
	if err := f.alloc(124*mib + 1); !errors.Is(err, errDenied) {
		t.Errorf("over quota: %v", err)
	}
	r.source.hold(dead.pid, 0)
	r.awaitEvent("client-left")
	// What nobody had used may have been the child's credit, and then stays with it.
	room := uint64(0)
	r.do(func(l *loop) {
		for _, cl := range l.core.Clients() {
			if cl.PID == c.pid {
				room = gib - 700*mib - cl.GrantedBytes
			}
		}
	})
	if room < 100*mib || room > 124*mib {
		t.Errorf("%d MiB are left beside the child", room/mib)
	}
	eventually(t, "the dead one's room is back", func() bool { return f.alloc(room) == nil })
	if err := f.alloc(1); !errors.Is(err, errDenied) {
		t.Errorf("over quota: %v", err)
	}
	r.awaitEvent("client-missing")
	if got := c.do("alloc", 25*mib); got != "denied" {
		t.Errorf("the child: %s", got)
	}
}

// kill leaves the journal as it was then, like an agent that is killed, not as one that ends
// writes it.
func (r *rig) kill() {
	r.t.Helper()
	path := filepath.Join(r.cfg.JournalDirectory, "journal")
	raw, err := os.ReadFile(path)
	must(r.t, err)
	must(r.t, r.stop())
	must(r.t, os.WriteFile(path, raw, 0o600))
}

// What a program has measured and used is not lost when it ends while no agent is there, nor
// is it more than the agent had seen. What was granted is no peak.
func TestMeasuredOutlivesProgramAndAgent(t *testing.T) {
	const busy = 6100 * time.Millisecond
	for name, end := range map[string]func(*rig){
		"killed": func(r *rig) {
			<-time.After(2500 * time.Millisecond) // it saves what it sees within a second, and then the driver's answer
			r.kill()
		},
		"ended": func(r *rig) { must(t, r.stop()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.share(api.ShareSpec{Name: "s", MemoryBytes: 2 * gib})
			c := startChild(t, r.cfg.ShareSocket("s"))
			if got := c.do("alloc", 64*mib); got != "ok" {
				t.Fatal(got)
			}
			c.do("busy", uint64(busy))
			end(r)
			c.kill()
			r.start()
			if left := r.awaitEvent("client-left"); left.Bytes != 64*mib {
				t.Errorf("it left with %d MiB, and had used 64", left.Bytes/mib)
			}
			s, err := r.client.Share(context.Background(), "s")
			must(t, err)
			if s.CardTimeNs != uint64(busy) || s.PeakBytes != 64*mib {
				t.Errorf("GPU time %v, want %v; peak %d MiB, want 64", time.Duration(s.CardTimeNs), busy, s.PeakBytes/mib)
			}
			must(t, r.stop())
			r.start()
			if s, err = r.client.Share(context.Background(), "s"); err != nil || s.CardTimeNs != uint64(busy) {
				t.Errorf("one restart later: %v, %v", time.Duration(s.CardTimeNs), err)
			}
		})
	}
}

// A program that lives on counts once, however often the agent is killed, and what the
// arbiter took off of what was measured stays off.
func TestCardTimeOverKills(t *testing.T) {
	r := newRig(t)
	r.share(api.ShareSpec{Name: "s", MemoryBytes: gib})
	f := r.front("s")
	f.work(3*time.Second, 0)
	cardTime := func() time.Duration {
		s, err := r.client.Share(context.Background(), "s")
		must(t, err)
		return time.Duration(s.CardTimeNs)
	}
	for range 3 {
		r.do(func(l *loop) { l.measureAll() })
		r.kill()
		r.start()
		if got := cardTime(); got != 3*time.Second {
			t.Errorf("before it is back: %v", got)
		}
		must(t, f.comeBack())
		f.work(3*time.Second, 0)
		if got := cardTime(); got != 3*time.Second {
			t.Errorf("after it is back: %v", got)
		}
	}
}

// What only the arbiter knows of a share is kept for the next agent.
func TestCorrectionOutlivesTheAgent(t *testing.T) {
	r := newRig(t)
	r.share(api.ShareSpec{Name: "s", MemoryBytes: gib})
	f := r.front("s")
	f.work(3*time.Second, 0)
	r.do(func(l *loop) {
		l.core.Measure(l.now, l.core.ClientIDs())
		l.core.Correct(core.Slot{Share: "s"}, core.Correction{OvercountNs: int64(time.Second), Overruns: 7})
		l.core.MeasureShare(l.now, "s", true)
	})
	r.kill()
	r.start()
	s, err := r.client.Share(context.Background(), "s")
	must(t, err)
	if s.CardTimeNs != uint64(2*time.Second) || s.Overruns != 7 {
		t.Errorf("GPU time %v, want 2s; %d overruns, want 7", time.Duration(s.CardTimeNs), s.Overruns)
	}
}

// A worker that dies loses no connection, not even one that is made while
// there is no worker.
func TestConnectWhileAway(t *testing.T) {
	s := newSupervised(t, 0)
	ctx := context.Background()
	_, err := s.client.CreateShare(ctx, api.ShareSpec{Name: "s", MemoryBytes: gib})
	must(t, err)
	for range 5 {
		v := s.awaitVersion()
		must(t, syscall.Kill(v.PID, syscall.SIGKILL))
		c := startChild(t, s.cfg.ShareSocket("s"))
		// The one before has died, and its memory comes back in a moment.
		eventually(t, "an allocation is granted", func() bool { return c.do("alloc", mib) == "ok" })
		c.kill()
	}
}

// An agent that nobody needs leaves; whoever asks while it does is refused
// cleanly, or served and then it stays.
func TestIdleExit(t *testing.T) {
	s := newSupervised(t, 100*time.Millisecond)
	ctx := context.Background()
	var served, unavailable int
	for served < 5 || unavailable < 5 {
		select {
		case err := <-s.done:
			if !errors.Is(err, ErrIdle) {
				t.Fatalf("left with %v", err)
			}
			s.start()
		default:
		}
		share, err := s.client.CreateShare(ctx, api.ShareSpec{Ephemeral: true})
		var failure *api.Error
		switch {
		case err == nil:
			served++
			hold, err := s.client.Hold(ctx, share.Name)
			if err != nil {
				t.Fatalf("the agent left a share behind: %v", err)
			}
			hold.Close()
			<-time.After(time.Duration(95+served%10) * time.Millisecond)
		case errors.As(err, &failure) && failure.Code == api.CodeUnavailable:
			unavailable++
			<-time.After(time.Millisecond)
		default:
			t.Fatal(err)
		}
	}
	t.Logf("%d served, %d refused", served, unavailable)
	s.cancel()
	s.cancel = nil
	if err := <-s.done; err != nil && !errors.Is(err, ErrIdle) {
		t.Error(err)
	}
}

// An agent leaves so long after it was last needed, and not before.
func TestLeavesQuickly(t *testing.T) {
	const idleExit = 50 * time.Millisecond
	r := newRig(t)
	r.share(api.ShareSpec{Name: "s", Ephemeral: true})
	hold, err := r.client.Hold(context.Background(), "s")
	must(t, err)
	// Not before somebody holds a share: it might have left already.
	r.do(func(l *loop) { l.idleExit = idleExit })
	select {
	case <-r.done:
		t.Fatal("left while somebody holds a share")
	case <-time.After(100 * time.Millisecond):
	}
	begun := time.Now()
	hold.Close()
	if err := <-r.done; !errors.Is(err, ErrIdle) {
		t.Errorf("left with %v", err)
	}
	r.cancel = nil
	if took := time.Since(begun); took < idleExit {
		t.Errorf("left after %v, want %v", took, idleExit)
	}
	if _, err := os.Stat(r.cfg.APISocket()); err == nil {
		t.Error("left its socket")
	}
}

// A second agent in the same folder is refused, and so is one that would write to the
// same journal from another folder. With a journal of its own it serves.
func TestOneAgentPerFolder(t *testing.T) {
	s := newSupervised(t, 0)
	err := Supervise(context.Background(), s.cfg, os.Args[0])
	if !errors.Is(err, ErrRunning) {
		t.Errorf("a second agent: %v", err)
	}
	other := testConfig(t)
	must(t, makeFolders(other))
	locks, err := takeLocks(t.Context(), other)
	must(t, err)
	closeAll(locks)
	journal := s.cfg.JournalDirectory
	other.JournalDirectory = journal
	if _, err := takeLocks(t.Context(), other); !errors.Is(err, ErrRunning) || !strings.Contains(err.Error(), journal) {
		t.Errorf("a second agent with the journal of the first: %v", err)
	}
}
