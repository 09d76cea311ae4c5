// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/simgpu/simwire"
)

// moment is a point in the talk between a program's driver library and the
// simulator: before a request reaches the driver, or after the driver did it and
// before the program knows.
type moment struct {
	request int // from 0
	done    bool
}

// middle listens in the simulator's place. It hands every request on, and stops
// the world at one moment, so that a test can kill the program exactly there;
// neither the program nor the simulator knows of it.
type middle struct {
	simulator string
	socket    string

	mutex    sync.Mutex
	look     func(request int) // at each request, before it is handed on
	requests []simwire.Header  // of the present program
	stop     *moment
	reached  chan struct{} // closed at the moment
	program  *net.UnixConn // that waits since then
}

func newMiddle(t *testing.T, simulator string) *middle {
	t.Helper()
	m := &middle{simulator: simulator, socket: filepath.Join(filepath.Dir(simulator), "middle.sock")}
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: m.socket, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			program, err := listener.AcceptUnix()
			if err != nil {
				return
			}
			running.Go(func() { m.carry(t, program) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		running.Wait()
	})
	return m
}

// expect forgets what was asked so far, looks at each request, if there is a look,
// and stops at the moment, if there is one.
func (m *middle) expect(stop *moment, look func(request int)) (reached <-chan struct{}) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.requests, m.stop, m.look, m.reached = nil, stop, look, make(chan struct{})
	return m.reached
}

// asked is what was asked since.
func (m *middle) asked() []simwire.Header {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.requests
}

// release lets the program that waits find its driver gone.
func (m *middle) release() {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	_ = m.program.Close()
}

// note keeps a request and returns its number.
func (m *middle) note(header simwire.Header) int {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	number := len(m.requests)
	m.requests = append(m.requests, header)
	if m.look != nil {
		m.look(number)
	}
	return number
}

// at says whether this is the moment to stop.
func (m *middle) at(now moment, program *net.UnixConn) bool {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.stop == nil || *m.stop != now {
		return false
	}
	m.stop, m.program = nil, program
	close(m.reached)
	return true
}

// carry is the life of one connection: one request, one answer.
func (m *middle) carry(t *testing.T, program *net.UnixConn) {
	defer program.Close()
	simulator, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: m.simulator, Net: "unixpacket"})
	if err != nil {
		return // the program finds that nobody answers
	}
	defer simulator.Close()
	for {
		request, rights, err := receive(program)
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, unix.ECONNRESET) {
				t.Errorf("read a request: %v", err)
			}
			return
		}
		header, _, err := simwire.Decode(request)
		if err != nil {
			t.Error(err)
			return
		}
		number := m.note(header)
		if m.at(moment{number, false}, program) || pass(simulator, request, rights) != nil {
			await(program)
			return
		}
		answer, rights, err := receive(simulator)
		if err != nil || m.at(moment{number, true}, program) {
			closeRights(rights)
			if err == nil {
				await(program)
			}
			return
		}
		if pass(program, answer, rights) != nil {
			return
		}
	}
}

// await returns when the program is gone: it waits for an answer until then.
func await(program *net.UnixConn) {
	_, rights, _ := receive(program)
	closeRights(rights)
}

// receive reads one packet with the descriptors that came with it.
func receive(from *net.UnixConn) (packet, rights []byte, err error) {
	packet, rights = make([]byte, simwire.PacketBytes), make([]byte, unix.CmsgSpace(8*4))
	n, rightsN, _, _, err := from.ReadMsgUnix(packet, rights)
	switch {
	case err != nil:
		return nil, nil, err
	case n == 0:
		return nil, nil, io.EOF
	}
	return packet[:n], rights[:rightsN], nil
}

// pass hands a packet on, with its descriptors.
func pass(to *net.UnixConn, packet, rights []byte) error {
	defer closeRights(rights)
	fds := descriptors(rights)
	var copied []byte
	if len(fds) > 0 {
		copied = unix.UnixRights(fds...)
	}
	_, _, err := to.WriteMsgUnix(packet, copied, nil)
	return err
}

func descriptors(rights []byte) []int {
	var fds []int
	messages, err := unix.ParseSocketControlMessage(rights)
	for _, message := range messages {
		if more, rightsErr := unix.ParseUnixRights(&message); err == nil && rightsErr == nil {
			fds = append(fds, more...)
		}
	}
	return fds
}

func closeRights(rights []byte) {
	for _, fd := range descriptors(rights) {
		_ = unix.Close(fd)
	}
}
