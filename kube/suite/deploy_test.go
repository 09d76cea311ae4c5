// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/divvy-gpu/divvy/kube/internal/names"
)

func (c *cluster) kubectl(args ...string) string {
	c.t.Helper()
	text, err := exec.CommandContext(c.t.Context(), "kubectl", args...).CombinedOutput()
	if err != nil {
		c.t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, text)
	}
	return string(text)
}

// load is a pod that runs for a while in a share.
func (c *cluster) load() {
	c.t.Helper()
	c.claim("share", request{name: "gpu", memory: "2Gi", cores: "40"})
	c.pod("load", container{name: "main", claim: "share", command: staying(example("vectoradd", 10))})
	// A kubelet that was asked before the new driver had registered tries again after a minute.
	c.running("load", 2*patience)
}

// outlives updates a DaemonSet: the load goes on to its end, and the next pod has its share.
func (c *cluster) outlives(daemonSet string) {
	c.t.Helper()
	c.kubectl("-n", "divvy", "rollout", "restart", "daemonset/"+daemonSet)
	c.kubectl("-n", "divvy", "rollout", "status", "daemonset/"+daemonSet, "--timeout", "90s")
	c.claim("next", request{name: "gpu", memory: "2Gi"})
	c.pod("next", container{name: "main", claim: "next", command: example("matmul", 1)})
	checkExample(c.t, c.succeeded("next")["main"], 2*gib)
	c.says("load", "main", "done")
	checkExample(c.t, c.log("load", "main"), 2*gib)
	for _, s := range c.get("load").Status.ContainerStatuses {
		if s.RestartCount != 0 {
			c.t.Errorf("%s was started again %d times", s.Name, s.RestartCount)
		}
	}
	c.deletePod("load")
	c.deletePod("next")
	c.until("the shares are gone", patience, c.noShares)
}

// The node part as its manifest has it, and its update under a pod that runs.
func TestDaemonSet(t *testing.T) {
	c := newCluster(t)
	manifest := filepath.Join(os.Getenv("DIVVY_ROOT"), "deploy", "kubernetes", "node.yaml")
	c.host("stop", "node", false)
	t.Cleanup(func() { c.host("start", "node", false) })
	c.kubectl("apply", "-f", manifest)
	t.Cleanup(func() {
		text, err := exec.Command("kubectl", "delete", "--wait", "-f", manifest).CombinedOutput()
		if err != nil {
			t.Errorf("%v\n%s", err, text)
		}
	})
	c.kubectl("-n", "divvy", "rollout", "status", "daemonset/divvy-node", "--timeout", "60s")
	c.load()
	c.outlives("divvy-node")
}

// All of Divvy in pods, with simulated GPUs; and an update of the agent under a pod that runs.
func TestAgentInPods(t *testing.T) {
	c := newCluster(t)
	services := []string{"simulator", "agent", "node"}
	for _, service := range slices.Backward(services) {
		c.host("stop", service, false)
	}
	t.Cleanup(func() {
		for _, service := range services {
			c.host("start", service, false)
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		c.wait(ctx, "the agent of the host", c.noShares)
	})
	var manifests []string
	for _, name := range []string{"simulated.yaml", "node.yaml"} {
		manifests = append(manifests, "-f", filepath.Join(os.Getenv("DIVVY_ROOT"), "deploy", "kubernetes", name))
	}
	c.kubectl(append([]string{"apply"}, manifests...)...)
	t.Cleanup(func() {
		text, err := exec.Command("kubectl", append([]string{"delete", "--wait"}, manifests...)...).CombinedOutput()
		if err != nil {
			t.Errorf("%v\n%s", err, text)
		}
	})
	for _, name := range []string{"agent", "node"} { // which waits for the simulator
		c.kubectl("-n", "divvy", "rollout", "status", "daemonset/divvy-"+name, "--timeout", "90s")
	}
	c.until("an agent without shares", patience, c.noShares)
	c.load()
	files, err := filepath.Glob("/run/cdi/*.json")
	if err != nil || len(files) != 1 {
		t.Fatalf("files of shares: %q (%v)", files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range regexp.MustCompile(`"hostPath": *"(/opt/divvy/[^"]*)"`).FindAllStringSubmatch(string(text), -1) {
		if info, err := os.Lstat(path[1]); err != nil || info.Mode()&os.ModeSymlink != 0 {
			t.Errorf("%s outlives no update (%v)", path[1], err)
		}
	}
	if !strings.Contains(string(text), `"/opt/divvy/`) {
		t.Errorf("%s: %s", files[0], text)
	}
	c.outlives("divvy-agent")
}

// A kubelet that is started anew finds the node part again, and the other way round.
func TestRegistersAgain(t *testing.T) {
	c := newCluster(t)
	for i, victim := range []string{"kubelet", "node"} {
		c.host("stop", victim, true)
		c.host("start", victim, false)
		began := time.Now()
		name := fmt.Sprint("pod-", i)
		c.claim(name, request{name: "gpu", memory: "1Gi"})
		c.pod(name, container{name: "main", claim: name, command: example("vectoradd", 1)})
		checkExample(t, c.succeeded(name)["main"], gib)
		t.Logf("a pod was done %.1f s after a new %s", time.Since(began).Seconds(), victim)
	}
}

// The account of the node part publishes GPUs of its own node, by its own driver, only.
func TestOwnSlicesOnly(t *testing.T) {
	c := newCluster(t)
	node, err := c.kube.CoreV1().Nodes().Get(t.Context(), "node1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	as := func(bound *authenticationv1.BoundObjectReference) kubernetes.Interface {
		token, err := c.kube.CoreV1().ServiceAccounts("divvy").CreateToken(t.Context(), "divvy-node",
			&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: bound}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
		if err != nil {
			t.Fatal(err)
		}
		config = rest.AnonymousClientConfig(config)
		config.BearerToken = token.Status.Token
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		return client
	}
	bound := &authenticationv1.BoundObjectReference{Kind: "Node", APIVersion: "v1", Name: node.Name, UID: node.UID}
	create := func(client kubernetes.Interface, driver, nodeName string) error {
		slice := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{GenerateName: "try-"}}
		slice.Spec.Driver, slice.Spec.NodeName = driver, &nodeName
		slice.Spec.Pool = resourceapi.ResourcePool{Name: "try", ResourceSliceCount: 1}
		made, err := client.ResourceV1().ResourceSlices().Create(t.Context(), slice, metav1.CreateOptions{})
		if err == nil {
			err = c.kube.ResourceV1().ResourceSlices().Delete(t.Context(), made.Name, metav1.DeleteOptions{})
		}
		return err
	}
	if err := create(as(bound), names.Driver, node.Name); err != nil {
		t.Errorf("its own: %v", err)
	}
	for what, err := range map[string]error{
		"another node's":       create(as(bound), names.Driver, "node2"),
		"another driver's":     create(as(bound), "gpu.example.com", node.Name),
		"by a token of nobody": create(as(nil), names.Driver, node.Name),
	} {
		if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
			t.Error(errors.Join(fmt.Errorf("%s slice was not refused", what), err))
		}
	}
}
