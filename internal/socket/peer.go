// SPDX-License-Identifier: Apache-2.0

package socket

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// ErrGone says that a process has ended.
var ErrGone = errors.New("the process has ended")

// Peer is who connected, as the kernel tells.
type Peer struct {
	PID, UID, GID int
}

// PeerOf asks who is at the other end.
func PeerOf(conn *net.UnixConn) (Peer, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return Peer{}, fmt.Errorf("credentials of a peer: %w", err)
	}
	var credentials *unix.Ucred
	var asked error
	err = raw.Control(func(file uintptr) {
		credentials, asked = unix.GetsockoptUcred(int(file), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(err, asked); err != nil {
		return Peer{}, fmt.Errorf("credentials of a peer: %w", err)
	}
	return Peer{PID: int(credentials.Pid), UID: int(credentials.Uid), GID: int(credentials.Gid)}, nil
}

// Process is a process that cannot be mistaken for a later one with its number.
type Process struct {
	file *os.File
	awaited
}

// ProcessOf is the process at the other end of a connection.
func ProcessOf(conn *net.UnixConn, peer Peer) (*Process, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("process %d: %w", peer.PID, err)
	}
	file := -1
	var asked error
	err = raw.Control(func(socket uintptr) {
		file, asked = unix.GetsockoptInt(int(socket), unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	})
	if err != nil {
		return nil, fmt.Errorf("process %d: %w", peer.PID, err)
	}
	if asked == nil {
		return newProcess(file, peer.PID)
	}
	if !errors.Is(asked, unix.ENOPROTOOPT) {
		return nil, fmt.Errorf("process %d: %w: %v", peer.PID, ErrGone, asked)
	}
	// Before Linux 6.5: by number. It can have been reused only if the peer has
	// ended, and then its end of the connection is closed, unless a child has it.
	process, err := OpenProcess(peer.PID)
	if err != nil {
		return nil, err
	}
	if hungUp(raw) {
		process.Close()
		return nil, fmt.Errorf("process %d: %w", peer.PID, ErrGone)
	}
	return process, nil
}

func hungUp(raw interface{ Control(func(uintptr)) error }) bool {
	gone := false
	err := raw.Control(func(socket uintptr) { gone = ends(socket) })
	return err != nil || gone
}

// OpenProcess is the process with this number now.
func OpenProcess(pid int) (*Process, error) {
	file, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) {
		return nil, fmt.Errorf("process %d: %w", pid, ErrGone)
	}
	if err != nil {
		return nil, fmt.Errorf("process %d: %w", pid, err)
	}
	return newProcess(file, pid)
}

func newProcess(file, pid int) (*Process, error) {
	// Go waits for non-blocking descriptors without a thread for each.
	err := unix.SetNonblock(file, true)
	if err != nil {
		_ = unix.Close(file)
		return nil, fmt.Errorf("process %d: %w", pid, err)
	}
	p := &Process{file: os.NewFile(uintptr(file), fmt.Sprintf("process %d", pid))}
	if p.raw, err = p.file.SyscallConn(); err != nil {
		return nil, fmt.Errorf("process %d: %w", pid, err)
	}
	return p, nil
}

// Wait returns nil when the process has ended, an error when Close came first.
func (p *Process) Wait() error { return p.raw.Read(ended) }

// Await has a poller call ended, once, when the process has ended; not after Close.
func (p *Process) Await(by *Poller, ended func()) error {
	return p.await(by, func() {
		if p.Ended() {
			ended()
			return
		}
		_ = p.Await(by, ended) // that was about a descriptor that had its number before, or the poller ends
	})
}

func ended(file uintptr) bool { return polled(file, unix.POLLIN) != 0 }

// Ended says whether the process has ended.
func (p *Process) Ended() bool {
	done := false
	return p.raw.Control(func(file uintptr) { done = ended(file) }) == nil && done
}

// Close ends Wait and Await.
func (p *Process) Close() {
	p.awaited.close()
	_ = p.file.Close()
}
