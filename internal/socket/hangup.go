// SPDX-License-Identifier: Apache-2.0

package socket

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Hangup tells when the other end of a socket is closed, or sends nothing more, while
// another process reads it and decides whether it blocks.
type Hangup struct {
	file *os.File // an epoll descriptor, for which Go waits without a thread
}

// HangupOf watches a socket, which stays open for as long as the watch needs it.
func HangupOf(conn *os.File) (*Hangup, error) {
	watch, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("watch a socket: %w", err)
	}
	raw, err := conn.SyscallConn()
	if err == nil {
		var failed error
		err = raw.Control(func(fd uintptr) {
			failed = unix.EpollCtl(watch, unix.EPOLL_CTL_ADD, int(fd), &unix.EpollEvent{Events: unix.EPOLLRDHUP, Fd: int32(fd)})
		})
		err = errors.Join(err, failed)
	}
	if err == nil {
		err = unix.SetNonblock(watch, true)
	}
	if err != nil {
		_ = unix.Close(watch)
		return nil, fmt.Errorf("watch a socket: %w", err)
	}
	return &Hangup{file: os.NewFile(uintptr(watch), "watch of a socket")}, nil
}

// Wait returns nil when the other end has hung up, an error when Close came first.
func (h *Hangup) Wait() error {
	raw, err := h.file.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Read(func(watch uintptr) bool {
		var events [1]unix.EpollEvent
		n, err := unix.EpollWait(int(watch), events[:], 0)
		return err == nil && n > 0
	})
}

// Close ends Wait.
func (h *Hangup) Close() { _ = h.file.Close() }
