// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/remote/protocol"
)

// recordedFrame is one of a session, in the order in which a proxy saw them.
type recordedFrame struct {
	fromServer bool
	protocol.Frame
	payload []byte
}

// awaited says that the frame is a call whose reply the program awaited.
func (f recordedFrame) awaited() bool {
	return !f.fromServer && f.Op >= protocol.FirstCall && f.Flags&(protocol.OneWay|protocol.Ahead) == 0
}

func readRecorded(t testing.TB, path string) (all []recordedFrame) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	in, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	for {
		var from [1]byte
		if _, err := io.ReadFull(in, from[:]); errors.Is(err, io.EOF) {
			return all
		}
		f, payload, err := protocol.Read(in, protocol.MaxPayload)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, recordedFrame{from[0] == 1, f, payload})
	}
}

func writeRecorded(t testing.TB, path string, all []recordedFrame) {
	t.Helper()
	var packed bytes.Buffer
	out := gzip.NewWriter(&packed)
	for _, f := range all {
		from := byte(0)
		if f.fromServer {
			from = 1
		}
		_, _ = out.Write(append(f.Append([]byte{from}), f.payload...)) // into memory
	}
	if err := errors.Join(out.Close(), os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, packed.Bytes(), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// record lets an example run through a proxy, and returns what its first session was made of.
func (s *served) record(t *testing.T, example string) (all []recordedFrame) {
	t.Helper()
	env, end := s.open(t, "--mem", "2GiB")
	defer end()
	path := filepath.Join(s.directory, "proxy.sock")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var mutex sync.Mutex // guards all
	var passing sync.WaitGroup
	passing.Go(func() {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("unix", s.socket)
		if err != nil {
			t.Error(err)
			return
		}
		pass := func(from, to net.Conn, fromServer bool) {
			defer to.Close()
			for {
				f, payload, err := protocol.Read(from, protocol.MaxPayload)
				if err != nil {
					return
				}
				mutex.Lock()
				all = append(all, recordedFrame{fromServer, f, payload})
				mutex.Unlock()
				if _, err := to.Write(append(f.Append(nil), payload...)); err != nil {
					return
				}
			}
		}
		passing.Go(func() { pass(server, client, true) })
		pass(client, server, false)
	})
	env = append(slices.DeleteFunc(env, func(e string) bool { return strings.HasPrefix(e, "DIVVY_REMOTE_SOCKET=") }), "DIVVY_REMOTE_SOCKET="+path)
	if _, err := runExample(t, env, example); err != nil {
		t.Fatal(err)
	}
	passing.Wait()
	return all
}

// replay sends what a recorded program sent, as a process of a new run, and says where a result
// or the bytes of a copy are other than they were.
func (s *served) replay(t *testing.T, all []recordedFrame) error {
	t.Helper()
	env, end := s.open(t, "--mem", "2GiB")
	defer end()
	at := slices.IndexFunc(env, func(e string) bool { return strings.HasPrefix(e, "DIVVY_REMOTE_RUN=") })
	token, err := hex.DecodeString(strings.TrimPrefix(env[max(at, 0)], "DIVVY_REMOTE_RUN="))
	if err != nil || len(token) != protocol.TokenBytes {
		return fmt.Errorf("%q names no run: %v", env[max(at, 0)], err)
	}
	conn, err := net.Dial("unix", s.socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(waitAtMost))
	data, replies, asked := map[uint64][]byte{}, map[uint64][]byte{}, map[uint64]recordedFrame{} // of calls, as recorded
	for _, f := range all {
		switch {
		case !f.fromServer:
			asked[f.Seq] = f
		case f.fromServer && f.Op == protocol.Reply:
			replies[f.Seq] = f.payload
		case f.fromServer && f.Op == protocol.Data:
			data[f.Seq] = append(data[f.Seq], f.payload...)
		}
	}
	came := map[uint64][]byte{}
	var moved moves
	until := func(done func(protocol.Frame) bool) error {
		for {
			f, payload, err := protocol.Read(conn, protocol.MaxPayload)
			if err != nil {
				return err
			}
			switch f.Op {
			case protocol.Refused, protocol.Error:
				return fmt.Errorf("%s: %q", f.Op, payload)
			case protocol.Data:
				came[f.Seq] = append(came[f.Seq], payload...)
			case protocol.Reply:
				if was := replies[f.Seq]; len(payload) < 8 || len(was) < 8 || !bytes.Equal(payload[:8], was[:8]) {
					return fmt.Errorf("call %d: result %x, was %x", f.Seq, payload[:min(8, len(payload))], was[:min(8, len(was))])
				}
				if !bytes.Equal(came[f.Seq], data[f.Seq]) {
					return fmt.Errorf("call %d: other bytes than it brought then", f.Seq)
				}
				moved.learn(asked[f.Seq], replies[f.Seq], payload)
			}
			if done(f) {
				return nil
			}
		}
	}
	calls := 0
	for _, f := range all {
		if f.fromServer {
			continue
		}
		payload := moved.translate(f)
		if f.Op == protocol.Hello {
			copy(payload[protocol.HelloOffsetToken:], token)
		}
		if _, err := conn.Write(append(f.Append(nil), payload...)); err != nil {
			return err
		}
		switch {
		case f.Op == protocol.Hello:
			err = until(func(got protocol.Frame) bool { return got.Op == protocol.Welcome })
		case f.awaited():
			calls++
			err = until(func(got protocol.Frame) bool { return got.Op == protocol.Reply && got.Seq == f.Seq })
		}
		if err != nil {
			return fmt.Errorf("%s (%d): %w", f.Op, f.Seq, err)
		}
	}
	if calls == 0 {
		return errors.New("nothing was called")
	}
	return nil
}

// moves are where memory of the GPU was, and where it is.
type moves []struct{ from, to, bytes uint64 }

// memAlloc is the number of cuMemAlloc_v2 in data/remote.tsv, which never changes.
const memAlloc = protocol.FirstCall + 330

// learn takes note of an allocation: what was asked, what was and is replied.
func (m *moves) learn(call recordedFrame, was, is []byte) {
	const reply = 3 * 8 // result, length, address
	if call.Op != memAlloc || len(was) < reply || len(is) < reply {
		return
	}
	le := binary.LittleEndian
	*m = append(*m, struct{ from, to, bytes uint64 }{le.Uint64(was[16:]), le.Uint64(is[16:]), le.Uint64(call.payload[8:])})
}

// translate is a call's payload with the addresses that are now those of what was meant.
func (m moves) translate(f recordedFrame) []byte {
	payload, le := bytes.Clone(f.payload), binary.LittleEndian
	if f.Op < protocol.FirstCall {
		return payload
	}
	for at := 0; at+8 <= len(payload); at += 8 {
		word := le.Uint64(payload[at:])
		for _, one := range m {
			if word-one.from < one.bytes {
				le.PutUint64(payload[at:], one.to+(word-one.from))
			}
		}
	}
	return payload
}

// TestRemoteRecordedClient: programs of the first version of the protocol get what they got. Never
// record them anew (DIVVY_RECORD_REMOTE=1) but for a version that nobody has used yet.
func TestRemoteRecordedClient(t *testing.T) {
	t.Parallel()
	s := newServed(t, hostOptions{})
	path := filepath.Join("testdata", "remote", "version1-nbody.gz")
	if os.Getenv("DIVVY_RECORD_REMOTE") != "" {
		writeRecorded(t, path, s.record(t, "nbody"))
	}
	all := readRecorded(t, path)
	if err := s.replay(t, all); err != nil {
		t.Error(err)
	}
	// What is compared is what the worker says: other values in the place of some lead to others.
	for i := range all {
		if f := &all[i]; f.fromServer && f.Op == protocol.Reply {
			f.payload = binary.LittleEndian.AppendUint64(nil, 999)
			break
		}
	}
	if s.replay(t, all) == nil {
		t.Error("another result is not noticed")
	}
}
