// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
)

func hello() HelloPayload {
	h := HelloPayload{Magic: Magic, Oldest: 1, Newest: 3, PID: 7}
	copy(h.Token[:], strings.Repeat("t", TokenBytes))
	copy(h.Command[:], "ffmpeg\x01")
	return h
}

func TestFrames(t *testing.T) {
	var wire bytes.Buffer
	if err := Write(&wire, Hello, hello().Encode()); err != nil {
		t.Fatal(err)
	}
	if err := Write(&wire, Run, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	f, payload, err := Read(&wire, MaxControl)
	if err != nil || f != (Frame{Length: HelloSize, Op: Hello}) {
		t.Fatalf("%+v, %v", f, err)
	}
	h, err := DecodeHello(payload)
	if err != nil || h != hello() || h.Program() != "ffmpeg?" {
		t.Errorf("%+v, %v", h, err)
	}
	if f, payload, err = Read(&wire, 2); err != nil || f.Op != Run || string(payload) != "{}" {
		t.Errorf("%+v %q, %v", f, payload, err)
	}
	if _, _, err = Read(&wire, 2); !errors.Is(err, io.EOF) || errors.Is(err, ErrProtocol) {
		t.Errorf("at the end: %v", err)
	}
}

func TestFramesThatAreRefused(t *testing.T) {
	whole := Frame{Length: 3, Op: Data}.Append(nil)
	for name, c := range map[string]struct {
		wire []byte
		is   error
		want string
	}{
		"half a header":  {whole[:5], io.ErrUnexpectedEOF, "ended within a header"},
		"half a payload": {append(whole, 1, 2), io.ErrUnexpectedEOF, "ended within DATA"},
		"too long":       {Frame{Length: 2 << 30, Op: FirstCall + 4}.Append(nil), ErrProtocol, "call 4 with 2147483648 bytes, more than 262144"},
	} {
		if _, _, err := Read(bytes.NewReader(c.wire), MaxControl); !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAgree(t *testing.T) {
	for _, c := range []struct {
		oldest, newest, version uint32
		ok                      bool
	}{{1, 1, 1, true}, {1, 9, 1, true}, {0, 1, 1, true}, {2, 3, 1, false}, {0, 0, 0, false}} {
		version, ok := HelloPayload{Oldest: c.oldest, Newest: c.newest}.Agree()
		if ok != c.ok || ok && version != c.version {
			t.Errorf("%d to %d: %d, %v", c.oldest, c.newest, version, ok)
		}
	}
}

func TestRefusal(t *testing.T) {
	r := &Refusal{ExitCode: 4, Result: DeviceUnavailable, Message: "no\nroom", Hint: "ask for less\x1b"}
	got, err := DecodeRefusal(r.Encode())
	if err != nil || *got != (Refusal{ExitCode: 4, Result: DeviceUnavailable, Message: "no?room", Hint: "ask for less?"}) {
		t.Errorf("%+v, %v", got, err)
	}
	for name, payload := range map[string][]byte{
		"short": r.Encode()[:7], "success": append([]byte{0, 0, 0, 0}, r.Encode()[4:]...), "code of a signal": (&Refusal{ExitCode: 137}).Encode(),
	} {
		if _, err := DecodeRefusal(payload); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDocuments(t *testing.T) {
	run := RunDocument{Schema: SchemaRun, Name: "a", MemoryBytes: 1 << 30, CoresPercent: 30, Policy: "fixed", Command: []string{"ffmpeg"}, Client: ClientDocument{Host: "h"}}
	raw, err := EncodeDocument(run)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := DecodeRun(raw); err != nil || !reflect.DeepEqual(got, run) {
		t.Errorf("%+v, %v", got, err)
	}
	running := RunningDocument{
		Schema: SchemaRunning, Token: Token{1}.String(), Share: "run-1",
		Driver: DriverDocument{BuildID: "00ff", CUDA: []string{"cuInit"}},
	}
	if raw, err = EncodeDocument(running); err != nil {
		t.Fatal(err)
	}
	// A newer server may say more.
	raw = bytes.Replace(raw, []byte(`"share"`), []byte(`"later":1,"share"`), 1)
	if got, token, err := DecodeRunning(raw); err != nil || !reflect.DeepEqual(got, running) || token != (Token{1}) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestDocumentsThatAreRefused(t *testing.T) {
	const whole = `{"schema":"divvy.remote.run/v1","command":["a"],"client":{"host":"h","user":"u","version":"1"}`
	for tail, want := range map[string]string{
		`,"later":1}`:                      "unknown field",
		`} {}`:                             "after top-level value",
		`,"join":"x","memoryBytes":1}`:     "to be joined and to be made",
		`,"join":"../x"}`:                  "share name",
		`,"name":"X"}`:                     "share name",
		`,"coresPercent":101}`:             "cores: 101",
		`,"coresPercent":-1}`:              "cores: -1",
		`,"priority":1001}`:                "priority: 1001",
		`,"policy":"best"}`:                "no policy",
		`,"enforce":"all"}`:                "no enforcement level",
		`,"gpu":"\u0007"}`:                 "not printable",
		`,"labels":{"a b":"c"}}`:           "label",
		`,"Schema":"divvy.remote.run/v2"}`: "schema",
		`,"schema":"divvy.remote.run/v2"}`: "schema",
	} {
		if _, err := DecodeRun([]byte(whole + tail)); !errors.Is(err, ErrProtocol) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", tail, err)
		}
	}
	if _, err := DecodeRun(make([]byte, MaxControl+1)); !errors.Is(err, ErrProtocol) {
		t.Errorf("too long: %v", err)
	}
	for name, d := range map[string]RunningDocument{
		"token":    {Token: "00", Share: "a", Driver: DriverDocument{BuildID: "00", CUDA: []string{"cuInit"}}},
		"no names": {Token: Token{}.String(), Share: "a", Driver: DriverDocument{BuildID: "00"}},
		"build id": {Token: Token{}.String(), Share: "a", Driver: DriverDocument{BuildID: "../..", CUDA: []string{"cuInit"}}},
		"share":    {Token: Token{}.String(), Share: "../a", Driver: DriverDocument{BuildID: "00", CUDA: []string{"cuInit"}}},
		"name":     {Token: Token{}.String(), Share: "a", Driver: DriverDocument{BuildID: "00", CUDA: []string{"cu\nInit"}}},
	} {
		d.Schema = SchemaRunning
		raw, err := EncodeDocument(d)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := DecodeRunning(raw); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Whatever is on the wire, a frame that is read is within its bound and says the same when
// it is written again.
func FuzzRead(f *testing.F) {
	f.Add(append(Frame{Length: HelloSize, Op: Hello}.Append(nil), hello().Encode()...))
	f.Add(append(Frame{Length: 12, Op: Refused}.Append(nil), (&Refusal{ExitCode: 4, Message: "full"}).Encode()...))
	f.Add(Frame{Length: 1 << 31, Op: Data}.Append(nil))
	f.Fuzz(func(t *testing.T, wire []byte) {
		frame, payload, err := Read(bytes.NewReader(wire), MaxControl)
		if err != nil {
			return
		}
		if len(payload) != int(frame.Length) || len(payload) > MaxControl {
			t.Fatalf("%d bytes of %d", len(payload), frame.Length)
		}
		if again := append(frame.Append(nil), payload...); !bytes.Equal(again, wire[:len(again)]) {
			t.Errorf("%x is not %x", again, wire[:len(again)])
		}
		if h, err := DecodeHello(payload); err == nil && !bytes.HasPrefix(payload, h.Encode()) {
			t.Errorf("HELLO %x is not %x", h.Encode(), payload)
		}
		if r, err := DecodeRefusal(payload); err == nil {
			if again, err := DecodeRefusal(r.Encode()); err != nil || *again != *r {
				t.Errorf("REFUSED %+v is not %+v: %v", again, r, err)
			}
		}
	})
}

// A document that is accepted is accepted when it is written again, and says the same.
func FuzzDocuments(f *testing.F) {
	for _, d := range []any{
		RunDocument{Schema: SchemaRun, Join: "a", Command: []string{"x"}},
		RunDocument{Schema: SchemaRun, Name: "a", MemoryBytes: 1, Labels: map[string]string{"a": "b"}},
		RunningDocument{Schema: SchemaRunning, Token: Token{}.String(), Share: "a", Driver: DriverDocument{BuildID: "00", CUDA: []string{"cuInit"}}},
		StatusDocument{Schema: SchemaStatus, Runs: []RunStatus{{Sessions: []SessionStatus{{}}}}},
	} {
		raw, err := EncodeDocument(d)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if d, err := DecodeRun(raw); err == nil {
			same(t, d, DecodeRun)
		}
		if d, _, err := DecodeRunning(raw); err == nil {
			same(t, d, func(raw []byte) (RunningDocument, error) {
				again, _, err := DecodeRunning(raw)
				return again, err
			})
		}
		if d, err := DecodeStatus(raw); err == nil {
			same(t, d, DecodeStatus)
		}
	})
}

func same[T any](t *testing.T, d T, decode func([]byte) (T, error)) {
	t.Helper()
	raw, err := EncodeDocument(d)
	if err != nil {
		return // what was one character became six
	}
	again, err := decode(raw)
	if err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	twice, err := EncodeDocument(again)
	if err != nil || !bytes.Equal(raw, twice) {
		t.Errorf("%s is not %s: %v", twice, raw, err)
	}
}
