// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net"
	"sync"

	"github.com/divvy-gpu/divvy/internal/socket"
)

const maxAPIConnections = 2048

// apiListener accepts connections of the HTTP interface: a bounded number in
// all, and of each user a part of it. It knows who is at the other end.
type apiListener struct {
	*net.UnixListener
	limiter *limiter
	payer   func(socket.Peer) int
}

// apiConn is a connection with its peer.
type apiConn struct {
	*net.UnixConn
	peer socket.Peer
	left func() // once
}

func newAPIListener(listener *net.UnixListener, limiter *limiter, payer func(socket.Peer) int) *apiListener {
	return &apiListener{UnixListener: listener, limiter: limiter, payer: payer}
}

// Accept drops connections above the bounds, and of peers it cannot see.
func (l *apiListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		peer, err := socket.PeerOf(conn)
		if err != nil {
			_ = conn.Close()
			continue
		}
		user := l.payer(peer)
		if !l.limiter.enter(user) {
			_ = conn.Close()
			continue
		}
		return &apiConn{UnixConn: conn, peer: peer, left: sync.OnceFunc(func() { l.limiter.leave(user) })}, nil
	}
}

// Close closes the connection and gives its place back.
func (c *apiConn) Close() error {
	err := c.UnixConn.Close()
	c.left()
	return err
}
