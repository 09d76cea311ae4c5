// SPDX-License-Identifier: Apache-2.0

package condition

import "slices"

// Party is a process that a fault is about; zero: none in particular.
type Party struct {
	Process uint64 // the machine's number
	PID     int
}

// Record is a fault that was injected.
type Record struct {
	Number uint64
	TimeNS int64
	Card   int
	Kind   Kind
	XID    uint32 // the first one that it raised; 0: none
	Party
	Hit    int    // processes whose contexts it ended
	Error  uint32 // the CUresult that it left there
	Active bool   // until it is cleared
	// Reported: it was not injected, the process's own kernel did it.
	Reported bool
}

// IncidentType is what NVML calls the type of an event, by its number.
type IncidentType uint32

// Types of incidents.
const (
	IncidentSingleBit IncidentType = 1
	IncidentDoubleBit IncidentType = 2
	IncidentPState    IncidentType = 4
	IncidentXID       IncidentType = 8
	IncidentClock     IncidentType = 16
)

// Incident is something that the driver tells who waits for it.
type Incident struct {
	Number uint64
	TimeNS int64
	Card   int
	PID    int
	Type   IncidentType
	Data   uint64 // the XID
}

func (c *Cards) happened(now int64, card, pid int, kind IncidentType, data uint64) {
	c.last++
	c.incidents = bounded(append(c.incidents, Incident{Number: c.last, TimeNS: now, Card: card, PID: pid, Type: kind, Data: data}), c.room)
}

// bounded keeps the last entries of a list; it moves them only now and then.
func bounded[T any](list []T, room int) []T {
	if len(list) < 2*room+1 {
		return list
	}
	return slices.Clone(list[len(list)-room:])
}

// LastIncident is the number of the last incident.
func (c *Cards) LastIncident() uint64 { return c.last }

// Incidents returns at most room incidents with numbers above cursor, and the
// number of the last one.
func (c *Cards) Incidents(cursor uint64, room int) ([]Incident, uint64) {
	at, _ := slices.BinarySearchFunc(c.incidents, cursor, func(i Incident, n uint64) int {
		if i.Number <= n {
			return -1
		}
		return 1
	})
	found := c.incidents[at:min(at+room, len(c.incidents))]
	if len(found) == 0 {
		return nil, cursor
	}
	return found, found[len(found)-1].Number
}

// Faults is the like for faults.
func (c *Cards) Faults(cursor uint64, room int) ([]Record, uint64) {
	at, _ := slices.BinarySearchFunc(c.faults, cursor, func(f Record, n uint64) int {
		if f.Number <= n {
			return -1
		}
		return 1
	})
	found := c.faults[at:min(at+room, len(c.faults))]
	if len(found) == 0 {
		return nil, cursor
	}
	return found, found[len(found)-1].Number
}
