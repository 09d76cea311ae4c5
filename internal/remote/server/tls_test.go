// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/tls"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/remote/certificates"
	"github.com/divvy-gpu/divvy/internal/remote/protocol"
)

func TestTLS(t *testing.T) {
	a, err := certificates.Init(filepath.Join(t.TempDir(), "ca"), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	bundle := func(raw []byte, err error) certificates.Bundle {
		t.Helper()
		path := filepath.Join(t.TempDir(), "b.pem")
		if err == nil {
			err = certificates.Write(path, raw)
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := certificates.ReadBundle(path)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	_, raw, err := a.IssueServer([]string{"127.0.0.1"}, 1, time.Now())
	server := bundle(raw, err)
	is, raw, err := a.IssueClient("vision", "ann", 1, time.Now())
	client := bundle(raw, err)
	l, err := ListenTLS(t.Context(), "127.0.0.1", "0", server.ServerTLS(func(string) bool { return false }))
	if err != nil {
		t.Fatal(err)
	}
	var s *Server
	if s, err = New(Default(), Parts{Explain: explain, Logger: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, l) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	address := l.(tlsListener).Addr().String()
	conn, err := tls.Dial("tcp", address, client.ClientTLS("127.0.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if st, err := protocol.AskStatus(conn); err != nil || st.Connections != 1 || st.Waiting != 0 {
		t.Errorf("%+v, %v", st, err)
	}
	c := client.ClientTLS("127.0.0.1")
	c.Certificates = nil
	if conn, err = tls.Dial("tcp", address, c); err == nil {
		_, err = protocol.AskStatus(conn)
		_ = conn.Close()
	}
	if !certificates.Refused(err) {
		t.Errorf("without a certificate: %v", err)
	}
	if is.Serial != certificates.Serial(client.Leaf) || !strings.HasPrefix(address, "127.") {
		t.Errorf("%+v", is)
	}
}
