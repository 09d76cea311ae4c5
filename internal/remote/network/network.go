// SPDX-License-Identifier: Apache-2.0

// Package network plays a network between two programs of a test: a port of this machine that
// leads to another one, with the delay and the bandwidth of a longer way, until it is cut at a
// byte, or until nothing arrives any more. It is for tests; no program of Divvy has it.
//
//	link, err := network.Lead(ctx, "127.0.0.1:7190", network.Conditions{RTT: 30 * time.Millisecond})
//	...
//	link.CutAfter(network.Up, 4096)
package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Conditions are those of a network; the zero value is this machine's own.
type Conditions struct {
	RTT            time.Duration // half of it each way
	BytesPerSecond int           // each way, of all connections together; 0: no bound
}

// Direction is where bytes go.
type Direction int

// Up is from who connected to where the link leads; Down is back.
const (
	Up Direction = iota
	Down
)

// Link is a network that leads to one port.
type Link struct {
	to       string
	listener *net.TCPListener
	ways     [2]*way
	all      sync.WaitGroup

	mutex  sync.Mutex // guards what follows; a way's is taken under it, never the other way round
	open   map[*net.TCPConn]bool
	silent bool
	closed bool
}

// Lead listens at a port of this machine that leads to an address, until Close.
func Lead(ctx context.Context, to string, c Conditions) (*Link, error) {
	var config net.ListenConfig
	config.SetMultipathTCP(false) // those sockets take no filter
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("lead to %s: %w", to, err)
	}
	tcp, _ := listener.(*net.TCPListener)
	l := &Link{to: to, listener: tcp, open: map[*net.TCPConn]bool{}}
	l.ways = [2]*way{newWay(c), newWay(c)}
	l.all.Go(func() { l.accept(ctx) })
	return l, nil
}

// Address is where the link listens.
func (l *Link) Address() string { return l.listener.Addr().String() }

// Passed is how many bytes have gone in a direction.
func (l *Link) Passed(d Direction) int64 { return l.ways[d].count() }

// CutAfter cuts every connection after so many more bytes in a direction, of all connections
// together. Connections that come later are passed on. The channel is closed when it cuts.
func (l *Link) CutAfter(d Direction, bytes int64) <-chan struct{} { return l.ways[d].cutAfter(bytes) }

// Cut breaks every connection now.
func (l *Link) Cut() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	for conn := range l.open {
		reset(conn)
	}
}

// Silence lets nothing arrive any more, at neither end, and nothing of a new connection: as
// where a cable is cut. What the kernel answers by itself stops, too.
func (l *Link) Silence() error {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.silent = true
	for _, w := range l.ways {
		w.silence()
	}
	err := deafen(l.listener)
	for conn := range l.open {
		err = errors.Join(err, deafen(conn))
	}
	return err
}

// Close breaks every connection and waits until nothing of the link is left.
func (l *Link) Close() error {
	l.mutex.Lock()
	if l.closed {
		l.mutex.Unlock()
		return nil
	}
	l.closed = true
	err := l.listener.Close()
	for conn := range l.open {
		reset(conn)
	}
	for _, w := range l.ways {
		w.close()
	}
	l.mutex.Unlock()
	l.all.Wait()
	return err
}

func (l *Link) accept(ctx context.Context) {
	for {
		near, err := l.listener.AcceptTCP()
		if err != nil {
			return // Close
		}
		l.all.Go(func() { l.serve(ctx, near) })
	}
}

// serve passes on one connection.
func (l *Link) serve(ctx context.Context, near *net.TCPConn) {
	defer near.Close()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", l.to)
	if err != nil {
		reset(near)
		return
	}
	defer conn.Close()
	far, _ := conn.(*net.TCPConn)
	if !l.enter(near, far) {
		reset(near)
		return
	}
	defer l.leave(near, far)
	var both sync.WaitGroup
	both.Go(func() { l.pass(Up, far, near) })
	l.pass(Down, near, far)
	both.Wait()
}

// pass carries one direction of a connection until it ends; what breaks, breaks both ends.
func (l *Link) pass(d Direction, to, from *net.TCPConn) {
	broken := func(err error) {
		if errors.Is(err, errCut) {
			l.Cut()
		}
		reset(to)
		reset(from)
	}
	if l.ways[d].carry(to, from, broken) {
		_ = to.CloseWrite()
	}
}

// enter counts a connection in.
func (l *Link) enter(conns ...*net.TCPConn) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.closed || l.silent {
		return false
	}
	for _, conn := range conns {
		// Ours would be a sign of life of the other end.
		if conn.SetKeepAlive(false) != nil || conn.SetNoDelay(true) != nil {
			return false
		}
		l.open[conn] = true
	}
	return true
}

func (l *Link) leave(conns ...*net.TCPConn) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	for _, conn := range conns {
		delete(l.open, conn)
	}
}

// reset breaks a connection so that its other end knows at once.
func reset(conn *net.TCPConn) {
	_ = conn.SetLinger(0)
	_ = conn.Close()
}

// deafen has the kernel drop what comes for a socket before it looks at it, so that nothing is
// acknowledged, no probe is answered, and nobody gets in.
func deafen(socket syscall.Conn) error {
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	nothing := [1]unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &nothing[0]})
	})
	return errors.Join(err, failed)
}
