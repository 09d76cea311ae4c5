// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"fmt"
	"io"
)

// AskRun asks a server for a run, which lasts as long as the connection. An answer that it
// does not want to give is a *Refusal.
func AskRun(server io.ReadWriter, d RunDocument) (RunningDocument, Token, error) {
	d.Schema = SchemaRun
	raw, err := ask(server, Run, d, Running)
	if err != nil {
		return RunningDocument{}, Token{}, fmt.Errorf("ask for a run: %w", err)
	}
	return DecodeRunning(raw)
}

// AskStatus asks a server how it is.
func AskStatus(server io.ReadWriter) (StatusDocument, error) {
	raw, err := ask(server, Admin, AskDocument{Schema: SchemaAsk}, Admin)
	if err != nil {
		return StatusDocument{}, fmt.Errorf("ask for the status: %w", err)
	}
	return DecodeStatus(raw)
}

func ask(server io.ReadWriter, op Op, d any, want Op) ([]byte, error) {
	raw, err := EncodeDocument(d)
	if err == nil {
		err = Write(server, op, raw)
	}
	if err != nil {
		return nil, err
	}
	f, payload, err := Read(server, MaxControl)
	if err != nil {
		return nil, err
	}
	switch f.Op {
	case want:
		return payload, nil
	case Refused:
		r, err := DecodeRefusal(payload)
		if err != nil {
			return nil, err
		}
		return nil, r
	}
	return nil, fmt.Errorf("%w: %s as an answer", ErrProtocol, f.Op)
}

// Attend reads what a server has to say of a run, until its connection ends: nil, or why the
// server ended it.
func Attend(server io.ReadWriter) error {
	for {
		f, payload, err := Read(server, MaxControl)
		switch {
		case err != nil:
			return err
		case f.Op == Ping && f.Flags&Answer != 0:
		case f.Op == Ping:
			err = WritePing(server, Answer)
		case f.Op == Refused:
			r, err := DecodeRefusal(payload)
			if err != nil {
				return err
			}
			return r
		default:
			err = fmt.Errorf("%w: %s in a run", ErrProtocol, f.Op)
		}
		if err != nil {
			return err
		}
	}
}
