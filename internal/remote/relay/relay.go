// SPDX-License-Identifier: Apache-2.0

// Package relay leads a user's programs to a server: it listens on a unix socket of theirs,
// opens a connection by mutual TLS for each that comes, and passes bytes on. So the key is in
// no program, and a program's library needs no TLS. One relay serves a user, a server and an
// identity, and leaves when nobody has needed it for a while. It looks at the first header of
// what it passes on, and at nothing else.
package relay

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/divvy-gpu/divvy/internal/remote/certificates"
	"github.com/divvy-gpu/divvy/internal/remote/pipe"
	"github.com/divvy-gpu/divvy/internal/remote/protocol"
	"github.com/divvy-gpu/divvy/internal/socket"
)

// Config is what a relay needs.
type Config struct {
	Server   string // HOST:PORT
	TLS      *tls.Config
	Idle     time.Duration // until it leaves
	Patience time.Duration // with a server, and with who connects
	Logger   *slog.Logger
}

// mostConnections is how many a user's programs may have to one server.
const mostConnections = 1024

// Run relays what comes to listener until it is idle, when it calls leave, which takes the
// socket's name away, or until ctx ends. It closes listener.
func Run(ctx context.Context, listener *socket.Listener, cfg Config, leave func()) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	accepted, failed := make(chan *net.UnixConn), make(chan error, 1)
	var all sync.WaitGroup
	defer all.Wait()
	defer listener.Close()
	defer stop()
	all.Go(func() { failed <- accept(ctx, listener, accepted) })
	type outcome struct {
		conn *net.UnixConn
		died bool // the server did
	}
	ended := make(chan outcome)
	open, left := map[*net.UnixConn]bool{}, false
	idle := time.NewTimer(cfg.Idle)
	defer idle.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case conn := <-accepted:
			// Who had connected before the name was gone asks the next relay: its programs
			// would not find this one.
			if left || len(open) >= mostConnections {
				_ = conn.Close()
				continue
			}
			open[conn] = true
			idle.Stop()
			all.Go(func() {
				o := outcome{conn, relay(ctx, cfg, conn)}
				select {
				case ended <- o:
				case <-ctx.Done():
				}
			})
		case o := <-ended:
			delete(open, o.conn)
			if o.died { // which others cannot tell, on which something waits to be sent
				for conn := range open {
					_ = conn.Close()
				}
			}
			if len(open) == 0 {
				idle.Reset(cfg.Idle)
			}
		case <-idle.C:
			if !left {
				left = true
				leave()
			}
			if len(open) == 0 && listener.Idle() {
				return nil
			}
			idle.Reset(time.Millisecond)
		}
	}
}

// accept hands on what connects.
func accept(ctx context.Context, listener *socket.Listener, accepted chan<- *net.UnixConn) error {
	for {
		next, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		conn, err := next.Conn()
		if err != nil {
			return err
		}
		select {
		case accepted <- conn:
		case <-ctx.Done():
			_ = conn.Close()
			return nil
		}
	}
}

// relay serves a connection. It says whether the server was found dead.
func relay(ctx context.Context, cfg Config, near *net.UnixConn) (died bool) {
	defer near.Close()
	defer context.AfterFunc(ctx, func() { _ = near.Close() })()
	// Who only looks whether somebody listens is no reason to ask the server.
	header := make([]byte, protocol.FrameSize)
	if near.SetReadDeadline(time.Now().Add(cfg.Patience)) != nil || socket.Peek(near, header) != nil {
		return false
	}
	_ = near.SetReadDeadline(time.Time{})
	f, err := protocol.DecodeFrame(header, protocol.MaxControl)
	if err != nil {
		return false
	}
	far, err := dial(ctx, cfg, f.Op != protocol.Hello)
	if err != nil {
		cfg.Logger.Info("server not reached", "server", cfg.Server, "error", err)
		refuse(near, refusal(cfg, err), cfg.Patience)
		return false
	}
	defer far.Close()
	defer context.AfterFunc(ctx, func() { _ = far.Close() })()
	p := pipe.New(near, &answering{Conn: far, cfg: cfg, prompt: f.Op != protocol.Hello})
	p.Run()
	return p.Died()
}

// dial connects to the server and shakes hands. A prompt connection is one whose other end
// always reads at once.
func dial(ctx context.Context, cfg Config, prompt bool) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, cfg.Patience)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", cfg.Server)
	if err != nil {
		return nil, err
	}
	if err := pipe.Watch(conn, prompt); err != nil {
		_ = conn.Close()
		return nil, err
	}
	secure := tls.Client(pipe.NewBatch(conn), cfg.TLS)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return secure, nil
}

// Exit codes of what a relay says in the server's place, as docs/exit-codes.md has them.
const (
	exitNotAllowed  = 4
	exitUnreachable = 5
)

// refusal words why a server cannot be talked to.
func refusal(cfg Config, err error) *protocol.Refusal {
	r := &protocol.Refusal{ExitCode: exitUnreachable, Result: protocol.SystemNotReady, Message: fmt.Sprintf("no server answers: %v", err), Hint: "is divvy serve running there, and does it listen on that port"}
	if _, is := errors.AsType[*tls.CertificateVerificationError](err); is {
		r.ExitCode, r.Message, r.Hint = exitNotAllowed, fmt.Sprintf("the server's certificate is not taken: %v", err), "use the name that it was issued for: divvy certs list on the authority's machine"
	} else if alert, is := errors.AsType[*net.OpError](err); is && certificates.Refused(err) {
		r.ExitCode, r.Message, r.Hint = exitNotAllowed, fmt.Sprintf("the server does not take our certificate: %v", alert.Err), "divvy certs list on the authority's machine shows whether it is revoked or expired"
	}
	return r
}

// refuse says why in the server's place.
func refuse(near *net.UnixConn, r *protocol.Refusal, patience time.Duration) {
	_ = near.SetDeadline(time.Now().Add(patience))
	_, _, _ = protocol.Read(near, protocol.MaxControl) // or it could lose our answer
	_ = protocol.Write(near, protocol.Refused, r.Encode())
}

// answering is a server's end. A server tells only after the handshake that it does not take
// our certificate: then its first answer is that. One that has answered before, and lets a
// prompt connection wait for longer than pipe.Silence, is dead.
type answering struct {
	*tls.Conn
	cfg     Config
	prompt  bool
	said    atomic.Bool // the server has
	asked   atomic.Bool // and something has been sent since
	instead []byte      // of an answer
	over    bool
}

func (a *answering) Write(buffer []byte) (int, error) {
	if a.prompt && a.said.Load() && a.asked.CompareAndSwap(false, true) {
		if err := a.SetReadDeadline(time.Now().Add(pipe.Silence)); err != nil {
			return 0, err
		}
	}
	return a.Conn.Write(buffer)
}

func (a *answering) Read(buffer []byte) (int, error) {
	if len(a.instead) > 0 {
		n := copy(buffer, a.instead)
		a.instead = a.instead[n:]
		return n, nil
	}
	if a.over {
		return 0, io.EOF
	}
	n, err := a.Conn.Read(buffer)
	if n > 0 && a.asked.CompareAndSwap(true, false) {
		if err := a.SetReadDeadline(time.Time{}); err != nil {
			return n, err
		}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return n, pipe.ErrSilent
	}
	if n == 0 && err != nil && !a.said.Load() && certificates.Refused(err) {
		r := refusal(a.cfg, err).Encode()
		a.instead = append(protocol.Frame{Length: uint32(len(r)), Op: protocol.Refused}.Append(nil), r...)
		a.over = true
		return a.Read(buffer)
	}
	if n > 0 {
		a.said.Store(true)
	}
	return n, err
}
