// SPDX-License-Identifier: Apache-2.0

// Package protocol is the Go view of clib/include/divvy_remote.h: the frames that a driver
// library without a GPU, its relay, the server and the worker beside the GPU exchange. What
// frames mean stands there; numbers and layouts are generated from it by tools/wiregen. The
// JSON documents of RUN, RUNNING and ADMIN are defined here. It reads no more of a connection
// than relay and server need, all of it within bounds, and knows nothing of CUDA.
package protocol

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
)

// ErrProtocol says that a peer sent what makes no sense; its connection ends.
var ErrProtocol = errors.New("not the protocol of remote calls")

// Op says what a frame is.
type Op uint16

func (o Op) String() string {
	names := [...]string{
		Hello: "HELLO", Welcome: "WELCOME", Refused: "REFUSED", Run: "RUN", Running: "RUNNING", Admin: "ADMIN", Ping: "PING", Reply: "REPLY",
		Error: "ERROR", Context: "CONTEXT", Data: "DATA", Callback: "CALLBACK", Returned: "RETURNED", Print: "PRINT", ThreadEnded: "THREAD_ENDED",
	}
	switch {
	case int(o) < len(names) && names[o] != "":
		return names[o]
	case o >= FirstCall:
		return fmt.Sprintf("call %d", uint16(o)-FirstCall)
	}
	return fmt.Sprintf("frame %d", uint16(o))
}

// Append writes the header behind what is in buffer.
func (f Frame) Append(buffer []byte) []byte {
	le := binary.LittleEndian
	buffer = le.AppendUint32(buffer, f.Length)
	buffer = le.AppendUint16(buffer, uint16(f.Op))
	buffer = le.AppendUint16(buffer, f.Flags)
	buffer = le.AppendUint64(buffer, f.Seq)
	buffer = le.AppendUint32(buffer, f.Lane)
	return le.AppendUint32(buffer, f.CRC)
}

// DecodeFrame reads a header, of which there are at least FrameSize bytes, and refuses one
// whose payload would have more than most bytes.
func DecodeFrame(header []byte, most uint32) (Frame, error) {
	if len(header) < FrameSize {
		return Frame{}, fmt.Errorf("%w: a header of %d bytes", ErrProtocol, len(header))
	}
	le := binary.LittleEndian
	f := Frame{
		Length: le.Uint32(header[FrameOffsetLength:]), Op: Op(le.Uint16(header[FrameOffsetOp:])), Flags: le.Uint16(header[FrameOffsetFlags:]),
		Seq: le.Uint64(header[FrameOffsetSeq:]), Lane: le.Uint32(header[FrameOffsetLane:]), CRC: le.Uint32(header[FrameOffsetCRC:]),
	}
	if f.Length > most {
		return Frame{}, fmt.Errorf("%w: %s with %d bytes, more than %d", ErrProtocol, f.Op, f.Length, most)
	}
	return f, nil
}

// Read reads a frame whose payload has at most most bytes. io.EOF: the connection ended
// before it; io.ErrUnexpectedEOF: within it.
func Read(from io.Reader, most uint32) (Frame, []byte, error) {
	var header [FrameSize]byte
	if _, err := io.ReadFull(from, header[:]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = fmt.Errorf("the connection ended within a header: %w", err)
		}
		return Frame{}, nil, err
	}
	f, err := DecodeFrame(header[:], most)
	if err != nil {
		return Frame{}, nil, err
	}
	// What has not come yet takes no memory.
	var payload bytes.Buffer
	if _, err := io.CopyN(&payload, from, int64(f.Length)); err != nil {
		if errors.Is(err, io.EOF) {
			err = fmt.Errorf("the connection ended within %s: %w", f.Op, io.ErrUnexpectedEOF)
		}
		return Frame{}, nil, err
	}
	return f, payload.Bytes(), nil
}

// Write sends a frame that belongs to no call.
func Write(to io.Writer, op Op, payload []byte) error {
	if len(payload) > MaxPayload {
		return fmt.Errorf("%w: %s with %d bytes, more than %d", ErrProtocol, op, len(payload), MaxPayload)
	}
	f := Frame{Length: uint32(len(payload)), Op: op}
	_, err := to.Write(append(f.Append(make([]byte, 0, FrameSize+len(payload))), payload...))
	return err
}

// WritePing asks for a sign of life, or gives one.
func WritePing(to io.Writer, flags uint16) error {
	_, err := to.Write(Frame{Op: Ping, Flags: flags}.Append(make([]byte, 0, FrameSize)))
	return err
}

// Token names a run.
type Token [TokenBytes]byte

// DecodeHello reads the payload of HELLO. What a newer library says besides comes behind it.
func DecodeHello(payload []byte) (HelloPayload, error) {
	var h HelloPayload
	if len(payload) < HelloSize {
		return h, fmt.Errorf("%w: HELLO of %d bytes, not %d", ErrProtocol, len(payload), HelloSize)
	}
	if _, err := binary.Decode(payload[:HelloSize], binary.LittleEndian, &h); err != nil {
		return h, fmt.Errorf("%w: HELLO: %w", ErrProtocol, err)
	}
	switch {
	case h.Magic != Magic:
		return h, fmt.Errorf("%w: HELLO with magic %#x", ErrProtocol, h.Magic)
	case h.Oldest > h.Newest:
		return h, fmt.Errorf("%w: HELLO speaks versions %d to %d", ErrProtocol, h.Oldest, h.Newest)
	case h.Command[CommandBytes-1] != 0:
		return h, fmt.Errorf("%w: HELLO with a name that has no end", ErrProtocol)
	}
	return h, nil
}

// Encode is the payload as it is sent.
func (h HelloPayload) Encode() []byte {
	payload, _ := binary.Append(nil, binary.LittleEndian, h) // fixed widths: it cannot fail
	return payload
}

// Program is the name of the program, in printable ASCII.
func (h HelloPayload) Program() string {
	name, _, _ := bytes.Cut(h.Command[:], []byte{0})
	return printable(string(name))
}

// Agree says which version two peers speak: the newest that both know.
func (h HelloPayload) Agree() (version uint32, ok bool) {
	version = min(h.Newest, Version)
	return version, version >= max(h.Oldest, Oldest)
}

// Refusal is what REFUSED says.
type Refusal struct {
	ExitCode int    // of a command: docs/exit-codes.md
	Result   uint32 // CUresult of a program's cuInit
	Message  string
	Hint     string
}

// CUresults of refusals.
const (
	OutOfMemory       = 2
	DeviceUnavailable = 46
	SystemNotReady    = 802
)

func (r *Refusal) Error() string { return r.Message }

// maxExitCode is the highest that a refusal may give a command: no code of a program's own.
const maxExitCode = 125

// Encode is the payload as it is sent.
func (r *Refusal) Encode() []byte {
	le := binary.LittleEndian
	payload := le.AppendUint32(nil, uint32(r.ExitCode))
	payload = le.AppendUint32(payload, r.Result)
	text := printable(r.Message)
	if r.Hint != "" {
		text += "\n" + printable(r.Hint)
	}
	return append(payload, text[:min(len(text), maxTextBytes)]...)
}

// maxTextBytes bounds what a refusal says.
const maxTextBytes = 4096

// DecodeRefusal reads the payload of REFUSED. What it says is printable ASCII.
func DecodeRefusal(payload []byte) (*Refusal, error) {
	if len(payload) < RefusedSize || len(payload) > RefusedSize+maxTextBytes {
		return nil, fmt.Errorf("%w: REFUSED of %d bytes", ErrProtocol, len(payload))
	}
	le := binary.LittleEndian
	code := le.Uint32(payload[RefusedOffsetExitCode:])
	if code == 0 || code > maxExitCode {
		return nil, fmt.Errorf("%w: REFUSED with exit code %d", ErrProtocol, code)
	}
	message, hint, _ := strings.Cut(string(payload[RefusedSize:]), "\n")
	return &Refusal{ExitCode: int(code), Result: le.Uint32(payload[RefusedOffsetResult:]), Message: printable(message), Hint: printable(hint)}, nil
}

// printable keeps a text from outside on a line, in ASCII.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, text)
}
