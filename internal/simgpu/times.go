// SPDX-License-Identifier: Apache-2.0

package simgpu

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/divvy-gpu/divvy/internal/simgpu/silicon"
	"github.com/divvy-gpu/divvy/internal/simgpu/simwire"
)

// times gives a page of who had how much of the cards' time.
func (k *kernel) times(h simwire.Header, out *answer) error {
	card := index(h.Card)
	if card >= k.machine.Slots() {
		return fmt.Errorf("GPU %d: %w", card, silicon.ErrNotFound)
	}
	now := k.settle()
	out.header.Offset = uint64(now)
	if card >= 0 {
		busy, _ := k.cardTime(card)
		out.header.Bytes = uint64(busy)
	}
	const room = simwire.PayloadBytes / simwire.TimeSize
	var list []simwire.TimeInfo
	if h.Kind == 0 {
		list, out.header.Cursor = k.liveTimes(card, h.Cursor, room)
	} else {
		list, out.header.Cursor = k.clock.deadTimes(card, h.Cursor, room)
	}
	out.header.Count = uint32(len(list))
	var err error
	out.payload, err = simwire.EncodeEntries(list)
	return err
}

// liveTimes lists processes in the order of their numbers; the cursor is the
// last one that is listed whole.
func (k *kernel) liveTimes(card int, cursor uint64, room int) ([]simwire.TimeInfo, uint64) {
	var list []simwire.TimeInfo
	for _, id := range slices.Sorted(maps.Keys(k.clock.rings)) {
		if uint64(id) <= cursor {
			continue
		}
		more := k.clock.usage(id, k.clients[id].pid, card)
		if len(list)+len(more) > room {
			return list, cursor
		}
		list = append(list, more...)
		cursor = uint64(id)
	}
	return list, 0
}

// deadTimes lists what is remembered of dead processes, oldest first.
func (c *clock) deadTimes(card int, cursor uint64, room int) ([]simwire.TimeInfo, uint64) {
	var list []simwire.TimeInfo
	for i, info := range c.dead {
		number := c.first + uint64(i) + 1
		if number <= cursor || (card >= 0 && info.Card != uint32(card)) {
			continue
		}
		if len(list) == room {
			return list, cursor
		}
		list = append(list, info)
		cursor = number
	}
	return list, 0
}

// runs gives a page of who had a card when.
func (k *kernel) runs(h simwire.Header, out *answer) error {
	card := index(h.Card)
	if card < 0 || card >= k.machine.Slots() {
		return fmt.Errorf("GPU %d: %w", card, silicon.ErrNotFound)
	}
	until := k.settle()
	all, since := k.clock.line.Runs(card, int64(min(h.Cursor, uint64(until))))
	if room := simwire.PayloadBytes / simwire.RunSize; len(all) > room {
		all = all[:room]
		until = all[room-1].ToNS
	}
	list := make([]simwire.RunInfo, len(all))
	for i, r := range all {
		list[i] = simwire.RunInfo{Process: uint64(r.Process), FromNS: uint64(r.FromNS), ToNS: uint64(r.ToNS)}
	}
	out.header.Offset, out.header.Bytes, out.header.Count = uint64(until), uint64(since), uint32(len(list))
	var err error
	out.payload, err = simwire.EncodeEntries(list)
	return err
}

// TimeState is what a process has had of a card's time.
type TimeState struct {
	Process silicon.ProcessID
	PID     int
	Card    int
	Dead    bool
	BusyNS  int64  // its kernels ran so long
	Kernels uint64 // that have ended, or will within the slice that runs
	Queued  int    // kernels that have not
	Percent int    // of the card in the last half second
	AtNS    int64  // CLOCK_MONOTONIC; until when this is true
	// Instructions are what all threads of the ended kernels did; such as only take time do none.
	Instructions uint64
}

// CardTime lists what each process that ever launched something has had of each
// card, the dead since the last Reset included.
func (t *Truth) CardTime(ctx context.Context) ([]TimeState, error) {
	var states []TimeState
	for kind := range uint32(2) {
		for cursor := uint64(0); ; {
			h, payload, err := t.ask(ctx, simwire.Header{Type: simwire.Times, Card: simwire.AllCards, Kind: kind, Cursor: cursor})
			if err != nil {
				return nil, err
			}
			infos, err := simwire.DecodeEntries[simwire.TimeInfo](payload, h.Count)
			if err != nil {
				return nil, fmt.Errorf("ask the simulator: times: %w", err)
			}
			for _, i := range infos {
				states = append(states, TimeState{Process: silicon.ProcessID(i.Process), PID: int(i.PID), Card: int(i.Card),
					Dead: i.Flags&simwire.ProcessDead != 0, BusyNS: int64(i.BusyNS), Kernels: i.Kernels, Queued: int(i.Queued),
					Percent: int(i.Percent), AtNS: int64(h.Offset), Instructions: i.Instructions})
			}
			if h.Cursor <= cursor {
				break
			}
			cursor = h.Cursor
		}
	}
	return states, nil
}

// CardBusy returns for how long a card has been busy, whoever had it, and the
// moment on CLOCK_MONOTONIC until which that is true.
func (t *Truth) CardBusy(ctx context.Context, card int) (busyNS, atNS int64, err error) {
	h, _, err := t.ask(ctx, simwire.Header{Type: simwire.Times, Card: uint32(card)})
	return int64(h.Bytes), int64(h.Offset), err
}

// Run is a time for which a process had a card without a break, on
// CLOCK_MONOTONIC.
type Run struct {
	Process      silicon.ProcessID
	FromNS, ToNS int64
}

// ErrForgotten says that the simulator does not know any more, or not yet, what
// was asked for.
var ErrForgotten = errors.New("the simulator does not remember that time")

// Runs lists who had a card when, from a moment until now, which it returns: ask
// from there the next time. The simulator remembers from the first question on,
// and then tens of thousands of runs; ErrForgotten says that it is less than was
// asked for, with those it has.
func (t *Truth) Runs(ctx context.Context, card int, fromNS int64) (list []Run, untilNS int64, err error) {
	known := true
	for {
		h, payload, err := t.ask(ctx, simwire.Header{Type: simwire.Runs, Card: uint32(card), Cursor: uint64(fromNS)})
		if err != nil {
			return nil, 0, err
		}
		infos, err := simwire.DecodeEntries[simwire.RunInfo](payload, h.Count)
		if err != nil {
			return nil, 0, fmt.Errorf("ask the simulator: runs: %w", err)
		}
		for _, i := range infos {
			list = append(list, Run{silicon.ProcessID(i.Process), int64(i.FromNS), int64(i.ToNS)})
		}
		known = known && int64(h.Bytes) <= fromNS
		fromNS = int64(h.Offset)
		switch {
		case len(infos) == simwire.PayloadBytes/simwire.RunSize:
		case !known:
			return list, max(fromNS, int64(h.Bytes)), ErrForgotten
		default:
			return list, fromNS, nil
		}
	}
}
