// SPDX-License-Identifier: Apache-2.0

//go:build cluster

// Package suite tests divvy-kube on a real cluster: `make test-cluster` starts one
// (test/cluster) and runs these tests on its node, where the simulator's own account says
// what really happened.
package suite

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/client"
	"github.com/divvy-gpu/divvy/internal/simgpu"
	"github.com/divvy-gpu/divvy/kube/internal/names"
)

const (
	mib       = uint64(1) << 20
	gib       = uint64(1) << 30
	image     = "divvy.local/test:1"
	simulator = "/run/divvy-simulator/simulator.sock"
	control   = "@divvy-cluster"
	patience  = 60 * time.Second // for what is not measured
)

// cluster is what a test has: a namespace of its own in the cluster that runs.
type cluster struct {
	t     *testing.T
	kube  kubernetes.Interface
	agent *client.Client
	space string
	mode  []string // arguments that the node part is started with, behind its own
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	file := os.Getenv("KUBECONFIG")
	if os.Getenv("DIVVY_CLUSTER") == "" || file == "" {
		t.Fatal("this runs on the node of a cluster: make test-cluster")
	}
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS, config.Burst = 200, 200
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, kube: kube, agent: client.New("/run/divvy/agent.sock")}
	c.until("an agent without shares", patience, c.noShares)
	space, err := kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.space = space.Name
	c.until("the namespace's service account", patience, func() error {
		_, err := kube.CoreV1().ServiceAccounts(c.space).Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
	t.Cleanup(c.end)
	return c
}

// end removes the namespace and checks that nothing is left over.
func (c *cluster) end() {
	if c.t.Failed() {
		c.report()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	c.deletePods(ctx)
	if err := c.kube.CoreV1().Namespaces().Delete(ctx, c.space, metav1.DeleteOptions{}); err != nil {
		c.t.Error(err)
	}
	c.wait(ctx, "nothing left of "+c.space, func() error {
		_, err := c.kube.CoreV1().Namespaces().Get(ctx, c.space, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return errors.Join(errors.New("the namespace is there"), err)
		}
		return c.noShares()
	})
}

// noShares says what is left of shares: on the ledger, in the runtime's files, on the GPUs.
func (c *cluster) noShares() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	shares, err := c.agent.Shares(ctx)
	if err != nil {
		return err
	}
	for _, s := range shares.Shares {
		return fmt.Errorf("share %s is %s and uses %d MiB", s.Name, s.State, s.UsedBytes/mib)
	}
	devices, err := c.agent.Devices(ctx)
	if err != nil {
		return err
	}
	for _, card := range devices.Cards {
		if card.BookedBytes != 0 || card.CoresBooked != 0 {
			return fmt.Errorf("%d MiB and %d cores of %s are booked", card.BookedBytes/mib, card.CoresBooked, card.UUID)
		}
	}
	files, err := os.ReadDir("/run/cdi")
	if err != nil {
		return err
	}
	for _, file := range files {
		return fmt.Errorf("the file %s is there", file.Name())
	}
	return nil
}

// report shows what went on, when a test failed.
func (c *cluster) report() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	pods, err := c.kube.CoreV1().Pods(c.space).List(ctx, metav1.ListOptions{})
	if err != nil {
		c.t.Log(err)
		return
	}
	for _, p := range pods.Items {
		c.t.Logf("pod %s: %s", p.Name, phase(&p))
	}
	events, err := c.kube.CoreV1().Events(c.space).List(ctx, metav1.ListOptions{})
	if err != nil {
		c.t.Log(err)
		return
	}
	for i, e := range events.Items {
		if e.Type == corev1.EventTypeWarning && i < 40 {
			c.t.Logf("event of %s: %s: %s", e.InvolvedObject.Name, e.Reason, e.Message)
		}
	}
	shares, err := c.agent.Shares(ctx)
	c.t.Logf("%d shares on the ledger (%v)", len(shares.Shares), err)
	for _, s := range shares.Shares {
		c.t.Logf("share %s: %s, %d of %d MiB, %d clients", s.Name, s.State, s.UsedBytes/mib, s.LimitBytes/mib, s.Clients)
	}
}

// until waits for what must come true.
func (c *cluster) until(what string, limit time.Duration, check func() error) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), limit)
	defer cancel()
	c.wait(ctx, what, check)
}

func (c *cluster) wait(ctx context.Context, what string, check func() error) {
	c.t.Helper()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			c.t.Fatalf("%s: %v", what, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// pause lets time pass on the cluster, between two looks at it; the test's end ends it.
func (c *cluster) pause(d time.Duration) {
	select {
	case <-c.t.Context().Done():
	case <-time.After(d):
	}
}

// truth is the simulator's account.
func (c *cluster) truth() *simgpu.Truth {
	c.t.Helper()
	truth, err := simgpu.Dial(c.t.Context(), simulator)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = truth.Close() })
	return truth
}

// device is a GPU as it is published.
func (c *cluster) devices() []resourceapi.Device {
	c.t.Helper()
	list, err := c.kube.ResourceV1().ResourceSlices().List(c.t.Context(), metav1.ListOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	var all []resourceapi.Device
	for _, slice := range list.Items {
		if slice.Spec.Driver == names.Driver {
			all = append(all, slice.Spec.Devices...)
		}
	}
	return all
}

// wholeDevices waits until the GPUs are published as they are without shares: the node
// part gathers changes for some seconds.
func (c *cluster) wholeDevices() []resourceapi.Device {
	c.t.Helper()
	var all []resourceapi.Device
	c.until("GPUs without shares in the slices", patience, func() error {
		known, err := c.agent.Devices(c.t.Context())
		if err != nil {
			return err
		}
		all = c.devices()
		if len(all) != len(known.Cards) {
			return fmt.Errorf("%d devices, and %d GPUs", len(all), len(known.Cards))
		}
		for _, card := range known.Cards {
			found := false
			for _, d := range all {
				if d.Name != names.Device(card.UUID) {
					continue
				}
				found = true
				memory := d.Capacity[names.CapacityMemory].Value
				if uint64(memory.Value()) != card.MemoryBytes/mib*mib || len(d.Taints) > 0 {
					return fmt.Errorf("device %s: %s, taints %v", d.Name, memory.String(), d.Taints)
				}
			}
			if !found {
				return fmt.Errorf("no device for %s", card.UUID)
			}
		}
		return nil
	})
	return all
}

// request is one request of a claim.
type request struct {
	name   string
	memory string // empty: the whole GPU
	cores  string // empty: best-effort
	uuid   string // empty: any GPU
	opaque string // parameters
	class  string // empty: that of shares
	count  int64  // 0: one
	// selector is in CEL, where no uuid is wanted.
	selector string
}

// claim makes a claim.
func (c *cluster) claim(name string, requests ...request) {
	c.t.Helper()
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, r := range requests {
		exactly := &resourceapi.ExactDeviceRequest{DeviceClassName: cmp.Or(r.class, names.DeviceClassShare), Count: r.count}
		amounts := map[resourceapi.QualifiedName]resource.Quantity{}
		if r.memory != "" {
			amounts[names.CapacityMemory] = resource.MustParse(r.memory)
		}
		if r.cores != "" {
			amounts[names.CapacityCores] = resource.MustParse(r.cores)
		}
		if len(amounts) > 0 {
			exactly.Capacity = &resourceapi.CapacityRequirements{Requests: amounts}
		}
		if r.uuid != "" {
			r.selector = fmt.Sprintf(`device.attributes["divvy.dev"].uuid == %q`, r.uuid)
		}
		if r.selector != "" {
			exactly.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: r.selector}}}
		}
		claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, resourceapi.DeviceRequest{Name: r.name, Exactly: exactly})
		if r.opaque != "" {
			configuration := resourceapi.DeviceClaimConfiguration{Requests: []string{r.name}}
			configuration.Opaque = &resourceapi.OpaqueDeviceConfiguration{Driver: names.Driver}
			configuration.Opaque.Parameters.Raw = []byte(r.opaque)
			claim.Spec.Devices.Config = append(claim.Spec.Devices.Config, configuration)
		}
	}
	if _, err := c.kube.ResourceV1().ResourceClaims(c.space).Create(c.t.Context(), claim, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// container is one of a pod, with what it has of a claim.
type container struct {
	name, claim, request string
	command              []string
	env                  map[string]string
	claims               []string // besides claim
}

// pod makes a pod with claims.
func (c *cluster) pod(name string, containers ...container) {
	c.t.Helper()
	grace := int64(1)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	pod.Spec.TerminationGracePeriodSeconds = &grace
	pod.Spec.EnableServiceLinks = new(bool)
	pod.Spec.AutomountServiceAccountToken = new(bool)
	known := map[string]bool{}
	for _, k := range containers {
		made := corev1.Container{Name: k.name, Image: image, ImagePullPolicy: corev1.PullNever, Command: k.command, Stdin: true}
		for _, claim := range append([]string{k.claim}, k.claims...) {
			if claim == "" {
				continue
			}
			if !known[claim] {
				known[claim] = true
				pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, corev1.PodResourceClaim{Name: claim, ResourceClaimName: &claim})
			}
			made.Resources.Claims = append(made.Resources.Claims, corev1.ResourceClaim{Name: claim, Request: k.request})
		}
		for name, value := range k.env {
			made.Env = append(made.Env, corev1.EnvVar{Name: name, Value: value})
		}
		pod.Spec.Containers = append(pod.Spec.Containers, made)
	}
	if _, err := c.kube.CoreV1().Pods(c.space).Create(c.t.Context(), pod, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) get(name string) *corev1.Pod {
	c.t.Helper()
	pod, err := c.kube.CoreV1().Pods(c.space).Get(c.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return pod
}

// phase says where a pod is, and why.
func phase(p *corev1.Pod) string {
	text := string(p.Status.Phase)
	for _, condition := range p.Status.Conditions {
		if condition.Status == corev1.ConditionFalse && condition.Message != "" {
			text += "; " + condition.Message
		}
	}
	for _, s := range p.Status.ContainerStatuses {
		switch {
		case s.State.Waiting != nil:
			text += fmt.Sprintf("; %s waits: %s %s", s.Name, s.State.Waiting.Reason, s.State.Waiting.Message)
		case s.State.Terminated != nil:
			text += fmt.Sprintf("; %s ended with %d: %s %s", s.Name, s.State.Terminated.ExitCode, s.State.Terminated.Reason, s.State.Terminated.Message)
		}
	}
	return text
}

func (c *cluster) running(name string, limit time.Duration) {
	c.t.Helper()
	c.until("pod "+name+" runs", limit, func() error {
		if p := c.get(name); p.Status.Phase != corev1.PodRunning {
			return errors.New(phase(p))
		}
		return nil
	})
}

// succeeded waits for a pod's end and returns what its containers said, by name.
func (c *cluster) succeeded(name string) map[string]string {
	c.t.Helper()
	c.until("pod "+name+" ends well", 2*patience, func() error {
		p := c.get(name)
		if p.Status.Phase == corev1.PodFailed {
			for _, k := range p.Spec.Containers {
				c.t.Logf("%s/%s: %s", name, k.Name, c.log(name, k.Name))
			}
			c.t.Fatalf("pod %s: %s", name, phase(p))
		}
		if p.Status.Phase != corev1.PodSucceeded {
			return errors.New(phase(p))
		}
		return nil
	})
	said := map[string]string{}
	for _, k := range c.get(name).Spec.Containers {
		said[k.Name] = c.log(name, k.Name)
	}
	return said
}

func (c *cluster) log(pod, container string) string {
	c.t.Helper()
	raw, err := c.kube.CoreV1().Pods(c.space).GetLogs(pod, &corev1.PodLogOptions{Container: container}).DoRaw(c.t.Context())
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

// says waits until a container has said something.
func (c *cluster) says(pod, container, what string) {
	c.t.Helper()
	c.until(fmt.Sprintf("%s/%s says %q", pod, container, what), patience, func() error {
		if said := c.log(pod, container); !strings.Contains(said, what) {
			return fmt.Errorf("it said %q; %s", said, phase(c.get(pod)))
		}
		return nil
	})
}

// deletePods deletes all of the namespace, and does not wait for them.
func (c *cluster) deletePods(ctx context.Context) {
	c.t.Helper()
	if err := c.kube.CoreV1().Pods(c.space).DeleteCollection(ctx, deleteNow(), metav1.ListOptions{}); err != nil {
		c.t.Error(err)
	}
}

func (c *cluster) deletePod(name string) {
	c.t.Helper()
	if err := c.kube.CoreV1().Pods(c.space).Delete(c.t.Context(), name, deleteNow()); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) gone(name string) {
	c.t.Helper()
	c.until("pod "+name+" is gone", patience, func() error {
		_, err := c.kube.CoreV1().Pods(c.space).Get(c.t.Context(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(errors.New("it is there"), err)
	})
}

// eventsOf are what Kubernetes says of an object.
func (c *cluster) eventsOf(object string) ([]corev1.Event, error) {
	list, err := c.kube.CoreV1().Events(c.space).List(c.t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + object})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// warned waits for a warning about an object that says something.
func (c *cluster) warned(object, what string) {
	c.t.Helper()
	c.until(fmt.Sprintf("a warning about %s with %q", object, what), patience, func() error {
		events, err := c.eventsOf(object)
		if err != nil {
			return err
		}
		var said []string
		for _, e := range events {
			if strings.Contains(e.Message, what) {
				return nil
			}
			said = append(said, e.Message)
		}
		return fmt.Errorf("events: %q", said)
	})
}

// shareOf is the share of a claim's nth result.
func (c *cluster) shareOf(claim string, n int) api.Share {
	c.t.Helper()
	found, err := c.kube.ResourceV1().ResourceClaims(c.space).Get(c.t.Context(), claim, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	name, err := names.Share(string(found.UID), n)
	if err != nil {
		c.t.Fatal(err)
	}
	share, err := c.agent.Share(c.t.Context(), name)
	if err != nil {
		c.t.Fatal(err)
	}
	return share
}

// host asks the one who started the node's components.
func (c *cluster) host(do, name string, kill bool) map[string]int {
	c.t.Helper()
	pids, err := c.askHost(do, name, kill)
	if err != nil {
		c.t.Fatal(err)
	}
	return pids
}

func (c *cluster) askHost(do, name string, kill bool) (map[string]int, error) {
	var args []string
	if do == "start" && name == "node" {
		args = c.mode
	}
	connection, err := net.Dial("unix", control)
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	if err := json.NewEncoder(connection).Encode(map[string]any{"do": do, "name": name, "kill": kill, "args": args}); err != nil {
		return nil, err
	}
	var says struct {
		Error string
		PIDs  map[string]int
	}
	if err := json.NewDecoder(connection).Decode(&says); err != nil {
		return nil, err
	}
	if says.Error != "" {
		return nil, fmt.Errorf("%s %s: %s", do, name, says.Error)
	}
	return says.PIDs, nil
}

// lastLine is what a program printed last, as JSON.
func lastLine(t *testing.T, text string, into any) {
	t.Helper()
	lines := bytes.Split(bytes.TrimSpace([]byte(text)), []byte("\n"))
	if err := json.Unmarshal(lines[len(lines)-1], into); err != nil {
		t.Fatalf("%v: %q", err, text)
	}
}
