// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/divvy-gpu/divvy/kube/internal/cri"
	"github.com/divvy-gpu/divvy/kube/internal/fakeagent"
	"github.com/divvy-gpu/divvy/kube/internal/names"
	"github.com/divvy-gpu/divvy/kube/internal/nodeagent"
	"github.com/divvy-gpu/divvy/kube/internal/record"
)

const (
	gpu1 = "GPU-4404041a-04cf-1ccf-9e70-f139a9b1e23c"
	gpu2 = "GPU-5404041a-04cf-1ccf-9e70-f139a9b1e23d"
	node = "node1"
	uid  = "0c9f7a6e-3c1b-4a58-9d0e-2b8a4f6c1d35"
	gib  = 1 << 30
)

// fakeNode is a kubelet's check-point, a runtime and an API server with one pod.
type fakeNode struct {
	pod        *corev1.Pod
	sandboxes  map[string]cri.Sandbox
	containers map[string]cri.Container
	checkpoint string
	entries    []map[string]any
}

func (n *fakeNode) Pod(_ context.Context, namespace, name string) (*corev1.Pod, error) {
	if n.pod == nil || n.pod.Namespace != namespace || n.pod.Name != name {
		return nil, fmt.Errorf("no pod %s/%s", namespace, name)
	}
	return n.pod, nil
}

func (n *fakeNode) Sandboxes(context.Context) (map[string]cri.Sandbox, error) {
	return n.sandboxes, nil
}

func (n *fakeNode) Sandbox(_ context.Context, uid string) (cri.Sandbox, bool, error) {
	s, ok := n.sandboxes[uid]
	return s, ok, nil
}

func (n *fakeNode) Containers(context.Context, string) (map[string]cri.Container, error) {
	return n.containers, nil
}

// holds writes into the check-point that a container has slots.
func (n *fakeNode) holds(t *testing.T, pod, container string, ids ...string) {
	t.Helper()
	n.holdsOf(t, names.ResourceGPU, pod, container, ids...)
}

func (n *fakeNode) holdsOf(t *testing.T, resource, pod, container string, ids ...string) {
	t.Helper()
	n.entries = append(n.entries, map[string]any{
		"PodUID": pod, "ContainerName": container, "ResourceName": resource, "DeviceIDs": map[string]any{"-1": ids}, "AllocResp": "",
	})
	raw, err := json.Marshal(map[string]any{"Data": map[string]any{"PodDeviceEntries": n.entries}, "Checksum": 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(n.checkpoint, raw, 0o600); err != nil {
		t.Fatal(err)
	}
}

func (n *fakeNode) record(t *testing.T, containers map[string]record.Share) {
	t.Helper()
	text, err := record.Record{Node: node, Pod: uid, Containers: containers}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	n.pod.Annotations = map[string]string{names.AnnotationAllocation: text}
}

func newNode(t *testing.T, agent nodeagent.Agent) (*fakeNode, *Plugin) {
	t.Helper()
	n := &fakeNode{
		checkpoint: filepath.Join(t.TempDir(), "checkpoint"),
		sandboxes:  map[string]cri.Sandbox{uid: {ID: "s", UID: uid, Namespace: "team-a", Name: "p", Ready: true}},
		containers: map[string]cri.Container{}, pod: &corev1.Pod{},
	}
	n.pod.Name, n.pod.Namespace, n.pod.UID, n.pod.Spec.NodeName = "p", "team-a", uid, node
	n.pod.Spec.Containers = []corev1.Container{{Name: "main"}}
	p, err := New(Config{Node: node, Slots: 8, Agent: agent, Server: n, Runtime: n, Checkpoint: n.checkpoint,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	return n, p
}

func (p *Plugin) start(t *testing.T, ids ...string) error {
	t.Helper()
	_, err := p.PreStartContainer(t.Context(), &pluginapi.PreStartContainerRequest{DevicesIds: ids})
	return err
}

// The share is what the record says, under the name that Allocate gave before anybody knew
// the pod; a second call finds it, and it goes with the pod's sandbox.
func TestStart(t *testing.T) {
	agent := fakeagent.New(10*gib, gpu1, gpu2)
	n, p := newNode(t, agent)
	answer, err := p.Allocate(t.Context(), &pluginapi.AllocateRequest{ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: []string{"slot-3", "slot-2"}}}})
	if err != nil || answer.ContainerResponses[0].CdiDevices[0].Name != "divvy.dev/share=k8s-slot-2" {
		t.Fatalf("%v %v", answer, err)
	}
	n.holds(t, uid, "main", "slot-3", "slot-2")
	n.holds(t, "another", "main", "slot-1")
	n.record(t, map[string]record.Share{"main": {GPUs: []string{gpu1, gpu2}, MemoryBytes: 2 * gib, Cores: 30}})
	for range 2 {
		if err := p.start(t, "slot-2", "slot-3"); err != nil {
			t.Fatal(err)
		}
		held := agent.Held()
		if len(held) != 1 || held[0].Name != "k8s-slot-2" || held[0].MemoryBytes != 2*gib || held[0].CoresPercent != 30 || held[0].Tenant != "team-a" ||
			len(held[0].CardUUIDs()) != 2 || held[0].Labels[names.LabelContainer] != "main" {
			t.Fatalf("%+v", held)
		}
	}
	p.reap(t.Context())
	if len(agent.Held()) != 1 {
		t.Error("the share of a pod that runs was taken")
	}
	n.sandboxes[uid] = cri.Sandbox{ID: "s", UID: uid}
	p.reap(t.Context())
	if held := agent.Held(); len(held) != 0 {
		t.Errorf("%+v", held)
	}
}

// A plugin that was started anew takes back what an earlier one made.
func TestReapAfterRestart(t *testing.T) {
	agent := fakeagent.New(10*gib, gpu1)
	n, p := newNode(t, agent)
	n.holds(t, uid, "main", "slot-0")
	n.record(t, map[string]record.Share{"main": {GPUs: []string{gpu1}, MemoryBytes: gib}})
	if err := p.start(t, "slot-0"); err != nil {
		t.Fatal(err)
	}
	_, again := newNode(t, agent)
	again.config.Runtime.(*fakeNode).sandboxes = map[string]cri.Sandbox{}
	if !again.look(t.Context()) {
		t.Fatal("the agent does not answer")
	}
	again.reap(t.Context())
	if held := agent.Held(); len(held) != 0 {
		t.Errorf("%+v", held)
	}
}

// What cannot be found, or is not this pod's, starts nothing and books nothing.
func TestStartRefuses(t *testing.T) {
	one := map[string]record.Share{"main": {GPUs: []string{gpu1}, MemoryBytes: gib}}
	for name, c := range map[string]struct {
		change func(*testing.T, *fakeNode)
		want   string
	}{
		"no check-point": {func(t *testing.T, n *fakeNode) {
			if err := os.Remove(n.checkpoint); err != nil {
				t.Fatal(err)
			}
		}, "check-point"},
		"another format": {func(t *testing.T, n *fakeNode) {
			if err := os.WriteFile(n.checkpoint, []byte(`{"v2":{}}`), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "another one than is known"},
		"nobody's slot":    {func(_ *testing.T, n *fakeNode) { n.entries = nil; n.holds(t, uid, "main", "slot-5") }, "to no container"},
		"two pods":         {func(t *testing.T, n *fakeNode) { n.holds(t, "another", "main", "slot-0", "slot-1") }, "to pods"},
		"no sandbox":       {func(_ *testing.T, n *fakeNode) { n.sandboxes = nil }, "no sandbox"},
		"sandbox ended":    {func(_ *testing.T, n *fakeNode) { n.sandboxes[uid] = cri.Sandbox{UID: uid} }, "no sandbox"},
		"no pod":           {func(_ *testing.T, n *fakeNode) { n.pod.Name = "q" }, "no pod team-a/p"},
		"a successor":      {func(_ *testing.T, n *fakeNode) { n.pod.UID = "another" }, "has UID another"},
		"another node":     {func(_ *testing.T, n *fakeNode) { n.pod.Spec.NodeName = "node2" }, `node "node2"`},
		"no record":        {func(_ *testing.T, n *fakeNode) { n.pod.Annotations = nil }, "not scheduled by Divvy's scheduler"},
		"a copied record":  {func(_ *testing.T, n *fakeNode) { n.annotate(strings.Replace(n.annotation(), uid, "other", 1)) }, `UID "other"`},
		"another's record": {func(_ *testing.T, n *fakeNode) { n.annotate(strings.Replace(n.annotation(), node, "node2", 1)) }, `node "node2"`},
		"unknown field": {func(_ *testing.T, n *fakeNode) {
			n.annotate(strings.Replace(n.annotation(), "memoryBytes", "memory", 1))
		}, "memory"},
		"not in it": {func(t *testing.T, n *fakeNode) { n.record(t, map[string]record.Share{"side": one["main"]}) }, "nothing of container main"},
		"two GPUs": {func(t *testing.T, n *fakeNode) {
			n.record(t, map[string]record.Share{"main": {GPUs: []string{gpu1, gpu2}, MemoryBytes: gib}})
		}, "2 GPUs"},
		"more than asked": {func(_ *testing.T, n *fakeNode) {
			n.pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{names.ResourceMemory: resource.MustParse("512Mi")}
		}, "its limit is 512Mi"},
		"other cores": {func(_ *testing.T, n *fakeNode) {
			n.pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{names.ResourceCores: resource.MustParse("10")}
		}, "its limit is 10"},
		"more than the GPU": {func(t *testing.T, n *fakeNode) {
			n.record(t, map[string]record.Share{"main": {GPUs: []string{gpu1}, MemoryBytes: 99 * gib}})
		}, "99"},
		"a GPU that is gone": {func(t *testing.T, n *fakeNode) {
			n.record(t, map[string]record.Share{"main": {GPUs: []string{gpu2}, MemoryBytes: gib}})
		}, gpu2},
	} {
		t.Run(name, func(t *testing.T) {
			agent := fakeagent.New(10*gib, gpu1)
			n, p := newNode(t, agent)
			n.holds(t, uid, "main", "slot-0")
			n.record(t, one)
			c.change(t, n)
			if err := p.start(t, "slot-0"); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if held := agent.Held(); len(held) != 0 {
				t.Errorf("%+v", held)
			}
		})
	}
	_, p := newNode(t, fakeagent.New(gib, gpu1))
	for _, ids := range [][]string{{}, {"slot-0", "slot-0"}, {"slot-00"}, {"gpu-0"}, {"slot-5000"}} {
		if err := p.start(t, ids...); err == nil {
			t.Errorf("%q was taken", ids)
		}
	}
}

func (n *fakeNode) annotation() string   { return n.pod.Annotations[names.AnnotationAllocation] }
func (n *fakeNode) annotate(text string) { n.pod.Annotations[names.AnnotationAllocation] = text }
func exited(name string, code int) cri.Container {
	return cri.Container{Name: name, Exited: true, Code: code}
}

// Init containers and those after them have the same slot one after the other, and each its
// own share; a sidecar has its own slot.
func TestInitContainers(t *testing.T) {
	agent := fakeagent.New(10*gib, gpu1)
	n, p := newNode(t, agent)
	always := corev1.ContainerRestartPolicyAlways
	n.pod.Spec.InitContainers = []corev1.Container{{Name: "first"}, {Name: "side", RestartPolicy: &always}, {Name: "second"}}
	n.record(t, map[string]record.Share{
		"first": {GPUs: []string{gpu1}, MemoryBytes: 8 * gib}, "side": {GPUs: []string{gpu1}, MemoryBytes: gib},
		"second": {GPUs: []string{gpu1}, MemoryBytes: 2 * gib}, "main": {GPUs: []string{gpu1}, MemoryBytes: 9 * gib},
	})
	for _, c := range []string{"first", "second", "main"} {
		n.holds(t, uid, c, "slot-0")
	}
	n.holds(t, uid, "side", "slot-1")
	has := func(want string, more ...string) {
		t.Helper()
		var got []string
		for _, s := range agent.Held() {
			got = append(got, fmt.Sprintf("%s=%s:%d", s.Name, s.Labels[names.LabelContainer], s.MemoryBytes/gib))
		}
		if text := strings.Join(got, " "); text != strings.Join(append([]string{want}, more...), " ") {
			t.Errorf("%s, want %s %s", text, want, more)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(p.start(t, "slot-0"))
	has("k8s-slot-0=first:8")
	n.containers["first"] = cri.Container{Name: "first"}
	if err := p.start(t, "slot-0"); err == nil || !strings.Contains(err.Error(), "has not ended") {
		t.Errorf("%v: it runs", err)
	}
	n.containers["first"] = exited("first", 1)
	must(p.start(t, "slot-0"))
	has("k8s-slot-0=first:8")
	n.containers["first"] = exited("first", 0)
	must(p.start(t, "slot-1"))
	has("k8s-slot-1=side:1") // the first one's share went when a container behind it came
	n.containers["side"] = cri.Container{Name: "side"}
	must(p.start(t, "slot-0"))
	has("k8s-slot-1=side:1", "k8s-slot-0=second:2")
	n.containers["second"] = exited("second", 0)
	must(p.start(t, "slot-0"))
	has("k8s-slot-1=side:1", "k8s-slot-0=main:9")
	delete(n.containers, "second") // the kubelet has cleared it away
	delete(n.containers, "first")
	n.containers["main"] = exited("main", 1)
	must(p.start(t, "slot-0"))
	has("k8s-slot-1=side:1", "k8s-slot-0=main:9")
}

// What a predecessor's programs still hold is waited for, within the call.
func TestPredecessor(t *testing.T) {
	agent := fakeagent.New(10*gib, gpu1)
	n, p := newNode(t, agent)
	n.holds(t, uid, "main", "slot-0")
	n.record(t, map[string]record.Share{"main": {GPUs: []string{gpu1}, MemoryBytes: gib}})
	if err := p.start(t, "slot-0"); err != nil {
		t.Fatal(err)
	}
	end, err := agent.Run("k8s-slot-0")
	if err != nil {
		t.Fatal(err)
	}
	n.record(t, map[string]record.Share{"main": {GPUs: []string{gpu1}, MemoryBytes: 2 * gib}})
	if err := p.start(t, "slot-0"); err == nil || !strings.Contains(err.Error(), "programs") {
		t.Errorf("%v", err)
	}
	p.config.Patience = time.Hour
	done := make(chan error)
	go func() { done <- p.start(t, "slot-0") }()
	end()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if held := agent.Held(); len(held) != 1 || held[0].MemoryBytes != 2*gib {
		t.Errorf("%+v", held)
	}
}

// Slots on a GPU that is not well are told as such, and well again.
func TestHealth(t *testing.T) {
	agent := fakeagent.New(10*gib, gpu1)
	n, p := newNode(t, agent)
	n.holds(t, uid, "main", "slot-4")
	n.record(t, map[string]record.Share{"main": {GPUs: []string{gpu1}, MemoryBytes: gib}})
	if err := p.start(t, "slot-4"); err != nil {
		t.Fatal(err)
	}
	for health, want := range map[string]bool{"lost": true, "degraded": false, "unshareable": true, "ok": false} {
		agent.Become(gpu1, health)
		changed := p.changed
		p.look(t.Context())
		if p.ill[4] != want || p.ill[3] {
			t.Errorf("%s: %v", health, p.ill)
		}
		select {
		case <-changed:
		default:
			if want {
				t.Errorf("%s: nobody hears of it", health)
			}
		}
	}
}

func FuzzHolders(f *testing.F) {
	f.Add([]byte(`{"Data":{"PodDeviceEntries":[{"PodUID":"u","ContainerName":"c","ResourceName":"divvy.dev/gpu","DeviceIDs":{"0":["slot-0"]}}]}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		h, err := parseHolders(raw, names.ResourceGPU, []string{"slot-0"})
		if err == nil && (h.pod == "" || len(h.containers) == 0) {
			t.Errorf("%q: %+v", raw, h)
		}
	})
}

// A check-point that grows beyond its bound is refused, not read.
func TestEndlessCheckpoint(t *testing.T) {
	file := filepath.Join(t.TempDir(), "checkpoint")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, maxCheckpointBytes+1); err != nil {
		t.Fatal(err)
	}
	if _, err := readHolders(file, "", nil); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("a check-point of a byte too many: %v", err)
	}
}
