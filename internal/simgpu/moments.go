// SPDX-License-Identifier: Apache-2.0

package simgpu

import (
	"fmt"
	"maps"

	"github.com/divvy-gpu/divvy/internal/simgpu/silicon"
	"github.com/divvy-gpu/divvy/internal/simgpu/simwire"
	"github.com/divvy-gpu/divvy/internal/simgpu/timeline"
)

// momentOf names an exported event as its process exported it.
type momentOf struct {
	exporter silicon.ProcessID
	card     int
	event    uint64
}

// moment is what an exported event was recorded behind: an item of whoever
// recorded it last. An event without one has ended.
type moment struct {
	process silicon.ProcessID
	item    uint64
}

// sharedEvent is about an event that several processes hold.
func (k *kernel) sharedEvent(c *client, r request, out *answer) error {
	handle, err := parseHandle(r.payload)
	if err != nil {
		return err
	}
	info, err := k.machine.FindHandle(handle)
	if err != nil {
		return err
	}
	if info.Kind != silicon.HandleEvent {
		return fmt.Errorf("a handle of kind %d is no event: %w", info.Kind, silicon.ErrInvalid)
	}
	key := momentOf{info.Process, info.Card, info.Offset}
	now := k.settle()
	own := k.clock.rings[c.id]
	if r.header.Type != simwire.EventLook && r.header.Object != 0 && (own == nil || own.broken || r.header.Object > own.taken) {
		return fmt.Errorf("item %d of process %d: %w", r.header.Object, c.id, silicon.ErrInvalid)
	}
	switch r.header.Type {
	case simwire.EventRecord:
		if r.header.Object == 0 {
			delete(k.moments, key)
		} else {
			k.moments[key] = moment{c.id, r.header.Object}
		}
		return nil
	case simwire.EventGate:
		return k.linkGate(c, r.header.Object, k.moments[key], now)
	}
	out.header.Kind, out.header.Offset = simwire.Ends, uint64(now)
	if m, ok := k.moments[key]; ok {
		look := k.clock.line.Outlook(timeline.ProcessID(m.process), m.item, false)
		out.header.Kind, out.header.Offset = foresee(look, now)
	}
	return nil
}

// linkGate lets a gate end with a moment.
func (k *kernel) linkGate(c *client, gate uint64, m moment, now int64) error {
	// A moment of nobody has ended.
	if err := k.clock.line.Link(timeline.ProcessID(c.id), gate, timeline.ProcessID(m.process), m.item); err != nil {
		return fmt.Errorf("%w: %w", err, silicon.ErrInvalid)
	}
	k.clock.line.Advance(now)
	k.publish()
	return nil
}

// forgetMoments lets go of what a process exported, and of what it recorded for
// others, which has ended with it.
func (k *kernel) forgetMoments(id silicon.ProcessID) {
	before := len(k.moments)
	maps.DeleteFunc(k.moments, func(key momentOf, m moment) bool { return key.exporter == id || m.process == id })
	if len(k.moments) != before {
		k.notice.changed() // who sleeps until such a moment asks again
	}
}
