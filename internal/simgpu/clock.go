// SPDX-License-Identifier: Apache-2.0

package simgpu

import (
	"fmt"
	"os"
	"time"

	"github.com/divvy-gpu/divvy/internal/simgpu/silicon"
	"github.com/divvy-gpu/divvy/internal/simgpu/simwire"
	"github.com/divvy-gpu/divvy/internal/simgpu/timeline"
)

const (
	askAgainNS   = 20_000  // at the earliest
	askForGateNS = 200_000 // what hangs on a host function
	maxKernelNS  = 3600_000_000_000
)

// clock is modelled time and the rings that feed it. The kernel owns it.
type clock struct {
	line  *timeline.Timeline
	cards int
	rings map[silicon.ProcessID]*ring
	dead  []simwire.TimeInfo // oldest first
	first uint64             // how many before those of dead are forgotten
	room  int
}

func newClock(config Config, cards int) *clock {
	return &clock{
		line: timeline.New(timeline.Config{
			Cards: cards, SliceNS: config.Slice.Nanoseconds(), SwitchNS: config.Switch.Nanoseconds(), Queued: simwire.RingEntries,
		}),
		cards: cards,
		rings: map[silicon.ProcessID]*ring{},
		room:  config.Limits.History,
	}
}

// settle reads all rings and takes time to now; it returns now.
func (k *kernel) settle() int64 {
	now := nowNS()
	k.config.Urgency.Keep(time.Now())
	for id, r := range k.clock.rings {
		if err := k.clock.drain(id, r, now); err != nil {
			r.broken = true
			if k.clock.line.End(timeline.ProcessID(id), now) {
				k.notice.changed()
			}
			event := silicon.Event{Kind: silicon.EventGarbage, Process: id, Card: -1, Text: "ring: " + err.Error()}
			if c, ok := k.clients[id]; ok {
				event.PID = c.pid
			}
			k.machine.Note(now, event)
			k.log.Warn("nonsense in a ring", "pid", event.PID, "error", err)
		}
	}
	k.clock.line.Advance(now)
	k.publish()
	return now
}

// publish tells processes the ends that have been decided.
func (k *kernel) publish() {
	for id, r := range k.clock.rings {
		for _, d := range k.clock.line.Decided(timeline.ProcessID(id)) {
			r.setSlot(d.Seq, uint64(d.EndNS))
		}
		floor, latest := k.clock.line.Floor(timeline.ProcessID(id))
		r.setFloor(floor, uint64(latest))
	}
}

// drain hands what a process has put into its ring to the timeline.
func (c *clock) drain(id silicon.ProcessID, r *ring, now int64) error {
	if r.broken {
		return nil
	}
	head := r.head()
	floor, _ := c.line.Floor(timeline.ProcessID(id))
	if head < r.taken || head-floor > simwire.RingEntries {
		return fmt.Errorf("%d items, %d of them known and %d ended: %w", head, r.taken, floor, simwire.ErrProtocol)
	}
	for r.taken < head {
		w := r.item(r.taken + 1)
		item := timeline.Item{Card: index(w.Card), StampNS: int64(min(w.StampNS, uint64(now))), After: w.After}
		switch w.Kind {
		case simwire.ItemKernel:
			item.Kind, item.DurationNS, item.Instructions = timeline.Kernel, int64(max(1, min(w.DurationNS, maxKernelNS))), w.Instructions
		case simwire.ItemMarker:
			item.Kind = timeline.Marker
		case simwire.ItemGate:
			item.Kind = timeline.Gate
		}
		if _, err := c.line.Submit(timeline.ProcessID(id), item); err != nil {
			return err
		}
		r.taken++
	}
	return nil
}

// launches is what a process asks about its work.
func (k *kernel) launches(c *client, h simwire.Header, out *answer) error {
	r := k.clock.rings[c.id]
	if h.Type == simwire.Ring {
		return k.ring(c, r, out)
	}
	if r == nil {
		return fmt.Errorf("process %d has no ring: %w", c.id, silicon.ErrInvalid)
	}
	now := k.settle()
	if r.broken || h.Object == 0 || h.Object > r.taken {
		return fmt.Errorf("item %d of %d: %w", h.Object, r.taken, silicon.ErrInvalid)
	}
	id := timeline.ProcessID(c.id)
	if h.Type == simwire.GateDone {
		if err := k.clock.line.Signal(id, h.Object, int64(min(h.Offset, uint64(now)))); err != nil {
			return fmt.Errorf("%w: %w", err, silicon.ErrInvalid)
		}
		return nil
	}
	look := k.clock.line.Outlook(id, h.Object, h.Kind == simwire.WaitAll)
	out.header.Kind, out.header.Offset = foresee(look, now)
	return nil
}

// foresee words an outlook as the answer to somebody who waits.
func foresee(look timeline.Outlook, now int64) (kind uint32, atNS uint64) {
	switch {
	case look.Decided:
		return simwire.Ends, uint64(look.AtNS)
	case look.Gated:
		return simwire.NotBefore, uint64(max(look.AtNS, now+askForGateNS))
	}
	return simwire.NotBefore, uint64(max(look.AtNS, now+askAgainNS))
}

// ring gives a process its ring.
func (k *kernel) ring(c *client, r *ring, out *answer) error {
	if r == nil {
		file, err := k.contents.create("divvy-ring", simwire.RingBytes)
		if err != nil {
			return err
		}
		if r, err = mapRing(file); err != nil {
			k.contents.drop(file)
			return err
		}
		k.clock.rings[c.id] = r
	}
	var err error
	out.file, err = duplicate(r.file)
	out.header.Count = simwire.RingEntries
	return err
}

// end drops a process's work. It returns the ring's file, to be closed, and
// whether others waited for that work.
func (c *clock) end(id silicon.ProcessID, pid int, now int64) (file *os.File, awaited bool) {
	r, ok := c.rings[id]
	if !ok {
		return nil, false
	}
	for _, info := range c.usage(id, pid, -1) {
		info.Flags, info.Queued, info.Percent = simwire.ProcessDead, 0, 0
		c.dead = append(c.dead, info)
	}
	if over := len(c.dead) - c.room; over > 0 {
		c.dead = append([]simwire.TimeInfo(nil), c.dead[over:]...)
		c.first += uint64(over)
	}
	awaited = c.line.End(timeline.ProcessID(id), now)
	delete(c.rings, id)
	r.unmap()
	return r.file, awaited
}

// forget lets go of the dead.
func (c *clock) forget() {
	c.first += uint64(len(c.dead))
	c.dead = nil
}

func (c *clock) close() {
	for _, r := range c.rings {
		r.unmap()
	}
	clear(c.rings)
}

// usage lists what a process had of each card (-1: all).
func (c *clock) usage(id silicon.ProcessID, pid, card int) []simwire.TimeInfo {
	var list []simwire.TimeInfo
	for i := range c.cards {
		if card >= 0 && i != card {
			continue
		}
		if u, ok := c.line.Usage(timeline.ProcessID(id), i); ok {
			list = append(list, simwire.TimeInfo{Process: uint64(id), PID: uint32(pid), Card: uint32(i), Percent: uint32(u.Percent),
				BusyNS: uint64(u.BusyNS), Kernels: u.Kernels, Queued: uint64(u.Queued), Instructions: u.Instructions})
		}
	}
	return list
}
