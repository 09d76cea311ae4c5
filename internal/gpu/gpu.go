// SPDX-License-Identifier: Apache-2.0

// Package gpu is the door to hardware: what the agent needs to know about
// cards, behind one small interface. Each source of that knowledge has a
// package of its own below this one; none of them decides anything.
package gpu

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Errors of a source; callers use errors.Is.
var (
	// ErrNotSupported: the driver or card does not have the feature.
	ErrNotSupported = errors.New("not supported by the driver")
	// ErrNoDriver: there is no driver, or it does not come up.
	ErrNoDriver = errors.New("no driver")
	// ErrNoCard: the driver does not know the card (any more).
	ErrNoCard = errors.New("no such GPU")
)

// Card is one card as its driver describes it.
type Card struct {
	UUID          string // GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx
	Name          string
	PCIAddress    string // 0000:01:00.0
	DriverVersion string
	MemoryBytes   uint64 // that programs can use
	MemoryShared  bool   // it is the host's, and the driver does not tell of it
	Simulated     bool
	Architecture  string // Hopper; empty: the driver does not say
	NUMANode      *int   // of the host's memory that it is nearest to; nil: the driver does not say
	PCIeRoot      string // pci0000:c0, below which it is; empty: unknown. Of simulated cards it is made up
	MIG           MIGMode
}

// MIGMode says whether a card can be, and is, divided by MIG.
type MIGMode string

// Modes of MIG.
const (
	WithoutMIG MIGMode = ""
	MIGOff     MIGMode = "off"
	MIGOn      MIGMode = "on"
)

// Process is one process on a card.
type Process struct {
	PID   int
	Bytes uint64
	Known bool // false: the driver shows the process, but not its memory
}

// Account is what the driver says is in use on a card.
type Account struct {
	UsedBytes uint64
	Processes []Process
}

// Source knows cards. Its methods may block for as long as the driver does.
type Source interface {
	// Cards lists the cards; the list does not change while the source is open.
	Cards() ([]Card, error)
	// Account says who uses what on the card with this UUID.
	Account(uuid string) (Account, error)
	// Processes is the part of Account that is asked often: who uses the card.
	Processes(uuid string) ([]Process, error)
	// Health says how well a card is.
	Health(uuid string) (Health, error)
	// Telemetry reads the instruments of the card.
	Telemetry(uuid string) (Telemetry, error)
	// Activity says whose kernels the card ran since a moment, or lately. ErrNotSupported: the
	// driver does not tell.
	Activity(uuid string, since time.Time) (Activity, error)
	// Faults waits for at most so long for something to happen to a card.
	// ErrNotSupported: the driver does not tell.
	Faults(patience time.Duration) ([]Fault, error)
	Close() error
}

// ParseUUID returns the bytes of GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx, as
// CUDA has them.
func ParseUUID(text string) ([16]byte, error) {
	var uuid [16]byte
	digits := strings.ReplaceAll(strings.TrimPrefix(text, "GPU-"), "-", "")
	raw, err := hex.DecodeString(digits)
	if err != nil || len(raw) != len(uuid) {
		return uuid, fmt.Errorf("%q is not the UUID of a GPU", text)
	}
	copy(uuid[:], raw)
	return uuid, nil
}
