// SPDX-License-Identifier: Apache-2.0

package socket

import (
	"errors"
	"fmt"
	"io"
	"net"

	"golang.org/x/sys/unix"
)

// Peek waits for len(buffer) bytes and leaves them where they are, for whoever is handed the
// connection. The connection's read deadline holds.
func Peek(conn *net.UnixConn, buffer []byte) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return fmt.Errorf("look at a connection: %w", err)
	}
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		for {
			n, _, err := unix.Recvfrom(int(fd), buffer, unix.MSG_PEEK|unix.MSG_DONTWAIT)
			switch {
			case errors.Is(err, unix.EINTR):
				continue
			case errors.Is(err, unix.EAGAIN):
				return false
			case err != nil:
				failed = err
			case n == 0:
				failed = io.EOF
			case n < len(buffer) && !ends(fd):
				return false
			case n < len(buffer):
				failed = io.ErrUnexpectedEOF
			}
			return true
		}
	})
	if err = errors.Join(err, failed); err != nil {
		return fmt.Errorf("look at a connection: %w", err)
	}
	return nil
}

// ends says whether a socket's other end sends nothing more.
func ends(fd uintptr) bool { return polled(fd, unix.POLLRDHUP)&(unix.POLLHUP|unix.POLLRDHUP) != 0 }

// polled is what can be said of a descriptor now: of these events, of errors and of its end.
func polled(fd uintptr, events int16) int16 {
	of := []unix.PollFd{{Fd: int32(fd), Events: events}}
	if n, err := unix.Poll(of, 0); err != nil || n == 0 {
		return 0
	}
	return of[0].Revents
}
