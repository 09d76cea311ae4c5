// SPDX-License-Identifier: Apache-2.0

// Package dra serves shares to Kubernetes by dynamic resource allocation: it publishes the
// GPUs of a node with their capacities, and makes and removes the shares that claims were
// allocated.
//
// It decides nothing: the scheduler chooses the GPU, the agent's ledger says what is
// possible. It keeps nothing on disk either: a share is named after its claim, and the
// agent's journal remembers the shares.
package dra

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	resourceapply "k8s.io/client-go/applyconfigurations/resource/v1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/share"
	"github.com/divvy-gpu/divvy/kube/internal/mig"
	"github.com/divvy-gpu/divvy/kube/internal/names"
	"github.com/divvy-gpu/divvy/kube/internal/nodeagent"
)

// Server is what the driver needs of the API server.
type Server interface {
	Pod(ctx context.Context, namespace, name string) (*corev1.Pod, error)
	Claim(ctx context.Context, namespace, name string) (*resourceapi.ResourceClaim, error)
	WriteStatus(ctx context.Context, claim *resourceapi.ResourceClaim, status *resourceapply.ResourceClaimStatusApplyConfiguration) error
}

// Publisher takes what the node has; kubeletplugin.Helper is one.
type Publisher interface {
	PublishResources(ctx context.Context, resources resourceslice.DriverResources) error
}

// MIG lists the node's MIG devices; mig.Devices is one.
type MIG interface {
	List(ctx context.Context) ([]mig.Device, error)
}

// Config of a Driver.
type Config struct {
	Node      string // its name, and that of its pool
	Agent     nodeagent.Agent
	Instances nodeagent.Instances
	MIG       MIG
	Server    Server
	Log       *slog.Logger
	// Settle is how long changes of what is free are gathered before they are published;
	// health is published at once.
	Settle time.Duration
	// Patience is how long to wait for memory that the cluster has given away and the node
	// has not back yet; less than what the kubelet waits for an answer.
	Patience time.Duration
	// Fatal is called when there is no use in going on.
	Fatal func(error)
}

// Validate says what is missing.
func (c Config) Validate() error {
	if c.Node == "" || c.Agent == nil || c.Instances == nil || c.MIG == nil || c.Server == nil || c.Log == nil || c.Fatal == nil || c.Settle <= 0 || c.Patience < 0 {
		return errors.New("node, agent, MIG devices, API server, log, what to do on fatal errors and a time to settle are needed")
	}
	return nil
}

// Driver implements kubeletplugin.DRAPlugin. Its methods may be called from any goroutine.
type Driver struct {
	config Config

	claims nodeagent.Locks
	// What was published of MIG; only Run knows.
	migs  []mig.Device
	parts api.Instances
	inMIG bool // a GPU is in MIG mode

	mu      sync.Mutex
	health  []kubeletplugin.DeviceHealth
	changed chan struct{} // closed and replaced when health changes
}

var _ kubeletplugin.DRAPlugin = (*Driver)(nil)

// New returns a driver; Run makes it publish.
func New(config Config) (*Driver, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	return &Driver{config: config, changed: make(chan struct{})}, nil
}

// PrepareResourceClaims makes the shares of claims. A share that is there already, as the
// claim wants it, stays as it is: the kubelet may ask again at any time.
func (d *Driver) PrepareResourceClaims(ctx context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		unlock := d.claims.Lock(string(claim.UID))
		devices, err := d.prepare(ctx, claim)
		unlock()
		if err != nil {
			err = fmt.Errorf("claim %s/%s: %w", claim.Namespace, claim.Name, err)
		}
		results[claim.UID] = kubeletplugin.PrepareResult{Devices: devices, Err: err}
	}
	return results, nil
}

func (d *Driver) prepare(ctx context.Context, claim *resourceapi.ResourceClaim) ([]kubeletplugin.Device, error) {
	asked, err := translate(claim, d.config.Node)
	if err != nil {
		return nil, err
	}
	if err := d.checkContainers(ctx, claim); err != nil {
		return nil, err
	}
	var devices []kubeletplugin.Device
	var all []given
	for _, w := range asked {
		g, err := d.give(ctx, claim, w)
		if err != nil {
			return nil, err
		}
		devices, all = append(devices, g.devices...), append(all, g)
	}
	if err := d.tell(ctx, claim, all); err != nil {
		// The shares are there and the pod can run; the status is for people.
		d.config.Log.Warn("a claim's status was not written", "claim", claim.Namespace+"/"+claim.Name, "error", err)
	}
	return devices, nil
}

// given is what a claim has got for one of its requests.
type given struct {
	devices     []kubeletplugin.Device
	status      any // of status.devices[].data
	enforcement share.Enforcement
	since       time.Time
}

// give makes the share or the MIG device of one request of a claim, or books a MIG device that is there.
func (d *Driver) give(ctx context.Context, claim *resourceapi.ResourceClaim, w wanted) (given, error) {
	since := claim.CreationTimestamp
	if t := claim.Status.Allocation.AllocationTimestamp; t != nil {
		since = *t
	}
	if w.part == nil {
		s, err := nodeagent.Ensure(ctx, d.config.Agent, w.spec, d.config.Patience)
		return given{devices: w.devices, status: statusOf(s), enforcement: s.Enforcement, since: s.Created}, err
	}
	g := given{devices: w.devices, enforcement: share.EnforcedMIG, since: since.Time}
	part := *w.part
	if part.Device != "" {
		known, err := d.config.MIG.List(ctx)
		if err != nil {
			return given{}, err
		}
		at := slices.IndexFunc(known, func(m mig.Device) bool { return m.ID == part.Device })
		if at < 0 || !known[at].Ready {
			return given{}, fmt.Errorf("MIG device %s is not there, or lacks something of the host (divvy cdi list on node %s)", part.Device, d.config.Node)
		}
		part.GPU, g.status = known[at].CardUUID, migStatusOf(known[at])
	}
	i, err := nodeagent.EnsureInstance(ctx, d.config.Instances, part, d.config.Patience)
	if part.Device == "" {
		g.status = partStatusOf(i)
	}
	return g, err
}

// UnprepareResourceClaims removes the shares of claims, the MIG devices that were made for them, and the
// bookings of others. Their programs have ended by then; what the driver has not taken back yet stays booked
// until it has.
func (d *Driver) UnprepareResourceClaims(ctx context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	results := map[types.UID]error{}
	for _, claim := range claims {
		unlock := d.claims.Lock(string(claim.UID))
		of := share.Labels{names.LabelBy: names.ByDRA, names.LabelClaim: string(claim.UID)}
		err := nodeagent.Remove(ctx, d.config.Agent, of, func(api.Share) bool { return true })
		if err == nil {
			err = nodeagent.RemoveInstances(ctx, d.config.Instances, of, d.config.Patience)
		}
		unlock()
		if err != nil {
			err = fmt.Errorf("claim %s: %w", claim.NamespacedName, err)
		}
		results[claim.UID] = err
	}
	return results, nil
}

// checkContainers refuses what would give one container two shares: their libraries would
// be mounted over each other, and only one would count.
func (d *Driver) checkContainers(ctx context.Context, claim *resourceapi.ResourceClaim) error {
	for _, consumer := range claim.Status.ReservedFor {
		if consumer.Resource != "pods" || consumer.APIGroup != "" {
			continue
		}
		pod, err := d.config.Server.Pod(ctx, claim.Namespace, consumer.Name)
		if err != nil {
			return fmt.Errorf("look at pod %s: %w", consumer.Name, err)
		}
		if pod.UID != consumer.UID || pod.Spec.NodeName != d.config.Node {
			continue
		}
		if err := d.checkPod(ctx, pod, claim); err != nil {
			return err
		}
	}
	return nil
}

func (d *Driver) checkPod(ctx context.Context, pod *corev1.Pod, known *resourceapi.ResourceClaim) error {
	claims := map[string]*resourceapi.ResourceClaim{} // by the pod's name for them
	for _, status := range pod.Status.ResourceClaimStatuses {
		if status.ResourceClaimName != nil && *status.ResourceClaimName == known.Name {
			claims[status.Name] = known
		}
	}
	find := func(name string) (*resourceapi.ResourceClaim, error) {
		if claim, ok := claims[name]; ok {
			return claim, nil
		}
		for _, of := range pod.Spec.ResourceClaims {
			if of.Name != name {
				continue
			}
			actual := of.ResourceClaimName
			for _, status := range pod.Status.ResourceClaimStatuses {
				if status.Name == name {
					actual = status.ResourceClaimName
				}
			}
			if actual == nil || *actual == known.Name {
				claims[name] = known
				return known, nil
			}
			claim, err := d.config.Server.Claim(ctx, pod.Namespace, *actual)
			if err != nil {
				return nil, fmt.Errorf("look at claim %s: %w", *actual, err)
			}
			claims[name] = claim
			return claim, nil
		}
		return nil, fmt.Errorf("pod %s has no claim %q", pod.Name, name)
	}
	containers := append(append([]corev1.Container{}, pod.Spec.InitContainers...), pod.Spec.Containers...)
	for _, container := range containers {
		count := 0
		for _, reference := range container.Resources.Claims {
			claim, err := find(reference.Name)
			if err != nil {
				return err
			}
			count += shareCount(claim, reference.Request)
		}
		if count > 1 {
			return fmt.Errorf("container %s of pod %s would have %d shares or MIG devices, and one is the most: give each of its claims' requests to a container of its own",
				container.Name, pod.Name, count)
		}
	}
	return nil
}

// shareCount is how many shares or MIG devices a reference to a claim, or to a request of it,
// brings: one for each request.
func shareCount(claim *resourceapi.ResourceClaim, request string) int {
	if claim.Status.Allocation == nil {
		return 0
	}
	requests := map[string]bool{}
	for _, result := range claim.Status.Allocation.Devices.Results {
		if result.Driver == names.Driver && (request == "" || request == result.Request || request == parent(result.Request)) {
			requests[result.Request] = true
		}
	}
	return len(requests)
}

// HandleError hears of trouble in the background: with slices, mostly.
func (d *Driver) HandleError(_ context.Context, err error, message string) {
	d.config.Log.Error("publish the node's GPUs", "what", message, "error", err)
	if !errors.Is(err, kubeletplugin.ErrRecoverable) {
		d.config.Fatal(fmt.Errorf("%s: %w", message, err))
	}
}
