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
func ends(fd uintptr) bool {
	events := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	n, err := unix.Poll(events, 0)
	return err == nil && n > 0 && events[0].Revents&(unix.POLLHUP|unix.POLLRDHUP) != 0
}
