// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/share"
	"github.com/divvy-gpu/divvy/kube/internal/mig"
	"github.com/divvy-gpu/divvy/kube/internal/names"
	"github.com/divvy-gpu/divvy/kube/internal/nodeagent"
)

// MIG serves a node's MIG devices, each profile's as a resource of its own. A device is booked by the
// agent from a container's start until its pod has no sandbox any more that is ready.
type MIG struct {
	Devices    *mig.Devices
	Instances  nodeagent.Instances
	Runtime    Runtime
	Checkpoint string // as in Config
	Patience   time.Duration
	Log        *slog.Logger

	mu    sync.Mutex           // guards everything below
	known map[string]migDevice // by UUID
}

// migDevice is a MIG device and its resource.
type migDevice struct{ resource, card string }

// Serve offers the devices to the kubelet until ctx ends. Profiles may come later; one whose last
// device is gone has none from then on.
func (m *MIG) Serve(ctx context.Context, folder string) error {
	var serving sync.WaitGroup
	var mu sync.Mutex
	var failed error
	served := map[string]bool{}
	for {
		devices, err := m.Devices.List(ctx)
		resources := map[string]bool{}
		if err != nil { // what was known stays
			m.Log.Debug("which MIG devices there are is not known", "error", err)
		} else {
			resources = m.learn(devices)
			if err := m.reap(ctx); err != nil {
				m.Log.Warn("MIG devices of pods that have ended stay booked", "error", err)
			}
		}
		for resource := range resources {
			if served[resource] {
				continue
			}
			served[resource] = true
			serving.Go(func() {
				if err := Serve(ctx, folder, resource, m.serve(resource), m.Log); err != nil {
					mu.Lock()
					defer mu.Unlock()
					failed = errors.Join(failed, err)
				}
			})
		}
		if !nodeagent.Pause(ctx, filesInterval) {
			serving.Wait()
			return failed
		}
	}
}

// learn notes the resource of each device and returns the resources.
func (m *MIG) learn(devices []mig.Device) map[string]bool {
	known, resources := map[string]migDevice{}, map[string]bool{}
	for _, d := range devices {
		if resource, ok := names.ResourceMIG(d.Profile); ok {
			known[d.ID], resources[resource] = migDevice{resource, d.CardUUID}, true
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known = known
	return resources
}

// files are the devices of one resource.
func (m *MIG) files(resource string) *Files {
	return &Files{Folders: m.Devices.Folders, Blind: m.Devices.Blind, Class: gpu.PartitionMIG, Is: func(id string) bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.known[id].resource == resource
	}}
}

// migResource serves the devices of one resource.
type migResource struct {
	*Files
	of       *MIG
	resource string
}

func (m *MIG) serve(resource string) migResource { return migResource{m.files(resource), m, resource} }

// GetDevicePluginOptions asks the kubelet to call before each start of a container.
func (r migResource) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{PreStartRequired: true}, nil
}

// PreStartContainer books the devices of the container that is about to start.
func (r migResource) PreStartContainer(ctx context.Context, asked *pluginapi.PreStartContainerRequest) (*pluginapi.PreStartContainerResponse, error) {
	if err := r.of.book(ctx, r.resource, asked.DevicesIds); err != nil {
		r.of.Log.Warn("a container with MIG devices cannot start", "devices", asked.DevicesIds, "error", err)
		return nil, err
	}
	return &pluginapi.PreStartContainerResponse{}, nil
}

func (m *MIG) book(ctx context.Context, resource string, ids []string) error {
	holders, err := readHolders(m.Checkpoint, resource, ids)
	if err != nil {
		return err
	}
	for _, id := range ids {
		m.mu.Lock()
		device, known := m.known[id]
		m.mu.Unlock()
		if !known {
			return fmt.Errorf("MIG device %.80q is not there any more", id)
		}
		_, err := nodeagent.EnsureInstance(ctx, m.Instances, api.InstanceSpec{
			Name: names.Booking(id), GPU: device.card, Device: id, Labels: share.Labels{names.LabelBy: names.ByPlugin, names.LabelPod: holders.pod},
		}, m.Patience)
		if err != nil {
			return err
		}
	}
	return nil
}

// reap ends the bookings of pods that have ended. A sandbox is there before a container starts.
func (m *MIG) reap(ctx context.Context) error {
	all, err := m.Instances.Instances(ctx)
	if nodeagent.Code(err) == api.CodeNotFound { // an agent that makes none
		return nil
	}
	if err != nil || len(all.Instances) == 0 {
		return err
	}
	sandboxes, err := m.Runtime.Sandboxes(ctx)
	if err != nil {
		return err
	}
	for _, i := range all.Instances {
		if i.Labels[names.LabelBy] != names.ByPlugin || sandboxes[i.Labels[names.LabelPod]].Ready {
			continue
		}
		if failed := m.Instances.DeleteInstance(ctx, i.Name); nodeagent.Code(failed) != api.CodeNotFound {
			err = errors.Join(err, failed)
		}
	}
	return err
}
