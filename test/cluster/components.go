// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

const (
	apiAddress = "127.0.0.1:6443"
	kubeletDir = "/var/lib/kubelet"
)

// start brings everything up, the slow things first, and returns when the node is ready.
func (n *node) start() error {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	a, err := newAuthority(n.at("pki"))
	if err != nil {
		return err
	}
	if err := a.all(); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{n.startStore, n.startAPI, n.startRuntime, n.startControllers, n.startDivvy, n.startKubelet, n.startNodePart} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (n *node) program(name string) string { return filepath.Join(n.components, name) }

// startStore starts etcd. Nothing of a cluster for tests outlives a power cut.
func (n *node) startStore(context.Context) error {
	return n.run("etcd", n.program("etcd"), "--data-dir", n.at("etcd"), "--unsafe-no-fsync",
		"--listen-client-urls", "http://127.0.0.1:2379", "--advertise-client-urls", "http://127.0.0.1:2379",
		"--listen-peer-urls", "http://127.0.0.1:2380", "--initial-advertise-peer-urls", "http://127.0.0.1:2380",
		"--initial-cluster", "default=http://127.0.0.1:2380")
}

func (n *node) startAPI(context.Context) error {
	pki := func(name string) string { return n.at("pki", name) }
	return n.run("kube-apiserver", n.program("kube-apiserver"), "--etcd-servers=http://127.0.0.1:2379",
		"--bind-address=127.0.0.1", "--secure-port=6443", "--advertise-address="+nodeAddress,
		"--tls-cert-file="+pki("apiserver.crt"), "--tls-private-key-file="+pki("apiserver.key"), "--client-ca-file="+pki("ca.crt"),
		"--service-account-key-file="+pki("sa.crt"), "--service-account-signing-key-file="+pki("sa.key"),
		"--service-account-issuer=https://kubernetes.default.svc", "--service-cluster-ip-range=10.96.0.0/16",
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--kubelet-client-certificate="+pki("admin.crt"), "--kubelet-client-key="+pki("admin.key"),
		"--kubelet-certificate-authority=", "--allow-privileged=true",
		// Names of nodes are in no DNS here.
		"--kubelet-preferred-address-types=InternalIP", "--endpoint-reconciler-type=lease",
		// There is no kube-proxy: webhooks are reached at their endpoints.
		"--enable-aggregator-routing=true", "--runtime-config=api/all=true")
}

func (n *node) startControllers(ctx context.Context) error {
	if err := n.until(ctx, "the API server", "kube-apiserver", func() error { return n.get(ctx, "/readyz", nil) }); err != nil {
		return err
	}
	pki := func(name string) string { return n.at("pki", name) }
	access := func(name string) []string {
		file := pki(name + ".kubeconfig")
		return []string{"--kubeconfig=" + file, "--authentication-kubeconfig=" + file, "--authorization-kubeconfig=" + file,
			"--leader-elect=false", "--bind-address=127.0.0.1"}
	}
	manager := append([]string{n.program("kube-controller-manager")}, access("controller-manager")...)
	manager = append(manager, "--use-service-account-credentials", "--service-account-private-key-file="+pki("sa.key"),
		"--root-ca-file="+pki("ca.crt"), "--cluster-signing-cert-file="+pki("ca.crt"), "--cluster-signing-key-file="+pki("ca.key"))
	scheduler := append([]string{n.program("kube-scheduler")}, access("scheduler")...)
	return errors.Join(n.run("kube-controller-manager", manager...), n.run("kube-scheduler", scheduler...))
}

// startRuntime starts containerd with runc and a bridge, and imports the images.
func (n *node) startRuntime(ctx context.Context) error {
	snapshotter := "overlayfs"
	var fs unix.Statfs_t
	if err := unix.Statfs(n.folder, &fs); err != nil {
		return err
	}
	if fs.Type == unix.OVERLAYFS_SUPER_MAGIC {
		snapshotter = "native" // overlays cannot be stacked so
	}
	files := map[string]string{
		"containerd.toml": fmt.Sprintf(`version = 3
[plugins."io.containerd.cri.v1.images"]
  snapshotter = %q
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "divvy.local/pause:1"
[plugins."io.containerd.cri.v1.runtime"]
  enable_cdi = true
  # Without CAP_SYS_RESOURCE nobody may lower it.
  restrict_oom_score_adj = true
  cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]
[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = [%q]
  conf_dir = %q
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
  SystemdCgroup = false
  BinaryName = %q
`, snapshotter, n.components, n.at("cni"), n.program("runc")),
		"cni/10-bridge.conflist": `{"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "bridge", "bridge": "cni0",
 "isGateway": true, "ipMasq": false, "hairpinMode": true, "ipam": {"type": "host-local",
 "ranges": [[{"subnet": "10.88.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}], "dataDir": "/run/cni-addresses"}}]}
`,
		"kubelet.yaml": fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: %q}}
authorization: {mode: Webhook}
address: 0.0.0.0
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
resolvConf: ""
failSwapOn: false
maxPods: 200
# A pod whose share could not be made, since something was just starting, is tried again after so long.
syncFrequency: 10s
shutdownGracePeriod: 0s
evictionHard: {memory.available: "0%%", nodefs.available: "0%%", imagefs.available: "0%%", nodefs.inodesFree: "0%%", imagefs.inodesFree: "0%%"}
`, n.at("pki", "ca.crt")),
	}
	for name, text := range files {
		if err := errors.Join(os.MkdirAll(filepath.Dir(n.at(name)), 0o755), os.WriteFile(n.at(name), []byte(text), 0o644)); err != nil {
			return err
		}
	}
	if err := n.run("containerd", n.program("containerd"), "--config", n.at("containerd.toml")); err != nil {
		return err
	}
	if err := n.until(ctx, "containerd", "containerd", func() error {
		return exec.CommandContext(ctx, n.program("ctr"), "version").Run()
	}); err != nil {
		return err
	}
	archives, err := filepath.Glob(filepath.Join(n.images, "*.tar"))
	if err != nil {
		return err
	}
	for _, archive := range archives {
		text, err := exec.CommandContext(ctx, n.program("ctr"), "-n", "k8s.io", "images", "import", "--snapshotter", snapshotter, archive).CombinedOutput()
		if err != nil {
			return fmt.Errorf("import %s: %w\n%s", archive, err, text)
		}
	}
	return nil
}

func (n *node) startKubelet(ctx context.Context) error {
	if err := n.run("kubelet", n.program("kubelet"), "--config", n.at("kubelet.yaml"), "--kubeconfig", n.at("pki", "kubelet.kubeconfig"),
		"--hostname-override", nodeName, "--node-ip", nodeAddress, "--root-dir", kubeletDir, "--cert-dir", kubeletDir+"/pki"); err != nil {
		return err
	}
	var account struct{}
	if err := n.until(ctx, "the default service account", "kube-controller-manager", func() error {
		return n.get(ctx, "/api/v1/namespaces/default/serviceaccounts/default", &account)
	}); err != nil {
		return err
	}
	return n.until(ctx, "the node", "kubelet", func() error {
		var node struct {
			Status struct {
				Conditions []struct{ Type, Status, Message string }
			}
		}
		if err := n.get(ctx, "/api/v1/nodes/"+nodeName, &node); err != nil {
			return err
		}
		for _, c := range node.Status.Conditions {
			if c.Type == "Ready" && c.Status == "True" {
				return nil
			} else if c.Type == "Ready" {
				return errors.New(c.Message)
			}
		}
		return errors.New("it says nothing about being ready")
	})
}

// get asks the API server as the administrator.
func (n *node) get(ctx context.Context, path string, into any) error {
	pair, err := tls.LoadX509KeyPair(n.at("pki", "admin.crt"), n.at("pki", "admin.key"))
	if err != nil {
		return err
	}
	raw, err := os.ReadFile(n.at("pki", "ca.crt"))
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(raw)
	transport := &http.Transport{TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots}}
	defer transport.CloseIdleConnections()
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+apiAddress+path, nil)
	if err != nil {
		return err
	}
	response, err := (&http.Client{Transport: transport, Timeout: 10 * time.Second}).Do(ask)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, response.Status)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(response.Body).Decode(into)
}
