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
	"strings"
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
	"github.com/divvy-gpu/divvy/kube/internal/names"
)

// Agent is what the driver needs of the node's agent.
type Agent interface {
	Devices(ctx context.Context) (api.Devices, error)
	Shares(ctx context.Context) (api.Shares, error)
	// SharesWith lists those that have all of these labels.
	SharesWith(ctx context.Context, labels share.Labels) (api.Shares, error)
	EnsureShare(ctx context.Context, spec api.ShareSpec) (s api.Share, made bool, err error)
	DeleteShare(ctx context.Context, name string, force bool) error
	Follow(ctx context.Context, since uint64, handle func(api.Event) error) error
}

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

// Config of a Driver.
type Config struct {
	Node   string // its name, and that of its pool
	Agent  Agent
	Server Server
	Log    *slog.Logger
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
	if c.Node == "" || c.Agent == nil || c.Server == nil || c.Log == nil || c.Fatal == nil || c.Settle <= 0 || c.Patience < 0 {
		return errors.New("node, agent, API server, log, what to do on fatal errors and a time to settle are needed")
	}
	return nil
}

// Driver implements kubeletplugin.DRAPlugin. Its methods may be called from any goroutine.
type Driver struct {
	config Config

	claims claimLocks

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
		unlock := d.claims.lock(claim.UID)
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
	all, err := translate(claim, d.config.Node)
	if err != nil {
		return nil, err
	}
	if err := d.checkContainers(ctx, claim); err != nil {
		return nil, err
	}
	var devices []kubeletplugin.Device
	var made []api.Share
	for _, w := range all {
		booked, err := d.ensure(ctx, w.spec)
		if err != nil {
			return nil, err
		}
		devices, made = append(devices, w.devices...), append(made, booked)
	}
	if err := d.tell(ctx, claim, all, made); err != nil {
		// The shares are there and the pod can run; the status is for people.
		d.config.Log.Warn("a claim's status was not written", "claim", claim.Namespace+"/"+claim.Name, "error", err)
	}
	return devices, nil
}

// ensure makes a share, or finds it as it is wanted. The cluster may have given away what
// the node has not taken back yet: a pod that was deleted by force, a program that does
// not end. That is waited for here, since the kubelet tries again only after a minute or so.
func (d *Driver) ensure(ctx context.Context, spec api.ShareSpec) (api.Share, error) {
	deadline := time.Now().Add(d.config.Patience)
	for {
		made, err := d.try(ctx, spec)
		if err == nil || time.Now().After(deadline) || !errors.Is(err, errHeld) && code(err) != api.CodeNoRoom {
			return made, err
		}
		timer := time.NewTimer(retryFirst)
		select {
		case <-ctx.Done():
			timer.Stop()
			return api.Share{}, err
		case <-timer.C:
		}
	}
}

var errHeld = errors.New("its last programs are not gone")

func (d *Driver) try(ctx context.Context, spec api.ShareSpec) (api.Share, error) {
	made, _, err := d.config.Agent.EnsureShare(ctx, spec)
	if code(err) != api.CodeExists {
		return made, explain(err)
	}
	var failure *api.Error
	errors.As(err, &failure)
	if len(failure.Differs) == 0 {
		return api.Share{}, d.held(ctx, spec)
	}
	// A claim that was allocated anew, and whose first allocation nobody took back here.
	if err := d.config.Agent.DeleteShare(ctx, spec.Name, true); err != nil && code(err) != api.CodeNotFound {
		return api.Share{}, fmt.Errorf("share %s has another %s, and cannot be removed: %w", spec.Name, strings.Join(failure.Differs, ", "), explain(err))
	}
	made, _, err = d.config.Agent.EnsureShare(ctx, spec)
	if code(err) == api.CodeExists {
		err = d.held(ctx, spec)
	}
	return made, explain(err)
}

// held says who stands in the way of a share: the programs of one of its name.
func (d *Driver) held(ctx context.Context, spec api.ShareSpec) error {
	shares, err := d.config.Agent.SharesWith(ctx, spec.Labels)
	if err == nil {
		for _, s := range shares.Shares {
			if s.Name == spec.Name {
				return fmt.Errorf("share %s: %w: %d hold %d MiB of GPU %s", s.Name, errHeld, s.Clients, s.UsedBytes/mib, strings.Join(s.CardUUIDs(), ", "))
			}
		}
	}
	return fmt.Errorf("share %s: %w", spec.Name, errHeld)
}

// UnprepareResourceClaims removes the shares of claims. Their programs have ended by then;
// what the driver has not taken back yet stays booked until it has.
func (d *Driver) UnprepareResourceClaims(ctx context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	results := map[types.UID]error{}
	for _, claim := range claims {
		unlock := d.claims.lock(claim.UID)
		err := d.unprepare(ctx, claim.UID)
		unlock()
		if err != nil {
			err = fmt.Errorf("claim %s: %w", claim.NamespacedName, explain(err))
		}
		results[claim.UID] = err
	}
	return results, nil
}

func (d *Driver) unprepare(ctx context.Context, claim types.UID) error {
	shares, err := d.config.Agent.SharesWith(ctx, share.Labels{names.LabelBy: names.ByDRA, names.LabelClaim: string(claim)})
	if err != nil {
		return err
	}
	for _, s := range shares.Shares {
		if s.State == stateRevoked {
			continue
		}
		if err := d.config.Agent.DeleteShare(ctx, s.Name, true); err != nil && code(err) != api.CodeNotFound {
			return err
		}
	}
	return nil
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
			return fmt.Errorf("container %s of pod %s would have %d shares, and one is the most: give each of its claims' requests to a container of its own",
				container.Name, pod.Name, count)
		}
	}
	return nil
}

// shareCount is how many shares a reference to a claim, or to a request of it, brings: one
// for each request.
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

// claimLocks lets one call at a time work on a claim. Calls for different claims go on beside
// each other: one may wait for what another gives back.
type claimLocks struct {
	mu   sync.Mutex
	held map[types.UID]chan struct{}
}

// lock waits until nobody else works on a claim; the function that it returns ends this.
func (l *claimLocks) lock(claim types.UID) func() {
	for {
		l.mu.Lock()
		other := l.held[claim]
		if other == nil {
			if l.held == nil {
				l.held = map[types.UID]chan struct{}{}
			}
			done := make(chan struct{})
			l.held[claim] = done
			l.mu.Unlock()
			return func() {
				l.mu.Lock()
				defer l.mu.Unlock()
				delete(l.held, claim)
				close(done)
			}
		}
		l.mu.Unlock()
		<-other
	}
}

func code(err error) api.Code {
	var failure *api.Error
	if errors.As(err, &failure) {
		return failure.Code
	}
	return ""
}

// explain adds the agent's hint, which is what a pod's event has to say.
func explain(err error) error {
	var failure *api.Error
	if errors.As(err, &failure) && failure.Hint != "" {
		return fmt.Errorf("%w (%s)", err, failure.Hint)
	}
	return err
}
