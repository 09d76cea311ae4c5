// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/kube/internal/mig"
	"github.com/divvy-gpu/divvy/kube/internal/names"
	"github.com/divvy-gpu/divvy/kube/internal/nodeagent"
)

// MIG serves a node's MIG devices, each profile's as a resource of its own.
type MIG struct {
	Devices *mig.Devices
	Log     *slog.Logger

	mu    sync.Mutex        // guards everything below
	known map[string]string // resources, by a device's UUID
}

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
		}
		for resource := range resources {
			if served[resource] {
				continue
			}
			served[resource] = true
			serving.Go(func() {
				if err := Serve(ctx, folder, resource, m.files(resource), m.Log); err != nil {
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
	known, resources := map[string]string{}, map[string]bool{}
	for _, d := range devices {
		if resource, ok := names.ResourceMIG(d.Profile); ok {
			known[d.ID], resources[resource] = resource, true
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
		return m.known[id] == resource
	}}
}
