// SPDX-License-Identifier: Apache-2.0

package simgpu

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/simgpu/silicon"
	"github.com/divvy-gpu/divvy/internal/simgpu/simwire"
)

// ErrNotListening says that no simulator listens on the socket.
var ErrNotListening = errors.New("no simulator listens there")

const (
	requestTimeout = 10 * time.Second
	maxMIGDevices  = 64 // of one card
)

// Truth asks a simulator for the ground truth. It is one connection, for one
// goroutine at a time.
type Truth struct {
	conn     *net.UnixConn
	sequence uint32
	driver   Driver
	cards    int
}

// CardState is a card as the simulator knows it.
type CardState struct {
	Index         int
	Name          string
	UUID          string // GPU-...
	PCIAddress    string
	TotalBytes    uint64 // as NVML reports it
	ReservedBytes uint64 // the driver's own part
	UsableBytes   uint64 // what processes can hold in all
	UsedBytes     uint64 // by processes
	PeakUsedBytes uint64 // most of UsedBytes since the last Reset
	Processes     int    // that hold something
	Percent       int    // of the last half second in which a kernel ran
	MIG           bool   // it can be divided
}

// ProcessState is what one process holds, or held, of one card. A process that
// holds nothing anywhere has Card -1.
type ProcessState struct {
	silicon.Usage
	Alive    bool // the process id still runs
	Detached bool // it closed its connection and lives on
}

// Dial connects to the simulator on a socket.
func Dial(ctx context.Context, socket string) (*Truth, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unixpacket", socket)
	if err != nil {
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED) {
			err = fmt.Errorf("%w: %w", ErrNotListening, err)
		}
		return nil, fmt.Errorf("connect to the simulator: %w", err)
	}
	t := &Truth{conn: conn.(*net.UnixConn)}
	h, _, err := t.ask(ctx, simwire.Header{Type: simwire.Hello, Kind: simwire.RoleControl})
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	t.cards = int(h.Count)
	for _, d := range Drivers() {
		if uint64(d.CUDA) == h.Bytes {
			t.driver = d
		}
	}
	return t, nil
}

// Close ends the connection.
func (t *Truth) Close() error { return t.conn.Close() }

// Driver is the generation that the simulator plays.
func (t *Truth) Driver() Driver { return t.driver }

// ask sends one request and reads its answer. After an error other than a
// status the connection is of no more use.
func (t *Truth) ask(ctx context.Context, h simwire.Header) (simwire.Header, []byte, error) {
	deadline := time.Now().Add(requestTimeout)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	fail := func(err error) (simwire.Header, []byte, error) {
		return simwire.Header{}, nil, fmt.Errorf("ask the simulator: %w", err)
	}
	if err := t.conn.SetDeadline(deadline); err != nil {
		return fail(err)
	}
	stop := context.AfterFunc(ctx, func() { _ = t.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	t.sequence++
	h.Sequence = t.sequence
	packet, err := simwire.Encode(h, nil)
	if err != nil {
		return fail(err)
	}
	if _, err := t.conn.Write(packet); err != nil {
		return fail(errors.Join(err, ctx.Err()))
	}
	buffer := make([]byte, simwire.PacketBytes+1)
	n, err := t.conn.Read(buffer)
	if err != nil {
		return fail(errors.Join(err, ctx.Err()))
	}
	answer, payload, err := simwire.Decode(buffer[:n])
	switch {
	case err != nil:
		return fail(err)
	case answer.Type != h.Type || answer.Sequence != h.Sequence:
		return fail(fmt.Errorf("answer to another request: %w", simwire.ErrProtocol))
	case answer.Status != simwire.OK && len(payload) > 0:
		return simwire.Header{}, nil, &refusal{status: answer.Status, text: string(payload)}
	case answer.Status != simwire.OK:
		return fail(fmt.Errorf("request %d: %v", h.Type, answer.Status))
	}
	return answer, payload, nil
}

// Cards lists all cards and how full they are.
func (t *Truth) Cards(ctx context.Context) ([]CardState, error) {
	states := make([]CardState, 0, t.cards)
	for i := range t.cards {
		_, payload, err := t.ask(ctx, simwire.Header{Type: simwire.Card, Card: uint32(i)})
		if err != nil {
			return nil, err
		}
		infos, err := simwire.DecodeEntries[simwire.CardInfo](payload, 1)
		if err != nil {
			return nil, fmt.Errorf("ask the simulator: GPU %d: %w", i, err)
		}
		c := infos[0]
		states = append(states, CardState{
			Index: i, Name: simwire.Text(c.Name[:]), UUID: silicon.Card{UUID: c.UUID}.UUIDString(),
			PCIAddress: fmt.Sprintf("%08x:%02x:%02x.0", c.PCIDomain, c.PCIBus, c.PCIDevice),
			TotalBytes: c.TotalBytes, ReservedBytes: c.ReservedBytes, UsableBytes: c.UsableBytes,
			UsedBytes: c.UsedBytes, PeakUsedBytes: c.PeakUsedBytes, Processes: int(c.Processes), Percent: int(c.GPUPercent),
			MIG: c.Flags&simwire.CardMIG != 0,
		})
	}
	return states, nil
}

// MIGDevices lists the MIG devices of a card that can be divided, by the UUIDs
// (MIG-...) by which programs ask for them.
func (t *Truth) MIGDevices(ctx context.Context, card int) ([]string, error) {
	h, payload, err := t.ask(ctx, simwire.Header{Type: simwire.MIGList, Card: uint32(card)})
	if err != nil {
		return nil, err
	}
	// Behind the profiles and the GPU instances, in one answer.
	before := uint64(h.Count)*uint64(binary.Size(simwire.MIGProfileInfo{})) + uint64(h.Kind)*uint64(binary.Size(simwire.MIGGPUInfo{}))
	if before > uint64(len(payload)) || h.Cursor > maxMIGDevices {
		return nil, fmt.Errorf("ask the simulator: MIG of GPU %d: %w", card, simwire.ErrProtocol)
	}
	infos, err := simwire.DecodeEntries[simwire.MIGComputeInfo](payload[before:], uint32(h.Cursor))
	if err != nil {
		return nil, fmt.Errorf("ask the simulator: MIG of GPU %d: %w", card, err)
	}
	devices := []string{}
	for _, i := range infos {
		devices = append(devices, strings.Replace(silicon.Card{UUID: i.UUID}.UUIDString(), "GPU-", "MIG-", 1))
	}
	return devices, nil
}

// Processes lists what live compute processes hold, with one entry for each
// card that a process ever touched.
func (t *Truth) Processes(ctx context.Context) ([]ProcessState, error) { return t.processes(ctx, 0) }

// Dead lists what the last processes that ended held at most, oldest first.
func (t *Truth) Dead(ctx context.Context) ([]ProcessState, error) { return t.processes(ctx, 1) }

func (t *Truth) processes(ctx context.Context, kind uint32) ([]ProcessState, error) {
	var states []ProcessState
	for cursor := uint64(0); ; {
		h, payload, err := t.ask(ctx, simwire.Header{Type: simwire.Processes, Card: simwire.AllCards, Kind: kind, Cursor: cursor})
		if err != nil {
			return nil, err
		}
		infos, err := simwire.DecodeEntries[simwire.ProcessInfo](payload, h.Count)
		if err != nil {
			return nil, fmt.Errorf("ask the simulator: processes: %w", err)
		}
		for _, p := range infos {
			states = append(states, processState(p))
		}
		if h.Cursor == 0 || len(infos) == 0 {
			return states, nil
		}
		cursor = h.Cursor
	}
}

func processState(p simwire.ProcessInfo) ProcessState {
	return ProcessState{
		Usage: silicon.Usage{
			Process: silicon.ProcessID(p.Process), PID: int(p.PID), Card: int(int32(p.Card)),
			Dead: p.Flags&simwire.ProcessDead != 0, Contexts: int(p.Contexts), Bytes: p.Bytes, PeakBytes: p.PeakBytes,
			Allocations: p.Allocations, Live: p.Live, Denials: p.Denials, KindBytes: p.KindBytes,
		},
		Alive:    p.Flags&simwire.ProcessAlive != 0,
		Detached: p.Flags&simwire.ProcessDetached != 0,
	}
}

// PeakBytes is the most that any process with this id, live or dead, held of
// one card since the last Reset.
func (t *Truth) PeakBytes(ctx context.Context, pid, card int) (uint64, error) {
	live, err := t.Processes(ctx)
	if err != nil {
		return 0, err
	}
	dead, err := t.Dead(ctx)
	if err != nil {
		return 0, err
	}
	var peak uint64
	for _, p := range append(live, dead...) {
		if p.PID == pid && p.Card == card {
			peak = max(peak, p.PeakBytes)
		}
	}
	return peak, nil
}

// Reset makes every peak what is held now and forgets dead processes and
// releases.
func (t *Truth) Reset(ctx context.Context) error {
	_, _, err := t.ask(ctx, simwire.Header{Type: simwire.Reset})
	return err
}

// Events returns what happened after the event with number since (0: all that
// is kept).
func (t *Truth) Events(ctx context.Context, since uint64) ([]silicon.Event, error) {
	return pages(ctx, t, simwire.Events, since, func(e simwire.EventInfo) silicon.Event {
		return silicon.Event{Number: e.Number, TimeNS: int64(e.TimeNS), Kind: silicon.EventKind(e.Kind),
			Process: silicon.ProcessID(e.Process), PID: int(e.PID), Card: int(int32(e.Card)), Bytes: e.Bytes, Text: simwire.Text(e.Text[:])}
	})
}

// Releases returns the moments after the release with number since at which
// everything of a process came free, on CLOCK_MONOTONIC.
func (t *Truth) Releases(ctx context.Context, since uint64) ([]silicon.Release, error) {
	return pages(ctx, t, simwire.Releases, since, func(r simwire.ReleaseInfo) silicon.Release {
		return silicon.Release{Number: r.Number, TimeNS: int64(r.TimeNS), Process: silicon.ProcessID(r.Process), PID: int(r.PID), Bytes: r.Bytes}
	})
}

// pages reads a numbered list to its end.
func pages[E simwire.Entry, T any](ctx context.Context, t *Truth, list simwire.Type, since uint64, convert func(E) T) ([]T, error) {
	var found []T
	for cursor := since; ; {
		h, payload, err := t.ask(ctx, simwire.Header{Type: list, Cursor: cursor})
		if err != nil {
			return nil, err
		}
		entries, err := simwire.DecodeEntries[E](payload, h.Count)
		if err != nil {
			return nil, fmt.Errorf("ask the simulator: list %d: %w", list, err)
		}
		if len(entries) == 0 {
			return found, nil
		}
		for _, e := range entries {
			found = append(found, convert(e))
		}
		cursor = h.Cursor
	}
}
