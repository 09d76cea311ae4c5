// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"testing"
	"time"
)

// On a busy host the next share is admitted long before a lease ends. A lease that has only just
// begun is kept until its program has had time to launch.
func TestShortLeaseOnABusyHost(t *testing.T) {
	w := &stage{t: t, used: map[string]*Usage{}}
	w.arbiter = New(Default(10*time.Millisecond), w)
	for _, words := range [][]string{{"share", "long", "fixed", "20"}, {"share", "other", "equal", "100"}} {
		w.do(words)
	}
	w.now = time.Second
	a := w.arbiter
	a.fill(w.now)
	long := a.find("long")
	long.charge(w.now/2, long.part(a.config.Window)-a.config.Least-a.config.Least/2)
	long.balance = int64(a.config.Quantum)
	a.handover.before = a.handover.most
	a.Want(w.now, "long", 1)
	if a.holder != long || a.end-w.now >= a.handover.before {
		t.Fatalf("the holder is %v until %v: this is no test", a.holder, a.end)
	}
	end := a.end
	if a.Want(w.now, "other", 1); a.holder != long {
		t.Fatal("the lease was taken as soon as another share wanted the GPU")
	}
	for next := a.NextWake(w.now); next < end; next = a.NextWake(w.now) {
		if next <= w.now {
			t.Fatalf("at %v it wants to be woken at %v", w.now, next)
		}
		w.now = next
		if a.Tick(w.now); a.holder != long {
			t.Fatalf("%v before its end the lease was taken", end-w.now)
		}
	}
	w.now = end
	if a.Tick(w.now); a.holder == long {
		t.Fatal("it has the GPU still")
	}
}

// A program that uses little of its leases has them for itself: another process of its share that
// waits may launch beside it then, and each keeps little in flight, but it does not wait for itself.
func TestLeasesLeftIdle(t *testing.T) {
	for processes, want := range map[int]bool{1: false, 2: true} {
		w := &stage{t: t, used: map[string]*Usage{}}
		w.arbiter = New(Default(10*time.Millisecond), w)
		w.do([]string{"share", "late", "fixed", "30"})
		a, together := w.arbiter, false
		for w.now = time.Second; w.now < 3*time.Second; w.now += time.Millisecond {
			a.Tick(w.now)
			for p := range processes {
				a.Want(w.now, "late", uint64(p+1)) // the one that has a lease asks ahead,
			}
			if a.holder != nil && w.now > a.begun+a.config.Least {
				a.Back(w.now, "late", a.holder.process) // and gives the rest of it back
			}
			together = together || a.holder != nil && a.holder.process == 0
		}
		if together != want {
			t.Errorf("%d processes: a lease for all at once: %v, want %v", processes, together, want)
		}
	}
}
