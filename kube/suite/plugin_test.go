// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/divvy-gpu/divvy/kube/internal/cri"
	"github.com/divvy-gpu/divvy/kube/internal/names"
	"github.com/divvy-gpu/divvy/kube/internal/record"
)

// byPlugin makes the node part serve the kubelet as a device plugin for a test.
func byPlugin(t *testing.T) *cluster {
	c := newCluster(t)
	c.mode = []string{"--dra=false", "--device-plugin"}
	c.host("start", "node", false)
	t.Cleanup(func() {
		if t.Failed() {
			c.report()
		}
		// What this mode has made only this mode takes back.
		ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
		defer cancel()
		c.deletePods(ctx)
		defer func() {
			c.mode = nil
			c.host("start", "node", false)
		}()
		c.wait(ctx, "no share is left", c.noShares)
	})
	c.registered(patience)
	return c
}

// registered waits until the kubelet has slots to give: the node's status tells of those of
// before too.
func (c *cluster) registered(limit time.Duration) {
	c.t.Helper()
	connection, err := grpc.NewClient("unix:///var/lib/kubelet/pod-resources/kubelet.sock", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		c.t.Fatal(err)
	}
	defer connection.Close()
	c.until("slots of the kubelet", limit, func() error {
		has, err := podresources.NewPodResourcesListerClient(connection).GetAllocatableResources(c.t.Context(), &podresources.AllocatableResourcesRequest{})
		if err != nil {
			return err
		}
		slots := 0
		for _, devices := range has.Devices {
			if devices.ResourceName == names.ResourceGPU {
				slots += len(devices.DeviceIds)
			}
		}
		if slots < 100 {
			return fmt.Errorf("the kubelet has %d", slots)
		}
		return nil
	})
}

const nodeName = "node1"

// part is a container with a share by its limits.
type part struct {
	name    string
	share   record.Share
	command []string
	sidecar bool
}

// partPod makes a pod that only a Binding puts on the node.
func (c *cluster) partPod(name string, init []part, parts ...part) *corev1.Pod {
	c.t.Helper()
	return c.makePart(name, corev1.RestartPolicyNever, init, parts...)
}

// makePart is partPod with a restart policy.
func (c *cluster) makePart(name string, policy corev1.RestartPolicy, init []part, parts ...part) *corev1.Pod {
	c.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: c.partSpec(init, parts)}
	pod.Spec.RestartPolicy = policy
	made, err := c.kube.CoreV1().Pods(c.space).Create(c.t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return made
}

func (c *cluster) partSpec(init, parts []part) corev1.PodSpec {
	grace := int64(1)
	always := corev1.ContainerRestartPolicyAlways
	spec := corev1.PodSpec{
		SchedulerName: "test", RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: &grace, AutomountServiceAccountToken: new(bool),
	}
	container := func(k part) corev1.Container {
		made := corev1.Container{Name: k.name, Image: image, ImagePullPolicy: corev1.PullNever, Command: k.command}
		if n := len(k.share.GPUs); n > 0 {
			made.Resources.Limits = corev1.ResourceList{names.ResourceGPU: *resource.NewQuantity(int64(n), resource.DecimalSI)}
			if k.share.MemoryBytes > 0 {
				made.Resources.Limits[names.ResourceMemory] = *resource.NewQuantity(int64(k.share.MemoryBytes), resource.BinarySI)
			}
			if k.share.Cores > 0 {
				made.Resources.Limits[names.ResourceCores] = *resource.NewQuantity(int64(k.share.Cores), resource.DecimalSI)
			}
		}
		if k.sidecar {
			made.RestartPolicy = &always
		}
		return made
	}
	for _, k := range init {
		spec.InitContainers = append(spec.InitContainers, container(k))
	}
	for _, k := range parts {
		spec.Containers = append(spec.Containers, container(k))
	}
	return spec
}

// bind is what a scheduler does.
func (c *cluster) bind(pod *corev1.Pod, annotation string) {
	c.t.Helper()
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, UID: pod.UID}, Target: corev1.ObjectReference{Kind: "Node", Name: nodeName}}
	if annotation != "" {
		binding.Annotations = map[string]string{names.AnnotationAllocation: annotation}
	}
	if err := c.kube.CoreV1().Pods(c.space).Bind(c.t.Context(), binding, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) recordOf(pod *corev1.Pod, parts ...part) string {
	c.t.Helper()
	r := record.Record{Node: nodeName, Pod: string(pod.UID), Containers: map[string]record.Share{}}
	for _, k := range parts {
		if len(k.share.GPUs) > 0 {
			r.Containers[k.name] = k.share
		}
	}
	text, err := r.Encode()
	if err != nil {
		c.t.Fatal(err)
	}
	return text
}

// bound is a pod with one container of a share, on the node.
func (c *cluster) bound(name string, share record.Share, command []string) {
	c.t.Helper()
	k := part{name: "main", share: share, command: command}
	pod := c.partPod(name, nil, k)
	c.bind(pod, c.recordOf(pod, k))
}

func (c *cluster) gpus() []string {
	c.t.Helper()
	devices, err := c.agent.Devices(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	var uuids []string
	for _, card := range devices.Cards {
		uuids = append(uuids, card.UUID)
	}
	return uuids
}

// once is a command that looks and ends.
func once() []string { return []string{"/bin/sh", "-c", "python3 -c '" + look + "'"} }

// A pod gets what its record says, sees no more, and what it had is free when it is gone. The
// next one of its name never has the last one's.
func TestPluginShare(t *testing.T) {
	c := byPlugin(t)
	gpu := c.gpus()[0]
	for i, size := range []uint64{2 * gib, 3 * gib} {
		c.bound("web-0", record.Share{GPUs: []string{gpu}, MemoryBytes: size, Cores: 30 + i}, staying(example("vectoradd", 1)))
		c.says("web-0", "main", "done")
		checkExample(t, c.log("web-0", "main"), size)
		shares, err := c.agent.Shares(t.Context())
		if err != nil || len(shares.Shares) != 1 || shares.Shares[0].CoresPercent != 30+i || shares.Shares[0].MemoryBytes != size || shares.Shares[0].Tenant != c.space {
			t.Errorf("%+v (%v)", shares.Shares, err)
		}
		c.deletePod("web-0")
		c.gone("web-0")
		c.stopped()
		c.within("the share is gone", 5*time.Second, c.noShares)
	}
	c.bound("done", record.Share{GPUs: []string{gpu}, MemoryBytes: gib}, once())
	if said := c.succeeded("done")["main"]; said != fmt.Sprintf("sees 1 1 %d %d\n", gib, gib) {
		t.Errorf("%q", said)
	}
	c.within("the share of a pod that has ended is gone", 5*time.Second, c.noShares)
}

// Whole GPUs for one container.
func TestPluginWholeGPUs(t *testing.T) {
	c := byPlugin(t)
	gpus := c.gpus()
	c.bound("both", record.Share{GPUs: gpus, Exclusive: true}, looks())
	c.says("both", "main", fmt.Sprintf("sees %d %d ", len(gpus), len(gpus)))
	c.bound("late", record.Share{GPUs: gpus[:1], MemoryBytes: gib}, once())
	c.warned("late", "has the whole of")
	c.deletePod("both")
	c.succeeded("late")
}

// Nothing is guessed: without a record of its own a container does not start, and its event
// says why.
func TestPluginRefuses(t *testing.T) {
	c := byPlugin(t)
	one := part{name: "main", share: record.Share{GPUs: c.gpus()[:1], MemoryBytes: gib}, command: once()}
	without := c.partPod("without", nil, one)
	c.bind(without, "")
	stolen := c.partPod("stolen", nil, one)
	c.bind(stolen, c.recordOf(without, one))
	more := one
	more.share.MemoryBytes = 2 * gib
	greedy := c.partPod("greedy", nil, one)
	c.bind(greedy, c.recordOf(greedy, more))
	large := one
	large.share.MemoryBytes = 100 * gib
	big := c.partPod("big", nil, large)
	c.bind(big, c.recordOf(big, large))
	c.warned("without", "not scheduled by Divvy's scheduler")
	c.warned("stolen", string(without.UID))
	c.warned("greedy", "its limit is 1Gi")
	c.warned("big", "100")
	if err := c.noShares(); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"without", "stolen", "greedy", "big"} {
		if p := c.get(name); p.Status.Phase != corev1.PodPending {
			t.Errorf("%s: %s", name, phase(p))
		}
	}
}

// An init container, a sidecar and a container have a share of their own each, though the
// kubelet gives the init container's slot to the container behind it.
func TestPluginInitContainers(t *testing.T) {
	c := byPlugin(t)
	gpu := c.gpus()[:1]
	share := func(size uint64) record.Share { return record.Share{GPUs: gpu, MemoryBytes: size} }
	init := []part{
		{name: "setup", share: share(30 * gib), command: once()},
		{name: "side", share: share(gib), command: looks(), sidecar: true},
		{name: "more", share: share(3 * gib), command: once()},
	}
	main := part{name: "main", share: share(32 * gib), command: once()}
	pod := c.partPod("pod", init, main)
	c.bind(pod, c.recordOf(pod, append(init, main)...))
	c.succeeded("pod")
	for name, size := range map[string]uint64{"setup": 30 * gib, "side": gib, "more": 3 * gib, "main": 32 * gib} {
		if said, want := c.log("pod", name), fmt.Sprintf("sees 1 1 %d %d\n", size, size); said != want {
			t.Errorf("%s: %q, want %q", name, said, want)
		}
	}
}

// Forty pods of forty sizes at once: each sees its own, none fails admission, and they take no
// more than 10 s longer than pods without GPUs.
func TestPluginForty(t *testing.T) {
	const pods = 40
	c := byPlugin(t)
	gpus := c.gpus()
	began := time.Now()
	for i := range pods {
		name := fmt.Sprint("plain-", i)
		c.bind(c.partPod(name, nil, part{name: "main", command: []string{"/bin/sh", "-c", "python3 -c 'import ctypes' && sleep 1000"}}), "")
	}
	took := func(prefix string, since time.Time) time.Duration {
		c.until(prefix+" pods have started", 5*patience, func() error {
			list, err := c.kube.CoreV1().Pods(c.space).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				return err
			}
			started := 0
			for _, p := range list.Items {
				if !strings.HasPrefix(p.Name, prefix) {
					continue
				}
				if p.Status.Reason != "" {
					t.Fatalf("pod %s: %s %s", p.Name, p.Status.Reason, p.Status.Message)
				}
				if p.Status.Phase != corev1.PodPending {
					started++
				}
			}
			if started < pods {
				return fmt.Errorf("%d have", started)
			}
			return nil
		})
		return time.Since(since)
	}
	plain := took("plain", began)
	for i := range pods {
		c.deletePod(fmt.Sprint("plain-", i))
	}
	c.stopped()
	size := func(i int) uint64 { return uint64(256+16*i) * mib }
	began = time.Now()
	for i := range pods {
		c.bound(fmt.Sprint("part-", i), record.Share{GPUs: gpus[i%len(gpus) : i%len(gpus)+1], MemoryBytes: size(i)}, looks())
	}
	parts := took("part", began)
	for i := range pods {
		c.says(fmt.Sprint("part-", i), "main", fmt.Sprintf("sees 1 1 %d %d\n", size(i), size(i)))
	}
	t.Logf("%d plain pods had started after %.1f s, with shares %.1f s", pods, plain.Seconds(), parts.Seconds())
	// A host that takes 20 s for plain pods is busy or slow, and takes the longer for the rest.
	if parts > plain+max(10*time.Second, plain/2) {
		t.Errorf("with shares %.1f s later", (parts - plain).Seconds())
	}
}

// stopped waits until the runtime has ended all pods of the test, which are deleted: that goes on when
// the API server has forgotten them.
func (c *cluster) stopped() {
	c.t.Helper()
	runtime, err := cri.New("/run/containerd/containerd.sock")
	if err != nil {
		c.t.Fatal(err)
	}
	defer runtime.Close()
	c.until("no pod is left in the runtime", 2*patience, func() error {
		all, err := runtime.Sandboxes(c.t.Context())
		if err != nil {
			return err
		}
		ready := 0
		for _, s := range all {
			if s.Ready && s.Namespace == c.space {
				ready++
			}
		}
		if ready > 0 {
			return fmt.Errorf("%d are", ready)
		}
		return nil
	})
}

// A kubelet, a node part or an agent that is killed takes nothing from a pod that runs, and
// the next pod has its share.
func TestPluginKills(t *testing.T) {
	c := byPlugin(t)
	gpu := c.gpus()[:1]
	c.bound("load", record.Share{GPUs: gpu, MemoryBytes: 2 * gib, Cores: 40}, staying(example("vectoradd", 8)))
	c.running("load", patience)
	for i, victim := range []string{"node", "kubelet", "agent"} {
		killed := time.Now()
		c.host("stop", victim, true)
		c.host("start", victim, false)
		if victim == "kubelet" {
			c.until("the kubelet takes plugins", patience, func() error {
				info, err := os.Stat("/var/lib/kubelet/device-plugins/kubelet.sock")
				if err == nil && info.ModTime().Before(killed) {
					err = errors.New("its socket is of before")
				}
				return err
			})
		}
		c.within("the kubelet has slots again", 5*time.Second, func() error { c.registered(patience); return nil })
		began := time.Now()
		name := fmt.Sprint("next-", i)
		c.bound(name, record.Share{GPUs: gpu, MemoryBytes: uint64(3+i) * gib}, once())
		size := uint64(3+i) * gib
		if said := c.succeeded(name)["main"]; said != fmt.Sprintf("sees 1 1 %d %d\n", size, size) {
			t.Errorf("%q", said)
		}
		t.Logf("a pod was done %.1f s after a new %s", time.Since(began).Seconds(), victim)
	}
	c.says("load", "main", "done")
	checkExample(t, c.log("load", "main"), 2*gib)
	c.startedOnce("load")
}

// The device plugin as its manifest has it, and the policy on records: nobody but a scheduler
// writes them.
func TestPluginDaemonSet(t *testing.T) {
	c := byPlugin(t)
	manifest := filepath.Join(os.Getenv("DIVVY_ROOT"), "deploy", "kubernetes", "device-plugin.yaml")
	c.host("stop", "node", false)
	c.kubectl("apply", "-f", manifest)
	gpu := c.gpus()[:1]
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		c.wait(ctx, "no share is left", c.noShares)
		c.unapply("-f", manifest)
	})
	c.kubectl("-n", "divvy", "rollout", "status", "daemonset/divvy-node", "--timeout", "60s")
	c.registered(patience)
	c.bound("pod", record.Share{GPUs: gpu, MemoryBytes: gib}, once())
	c.succeeded("pod")
	c.deletePod("pod")

	forged := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "forged", Annotations: map[string]string{names.AnnotationAllocation: "{}"}}}
	forged.Spec.Containers = []corev1.Container{{Name: "main", Image: image}}
	c.until("records of pods' owners are refused", patience, func() error {
		_, err := c.kube.CoreV1().Pods(c.space).Create(t.Context(), forged, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil || !strings.Contains(err.Error(), "written by Divvy's scheduler") {
			return fmt.Errorf("it said %w", errors.Join(errors.New("nothing"), err))
		}
		return nil
	})
}
