// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"sync"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/socket"
)

const maxAPIConnections = 2048

// apiListener is where the server of the HTTP interface gets its connections from: a
// bounded number in all, and of each user a part of it.
type apiListener struct {
	*daemon
	in     chan net.Conn
	closed chan struct{}
	close  func() // once
}

// apiConn is a connection with its peer.
type apiConn struct {
	*net.UnixConn
	asker asker
	left  func() // once
}

// asker is who asks, and the user whose connections and turns that counts as.
type asker struct {
	socket.Peer
	payer    int
	operator bool // is in the group of those who may do what root may
}

func (d *daemon) newAPIListener(ctx context.Context) *apiListener {
	l := &apiListener{daemon: d, in: make(chan net.Conn), closed: make(chan struct{})}
	l.close = sync.OnceFunc(func() {
		_ = d.api.Close()
		close(l.closed)
	})
	d.task(func() { d.accept(ctx, d.api, busyAnswer(), l.serve) })
	return l
}

func (l *apiListener) serve(accepted acceptedConn, payer int) {
	if !l.conns.enter(payer) {
		l.audit.noteTurnedAway(accepted.Peer, payer, viaAPI, "")
		accepted.Refuse(accepted.refuse)
		return
	}
	conn, err := accepted.Conn()
	if err != nil {
		l.conns.leave(payer)
		l.cfg.Logger.Warn("accept", "error", err)
		return
	}
	c := &apiConn{conn, asker{accepted.Peer, payer, l.operator(conn, accepted.Peer)}, sync.OnceFunc(func() { l.conns.leave(payer) })}
	select {
	case l.in <- c: // the server does nothing else but take it
	case <-l.closed:
		_ = c.Close()
	}
}

// operator says whether who connected is in the group of operators.
func (l *apiListener) operator(conn *net.UnixConn, peer socket.Peer) bool {
	if l.cfg.Operators == 0 {
		return false
	}
	is, err := socket.InGroup(conn, peer, l.cfg.Operators)
	if err != nil {
		l.cfg.Logger.Warn("accept", "error", err)
	}
	return is && err == nil
}

// Accept returns the next connection.
func (l *apiListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.in:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept.
func (l *apiListener) Close() error {
	l.close()
	return nil
}

// Addr is for the server's own use.
func (l *apiListener) Addr() net.Addr {
	return &net.UnixAddr{Name: l.cfg.APISocket(), Net: "unix"}
}

// Close closes the connection and counts it no more.
func (c *apiConn) Close() error {
	err := c.UnixConn.Close()
	c.left()
	return err
}

// busyAnswer is what is said to a user who has too many connections, before anything is
// read.
func busyAnswer() []byte {
	body, _ := json.Marshal(&api.Error{Code: api.CodeUnavailable, Message: "this user has too many connections to the agent",
		Hint: "ask again when some have ended", Busy: true}) // which has no field that could fail
	return fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s",
		http.StatusServiceUnavailable, http.StatusText(http.StatusServiceUnavailable), len(body), body)
}
