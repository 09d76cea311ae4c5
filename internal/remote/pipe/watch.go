// SPDX-License-Identifier: Apache-2.0

package pipe

import (
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// Silence is how long the other end of a network may be silent until it counts as dead.
const Silence = 15 * time.Second

// ErrSilent says that the other end lives by its kernel's word, and does not answer.
var ErrSilent = errors.New("the other end does not answer")

// Watch has the kernel end a connection whose other end is dead or out of reach. That is
// found out while nothing waits to be sent. What waits, too, ends a connection only where
// the other end always reads at once (prompt): else it may wait for a GPU's time, for as long
// as that takes.
func Watch(conn net.Conn, prompt bool) error {
	if batch := batchOf(conn); batch != nil {
		conn = batch.Conn
	}
	tcp, is := conn.(*net.TCPConn)
	if !is {
		return nil // of this machine
	}
	err := tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: Silence / 3, Interval: Silence / 3, Count: 2})
	if err != nil {
		return fmt.Errorf("watch a connection: %w", err)
	}
	bound := 0
	if prompt {
		bound = int(Silence.Milliseconds())
	}
	raw, err := tcp.SyscallConn()
	if err == nil {
		var failed error
		err = raw.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, bound) })
		err = errors.Join(err, failed)
	}
	if err != nil {
		return fmt.Errorf("watch a connection: %w", err)
	}
	return nil
}

// Dead says whether a connection failed because its other end was found dead.
func Dead(err error) bool { return errors.Is(err, unix.ETIMEDOUT) || errors.Is(err, ErrSilent) }
