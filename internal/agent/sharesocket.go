// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/core"
	"github.com/divvy-gpu/divvy/internal/socket"
	"github.com/divvy-gpu/divvy/internal/wire"
)

// Names in the descriptor store.
const (
	apiKey         = "agent"
	shareKeyPrefix = "share "
)

func shareKey(name string) string { return shareKeyPrefix + name }

func shareOfKey(key string) (name string, ok bool) { return strings.CutPrefix(key, shareKeyPrefix) }

// shareSocket is where the processes of a share attach.
type shareSocket struct {
	listener *socket.Listener // the loop's only to close
	limits   *wire.LimitsPage
}

func (s *shareSocket) close() {
	_ = s.listener.Close()
	s.limits.Close()
}

// openShare makes the socket and the limits page of a share, or takes over the
// socket that an earlier agent had opened.
func (l *loop) openShare(name string, kept *os.File) error {
	if err := l.cfg.makeShareFolder(name); err != nil {
		return err
	}
	path := l.cfg.ShareSocket(name)
	listener, err := l.listen(socket.Packet, shareKey(name), path, l.cfg.ShareSocketMode, kept)
	if err != nil {
		return err
	}
	limits, err := wire.NewLimitsPage(name)
	if err != nil {
		_ = listener.Close()
		return err
	}
	l.sockets[name] = &shareSocket{listener, limits}
	l.writeLimits(name)
	l.begin(func(ctx context.Context, d *daemon) { d.acceptClients(ctx, name, listener) })
	return nil
}

// makeShareFolder makes the folder of a share's socket.
func (c Config) makeShareFolder(name string) error {
	path := c.ShareSocket(name)
	if len(path) > socket.MaxPathBytes {
		return &core.Failure{Kind: core.Usage, Hint: "a shorter name",
			Message: fmt.Sprintf("the path of the share's socket, %s, is longer than a socket's may be", path)}
	}
	return socket.MakeFolder(filepath.Dir(path), c.folderMode())
}

func (c Config) folderMode() fs.FileMode {
	if c.Private {
		return 0o700
	}
	return 0o755
}

func (c Config) apiMode() fs.FileMode {
	if c.Private {
		return 0o600
	}
	return 0o666
}

// listen takes over a kept socket if its path still leads to it, else makes a
// new one and stores it.
func (l *loop) listen(kind socket.Kind, key, path string, mode fs.FileMode, kept *os.File) (*socket.Listener, error) {
	if kept != nil {
		if listener, err := socket.ListenerOf(kept); err == nil {
			if _, err := os.Lstat(path); err == nil {
				return listener, nil
			}
			_ = listener.Close()
		}
	}
	listener, err := socket.Listen(kind, path, mode)
	if err != nil || l.store == nil {
		return listener, err
	}
	file, err := listener.File()
	if err == nil {
		err = l.store.Put(key, file)
		_ = file.Close()
	}
	if err != nil {
		// Without it a crash would cost a moment; serving goes on.
		l.cfg.Logger.Warn("store descriptor", "socket", path, "error", err)
	}
	return listener, nil
}

// removeSocket closes a share's socket and takes its path away.
func (l *loop) removeSocket(name string) {
	if s := l.sockets[name]; s != nil {
		s.close()
		delete(l.sockets, name)
	}
	l.withdraw(name)
	l.dropSocket(name)
}

func (l *loop) dropSocket(name string) {
	if l.store != nil {
		_ = l.store.Drop(shareKey(name))
	}
	path := l.cfg.ShareSocket(name)
	for _, p := range []string{path, filepath.Dir(path)} {
		if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			l.cfg.Logger.Warn("remove socket", "path", p, "error", err)
			return
		}
	}
}

// acceptClients serves the connections of a share until its socket is closed.
func (d *daemon) acceptClients(ctx context.Context, share string, listener *socket.Listener) {
	slots := make(chan struct{}, d.cfg.MaxShareClients+pendingHandshakes)
	d.accept(ctx, listener, nil, func(accepted acceptedConn, payer int) {
		// More connections than there may be clients: somebody opens them
		// without end.
		if !enter(slots) {
			d.audit.noteTurnedAway(accepted.Peer, payer, viaShare, share)
			accepted.Close()
			return
		}
		if !d.attachments.enter(payer) {
			d.audit.noteTurnedAway(accepted.Peer, payer, viaShare, share)
			leave(slots)
			accepted.Close()
			return
		}
		left := func() {
			d.attachments.leave(payer)
			leave(slots)
		}
		d.task(func() {
			conn, err := accepted.Conn()
			if err != nil {
				d.cfg.Logger.Warn("accept", "share", share, "error", err)
				left()
				return
			}
			c := &connection{daemon: d, share: share, conn: conn, payer: payer, actor: api.AuditActor{UID: accepted.Peer.UID, PID: accepted.Peer.PID, Via: viaShare}, ended: make(chan struct{})}
			c.serve(ctx, left)
		})
	})
}

// enter takes a part of what there is room for, if there is any.
func enter(room chan struct{}) bool {
	select {
	case room <- struct{}{}:
		return true
	default:
		return false
	}
}

func leave(room chan struct{}) { <-room }

const pendingHandshakes = 256 // per share
