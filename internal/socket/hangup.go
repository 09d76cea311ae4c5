// SPDX-License-Identifier: Apache-2.0

package socket

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Hangup tells when the other end of a socket is closed, or sends nothing more, while
// another process reads it and decides whether it blocks.
type Hangup struct {
	epoll *os.File
}

// HangupOf watches a socket, which stays open for as long as the watch needs it.
func HangupOf(conn *os.File) (*Hangup, error) {
	epoll, err := newEpoll()
	if err != nil {
		return nil, fmt.Errorf("watch a socket: %w", err)
	}
	raw, err := conn.SyscallConn()
	if err == nil {
		err = onBoth(epoll, raw, func(epoll, fd int) error {
			return unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLRDHUP, Fd: int32(fd)})
		})
	}
	if err != nil {
		_ = epoll.Close()
		return nil, fmt.Errorf("watch a socket: %w", err)
	}
	return &Hangup{epoll}, nil
}

// Wait returns nil when the other end has hung up, an error when Close came first.
func (h *Hangup) Wait() error {
	var events [1]unix.EpollEvent
	_, err := waitEpoll(h.epoll, events[:])
	return err
}

// Close ends Wait.
func (h *Hangup) Close() { _ = h.epoll.Close() }
