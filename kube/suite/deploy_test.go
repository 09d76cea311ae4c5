// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package suite

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
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

func kubectl(ctx context.Context, args ...string) (string, error) {
	text, err := exec.CommandContext(ctx, "kubectl", args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, text)
	}
	return string(text), nil
}

func (c *cluster) kubectl(args ...string) string {
	c.t.Helper()
	text, err := kubectl(c.t.Context(), args...)
	if err != nil {
		c.t.Fatal(err)
	}
	return text
}

// unapply takes manifests back at a test's end.
func (c *cluster) unapply(manifests ...string) {
	if _, err := kubectl(context.Background(), append([]string{"delete", "--wait"}, manifests...)...); err != nil {
		c.t.Error(err)
	}
}

// startedOnce checks that no container of a pod was started again.
func (c *cluster) startedOnce(pod string) {
	c.t.Helper()
	for _, s := range c.get(pod).Status.ContainerStatuses {
		if s.RestartCount != 0 {
			c.t.Errorf("%s of pod %s was started again %d times", s.Name, pod, s.RestartCount)
		}
	}
}

// Ten pods run for a while, each in a share of its own: half of them keep all the memory that they
// get, the others launch as much as they may.
const (
	loads     = 10
	loadBytes = 2 * gib
	loadCores = 8
	loadedFor = 20 // seconds
)

func loadName(i int) string { return "load-" + strconv.Itoa(i) }

func (c *cluster) load() (byShare map[string]int) {
	c.t.Helper()
	byShare = map[string]int{}
	for i := range loads {
		name := loadName(i)
		command := example("vectoradd", loadedFor)
		if i%2 == 1 {
			command = []string{"/bin/sh", "-c", fmt.Sprintf("/tools/burn --us 1000 --seconds %d </dev/null", loadedFor)}
		}
		c.claim(name, request{name: "gpu", memory: strconv.FormatUint(loadBytes, 10), cores: strconv.Itoa(loadCores)})
		c.pod(name, container{name: "main", claim: name, command: staying(command)})
	}
	for i := range loads {
		name := loadName(i)
		// A kubelet that was asked before the new driver had registered tries again after a minute.
		c.running(name, 2*patience)
		byShare[c.shareOf(name, 0).Name] = loadCores
		c.until("the program of "+name+" is there", patience, func() error {
			if s := c.shareOf(name, 0); s.Clients == 0 {
				return errors.New("it is not")
			}
			return nil
		})
	}
	return byShare
}

// outlives updates a DaemonSet: all pods go on to their ends, within their limits all the time, and the next one has its
// share.
func (c *cluster) outlives(daemonSet string, byShare map[string]int) {
	c.t.Helper()
	truth, owners := c.truth(), c.attached(0)
	updated := make(chan error, 1)
	go func() {
		_, err := kubectl(c.t.Context(), "-n", "divvy", "rollout", "restart", "daemonset/"+daemonSet)
		if err == nil {
			_, err = kubectl(c.t.Context(), "-n", "divvy", "rollout", "status", "daemonset/"+daemonSet, "--timeout", "90s")
		}
		updated <- err
	}()
	times := cardTimes{}
	for over, looks := false, 0; !over || looks < 5; looks++ {
		times.look(c, truth)
		held, err := truth.Processes(c.t.Context())
		if err != nil {
			c.t.Fatal(err)
		}
		for _, p := range held {
			if share := owners[p.PID]; byShare[share] > 0 && p.Bytes > loadBytes {
				c.t.Errorf("process %d of %s holds %d MiB of %d", p.PID, share, p.Bytes/mib, loadBytes/mib)
			}
		}
		select {
		case err := <-updated:
			if err != nil {
				c.t.Fatal(err)
			}
			over = true
		case <-time.After(time.Second):
		}
	}
	maps.Copy(owners, c.attached(0))
	if seen := times.check(c.t, owners, byShare); len(seen) < loads/2 {
		c.t.Errorf("the simulator saw kernels of %d shares during the update, want %d", len(seen), loads/2)
	}
	c.claim("next", request{name: "gpu", memory: "2Gi"})
	c.pod("next", container{name: "main", claim: "next", command: example("matmul", 1)})
	checkExample(c.t, c.succeeded("next")["main"], 2*gib)
	for i := range loads {
		name := loadName(i)
		c.says(name, "main", "done")
		if i%2 == 0 {
			checkExample(c.t, c.log(name, "main"), loadBytes)
		}
		c.startedOnce(name)
		c.deletePod(name)
	}
	c.deletePod("next")
	c.until("the shares are gone", patience, c.noShares)
}

// The node part as its manifest has it, and its update under ten pods that run.
func TestDaemonSet(t *testing.T) {
	c := newCluster(t)
	manifest := filepath.Join(os.Getenv("DIVVY_ROOT"), "deploy", "kubernetes", "node.yaml")
	c.host("stop", "node", false)
	t.Cleanup(func() { c.host("start", "node", false) })
	c.kubectl("apply", "-f", manifest)
	t.Cleanup(func() { c.unapply("-f", manifest) })
	c.kubectl("-n", "divvy", "rollout", "status", "daemonset/divvy-node", "--timeout", "60s")
	c.outlives("divvy-node", c.load())
}

// All of Divvy in pods, with simulated GPUs; and an update of the agent under ten pods that run.
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
	t.Cleanup(func() { c.unapply(manifests...) })
	for _, name := range []string{"agent", "node"} { // which waits for the simulator
		c.kubectl("-n", "divvy", "rollout", "status", "daemonset/divvy-"+name, "--timeout", "90s")
	}
	c.until("an agent without shares", patience, c.noShares)
	byShare := c.load()
	files, err := filepath.Glob("/run/cdi/*.json")
	if err != nil || len(files) != loads {
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
	c.outlives("divvy-agent", byShare)
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
