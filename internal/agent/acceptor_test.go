// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/client"
)

// Users have turns, whoever has more that waits; what is one user's keeps its order.
func TestFairQueue(t *testing.T) {
	f := newFairQueue[string]()
	for _, put := range []struct {
		user int
		what string
	}{{1, "a1"}, {1, "a2"}, {1, "a3"}, {2, "b1"}, {1, "a4"}, {3, "c1"}, {2, "b2"}} {
		f.put(put.user, put.what)
	}
	var order []string
	for range 4 {
		<-f.some
		what, _ := f.take()
		order = append(order, what)
	}
	f.put(4, "d1") // waits for one of each other
	for what, ok := f.take(); ok; what, ok = f.take() {
		order = append(order, what)
	}
	if want := []string{"a1", "b1", "c1", "a2", "b2", "a3", "d1", "a4"}; !slices.Equal(order, want) {
		t.Errorf("order %v, want %v", order, want)
	}
}

// However much one user asks for at once, another waits for one thing of it.
func TestLoopHasTurns(t *testing.T) {
	r := newRig(t)
	const many, other = 12001, 12002
	var order []int // the loop's
	begun, goOn := make(chan struct{}), make(chan struct{})
	done := make(chan error)
	go func() {
		done <- r.daemon.do(t.Context(), func(*loop) { close(begun); <-goOn })
	}()
	<-begun
	ask := func(user int) {
		go func() { done <- r.daemon.doFor(t.Context(), user, func(*loop) { order = append(order, user) }) }()
	}
	waiting := func(user, n int) {
		eventually(t, fmt.Sprintf("%d wait of %d", n, user), func() bool {
			r.daemon.jobs.mutex.Lock()
			defer r.daemon.jobs.mutex.Unlock()
			return len(r.daemon.jobs.of[user]) == n
		})
	}
	for range 50 {
		ask(many)
	}
	waiting(many, 50)
	ask(other)
	waiting(other, 1)
	// Who gives up is passed over.
	gone, giveUp := context.WithCancel(t.Context())
	go func() { done <- r.daemon.doFor(gone, other, func(*loop) { order = append(order, -1) }) }()
	waiting(other, 2)
	giveUp()
	if err := <-done; !errors.Is(err, errStopped) {
		t.Errorf("given up: %v", err)
	}
	close(goOn)
	for range 52 {
		must(t, <-done)
	}
	if at := slices.Index(order, other); at > 1 || len(order) != 51 || slices.Contains(order, -1) {
		t.Errorf("the other user was number %d of %d: %v", at, len(order), order)
	}
}

// What has many turns leaves others theirs between them, keeps its order, and has no more when who
// asked has given up.
func TestInTurns(t *testing.T) {
	r := newRig(t)
	const many, other = 12001, 12002
	asked := context.WithValue(t.Context(), askerKey{}, asker{payer: many})
	ctx, giveUp := context.WithCancel(asked)
	var order []int // the loop's
	done := make(chan error, 1)
	err := inTurns(ctx, r.daemon.door, []int{1, 2, 3, 4, 5, 6}, 2, func(l *loop, some []int) {
		order = append(order, some...)
		switch order[len(order)-1] {
		case 2:
			go func() { done <- r.daemon.doFor(t.Context(), other, func(*loop) { order = append(order, other) }) }()
			eventually(t, "the other waits", func() bool {
				l.jobs.mutex.Lock()
				defer l.jobs.mutex.Unlock()
				return len(l.jobs.of[other]) == 1
			})
		case 4:
			giveUp()
		}
	})
	must(t, <-done)
	if want := []int{1, 2, other, 3, 4}; !errors.Is(err, errStopped) || !slices.Equal(order, want) {
		t.Errorf("%v, order %v, want %v", err, order, want)
	}
	order = nil
	must(t, inTurns(asked, r.daemon.door, []int{1, 2, 3}, 2, func(_ *loop, some []int) { order = append(order, some...) }))
	if want := []int{1, 2, 3}; !slices.Equal(order, want) {
		t.Errorf("order %v, want %v", order, want)
	}
}

// A loop that ends between the turns of something leaves nobody waiting for the rest.
func TestLoopEndsBetweenTurns(t *testing.T) {
	d := newDoor(slog.New(slog.DiscardHandler))
	done := make(chan error, 1)
	go func() { done <- inTurns(t.Context(), d, []int{1, 2}, 1, func(*loop, []int) {}) }()
	<-d.jobs.some
	if j := d.takeJob(); j == nil || !j.f(nil) {
		t.Fatal("has not two turns")
	}
	close(d.stopped)
	if err := <-done; !errors.Is(err, errStopped) {
		t.Errorf("%v, want %v", err, errStopped)
	}
}

// Who has too many connections is told so, asks again for as long as a request may
// take, and is answered when one has ended.
func TestBusyInterface(t *testing.T) {
	r := newRig(t, func(c *Config) { c.EphemeralGrace = time.Minute })
	r.share(api.ShareSpec{Name: "s", MemoryBytes: gib, Ephemeral: true})
	must(t, r.stop())
	r.prepare = func(d *daemon) { d.conns = newLimiter(2, d.uid) }
	r.start()
	var holds []*client.Hold
	for range 2 {
		hold, err := r.client.Hold(t.Context(), "s")
		must(t, err)
		defer hold.Close()
		holds = append(holds, hold)
	}
	eventually(t, "who asks is told that there is no place", func() bool {
		soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := r.client.Version(soon)
		var e *api.Error
		return errors.As(err, &e) && e.Code == api.CodeUnavailable && e.Busy && e.Hint != "" && soon.Err() != nil
	})
	answered := make(chan error)
	go func() {
		_, err := r.client.Version(t.Context())
		answered <- err
	}()
	holds[0].Close()
	must(t, <-answered)
}

// Connections that hang up at once keep nobody out, and nothing stays open of them.
func TestAcceptor(t *testing.T) {
	r := newRig(t)
	r.share(api.ShareSpec{Name: "s", MemoryBytes: gib})
	must(t, r.front("s").alloc(mib))
	eventually(t, "as many descriptors as before", func() bool { return len(r.daemon.conns.all) == 0 })
	before := descriptors(t)
	for range 20000 {
		for _, s := range []struct {
			path string
			kind int
		}{{r.cfg.APISocket(), unix.SOCK_STREAM}, {r.cfg.ShareSocket("s"), unix.SOCK_SEQPACKET}} {
			file, err := unix.Socket(unix.AF_UNIX, s.kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
			must(t, err)
			_ = unix.Connect(file, &unix.SockaddrUnix{Name: s.path}) // or its queue is full
			must(t, unix.Close(file))
		}
	}
	if _, err := r.client.Shares(t.Context()); err != nil {
		t.Error(err)
	}
	must(t, r.front("s").alloc(mib))
	eventually(t, "their connections are gone", func() bool {
		return len(r.daemon.conns.all) == 0 && len(r.daemon.attachments.all) == 2 && descriptors(t) <= before+10
	})
}
