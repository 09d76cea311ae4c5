// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"strconv"
	"time"

	"github.com/divvy-gpu/divvy/internal/remote/pipe"
	"github.com/divvy-gpu/divvy/internal/socket"
)

// Identity is who is at the other end.
type Identity struct {
	Tenant string // empty: as the configuration has it for a user of this machine
	User   string
	UID    int       // of a user of this machine; -1: known by a certificate
	Serial string    // of the certificate
	From   string    // address, or a process of this machine
	Until  time.Time // when the certificate expires; zero: there is none
}

// same says whether two connections are of the same holder of a certificate, or of the same
// user of this machine.
func (i Identity) same(other Identity) bool {
	return i.Tenant == other.Tenant && i.User == other.User && i.UID == other.UID && i.Serial == other.Serial
}

// Listener is where connections come in.
type Listener interface {
	Accept() (Incoming, error) // after Close: net.ErrClosed
	Close() error
}

// Incoming is a connection of somebody who is not known yet. Either Open or Close is called.
type Incoming interface {
	Address() string // whose connections count together
	Open(ctx context.Context) (pipe.End, Identity, error)
	Close()
}

// unixListener accepts users of this machine.
type unixListener struct{ *socket.Listener }

// ListenUnix listens on a unix socket, where users are known by their number.
func ListenUnix(path string, mode fs.FileMode) (Listener, error) {
	l, err := socket.Listen(socket.Stream, path, mode)
	if err != nil {
		return nil, err
	}
	return unixListener{l}, nil
}

func (l unixListener) Accept() (Incoming, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return unixIncoming{accepted}, nil
}

type unixIncoming struct{ socket.Accepted }

func (i unixIncoming) Address() string { return "uid " + strconv.Itoa(i.Peer.UID) }

func (i unixIncoming) Open(context.Context) (pipe.End, Identity, error) {
	conn, err := i.Conn()
	if err != nil {
		return nil, Identity{}, err
	}
	return conn, Identity{
		User: "uid-" + strconv.Itoa(i.Peer.UID), UID: i.Peer.UID, From: fmt.Sprintf("process %d", i.Peer.PID),
	}, nil
}

// unixOf is a connection of this machine, which a worker can be handed as it is.
func unixOf(conn net.Conn) (*net.UnixConn, bool) {
	u, is := conn.(*net.UnixConn)
	return u, is
}
