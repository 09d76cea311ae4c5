// SPDX-License-Identifier: Apache-2.0

// Package wire is the Go view of what the front library and the agent share:
// the two pages of a client and the messages on its socket. The layout is
// generated from clib/include/divvy_wire.h; accessors are atomic, word by word,
// because the other side writes at the same time and may die at any
// instruction. It decides nothing about what the words mean.
package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrMessage says that bytes are not a message.
var ErrMessage = errors.New("not a message")

// Encode writes the message into buffer, which has MessageSize bytes.
func (m *Message) Encode(buffer *[MessageSize]byte) {
	*buffer = [MessageSize]byte{}
	le := binary.LittleEndian
	le.PutUint32(buffer[MessageOffsetMagic:], m.Magic)
	le.PutUint16(buffer[MessageOffsetType:], m.Type)
	le.PutUint16(buffer[MessageOffsetVersion:], m.Version)
	le.PutUint32(buffer[MessageOffsetSequence:], m.Sequence)
	le.PutUint32(buffer[MessageOffsetStatus:], m.Status)
	le.PutUint32(buffer[MessageOffsetSlot:], m.Slot)
	le.PutUint32(buffer[MessageOffsetKind:], m.Kind)
	le.PutUint64(buffer[MessageOffsetAmount:], m.Amount)
	le.PutUint64(buffer[MessageOffsetToken:], m.Token)
	le.PutUint32(buffer[MessageOffsetPID:], m.PID)
	le.PutUint32(buffer[MessageOffsetReserved:], m.Reserved)
	copy(buffer[MessageOffsetBuildID:], m.BuildID[:])
	le.PutUint32(buffer[MessageOffsetReserved2:], m.Reserved2)
	for i, n := range m.Bytes {
		le.PutUint64(buffer[MessageOffsetBytes+8*i:], n)
	}
	copy(buffer[MessageOffsetText:], m.Text[:])
}

// Decode reads a message from one packet. It checks length, magic and that the
// text ends; the version is the caller's to judge, because an answer that says
// so must be possible.
func Decode(packet []byte) (Message, error) {
	var m Message
	if len(packet) != MessageSize {
		return m, fmt.Errorf("%w: %d bytes, not %d", ErrMessage, len(packet), MessageSize)
	}
	le := binary.LittleEndian
	m.Magic = le.Uint32(packet[MessageOffsetMagic:])
	if m.Magic != MessageMagic {
		return m, fmt.Errorf("%w: magic %#x", ErrMessage, m.Magic)
	}
	m.Type = le.Uint16(packet[MessageOffsetType:])
	m.Version = le.Uint16(packet[MessageOffsetVersion:])
	m.Sequence = le.Uint32(packet[MessageOffsetSequence:])
	m.Status = le.Uint32(packet[MessageOffsetStatus:])
	m.Slot = le.Uint32(packet[MessageOffsetSlot:])
	m.Kind = le.Uint32(packet[MessageOffsetKind:])
	m.Amount = le.Uint64(packet[MessageOffsetAmount:])
	m.Token = le.Uint64(packet[MessageOffsetToken:])
	m.PID = le.Uint32(packet[MessageOffsetPID:])
	m.Reserved = le.Uint32(packet[MessageOffsetReserved:])
	copy(m.BuildID[:], packet[MessageOffsetBuildID:])
	m.Reserved2 = le.Uint32(packet[MessageOffsetReserved2:])
	for i := range m.Bytes {
		m.Bytes[i] = le.Uint64(packet[MessageOffsetBytes+8*i:])
	}
	copy(m.Text[:], packet[MessageOffsetText:])
	if m.Type != Processed && m.Text[TextBytes-1] != 0 {
		return m, fmt.Errorf("%w: text without an end", ErrMessage)
	}
	return m, nil
}

// Answer is the start of an answer to m.
func (m *Message) Answer(kind uint16, status uint32) Message {
	return Message{
		Magic: MessageMagic, Version: Version,
		Type: kind, Sequence: m.Sequence, Status: status, Slot: m.Slot, Kind: m.Kind,
	}
}

// SetText stores text, cut to what fits.
func (m *Message) SetText(text string) {
	m.Text = [TextBytes]byte{}
	copy(m.Text[:TextBytes-1], text)
}

// Line is the text with everything but printable ASCII replaced: it comes from
// a foreign process and goes to terminals and logs.
func (m *Message) Line() string { return m.LineFrom(0) }

// LineFrom is the line behind so many bytes that are no text.
func (m *Message) LineFrom(start int) string {
	text, _, _ := bytes.Cut(m.Text[start:], []byte{0})
	line := make([]byte, len(text))
	for i, c := range text {
		if c < 0x20 || c > 0x7e {
			c = '?'
		}
		line[i] = c
	}
	return string(line)
}

// SetProcesses stores process ids in the text, as DIVVY_PROCESSED has them.
func (m *Message) SetProcesses(pids []uint32) {
	m.Text = [TextBytes]byte{}
	for i, pid := range pids[:min(len(pids), ProcessesPerMessage)] {
		binary.LittleEndian.PutUint32(m.Text[4*i:], pid)
	}
}

// ProcessIDs are the process ids of a DIVVY_PROCESSED.
func (m *Message) ProcessIDs() []uint32 {
	var pids []uint32
	for i := range ProcessesPerMessage {
		pid := binary.LittleEndian.Uint32(m.Text[4*i:])
		if pid == 0 {
			break
		}
		pids = append(pids, pid)
	}
	return pids
}
