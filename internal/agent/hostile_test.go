// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/core"
	"github.com/divvy-gpu/divvy/internal/event"
	"github.com/divvy-gpu/divvy/internal/wire"
)

func dialShare(t testing.TB, r *rig, share string) *net.UnixConn {
	t.Helper()
	conn, err := net.Dial("unixpacket", r.cfg.ShareSocket(share))
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn.(*net.UnixConn)
}

// awaitEOF waits until the agent has closed a connection, and returns what it
// said before.
func awaitEOF(t testing.TB, conn *net.UnixConn) []wire.Message {
	t.Helper()
	must(t, conn.SetReadDeadline(time.Now().Add(10*time.Second)))
	var answers []wire.Message
	for {
		var packet [512]byte
		n, err := conn.Read(packet[:])
		if n == 0 && (err == nil || errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET)) {
			return answers
		}
		must(t, err)
		m, err := wire.Decode(packet[:n])
		must(t, err)
		answers = append(answers, m)
	}
}

// welcomed says HELLO on a connection, and demands that it is answered WELCOME.
func welcomed(t testing.TB, conn *net.UnixConn) {
	t.Helper()
	_, err := conn.Write(encode(wire.Message{Magic: wire.MessageMagic, Version: wire.Version, Type: wire.Hello, Sequence: 1}))
	must(t, err)
	must(t, conn.SetReadDeadline(time.Now().Add(10*time.Second)))
	var packet [512]byte
	n, err := conn.Read(packet[:])
	must(t, err)
	if answer, err := wire.Decode(packet[:n]); err != nil || answer.Type != wire.Welcome {
		t.Fatalf("HELLO is answered %+v, %v", answer, err)
	}
}

func encode(m wire.Message) []byte {
	var packet [wire.MessageSize]byte
	m.Encode(&packet)
	return packet[:]
}

// Rubbish ends the connection that it comes on, and no other; also one that was welcomed.
func TestRubbish(t *testing.T) {
	r := newRig(t)
	r.share(api.ShareSpec{Name: "s", MemoryBytes: gib})
	good := r.front("s")
	hello := wire.Message{Magic: wire.MessageMagic, Version: wire.Version, Type: wire.Hello, Sequence: 1}
	old := hello
	old.Version = 99
	noMagic := hello
	noMagic.Magic = 1
	for name, c := range map[string]struct {
		welcome bool
		packets [][]byte
	}{
		"text":            {false, [][]byte{[]byte("GET / HTTP/1.1\r\n\r\n")}},
		"long":            {false, [][]byte{bytes.Repeat([]byte("x"), 4096)}},
		"a byte short":    {false, [][]byte{encode(hello)[:wire.MessageSize-1]}},
		"magic":           {false, [][]byte{encode(noMagic)}},
		"charge first":    {false, [][]byte{encode(wire.Message{Magic: wire.MessageMagic, Version: wire.Version, Type: wire.Charge})}},
		"version":         {false, [][]byte{encode(old)}},
		"hello twice":     {true, [][]byte{encode(hello)}},
		"type":            {true, [][]byte{encode(wire.Message{Magic: wire.MessageMagic, Version: wire.Version, Type: 999})}},
		"slot":            {true, [][]byte{encode(wire.Message{Magic: wire.MessageMagic, Version: wire.Version, Type: wire.Charge, Slot: 1})}},
		"version later":   {true, [][]byte{encode(wire.Message{Magic: wire.MessageMagic, Version: wire.Version + 1, Type: wire.Sync})}},
		"probes for ever": {false, bytesOf(encode(wire.Message{Magic: wire.MessageMagic, Version: wire.Version, Type: wire.Sync}), 100)},
	} {
		t.Run(name, func(t *testing.T) {
			conn := dialShare(t, r, "s")
			if c.welcome {
				welcomed(t, conn)
			}
			for _, packet := range c.packets {
				if _, err := conn.Write(packet); err != nil {
					break // it has been closed already
				}
			}
			answers := awaitEOF(t, conn)
			if name == "version" && (len(answers) != 1 || answers[0].Type != wire.Refused || answers[0].Status != wire.StatusVersion) {
				t.Errorf("answers %+v", answers)
			}
		})
	}
	must(t, good.alloc(mib))
	if e := r.awaitEvent("client-refused"); e.Message != fmt.Sprintf("the library speaks version 99, the agent %d", wire.Version) {
		t.Errorf("event %+v", e)
	}
}

func bytesOf(packet []byte, n int) [][]byte {
	var all [][]byte
	for range n {
		all = append(all, packet)
	}
	return all
}

// One that says nothing is hung up on.
func TestSilence(t *testing.T) {
	r := newRig(t, func(c *Config) { c.HandshakeDeadline = 50 * time.Millisecond })
	r.share(api.ShareSpec{Name: "s", MemoryBytes: gib})
	awaitEOF(t, dialShare(t, r, "s"))
}

// One that has said HELLO is let in however late the agent is to it.
func TestLateWelcome(t *testing.T) {
	const deadline = 50 * time.Millisecond
	r := newRig(t, func(c *Config) { c.HandshakeDeadline = deadline })
	r.share(api.ShareSpec{Name: "s", MemoryBytes: gib})
	busy := make(chan struct{})
	go r.do(func(*loop) {
		close(busy)
		<-time.After(4 * deadline)
	})
	<-busy
	f, err := newFront(r.cfg.ShareSocket("s"))
	must(t, err)
	t.Cleanup(f.close)
	must(t, f.alloc(mib))
}

// A client that asks without end, and does not read the answers, slows nobody
// down for long.
func TestFlood(t *testing.T) {
	r := newRig(t)
	r.share(api.ShareSpec{Name: "s", MemoryBytes: gib})
	good := r.front("s")
	flood := r.front("s")
	stop := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		for n := uint32(10); ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			m := wire.Message{Magic: wire.MessageMagic, Version: wire.Version, Type: wire.Event, Kind: wire.EventDriverOOM, Sequence: n, Amount: 1}
			if n%2 == 0 {
				m.Type = wire.Sync
			}
			_ = flood.conn.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
			_, _ = flood.conn.Write(encode(m))
		}
	})
	flooded := time.Now()
	var slowest time.Duration
	for range 200 {
		begun := time.Now()
		answer, _, err := good.call(chargeMessage(mib))
		must(t, err)
		if answer.Type != wire.Charged {
			t.Fatalf("answer %+v", answer)
		}
		slowest = max(slowest, time.Since(begun))
		good.free(mib)
	}
	close(stop)
	group.Wait()
	t.Logf("the slowest charge beside a flood took %v", slowest)
	events, err := r.client.Events(context.Background(), 0)
	must(t, err)
	if n := len(events.Events); n > 200+10*int(time.Since(flooded).Seconds()) {
		t.Errorf("%d events: one client fills the log", n)
	}
}

// A program of the version before keeps what it has when its agent is upgraded. It
// comes again and again, and that is told once.
func TestOlderLibraryComesBack(t *testing.T) {
	r := newRig(t)
	r.share(api.ShareSpec{Name: "s", MemoryBytes: gib})
	old := r.front("s")
	must(t, old.alloc(100*mib))
	r.source.hold(os.Getpid(), 100*mib)
	must(t, r.stop())
	r.start()
	hello := wire.Message{Magic: wire.MessageMagic, Version: wire.Version - 1, Type: wire.Hello, Token: old.token}
	come := func(m wire.Message) {
		t.Helper()
		other := &front{path: old.path}
		must(t, other.dial())
		defer other.close()
		must(t, other.send(m))
		if answers := awaitEOF(t, other.conn); len(answers) != 1 || answers[0].Status != wire.StatusVersion {
			t.Errorf("answers %+v", answers)
		}
	}
	for range 3 {
		come(hello)
	}
	hello.Token = 0 // as of a program that is started now
	come(hello)
	events, err := r.client.Events(t.Context(), 0)
	must(t, err)
	var told []string
	for _, e := range events.Events {
		if e.Kind == event.ClientRefused {
			told = append(told, e.Message)
		}
	}
	if len(told) != 2 || !strings.Contains(told[0], "keeps what it has") || strings.Contains(told[1], "keeps") {
		t.Errorf("told %q", told)
	}
	if s, err := r.client.Share(t.Context(), "s"); err != nil || s.UsedBytes < 100*mib || s.Clients != 1 {
		t.Errorf("share %+v, %v", s, err)
	}
}

// An agent that stops refuses nobody: the process is to try again, for the next one.
func TestHelloToAnAgentThatStops(t *testing.T) {
	r := newRig(t)
	r.share(api.ShareSpec{Name: "s", MemoryBytes: gib})
	stopped, stop := context.WithCancel(t.Context())
	stop()
	for range 100 {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		must(t, err)
		var ends [2]*net.UnixConn
		for i, descriptor := range pair {
			file := os.NewFile(uintptr(descriptor), "end")
			conn, err := net.FileConn(file)
			must(t, err)
			must(t, file.Close())
			ends[i] = conn.(*net.UnixConn)
		}
		c := &connection{daemon: r.daemon, share: "s", conn: ends[0], ended: make(chan struct{})}
		if c.hello(stopped, wire.Message{Magic: wire.MessageMagic, Version: wire.Version, Type: wire.Hello}) == nil {
			c.detach(context.Background()) // the loop had it before
		}
		must(t, ends[0].Close())
		for _, answer := range awaitEOF(t, ends[1]) {
			if answer.Type == wire.Refused {
				t.Fatalf("refused: %s", answer.Line())
			}
		}
		must(t, ends[1].Close())
	}
}

// There are bounds on clients, and the refusal says so.
func TestTooManyClients(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MaxClients, c.MaxShareClients = 3, 2 })
	r.share(api.ShareSpec{Name: "a", MemoryBytes: gib})
	r.share(api.ShareSpec{Name: "b", MemoryBytes: gib})
	r.front("a")
	r.front("a")
	var refused *refusedError
	if _, err := newFront(r.cfg.ShareSocket("a")); !errors.As(err, &refused) || refused.status != wire.StatusBusy {
		t.Errorf("one too many in a share: %v", err)
	}
	r.front("b")
	if _, err := newFront(r.cfg.ShareSocket("b")); !errors.As(err, &refused) || refused.status != wire.StatusBusy {
		t.Errorf("one too many in all: %v", err)
	}
}

// A limit that shrinks under a running client.
func TestShrinkOverTheWire(t *testing.T) {
	r := newRig(t, func(c *Config) { c.ShrinkDeadline = 50 * time.Millisecond })
	ctx := context.Background()
	r.share(api.ShareSpec{Name: "s", MemoryBytes: gib})
	f := r.front("s")
	must(t, f.alloc(800*mib))
	smaller := uint64(500 * mib)
	s, err := r.client.ChangeShare(ctx, "s", api.ShareChange{MemoryBytes: &smaller})
	must(t, err)
	if s.State != "shrinking" || !f.tight() {
		t.Errorf("state %s, tight %v", s.State, f.tight())
	}
	f.free(100 * mib)
	if err := f.alloc(mib); !errors.Is(err, errDenied) {
		t.Errorf("over the new limit: %v", err)
	}
	r.awaitEvent("shrink-overdue")
	f.free(300 * mib)
	r.awaitEvent("share-shrunk")
	eventually(t, "the page says so", func() bool { return !f.tight() })
	must(t, f.alloc(100*mib))
	if err := f.alloc(1); !errors.Is(err, errDenied) {
		t.Errorf("over the new limit: %v", err)
	}
	// Deleted under it: nothing more, and it keeps what it has.
	wantCode(t, r.client.DeleteShare(ctx, "s", false), api.CodeNotAllowed)
	must(t, r.client.DeleteShare(ctx, "s", true))
	f.free(mib)
	if err := f.alloc(1); !errors.Is(err, errDenied) {
		t.Errorf("from a deleted share: %v", err)
	}
	var refused *refusedError
	if _, err := newFront(r.cfg.ShareSocket("s")); !errors.As(err, &refused) || refused.status != wire.StatusGone {
		t.Errorf("attach to a deleted share: %v", err)
	}
	f.close()
	r.awaitEvent("share-deleted")
	eventually(t, "its socket is gone", func() bool {
		_, err := newFront(r.cfg.ShareSocket("s"))
		return errors.Is(err, unix.ENOENT)
	})
}

// Failures of the interface have a code, and a hint where we know one.
func TestInterfaceFailures(t *testing.T) {
	r := newRig(t)
	ctx := context.Background()
	r.share(api.ShareSpec{Name: "s", MemoryBytes: gib})
	_, err := r.client.CreateShare(ctx, api.ShareSpec{Name: "s"})
	if e := wantCode(t, err, api.CodeExists); e.Hint == "" {
		t.Error("no hint for a duplicate name")
	}
	_, err = r.client.CreateShare(ctx, api.ShareSpec{MemoryBytes: 81 * gib})
	if e := wantCode(t, err, api.CodeNotAllowed); !strings.Contains(e.Message, "80GiB") || e.Hint == "" {
		t.Errorf("larger than the GPU: %+v", e)
	}
	_, err = r.client.CreateShare(ctx, api.ShareSpec{MemoryBytes: mib})
	wantCode(t, err, api.CodeNotAllowed)
	_, err = r.client.CreateShare(ctx, api.ShareSpec{GPU: "GPU-ffff"})
	wantCode(t, err, api.CodeNotFound)
	_, err = r.client.CreateShare(ctx, api.ShareSpec{Name: "../../etc"})
	wantCode(t, err, api.CodeUsage)
	// The path of its socket has no room for it: refused, and nothing is left.
	_, err = r.client.CreateShare(ctx, api.ShareSpec{Name: strings.Repeat("a", 63)})
	if e := wantCode(t, err, api.CodeUsage); e.Hint == "" {
		t.Errorf("too long a path: %+v", e)
	}
	shares, err := r.client.Shares(ctx)
	must(t, err)
	if len(shares.Shares) != 1 {
		t.Errorf("shares %+v", shares.Shares)
	}
	_, err = r.client.Share(ctx, "nobody")
	wantCode(t, err, api.CodeNotFound)
	_, err = r.client.Hold(ctx, "nobody")
	wantCode(t, err, api.CodeNotFound)
	wantCode(t, r.client.DeleteShare(ctx, "nobody", true), api.CodeNotFound)

	raw := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", r.cfg.APISocket())
	}}}
	for _, body := range []string{"", "{", `{"nmae":"x"}`, `{"name":"x"}{}`, `{"memoryBytes":-1}`, strings.Repeat(" ", 1<<20)} {
		response, err := raw.Post("http://agent/v1/shares", "application/json", strings.NewReader(body))
		must(t, err)
		_ = response.Body.Close()
		if response.StatusCode != http.StatusBadRequest {
			t.Errorf("body %.20q: %s", body, response.Status)
		}
	}
	response, err := raw.Get("http://agent/v2/everything")
	must(t, err)
	_ = response.Body.Close()
	if response.StatusCode != http.StatusNotFound {
		t.Errorf("an unknown path: %s", response.Status)
	}
}

// Whatever comes on a share's socket, the agent goes on serving, and nobody is given
// more than there is. A process that says that it comes back is believed up to the
// limit (ADR 0004): several that lie make the share one that shrinks, and no more.
func FuzzShareSocket(f *testing.F) {
	r := newRig(f)
	r.share(api.ShareSpec{Name: "s", MemoryBytes: gib})
	good, w := r.front("s"), r.witness()
	for _, m := range []wire.Message{
		{Type: wire.Charge, Amount: 1 << 63}, {Type: wire.Charge, Slot: 9, Amount: 1}, {Type: wire.Processes, Amount: 1 << 40},
		{Type: wire.Event, Kind: wire.EventDriverOOM, Amount: 1 << 63}, {Type: wire.Measure, Slot: 1 << 31},
	} {
		m.Magic, m.Version = wire.MessageMagic, wire.Version
		f.Add(true, encode(m))
	}
	token := wire.Message{Magic: wire.MessageMagic, Version: wire.Version, Type: wire.Hello, Token: 7}
	token.Bytes[0] = 1 << 50
	f.Add(false, encode(token))
	f.Fuzz(func(t *testing.T, greet bool, packet []byte) {
		conn := dialShare(t, r, "s")
		if greet {
			welcomed(t, conn)
		}
		if len(packet) > 0 {
			_, _ = conn.Write(packet)
		}
		_ = conn.CloseWrite()
		_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
		var buffer [512]byte
		for n, err := conn.Read(buffer[:]); n > 0 && err == nil; n, err = conn.Read(buffer[:]) {
		}
		_ = conn.Close()
		if _, _, err := good.call(wire.Message{Type: wire.Sync}); err != nil {
			t.Fatalf("the other client: %v", err)
		}
		must(t, r.daemon.do(t.Context(), func(l *loop) {
			v, err := l.core.Share("s")
			if err != nil || v.UsedBytes > v.LimitBytes || v.State != core.StateActive {
				t.Errorf("share %+v, %v", v, err)
			}
			for _, c := range l.core.Clients() {
				if c.GrantedBytes > gib {
					t.Errorf("%d granted of %d", c.GrantedBytes, gib)
				}
			}
		}))
		w.exact(t)
	})
}
