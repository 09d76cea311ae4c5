// SPDX-License-Identifier: Apache-2.0

package pipe

import (
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// deadAfter is how long the other end of a network may be silent until it counts as dead.
const deadAfter = 15 * time.Second

// Watch has the kernel end a connection whose other end is dead or out of reach.
func Watch(conn *net.TCPConn) error {
	err := conn.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: deadAfter / 3, Interval: deadAfter / 3, Count: 2})
	if err != nil {
		return fmt.Errorf("watch a connection: %w", err)
	}
	raw, err := conn.SyscallConn()
	if err == nil {
		var failed error
		err = raw.Control(func(fd uintptr) {
			failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(deadAfter.Milliseconds()))
		})
		err = errors.Join(err, failed)
	}
	if err != nil {
		return fmt.Errorf("watch a connection: %w", err)
	}
	return nil
}
