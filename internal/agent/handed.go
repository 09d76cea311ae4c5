// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"os"

	"github.com/divvy-gpu/divvy/internal/core"
	"github.com/divvy-gpu/divvy/internal/wire"
)

// letters of the names that are given in words, by the kind of message.
var letters = map[uint32]string{wire.NameIPC: "ipc", wire.NamePointer: "pointer", wire.NameFabric: "fabric"}

// nameIn is the name in a message; empty: it has none that anybody knows. pipe: the end of
// its descriptor can be seen.
func (c *connection) nameIn(m wire.Message, descriptor int) (name string, pipe bool, err error) {
	if letter := letters[m.Kind]; letter != "" {
		return fmt.Sprintf("%s %x", letter, m.Text[:wire.NameTextBytes]), false, nil
	}
	if m.Kind != wire.NameDescriptor || descriptor < 0 {
		return "", false, fmt.Errorf("%w: a name of kind %d", errProtocol, m.Kind)
	}
	if name, pipe, err = c.handles.nameOf(descriptor); err != nil {
		return "", false, fmt.Errorf("%w: %w", errProtocol, err)
	}
	return name, pipe, nil
}

// name enters memory that others may hold from now on.
func (c *connection) name(ctx context.Context, m wire.Message, descriptor int) error {
	name, pipe, err := c.nameIn(m, descriptor)
	if err != nil {
		return err
	}
	if name == "" {
		if name, err = c.handles.keep(descriptor); err != nil {
			return c.reply(m.Answer(wire.Named, wire.StatusBusy))
		}
	}
	answer := m.Answer(wire.Named, wire.StatusOK)
	err = c.do(ctx, func(l *loop) {
		answer.Token = l.core.Name(c.id, int(m.Slot), core.Named{
			Number: m.Token, Bytes: m.Amount, Name: name, Open: pipe, Pooled: m.Kind == wire.NamePointer,
		})
		if answer.Token != 0 && pipe {
			l.watch(name, descriptor)
		}
	})
	if err != nil {
		return err
	}
	if answer.Token == 0 {
		if !pipe {
			c.handles.forget(name)
		}
		answer.Status = wire.StatusBusy
	}
	return c.reply(answer)
}

// watch has the core told when nobody has a descriptor any more.
func (l *loop) watch(name string, descriptor int) {
	if l.core.IsWatched(name) {
		return
	}
	other, err := otherEnd(descriptor)
	if err != nil {
		l.cfg.Logger.Warn("descriptor", "error", err)
		return // it counts as long as its share has processes
	}
	l.core.Watched(name)
	l.follow(name, other, l.keepPipe(name, other))
}

// maxPipes is of how many descriptors the end is told over a restart of the agent. The others
// count from then on as long as their share has processes.
const maxPipes = 1024

// keepPipe stores the other end of a descriptor for the agent after this one.
func (l *loop) keepPipe(name string, other *os.File) bool {
	if l.store == nil || l.pipes >= maxPipes || l.store.Put(name, other) != nil {
		return false
	}
	l.pipes++
	return true
}

// follow has the core told when nobody has a descriptor any more. kept: it is in the store.
func (l *loop) follow(name string, other *os.File, kept bool) {
	l.begin(func(ctx context.Context, d *daemon) {
		if awaitClosed(ctx, other) != nil {
			return
		}
		_ = d.do(ctx, func(l *loop) {
			l.core.Closed(l.now, name)
			if kept {
				l.pipes--
				_ = l.store.Drop(name) // else it is dropped at the next start
			}
		})
	})
}

// recoverPipes goes on watching the descriptors that an earlier agent watched.
func (l *loop) recoverPipes(kept map[string]*os.File) {
	for name, other := range kept {
		if !isPipe(name) {
			continue
		}
		delete(kept, name)
		l.pipes++
		l.core.Watched(name) // or it is gone: its end is waited for all the same
		l.follow(name, other, true)
	}
}

// take has the process hold what has a name.
func (c *connection) take(ctx context.Context, m wire.Message, descriptor int) error {
	name, pipe, err := c.nameIn(m, descriptor)
	if err != nil {
		return err
	}
	answer := m.Answer(wire.Imported, wire.StatusOK)
	err = c.do(ctx, func(l *loop) {
		mine := l.members[c.id]
		if mine == nil || mine.conn != c {
			answer.Type, answer.Status = wire.Denied, wire.StatusGone
			return
		}
		held, a := l.core.Import(l.now, c.id, name, m.LineFrom(wire.NameTextBytes))
		l.answered(mine, a)
		switch {
		case !a.Granted:
			answer.Type, answer.Status = wire.Denied, wire.StatusNoRoom
		case held.Number == 0:
			answer.Status = wire.StatusUnknown
		default:
			answer.Token, answer.Amount, answer.Slot = held.Number, held.Bytes, uint32(a.Slot)
			if pipe {
				l.watch(name, descriptor)
			}
		}
	})
	if err != nil {
		return err
	}
	return c.reply(answer)
}

// release has the process hold it once less.
func (c *connection) release(ctx context.Context, m wire.Message) error {
	answer := m.Answer(wire.Released, wire.StatusOK)
	err := c.do(ctx, func(l *loop) {
		if mine := l.members[c.id]; mine == nil || mine.conn != c || !l.core.ReleaseNamed(l.now, c.id, m.Token) {
			answer.Status = wire.StatusUnknown
		}
	})
	if err != nil {
		return err
	}
	return c.reply(answer)
}
