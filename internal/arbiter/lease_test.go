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
