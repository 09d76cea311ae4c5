// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func authority(t *testing.T) *Authority {
	t.Helper()
	a, err := Init(filepath.Join(t.TempDir(), "remote"), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func bundle(t *testing.T, raw []byte) Bundle {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bundle.pem")
	if err := Write(path, raw); err != nil {
		t.Fatal(err)
	}
	b, err := ReadBundle(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (a *Authority) client(t *testing.T, tenant, user string, now time.Time) (Issued, Bundle) {
	t.Helper()
	is, raw, err := a.IssueClient(tenant, user, 1, now)
	if err != nil {
		t.Fatal(err)
	}
	return is, bundle(t, raw)
}

func (a *Authority) server(t *testing.T, hosts ...string) Bundle {
	t.Helper()
	_, raw, err := a.IssueServer(hosts, 1, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return bundle(t, raw)
}

// shake has two ends say a byte to each other.
func shake(t *testing.T, client, server *tls.Config) (fromClient, fromServer error) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	done := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			secure := tls.Server(conn, server)
			if err = secure.Handshake(); err == nil {
				_, err = secure.Write([]byte{1})
			}
			_ = secure.Close()
		}
		done <- err
	}()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	secure := tls.Client(conn, client)
	defer secure.Close()
	if fromClient = secure.Handshake(); fromClient == nil {
		_, fromClient = io.ReadFull(secure, make([]byte, 1))
	} else {
		_ = conn.Close()
	}
	return fromClient, <-done
}

func TestMutual(t *testing.T) {
	a, foreign := authority(t), authority(t)
	server := a.server(t, "gpu1", "127.0.0.1")
	is, good := a.client(t, "vision", "ann", time.Now())
	tenant, user, err := Identity(good.Leaf)
	if err != nil || tenant != "vision" || user != "ann" || Serial(good.Leaf) != is.Serial {
		t.Errorf("%s/%s %s, %v", tenant, user, is.Serial, err)
	}
	_, expired := a.client(t, "vision", "ann", time.Now().AddDate(0, 0, -3))
	_, theirs := foreign.client(t, "vision", "ann", time.Now())
	none := good.ClientTLS("gpu1")
	none.Certificates = nil
	old := good.ClientTLS("gpu1")
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	silent := good.ClientTLS("gpu1")
	silent.NextProtos = nil
	revoked := ""
	for _, c := range []struct {
		name    string
		client  *tls.Config
		server  Bundle
		revoked string
		refused bool
		says    string
	}{
		{"good", good.ClientTLS("gpu1"), server, "", false, ""},
		{"by address", good.ClientTLS("127.0.0.1"), server, "", false, ""},
		{"revoked", good.ClientTLS("gpu1"), server, is.Serial, true, "is revoked"},
		{"expired", expired.ClientTLS("gpu1"), server, "", true, "expired"},
		{"none", none, server, "", true, "didn't provide a certificate"},
		{"another authority's", foreignAsOurs(theirs, good), server, "", true, "unknown authority"},
		{"a server's", clientOf(server, "gpu1"), server, "", true, "incompatible key usage"},
		{"another host's", good.ClientTLS("gpu2"), server, "", true, ""},
		{"another authority's server", good.ClientTLS("gpu1"), foreign.server(t, "gpu1"), "", true, ""},
		{"a client as a server", good.ClientTLS("gpu1"), good, "", true, ""},
		{"TLS 1.2", old, server, "", true, ""},
		{"another protocol", silent, server, "", true, `speaks "", not divvy/1`},
	} {
		revoked = c.revoked
		fromClient, fromServer := shake(t, c.client, c.server.ServerTLS(func(serial string) bool { return serial == revoked }))
		if (fromClient != nil) != c.refused || fromClient != nil && !Refused(fromClient) || c.says != "" && !strings.Contains(fromServer.Error(), c.says) {
			t.Errorf("%s: client: %v; server: %v", c.name, fromClient, fromServer)
		}
	}
	if Refused(io.EOF) || Refused(&net.OpError{Op: "read", Err: io.EOF}) {
		t.Error("a broken connection is a refused certificate")
	}
}

// foreignAsOurs trusts our server, and shows another authority's certificate.
func foreignAsOurs(theirs, ours Bundle) *tls.Config {
	c := ours.ClientTLS("gpu1")
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &theirs.Certificate, nil }
	return c
}

func clientOf(b Bundle, host string) *tls.Config { return b.ClientTLS(host) }

func TestList(t *testing.T) {
	a := authority(t)
	one, _ := a.client(t, "vision", "ann", time.Now().Add(-time.Hour))
	two, _ := a.client(t, "vision", "ann", time.Now())
	a.client(t, "vision", "bob", time.Now())
	a.server(t, "gpu1")
	if _, err := a.Revoke("vision/eve"); !errors.Is(err, ErrNotThere) {
		t.Errorf("%v", err)
	}
	taken, err := a.Revoke(one.Serial)
	if err != nil || len(taken) != 1 {
		t.Errorf("%+v, %v", taken, err)
	}
	if taken, err = a.Revoke("vision/ann"); err != nil || len(taken) != 1 || taken[0].Serial != two.Serial {
		t.Errorf("%+v, %v", taken, err)
	}
	list, err := a.List()
	if err != nil || len(list) != 4 || list[0].Serial != one.Serial {
		t.Fatalf("%+v, %v", list, err)
	}
	for _, is := range list {
		if is.Revoked != (is.User == "ann") {
			t.Errorf("%+v", is)
		}
	}
	// Nothing of it is others' to read.
	err = filepath.WalkDir(a.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestRefuses(t *testing.T) {
	a := authority(t)
	if _, err := Init(a.dir, time.Now()); !errors.Is(err, ErrExists) {
		t.Errorf("twice: %v", err)
	}
	for _, name := range []string{"", "A", "../x", "a/b", "a b", strings.Repeat("a", 64)} {
		if _, _, err := a.IssueClient(name, "u", 1, time.Now()); !errors.Is(err, ErrName) {
			t.Errorf("tenant %q: %v", name, err)
		}
		if _, _, err := a.IssueClient("t", name, 1, time.Now()); !errors.Is(err, ErrName) {
			t.Errorf("user %q: %v", name, err)
		}
	}
	for _, hosts := range [][]string{nil, {""}, {"a b"}, {"*"}} {
		if _, _, err := a.IssueServer(hosts, 1, time.Now()); !errors.Is(err, ErrName) {
			t.Errorf("hosts %q: %v", hosts, err)
		}
	}
	if _, _, err := a.IssueClient("t", "u", 0, time.Now()); !errors.Is(err, ErrName) {
		t.Errorf("no days: %v", err)
	}
	_, raw, err := a.IssueClient("t", "u", 1, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "open.pem")
	if err := os.WriteFile(path, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadBundle(path); !errors.Is(err, ErrUnsafe) {
		t.Errorf("others' to read: %v", err)
	}
}

// Whatever is in a file, a bundle that is accepted has a key, a certificate and an authority.
func FuzzBundle(f *testing.F) {
	a, err := Init(filepath.Join(f.TempDir(), "remote"), time.Now())
	if err != nil {
		f.Fatal(err)
	}
	_, raw, err := a.IssueClient("t", "u", 1, time.Now())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add(bytes.Replace(raw, a.raw, nil, 1))
	f.Fuzz(func(t *testing.T, raw []byte) {
		b, err := parseBundle("file", raw)
		if err != nil {
			return
		}
		if b.Leaf == nil || b.Certificate.PrivateKey == nil || len(b.Certificate.Certificate) != 1 {
			t.Errorf("%+v", b)
		}
		if tenant, user, err := Identity(b.Leaf); err == nil && (tenant == "" || user == "" || strings.Contains(user, "/")) {
			t.Errorf("%q %q", tenant, user)
		}
	})
}
