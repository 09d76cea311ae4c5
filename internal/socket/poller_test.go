// SPDX-License-Identifier: Apache-2.0

package socket

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
)

// newPoller makes one that runs until the test ends, and has nothing left to call then.
func newPoller(t *testing.T) *Poller {
	t.Helper()
	p, err := NewPoller()
	must(t, err)
	var all sync.WaitGroup
	all.Go(func() { p.Run(func(ready func()) { all.Go(ready) }) })
	t.Cleanup(func() {
		p.Close()
		all.Wait()
		if len(p.ready) > 0 {
			t.Errorf("%d descriptors are awaited", len(p.ready))
		}
	})
	return p
}

// pair is a connection, of which the poller's end blocks nobody.
func pair(t *testing.T) (ours, theirs *net.UnixConn) {
	t.Helper()
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unixpacket"})
	must(t, err)
	defer l.Close()
	theirs, err = net.DialUnix("unixpacket", nil, l.Addr().(*net.UnixAddr))
	must(t, err)
	ours, err = l.AcceptUnix()
	must(t, err)
	t.Cleanup(func() { _, _ = ours.Close(), theirs.Close() })
	return ours, theirs
}

// Many are awaited at once, each is called once for what it is asked, and with no goroutine of its own.
func TestPollerCallsOnce(t *testing.T) {
	const many = 300
	p := newPoller(t)
	came := make(chan int, 2*many)
	var peers []*net.UnixConn
	goroutines := runtime.NumGoroutine()
	for i := range many {
		ours, theirs := pair(t)
		peers = append(peers, theirs)
		must(t, p.Await(ours, func() { came <- i }))
	}
	if n := runtime.NumGoroutine(); n > goroutines {
		t.Errorf("%d goroutines wait, %d did before", n, goroutines)
	}
	seen := map[int]bool{}
	for i := range many {
		_, err := peers[i].Write([]byte{1})
		must(t, err)
		_, err = peers[i].Write([]byte{2}) // is for who awaits it again
		must(t, err)
	}
	for range many {
		i := <-came
		if seen[i] {
			t.Fatalf("%d was called twice", i)
		}
		seen[i] = true
	}
}

// What is there already is told at once, again to who awaits it again, and the end is told, too: of
// the other side, or of one's own.
func TestPollerTellsOfEnds(t *testing.T) {
	p := newPoller(t)
	for _, end := range []struct {
		name string
		do   func(ours, theirs *net.UnixConn) error
	}{
		{"the other has closed", func(_, theirs *net.UnixConn) error { return theirs.Close() }},
		{"it is shut down here", func(ours, _ *net.UnixConn) error { return errors.Join(ours.CloseRead(), ours.CloseWrite()) }},
	} {
		ours, theirs := pair(t)
		_, err := theirs.Write([]byte{1})
		must(t, err)
		called := make(chan struct{})
		for range 2 { // nobody has read it
			must(t, p.Await(ours, func() { called <- struct{}{} }))
			<-called
		}
		_, err = ours.Read(make([]byte, 1))
		must(t, err)
		must(t, p.Await(ours, func() { called <- struct{}{} }))
		must(t, end.do(ours, theirs))
		<-called
	}
}

// What is closed is not awaited any more, and not what has its number afterwards in its place.
func TestPollerForgets(t *testing.T) {
	p := newPoller(t)
	process, err := OpenProcess(os.Getpid())
	must(t, err)
	path := filepath.Join(t.TempDir(), "s")
	listener, err := Listen(Packet, path, 0o600)
	must(t, err)
	wrong := func() { t.Error("called for what is closed") }
	must(t, process.Await(p, wrong))
	must(t, listener.Await(p, wrong))
	process.Close()
	must(t, listener.Close())
	if len(p.ready) > 0 {
		t.Fatalf("%d are awaited", len(p.ready))
	}
	if err := errors.Join(process.Await(p, wrong), listener.Await(p, wrong)); err == nil {
		t.Error("what is closed is awaited")
	}
	listener, err = Listen(Packet, path, 0o600)
	must(t, err)
	defer listener.Close()
	called := make(chan struct{})
	must(t, listener.Await(p, func() { close(called) }))
	conn, err := net.Dial("unixpacket", path)
	must(t, err)
	defer conn.Close()
	<-called
}

// When a poller ends, all who wait are called, and nobody waits any more.
func TestPollerEnds(t *testing.T) {
	p, err := NewPoller()
	must(t, err)
	ours, _ := pair(t)
	called, ended := make(chan struct{}), make(chan struct{})
	must(t, p.Await(ours, func() { close(called) }))
	go func() {
		p.Run(func(ready func()) { ready() })
		close(ended)
	}()
	p.Close()
	<-called
	<-ended
	if err := p.Await(ours, func() { t.Error("called") }); err == nil {
		t.Error("one that has ended waits")
	}
}
