// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"fmt"
	"net"
	"time"

	"github.com/divvy-gpu/divvy/internal/simgpu/simwire"
)

// truth asks the simulator who holds what. One goroutine uses it.
type truth struct {
	connection *net.UnixConn
	sequence   uint32
}

const (
	truthDeadline = 5 * time.Second
	maxPackets    = 1000 // of one list
)

func openTruth(socket string) (*truth, error) {
	connection, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		return nil, fmt.Errorf("ask the simulator: %w", err)
	}
	t := &truth{connection: connection}
	if _, _, err := t.ask(simwire.Header{Type: simwire.Hello, Kind: simwire.RoleControl}); err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

func (t *truth) close() { _ = t.connection.Close() }

// processes lists live and dead ones, on all cards.
func (t *truth) processes() ([]simwire.ProcessInfo, error) {
	var all []simwire.ProcessInfo
	for _, dead := range []uint32{0, 1} {
		cursor := uint64(0)
		for range maxPackets {
			answer, payload, err := t.ask(simwire.Header{Type: simwire.Processes, Card: simwire.AllCards, Kind: dead, Cursor: cursor})
			if err != nil {
				return nil, err
			}
			some, err := simwire.DecodeEntries[simwire.ProcessInfo](payload, answer.Count)
			if err != nil {
				return nil, fmt.Errorf("ask the simulator: %w", err)
			}
			all = append(all, some...)
			if cursor = answer.Cursor; cursor == 0 {
				break
			}
		}
	}
	return all, nil
}

// ask does one request.
func (t *truth) ask(h simwire.Header) (simwire.Header, []byte, error) {
	t.sequence++
	h.Sequence = t.sequence
	fail := func(err error) (simwire.Header, []byte, error) {
		return simwire.Header{}, nil, fmt.Errorf("ask the simulator: %w", err)
	}
	packet, err := simwire.Encode(h, nil)
	if err != nil {
		return fail(err)
	}
	if err := t.connection.SetDeadline(time.Now().Add(truthDeadline)); err != nil {
		return fail(err)
	}
	if _, err := t.connection.Write(packet); err != nil {
		return fail(err)
	}
	buffer := make([]byte, simwire.PacketBytes)
	n, err := t.connection.Read(buffer)
	if err != nil {
		return fail(err)
	}
	answer, payload, err := simwire.Decode(buffer[:n])
	if err != nil {
		return fail(err)
	}
	if answer.Type != h.Type || answer.Sequence != h.Sequence {
		return fail(simwire.ErrProtocol)
	}
	if answer.Status != simwire.OK {
		return fail(fmt.Errorf("request %d: %s", h.Type, answer.Status))
	}
	return answer, payload, nil
}
