// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// connectPacket connects to a seqpacket unix socket; the caller closes it.
func connectPacket(path string) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("make a socket: %w", err)
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("connect to %s: %w", path, err)
	}
	return fd, nil
}
