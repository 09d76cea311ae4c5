// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/internal/cdi"
	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/kube/internal/names"
	"github.com/divvy-gpu/divvy/kube/internal/nodeagent"
)

const profilesInterval = time.Minute

// MIG serves a node's MIG devices, each profile's as a resource of its own: those that the
// agent knows and CDI files name. The kubelet's books are the only ones, since a GPU in MIG mode
// takes no shares.
type MIG struct {
	Folders []cdi.Folder
	// Profiles says of which profile each MIG device is, by its UUID.
	Profiles func(context.Context) (map[string]string, error)
	Log      *slog.Logger

	mu      sync.Mutex        // guards everything below
	known   map[string]string // resources, by a device's UUID
	strange []string          // devices of files that the agent did not know
	asked   time.Time
}

// Serve offers the devices to the kubelet until ctx ends. Profiles may come later; one whose last
// device is gone has none from then on.
func (m *MIG) Serve(ctx context.Context, folder string) error {
	var serving sync.WaitGroup
	var mu sync.Mutex
	var failed error
	served := map[string]bool{}
	for {
		resources, err := m.look(ctx)
		if err != nil {
			m.Log.Debug("which MIG devices there are is not known", "error", err)
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

// look asks for profiles when files are there of a device that is not known yet, and now and
// then: asking has the agent look at its GPUs more often for a while.
func (m *MIG) look(ctx context.Context) (map[string]bool, error) {
	named, err := (&Files{Folders: m.Folders, Class: gpu.PartitionMIG}).devices()
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	due := len(named) > 0 && time.Since(m.asked) >= profilesInterval
	for _, d := range named {
		due = due || m.known[d.ID] == "" && !slices.Contains(m.strange, d.ID)
	}
	m.mu.Unlock()
	if !due {
		return nil, nil
	}
	profiles, err := m.Profiles(ctx)
	if err != nil {
		return nil, err
	}
	resources := m.learn(profiles)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked, m.strange = time.Now(), nil
	for _, d := range named {
		if m.known[d.ID] == "" {
			m.strange = append(m.strange, d.ID)
		}
	}
	return resources, nil
}

// learn notes the resource of each device and returns the resources.
func (m *MIG) learn(profiles map[string]string) map[string]bool {
	known, resources := map[string]string{}, map[string]bool{}
	for id, profile := range profiles {
		if resource, ok := names.ResourceMIG(profile); ok {
			known[id], resources[resource] = resource, true
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known = known
	return resources
}

// files are the devices of one resource.
func (m *MIG) files(resource string) *Files {
	return &Files{Folders: m.Folders, Class: gpu.PartitionMIG, Is: func(id string) bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.known[id] == resource
	}}
}
