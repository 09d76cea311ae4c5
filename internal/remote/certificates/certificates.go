// SPDX-License-Identifier: Apache-2.0

// Package certificates makes and checks the certificates by which servers of remote calls and
// those who use them know each other. An authority is a folder of its administrator's alone:
//
//	ca.pem, ca.key      the authority itself
//	issued/SERIAL.json  what it has issued
//	revoked/SERIAL      what is not good any more
//	server.pem          a server's certificate, its key and the authority's certificate
//
// A client's certificate names its tenant and user by a URI, divvy://tenant/NAME/USER, and is
// good for nothing else; a server's names its hosts. Keys are ed25519. Each file is made
// once and never changed, so that there is nothing to lock.
package certificates

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/share"
)

// Errors of this package.
var (
	ErrExists   = errors.New("there is an authority already")
	ErrNotThere = errors.New("no such certificate")
	ErrName     = errors.New("not a name")
	ErrUnsafe   = errors.New("others can read it")
)

// Protocol is what TLS connections agree to speak.
const Protocol = "divvy/1"

const (
	authorityYears = 10
	backdated      = 5 * time.Minute // clocks differ
	maxFileBytes   = 64 << 10
	maxIssued      = 100_000
	maxDays        = 3650
)

// Authority issues certificates.
type Authority struct {
	dir  string
	cert *x509.Certificate
	raw  []byte // of cert, as PEM
	key  ed25519.PrivateKey
}

// Issued is a certificate that an authority has issued.
type Issued struct {
	Serial  string    `json:"serial"`
	Kind    string    `json:"kind"` // client or server
	Tenant  string    `json:"tenant,omitempty"`
	User    string    `json:"user,omitempty"`
	Hosts   []string  `json:"hosts,omitempty"`
	Issued  time.Time `json:"issued"`
	Expires time.Time `json:"expires"`
	Revoked bool      `json:"revoked"`
}

// Kinds of certificates.
const (
	KindClient = "client"
	KindServer = "server"
)

// Init makes an authority in a folder, which is made too.
func Init(dir string, now time.Time) (*Authority, error) {
	for _, folder := range []string{dir, filepath.Join(dir, "issued"), filepath.Join(dir, "revoked")} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return nil, fmt.Errorf("make an authority: %w", err)
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, "ca.pem")); err == nil {
		return nil, fmt.Errorf("make an authority: %w: %s", ErrExists, filepath.Join(dir, "ca.pem"))
	}
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make an authority: %w", err)
	}
	serial, _ := newSerial()
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "Divvy"}, NotBefore: now.Add(-backdated), NotAfter: now.AddDate(authorityYears, 0, 0),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, key)
	if err == nil {
		err = writeNew(filepath.Join(dir, "ca.key"), keyPEM(key))
	}
	if err == nil {
		err = writeNew(filepath.Join(dir, "ca.pem"), certPEM(der))
	}
	if errors.Is(err, fs.ErrExist) {
		err = fmt.Errorf("%w: %w", ErrExists, err)
	}
	if err != nil {
		return nil, fmt.Errorf("make an authority: %w", err)
	}
	return Open(dir)
}

// Open opens the authority in a folder.
func Open(dir string) (*Authority, error) {
	raw, err := readFile(filepath.Join(dir, "ca.pem"), false)
	if err != nil {
		return nil, fmt.Errorf("open the authority: %w", err)
	}
	secret, err := readFile(filepath.Join(dir, "ca.key"), true)
	if err != nil {
		return nil, fmt.Errorf("open the authority: %w", err)
	}
	pair, err := tls.X509KeyPair(raw, secret)
	if err != nil {
		return nil, fmt.Errorf("open the authority %s: %w", dir, err)
	}
	key, is := pair.PrivateKey.(ed25519.PrivateKey)
	if !is || pair.Leaf == nil || !pair.Leaf.IsCA {
		return nil, fmt.Errorf("open the authority %s: not one of ours", dir)
	}
	return &Authority{dir: dir, cert: pair.Leaf, raw: raw, key: key}, nil
}

// IssueClient issues the certificate of a tenant's user: certificate, authority and key in one
// text, to be kept secret.
func (a *Authority) IssueClient(tenant, user string, days int, now time.Time) (Issued, []byte, error) {
	for what, name := range map[string]string{"tenant": tenant, "user": user} {
		if share.CheckName(name) != nil {
			return Issued{}, nil, fmt.Errorf("%w: %s %q is not made of a-z, 0-9, '-', '_' and '.', letter or digit first", ErrName, what, name)
		}
	}
	uri := &url.URL{Scheme: "divvy", Host: "tenant", Path: "/" + tenant + "/" + user}
	return a.issue(Issued{Kind: KindClient, Tenant: tenant, User: user}, days, now, &x509.Certificate{
		Subject: pkix.Name{CommonName: tenant + "/" + user}, URIs: []*url.URL{uri}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// IssueServer issues the certificate of a server that is reached by these names or addresses,
// in the same form.
func (a *Authority) IssueServer(hosts []string, days int, now time.Time) (Issued, []byte, error) {
	if len(hosts) == 0 || len(hosts) > 64 {
		return Issued{}, nil, fmt.Errorf("%w: a server has 1 to 64 of them", ErrName)
	}
	template := &x509.Certificate{Subject: pkix.Name{CommonName: hosts[0]}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
			continue
		}
		if host == "" || len(host) > 253 || strings.ContainsFunc(host, func(r rune) bool {
			return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.')
		}) {
			return Issued{}, nil, fmt.Errorf("%w: host %q", ErrName, host)
		}
		template.DNSNames = append(template.DNSNames, host)
	}
	return a.issue(Issued{Kind: KindServer, Hosts: hosts}, days, now, template)
}

func (a *Authority) issue(is Issued, days int, now time.Time, template *x509.Certificate) (Issued, []byte, error) {
	fail := func(err error) (Issued, []byte, error) {
		return Issued{}, nil, fmt.Errorf("issue a certificate: %w", err)
	}
	if days < 1 || days > maxDays {
		return fail(fmt.Errorf("%w: for %d days, not 1 to %d", ErrName, days, maxDays))
	}
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return fail(err)
	}
	number, serial := newSerial()
	template.SerialNumber, template.NotBefore, template.NotAfter = number, now.Add(-backdated), now.AddDate(0, 0, days)
	template.KeyUsage, template.BasicConstraintsValid = x509.KeyUsageDigitalSignature, true
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, public, a.key)
	if err != nil {
		return fail(err)
	}
	is.Serial, is.Issued, is.Expires = serial, now.UTC().Truncate(time.Second), template.NotAfter.UTC().Truncate(time.Second)
	record, err := json.Marshal(is)
	if err == nil {
		err = writeNew(filepath.Join(a.dir, "issued", serial+".json"), append(record, '\n'))
	}
	if err != nil {
		return fail(err)
	}
	return is, slices.Concat(certPEM(der), a.raw, keyPEM(key)), nil
}

// List is what the authority has issued, the oldest first.
func (a *Authority) List() ([]Issued, error) {
	entries, err := os.ReadDir(filepath.Join(a.dir, "issued"))
	if err != nil {
		return nil, fmt.Errorf("list certificates: %w", err)
	}
	if len(entries) > maxIssued {
		return nil, fmt.Errorf("list certificates: more than %d", maxIssued)
	}
	revoked, err := Revoked(a.dir)
	if err != nil {
		return nil, err
	}
	all := []Issued{}
	for _, entry := range entries {
		raw, err := readFile(filepath.Join(a.dir, "issued", entry.Name()), false)
		if err != nil {
			return nil, fmt.Errorf("list certificates: %w", err)
		}
		var is Issued
		if err := json.Unmarshal(raw, &is); err != nil {
			return nil, fmt.Errorf("list certificates: %s: %w", entry.Name(), err)
		}
		is.Revoked = revoked[is.Serial]
		all = append(all, is)
	}
	slices.SortFunc(all, func(x, y Issued) int {
		if c := x.Issued.Compare(y.Issued); c != 0 {
			return c
		}
		return strings.Compare(x.Serial, y.Serial)
	})
	return all, nil
}

// Revoke takes certificates back: one by its serial number, or all of TENANT/USER. It returns
// those that were good until now.
func (a *Authority) Revoke(which string) ([]Issued, error) {
	all, err := a.List()
	if err != nil {
		return nil, err
	}
	var taken []Issued
	found := false
	for _, is := range all {
		if which != is.Serial && (is.Kind != KindClient || which != is.Tenant+"/"+is.User) {
			continue
		}
		found = true
		if is.Revoked {
			continue
		}
		if err := writeNew(filepath.Join(a.dir, "revoked", is.Serial), nil); err != nil && !errors.Is(err, fs.ErrExist) {
			return taken, fmt.Errorf("revoke %s: %w", is.Serial, err)
		}
		is.Revoked = true
		taken = append(taken, is)
	}
	if !found {
		return nil, fmt.Errorf("revoke: %w: %s", ErrNotThere, which)
	}
	return taken, nil
}

// Revoked is the serial numbers that are not good any more, in an authority's folder or a
// copy of its folder revoked.
func Revoked(dir string) (map[string]bool, error) {
	entries, err := os.ReadDir(filepath.Join(dir, "revoked"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read what is revoked: %w", err)
	}
	revoked := map[string]bool{}
	for _, entry := range entries {
		revoked[entry.Name()] = true
	}
	return revoked, nil
}

// Bundle is one end's certificate and key, and whom it trusts.
type Bundle struct {
	Certificate tls.Certificate
	Authority   *x509.CertPool
	Leaf        *x509.Certificate
}

// ReadBundle reads what IssueClient or IssueServer made, from a file of its owner's alone.
func ReadBundle(path string) (Bundle, error) {
	raw, err := readFile(path, true)
	if err != nil {
		return Bundle{}, fmt.Errorf("read a certificate: %w", err)
	}
	return parseBundle(path, raw)
}

func parseBundle(path string, raw []byte) (Bundle, error) {
	pair, err := tls.X509KeyPair(raw, raw)
	if err != nil {
		return Bundle{}, fmt.Errorf("read a certificate: %s: %w", path, err)
	}
	if len(pair.Certificate) != 2 {
		return Bundle{}, fmt.Errorf("read a certificate: %s has %d certificates, not its own and its authority's", path, len(pair.Certificate))
	}
	authority, err := x509.ParseCertificate(pair.Certificate[1])
	if err != nil || !authority.IsCA {
		return Bundle{}, fmt.Errorf("read a certificate: %s has none of an authority", path)
	}
	pair.Certificate = pair.Certificate[:1]
	b := Bundle{Certificate: pair, Authority: x509.NewCertPool(), Leaf: pair.Leaf}
	b.Authority.AddCert(authority)
	return b, nil
}

// Serial is how a certificate's number is written.
func Serial(cert *x509.Certificate) string { return fmt.Sprintf("%032x", cert.SerialNumber) }

// Identity is whom a client's certificate names.
func Identity(cert *x509.Certificate) (tenant, user string, err error) {
	if len(cert.URIs) != 1 {
		return "", "", fmt.Errorf("%w: a certificate with %d URIs", ErrName, len(cert.URIs))
	}
	uri := cert.URIs[0]
	tenant, user, found := strings.Cut(strings.TrimPrefix(uri.Path, "/"), "/")
	if !found || uri.String() != "divvy://tenant/"+tenant+"/"+user || share.CheckName(tenant) != nil || share.CheckName(user) != nil {
		return "", "", fmt.Errorf("%w: URI %.80q", ErrName, uri.String())
	}
	return tenant, user, nil
}

// ServerTLS is how a server with a bundle speaks. revoked says which certificates are not
// good any more.
func (b Bundle) ServerTLS(revoked func(serial string) bool) *tls.Config {
	return &tls.Config{
		Certificates: []tls.Certificate{b.Certificate}, MinVersion: tls.VersionTLS13, NextProtos: []string{Protocol}, DynamicRecordSizingDisabled: true,
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: b.Authority, SessionTicketsDisabled: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			if s.NegotiatedProtocol != Protocol {
				return fmt.Errorf("it speaks %.20q, not %s", s.NegotiatedProtocol, Protocol)
			}
			if _, _, err := Identity(s.PeerCertificates[0]); err != nil {
				return err
			}
			if serial := Serial(s.PeerCertificates[0]); revoked(serial) {
				return fmt.Errorf("certificate %s is revoked", serial)
			}
			return nil
		},
	}
}

// ClientTLS is how a client with a bundle speaks to a host.
func (b Bundle) ClientTLS(host string) *tls.Config {
	return &tls.Config{
		Certificates: []tls.Certificate{b.Certificate}, MinVersion: tls.VersionTLS13, NextProtos: []string{Protocol}, DynamicRecordSizingDisabled: true, RootCAs: b.Authority, ServerName: host,
	}
}

// Refused says whether a TLS connection failed because one end does not take the other's
// certificate.
func Refused(err error) bool {
	if _, is := errors.AsType[*tls.CertificateVerificationError](err); is {
		return true
	}
	failed, is := errors.AsType[*net.OpError](err)
	return is && failed.Op == "remote error"
}

// newSerial makes a number that no other certificate has.
func newSerial() (*big.Int, string) {
	var raw [16]byte
	_, _ = rand.Read(raw[:]) // it never fails
	raw[0] &= 0x7f           // positive, of a fixed length
	raw[0] |= 0x40
	n := new(big.Int).SetBytes(raw[:])
	return n, fmt.Sprintf("%032x", n)
}

func certPEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func keyPEM(key ed25519.PrivateKey) []byte {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		panic(err) // of an ed25519 key it cannot fail
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// Write puts a bundle into a new file of its owner's alone.
func Write(path string, bundle []byte) error { return writeNew(path, bundle) }

func writeNew(path string, data []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		_ = os.Remove(path)
	}
	return err
}

// readFile reads a small file; a secret one must be its owner's alone.
func readFile(path string, secret bool) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if secret && info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s: %w: chmod 600 %s", path, ErrUnsafe, path)
	}
	raw, err := io.ReadAll(io.LimitReader(file, maxFileBytes+1))
	if err == nil && len(raw) > maxFileBytes {
		err = fmt.Errorf("%s: longer than %d bytes", path, maxFileBytes)
	}
	return raw, err
}
