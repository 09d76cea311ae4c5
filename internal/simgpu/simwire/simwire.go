// SPDX-License-Identifier: Apache-2.0

// Package simwire is the Go view of clib/include/divvy_sim.h: the packets that
// the stand-in driver library and the simulator exchange. A test compares its
// numbers and layouts with the header.
package simwire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// Sizes and marks of packets.
const (
	Magic       = 0x6d697344
	Version     = 1
	PacketBytes = 4096
	PageBytes   = 4096
	HandleBytes = 64
	AllCards    = 0xffffffff

	HeaderBytes   = 96
	CardBytes     = 432
	ProcessBytes  = 128
	EventBytes    = 128
	ReleaseBytes  = 40
	TimeBytes     = 48
	RunBytes      = 24
	HealthBytes   = 136
	IncidentBytes = 40
	FaultBytes    = 56
	UUIDBytes     = 16
	NoticeBytes   = 192
	ItemBytes     = 64
	SlotBytes     = 16

	// PayloadBytes is the most that follows a header.
	PayloadBytes = PacketBytes - HeaderBytes
)

// Type says what a request wants.
type Type uint16

// Requests; divvy_sim.h says what they mean.
const (
	Hello        Type = 1
	Card         Type = 2
	Memory       Type = 3
	Processes    Type = 4
	Bye          Type = 5
	Charge       Type = 8
	Release      Type = 9
	Adjust       Type = 10
	Pressure     Type = 11
	Arena        Type = 16
	ObjectCreate Type = 17
	ObjectExport Type = 18
	ObjectImport Type = 19
	ObjectDrop   Type = 20
	IPCExport    Type = 24
	IPCOpen      Type = 25
	IPCRevoke    Type = 26
	Reset        Type = 32
	Events       Type = 33
	Releases     Type = 34
	Ring         Type = 40
	Wait         Type = 41
	GateDone     Type = 42
	EventRecord  Type = 43
	EventLook    Type = 44
	EventGate    Type = 45
	Times        Type = 48
	Runs         Type = 49
	Notice       Type = 56
	Health       Type = 57
	Faulted      Type = 58
	Incidents    Type = 59
	FaultInject  Type = 60
	FaultClear   Type = 61
	FaultList    Type = 62
	FaultReport  Type = 63
	MigList      Type = 64
	MigChange    Type = 65
	MigUse       Type = 66
	Topology     Type = 67
	LimitSet     Type = 68
	LimitGet     Type = 69
	Cap          Type = 70
)

// Kinds of MigChange.
const (
	MigSetMode        uint32 = 0
	MigCreateGPU      uint32 = 1
	MigDestroyGPU     uint32 = 2
	MigCreateCompute  uint32 = 3
	MigDestroyCompute uint32 = 4
)

// MigAnywhere leaves the place of an instance to the card.
const MigAnywhere = ^uint64(0)

// NoLimit stands for a limit that there is not.
const NoLimit = ^uint64(0)

// LastIncident is the cursor that asks for the number of the last incident.
const LastIncident = ^uint64(0)

// Flags of a card's health.
const (
	HealthLost  uint32 = 1
	HealthReset uint32 = 2
)

// Flags of a fault: in force until it is cleared; not injected, but caused by the
// process's own kernel.
const (
	FaultActive   uint32 = 1
	FaultReported uint32 = 2
)

// EccCounters is the length of HealthInfo.Ecc.
const EccCounters = 4

// NoticeFlags is where the cards' flags stand in a notice.
const NoticeFlags = 64

// Status says how a request went.
type Status uint32

// Statuses of answers.
const (
	OK          Status = 0
	NoRoom      Status = 1
	Host        Status = 2
	Invalid     Status = 3
	NotFound    Status = 4
	Own         Status = 5
	Mismatch    Status = 6
	Limit       Status = 7
	Denied      Status = 8
	Unknown     Status = 9
	InUse       Status = 10
	Resources   Status = 11
	Unsupported Status = 12
)

func (s Status) String() string {
	names := [...]string{"ok", "no room", "host budget spent", "invalid", "not found", "own handle",
		"driver generations differ", "a bound was met", "denied in this role", "unknown request",
		"in use", "does not fit", "not supported"}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("status %d", uint32(s))
}

// Roles of a connection, in Header.Kind of Hello.
const (
	RoleObserve uint32 = 1
	RoleCompute uint32 = 2
	RoleControl uint32 = 3
)

// Flags of a process.
const (
	ProcessCompute  uint32 = 1
	ProcessAlive    uint32 = 2
	ProcessDetached uint32 = 4
	ProcessDead     uint32 = 8
)

// Flags of a card.
const (
	CardECC    uint32 = 1
	CardMIG    uint32 = 2
	CardDevice uint32 = 4
)

// What Wait asks for, and what it is answered, in Header.Kind.
const (
	WaitOne   uint32 = 0
	WaitAll   uint32 = 1
	NotBefore uint32 = 0
	Ends      uint32 = 1
)

// Kinds of items.
const (
	ItemKernel uint32 = 1
	ItemMarker uint32 = 2
	ItemGate   uint32 = 3
)

// Where things stand in a ring.
const (
	RingEntries = 1024
	RingBytes   = 86016
	RingHead    = 0
	RingFloor   = 64
	RingLatest  = 72
	RingItems   = 4096
	RingSlots   = RingItems + RingEntries*ItemBytes
)

// Kinds of holdings, the length of ProcessInfo.KindBytes.
const Kinds = 8

// Header starts every packet.
type Header struct {
	Magic        uint32
	Type         Type
	Version      uint16
	Sequence     uint32
	Status       Status
	Card         uint32
	Kind         uint32
	Count        uint32
	PayloadBytes uint32
	Bytes        uint64
	Offset       uint64
	Object       uint64
	Process      uint64
	Token        uint64
	Cursor       uint64
	Reserved     [2]uint64
}

// CardInfo is what a card is, and its state as of now.
type CardInfo struct {
	Name                       [96]byte
	Serial                     [32]byte
	UUID                       [16]byte
	TotalBytes                 uint64
	ReservedBytes              uint64
	UsableBytes                uint64
	BAR1Bytes                  uint64
	L2Bytes                    uint64
	Index                      uint32
	Minor                      uint32
	PCIDomain                  uint32
	PCIBus                     uint32
	PCIDevice                  uint32
	PCIID                      uint32
	PCISubsystem               uint32
	Major                      uint32
	MinorCC                    uint32
	Multiprocessors            uint32
	CoresPerMultiprocessor     uint32
	ThreadsPerMultiprocessor   uint32
	BlocksPerMultiprocessor    uint32
	RegistersPerMultiprocessor uint32
	SharedPerMultiprocessor    uint32
	SharedPerBlockOptin        uint32
	SMClockMHz                 uint32
	MemoryClockMHz             uint32
	BaseClockMHz               uint32
	BusWidthBits               uint32
	PCIeGeneration             uint32
	PCIeWidth                  uint32
	PowerLimitMW               uint32
	IdlePowerMW                uint32
	Temperature                uint32
	SlowdownTemperature        uint32
	ShutdownTemperature        uint32
	Brand                      uint32
	Architecture               uint32
	Flags                      uint32
	CopyEngines                uint32
	Parent                     uint32
	Reserved2                  [8]uint64
	UsedBytes                  uint64
	Processes                  uint32
	GPUPercent                 uint32
	MemoryPercent              uint32
	PowerMW                    uint32
	PeakUsedBytes              uint64
	Reserved3                  [3]uint64
}

// ProcessInfo is one process on one card.
type ProcessInfo struct {
	Process     uint64
	PID         uint32
	Card        uint32
	Flags       uint32
	Contexts    uint32
	Bytes       uint64
	PeakBytes   uint64
	Allocations uint64
	Live        uint64
	Denials     uint64
	KindBytes   [Kinds]uint64
}

// EventInfo is something a person would want to know.
type EventInfo struct {
	Number   uint64
	TimeNS   uint64
	Process  uint64
	Bytes    uint64
	Kind     uint32
	PID      uint32
	Card     uint32
	Reserved uint32
	Text     [80]byte
}

// ReleaseInfo says when a process's memory came free as a whole.
type ReleaseInfo struct {
	Number   uint64
	TimeNS   uint64
	Process  uint64
	Bytes    uint64
	PID      uint32
	Reserved uint32
}

// TimeInfo is what a process had of a card.
type TimeInfo struct {
	Process uint64
	PID     uint32
	Card    uint32
	Flags   uint32
	Percent uint32
	BusyNS  uint64
	Kernels uint64
	Queued  uint64
}

// RunInfo is a time for which a process had a card without a break.
type RunInfo struct {
	Process uint64
	FromNS  uint64
	ToNS    uint64
}

// HealthInfo is how a card is, as of now.
type HealthInfo struct {
	EnergyMJ              uint64
	Reasons               uint64
	Ecc                   [EccCounters]uint64
	LastIncident          uint64
	Flags                 uint32
	GPUPercent            uint32
	MemoryPercent         uint32
	Temperature           uint32
	MemoryTemperature     uint32
	PowerMW               uint32
	SMClockMHz            uint32
	MemoryClockMHz        uint32
	Performance           uint32
	FanPercent            uint32
	RetiredSingle         uint32
	RetiredDouble         uint32
	RetiredPending        uint32
	RemappedCorrectable   uint32
	RemappedUncorrectable uint32
	RemapPending          uint32
	RemapFailed           uint32
	SlowPercent           uint32
	PCIeReplays           uint32
	Reserved              uint32
}

// IncidentInfo is what NVML tells of as an event.
type IncidentInfo struct {
	Number   uint64
	TimeNS   uint64
	Data     uint64
	Type     uint32
	Card     uint32
	PID      uint32
	Reserved uint32
}

// FaultInfo is a fault that was injected.
type FaultInfo struct {
	Number   uint64
	TimeNS   uint64
	Process  uint64
	Kind     uint32
	XID      uint32
	Card     uint32
	PID      uint32
	Hit      uint32
	Error    uint32
	Flags    uint32
	Reserved uint32
}

// MigProfileInfo is a kind of GPU instance.
type MigProfileInfo struct {
	Name            [32]byte
	ID              uint32
	NVML            uint32
	Slices          uint32
	MemoryMiB       uint32
	Multiprocessors uint32
	Most            uint32
	Size            uint32
	Starts          uint32
	Remaining       uint32
	CopyEngines     uint32
	Decoders        uint32
	Encoders        uint32
	JPEGs           uint32
	OFAs            uint32
}

// MigGPUInfo is a GPU instance.
type MigGPUInfo struct {
	Number   uint64
	ID       uint32
	Profile  uint32
	Start    uint32
	Computes uint32
}

// MigComputeInfo is a compute instance.
type MigComputeInfo struct {
	UUID      [16]byte
	Number    uint64
	GPUNumber uint64
	GPU       uint32
	ID        uint32
	Profile   uint32
	Start     uint32
	Slices    uint32
	Card      uint32
}

// LinkSwitch is the peer of links that lead to an NVLink switch.
const LinkSwitch = 255

// TopologyInfo is where a card sits.
type TopologyInfo struct {
	Node        uint32
	FirstCPU    uint32
	CPUs        uint32
	Links       uint32
	LinkVersion uint32
	Reserved    uint32
	Ancestors   [32]uint8
	Peers       [40]uint8
}

// NoticeInfo is the page that tells all processes of changes.
type NoticeInfo struct {
	Sequence  uint32
	Incidents uint32
	Unused    [14]uint32
	Flags     [32]uint32
}

// ItemInfo is an entry of a ring: a piece of work.
type ItemInfo struct {
	After      [4]uint64
	DurationNS uint64
	StampNS    uint64
	Kind       uint32
	Card       uint32
	Reserved   uint64
}

// SlotInfo says when an item ends.
type SlotInfo struct {
	Item  uint64
	EndNS uint64
}

// DecodeItem reads an entry of a ring.
func DecodeItem(entry *[ItemBytes]byte) ItemInfo {
	var i ItemInfo
	word := func(at int) uint64 { return binary.LittleEndian.Uint64(entry[at:]) }
	i.After = [4]uint64{word(0), word(8), word(16), word(24)}
	i.DurationNS, i.StampNS = word(32), word(40)
	i.Kind, i.Card = binary.LittleEndian.Uint32(entry[48:]), binary.LittleEndian.Uint32(entry[52:])
	i.Reserved = word(56)
	return i
}

// ErrProtocol says that a packet makes no sense; its connection ends.
var ErrProtocol = errors.New("nonsense on the socket")

// Decode takes a packet apart. The payload is a part of packet.
func Decode(packet []byte) (Header, []byte, error) {
	var h Header
	if len(packet) < HeaderBytes || len(packet) > PacketBytes {
		return h, nil, fmt.Errorf("packet of %d bytes: %w", len(packet), ErrProtocol)
	}
	if _, err := binary.Decode(packet, binary.LittleEndian, &h); err != nil {
		return h, nil, fmt.Errorf("decode a header: %w", err)
	}
	switch {
	case h.Magic != Magic:
		return h, nil, fmt.Errorf("magic %#x: %w", h.Magic, ErrProtocol)
	case h.Version != Version:
		return h, nil, fmt.Errorf("version %d, not %d: %w", h.Version, Version, ErrProtocol)
	case int64(h.PayloadBytes) != int64(len(packet)-HeaderBytes):
		return h, nil, fmt.Errorf("payload of %d bytes said to have %d: %w", len(packet)-HeaderBytes, h.PayloadBytes, ErrProtocol)
	}
	return h, packet[HeaderBytes:], nil
}

// Encode puts a packet together and fills in magic, version and length.
func Encode(h Header, payload []byte) ([]byte, error) {
	if len(payload) > PayloadBytes {
		return nil, fmt.Errorf("encode a packet with %d bytes of payload, at most %d: %w", len(payload), PayloadBytes, ErrProtocol)
	}
	h.Magic, h.Version, h.PayloadBytes = Magic, Version, uint32(len(payload))
	packet, err := binary.Append(make([]byte, 0, HeaderBytes+len(payload)), binary.LittleEndian, &h)
	if err != nil {
		return nil, fmt.Errorf("encode a header: %w", err)
	}
	return append(packet, payload...), nil
}

// Entry is what payloads are made of.
type Entry interface {
	CardInfo | ProcessInfo | EventInfo | ReleaseInfo | TimeInfo | RunInfo | HealthInfo | IncidentInfo | FaultInfo | MigProfileInfo | MigGPUInfo | MigComputeInfo | TopologyInfo
}

// EncodeEntries writes a list as a payload.
func EncodeEntries[E Entry](list []E) ([]byte, error) {
	payload, err := binary.Append(nil, binary.LittleEndian, list)
	if err != nil {
		return nil, fmt.Errorf("encode entries: %w", err)
	}
	return payload, nil
}

// DecodeEntries reads count entries that fill the payload exactly.
func DecodeEntries[E Entry](payload []byte, count uint32) ([]E, error) {
	var e E
	if size := binary.Size(e); uint64(len(payload)) != uint64(count)*uint64(size) {
		return nil, fmt.Errorf("%d entries in %d bytes: %w", count, len(payload), ErrProtocol)
	}
	list := make([]E, count)
	if _, err := binary.Decode(payload, binary.LittleEndian, list); err != nil && count > 0 {
		return nil, fmt.Errorf("decode entries: %w", err)
	}
	return list, nil
}

// Text reads a NUL-terminated text from a fixed field.
func Text(field []byte) string {
	if end := bytes.IndexByte(field, 0); end >= 0 {
		field = field[:end]
	}
	return string(field)
}

// SetText writes one, cut to fit.
func SetText(field []byte, text string) {
	clear(field)
	copy(field[:len(field)-1], text)
}
