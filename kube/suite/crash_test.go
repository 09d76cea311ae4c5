// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package suite

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/internal/client"
	"github.com/divvy-gpu/divvy/kube/internal/names"
	"github.com/divvy-gpu/divvy/kube/internal/record"
)

func deleteNow() metav1.DeleteOptions {
	now := int64(0)
	return metav1.DeleteOptions{GracePeriodSeconds: &now}
}

const worker = "worker" // the agent's

// Agent, its worker, node part and containerd are killed at random while pods come and go: no pod is
// stuck, nothing is promised twice, and in the end nothing is left over.
func TestKills(t *testing.T) {
	c := newCluster(t)
	c.comeAndGo(c.killAtRandom(), func(name string, i int) {
		c.claim(name, request{name: "gpu", memory: fmt.Sprintf("%dGi", 1+i%6), cores: strconv.Itoa(5 * (1 + i%4))})
		// A runtime that is killed when a container ends does not know how it did, and says 255: then
		// it is started again.
		c.podThat(name, corev1.RestartPolicyOnFailure, container{name: "main", claim: name, command: once()})
	}, func(name string) {
		if err := c.kube.ResourceV1().ResourceClaims(c.space).Delete(t.Context(), name, deleteNow()); err != nil {
			t.Fatal(err)
		}
	})
}

// With the device plugin, too. A kubelet refuses a pod for good whose devices' plugin is away just then:
// there is another one in its place, as a controller makes it.
func TestPluginRandomKills(t *testing.T) {
	c := byPlugin(t)
	gpus := c.gpus()
	c.comeAndGo(c.killAtRandom(), func(name string, i int) {
		k := part{name: "main", command: once(), share: record.Share{GPUs: gpus[i%2 : i%2+1], MemoryBytes: uint64(1+i%6) * gib, Cores: 5 * (1 + i%4)}}
		pod := c.makePart(name, corev1.RestartPolicyOnFailure, nil, k)
		c.bind(pod, c.recordOf(pod, k))
	}, func(string) {})
}

// comeAndGo has pods come and go, a few at a time, until kills ends what kills meanwhile.
func (c *cluster) comeAndGo(kills func() map[string]int, begin func(name string, i int), ended func(name string)) {
	t := c.t
	t.Helper()
	pods, inFlight := 200, 6
	if testing.Short() {
		pods = 30
	}
	nameOf := func(i int) string { return "pod-" + strconv.Itoa(i) }
	began, refused := map[int]time.Time{}, 0
	var slowest time.Duration
	for next, done := 0, 0; done < pods; {
		for len(began) < inFlight && next < pods {
			begin(nameOf(next), next)
			began[next] = time.Now()
			next++
		}
		if next == pods {
			kills() // has an end: a kubelet tries again after 10 s, and may find something killed each time
		}
		c.checkBooked()
		for i, since := range began {
			name := nameOf(i)
			p := c.get(name)
			again := restarts(p)
			if slices.Contains(again, 1) && !c.agentWasAway(name) {
				t.Fatalf("pod %s: %s", name, phase(p))
			}
			switch {
			case p.Status.Phase == corev1.PodSucceeded:
				if len(again) > 0 {
					t.Logf("pod %s was started again after exit codes %v", name, again)
				}
				took := time.Since(since)
				if slowest = max(slowest, took); took > longStart {
					c.why(name, since)
				}
				delete(began, i)
				done++
				c.deletePod(name)
				ended(name)
			case notTaken(p) && time.Since(since) < 2*patience:
				refused++
				c.deletePod(name)
				c.gone(name)
				begin(name, i)
			case p.Status.Phase == corev1.PodFailed:
				t.Fatalf("pod %s: %s\n%s", name, phase(p), c.log(name, "main"))
			case time.Since(since) > 2*patience: // a kubelet may try again after a minute only
				t.Fatalf("pod %s is stuck: %s", name, phase(p))
			}
		}
		c.pause(100 * time.Millisecond)
	}
	t.Logf("%d pods, the slowest took %.1f s, %d were refused; kills: %v", pods, slowest.Seconds(), refused, kills())
	c.until("nothing is left over", patience, c.noShares)
}

// longStart is what a pod may take that is started meanwhile; what kept one for longer is told.
const longStart = 30 * time.Second

// why logs what Kubernetes says of a pod.
func (c *cluster) why(pod string, since time.Time) {
	c.t.Helper()
	events, err := c.eventsOf(pod)
	if err != nil {
		c.t.Log(err)
	}
	for _, e := range events {
		c.t.Logf("pod %s: %5.1f to %5.1f s: %dx %s: %s", pod, e.FirstTimestamp.Sub(since).Seconds(), e.LastTimestamp.Sub(since).Seconds(), e.Count, e.Reason, e.Message)
	}
}

// notTaken says whether the kubelet has refused a pod because it has no devices for it, or their plugin does not answer.
func notTaken(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed && (p.Status.Reason == "UnexpectedAdmissionError" || strings.HasPrefix(p.Status.Reason, "OutOf"))
}

// restarts are the exit codes after which containers of a pod were started again, or wait for that.
func restarts(p *corev1.Pod) (codes []int32) {
	for _, s := range p.Status.ContainerStatuses {
		for _, ended := range []*corev1.ContainerStateTerminated{s.LastTerminationState.Terminated, s.State.Terminated} {
			if ended != nil && ended.ExitCode != 0 {
				codes = append(codes, ended.ExitCode)
			}
		}
	}
	return codes
}

// agentWasAway says whether the program of a pod that was started again had found no agent: one that
// begins just when the whole agent is killed has no GPU. Of a program whose words a killed runtime
// lost it may be so.
func (c *cluster) agentWasAway(pod string) bool {
	c.t.Helper()
	raw, err := c.kube.CoreV1().Pods(c.space).GetLogs(pod, &corev1.PodLogOptions{Container: "main", Previous: true}).DoRaw(c.t.Context())
	if err != nil { // it has not been started again yet
		raw = []byte(c.log(pod, "main"))
	}
	c.t.Logf("pod %s had said %q", pod, raw)
	return len(raw) == 0 || strings.Contains(string(raw), "cuInit: 802")
}

// killAtRandom kills Divvy's parts and the runtime, until the test has ended or what it returns
// is called, which says how often each was.
func (c *cluster) killAtRandom() (ended func() map[string]int) {
	stop, killed := make(chan struct{}), make(chan map[string]int, 1)
	go func() {
		counts := map[string]int{}
		defer func() { killed <- counts }()
		victims := []string{"agent", worker, "node", "containerd"}
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(500+rand.IntN(2500)) * time.Millisecond):
			}
			victim := victims[rand.IntN(len(victims))]
			var err error
			if victim == worker {
				_, err = c.askHost("kill-worker", "", true)
			} else if _, err = c.askHost("stop", victim, true); err == nil {
				_, err = c.askHost("start", victim, false)
			}
			if err != nil {
				c.t.Error(err)
				return
			}
			counts[victim]++
		}
	}()
	ended = sync.OnceValue(func() map[string]int {
		close(stop)
		return <-killed
	})
	c.t.Cleanup(func() { ended() })
	return ended
}

// checkBooked checks that no GPU is promised twice.
func (c *cluster) checkBooked() {
	c.t.Helper()
	devices, err := c.agent.Devices(c.t.Context())
	if errors.Is(err, client.ErrUnreachable) {
		return // it was killed
	}
	if err != nil {
		c.t.Fatal(err)
	}
	for _, card := range devices.Cards {
		if card.BookedBytes > card.MemoryBytes || card.CoresBooked > 100 {
			c.t.Fatalf("%d of %d MiB and %d cores of %s are booked", card.BookedBytes/mib, card.MemoryBytes/mib, card.CoresBooked, card.UUID)
		}
	}
}

// Killing everything that Divvy has on the node takes nothing from pods that run.
func TestPodsOutliveDivvy(t *testing.T) {
	c := newCluster(t)
	c.claim("share", request{name: "gpu", memory: "2Gi", cores: "40"})
	c.pod("load", container{name: "main", claim: "share", command: example("vectoradd", 15)})
	// Not before the last of its programs has begun: one that begins when there is no agent has no GPU.
	c.until("the load has its memory", patience, func() error {
		c.says("load", "main", "sees 1 1")
		if s := c.shareOf("share", 0); s.UsedBytes < 3*gib/2 {
			return fmt.Errorf("it has %d MiB", s.UsedBytes/mib)
		}
		return nil
	})
	for _, victim := range []string{"node", "agent", "containerd", "kubelet"} {
		c.host("stop", victim, true)
		c.host("start", victim, false)
	}
	checkExample(t, c.succeeded("load")["main"], 2*gib)
	c.claim("next", request{name: "gpu", memory: "2Gi"})
	c.pod("next", container{name: "main", claim: "next", command: example("matmul", 1)})
	checkExample(t, c.succeeded("next")["main"], 2*gib)
}

// After a reboot the pods of before run again with the same limits, without a hand.
func TestReboot(t *testing.T) {
	c := newCluster(t)
	forever := []string{"/bin/sh", "-c", "python3 -c '" + look + "' && sleep 1000"}
	for i := range 3 {
		name := "pod-" + strconv.Itoa(i)
		c.claim(name, request{name: "gpu", memory: fmt.Sprintf("%dGi", i+1), cores: strconv.Itoa(10 * (i + 1))})
		c.podThat(name, corev1.RestartPolicyAlways, container{name: "main", claim: name, command: forever})
		c.says(name, "main", fmt.Sprintf("sees 1 1 %d", uint64(i+1)*gib))
	}
	c.host("reboot", "", false)
	rebooted := time.Now()
	for i := range 3 {
		name := "pod-" + strconv.Itoa(i)
		c.until("pod "+name+" runs again", patience, func() error {
			p := c.get(name)
			for _, s := range p.Status.ContainerStatuses {
				if s.RestartCount > 0 && s.State.Running != nil {
					return nil
				}
			}
			return errors.New(phase(p))
		})
		c.says(name, "main", fmt.Sprintf("sees 1 1 %d", uint64(i+1)*gib))
		if s := c.shareOf(name, 0); s.MemoryBytes != uint64(i+1)*gib || s.CoresPercent != 10*(i+1) {
			t.Errorf("%+v", s.ShareSpec)
		}
	}
	t.Logf("all ran again %.1f s after the reboot", time.Since(rebooted).Seconds())
}

// With the device plugin those that a controller owns run again with the same limits: a kubelet may
// refuse a pod of before whose devices are not back yet, and then there is another one.
func TestPluginReboot(t *testing.T) {
	c := byPlugin(t)
	gpu := c.gpus()[:1]
	one := int32(1)
	sizes := map[string]uint64{}
	for i := range 3 {
		name := "set-" + strconv.Itoa(i)
		sizes[name] = uint64(i+1) * gib
		spec := c.partSpec(nil, []part{{name: "main", share: record.Share{GPUs: gpu, MemoryBytes: sizes[name]}, command: looks()}})
		spec.RestartPolicy = corev1.RestartPolicyAlways
		labels := map[string]string{"set": name}
		set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.ReplicaSetSpec{
			Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		}}
		if _, err := c.kube.AppsV1().ReplicaSets(c.space).Create(t.Context(), set, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { // before byPlugin's, which deletes the pods
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := c.kube.AppsV1().ReplicaSets(c.space).DeleteCollection(ctx, deleteNow(), metav1.ListOptions{}); err != nil {
			t.Error(err)
		}
	})
	// run binds pods until one of each set has been running since.
	run := func(since time.Time) error {
		pods, err := c.kube.CoreV1().Pods(c.space).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		running := map[string]bool{}
		for _, p := range pods.Items {
			set := p.Labels["set"]
			if p.Spec.NodeName == "" && p.DeletionTimestamp == nil {
				c.bind(&p, c.recordOf(&p, part{name: "main", share: record.Share{GPUs: gpu, MemoryBytes: sizes[set]}}))
			}
			for _, s := range p.Status.ContainerStatuses {
				if p.Status.Phase == corev1.PodRunning && s.State.Running != nil && !s.State.Running.StartedAt.Time.Before(since) {
					running[set] = true
					c.says(p.Name, "main", fmt.Sprintf("sees 1 1 %d %d", sizes[set], sizes[set]))
				}
			}
		}
		if len(running) < len(sizes) {
			return fmt.Errorf("%d of %d run", len(running), len(sizes))
		}
		return nil
	}
	c.until("a pod of each set runs", patience, func() error { return run(time.Time{}) })
	c.host("reboot", "", false)
	rebooted := time.Now()
	c.until("a pod of each set runs again", patience, func() error { return run(rebooted.Truncate(time.Second)) })
	t.Logf("all ran again %.1f s after the reboot", time.Since(rebooted).Seconds())
	c.until("there are no other shares", patience, func() error {
		shares, err := c.agent.Shares(t.Context())
		if err != nil || len(shares.Shares) != len(sizes) {
			return errors.Join(fmt.Errorf("there are %d", len(shares.Shares)), err)
		}
		return nil
	})
}

// A forced deletion frees the claim in the cluster while the program still runs: what comes
// in its place starts only when the driver has the memory back.
func TestForcedDeletion(t *testing.T) {
	c := newCluster(t)
	truth := c.truth()
	device := c.wholeDevices()[0]
	uuid, _ := names.UUID(device.Name)
	stubborn := []string{"/bin/sh", "-c", "trap '' TERM INT; python3 -c '" + strings.Replace(look, "import ctypes", "import ctypes, signal; signal.signal(15, signal.SIG_IGN)", 1) +
		strings.NewReplacer("600", "12", "MOST", "1000").Replace(holdMemory) + "'"}
	c.claim("old", request{name: "gpu", memory: "30Gi", uuid: uuid})
	c.podThat("old", corev1.RestartPolicyNever, container{name: "main", claim: "old", command: stubborn})
	c.says("old", "main", "holds")
	// The kubelet is away, so that the forced deletion frees the claim before the node has.
	c.host("stop", "kubelet", true)
	c.deletePod("old")
	c.gone("old")
	if err := c.kube.ResourceV1().ResourceClaims(c.space).Delete(t.Context(), "old", deleteNow()); err != nil {
		t.Fatal(err)
	}
	c.claim("new", request{name: "gpu", memory: "30Gi", uuid: uuid})
	c.pod("new", container{name: "main", claim: "new", command: example("vectoradd", 1)})
	c.host("start", "kubelet", false)
	var most uint64
	c.until("the new pod ends", 2*patience, func() error {
		cards, err := truth.Cards(t.Context())
		if err != nil {
			return err
		}
		for _, card := range cards {
			if card.UUID == uuid {
				most = max(most, card.UsedBytes)
			}
		}
		if p := c.get("new"); p.Status.Phase != corev1.PodSucceeded {
			return errors.New(phase(p))
		}
		return nil
	})
	whole := device.Capacity[names.CapacityMemory].Value
	if most > uint64(whole.Value()) {
		t.Errorf("%d of %d MiB were used", most/mib, whole.Value()>>20)
	}
	checkExample(t, c.log("new", "main"), 30*gib)
}

// podThat is pod with a restart policy.
func (c *cluster) podThat(name string, policy corev1.RestartPolicy, k container) {
	c.t.Helper()
	grace := int64(1)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
		RestartPolicy: policy, TerminationGracePeriodSeconds: &grace, AutomountServiceAccountToken: new(bool),
		ResourceClaims: []corev1.PodResourceClaim{{Name: k.claim, ResourceClaimName: &k.claim}},
		Containers: []corev1.Container{{Name: k.name, Image: image, ImagePullPolicy: corev1.PullNever, Command: k.command,
			Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: k.claim}}}}},
	}}
	if _, err := c.kube.CoreV1().Pods(c.space).Create(c.t.Context(), pod, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}
