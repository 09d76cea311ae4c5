// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/audit"
	"github.com/divvy-gpu/divvy/internal/core"
	"github.com/divvy-gpu/divvy/internal/socket"
	"github.com/divvy-gpu/divvy/internal/wire"
)

const (
	sendDeadline = 5 * time.Second
	// quietFor is how long a goroutine waits for the next that somebody sends, or for who connects. After
	// that all who are quiet wait together.
	quietFor  = time.Second
	maxProbes = 16                     // SYNC before HELLO
	readLate  = 200 * time.Millisecond // for what is there already
)

// connection is one process on a share's socket. A goroutine reads a message
// and answers it before it reads the next: one request of a client is on its
// way at a time, whatever the client sends. While it sends nothing there is none.
type connection struct {
	*daemon
	share string
	conn  *net.UnixConn
	payer int           // to whose part of the connections its process counts
	id    core.ClientID // after HELLO
	cards []string      // of its share, by slot
	actor api.AuditActor
	turn  uint64        // of its process among those that launch
	hung  atomic.Bool   // up, by the agent
	left  func()        // is called when it has ended
	ended chan struct{} // closed when nothing is read any more
}

// errProtocol ends a connection, and nothing else.
var errProtocol = errors.New("protocol error")

// do is the daemon's, in the turns of the process's user.
func (c *connection) do(ctx context.Context, f func(*loop)) error {
	return c.doFor(ctx, c.payer, f)
}

// serve begins with HELLO, and returns while the process is quiet: left is called when
// the connection has ended.
func (c *connection) serve(ctx context.Context, left func()) {
	forget := context.AfterFunc(ctx, c.hangUp) // when the agent ends
	c.left = func() {
		forget()
		close(c.ended)
		_ = c.conn.Close()
		left()
	}
	if err := c.handshake(ctx); err != nil {
		c.cfg.Logger.Debug("handshake", "share", c.share, "error", err)
		c.left()
		return
	}
	c.read(ctx)
}

// hangUp ends the connection: who reads, or waits for it, finds its end.
func (c *connection) hangUp() {
	c.hung.Store(true)
	_, _ = c.conn.CloseRead(), c.conn.CloseWrite() // one that has ended needs none
}

// read answers messages until none comes for a while; it is called again for the next.
func (c *connection) read(ctx context.Context) {
	for quiet := false; !quiet || c.poller.Await(c.conn, func() { c.read(ctx) }) != nil; {
		var err error
		if quiet, err = c.readFor(ctx, quietFor); err != nil {
			c.cfg.Logger.Debug("client", "share", c.share, "error", err)
			c.detach(ctx)
			c.left()
			return
		}
	}
}

// readFor answers messages for some time, and says whether none came.
func (c *connection) readFor(ctx context.Context, most time.Duration) (quiet bool, err error) {
	if err := c.conn.SetReadDeadline(time.Now().Add(most)); err != nil {
		return false, err
	}
	for quiet = true; ; quiet = false {
		m, descriptor, err := c.receive()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return quiet, nil
		}
		if err == nil {
			err = c.handle(ctx, m, descriptor)
		}
		if descriptor >= 0 {
			_ = unix.Close(descriptor)
		}
		if err != nil {
			return false, err
		}
	}
}

// detach takes the process off its connection; it may come back with another.
func (c *connection) detach(ctx context.Context) {
	_ = c.do(ctx, func(l *loop) {
		if m := l.members[c.id]; m != nil && m.conn == c {
			m.conn = nil
			m.dropWaiter()
			l.core.Detach(l.now, c.id)
			l.clientEnded(m)
		}
	})
}

// receive reads one message, and the descriptor that comes with it; -1: none does. A packet
// of another length, or with another magic, ends the connection.
func (c *connection) receive() (m wire.Message, descriptor int, err error) {
	descriptor = -1
	var packet [wire.MessageSize + 1]byte
	control := make([]byte, unix.CmsgSpace(4)) // others are closed by the kernel: there is no room for them
	n, controlBytes, _, _, err := c.conn.ReadMsgUnix(packet[:], control)
	if controlBytes > 0 {
		descriptor = descriptorIn(control[:controlBytes])
	}
	switch {
	case err == nil && (n == 0 || c.hung.Load()):
		err = net.ErrClosed
	case err == nil:
		m, err = wire.Decode(packet[:n])
	}
	return m, descriptor, err
}

// receiveUntil reads a message that has come by then, also where this goroutine is late to it.
func (c *connection) receiveUntil(deadline time.Time) (m wire.Message, descriptor int, err error) {
	if err := c.conn.SetReadDeadline(deadline); err != nil {
		return m, -1, err
	}
	if m, descriptor, err = c.receive(); !errors.Is(err, os.ErrDeadlineExceeded) {
		return m, descriptor, err
	}
	if err := c.conn.SetReadDeadline(time.Now().Add(readLate)); err != nil {
		return m, -1, err
	}
	return c.receive()
}

// descriptorIn takes the first descriptor of a control message; any other is closed.
func descriptorIn(control []byte) (descriptor int) {
	descriptor = -1
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return -1
	}
	for i := range messages {
		numbers, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue
		}
		for _, number := range numbers {
			if descriptor >= 0 {
				_ = unix.Close(number)
				continue
			}
			unix.CloseOnExec(number)
			descriptor = number
		}
	}
	return descriptor
}

// reply sends a message; a client that does not read it is dropped.
func (c *connection) reply(m wire.Message, files ...int) error {
	if err := c.conn.SetWriteDeadline(time.Now().Add(sendDeadline)); err != nil {
		return err
	}
	var packet [wire.MessageSize]byte
	m.Encode(&packet)
	var rights []byte
	if len(files) > 0 {
		rights = unix.UnixRights(files...)
	}
	if _, _, err := c.conn.WriteMsgUnix(packet[:], rights, nil); err != nil {
		return err
	}
	return c.conn.SetWriteDeadline(time.Time{}) // or its timer wakes the agent long afterwards
}

func (c *connection) refuse(m wire.Message, status uint32, text string) error {
	c.noteProgram("attach", audit.Refused, text, nil)
	answer := m.Answer(wire.Refused, status)
	answer.SetText(text)
	_ = c.reply(answer)
	return fmt.Errorf("refused: %s", text)
}

// handshake answers HELLO, and SYNC before it. Who says nothing is hung up on; the time that
// the agent takes for its part, on a host that is busy, is nobody's fault.
func (c *connection) handshake(ctx context.Context) error {
	deadline := time.Now().Add(c.cfg.HandshakeDeadline)
	for range maxProbes {
		m, descriptor, err := c.receiveUntil(deadline)
		if descriptor >= 0 {
			_ = unix.Close(descriptor)
		}
		if err != nil {
			return err
		}
		switch m.Type {
		case wire.Sync:
			if err := c.reply(m.Answer(wire.Synced, wire.StatusOK)); err != nil {
				return err
			}
		case wire.Hello:
			if err := c.hello(ctx, m); err != nil {
				return err
			}
			return nil
		default:
			return c.refuse(m, wire.StatusProtocol, "HELLO comes first")
		}
	}
	return errProtocol
}

// arrival is what a process that says HELLO becomes.
type arrival struct {
	process core.Process
	handle  *socket.Process
	page    *wire.ClientPage
	member  *member
	id      core.ClientID
	again   bool     // comes with a token
	watched bool     // for its end, already
	used    []uint64 // by slot
	files   [2]int   // descriptors to send: limits page, client page
}

func (a *arrival) closeFiles() {
	for _, file := range a.files {
		if file >= 0 {
			_ = unix.Close(file)
		}
	}
}

func (c *connection) hello(ctx context.Context, m wire.Message) error {
	if m.Version != wire.Version {
		why := fmt.Sprintf("the library speaks version %d, the agent %d", m.Version, wire.Version)
		peer, _ := socket.PeerOf(c.conn) // 0 where it cannot be told
		c.actor.UID, c.actor.PID, c.actor.Name = peer.UID, peer.PID, c.table.Name(peer.PID)
		_ = c.do(ctx, func(l *loop) {
			l.otherVersion(core.ClientID(m.Token), c.share, core.Process{PID: peer.PID, UID: peer.UID, Payer: c.payer}, why)
		})
		return c.refuse(m, wire.StatusVersion, why)
	}
	a, err := c.identify(m)
	if err != nil {
		return c.refuse(m, wire.StatusProtocol, err.Error())
	}
	refused := errStopped
	held, err := c.inspect(ctx, a.process.PID, a.process.UID)
	a.member.level = held.Level
	if err == nil {
		err = c.do(ctx, func(l *loop) { refused = l.admit(c, a) })
	} else {
		refused = err
		_ = c.do(ctx, func(l *loop) { l.core.Refused(l.now, c.share, a.process, refused.Error()) })
	}
	if err = errors.Join(err, refused); err != nil {
		a.handle.Close()
		a.page.Close()
		a.closeFiles()
		if ctx.Err() != nil {
			return err // the next agent decides: the process tries again
		}
		status := uint32(wire.StatusProtocol)
		switch {
		case errors.Is(err, core.ErrGone):
			status = wire.StatusGone
		case errors.Is(err, core.ErrBusy):
			status = wire.StatusBusy
		case errors.Is(err, core.ErrNotYours):
			status = wire.StatusNotYours
		}
		return c.refuse(m, status, refused.Error())
	}
	c.id = a.id
	reason := ""
	if a.again {
		reason = "returned"
	}
	c.noteProgram("attach", audit.Done, reason, nil)
	answer := m.Answer(wire.Welcome, wire.StatusOK)
	err = c.reply(answer, a.files[0], a.files[1])
	a.closeFiles()
	if a.watched {
		a.handle.Close()
	} else {
		err = errors.Join(err, c.awaitDeath(ctx, c.payer, a.id, a.handle, func() { c.noteProgram("leave", audit.Done, "", nil) }))
	}
	if len(held.Pending) > 0 || held.Why != "" {
		c.task(func() { c.verify(ctx, a.id, a.process.PID, held) })
	}
	if err != nil {
		c.detach(ctx)
	}
	return err
}

// otherVersion tells of a process whose library speaks another version. One that was
// there before an upgrade comes again and again: of it is told once.
func (l *loop) otherVersion(token core.ClientID, share string, process core.Process, why string) {
	m := l.members[token] // nil, too, where the other version has its token elsewhere
	if m != nil && m.refused {
		return
	}
	if m != nil {
		why += "; it was started before, keeps what it has and gets no more memory"
	}
	if told := l.core.Refused(l.now, share, process, why); m != nil {
		m.refused = told
	}
}

// identify finds out who connected, from outside.
func (c *connection) identify(m wire.Message) (*arrival, error) {
	peer, err := socket.PeerOf(c.conn)
	if err != nil {
		return nil, err
	}
	c.actor.UID, c.actor.PID, c.actor.Name = peer.UID, peer.PID, c.table.Name(peer.PID)
	if peer.PID == 0 {
		return nil, errors.New("the agent cannot see the process: it is in a pid namespace beside the agent's")
	}
	if c.cfg.Private && peer.UID != c.uid && peer.UID != 0 {
		return nil, fmt.Errorf("the agent serves uid %d only", c.uid)
	}
	a := &arrival{process: core.Process{PID: peer.PID, UID: peer.UID, Payer: c.payer}, again: m.Token != 0, used: m.Bytes[:]}
	if a.handle, err = socket.ProcessOf(c.conn, peer); err != nil {
		return nil, err
	}
	if a.process.Start, err = c.table.Start(peer.PID); err != nil {
		a.handle.Close()
		return nil, err
	}
	a.process.Command, a.process.Name = c.table.Command(peer.PID), c.table.Name(peer.PID)
	if c.cfg.CommandLines == ShowAll {
		a.process.Name = a.process.Command
	}
	c.turn = c.turns.Add(1)
	a.member = &member{share: c.share, turn: c.turn, conn: c, process: a.handle}
	if a.member.namespace, err = c.table.Namespace(peer.PID); err == nil {
		a.member.insidePID, _ = c.table.Inside(peer.PID)
	}
	a.id = core.ClientID(m.Token)
	for a.id == 0 {
		var random [8]byte
		_, _ = rand.Read(random[:]) // never fails
		a.id = core.ClientID(binary.LittleEndian.Uint64(random[:]))
	}
	if a.page, err = wire.NewClientPage(uint64(a.id), c.turn); err == nil {
		a.member.page = a.page
		a.member.inode, err = a.page.Inode()
		// On the ledger the page belongs to the loop, its descriptor to us.
		a.files = [2]int{-1, a.page.TakeFile()}
	}
	if err != nil {
		a.handle.Close()
		return nil, err
	}
	return a, nil
}

// admit puts the process on the ledger; the loop's part of HELLO.
func (l *loop) admit(c *connection, a *arrival) error {
	s := l.sockets[c.share]
	if s == nil || l.leaving {
		return core.ErrGone
	}
	if err := l.core.CheckToken(l.now, a.id, c.share, a.process); err != nil {
		return err
	}
	limits, err := unix.FcntlInt(uintptr(s.limits.File()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("limits page: %w", err)
	}
	old := l.members[a.id]
	l.members[a.id] = a.member
	if a.again {
		err = l.core.Reattach(l.now, a.id, c.share, a.process, a.used)
	} else {
		err = l.core.Attach(l.now, a.id, c.share, a.process)
	}
	if err != nil {
		_ = unix.Close(limits)
		delete(l.members, a.id)
		if old != nil {
			l.members[a.id] = old
		}
		return err
	}
	a.files[0] = limits
	l.lastRequest = l.now
	if old != nil {
		if old.conn != nil {
			old.conn.hangUp()
		}
		if old.page != nil {
			old.page.Close()
		}
		old.dropWaiter()
		l.clientMoved(old, a.member)
		a.member.process, a.watched = old.process, true
	}
	c.cards = l.core.CardsOf(c.share)
	return nil
}
