// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
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

	turns  nodeagent.Locks // by a booking's name: one start, or one end, at a time
	looked bool            // the bookings of an earlier life are known; only reap asks

	mu    sync.Mutex           // guards everything below
	known map[string]migDevice // by UUID
	pods  map[string]string    // by booking: the UID of the pod that it is for
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
		if err := m.bookOne(ctx, id, holders.pod); err != nil {
			return err
		}
	}
	return nil
}

func (m *MIG) bookOne(ctx context.Context, id, pod string) error {
	m.mu.Lock()
	device, known := m.known[id]
	m.mu.Unlock()
	if !known {
		return fmt.Errorf("MIG device %.80q is not there any more", id)
	}
	name := names.Booking(id)
	defer m.turns.Lock(name)()
	_, err := nodeagent.EnsureInstance(ctx, m.Instances, api.InstanceSpec{
		Name: name, GPU: device.card, Device: id, Labels: share.Labels{names.LabelBy: names.ByPlugin, names.LabelPod: pod},
	}, m.Patience)
	if err == nil {
		m.note(name, pod)
	}
	return err
}

// note remembers whom a booking is for.
func (m *MIG) note(name, pod string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pods == nil {
		m.pods = map[string]string{}
	}
	m.pods[name] = pod
}

func (m *MIG) bookings() map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.pods)
}

// reap ends the bookings of pods that have ended. The agent is asked once, for what an earlier life booked: its
// answer takes a question to the driver.
func (m *MIG) reap(ctx context.Context) error {
	if !m.looked {
		if err := m.look(ctx); err != nil {
			return err
		}
		m.looked = true
	}
	return reapEnded(ctx, m.Runtime, m.bookings(), m.release)
}

func (m *MIG) look(ctx context.Context) error {
	all, err := m.Instances.Instances(ctx)
	if nodeagent.Code(err) == api.CodeNotFound { // an agent that makes none
		return nil
	}
	booked := m.bookings()
	for _, i := range all.Instances {
		if _, known := booked[i.Name]; !known && i.Labels[names.LabelBy] == names.ByPlugin {
			m.note(i.Name, i.Labels[names.LabelPod])
		}
	}
	return err
}

// release ends a booking, unless it is another pod's by now, or its own pod's again.
func (m *MIG) release(ctx context.Context, name, pod string) error {
	defer m.turns.Lock(name)()
	sandbox, _, err := m.Runtime.Sandbox(ctx, pod)
	if err != nil || sandbox.Ready || m.bookings()[name] != pod {
		return err
	}
	if err := m.Instances.DeleteInstance(ctx, name); err != nil && nodeagent.Code(err) != api.CodeNotFound {
		return fmt.Errorf("booking %s: %w", name, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.pods, name)
	return nil
}
