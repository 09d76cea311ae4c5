// SPDX-License-Identifier: Apache-2.0

package simgpu

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/simgpu/condition"
	"github.com/divvy-gpu/divvy/internal/simgpu/partition"
	"github.com/divvy-gpu/divvy/internal/simgpu/silicon"
	"github.com/divvy-gpu/divvy/internal/simgpu/simwire"
)

var (
	errHost     = errors.New("the host's budget for simulated memory is spent")
	errMismatch = errors.New("library and simulator play different driver generations")
	errDenied   = errors.New("not in this role")
	errUnknown  = errors.New("no such request")
)

// handlePrefix starts the 64 bytes of an IPC handle; the unguessable part
// follows, then zeros.
const handlePrefix = "divvyipc"

// handle answers one request. Words of the answer that a request does not
// document are zero.
func (k *kernel) handle(r request) answer {
	h := r.header
	out := answer{header: simwire.Header{Type: h.Type, Sequence: h.Sequence}}
	if err := k.dispatch(r, &out); err != nil {
		out.header.Status = status(err)
		out.payload = nil
		if h.Type == simwire.FaultInject || h.Type == simwire.FaultClear {
			out.payload = []byte(err.Error()) // for a person, and short
			out.payload = out.payload[:min(len(out.payload), 500)]
		}
		k.log.Debug("request refused", "type", h.Type, "pid", r.session.pid, "error", err)
	}
	return out
}

func status(err error) simwire.Status {
	for _, c := range []struct {
		err    error
		status simwire.Status
	}{
		{silicon.ErrNoRoom, simwire.NoRoom}, {silicon.ErrInvalid, simwire.Invalid}, {silicon.ErrNotFound, simwire.NotFound},
		{silicon.ErrOwn, simwire.Own}, {silicon.ErrLimit, simwire.Limit}, {errHost, simwire.Host},
		{condition.ErrInvalid, simwire.Invalid}, {condition.ErrNotFound, simwire.NotFound},
		{silicon.ErrInUse, simwire.InUse}, {partition.ErrInUse, simwire.InUse}, {partition.ErrResources, simwire.Resources},
		{partition.ErrUnsupported, simwire.Unsupported}, {partition.ErrInvalid, simwire.Invalid}, {partition.ErrNotFound, simwire.NotFound},
		{errMismatch, simwire.Mismatch}, {errDenied, simwire.Denied}, {errUnknown, simwire.Unknown},
		{unix.EMFILE, simwire.Limit}, {unix.ENFILE, simwire.Limit}, {unix.ENOMEM, simwire.Host},
	} {
		if errors.Is(err, c.err) {
			return c.status
		}
	}
	return simwire.Invalid
}

func (k *kernel) dispatch(r request, out *answer) error {
	switch r.header.Type {
	case simwire.Hello:
		return k.hello(r, out)
	case simwire.Card, simwire.Memory, simwire.Processes, simwire.Holders:
		if r.session.role == 0 {
			return errDenied
		}
		return k.observe(r, out)
	case simwire.Bye:
		if c := r.session.client; c != nil {
			k.end(c)
		}
		return nil
	case simwire.Times:
		if r.session.role == 0 || (r.header.Kind != 0 && r.session.role != simwire.RoleControl) {
			return errDenied
		}
		return k.times(r.header, out)
	case simwire.Runs:
		if r.session.role != simwire.RoleControl {
			return errDenied
		}
		return k.runs(r.header, out)
	case simwire.Notice, simwire.Health, simwire.Faulted, simwire.Incidents, simwire.FaultInject, simwire.FaultClear, simwire.FaultList,
		simwire.FaultReport:
		return k.faults(r, out)
	case simwire.Topology:
		if r.session.role == 0 {
			return errDenied
		}
		return k.topology(index(r.header.Card), out)
	case simwire.MIGList, simwire.MIGChange, simwire.MIGUse:
		return k.mig(r, out)
	case simwire.LimitSet, simwire.LimitGet, simwire.Cap:
		return k.bounds(r, out)
	case simwire.Reset, simwire.Events, simwire.Releases:
		if r.session.role != simwire.RoleControl {
			return errDenied
		}
		return k.control(r, out)
	}
	c := r.session.client
	if c == nil && r.header.Type <= simwire.EventGate {
		return errDenied
	}
	switch r.header.Type {
	case simwire.Charge, simwire.Release, simwire.Adjust, simwire.Pressure:
		return k.capacity(c, r.header, out)
	case simwire.Arena, simwire.ObjectCreate, simwire.ObjectExport, simwire.ObjectImport, simwire.ObjectDrop:
		return k.content(c, r, out)
	case simwire.IPCExport, simwire.IPCOpen, simwire.IPCRevoke:
		return k.interprocess(c, r, out)
	case simwire.Ring, simwire.Wait, simwire.GateDone:
		return k.launches(c, r.header, out)
	case simwire.EventRecord, simwire.EventLook, simwire.EventGate:
		return k.sharedEvent(c, r, out)
	}
	return errUnknown
}

func (k *kernel) hello(r request, out *answer) error {
	h, s := r.header, r.session
	switch {
	case h.Kind != simwire.RoleObserve && h.Kind != simwire.RoleCompute && h.Kind != simwire.RoleControl:
		return fmt.Errorf("role %d: %w", h.Kind, silicon.ErrInvalid)
	case h.Bytes != 0 && h.Bytes != uint64(k.driver.CUDA):
		return fmt.Errorf("library plays %d, simulator %d: %w", h.Bytes, k.driver.CUDA, errMismatch)
	}
	if h.Kind == simwire.RoleCompute {
		if s.client == nil {
			if err := k.attach(s, silicon.ProcessID(h.Process), h.Token); err != nil {
				return err
			}
		}
		page, err := duplicate(s.client.page)
		if err != nil {
			return err
		}
		out.file = page
		out.header.Process, out.header.Token = uint64(s.client.id), s.client.token
	}
	if s.client == nil || h.Kind == simwire.RoleCompute {
		s.role = h.Kind
	}
	out.header.Count = uint32(k.machine.Cards())
	out.header.Bytes = uint64(k.driver.CUDA)
	return nil
}

// capacity is who holds how much.
func (k *kernel) capacity(c *client, h simwire.Header, out *answer) error {
	card, kind := index(h.Card), silicon.Kind(h.Kind)
	if h.Type == simwire.Pressure {
		if err := k.press(c, card, h.Bytes); err != nil {
			return err
		}
		k.contents.announce(h.Bytes)
		return nil
	}
	k.place(c)
	var err error
	switch h.Type {
	case simwire.Charge:
		if err = k.press(c, card, 0); err == nil {
			err = k.machine.Charge(c.id, card, kind, h.Bytes, nowNS())
		}
	case simwire.Release:
		err = k.machine.Release(c.id, card, kind, h.Bytes)
	case simwire.Adjust:
		if int64(h.Bytes) > 0 {
			err = k.press(c, card, 0)
		}
		if err == nil {
			err = k.machine.Adjust(c.id, card, kind, int64(h.Bytes), nowNS())
		}
	}
	if card >= 0 && card < k.machine.Slots() {
		out.header.Bytes = k.machine.FreeFor(c.id, card)
	}
	return err
}

// press asks the host's budget for room for bytes more.
func (k *kernel) press(c *client, card int, bytes uint64) error {
	if !k.contents.spent(bytes, time.Now()) {
		return nil
	}
	text := fmt.Sprintf("host memory: %d bytes of a budget of %d are in use; no quota is involved",
		k.contents.sampled+k.contents.announced, k.contents.budgetBytes)
	k.machine.Note(nowNS(), silicon.Event{Kind: silicon.EventHost, Process: c.id, PID: c.pid, Card: card, Bytes: bytes, Text: text})
	k.log.Warn("host budget spent", "pid", c.pid, "bytes", bytes, "budget", k.contents.budgetBytes)
	return fmt.Errorf("%d bytes for process %d: %w", bytes, c.id, errHost)
}

// content is where memory's contents are.
func (k *kernel) content(c *client, r request, out *answer) error {
	h := r.header
	var info silicon.ObjectInfo
	var err error
	switch h.Type {
	case simwire.Arena:
		return k.arena(c, h, out)
	case simwire.ObjectExport:
		out.file, err = k.exportObject(c, silicon.ObjectID(h.Object))
		return err
	case simwire.ObjectDrop:
		gone, err := k.machine.DropObject(c.id, silicon.ObjectID(h.Object))
		if gone {
			k.dropObject(silicon.ObjectID(h.Object))
		}
		return err
	case simwire.ObjectCreate:
		info, err = k.createObject(c, h)
	case simwire.ObjectImport:
		info, err = k.importObject(c, r.file)
	}
	if err != nil {
		return err
	}
	if file, ok := k.objects[info.ID]; ok {
		if out.file, err = duplicate(file); err != nil {
			if gone, dropErr := k.machine.DropObject(c.id, info.ID); gone && dropErr == nil {
				k.dropObject(info.ID)
			}
			return err
		}
	}
	out.header.Object, out.header.Card, out.header.Bytes = uint64(info.ID), uint32(info.Card), info.Bytes
	out.header.Kind, out.header.Token = uint32(info.Kind), info.Token
	return nil
}

func (k *kernel) arena(c *client, h simwire.Header, out *answer) error {
	card := index(h.Card)
	if card < 0 || card >= len(c.arenas) {
		return fmt.Errorf("arena of GPU %d: %w", card, silicon.ErrNotFound)
	}
	if h.Bytes == 0 || h.Bytes > maxArenaBytes {
		return fmt.Errorf("arena of %d bytes: %w", h.Bytes, silicon.ErrInvalid)
	}
	if c.arenas[card] == nil {
		pages := (h.Bytes + simwire.PageBytes - 1) / simwire.PageBytes
		file, err := k.contents.create("divvy-arena", pages*simwire.PageBytes)
		if err != nil {
			return err
		}
		c.arenas[card] = file
	}
	info, err := c.arenas[card].Stat()
	if err != nil {
		return fmt.Errorf("arena of GPU %d: %w", card, err)
	}
	out.header.Bytes = uint64(info.Size())
	out.file, err = duplicate(c.arenas[card])
	return err
}

func (k *kernel) createObject(c *client, h simwire.Header) (silicon.ObjectInfo, error) {
	if err := k.press(c, index(h.Card), 0); err != nil {
		return silicon.ObjectInfo{}, err
	}
	k.place(c)
	info, err := k.machine.CreateObject(c.id, index(h.Card), silicon.ObjectKind(h.Kind), h.Bytes, h.Token, nowNS())
	if err != nil || info.Bytes == 0 {
		return info, err
	}
	file, err := k.contents.create("divvy-object", info.Bytes)
	if err != nil {
		_, dropErr := k.machine.DropObject(c.id, info.ID)
		return info, errors.Join(err, dropErr)
	}
	k.objects[info.ID] = file
	return info, nil
}

func (k *kernel) importObject(c *client, file *os.File) (silicon.ObjectInfo, error) {
	if file == nil {
		return silicon.ObjectInfo{}, fmt.Errorf("import without a descriptor: %w", silicon.ErrInvalid)
	}
	inode, err := inodeOf(file)
	if err != nil {
		return silicon.ObjectInfo{}, err
	}
	e, ok := k.exports[inode]
	if !ok {
		return silicon.ObjectInfo{}, fmt.Errorf("import: the descriptor names no object: %w", silicon.ErrNotFound)
	}
	return k.machine.ImportObject(c.id, e.object, nowNS())
}

// interprocess is cuIpc*: names for places in a process's arena.
func (k *kernel) interprocess(c *client, r request, out *answer) error {
	h := r.header
	card, kind := index(h.Card), silicon.HandleKind(h.Kind)
	switch h.Type {
	case simwire.IPCExport:
		var fresh silicon.Handle
		_, _ = rand.Read(fresh[:]) // never fails, says its package
		info := silicon.HandleInfo{Card: card, Kind: kind, Offset: h.Offset, Bytes: h.Bytes, Token: h.Token}
		if kind != silicon.HandleEvent && card >= 0 && card < len(c.arenas) && c.arenas[card] == nil {
			return fmt.Errorf("export from GPU %d, where the process has no arena: %w", card, silicon.ErrInvalid)
		}
		handle, err := k.machine.ExportHandle(c.id, info, fresh, nowNS())
		if err != nil {
			return err
		}
		out.payload = make([]byte, simwire.HandleBytes)
		copy(out.payload[copy(out.payload, handlePrefix):], handle[:])
		return nil
	case simwire.IPCRevoke:
		if kind == silicon.HandleEvent {
			delete(k.moments, momentOf{c.id, card, h.Offset})
		}
		return k.machine.RevokeHandle(c.id, card, kind, h.Offset)
	}
	handle, err := parseHandle(r.payload)
	if err != nil {
		return err
	}
	info, err := k.machine.OpenHandle(c.id, handle)
	if err != nil {
		return err
	}
	if info.Kind != silicon.HandleEvent {
		arena := k.clients[info.Process].arenas[info.Card]
		if arena == nil { // the MIG device is no more
			return fmt.Errorf("open a handle: %w", silicon.ErrNotFound)
		}
		if out.file, err = duplicate(arena); err != nil {
			return err
		}
	}
	out.header.Card, out.header.Kind, out.header.Offset = uint32(info.Card), uint32(info.Kind), info.Offset
	out.header.Bytes, out.header.Token, out.header.Process = info.Bytes, info.Token, uint64(info.Process)
	return nil
}

func parseHandle(payload []byte) (silicon.Handle, error) {
	var handle silicon.Handle
	rest, ok := bytes.CutPrefix(payload, []byte(handlePrefix))
	if !ok || len(payload) != simwire.HandleBytes || len(bytes.Trim(rest[len(handle):], "\x00")) != 0 {
		return handle, fmt.Errorf("open what is no handle: %w", silicon.ErrNotFound)
	}
	copy(handle[:], rest)
	return handle, nil
}

// index turns a card number from outside into one that can be compared.
func index(card uint32) int {
	if card == simwire.AllCards {
		return -1
	}
	return int(card)
}
