// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/remote/certificates"
	"github.com/divvy-gpu/divvy/internal/remote/protocol"
	"github.com/divvy-gpu/divvy/internal/socket"
)

// world is an authority, and a server that says back what it hears.
type world struct {
	t         *testing.T
	authority *certificates.Authority
	address   string
	mutex     sync.Mutex // guards revoked
	revoked   string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	a, err := certificates.Init(filepath.Join(t.TempDir(), "ca"), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, authority: a}
	_, raw, err := a.IssueServer([]string{"127.0.0.1"}, 1, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	config := w.bundle(raw).ServerTLS(func(serial string) bool {
		w.mutex.Lock()
		defer w.mutex.Unlock()
		return serial == w.revoked
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.address = l.Addr().String()
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer conn.Close()
				secure := tls.Server(conn, config)
				if secure.Handshake() != nil {
					_ = conn.(*net.TCPConn).CloseWrite()
					_, _ = io.Copy(io.Discard, conn)
					return
				}
				_, _ = io.Copy(secure, secure)
				_ = secure.CloseWrite()
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		all.Wait()
	})
	return w
}

func (w *world) bundle(raw []byte) certificates.Bundle {
	w.t.Helper()
	path := filepath.Join(w.t.TempDir(), "bundle.pem")
	err := certificates.Write(path, raw)
	if err != nil {
		w.t.Fatal(err)
	}
	b, err := certificates.ReadBundle(path)
	if err != nil {
		w.t.Fatal(err)
	}
	return b
}

// relay runs one with a new certificate; done tells that it has left by itself.
func (w *world) relay(change func(*Config), before ...func(path string)) (path, serial string, done chan error) {
	w.t.Helper()
	is, raw, err := w.authority.IssueClient("t", "u", 1, time.Now())
	if err != nil {
		w.t.Fatal(err)
	}
	cfg := Config{Server: w.address, TLS: w.bundle(raw).ClientTLS("127.0.0.1"), Idle: time.Hour, Patience: time.Minute, Logger: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&cfg)
	}
	dir, err := os.MkdirTemp("/tmp", "dr")
	if err != nil {
		w.t.Fatal(err)
	}
	path = filepath.Join(dir, "relay.sock")
	l, err := socket.Listen(socket.Stream, path, 0o600)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range before {
		f(path)
	}
	ctx, stop := context.WithCancel(w.t.Context())
	done = make(chan error, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		done <- Run(ctx, l, cfg, func() { _ = os.Remove(path) })
	}()
	w.t.Cleanup(func() {
		stop()
		<-ended
		_ = os.RemoveAll(dir)
	})
	return path, is.Serial, done
}

func connect(t *testing.T, path string) *net.UnixConn {
	t.Helper()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn.(*net.UnixConn)
}

func TestRelay(t *testing.T) {
	w := newWorld(t)
	path, _, _ := w.relay(nil)
	long := string(protocol.Frame{Length: 1, Op: protocol.Run}.Append(nil)) + strings.Repeat("0123456789abcdef", 1<<16)
	var all sync.WaitGroup
	for range 4 {
		conn := connect(t, path)
		all.Go(func() {
			_, _ = conn.Write([]byte(long))
			_ = conn.CloseWrite()
		})
		all.Go(func() {
			if got, err := io.ReadAll(conn); err != nil || string(got) != long {
				t.Errorf("%d bytes of %d, %v", len(got), len(long), err)
			}
		})
	}
	all.Wait()
}

func TestRefused(t *testing.T) {
	w := newWorld(t)
	revoked, serial, _ := w.relay(nil)
	w.mutex.Lock()
	w.revoked = serial
	w.mutex.Unlock()
	wrong, _, _ := w.relay(func(c *Config) { c.TLS.ServerName = "gpu2" })
	nowhere, _, _ := w.relay(func(c *Config) { c.Server = "127.0.0.1:1" })
	for _, c := range []struct {
		path string
		code int
		says string
	}{
		{revoked, exitNotAllowed, "does not take our certificate: tls: bad certificate"},
		{wrong, exitNotAllowed, "the server's certificate is not taken"},
		{nowhere, exitUnreachable, "no server answers: dial tcp 127.0.0.1:1"},
	} {
		_, _, err := protocol.AskRun(connect(t, c.path), protocol.RunDocument{})
		r, is := errors.AsType[*protocol.Refusal](err)
		if !is || r.ExitCode != c.code || !strings.Contains(r.Message, c.says) {
			t.Errorf("%v, want %d %s", err, c.code, c.says)
		}
	}
}

// A relay leaves when nobody needs it; who only looks does not keep it.
func TestIdle(t *testing.T) {
	w := newWorld(t)
	path, _, done := w.relay(func(c *Config) { c.Idle = time.Millisecond })
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); err == nil {
		t.Error("its socket is left")
	}
	// Who had connected before it left is served to the end, or not at all, and then knows at once.
	var conn *net.UnixConn
	_, _, done = w.relay(func(c *Config) { c.Idle = time.Millisecond }, func(path string) {
		conn = connect(t, path)
		if _, err := conn.Write(protocol.Frame{Op: protocol.Hello}.Append(nil)); err != nil {
			t.Fatal(err)
		}
	})
	n, err := io.ReadFull(conn, make([]byte, protocol.FrameSize))
	if err == nil {
		select {
		case err := <-done:
			t.Errorf("it left before its connection: %v", err)
		default:
		}
	} else if n != 0 {
		t.Errorf("%d bytes, %v", n, err)
	}
	_ = conn.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
