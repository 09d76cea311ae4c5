// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/divvy-gpu/divvy/internal/remote/certificates"
	"github.com/divvy-gpu/divvy/internal/remote/pipe"
)

// tlsListener accepts holders of certificates.
type tlsListener struct {
	net.Listener
	config *tls.Config
}

// ListenTLS listens on a port, where users are known by their certificates.
func ListenTLS(ctx context.Context, host, port string, config *tls.Config) (Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, err
	}
	return tlsListener{l, config}, nil
}

func (l tlsListener) Accept() (Incoming, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return tlsIncoming{conn, l.config}, nil
}

type tlsIncoming struct {
	net.Conn
	config *tls.Config
}

func (i tlsIncoming) Close() { _ = i.Conn.Close() }

func (i tlsIncoming) Address() string {
	host, _, err := net.SplitHostPort(i.RemoteAddr().String())
	if err != nil {
		return i.RemoteAddr().String()
	}
	return host
}

// Open shakes hands, and says whose certificate it is.
func (i tlsIncoming) Open(ctx context.Context) (pipe.End, Identity, error) {
	fail := func(err error) (pipe.End, Identity, error) {
		i.Close()
		return nil, Identity{}, err
	}
	if err := pipe.Watch(i.Conn, true); err != nil {
		return fail(err)
	}
	conn := tls.Server(pipe.NewBatch(i.Conn), i.config)
	if err := conn.HandshakeContext(ctx); err != nil {
		hear(i.Conn)
		return fail(fmt.Errorf("handshake: %w", err))
	}
	cert := conn.ConnectionState().PeerCertificates[0] // the configuration demands one
	tenant, user, err := certificates.Identity(cert)
	if err != nil {
		return fail(err)
	}
	return conn, Identity{Until: cert.NotAfter, Tenant: tenant, User: user, UID: -1, Serial: certificates.Serial(cert), From: i.RemoteAddr().String()}, nil
}

// hear takes what a client sends that does not know yet that it is refused: left unread, it
// could take the reason with it.
func hear(conn net.Conn) {
	if tcp, is := conn.(*net.TCPConn); is && tcp.CloseWrite() == nil && tcp.SetReadDeadline(time.Now().Add(hearTime)) == nil {
		_, _ = io.CopyN(io.Discard, tcp, hearBytes)
	}
}

// Bounds of what is heard of who is refused.
const (
	hearTime  = time.Second
	hearBytes = 1 << 20
)
