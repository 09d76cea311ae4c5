// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net"
	"sync"

	"github.com/divvy-gpu/divvy/internal/socket"
)

const (
	maxAPIConnections = 2048
	maxUserPart       = 2 // one user but root gets at most one part in so many of them
)

// apiListener accepts connections of the HTTP interface: a bounded number in
// all, and of each user a part of it. It knows who is at the other end.
type apiListener struct {
	*net.UnixListener
	places chan struct{}

	mutex sync.Mutex // guards users
	users map[int]int
}

// apiConn is a connection with its peer.
type apiConn struct {
	*net.UnixConn
	peer socket.Peer
	left func() // once
}

func newAPIListener(listener *net.UnixListener, places chan struct{}) *apiListener {
	return &apiListener{UnixListener: listener, places: places, users: map[int]int{}}
}

// Accept drops connections above the bounds, and of peers it cannot see.
func (l *apiListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		peer, err := socket.PeerOf(conn)
		if err != nil || !l.enter(peer.UID) {
			_ = conn.Close()
			continue
		}
		return &apiConn{UnixConn: conn, peer: peer, left: sync.OnceFunc(func() { l.leave(peer.UID) })}, nil
	}
}

func (l *apiListener) enter(uid int) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if uid != 0 && l.users[uid] >= cap(l.places)/maxUserPart || !enter(l.places) {
		return false
	}
	l.users[uid]++
	return true
}

func (l *apiListener) leave(uid int) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	leave(l.places)
	if l.users[uid]--; l.users[uid] == 0 {
		delete(l.users, uid)
	}
}

// Close closes the connection and gives its place back.
func (c *apiConn) Close() error {
	err := c.UnixConn.Close()
	c.left()
	return err
}
