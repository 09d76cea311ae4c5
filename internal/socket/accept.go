// SPDX-License-Identifier: Apache-2.0

package socket

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Listener is a listening socket. What it accepts is a descriptor and no more, so that
// peers who connect and hang up without end cost little.
type Listener struct {
	file    *os.File
	waiting atomic.Bool // in Accept, or for a poller, and there was nobody
	awaited
}

// ListenerOf makes a listener of a descriptor of a listening socket; it uses a
// copy of it.
func ListenerOf(file *os.File) (*Listener, error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("listener %s: %w", file.Name(), err)
	}
	var copied int
	var failed error
	err = raw.Control(func(descriptor uintptr) { copied, failed = copyListening(int(descriptor)) })
	if err = errors.Join(err, failed); err != nil {
		return nil, fmt.Errorf("listener %s: %w", file.Name(), err)
	}
	l := &Listener{file: os.NewFile(uintptr(copied), file.Name())}
	if l.raw, err = l.file.SyscallConn(); err != nil {
		_ = l.file.Close()
		return nil, fmt.Errorf("listener %s: %w", file.Name(), err)
	}
	return l, nil
}

// copyListening returns a copy that does not block, of a unix socket that listens.
func copyListening(descriptor int) (int, error) {
	domain, err := unix.GetsockoptInt(descriptor, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return -1, err
	}
	if listens, err := unix.GetsockoptInt(descriptor, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err != nil || listens == 0 || domain != unix.AF_UNIX {
		return -1, errors.Join(errors.New("not a unix socket that listens"), err)
	}
	copied, err := unix.FcntlInt(uintptr(descriptor), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.SetNonblock(copied, true); err != nil {
		_ = unix.Close(copied)
		return -1, err
	}
	return copied, nil
}

// File returns a copy of the listener's descriptor, for a Store.
func (l *Listener) File() (*os.File, error) {
	var copied int
	var failed error
	err := l.raw.Control(func(descriptor uintptr) {
		copied, failed = unix.FcntlInt(descriptor, unix.F_DUPFD_CLOEXEC, 0)
	})
	if err = errors.Join(err, failed); err != nil {
		return nil, fmt.Errorf("listener %s: %w", l.file.Name(), err)
	}
	return os.NewFile(uintptr(copied), l.file.Name()), nil
}

// Await has a poller call ready, once, when somebody has connected; not after Close.
func (l *Listener) Await(p *Poller, ready func()) error { return l.await(p, ready) }

// Accept waits for the next who connects. After Close it returns net.ErrClosed; with
// another error it may be called again.
func (l *Listener) Accept() (Accepted, error) {
	descriptor := -1
	var failed error
	err := l.raw.Read(func(listening uintptr) bool {
		l.waiting.Store(false)
		for {
			descriptor, _, failed = unix.Accept4(int(listening), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
			switch {
			case errors.Is(failed, unix.EINTR), errors.Is(failed, unix.ECONNABORTED):
			case errors.Is(failed, unix.EAGAIN):
				l.waiting.Store(true)
				return false
			default:
				return true
			}
		}
	})
	if l.closed.Load() {
		err = net.ErrClosed
		if descriptor >= 0 {
			_ = unix.Close(descriptor)
		}
	}
	if err = errors.Join(err, failed); err != nil {
		return Accepted{}, fmt.Errorf("accept at %s: %w", l.file.Name(), err)
	}
	credentials, err := unix.GetsockoptUcred(descriptor, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		_ = unix.Close(descriptor)
		return Accepted{}, fmt.Errorf("credentials of a peer: %w", err)
	}
	return Accepted{Peer: Peer{PID: int(credentials.Pid), UID: int(credentials.Uid), GID: int(credentials.Gid)}, descriptor: descriptor}, nil
}

// AcceptBy is Accept that waits until then; it returns os.ErrDeadlineExceeded when nobody has
// connected.
func (l *Listener) AcceptBy(deadline time.Time) (Accepted, error) {
	if err := l.file.SetReadDeadline(deadline); err != nil {
		return Accepted{}, fmt.Errorf("accept at %s: %w", l.file.Name(), net.ErrClosed)
	}
	return l.Accept()
}

// Pending says whether somebody has connected whom nobody has accepted yet.
func (l *Listener) Pending() bool {
	pending := false
	err := l.raw.Control(func(descriptor uintptr) { pending = polled(descriptor, unix.POLLIN) != 0 })
	return err == nil && pending
}

// Idle says whether Accept waits, what it returned before was dealt with, and nobody has
// connected.
func (l *Listener) Idle() bool { return !l.Pending() && l.waiting.Load() }

// Close ends Accept and Await. The path of the socket stays.
func (l *Listener) Close() error {
	l.awaited.close()
	return l.file.Close()
}

// Accepted is a connection that is not used yet. Whoever has it calls Conn, Refuse or
// Close, once.
type Accepted struct {
	Peer       Peer
	descriptor int
}

// Conn makes a connection of it.
func (a Accepted) Conn() (*net.UnixConn, error) {
	file := os.NewFile(uintptr(a.descriptor), "connection")
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, fmt.Errorf("connection of process %d: %w", a.Peer.PID, err)
	}
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		_ = conn.Close()
		return nil, fmt.Errorf("connection of process %d: not a unix socket", a.Peer.PID)
	}
	return unixConn, nil
}

// HungUp says whether who connected has closed the connection since.
func (a Accepted) HungUp() bool {
	return polled(uintptr(a.descriptor), 0)&unix.POLLHUP != 0
}

// Refuse says so much, without waiting, and closes it.
func (a Accepted) Refuse(answer []byte) {
	if len(answer) > 0 {
		_ = unix.Send(a.descriptor, answer, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL) // who has hung up needs none
	}
	a.Close()
}

// Close closes it.
func (a Accepted) Close() { _ = unix.Close(a.descriptor) }
