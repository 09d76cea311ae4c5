// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/divvy-gpu/divvy/internal/cdi"
)

const replicasInterval = 5 * time.Second

// Replicas serves names of whole GPUs as divvy.dev/replica: those in the CDI files that
// `divvy cdi generate` and `divvy partition apply` write. A device's id is its CDI device's, so
// that there is nothing to look up when a container starts; and nothing holds it.
type Replicas struct {
	pluginapi.UnimplementedDevicePluginServer
	Folders []cdi.Folder
}

// devices lists the replicas that are ready, and those that lack something of the host.
func (r *Replicas) devices() ([]*pluginapi.Device, error) {
	var all []*pluginapi.Device
	for _, folder := range r.Folders {
		devices, err := folder.Devices()
		if err != nil {
			return nil, err
		}
		for _, d := range devices {
			if d.Class != cdi.ClassReplica || d.State == cdi.StateInvalid {
				continue
			}
			health := pluginapi.Healthy
			if d.State == cdi.StateIncomplete {
				health = pluginapi.Unhealthy
			}
			all = append(all, &pluginapi.Device{ID: d.ID, Health: health})
		}
	}
	slices.SortFunc(all, func(a, b *pluginapi.Device) int { return strings.Compare(a.ID, b.ID) })
	return all, nil
}

// GetDevicePluginOptions asks for nothing besides.
func (r *Replicas) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{}, nil
}

// ListAndWatch tells the kubelet of the replicas, and again when they change.
func (r *Replicas) ListAndWatch(_ *pluginapi.Empty, stream pluginapi.DevicePlugin_ListAndWatchServer) error {
	ticker := time.NewTicker(replicasInterval)
	defer ticker.Stop()
	var told []*pluginapi.Device
	for first := true; ; first = false {
		now, err := r.devices()
		if err != nil {
			return err
		}
		same := slices.EqualFunc(told, now, func(a, b *pluginapi.Device) bool { return a.ID == b.ID && a.Health == b.Health })
		if first || !same {
			if err := stream.Send(&pluginapi.ListAndWatchResponse{Devices: now}); err != nil {
				return err
			}
			told = now
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-ticker.C:
		}
	}
}

// Allocate names the CDI devices themselves. One that is gone is refused.
func (r *Replicas) Allocate(_ context.Context, asked *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	known, err := r.devices()
	if err != nil {
		return nil, err
	}
	answer := &pluginapi.AllocateResponse{}
	for _, container := range asked.ContainerRequests {
		given := &pluginapi.ContainerAllocateResponse{}
		for _, id := range container.DevicesIds {
			if !slices.ContainsFunc(known, func(d *pluginapi.Device) bool { return d.ID == id }) {
				return nil, fmt.Errorf("no replica is called %.80q (divvy cdi list)", id)
			}
			given.CdiDevices = append(given.CdiDevices, &pluginapi.CDIDevice{Name: cdi.Vendor + "/" + cdi.ClassReplica + "=" + id})
		}
		answer.ContainerResponses = append(answer.ContainerResponses, given)
	}
	return answer, nil
}
