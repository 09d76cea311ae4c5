// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/share"
	"github.com/divvy-gpu/divvy/kube/internal/mig"
	"github.com/divvy-gpu/divvy/kube/internal/names"
	"github.com/divvy-gpu/divvy/kube/internal/nodeagent"
)

const maxParameterBytes = 10 << 10

// parameters are what a claim or a class may say about a share besides its amounts, as
// opaque configuration for this driver.
type parameters struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Policy     share.Policy      `json:"policy,omitempty"`
	Weight     int               `json:"weight,omitempty"`
	Enforce    share.Enforcement `json:"enforce,omitempty"`
	Exclusive  bool              `json:"exclusive,omitempty"` // whole GPUs, with no share of others on them
}

// wanted is one share that a claim was given, and the devices of which it is made; or a MIG device.
type wanted struct {
	spec    api.ShareSpec     // of a share
	part    *api.InstanceSpec // of a MIG device that is to be made, or is there: then its GPU is not known yet; nil: it is none
	devices []kubeletplugin.Device
}

// translate says which shares a claim was allocated on a node; it decides nothing. The GPUs
// of one request go to the same containers, so they are one share. Results of other drivers
// are left out.
func translate(claim *resourceapi.ResourceClaim, pool string) ([]wanted, error) {
	if claim.Status.Allocation == nil {
		return nil, errors.New("the claim is not allocated")
	}
	var all []wanted
	byRequest := map[string]int{}
	for _, result := range claim.Status.Allocation.Devices.Results {
		if result.Driver != names.Driver {
			continue
		}
		at, known := byRequest[result.Request]
		if !known {
			at = len(all)
		}
		w, err := translateResult(claim, result, pool, at)
		if err != nil {
			return nil, fmt.Errorf("request %s: %w", result.Request, err)
		}
		if !known {
			byRequest[result.Request] = at
			all = append(all, w)
			continue
		}
		if err := all[at].join(w); err != nil {
			return nil, fmt.Errorf("request %s: %w", result.Request, err)
		}
	}
	return all, nil
}

// join makes a share one over the GPU of another result of its request too.
func (w *wanted) join(other wanted) error {
	if w.part != nil || other.part != nil {
		return errors.New("it has several MIG devices, or one and a share: a container has one, so ask for each by a request of its own")
	}
	if slices.Contains(strings.Split(w.spec.GPU, ","), other.spec.GPU) {
		return fmt.Errorf("it has GPU %s twice: add a constraint with distinctAttribute %s/%s, or ask for more of one",
			other.spec.GPU, names.Driver, names.AttributeUUID)
	}
	if w.spec.MemoryBytes != other.spec.MemoryBytes || w.spec.CoresPercent != other.spec.CoresPercent {
		return fmt.Errorf("%d MiB and %d cores of one GPU and %d MiB and %d cores of another: say how much memory and how many cores",
			w.spec.MemoryBytes/nodeagent.MiB, w.spec.CoresPercent, other.spec.MemoryBytes/nodeagent.MiB, other.spec.CoresPercent)
	}
	w.spec.GPU += "," + other.spec.GPU
	other.devices[0].CDIDeviceIDs = nil // the first one's is of all
	w.devices = append(w.devices, other.devices...)
	return nil
}

func translateResult(claim *resourceapi.ResourceClaim, result resourceapi.DeviceRequestAllocationResult, pool string, n int) (wanted, error) {
	if result.Pool != pool {
		return wanted{}, fmt.Errorf("device %s is of pool %s, and this node's is %s", result.Device, result.Pool, pool)
	}
	if result.AdminAccess != nil && *result.AdminAccess {
		return wanted{}, errors.New("a share has no administrator's access: remove adminAccess")
	}
	name, err := names.Share(string(claim.UID), n)
	if err != nil {
		return wanted{}, err
	}
	if uuid, ok := names.MIG(result.Device); ok {
		return translateMIG(claim, result, api.InstanceSpec{Name: name, Device: uuid, Labels: labels(claim)}, mig.CDI(uuid))
	}
	if uuid, profile, start, ok := names.PartOf(result.Device); ok {
		spec := api.InstanceSpec{Name: name, GPU: uuid, Profile: profile, Start: &start, Labels: labels(claim)}
		return translateMIG(claim, result, spec, names.CDIInstance+name)
	}
	uuid, ok := names.UUID(result.Device)
	if !ok {
		return wanted{}, fmt.Errorf("no device of this driver is called %q", result.Device)
	}
	p, err := parametersOf(claim.Status.Allocation.Devices.Config, result.Request)
	if err != nil {
		return wanted{}, err
	}
	w := wanted{
		spec: api.ShareSpec{
			Name: name, GPU: uuid, Tenant: claim.Namespace, Policy: p.Policy, Weight: p.Weight, Enforce: p.Enforce, Exclusive: p.Exclusive,
			Labels: labels(claim),
		},
		devices: []kubeletplugin.Device{{
			Requests: []string{result.Request}, PoolName: result.Pool, DeviceName: result.Device, ShareID: result.ShareID,
			CDIDeviceIDs: []string{names.CDIShare + name},
		}},
	}
	if p.Exclusive {
		return w, wholeOnly(claim, p, result.Request)
	}
	memory, cores := result.ConsumedCapacity[names.CapacityMemory], result.ConsumedCapacity[names.CapacityCores]
	if memory.Value() <= 0 || memory.Value()%nodeagent.MiB != 0 {
		return wanted{}, fmt.Errorf("%s of memory were allocated: a share has whole MiB", memory.String())
	}
	if cores.Value() < 0 || cores.Value() > 100 {
		return wanted{}, fmt.Errorf("%s cores were allocated: a share has 1 to 100 percent, or 0 for what others leave", cores.String())
	}
	w.spec.MemoryBytes, w.spec.CoresPercent = uint64(memory.Value()), int(cores.Value())
	return w, nil
}

func translateMIG(claim *resourceapi.ResourceClaim, result resourceapi.DeviceRequestAllocationResult, part api.InstanceSpec, cdi string) (wanted, error) {
	p, err := parametersOf(claim.Status.Allocation.Devices.Config, result.Request)
	if err != nil {
		return wanted{}, err
	}
	if p != (parameters{}) {
		return wanted{}, fmt.Errorf("a MIG device has no %s: leave them out", names.ParametersKind)
	}
	return wanted{part: &part, devices: []kubeletplugin.Device{{
		Requests: []string{result.Request}, PoolName: result.Pool, DeviceName: result.Device, CDIDeviceIDs: []string{cdi},
	}}}, nil
}

// labels are those of a claim's shares.
func labels(claim *resourceapi.ResourceClaim) share.Labels {
	return share.Labels{
		names.LabelBy: names.ByDRA, names.LabelClaim: string(claim.UID), names.LabelClaimName: claim.Name, names.LabelNamespace: claim.Namespace,
	}
}

// wholeOnly refuses what a request for whole GPUs says of parts.
func wholeOnly(claim *resourceapi.ResourceClaim, p parameters, request string) error {
	if p.Policy != "" || p.Weight != 0 {
		return errors.New("a whole GPU has no policy and no weight: leave them out")
	}
	for _, r := range claim.Spec.Devices.Requests {
		if r.Name != parent(request) {
			continue
		}
		capacities := []*resourceapi.CapacityRequirements{}
		if r.Exactly != nil {
			capacities = append(capacities, r.Exactly.Capacity)
		}
		for _, sub := range r.FirstAvailable {
			if r.Name+"/"+sub.Name == request {
				capacities = append(capacities, sub.Capacity)
			}
		}
		for _, c := range capacities {
			if c != nil && len(c.Requests) > 0 {
				return fmt.Errorf("a whole GPU has all of its memory and cores: leave capacity out, or ask for a part by class %s", names.DeviceClassShare)
			}
		}
	}
	return nil
}

// parametersOf finds the configuration of a request: that of the claim stands before that
// of its class, and within each the last one counts. What a class has exclusively, no claim
// makes a part.
func parametersOf(configs []resourceapi.DeviceAllocationConfiguration, request string) (parameters, error) {
	var found parameters
	for _, source := range []resourceapi.AllocationConfigSource{resourceapi.AllocationConfigSourceClass, resourceapi.AllocationConfigSourceClaim} {
		for _, config := range configs {
			if config.Source != source || config.Opaque == nil || config.Opaque.Driver != names.Driver ||
				len(config.Requests) > 0 && !slices.Contains(config.Requests, request) && !slices.Contains(config.Requests, parent(request)) {
				continue
			}
			p, err := decodeParameters(config.Opaque.Parameters.Raw)
			if err != nil {
				return parameters{}, err
			}
			p.Exclusive = p.Exclusive || found.Exclusive
			found = p
		}
	}
	return found, nil
}

// parent is the request that a subrequest REQUEST/NAME belongs to.
func parent(request string) string {
	name, _, _ := strings.Cut(request, "/")
	return name
}

func decodeParameters(raw []byte) (parameters, error) {
	var p parameters
	if len(raw) > maxParameterBytes {
		return p, fmt.Errorf("parameters of %d bytes: %d are the most", len(raw), maxParameterBytes)
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&p); err != nil {
		return p, fmt.Errorf("parameters: %w (known are policy, weight, enforce, exclusive)", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return p, errors.New("parameters: more than one document")
	}
	if p.APIVersion != names.ParametersAPIVersion || p.Kind != names.ParametersKind {
		return p, fmt.Errorf("parameters: apiVersion and kind are %q and %q, want %q and %q", p.APIVersion, p.Kind,
			names.ParametersAPIVersion, names.ParametersKind)
	}
	return p, nil
}
