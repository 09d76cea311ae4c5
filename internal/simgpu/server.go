// SPDX-License-Identifier: Apache-2.0

package simgpu

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/simgpu/silicon"
)

// Server is a simulator that listens.
type Server struct {
	config Config
	door   *door
	kernel *kernel
}

// Listen makes the cards and binds the socket: from here on clients can
// connect, and wait until Serve answers.
func Listen(config Config) (*Server, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("simulate: %w", err)
	}
	config = config.withDefaults()
	cards, err := silicon.ParseSpec(config.Cards, config.Seed)
	if err != nil {
		return nil, fmt.Errorf("simulate: %w", err)
	}
	driver, err := config.driver()
	if err != nil {
		return nil, fmt.Errorf("simulate: %w", err)
	}
	if config.HostBudgetBytes == 0 {
		available, err := availableBytes()
		if err != nil {
			return nil, fmt.Errorf("simulate: %w", err)
		}
		config.HostBudgetBytes = available / 2
	}
	door, err := openDoor(config.Socket, config.SocketMode)
	if err != nil {
		return nil, fmt.Errorf("simulate: %w", err)
	}
	kernel, err := newKernel(config, driver, cards)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("simulate: %w", err), door.close())
	}
	return &Server{config: config, door: door, kernel: kernel}, nil
}

// Close stops a server that never served.
func (s *Server) Close() error {
	s.kernel.close()
	return s.door.close()
}

// Serve answers until ctx is done, or, with IdleExit, until no one has been
// connected for so long. Nothing is left behind: what the processes held is
// gone, and so is the socket.
func (s *Server) Serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = s.door.listener.Close() })
	defer stop()

	var running sync.WaitGroup
	running.Go(func() {
		s.kernel.run(ctx) // ends with ctx, or ends it when idle
		cancel()
	})
	err := s.accept(ctx, &running)
	cancel()
	running.Wait()
	s.kernel.close()
	if err := errors.Join(err, s.door.close()); err != nil {
		return fmt.Errorf("simulate: %w", err)
	}
	return nil
}

// accept starts a session for each connection, at most maxConnections at once.
func (s *Server) accept(ctx context.Context, running *sync.WaitGroup) error {
	slots := make(chan struct{}, maxConnections)
	for {
		conn, err := s.door.listener.AcceptUnix()
		if ctx.Err() != nil {
			if err == nil {
				_ = conn.Close()
			}
			return nil
		}
		if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ECONNABORTED) {
			s.config.Log.Warn("accept", "error", err)
			select { // descriptors come free when clients leave
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("accept: %w", err)
		}
		select {
		case slots <- struct{}{}:
		default:
			s.config.Log.Warn("too many connections", "most", maxConnections)
			_ = conn.Close()
			continue
		}
		running.Go(func() {
			defer func() { <-slots }()
			s.converse(ctx, conn)
		})
	}
}

// converse is the life of one connection.
func (s *Server) converse(ctx context.Context, conn *net.UnixConn) {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	pid, uid, pidfd, err := peer(conn)
	if err != nil {
		s.config.Log.Debug("connection refused", "error", err)
		return
	}
	se := &session{conn: conn, pid: pid, uid: uid, pidfd: pidfd}
	select {
	case s.kernel.openings <- se:
	case <-ctx.Done():
		_ = pidfd.Close()
		return
	}
	cause := se.serve(ctx, s.kernel.requests)
	// The kernel answers nothing more on this connection, so it may go first:
	// the client sees its end at once.
	_ = conn.Close()
	s.kernel.endings <- ending{session: se, cause: cause}
}
