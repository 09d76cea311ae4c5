// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/share"
	"github.com/divvy-gpu/divvy/kube/internal/names"
)

const (
	mib               = 1 << 20
	maxParameterBytes = 10 << 10
)

// parameters are what a claim or a class may say about a share besides its amounts, as
// opaque configuration for this driver.
type parameters struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Policy     share.Policy      `json:"policy,omitempty"`
	Weight     int               `json:"weight,omitempty"`
	Enforce    share.Enforcement `json:"enforce,omitempty"`
}

// wanted is one share that a claim was given, and the device that it becomes.
type wanted struct {
	spec   api.ShareSpec
	device kubeletplugin.Device
}

// translate says which shares a claim was allocated on a node; it decides nothing. Results
// of other drivers are left out.
func translate(claim *resourceapi.ResourceClaim, pool string) ([]wanted, error) {
	if claim.Status.Allocation == nil {
		return nil, errors.New("the claim is not allocated")
	}
	var all []wanted
	for _, result := range claim.Status.Allocation.Devices.Results {
		if result.Driver != names.Driver {
			continue
		}
		w, err := translateResult(claim, result, pool, len(all))
		if err != nil {
			return nil, fmt.Errorf("request %s: %w", result.Request, err)
		}
		all = append(all, w)
	}
	return all, nil
}

func translateResult(claim *resourceapi.ResourceClaim, result resourceapi.DeviceRequestAllocationResult, pool string, n int) (wanted, error) {
	if result.Pool != pool {
		return wanted{}, fmt.Errorf("device %s is of pool %s, and this node's is %s", result.Device, result.Pool, pool)
	}
	if result.AdminAccess != nil && *result.AdminAccess {
		return wanted{}, errors.New("a share has no administrator's access: remove adminAccess")
	}
	uuid, ok := names.UUID(result.Device)
	if !ok {
		return wanted{}, fmt.Errorf("no device of this driver is called %q", result.Device)
	}
	name, err := names.Share(string(claim.UID), n)
	if err != nil {
		return wanted{}, err
	}
	memory, cores := result.ConsumedCapacity[names.CapacityMemory], result.ConsumedCapacity[names.CapacityCores]
	if memory.Value() <= 0 || memory.Value()%mib != 0 {
		return wanted{}, fmt.Errorf("%s of memory were allocated: a share has whole MiB", memory.String())
	}
	if cores.Value() < 0 || cores.Value() > 100 {
		return wanted{}, fmt.Errorf("%s cores were allocated: a share has 1 to 100 percent, or 0 for what others leave", cores.String())
	}
	p, err := parametersOf(claim.Status.Allocation.Devices.Config, result.Request)
	if err != nil {
		return wanted{}, err
	}
	return wanted{
		spec: api.ShareSpec{
			Name: name, GPU: uuid, Tenant: claim.Namespace, MemoryBytes: uint64(memory.Value()), CoresPercent: int(cores.Value()),
			Policy: p.Policy, Weight: p.Weight, Enforce: p.Enforce,
		},
		device: kubeletplugin.Device{
			Requests: []string{result.Request}, PoolName: result.Pool, DeviceName: result.Device, ShareID: result.ShareID,
			CDIDeviceIDs: []string{names.CDIShare + name},
		},
	}, nil
}

// parametersOf finds the configuration of a request: that of the claim stands before that
// of its class, and within each the last one counts.
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
			found = p
		}
	}
	return found, nil
}

// parent is the request that a subrequest REQUEST/NAME belongs to.
func parent(request string) string {
	for i, c := range request {
		if c == '/' {
			return request[:i]
		}
	}
	return request
}

func decodeParameters(raw []byte) (parameters, error) {
	var p parameters
	if len(raw) > maxParameterBytes {
		return p, fmt.Errorf("parameters of %d bytes: %d are the most", len(raw), maxParameterBytes)
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&p); err != nil {
		return p, fmt.Errorf("parameters: %w (known are policy, weight, enforce)", err)
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
