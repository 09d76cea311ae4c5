// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"fmt"
	"maps"
	"slices"
)

// Snapshot is the health of a reader's cards at one moment, by address. A nil
// Snapshot is "never looked".
type Snapshot map[string]Condition

// Kinds of Event.
const (
	EventAppeared    = "card-appeared"
	EventVanished    = "card-vanished"
	EventUncorrected = "card-uncorrected-errors"
	EventCorrected   = "card-corrected-errors"
	EventThrottled   = "card-throttled"
	EventUnthrottled = "card-throttle-ended"
	EventTrouble     = "card-trouble"
	EventTroubleOver = "card-trouble-over"
)

// Event is one change of a card's health.
type Event struct {
	Kind    string `json:"kind"`
	Address string `json:"address"`
	Message string `json:"message"`
}

// Look reads the state of a reader's cards.
func Look(r Reader) Snapshot {
	now := Snapshot{}
	for _, d := range r.Inventory() {
		if h, err := r.Health(d.Address); err == nil {
			now[d.Address] = h
		}
	}
	return now
}

// Changes tells what happened between two states, in the order of addresses.
// A counter that fell was reset, and tells nothing.
func Changes(before, now Snapshot) []Event {
	if before == nil {
		return nil
	}
	addresses := map[string]bool{}
	for a := range before {
		addresses[a] = true
	}
	for a := range now {
		addresses[a] = true
	}
	var events []Event
	for _, address := range slices.Sorted(maps.Keys(addresses)) {
		old, had := before[address]
		h, has := now[address]
		tell := func(kind, format string, args ...any) {
			events = append(events, Event{Kind: kind, Address: address, Message: fmt.Sprintf(format, args...)})
		}
		switch {
		case !had:
			tell(EventAppeared, "GPU %s appeared", address)
			continue
		case !has:
			tell(EventVanished, "GPU %s is gone from the bus", address)
			continue
		}
		grew := func(kind, what string, old, now Fact[uint64]) {
			if old.Known && now.Known && now.Value > old.Value {
				tell(kind, "GPU %s: %d %s memory errors more, %d in all", address, now.Value-old.Value, what, now.Value)
			}
		}
		grew(EventUncorrected, "uncorrected", old.UncorrectedErrors, h.UncorrectedErrors)
		grew(EventCorrected, "corrected", old.CorrectedErrors, h.CorrectedErrors)
		if old.Throttled.Known && h.Throttled.Known && old.Throttled.Value != h.Throttled.Value {
			if h.Throttled.Value == "" {
				tell(EventUnthrottled, "GPU %s runs at its full clock again", address)
			} else {
				tell(EventThrottled, "GPU %s is slowed down: %s", address, h.Throttled.Value)
			}
		}
		for _, trouble := range h.Troubles {
			if !slices.Contains(old.Troubles, trouble) {
				tell(EventTrouble, "GPU %s: %s", address, trouble)
			}
		}
		for _, trouble := range old.Troubles {
			if !slices.Contains(h.Troubles, trouble) {
				tell(EventTroubleOver, "GPU %s: over: %s", address, trouble)
			}
		}
	}
	return events
}
