// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/wire"
)

func (f *front) want() error { return f.send(f.request(wire.Message{Type: wire.LeaseWant})) }
func (f *front) back() error { return f.send(f.request(wire.Message{Type: wire.LeaseBack})) }

// lease asks and sleeps as a gate does until the process may launch, and
// returns the end of its lease; 0: not within 10 s.
func (f *front) lease() time.Duration {
	page := f.limits.Load()
	for deadline := monotonic() + 10*time.Second; monotonic() < deadline; {
		word := page.LeaseWord(0)
		if l := page.Lease(0); !l.Gated || time.Duration(l.EndNs) > monotonic() {
			return time.Duration(l.EndNs)
		}
		if f.want() != nil {
			return 0
		}
		_ = page.AwaitLease(0, word, int64(100*time.Millisecond))
	}
	return 0
}

// work says on the page what the process uses.
func (f *front) work(busy, inFlight time.Duration) {
	f.page.Load().Work(0, uint64(busy), uint64(inFlight), uint64(monotonic()+inFlight))
}

func TestOnlyCardsWithAFixedShareAreGated(t *testing.T) {
	r := newRig(t)
	r.share(api.ShareSpec{Name: "free", MemoryBytes: gib})
	f := r.front("free")
	if l := f.limits.Load().Lease(0); l.Gated {
		t.Errorf("alone: %+v", l)
	}
	r.share(api.ShareSpec{Name: "fixed", MemoryBytes: gib, CoresPercent: 30})
	if l := f.limits.Load().Lease(0); !l.Gated || l.EndNs != 0 || l.BacklogNs != uint64(7*time.Millisecond) {
		t.Errorf("beside a fixed share: %+v", l)
	}
	end := f.lease()
	if end == 0 {
		t.Fatal("no lease")
	}
	if left := end - monotonic(); left > r.cfg.Quantum {
		t.Errorf("a lease of %v", left)
	}
	must(t, r.client.DeleteShare(context.Background(), "fixed", true))
	if l := f.limits.Load().Lease(0); l.Gated {
		t.Errorf("alone again: %+v", l)
	}
	word := f.limits.Load().LeaseWord(0)
	must(t, f.want())
	eventually(t, "who waits in vain looks again", func() bool { return f.limits.Load().LeaseWord(0) != word })
}

func TestLeasesFollowEachOther(t *testing.T) {
	r := newRig(t)
	r.share(api.ShareSpec{Name: "a", MemoryBytes: gib, CoresPercent: 50})
	r.share(api.ShareSpec{Name: "b", MemoryBytes: gib, CoresPercent: 50})
	a, b := r.front("a"), r.front("b")
	end := a.lease()
	if end == 0 {
		t.Fatal("no lease")
	}
	const used = 10 * time.Microsecond // less than has passed: nobody is believed more
	a.work(0, used)
	must(t, b.want())
	// On a host that pauses the first one is about to end by itself by then, and the second one begins.
	if l := b.limits.Load().Lease(0); l.EndNs != 0 && time.Duration(l.BeginNs) < end-r.cfg.Quantum/2 {
		t.Errorf("one has a lease until %v, the other %+v", end, l)
	}
	a.work(used, 0)
	must(t, a.back())
	inTime := monotonic() < end
	if b.lease() == 0 {
		t.Fatal("nothing is given back")
	}
	if l := a.limits.Load().Lease(0); l.EndNs != 0 {
		t.Errorf("who gave back has a lease: %+v", l)
	}
	s, err := r.client.Share(context.Background(), "a")
	must(t, err)
	if s.CardTimeNs != uint64(used) || inTime && s.Overruns != 0 {
		t.Errorf("share %+v", s)
	}
}

// What an ungated share uses is counted too, also of processes that are gone.
func TestCardTimeOfUngatedShares(t *testing.T) {
	r := newRig(t)
	r.share(api.ShareSpec{Name: "a", MemoryBytes: gib})
	one, two := r.front("a"), r.front("a")
	one.work(3*time.Second, 0)
	two.work(4*time.Second, 0)
	cardTime := func() uint64 {
		s, err := r.client.Share(context.Background(), "a")
		must(t, err)
		return s.CardTimeNs
	}
	if got := cardTime(); got != uint64(7*time.Second) {
		t.Errorf("GPU time %v", time.Duration(got))
	}
	one.work(2*time.Second, 0) // nobody takes time back
	one.close()
	two.work(5*time.Second, 0)
	eventually(t, "GPU time stays", func() bool { return cardTime() == uint64(8*time.Second) })
}

// A killed or stopped holder keeps the others waiting for its lease and two
// quanta, no more.
func TestLeaseOfAHolderThatIsKilledOrStopped(t *testing.T) {
	r := newRig(t)
	r.share(api.ShareSpec{Name: "a", MemoryBytes: gib, CoresPercent: 50})
	r.share(api.ShareSpec{Name: "b", MemoryBytes: gib, CoresPercent: 50})
	overruns := func() uint64 {
		s, err := r.client.Share(context.Background(), "a")
		must(t, err)
		return s.Overruns
	}
	for _, test := range []struct {
		name     string
		signal   syscall.Signal
		shown    bool // by the driver, for as long as anybody asks
		overruns uint64
	}{
		{"killed, and gone from the driver", syscall.SIGKILL, false, 0},
		{"killed, and still with the driver", syscall.SIGKILL, true, 1},
		{"stopped", syscall.SIGSTOP, true, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := overruns()
			holder := startChild(t, r.cfg.ShareSocket("a"))
			if got := holder.do("alloc", mib); got != "ok" {
				t.Fatal(got)
			}
			if test.shown {
				r.source.hold(holder.pid, mib)
				defer r.source.hold(holder.pid, 0)
			}
			b := r.front("b")
			// It has a lease, and more in flight than that lasts.
			if got := holder.do("lease", uint64(r.cfg.Quantum+r.cfg.Quantum/2)); got != "ok" {
				t.Fatal(got)
			}
			must(t, syscall.Kill(holder.pid, test.signal))
			if test.signal == syscall.SIGKILL {
				_ = holder.cmd.Wait()
				eventually(t, "the agent hears of it", func() bool {
					clients, err := r.client.Clients(context.Background())
					must(t, err)
					for _, c := range clients.Clients {
						if c.PID == holder.pid && c.State == "attached" {
							return false
						}
					}
					return true
				})
			}
			if b.lease() == 0 {
				t.Fatal("the next share gets no lease")
			}
			must(t, b.back())
			if got := overruns() - before; got > test.overruns {
				t.Errorf("%d overruns, want %d", got, test.overruns)
			}
		})
	}
}

// A restarted agent leases as before, and does not charge what a process used
// before it came back.
func TestLeasesAfterARestart(t *testing.T) {
	r := newRig(t)
	r.share(api.ShareSpec{Name: "a", MemoryBytes: gib, CoresPercent: 50})
	f := r.front("a")
	if f.lease() == 0 {
		t.Fatal("no lease")
	}
	// Less than has passed: who says more is charged all that passes, and gets no lease then.
	const used = 10 * time.Microsecond
	f.work(used, 0)
	must(t, r.stop())
	r.start()
	must(t, f.comeBack())
	if l := f.limits.Load().Lease(0); !l.Gated || l.EndNs != 0 {
		t.Errorf("after a restart: %+v", l)
	}
	f.work(used, 0)
	for range 3 {
		if f.lease() == 0 {
			t.Fatal("no lease after the restart")
		}
		must(t, f.back())
	}
	s, err := r.client.Share(context.Background(), "a")
	must(t, err)
	if s.CardTimeNs != uint64(used) {
		t.Errorf("GPU time %v, want %v", time.Duration(s.CardTimeNs), used)
	}
}
