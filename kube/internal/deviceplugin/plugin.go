// SPDX-License-Identifier: Apache-2.0

// Package deviceplugin serves shares to Kubernetes by the kubelet's device plugin interface.
//
// That interface names no pod. So the kubelet is given slots, which are places for a
// container that uses GPUs and no parts of a GPU, and a slot's CDI device is that of a share
// which is made when a container starts on it: by then the kubelet has written down whose the
// slot is, and the pod's binding says what its containers have. Nothing is guessed: what
// cannot be found, or is found twice, fails the container's start with the reason.
package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/share"
	"github.com/divvy-gpu/divvy/kube/internal/cri"
	"github.com/divvy-gpu/divvy/kube/internal/names"
	"github.com/divvy-gpu/divvy/kube/internal/nodeagent"
	"github.com/divvy-gpu/divvy/kube/internal/record"
)

// Server is what the plugin needs of the API server.
type Server interface {
	Pod(ctx context.Context, namespace, name string) (*corev1.Pod, error)
}

// Runtime is what the plugin needs of the container runtime; cri.Client is one.
type Runtime interface {
	Sandboxes(ctx context.Context) (map[string]cri.Sandbox, error)
	Sandbox(ctx context.Context, uid string) (cri.Sandbox, bool, error)
	Containers(ctx context.Context, sandbox string) (map[string]cri.Container, error)
}

// Config of a Plugin.
type Config struct {
	Node    string
	Slots   int // how many containers at most have GPUs
	Agent   nodeagent.Agent
	Server  Server
	Runtime Runtime
	// Checkpoint is the file in which the kubelet keeps whose devices are.
	Checkpoint string
	Log        *slog.Logger
	// Patience is how long to wait for what ended programs still hold; less than the 30 s
	// that the kubelet waits for an answer.
	Patience time.Duration
}

// Validate says what is missing.
func (c Config) Validate() error {
	if c.Node == "" || c.Agent == nil || c.Server == nil || c.Runtime == nil || c.Checkpoint == "" || c.Log == nil || c.Patience < 0 {
		return errors.New("node, agent, API server, runtime, the kubelet's check-point and log are needed")
	}
	if c.Slots < 1 || c.Slots > names.MaxSlots {
		return fmt.Errorf("%d slots: 1 to %d are possible", c.Slots, names.MaxSlots)
	}
	return nil
}

// Plugin serves the resource divvy.dev/gpu. Its methods may be called from any goroutine.
type Plugin struct {
	pluginapi.UnimplementedDevicePluginServer
	config Config
	slots  []sync.Mutex // one start, or one end, on a slot at a time

	mu      sync.Mutex
	pods    map[string]string // by share: the UID of the pod that it is for
	ill     map[int]bool      // slots on GPUs that are not well
	changed chan struct{}     // closed and replaced when ill changes
}

// New returns a plugin; Run makes it look after what it has made.
func New(config Config) (*Plugin, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	return &Plugin{
		config: config, slots: make([]sync.Mutex, names.MaxSlots), pods: map[string]string{}, ill: map[int]bool{}, changed: make(chan struct{}),
	}, nil
}

// GetDevicePluginOptions asks the kubelet to call before each start of a container.
func (p *Plugin) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{PreStartRequired: true}, nil
}

// ListAndWatch tells the kubelet of the slots, and again when their health changes.
func (p *Plugin) ListAndWatch(_ *pluginapi.Empty, stream pluginapi.DevicePlugin_ListAndWatchServer) error {
	for {
		p.mu.Lock()
		answer, changed := &pluginapi.ListAndWatchResponse{}, p.changed
		for n := range p.config.Slots {
			health := pluginapi.Healthy
			if p.ill[n] {
				health = pluginapi.Unhealthy
			}
			answer.Devices = append(answer.Devices, &pluginapi.Device{ID: names.Slot(n), Health: health})
		}
		p.mu.Unlock()
		if err := stream.Send(answer); err != nil {
			return err
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-changed:
		}
	}
}

// Allocate names the CDI device of the lowest slot of each container. There is no such device
// before PreStartContainer has made its share, and without it a container does not start.
func (p *Plugin) Allocate(_ context.Context, asked *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	answer := &pluginapi.AllocateResponse{}
	for _, container := range asked.ContainerRequests {
		slots, err := slotNumbers(container.DevicesIds)
		if err != nil {
			return nil, err
		}
		answer.ContainerResponses = append(answer.ContainerResponses, &pluginapi.ContainerAllocateResponse{
			CdiDevices: []*pluginapi.CDIDevice{{Name: names.CDIShare + names.SlotShare(slots[0])}},
			Envs:       map[string]string{"NVIDIA_VISIBLE_DEVICES": "void"}, // not by NVIDIA's runtime as well
		})
	}
	return answer, nil
}

// slotNumbers are the numbers of slots, the lowest first.
func slotNumbers(ids []string) ([]int, error) {
	if len(ids) == 0 {
		return nil, errors.New("no device is named")
	}
	var slots []int
	for _, id := range ids {
		n, ok := names.SlotNumber(id)
		if !ok || slices.Contains(slots, n) {
			return nil, fmt.Errorf("no device of this plugin is called %.80q, or it is there twice", id)
		}
		slots = append(slots, n)
	}
	slices.Sort(slots)
	return slots, nil
}

// PreStartContainer makes the share of the container that is about to start on slots.
func (p *Plugin) PreStartContainer(ctx context.Context, asked *pluginapi.PreStartContainerRequest) (*pluginapi.PreStartContainerResponse, error) {
	slots, err := slotNumbers(asked.DevicesIds)
	if err != nil {
		return nil, err
	}
	p.slots[slots[0]].Lock()
	defer p.slots[slots[0]].Unlock()
	if err := ctx.Err(); err != nil { // the kubelet has given up, and asks again
		return nil, err
	}
	made, err := p.prepare(ctx, slots, asked.DevicesIds)
	if err != nil {
		p.config.Log.Warn("a container with GPUs cannot start", "slots", asked.DevicesIds, "error", err)
		return nil, err
	}
	p.config.Log.Info("a container with GPUs starts", "share", made.Name, "pod", made.Labels[names.LabelPodName],
		"namespace", made.Labels[names.LabelNamespace], "container", made.Labels[names.LabelContainer])
	return &pluginapi.PreStartContainerResponse{}, nil
}

func (p *Plugin) prepare(ctx context.Context, slots []int, ids []string) (api.Share, error) {
	holders, err := readHolders(p.config.Checkpoint, names.ResourceGPU, ids)
	if err != nil {
		return api.Share{}, err
	}
	sandbox, ok, err := p.config.Runtime.Sandbox(ctx, holders.pod)
	switch {
	case err != nil:
		return api.Share{}, err
	case !ok || !sandbox.Ready:
		return api.Share{}, fmt.Errorf("the runtime has no sandbox of pod %s that is ready", holders.pod)
	}
	pod, err := p.config.Server.Pod(ctx, sandbox.Namespace, sandbox.Name)
	if err != nil {
		return api.Share{}, fmt.Errorf("look at pod %s/%s: %w", sandbox.Namespace, sandbox.Name, err)
	}
	if string(pod.UID) != holders.pod || pod.Spec.NodeName != p.config.Node {
		return api.Share{}, fmt.Errorf("pod %s/%s has UID %s on node %q, and the slots are of %s on %q", pod.Namespace, pod.Name, pod.UID,
			pod.Spec.NodeName, holders.pod, p.config.Node)
	}
	containers, err := p.config.Runtime.Containers(ctx, sandbox.ID)
	if err != nil {
		return api.Share{}, err
	}
	name, err := starting(pod, holders.containers, containers)
	if err != nil {
		return api.Share{}, err
	}
	spec, err := p.specOf(pod, name, slots)
	if err != nil {
		return api.Share{}, err
	}
	if err := p.endEarlier(ctx, pod, name); err != nil {
		return api.Share{}, err
	}
	made, err := nodeagent.Ensure(ctx, p.config.Agent, spec, p.config.Patience)
	if err != nil {
		return api.Share{}, fmt.Errorf("container %s: %w", name, err)
	}
	p.mu.Lock()
	p.pods[made.Name] = holders.pod
	p.mu.Unlock()
	return made, nil
}

// starting is which of the containers that have the same slots starts now. The kubelet gives
// the slots of an init container to the ones after it, so that several may have them; of
// these it starts one after the other, each when those before it have ended well.
func starting(pod *corev1.Pod, holders []string, known map[string]cri.Container) (string, error) {
	app := func(c corev1.Container) bool { _, ok := known[c.Name]; return ok }
	initialised := slices.ContainsFunc(pod.Spec.Containers, app)
	for _, c := range pod.Spec.InitContainers {
		if !slices.Contains(holders, c.Name) {
			continue
		}
		if sidecar(c) {
			return c.Name, nil // the kubelet gives what it has to nobody else
		}
		k, ok := known[c.Name]
		switch {
		case initialised, ok && k.Exited && k.Code == 0:
			continue
		case ok && !k.Exited:
			return "", fmt.Errorf("init container %s has not ended, and another one of its pod is to start on its slots", c.Name)
		}
		return c.Name, nil
	}
	for _, c := range pod.Spec.Containers {
		if slices.Contains(holders, c.Name) {
			return c.Name, nil
		}
	}
	return "", fmt.Errorf("the kubelet's check-point names containers %q, and none of them is still to start", holders)
}

func sidecar(c corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// specOf is the share that a pod's record gives to one of its containers.
func (p *Plugin) specOf(pod *corev1.Pod, container string, slots []int) (api.ShareSpec, error) {
	r, err := record.Decode(pod.Annotations[names.AnnotationAllocation], p.config.Node, string(pod.UID))
	if err != nil {
		return api.ShareSpec{}, err
	}
	s, err := r.Of(container, len(slots))
	if err != nil {
		return api.ShareSpec{}, err
	}
	if err := asRequested(pod, container, s); err != nil {
		return api.ShareSpec{}, err
	}
	return api.ShareSpec{
		Name: names.SlotShare(slots[0]), GPU: strings.Join(s.GPUs, ","), MemoryBytes: s.MemoryBytes, CoresPercent: s.Cores, Policy: s.Policy,
		Weight: s.Weight, Priority: s.Priority, Enforce: s.Enforce, Exclusive: s.Exclusive, Tenant: pod.Namespace,
		Labels: share.Labels{
			names.LabelBy: names.ByPlugin, names.LabelPod: string(pod.UID), names.LabelPodName: pod.Name, names.LabelNamespace: pod.Namespace,
			names.LabelContainer: container,
		},
	}, nil
}

// asRequested refuses a record that is not what the container's limits say.
func asRequested(pod *corev1.Pod, container string, s record.Share) error {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if c.Name != container {
			continue
		}
		if memory, ok := c.Resources.Limits[names.ResourceMemory]; ok && (memory.Value()+nodeagent.MiB-1)/nodeagent.MiB*nodeagent.MiB != int64(s.MemoryBytes) {
			return fmt.Errorf("%s gives container %s %d MiB, and its limit is %s", names.AnnotationAllocation, container, s.MemoryBytes/nodeagent.MiB, memory.String())
		}
		if cores, ok := c.Resources.Limits[names.ResourceCores]; ok && cores.Value() != int64(s.Cores) {
			return fmt.Errorf("%s gives container %s %d cores, and its limit is %s", names.AnnotationAllocation, container, s.Cores, cores.String())
		}
	}
	return nil
}

// endEarlier removes shares of init containers that have ended when a container behind them
// starts, which may be on other slots.
func (p *Plugin) endEarlier(ctx context.Context, pod *corev1.Pod, container string) error {
	var ended []string
	for _, c := range pod.Spec.InitContainers {
		if c.Name == container {
			break
		}
		if !sidecar(c) {
			ended = append(ended, c.Name)
		}
	}
	if len(ended) == 0 {
		return nil
	}
	return nodeagent.Remove(ctx, p.config.Agent, share.Labels{names.LabelBy: names.ByPlugin, names.LabelPod: string(pod.UID)},
		func(s api.Share) bool { return slices.Contains(ended, s.Labels[names.LabelContainer]) })
}
