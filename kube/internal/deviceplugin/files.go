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

const filesInterval = 5 * time.Second

// Files serves devices that CDI files name, those that `divvy cdi generate` and `divvy partition
// apply` write: replicas, which are names of whole GPUs and held by nothing, and MIG devices, which
// the GPU holds. A device's id is its CDI device's, so that there is nothing to look up when a
// container starts.
type Files struct {
	pluginapi.UnimplementedDevicePluginServer
	Folders []cdi.Folder
	Blind   bool              // what files need of the host is not seen from here, as in a pod
	Class   string            // of CDI devices
	Is      func(string) bool // whether an id is one of these; nil: all of the class are
}

// devices lists those that are ready, and those that lack something of the host.
func (f *Files) devices() ([]*pluginapi.Device, error) {
	var all []*pluginapi.Device
	for _, folder := range f.Folders {
		devices, err := folder.Devices()
		if err != nil {
			return nil, err
		}
		for _, d := range devices {
			if d.Class != f.Class || d.State == cdi.StateInvalid || f.Is != nil && !f.Is(d.ID) {
				continue
			}
			health := pluginapi.Healthy
			if d.State == cdi.StateIncomplete && !f.Blind {
				health = pluginapi.Unhealthy
			}
			all = append(all, &pluginapi.Device{ID: d.ID, Health: health})
		}
	}
	slices.SortFunc(all, func(a, b *pluginapi.Device) int { return strings.Compare(a.ID, b.ID) })
	return all, nil
}

// GetDevicePluginOptions asks for nothing besides.
func (f *Files) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{}, nil
}

// ListAndWatch tells the kubelet of the devices, and again when they change.
func (f *Files) ListAndWatch(_ *pluginapi.Empty, stream pluginapi.DevicePlugin_ListAndWatchServer) error {
	ticker := time.NewTicker(filesInterval)
	defer ticker.Stop()
	var told []*pluginapi.Device
	for first := true; ; first = false {
		now, err := f.devices()
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
func (f *Files) Allocate(_ context.Context, asked *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	known, err := f.devices()
	if err != nil {
		return nil, err
	}
	answer := &pluginapi.AllocateResponse{}
	for _, container := range asked.ContainerRequests {
		given := &pluginapi.ContainerAllocateResponse{}
		for _, id := range container.DevicesIds {
			if !slices.ContainsFunc(known, func(d *pluginapi.Device) bool { return d.ID == id }) {
				return nil, fmt.Errorf("no %s is called %.80q (divvy cdi list)", f.Class, id)
			}
			given.CdiDevices = append(given.CdiDevices, &pluginapi.CDIDevice{Name: cdi.Name(f.Class, id)})
		}
		answer.ContainerResponses = append(answer.ContainerResponses, given)
	}
	return answer, nil
}
