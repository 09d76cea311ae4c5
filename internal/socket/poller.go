// SPDX-License-Identifier: Apache-2.0

package socket

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// Poller waits for many descriptors with one goroutine: one for each, with its stack, is much
// where thousands have nothing to say.
type Poller struct {
	epoll *os.File

	mutex  sync.Mutex // guards everything below
	ready  map[int32]func()
	closed bool
}

// NewPoller makes one, which waits for nothing yet.
func NewPoller() (*Poller, error) {
	epoll, err := newEpoll()
	if err != nil {
		return nil, fmt.Errorf("wait for descriptors: %w", err)
	}
	return &Poller{epoll: epoll, ready: map[int32]func(){}}, nil
}

// newEpoll makes an epoll descriptor, for which Go waits without a thread.
func newEpoll() (*os.File, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(epoll, true); err != nil {
		_ = unix.Close(epoll)
		return nil, err
	}
	return os.NewFile(uintptr(epoll), "epoll"), nil
}

// onBoth calls f while neither an epoll descriptor nor another one is closed.
func onBoth(epoll *os.File, other syscall.RawConn, f func(epoll, fd int) error) error {
	own, err := epoll.SyscallConn()
	if err != nil {
		return err
	}
	var gone, failed error
	err = other.Control(func(fd uintptr) {
		gone = own.Control(func(epoll uintptr) { failed = f(int(epoll), int(fd)) })
	})
	return errors.Join(err, gone, failed)
}

// waitEpoll waits until there are events, or the descriptor is closed.
func waitEpoll(epoll *os.File, events []unix.EpollEvent) (n int, err error) {
	raw, err := epoll.SyscallConn()
	if err != nil {
		return 0, err
	}
	err = raw.Read(func(fd uintptr) bool {
		got, failed := unix.EpollWait(int(fd), events, 0)
		n = max(got, 0)
		return failed == nil && n > 0
	})
	return n, err
}

// Await has ready called, once, when there is something to read, or to be told of its end; for a
// reason of the kernel's it may be called without. What is awaited stays open until then, or is
// forgotten first.
func (p *Poller) Await(of syscall.Conn, ready func()) error {
	raw, err := of.SyscallConn()
	if err != nil {
		return fmt.Errorf("wait for a descriptor: %w", err)
	}
	return p.await(raw, ready)
}

func (p *Poller) await(raw syscall.RawConn, ready func()) error {
	return p.change(raw, func(epoll, fd int) error {
		if p.closed {
			return os.ErrClosed
		}
		event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLONESHOT, Fd: int32(fd)}
		err := unix.EpollCtl(epoll, unix.EPOLL_CTL_MOD, fd, &event)
		if errors.Is(err, unix.ENOENT) {
			err = unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd, &event)
		}
		if err == nil {
			p.ready[int32(fd)] = ready
		}
		return err
	})
}

// forget has nothing called for a descriptor any more.
func (p *Poller) forget(raw syscall.RawConn) {
	_ = p.change(raw, func(epoll, fd int) error {
		delete(p.ready, int32(fd))
		return unix.EpollCtl(epoll, unix.EPOLL_CTL_DEL, fd, nil)
	})
}

// change has f change what is awaited of a descriptor.
func (p *Poller) change(raw syscall.RawConn, f func(epoll, fd int) error) error {
	if err := onBoth(p.epoll, raw, func(epoll, fd int) error {
		p.mutex.Lock()
		defer p.mutex.Unlock()
		return f(epoll, fd)
	}); err != nil {
		return fmt.Errorf("wait for a descriptor: %w", err)
	}
	return nil
}

// Run hands on what is to be called, until Close, and then all that still waits.
func (p *Poller) Run(begin func(ready func())) {
	var events [64]unix.EpollEvent
	for n, err := 0, error(nil); err == nil; {
		n, err = waitEpoll(p.epoll, events[:])
		for _, event := range events[:n] {
			if ready := p.take(event.Fd); ready != nil {
				begin(ready)
			}
		}
	}
	p.mutex.Lock()
	left := p.ready
	p.ready, p.closed = nil, true
	p.mutex.Unlock()
	for _, ready := range left {
		begin(ready)
	}
}

func (p *Poller) take(fd int32) func() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	ready := p.ready[fd]
	delete(p.ready, fd)
	return ready
}

// Close ends Run.
func (p *Poller) Close() { _ = p.epoll.Close() }

// awaited is a descriptor that a poller may wait for until it is closed.
type awaited struct {
	raw    syscall.RawConn
	closed atomic.Bool
	by     atomic.Pointer[Poller]
}

func (a *awaited) await(p *Poller, ready func()) error {
	a.by.Store(p)
	err := p.await(a.raw, ready)
	if a.closed.Load() {
		p.forget(a.raw)
		return os.ErrClosed
	}
	return err
}

// close is called before the descriptor is closed.
func (a *awaited) close() {
	a.closed.Store(true)
	if p := a.by.Load(); p != nil {
		p.forget(a.raw)
	}
}
