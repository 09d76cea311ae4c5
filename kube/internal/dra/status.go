// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"encoding/json"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	metaapply "k8s.io/client-go/applyconfigurations/meta/v1"
	resourceapply "k8s.io/client-go/applyconfigurations/resource/v1"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/share"
	"github.com/divvy-gpu/divvy/kube/internal/mig"
	"github.com/divvy-gpu/divvy/kube/internal/names"
)

// shareStatus is what a claim's status says of each of its shares.
type shareStatus struct {
	APIVersion  string            `json:"apiVersion"`
	Kind        string            `json:"kind"`
	Share       string            `json:"share"`
	MemoryBytes uint64            `json:"memoryBytes"` // of each GPU
	Cores       int               `json:"cores"`
	Policy      share.Policy      `json:"policy"`
	Exclusive   bool              `json:"exclusive,omitempty"`
	Enforcement share.Enforcement `json:"enforcement"`
	Why         string            `json:"enforcementWhy,omitempty"`
}

// migStatus is what it says of a MIG device.
type migStatus struct {
	APIVersion  string            `json:"apiVersion"`
	Kind        string            `json:"kind"`
	Device      string            `json:"device"`
	Profile     string            `json:"profile"`
	MemoryBytes uint64            `json:"memoryBytes,omitempty"` // of one that was there before
	Enforcement share.Enforcement `json:"enforcement"`
}

// partStatusOf is of one that was made for the claim.
func partStatusOf(i api.Instance) migStatus {
	status := migStatusOf(mig.Device{Profile: i.Profile})
	if len(i.Devices) > 0 {
		status.Device = i.Devices[0]
	}
	return status
}

func statusOf(s api.Share) shareStatus {
	return shareStatus{
		APIVersion: names.ParametersAPIVersion, Kind: names.StatusKind, Share: s.Name, MemoryBytes: s.MemoryBytes, Cores: s.CoresPercent,
		Policy: s.Policy, Exclusive: s.Exclusive, Enforcement: s.Enforcement, Why: s.EnforcementWhy,
	}
}

func migStatusOf(m mig.Device) migStatus {
	return migStatus{
		APIVersion: names.ParametersAPIVersion, Kind: names.StatusKindMIG, Device: m.ID, Profile: m.Profile, MemoryBytes: m.MemoryBytes,
		Enforcement: share.EnforcedMIG,
	}
}

// tell writes into a claim's status at which level what it has is held.
func (d *Driver) tell(ctx context.Context, claim *resourceapi.ResourceClaim, all []given) error {
	status := resourceapply.ResourceClaimStatus()
	for _, g := range all {
		raw, err := json.Marshal(g.status)
		if err != nil {
			return err
		}
		enforced := metav1.ConditionTrue
		if g.enforcement == share.Booked {
			enforced = metav1.ConditionFalse
		}
		for _, of := range g.devices {
			device := resourceapply.AllocatedDeviceStatus().WithDriver(names.Driver).WithPool(of.PoolName).WithDevice(of.DeviceName).
				WithData(runtime.RawExtension{Raw: raw}).
				WithConditions(metaapply.Condition().WithType(names.ConditionEnforced).WithStatus(enforced).WithReason(names.ReasonEnforcedByLevel).
					WithMessage(string(g.enforcement)).WithLastTransitionTime(metav1.NewTime(g.since)))
			if of.ShareID != nil {
				device = device.WithShareID(string(*of.ShareID))
			}
			status = status.WithDevices(device)
		}
	}
	return d.config.Server.WriteStatus(ctx, claim, status)
}
