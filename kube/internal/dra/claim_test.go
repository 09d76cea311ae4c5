// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/internal/share"
	"github.com/divvy-gpu/divvy/kube/internal/names"
)

const (
	claimUID = "0c9f7a6e-3c1b-4a58-9d0e-2b8a4f6c1d35"
	gpuUUID  = "GPU-4404041a-04cf-1ccf-9e70-f139a9b1e23c"
	node     = "node1"
)

// allocated is a claim with one result for each memory and cores.
func allocated(amounts ...[2]string) *resourceapi.ResourceClaim {
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "team-a", UID: claimUID}}
	claim.Status.Allocation = &resourceapi.AllocationResult{}
	for i, a := range amounts {
		id := types.UID("share-" + a[0])
		claim.Status.Allocation.Devices.Results = append(claim.Status.Allocation.Devices.Results, resourceapi.DeviceRequestAllocationResult{
			Request: "r" + string(rune('0'+i)), Driver: names.Driver, Pool: node, Device: names.Device(gpuUUID), ShareID: &id,
			ConsumedCapacity: map[resourceapi.QualifiedName]resource.Quantity{
				names.CapacityMemory: resource.MustParse(a[0]), names.CapacityCores: resource.MustParse(a[1]),
			},
		})
	}
	return claim
}

func configure(claim *resourceapi.ResourceClaim, source resourceapi.AllocationConfigSource, raw string, requests ...string) {
	claim.Status.Allocation.Devices.Config = append(claim.Status.Allocation.Devices.Config, resourceapi.DeviceAllocationConfiguration{
		Source: source, Requests: requests, DeviceConfiguration: resourceapi.DeviceConfiguration{
			Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: names.Driver, Parameters: runtime.RawExtension{Raw: []byte(raw)}},
		},
	})
}

func TestTranslate(t *testing.T) {
	claim := allocated([2]string{"8Gi", "30"}, [2]string{"512Mi", "0"})
	other := claim.Status.Allocation.Devices.Results[0]
	other.Driver = "gpu.example.com"
	claim.Status.Allocation.Devices.Results = append([]resourceapi.DeviceRequestAllocationResult{other}, claim.Status.Allocation.Devices.Results...)
	configure(claim, resourceapi.AllocationConfigSourceClaim, `{"apiVersion":"divvy.dev/v1","kind":"ShareParameters","policy":"weighted","weight":3}`, "r1")
	configure(claim, resourceapi.AllocationConfigSourceClass, `{"apiVersion":"divvy.dev/v1","kind":"ShareParameters","policy":"equal","enforce":"front"}`)
	all, err := translate(claim, node)
	if err != nil || len(all) != 2 {
		t.Fatalf("%v (%v)", all, err)
	}
	first, second := all[0].spec, all[1].spec
	if first.Name != "k8s-"+claimUID+"-0" || first.GPU != gpuUUID || first.MemoryBytes != 8<<30 || first.CoresPercent != 30 ||
		first.Tenant != "team-a" || first.Policy != share.Equal || first.Enforce != share.EnforcedFront {
		t.Errorf("%+v", first)
	}
	if second.Name != "k8s-"+claimUID+"-1" || second.MemoryBytes != 512<<20 || second.CoresPercent != 0 || second.Policy != share.Weighted || second.Weight != 3 {
		t.Errorf("%+v: what the claim says stands before what its class says", second)
	}
	if d := all[1].devices[0]; d.CDIDeviceIDs[0] != "divvy.dev/share=k8s-"+claimUID+"-1" || d.Requests[0] != "r1" || *d.ShareID != "share-512Mi" {
		t.Errorf("%+v", d)
	}
}

func TestTranslateRefuses(t *testing.T) {
	result := func(c *resourceapi.ResourceClaim) *resourceapi.DeviceRequestAllocationResult {
		return &c.Status.Allocation.Devices.Results[0]
	}
	yes := true
	for name, c := range map[string]struct {
		change func(*resourceapi.ResourceClaim)
		want   string
	}{
		"not allocated":         {func(c *resourceapi.ResourceClaim) { c.Status.Allocation = nil }, "not allocated"},
		"another node":          {func(c *resourceapi.ResourceClaim) { result(c).Pool = "node2" }, "node2"},
		"no GPU":                {func(c *resourceapi.ResourceClaim) { result(c).Device = "gpu-0" }, "gpu-0"},
		"administrator":         {func(c *resourceapi.ResourceClaim) { result(c).AdminAccess = &yes }, "adminAccess"},
		"no whole MiB":          {func(c *resourceapi.ResourceClaim) { result(c).ConsumedCapacity["memory"] = resource.MustParse("1500k") }, "whole MiB"},
		"no memory":             {func(c *resourceapi.ResourceClaim) { delete(result(c).ConsumedCapacity, "memory") }, "whole MiB"},
		"cores over 100":        {func(c *resourceapi.ResourceClaim) { result(c).ConsumedCapacity["cores"] = resource.MustParse("101") }, "100"},
		"an unknown field":      {withParameters(`{"apiVersion":"divvy.dev/v1","kind":"ShareParameters","polcy":"equal"}`), "polcy"},
		"two documents":         {withParameters(`{"apiVersion":"divvy.dev/v1","kind":"ShareParameters"} {}`), "more than one"},
		"another kind":          {withParameters(`{"apiVersion":"v1","kind":"Share"}`), "ShareParameters"},
		"no JSON":               {withParameters(`policy: equal`), "parameters"},
		"too much":              {withParameters(strings.Repeat(" ", maxParameterBytes) + `{}`), "10240 are the most"},
		"a whole GPU by weight": {withParameters(`{"apiVersion":"divvy.dev/v1","kind":"ShareParameters","exclusive":true,"weight":2}`), "no weight"},
		"a part of a whole": {func(c *resourceapi.ResourceClaim) {
			configure(c, resourceapi.AllocationConfigSourceClass, `{"apiVersion":"divvy.dev/v1","kind":"ShareParameters","exclusive":true}`)
			configure(c, resourceapi.AllocationConfigSourceClaim, `{"apiVersion":"divvy.dev/v1","kind":"ShareParameters","enforce":"front"}`)
			c.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "r0", Exactly: &resourceapi.ExactDeviceRequest{
				Capacity: &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{"memory": resource.MustParse("1Gi")}},
			}}}
		}, "share.divvy.dev"},
		"a claim's odd UID": {func(c *resourceapi.ResourceClaim) { c.UID = "../../etc" }, "no share can be named"},
	} {
		t.Run(name, func(t *testing.T) {
			claim := allocated([2]string{"1Gi", "10"})
			c.change(claim)
			if all, err := translate(claim, node); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v (%v), want an error with %q", all, err, c.want)
			}
		})
	}
}

func withParameters(raw string) func(*resourceapi.ResourceClaim) {
	return func(c *resourceapi.ResourceClaim) { configure(c, resourceapi.AllocationConfigSourceClaim, raw) }
}

func FuzzParameters(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"divvy.dev/v1","kind":"ShareParameters","policy":"weighted","weight":3}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		p, err := decodeParameters(raw)
		if err == nil && (p.Kind != names.ParametersKind || p.APIVersion != names.ParametersAPIVersion) {
			t.Errorf("%q was taken for %+v", raw, p)
		}
	})
}
