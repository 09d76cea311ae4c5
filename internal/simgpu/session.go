// SPDX-License-Identifier: Apache-2.0

package simgpu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/simgpu/simwire"
)

// session is one connection. The kernel owns what stands below conn and pid;
// the session's own goroutine owns the rest.
type session struct {
	conn *net.UnixConn
	pid  int
	uid  int

	pidfd  *os.File // until a client takes it over
	role   uint32   // 0 before HELLO
	client *client  // of a compute process
}

// request is what a session hands to the kernel; the kernel answers once.
type request struct {
	session *session
	header  simwire.Header
	payload []byte
	file    *os.File // that came with it; the session closes it
	reply   chan<- answer
}

// answer goes back to the session, which sends file and closes it.
type answer struct {
	header  simwire.Header
	payload []byte
	file    *os.File
}

// ending tells the kernel that a connection is over, and why.
type ending struct {
	session *session
	cause   error // nil: closed by its other side
}

// serve carries requests to the kernel and answers back until one side ends
// the connection or the client sends nonsense.
func (s *session) serve(ctx context.Context, kernel chan<- request) error {
	packet := make([]byte, simwire.PacketBytes+1)
	rights := make([]byte, unix.CmsgSpace(8*4))
	for {
		n, rightsN, flags, _, err := s.conn.ReadMsgUnix(packet, rights)
		if err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, unix.ECONNRESET) {
				return nil
			}
			return fmt.Errorf("read: %w", err)
		}
		file, err := oneFile(rights[:rightsN], flags)
		if err != nil {
			return err
		}
		err = s.one(ctx, packet[:n], file, kernel)
		if file != nil {
			_ = file.Close()
		}
		if err != nil {
			return err
		}
	}
}

// one handles one packet.
func (s *session) one(ctx context.Context, packet []byte, file *os.File, kernel chan<- request) error {
	header, payload, err := simwire.Decode(packet)
	if err != nil {
		return err
	}
	reply := make(chan answer, 1)
	select {
	case kernel <- request{session: s, header: header, payload: payload, file: file, reply: reply}:
	case <-ctx.Done():
		return nil
	}
	a := <-reply
	if a.file != nil {
		defer a.file.Close()
	}
	out, err := simwire.Encode(a.header, a.payload)
	if err != nil {
		return err
	}
	var rights []byte
	if a.file != nil {
		rights = unix.UnixRights(int(a.file.Fd()))
	}
	if err := s.conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return fmt.Errorf("set a deadline: %w", err)
	}
	if _, _, err := s.conn.WriteMsgUnix(out, rights, nil); err != nil {
		if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, net.ErrClosed) {
			return nil
		}
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// oneFile takes the descriptor out of a packet's rights; more than one is
// nonsense, and all are closed.
func oneFile(rights []byte, flags int) (*os.File, error) {
	var fds []int
	messages, err := unix.ParseSocketControlMessage(rights)
	for _, m := range messages {
		more, rightsErr := unix.ParseUnixRights(&m)
		fds = append(fds, more...)
		err = errors.Join(err, rightsErr)
	}
	if err == nil && flags&unix.MSG_CTRUNC == 0 && len(fds) <= 1 {
		if len(fds) == 0 {
			return nil, nil
		}
		return os.NewFile(uintptr(fds[0]), "received"), nil
	}
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
	return nil, fmt.Errorf("%d descriptors in one packet: %w", len(fds), simwire.ErrProtocol)
}

// peer finds out who is at the other end, from the kernel of this machine.
func peer(conn *net.UnixConn) (pid, uid int, pidfd *os.File, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, 0, nil, fmt.Errorf("identify a client: %w", err)
	}
	fd := -1
	var inner error
	err = raw.Control(func(socket uintptr) {
		var cred *unix.Ucred
		if cred, inner = unix.GetsockoptUcred(int(socket), unix.SOL_SOCKET, unix.SO_PEERCRED); inner != nil {
			return
		}
		pid, uid = int(cred.Pid), int(cred.Uid)
		// Older kernels lack the option; there the number is all there is.
		if fd, inner = unix.GetsockoptInt(int(socket), unix.SOL_SOCKET, unix.SO_PEERPIDFD); inner != nil {
			fd, inner = unix.PidfdOpen(pid, 0)
		}
	})
	if err = errors.Join(err, inner); err != nil {
		return pid, uid, nil, fmt.Errorf("identify client process %d: %w", pid, err)
	}
	return pid, uid, os.NewFile(uintptr(fd), "pidfd"), nil
}

// alive says whether a process still runs.
func alive(pidfd *os.File) bool {
	if pidfd == nil {
		return false
	}
	fds := []unix.PollFd{{Fd: int32(pidfd.Fd()), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 0
}
