// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// authority signs the cluster's certificates; its folder holds all of them.
type authority struct {
	folder      string
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
	serial      int64
}

func newAuthority(folder string) (*authority, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	a := &authority{folder: folder}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "divvy test cluster"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	raw, err := a.sign("ca", template)
	if err != nil {
		return nil, err
	}
	a.certificate, err = x509.ParseCertificate(raw)
	return a, err
}

// sign writes NAME.crt and NAME.key.
func (a *authority) sign(name string, template *x509.Certificate) ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	a.serial++
	template.SerialNumber = big.NewInt(a.serial)
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(30*24*time.Hour)
	parent, signer := a.certificate, a.key
	if parent == nil {
		parent, signer = template, key
		a.key = key
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		return nil, err
	}
	if err := a.write(name+".crt", "CERTIFICATE", raw); err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return raw, a.write(name+".key", "PRIVATE KEY", private)
}

func (a *authority) write(name, kind string, raw []byte) error {
	return os.WriteFile(filepath.Join(a.folder, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw}), 0o600)
}

// server is a certificate for the API server's names and addresses.
func (a *authority) server(name string, names []string, addresses ...string) error {
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: names,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, address := range addresses {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(address))
	}
	_, err := a.sign(name, template)
	return err
}

// client is a certificate for a user, and a kubeconfig that has it.
func (a *authority) client(name, user, group string) error {
	template := &x509.Certificate{
		Subject:  pkix.Name{CommonName: user},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if group != "" {
		template.Subject.Organization = []string{group}
	}
	if _, err := a.sign(name, template); err != nil {
		return err
	}
	data := map[string]string{}
	for _, file := range []string{"ca.crt", name + ".crt", name + ".key"} {
		raw, err := os.ReadFile(filepath.Join(a.folder, file))
		if err != nil {
			return err
		}
		data[file] = base64.StdEncoding.EncodeToString(raw)
	}
	credentials := fmt.Sprintf("client-certificate-data: %s, client-key-data: %s", data[name+".crt"], data[name+".key"])
	return os.WriteFile(filepath.Join(a.folder, name+".kubeconfig"), kubeconfig(data["ca.crt"], credentials), 0o600)
}

// kubeconfig leads to the API server as a user.
func kubeconfig(authority, user string) []byte {
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://%s", certificate-authority-data: %s}}]
users: [{name: u, user: {%s}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`, apiAddress, authority, user)
}

// all makes what the components need.
func (a *authority) all() error {
	names := []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost"}
	if err := a.server("apiserver", names, "127.0.0.1", nodeAddress, serviceAddress); err != nil {
		return err
	}
	for _, c := range [][3]string{
		{"admin", "admin", "system:masters"},
		{"scheduler", "system:kube-scheduler", ""},
		{"controller-manager", "system:kube-controller-manager", ""},
		{"kubelet", "system:node:" + nodeName, "system:nodes"},
	} {
		if err := a.client(c[0], c[1], c[2]); err != nil {
			return err
		}
	}
	// Service accounts' tokens: a pair of keys of their own.
	if _, err := a.sign("sa", &x509.Certificate{Subject: pkix.Name{CommonName: "service accounts"}}); err != nil {
		return err
	}
	return nil
}
