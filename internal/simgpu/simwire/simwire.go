// SPDX-License-Identifier: Apache-2.0

// Package simwire is the Go view of clib/include/divvy_sim.h: the packets that
// the stand-in driver library and the simulator exchange. What requests mean
// stands there; numbers and layouts are generated from it by tools/wiregen.
package simwire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// PayloadBytes is the most that follows a header.
const PayloadBytes = PacketBytes - HeaderSize

// UUIDBytes is the length of a UUID.
const UUIDBytes = 16

// Type says what a request wants.
type Type uint16

// Status says how a request went.
type Status uint32

func (s Status) String() string {
	names := [...]string{"ok", "no room", "host budget spent", "invalid", "not found", "own handle",
		"driver generations differ", "a bound was met", "denied in this role", "unknown request",
		"in use", "does not fit", "not supported"}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("status %d", uint32(s))
}

// DecodeItem reads an entry of a ring.
func DecodeItem(entry *[ItemSize]byte) ItemInfo {
	var i ItemInfo
	word := func(at int) uint64 { return binary.LittleEndian.Uint64(entry[at:]) }
	i.After = [4]uint64{word(0), word(8), word(16), word(24)}
	i.DurationNS, i.StampNS = word(32), word(40)
	i.Kind, i.Card = binary.LittleEndian.Uint32(entry[48:]), binary.LittleEndian.Uint32(entry[52:])
	i.Instructions = word(56)
	return i
}

// ErrProtocol says that a packet makes no sense; its connection ends.
var ErrProtocol = errors.New("nonsense on the socket")

// Decode takes a packet apart. The payload is a part of packet.
func Decode(packet []byte) (Header, []byte, error) {
	var h Header
	if len(packet) < HeaderSize || len(packet) > PacketBytes {
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
	case int64(h.PayloadBytes) != int64(len(packet)-HeaderSize):
		return h, nil, fmt.Errorf("payload of %d bytes said to have %d: %w", len(packet)-HeaderSize, h.PayloadBytes, ErrProtocol)
	}
	return h, packet[HeaderSize:], nil
}

// Encode puts a packet together and fills in magic, version and length.
func Encode(h Header, payload []byte) ([]byte, error) {
	if len(payload) > PayloadBytes {
		return nil, fmt.Errorf("encode a packet with %d bytes of payload, at most %d: %w", len(payload), PayloadBytes, ErrProtocol)
	}
	h.Magic, h.Version, h.PayloadBytes = Magic, Version, uint32(len(payload))
	packet, err := binary.Append(make([]byte, 0, HeaderSize+len(payload)), binary.LittleEndian, &h)
	if err != nil {
		return nil, fmt.Errorf("encode a header: %w", err)
	}
	return append(packet, payload...), nil
}

// Entry is what payloads are made of.
type Entry interface {
	CardInfo | ProcessInfo | HolderInfo | EventInfo | ReleaseInfo | TimeInfo | RunInfo | HealthInfo | IncidentInfo | FaultInfo | MIGProfileInfo | MIGGPUInfo | MIGComputeInfo | TopologyInfo
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
