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

// tell writes into a claim's status at which level its shares are held.
func (d *Driver) tell(ctx context.Context, claim *resourceapi.ResourceClaim, all []wanted, made []api.Share) error {
	status := resourceapply.ResourceClaimStatus()
	for i, w := range all {
		s := made[i]
		raw, err := json.Marshal(shareStatus{
			APIVersion: names.ParametersAPIVersion, Kind: names.StatusKind, Share: s.Name, MemoryBytes: s.MemoryBytes, Cores: s.CoresPercent,
			Policy: s.Policy, Exclusive: s.Exclusive, Enforcement: s.Enforcement, Why: s.EnforcementWhy,
		})
		if err != nil {
			return err
		}
		enforced := metav1.ConditionTrue
		if s.Enforcement == share.Booked {
			enforced = metav1.ConditionFalse
		}
		for _, of := range w.devices {
			device := resourceapply.AllocatedDeviceStatus().WithDriver(names.Driver).WithPool(of.PoolName).WithDevice(of.DeviceName).
				WithData(runtime.RawExtension{Raw: raw}).
				WithConditions(metaapply.Condition().WithType(names.ConditionEnforced).WithStatus(enforced).WithReason(names.ReasonEnforcedByLevel).
					WithMessage(string(s.Enforcement)).WithLastTransitionTime(metav1.NewTime(s.Created)))
			if of.ShareID != nil {
				device = device.WithShareID(string(*of.ShareID))
			}
			status = status.WithDevices(device)
		}
	}
	return d.config.Server.WriteStatus(ctx, claim, status)
}
