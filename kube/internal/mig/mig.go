// SPDX-License-Identifier: Apache-2.0

// Package mig knows the MIG devices of a node that pods can have: those that a CDI file names and
// that the agent knows. It makes and books none.
package mig

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/internal/cdi"
	"github.com/divvy-gpu/divvy/internal/gpu"
)

// askInterval is how often the agent is asked for what has not changed, as far as files tell.
const askInterval = time.Minute

// Device is a MIG device.
type Device struct {
	ID          string // MIG-...
	Profile     string // 1g.5gb
	MemoryBytes uint64
	CardUUID    string
	Ready       bool // the host has all that its CDI file needs, as far as is seen
}

// CDI is the name of a device for container runtimes.
func CDI(id string) string { return cdi.Name(gpu.PartitionMIG, id) }

// Agent lists MIG devices, ready or not.
type Agent func(context.Context) (Answer, error)

// Answer is what an agent knows of MIG devices.
type Answer struct {
	Devices []Device
	Silent  []string  // GPUs that do not answer
	At      time.Time // when the driver was asked of the GPU that it was asked of first
}

// Devices looks for MIG devices. It is safe for concurrent use.
type Devices struct {
	Folders []cdi.Folder
	// Blind says that what files need of the host is not seen from here, as in a pod.
	Blind bool
	Agent Agent

	mu      sync.Mutex
	known   map[string]Device
	strange map[string]time.Time // of files, not known to the agent, and when each was first seen
	silent  bool                 // a GPU was, when last asked
	at      time.Time            // of the last answer
	asked   time.Time
}

// List looks for the devices now, by their UUIDs. The agent is asked when files name a device that
// it has not told of, until its answer is younger than the file: where a driver takes its time, an
// agent answers with what the driver said before. Else it is asked now and then: asking has it look
// at its GPUs more often for a while.
func (d *Devices) List(ctx context.Context) ([]Device, error) {
	ready, err := d.named()
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dueLocked(ready) {
		if err := d.askLocked(ctx, ready); err != nil {
			return nil, err
		}
	}
	var all []Device
	for id, is := range ready {
		if device, ok := d.known[id]; ok {
			device.Ready = is
			all = append(all, device)
		}
	}
	slices.SortFunc(all, func(a, b Device) int { return strings.Compare(a.ID, b.ID) })
	return all, nil
}

// named says which devices have a file, and whether it is complete.
func (d *Devices) named() (map[string]bool, error) {
	ready := map[string]bool{}
	for _, folder := range d.Folders {
		devices, err := folder.Devices()
		if err != nil {
			return nil, err
		}
		for _, of := range devices {
			if of.Class == gpu.PartitionMIG && of.State != cdi.StateInvalid {
				ready[of.ID] = d.Blind || of.State == cdi.StateReady
			}
		}
	}
	return ready, nil
}

func (d *Devices) dueLocked(ready map[string]bool) bool {
	if len(ready) > 0 && (d.silent || time.Since(d.asked) >= askInterval) {
		return true
	}
	for id := range ready {
		if _, ok := d.known[id]; ok {
			continue
		}
		if since, ok := d.strange[id]; !ok || !d.at.After(since) {
			return true
		}
	}
	return false
}

// askLocked leaves what was known of a GPU that does not answer.
func (d *Devices) askLocked(ctx context.Context, ready map[string]bool) error {
	now := time.Now()
	told, err := d.Agent(ctx)
	if err != nil {
		return fmt.Errorf("ask for MIG devices: %w", err)
	}
	known, strange := map[string]Device{}, map[string]time.Time{}
	for id, device := range d.known {
		if slices.Contains(told.Silent, device.CardUUID) {
			known[id] = device
		}
	}
	for _, device := range told.Devices {
		known[device.ID] = device
	}
	for id := range ready {
		if _, ok := known[id]; ok {
			continue
		}
		if strange[id] = now; !d.strange[id].IsZero() {
			strange[id] = d.strange[id]
		}
	}
	d.known, d.strange, d.silent, d.at, d.asked = known, strange, len(told.Silent) > 0, told.At, now
	return nil
}
