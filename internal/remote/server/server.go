// SPDX-License-Identifier: Apache-2.0

// Package server lets programs elsewhere use the GPUs of this machine: it knows who asks,
// by certificate or by the unix socket's peer, admits runs within what tenants may have,
// makes or joins their shares by the agent's interface, and starts a worker in the share for
// each process of a run. It reads the first frame of a connection and no more: a worker is
// handed a unix socket's connection itself, and the bytes of others are passed on unread. It
// never calls CUDA.
//
// One goroutine owns the state; those of connections hand it functions. A connection's
// goroutine ends with it, and Run waits for all.
package server

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/internal/client"
	"github.com/divvy-gpu/divvy/internal/remote/pipe"
	"github.com/divvy-gpu/divvy/internal/remote/protocol"
	"github.com/divvy-gpu/divvy/internal/socket"
)

// Parts is what a server works with.
type Parts struct {
	Version string
	// Agent calls with a client of the machine's agent, again when that was just leaving.
	Agent func(ctx context.Context, call func(*client.Client) error) error
	// Front is the folder of the front library that fits the driver in a folder.
	Front func(driverDirectory string) (string, error)
	// Step is the command line of the process that becomes a worker.
	Step func(Step) []string
	// Explain says with which code a command ends by an error, and what helps.
	Explain func(error) (exitCode int, hint string)
	Worker  string // the program
	Logger  *slog.Logger
	Audit   *slog.Logger // nil: none
	Output  *os.File     // what workers write; nil: nowhere
}

// Server is one.
type Server struct {
	cfg    Config
	parts  Parts
	orders chan func(*state)
	ended  chan struct{} // the owner of the state

	drivers drivers

	patience time.Duration // with who connects, to say what is wanted
	each     int           // connections of one tenant at most
	grace    time.Duration // of a worker whose client has gone, and of a client whose worker has
}

// state is what the server knows; only its owner touches it.
type state struct {
	since       time.Time
	connections map[*connection]bool
	waiting     map[string]int // by address, of those that have not said what they want
	allWaiting  int
	runs        map[[sha256.Size]byte]*run // by the token's digest, which takes no time that tells of it
	sessions    int
	lastSession uint64
	uids        map[int]bool // in use
	refusals    uint64
	draining    bool
	idle        chan struct{} // closed when draining and no run is left
}

// connection is one that is open.
type connection struct {
	conn pipe.End
	Identity
	address string
	waits   bool // counts as waiting
	close   func()
}

// New makes a server, which Run runs.
func New(cfg Config, parts Parts) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Server{cfg: cfg, parts: parts, orders: make(chan func(*state)), ended: make(chan struct{}), patience: patience, each: maxConnectionsEach, grace: workerGrace}, nil
}

// own runs what is ordered until quit is closed.
func (s *Server) own(st *state, quit <-chan struct{}) {
	defer close(s.ended)
	for {
		select {
		case order := <-s.orders:
			order(st)
		case <-quit:
			return
		}
	}
}

// do has the state's owner call f, and waits for it. After Run there is nothing to do.
func (s *Server) do(f func(*state)) {
	done := make(chan struct{})
	order := func(st *state) {
		defer close(done)
		f(st)
	}
	select {
	case s.orders <- order:
		<-done
	case <-s.ended:
	}
}

// Run serves until ctx ends, then lets runs end for as long as the configuration says. It
// closes the listeners.
func (s *Server) Run(ctx context.Context, listeners ...Listener) error {
	st := &state{
		since: time.Now(), connections: map[*connection]bool{}, waiting: map[string]int{}, runs: map[[sha256.Size]byte]*run{},
		uids: map[int]bool{}, idle: make(chan struct{}),
	}
	quit := make(chan struct{})
	go s.own(st, quit)
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var accepting, serving sync.WaitGroup
	broken := make(chan error, len(listeners))
	for _, l := range listeners {
		accepting.Go(func() {
			if err := s.accept(work, l, &serving); err != nil {
				broken <- err
			}
		})
	}
	var failed error
	select {
	case failed = <-broken:
	case <-ctx.Done():
		s.drain()
	}
	for _, l := range listeners {
		_ = l.Close()
	}
	accepting.Wait()
	stop()
	serving.Wait()
	close(quit)
	<-s.ended
	return failed
}

// drain lets runs end, and no new ones come.
func (s *Server) drain() {
	s.do(func(st *state) {
		st.draining = true
		st.settle()
		s.parts.Logger.Info("drain", "runs", len(st.runs), "sessions", st.sessions)
	})
	timer := time.NewTimer(s.cfg.Drain)
	defer timer.Stop()
	var idle chan struct{}
	s.do(func(st *state) { idle = st.idle })
	select {
	case <-idle:
	case <-timer.C:
	}
}

// settle says when a server that is to end has nothing left to wait for.
func (st *state) settle() {
	if !st.draining || len(st.runs) > 0 {
		return
	}
	select {
	case <-st.idle:
	default:
		close(st.idle)
	}
}

// acceptPause keeps a listener that fails from taking a processor.
const acceptPause = 100 * time.Millisecond

// accept lets in who may come in, until the listener is closed.
func (s *Server) accept(ctx context.Context, l Listener, serving *sync.WaitGroup) error {
	for {
		in, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			s.parts.Logger.Warn("accept", "error", err) // as a rule there are no descriptors left
			timer := time.NewTimer(acceptPause)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return nil
			}
			continue
		}
		c := &connection{address: in.Address()}
		if !s.enter(c) {
			in.Close()
			continue
		}
		serving.Go(func() {
			defer s.leave(c)
			s.serve(ctx, c, in)
		})
	}
}

// enter counts a connection, if there is room.
func (s *Server) enter(c *connection) (entered bool) {
	s.do(func(st *state) {
		if len(st.connections) >= maxConnections || st.allWaiting >= maxWaiting || st.waiting[c.address] >= maxWaitingEach {
			st.refusals++
			return
		}
		st.connections[c], entered, c.waits = true, true, true
		st.waiting[c.address]++
		st.allWaiting++
	})
	return entered
}

// connectionsOf counts those of a tenant.
func (st *state) connectionsOf(tenant string) (n int) {
	for c := range st.connections {
		if c.Tenant == tenant {
			n++
		}
	}
	return n
}

// arrived ends the waiting of a connection.
func (st *state) arrived(c *connection) {
	if !c.waits {
		return
	}
	c.waits = false
	st.allWaiting--
	if st.waiting[c.address]--; st.waiting[c.address] == 0 {
		delete(st.waiting, c.address)
	}
}

func (s *Server) leave(c *connection) {
	s.do(func(st *state) {
		st.arrived(c)
		delete(st.connections, c)
	})
}

// serve deals with one connection.
func (s *Server) serve(ctx context.Context, c *connection, in Incoming) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	opening, opened := context.WithTimeout(ctx, s.patience)
	conn, who, err := in.Open(opening)
	opened()
	if err != nil {
		s.parts.Logger.Info("connection refused", "address", c.address, "error", err)
		s.audit("refused", "address", c.address, "why", err.Error())
		s.do(func(st *state) { st.refusals++ })
		return
	}
	defer conn.Close()
	if !who.Until.IsZero() {
		ctx, cancel = context.WithDeadline(ctx, who.Until)
		defer cancel()
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	var unknown error
	if who.Tenant == "" {
		who.Tenant, unknown = s.tenantOf(who)
	}
	s.do(func(st *state) {
		c.conn, c.Identity, c.close = conn, who, cancel
		if unknown == nil && st.connectionsOf(who.Tenant) > s.each {
			unknown = notAllowed("%d connections: tenant %s may have no more at once", s.each, who.Tenant)
		}
	})
	if err := conn.SetReadDeadline(time.Now().Add(s.patience)); err != nil {
		return
	}
	f, payload, handed, err := first(conn)
	if err == nil {
		s.do(func(st *state) { st.arrived(c) })
		_ = conn.SetReadDeadline(time.Time{})
		err = unknown
	}
	if err == nil {
		switch f.Op {
		case protocol.Run:
			err = s.run(ctx, c, payload)
		case protocol.Hello:
			err = s.session(ctx, c, f, payload, handed)
		case protocol.Admin:
			err = s.answer(c, payload)
		default:
			err = fmt.Errorf("%w: %s before anything else", protocol.ErrProtocol, f.Op)
		}
	}
	if err != nil && !errors.Is(err, io.EOF) && ctx.Err() == nil {
		s.refuse(c, err, handed)
	}
}

// first reads the first frame of a connection. The HELLO of a unix socket stays in it, for the
// worker that is handed the connection.
func first(conn pipe.End) (f protocol.Frame, payload []byte, handed bool, err error) {
	unix, is := unixOf(conn)
	if !is {
		f, payload, err = protocol.Read(conn, protocol.MaxControl)
		return f, payload, false, err
	}
	frame := make([]byte, protocol.FrameSize+protocol.HelloSize)
	if err = socket.Peek(unix, frame[:protocol.FrameSize]); err != nil {
		return f, nil, false, err
	}
	f, err = protocol.DecodeFrame(frame, protocol.MaxControl)
	if err == nil && f.Op == protocol.Hello && f.Length >= protocol.HelloSize { // a newer one may say more
		err = socket.Peek(unix, frame)
		return f, frame[protocol.FrameSize:], true, err
	}
	if err != nil {
		_, _ = io.ReadFull(conn, frame[:protocol.FrameSize]) // what is left unread could take our answer with it
		return f, nil, false, err
	}
	f, payload, err = protocol.Read(conn, protocol.MaxControl)
	return f, payload, false, err
}

// refuse says why a connection ends.
func (s *Server) refuse(c *connection, err error, handed bool) {
	r := s.refusal(err)
	s.do(func(st *state) { st.refusals++ })
	s.parts.Logger.Info("refused", "tenant", c.Tenant, "user", c.User, "from", c.From, "error", err)
	s.audit("refused", "tenant", c.Tenant, "user", c.User, "from", c.From, "code", r.ExitCode, "why", r.Message)
	_ = c.conn.SetDeadline(time.Now().Add(s.patience))
	if handed {
		_, _, _ = protocol.Read(c.conn, protocol.MaxControl)
	}
	if protocol.Write(c.conn, protocol.Refused, r.Encode()) == nil {
		_ = c.conn.CloseWrite()
	}
}

// refusal words an error for the other side.
func (s *Server) refusal(err error) *protocol.Refusal {
	if r, is := errors.AsType[*protocol.Refusal](err); is {
		return r
	}
	if errors.Is(err, protocol.ErrProtocol) || errors.Is(err, os.ErrDeadlineExceeded) {
		return &protocol.Refusal{ExitCode: exitUsage, Result: protocol.SystemNotReady, Message: err.Error(), Hint: "divvy version shows whether both sides are of one version"}
	}
	code, hint := s.parts.Explain(err)
	return &protocol.Refusal{ExitCode: code, Result: protocol.SystemNotReady, Message: err.Error(), Hint: hint}
}

// Exit codes of refusals, as docs/exit-codes.md has them.
const (
	exitUsage       = 2
	exitNotThere    = 3
	exitNotAllowed  = 4
	exitUnreachable = 5
)

func (s *Server) audit(what string, attributes ...any) {
	if s.parts.Audit != nil {
		s.parts.Audit.Info(what, attributes...)
	}
}

// Revoke ends what is open of certificates that are not good any more.
func (s *Server) Revoke(revoked func(serial string) bool) {
	s.do(func(st *state) {
		for c := range st.connections {
			if c.Serial != "" && c.close != nil && revoked(c.Serial) {
				s.audit("revoked", "tenant", c.Tenant, "user", c.User, "from", c.From, "serial", c.Serial)
				c.close()
			}
		}
	})
}
