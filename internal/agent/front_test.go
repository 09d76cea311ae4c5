// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/wire"
)

// front speaks the protocol of the front library: pages, credit, charges,
// coming back to a restarted agent.
type front struct {
	path string

	mutex    sync.Mutex // the slow way
	conn     *net.UnixConn
	limits   atomic.Pointer[wire.LimitsPage]
	page     atomic.Pointer[wire.ClientPage]
	old      []*wire.ClientPage
	token    uint64
	sequence uint32
	keepFile bool // of the page, for a child

	asked, refusals atomic.Uint64
}

var errDenied = errors.New("out of memory")

// refusedError is a REFUSED of the agent.
type refusedError struct {
	status uint32
	text   string
}

func (e *refusedError) Error() string { return fmt.Sprintf("refused (%d): %s", e.status, e.text) }

// newFront attaches to the share at path.
func newFront(path string) (*front, error) { return attachFront(&front{path: path}) }

func attachFront(f *front) (*front, error) {
	if err := f.dial(); err != nil {
		return nil, err
	}
	if err := f.hello([wire.MaxCards]uint64{}); err != nil {
		_ = f.conn.Close()
		return nil, err
	}
	return f, nil
}

func (f *front) dial() error {
	conn, err := net.Dial("unixpacket", f.path)
	if err != nil {
		return err
	}
	f.conn = conn.(*net.UnixConn)
	return nil
}

func (f *front) request(m wire.Message) wire.Message {
	f.sequence++
	m.Magic, m.Version, m.Sequence = wire.MessageMagic, wire.Version, f.sequence
	return m
}

func (f *front) send(m wire.Message) error {
	var packet [wire.MessageSize]byte
	m.Encode(&packet)
	_, err := f.conn.Write(packet[:])
	return err
}

// call sends m and returns the answer, and the descriptors that come with it.
func (f *front) call(m wire.Message) (wire.Message, []int, error) {
	m = f.request(m)
	if err := f.send(m); err != nil {
		return wire.Message{}, nil, err
	}
	var packet [wire.MessageSize]byte
	control := make([]byte, unix.CmsgSpace(2*4))
	n, controlBytes, _, _, err := f.conn.ReadMsgUnix(packet[:], control)
	if err != nil {
		return wire.Message{}, nil, err
	}
	if n == 0 {
		return wire.Message{}, nil, net.ErrClosed
	}
	answer, err := wire.Decode(packet[:n])
	if err != nil {
		return answer, nil, err
	}
	if answer.Sequence != m.Sequence {
		return answer, nil, fmt.Errorf("answer %d to request %d", answer.Sequence, m.Sequence)
	}
	var files []int
	messages, err := unix.ParseSocketControlMessage(control[:controlBytes])
	if err != nil {
		return answer, nil, err
	}
	for _, c := range messages {
		more, err := unix.ParseUnixRights(&c)
		if err != nil {
			return answer, nil, err
		}
		files = append(files, more...)
	}
	return answer, files, nil
}

func (f *front) hello(used [wire.MaxCards]uint64) error {
	answer, files, err := f.call(wire.Message{Type: wire.Hello, Token: f.token, Bytes: used})
	if err != nil {
		return err
	}
	if answer.Type == wire.Refused {
		return &refusedError{answer.Status, answer.Line()}
	}
	if answer.Type != wire.Welcome || len(files) != 2 {
		return fmt.Errorf("answer %d with %d descriptors to HELLO", answer.Type, len(files))
	}
	limits, err := wire.OpenLimitsPage(files[0])
	if err != nil {
		return err
	}
	page, err := wire.OpenClientPage(files[1])
	if err != nil {
		return err
	}
	limits.CloseFile()
	if !f.keepFile {
		page.CloseFile()
	}
	f.limits.Store(limits)
	f.token = page.Token()
	if old := f.page.Swap(page); old != nil {
		f.old = append(f.old, old)
	}
	f.sweep()
	return nil
}

// sweep moves what late frees have put on old pages.
func (f *front) sweep() {
	for _, old := range f.old {
		if n, _ := old.SetAside(0); n > 0 {
			f.page.Load().Give(0, n)
		}
	}
}

func (f *front) tight() bool {
	words := f.limits.Load().Read()
	return words.Card[0].Flags&wire.CardTight != 0
}

// alloc charges bytes: from credit, else by asking.
func (f *front) alloc(bytes uint64) error {
	if !f.tight() && f.page.Load().Take(0, bytes) {
		return nil
	}
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.sweep()
	if !f.tight() && f.page.Load().Take(0, bytes) {
		return nil
	}
	f.asked.Add(1)
	m := wire.Message{Type: wire.Charge, Kind: wire.ChargeFinal, Amount: bytes}
	m.SetText("cuMemAlloc")
	page := f.page.Load()
	mark := page.Mark(0)
	answer, _, err := f.call(m)
	if err != nil {
		charged := page.Mark(0) != mark
		if err := f.comeBack(); err != nil {
			return err
		}
		if charged {
			return nil // it was granted before the agent went
		}
		if answer, _, err = f.call(m); err != nil {
			return err
		}
	}
	switch answer.Type {
	case wire.Charged:
		return nil
	case wire.Denied:
		f.refusals.Add(1)
		return errDenied
	}
	return fmt.Errorf("answer %d to CHARGE", answer.Type)
}

func (f *front) free(bytes uint64) { f.page.Load().Give(0, bytes) }

func (f *front) used() uint64 {
	granted, credit := f.page.Load().Memory(0)
	return granted - credit
}

// comeBack attaches again, with the mutex held: first it finds out whether an
// agent is there, then it sets its credit aside.
func (f *front) comeBack() error {
	_ = f.conn.Close()
	deadline := time.Now().Add(5 * time.Second)
	for {
		err := f.tryComeBack()
		var refused *refusedError
		if err == nil || errors.As(err, &refused) || time.Now().After(deadline) {
			return err
		}
		<-time.After(time.Millisecond)
	}
}

func (f *front) tryComeBack() error {
	if err := f.dial(); err != nil {
		return err
	}
	_ = f.conn.SetDeadline(time.Now().Add(2 * time.Second))
	if _, _, err := f.call(wire.Message{Type: wire.Sync}); err != nil {
		_ = f.conn.Close()
		return err
	}
	f.sweep()
	page := f.page.Load()
	var used [wire.MaxCards]uint64
	var credit uint64
	credit, used[0] = page.SetAside(0)
	err := f.hello(used)
	_ = f.conn.SetDeadline(time.Time{})
	if err != nil {
		page.Give(0, credit)
		_ = f.conn.Close()
	}
	return err
}

// watch comes back as soon as the connection breaks, until stop closes. It may
// not run while others use the slow way without the mutex.
func (f *front) watch(stop <-chan struct{}) error {
	for {
		f.mutex.Lock()
		conn := f.conn
		f.mutex.Unlock()
		if hungUp(conn) {
			f.mutex.Lock()
			var err error
			if f.conn == conn {
				err = f.comeBack()
			}
			f.mutex.Unlock()
			if err != nil {
				return err
			}
		}
		select {
		case <-stop:
			return nil
		case <-time.After(time.Millisecond):
		}
	}
}

func hungUp(conn *net.UnixConn) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return true
	}
	gone := false
	err = raw.Control(func(file uintptr) {
		events := []unix.PollFd{{Fd: int32(file), Events: unix.POLLRDHUP}}
		n, err := unix.Poll(events, 0)
		gone = err == nil && n > 0
	})
	return err != nil || gone
}

func (f *front) close() { _ = f.conn.Close() }

func helloMessage() wire.Message { return wire.Message{Type: wire.Hello} }

func chargeMessage(bytes uint64) wire.Message {
	return wire.Message{Type: wire.Charge, Amount: bytes}
}
