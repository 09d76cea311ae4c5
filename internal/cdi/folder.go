// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/specs-go"
)

// Folders that container runtimes read, the first for files that an
// administrator keeps, the second for those that go with the machine's run.
const (
	StaticFolder  = "/etc/cdi"
	DynamicFolder = "/var/run/cdi"
)

// Folder is a folder of CDI files. Only ours in it are read and changed.
type Folder string

const (
	extension = ".json"
	// maxFiles bounds what is read of a folder.
	maxFiles = 8192
)

// States of a device.
const (
	StateReady      = "ready"
	StateIncomplete = "incomplete" // a file of the host that it needs is not there
	StateInvalid    = "invalid"    // runtimes do not accept its file
)

// Device is a device that a folder offers to container runtimes.
type Device struct {
	Name   string // divvy.dev/share=train; empty: the file is invalid
	Class  string
	ID     string // train
	Path   string // of the file
	State  string
	Detail string // what is missing or wrong
	Folder string // of the share's socket on the host, empty for hardware
	// Simulator is the socket behind the stand-in driver that the device has, empty
	// for hardware.
	Simulator string
}

func prefix() string { return Vendor + "-" }

func (f Folder) file(class, id string) string {
	return filepath.Join(string(f), cdi.GenerateTransientSpecName(Vendor, class, id)+extension)
}

// Put writes the file of a spec with one device, or replaces it in one step,
// and returns its path. A file that runtimes would refuse never gets its name.
func (f Folder) Put(spec *specs.Spec) (string, error) {
	_, class, _ := strings.Cut(spec.Kind, "/")
	if len(spec.Devices) != 1 {
		return "", fmt.Errorf("write CDI file: %d devices, want 1", len(spec.Devices))
	}
	path := f.file(class, spec.Devices[0].Name)
	data, err := json.MarshalIndent(spec, "", "  ")
	if err != nil {
		return "", fmt.Errorf("write CDI file %s: %w", path, err)
	}
	if err := os.MkdirAll(string(f), 0o755); err != nil {
		return "", fmt.Errorf("write CDI file: %w", err)
	}
	// Runtimes read files that end in .json or .yaml only.
	next, err := os.CreateTemp(string(f), "."+prefix()+"*.new")
	if err != nil {
		return "", fmt.Errorf("write CDI file: %w", err)
	}
	defer os.Remove(next.Name()) // of a file that has its name by then, nothing
	_, err = next.Write(append(data, '\n'))
	err = errors.Join(err, next.Chmod(0o644), next.Sync(), next.Close())
	if err != nil {
		return "", fmt.Errorf("write CDI file %s: %w", path, err)
	}
	if _, err := cdi.ReadSpec(next.Name(), 0); err != nil {
		return "", fmt.Errorf("check CDI file %s: %w", path, err)
	}
	if err := os.Rename(next.Name(), path); err != nil {
		return "", fmt.Errorf("write CDI file: %w", err)
	}
	return path, nil
}

// Remove takes a device away; one that is not there is no error.
func (f Folder) Remove(class, id string) error {
	if err := os.Remove(f.file(class, id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove CDI file: %w", err)
	}
	return nil
}

// KeepShares removes the shares whose sockets lie in folders below sockets,
// which are those of one agent, but for the named ones; and what a writer that
// was killed has left.
func (f Folder) KeepShares(sockets string, names []string) error {
	devices, err := f.Devices()
	if err != nil {
		return err
	}
	left, err := filepath.Glob(filepath.Join(string(f), "."+prefix()+"*.new"))
	if err != nil {
		return fmt.Errorf("clean CDI folder: %w", err)
	}
	var errs []error
	for _, d := range devices {
		if d.Class == ClassShare && d.Folder == filepath.Join(sockets, d.ID) && !slices.Contains(names, d.ID) {
			left = append(left, d.Path)
		}
	}
	for _, path := range left {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("clean CDI folder: %w", err))
		}
	}
	return errors.Join(errs...)
}

// Devices lists what our files in the folder offer, by the files' names. A
// folder that is not there offers nothing.
func (f Folder) Devices() ([]Device, error) {
	entries, err := os.ReadDir(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read CDI folder: %w", err)
	}
	var devices []Device
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), prefix()) || filepath.Ext(entry.Name()) != extension {
			continue
		}
		if len(devices) >= maxFiles {
			return devices, fmt.Errorf("read CDI folder %s: more than %d devices", string(f), maxFiles)
		}
		devices = append(devices, read(filepath.Join(string(f), entry.Name()))...)
	}
	return devices, nil
}

func read(path string) []Device {
	spec, err := cdi.ReadSpec(path, 0)
	if err != nil {
		return []Device{{Path: path, State: StateInvalid, Detail: err.Error()}}
	}
	var devices []Device
	for _, d := range spec.Devices {
		device := Device{
			Name: spec.Kind + "=" + d.Name, Class: spec.GetClass(), ID: d.Name, Path: path, State: StateReady,
			Folder: source(d.ContainerEdits, ShareFolder), Simulator: source(d.ContainerEdits, SimulatorSocket),
		}
		if path := missing(d.ContainerEdits); path != "" {
			device.State, device.Detail = StateIncomplete, "no "+path
		}
		devices = append(devices, device)
	}
	return devices
}

// source is what of the host is mounted at a place, empty if nothing is.
func source(e specs.ContainerEdits, place string) string {
	for _, m := range e.Mounts {
		if m.ContainerPath == place {
			return m.HostPath
		}
	}
	return ""
}

// missing is the first file of the host that is not there.
func missing(e specs.ContainerEdits) string {
	for _, m := range e.Mounts {
		if _, err := os.Stat(m.HostPath); err != nil {
			return m.HostPath
		}
	}
	for _, n := range e.DeviceNodes {
		if _, err := os.Stat(n.Path); err != nil {
			return n.Path
		}
	}
	return ""
}
