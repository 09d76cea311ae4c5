// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/divvy-gpu/divvy/internal/core"
	"github.com/divvy-gpu/divvy/internal/wire"
)

// handle answers one message of an attached process.
func (c *connection) handle(ctx context.Context, m wire.Message, descriptor int) error {
	if m.Version != wire.Version {
		return fmt.Errorf("%w: version %d", errProtocol, m.Version)
	}
	if m.Slot >= uint32(len(c.cards)) {
		return fmt.Errorf("%w: slot %d", errProtocol, m.Slot)
	}
	switch m.Type {
	case wire.Charge:
		return c.charge(ctx, m)
	case wire.Sync:
		return c.sync(ctx, m)
	case wire.Measure:
		return c.measure(ctx, m)
	case wire.Processes:
		return c.processes(ctx, m)
	case wire.Name:
		return c.name(ctx, m, descriptor)
	case wire.Import:
		return c.take(ctx, m, descriptor)
	case wire.Release:
		return c.release(ctx, m)
	case wire.Event:
		return c.report(ctx, m)
	case wire.LeaseWant:
		return c.wantLease(ctx, int(m.Slot))
	case wire.LeaseBack:
		return c.leaseBack(ctx, int(m.Slot))
	}
	return fmt.Errorf("%w: message of type %d", errProtocol, m.Type)
}

func (c *connection) charge(ctx context.Context, m wire.Message) error {
	var a core.Answer
	later := make(chan core.Answer, 1)
	err := c.do(ctx, func(l *loop) {
		mine := l.members[c.id]
		if mine == nil || mine.conn != c {
			a = core.Answer{Client: c.id, Slot: int(m.Slot), Reason: core.NoClient}
			return
		}
		a = l.core.Charge(l.now, c.id, core.Charge{Slot: int(m.Slot), Bytes: m.Amount, Call: m.Line(), Final: m.Kind == wire.ChargeFinal})
		switch {
		case a.Waiting:
			mine.waiter = later
		default:
			l.answered(mine, a)
		}
	})
	if err != nil {
		return err
	}
	if a.Waiting {
		var ok bool
		select {
		case a, ok = <-later:
			if !ok {
				return errProtocol // the process has ended, or has another connection
			}
		case <-ctx.Done():
			return errStopped
		}
	}
	if a.Granted {
		return c.reply(m.Answer(wire.Charged, wire.StatusOK))
	}
	if m.Kind == wire.ChargeFinal {
		c.noteDenied(int(m.Slot), m.Amount, m.Line(), a.Reason)
	}
	answer := m.Answer(wire.Denied, wire.StatusNoRoom)
	if a.Reason == core.Revoked {
		answer.Status = wire.StatusGone
	}
	return c.reply(answer)
}

func (c *connection) sync(ctx context.Context, m wire.Message) error {
	answer := m.Answer(wire.Synced, wire.StatusOK)
	err := c.do(ctx, func(l *loop) {
		_, used, ok := l.core.Sync(l.now, c.id, int(m.Slot))
		if s := l.sockets[c.share]; ok && s != nil {
			s.limits.Used(int(m.Slot), used, wire.MonotonicNs())
		}
	})
	if err != nil {
		return err
	}
	return c.reply(answer)
}

// measurePatience is shorter than the process's own.
const measurePatience = time.Second

// measure asks the driver what the process holds.
func (c *connection) measure(ctx context.Context, m wire.Message) error {
	answer := m.Answer(wire.Measured, wire.StatusUnknown)
	account, err := c.driver.account(ctx, c.cards[m.Slot], measurePatience)
	if err != nil {
		return c.reply(answer)
	}
	if err := c.do(ctx, func(l *loop) {
		if bytes, known := l.core.Measured(l.now, c.id, int(m.Slot), account); known {
			answer.Status, answer.Amount = wire.StatusOK, bytes
		}
	}); err != nil {
		return err
	}
	return c.reply(answer)
}

// processes lists who uses memory of the share on a GPU, from the index asked for.
func (c *connection) processes(ctx context.Context, m wire.Message) error {
	answer := m.Answer(wire.Processed, wire.StatusOK)
	if err := c.do(ctx, func(l *loop) {
		uses, err := l.core.SlotUses(l.now, c.id, int(m.Slot))
		if err != nil {
			answer.Status = wire.StatusUnknown
			return
		}
		answer.Amount = uint64(len(uses))
		if m.Amount >= uint64(len(uses)) {
			return
		}
		var pids []uint32
		for i, u := range uses[m.Amount:min(uint64(len(uses)), m.Amount+wire.ProcessesPerMessage)] {
			pids = append(pids, l.numberFor(c.id, u))
			answer.Bytes[i] = u.Balances[m.Slot].UsedBytes
		}
		answer.SetProcesses(pids)
	}); err != nil {
		return err
	}
	return c.reply(answer)
}

// numberFor is the number under which a process sees another one, where both
// live in one pid namespace.
func (l *loop) numberFor(id core.ClientID, u core.ClientView) uint32 {
	me, other := l.members[id], l.members[u.ID]
	if me != nil && other != nil && me.namespace != "" && me.namespace == other.namespace && other.insidePID > 0 {
		return uint32(other.insidePID)
	}
	return uint32(u.PID)
}

var reports = map[uint32]core.Report{
	wire.EventUnclassified: core.ReportUnclassified,
	wire.EventSelfOpen:     core.ReportSelfOpen,
	wire.EventNoDriver:     core.ReportNoDriver,
	wire.EventHidden:       core.ReportHidden,
	wire.EventForeign:      core.ReportForeign,
	wire.EventDriverOOM:    core.ReportDriverOOM,
}

// report takes an event; it is not answered, but the next message is read only
// after it.
func (c *connection) report(ctx context.Context, m wire.Message) error {
	kind, ok := reports[m.Kind]
	if !ok {
		return nil // of a newer library
	}
	return c.do(ctx, func(l *loop) { l.core.Report(l.now, c.id, int(m.Slot), kind, m.Amount, m.Line()) })
}

// Where the stand-in driver finds its simulator: DefaultSimulator, unless the
// variable names another socket.
const (
	simulatorVariable = "DIVVY_SIMULATOR"
	DefaultSimulator  = "/run/divvy/simulator.sock"
)

func simulatorSocket() string {
	if path := os.Getenv(simulatorVariable); path != "" {
		return path
	}
	return DefaultSimulator
}
