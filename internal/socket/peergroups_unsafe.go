// SPDX-License-Identifier: Apache-2.0

package socket

import (
	"fmt"
	"net"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxGroups is how many supplementary groups a process may have (NGROUPS_MAX).
const maxGroups = 1 << 16

// InGroup says whether who connected was in a group then, by the kernel's word.
func InGroup(conn *net.UnixConn, peer Peer, gid int) (bool, error) {
	if peer.GID == gid {
		return true, nil
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return false, fmt.Errorf("groups of a peer: %w", err)
	}
	groups := make([]uint32, 64)
	var errno unix.Errno
	for {
		bytes := uint32(4 * len(groups))
		err = raw.Control(func(file uintptr) {
			_, _, errno = unix.Syscall6(unix.SYS_GETSOCKOPT, file, unix.SOL_SOCKET, unix.SO_PEERGROUPS,
				uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&bytes)), 0)
		})
		if err == nil && errno == unix.ERANGE && len(groups) < maxGroups {
			groups = make([]uint32, min(int(bytes)/4, maxGroups))
			continue
		}
		if err == nil && errno != 0 {
			err = errno
		}
		if err != nil {
			return false, fmt.Errorf("groups of a peer: %w", err)
		}
		return slices.Contains(groups[:bytes/4], uint32(gid)), nil
	}
}
