// SPDX-License-Identifier: Apache-2.0

// Package cdi writes Container Device Interface files, by which podman, docker,
// containerd, CRI-O and nerdctl give a container a share, a card or a part of a
// card by name (--device divvy.dev/share=NAME), without a runtime or a hook of
// any vendor.
//
// The mounts of a share put the front over the names of the driver in the
// folders that the dynamic linkers of distributions search by themselves, name
// it in /etc/ld.so.preload, and put the real driver where no cache of a linker
// leads. Sources of mounts are files of the host by their real paths: a mount
// over a link would cover the file behind it, and a link would not hold inside.
//
//	spec, err := cdi.ForShare(share, driver, front)
//	path, err := cdi.Folder("/etc/cdi").Put(spec)
//
// Offers does so for an agent's shares and a machine's cards and their parts. It asks
// nobody and decides nothing: whoever calls it says what there is.
package cdi

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"tags.cncf.io/container-device-interface/pkg/parser"
	"tags.cncf.io/container-device-interface/specs-go"
)

// Vendor is the first part of every device's name.
const Vendor = "divvy.dev"

// Classes of devices. Parts of cards have their own: mig, vf, compute.
const (
	ClassShare = "share"
	ClassCard  = "card"
	// ClassReplica is one of several names of a whole card.
	ClassReplica = "replica"
	// ClassInstance is a MIG instance that was made for somebody, by the name that he gave it.
	ClassInstance = "instance"
)

// Name is how container runtimes call a device: divvy.dev/share=train.
func Name(class, id string) string { return parser.QualifiedName(Vendor, class, id) }

// Where things are inside a container. The front looks for its share's socket
// in ShareFolder and then at ShareSocket: the folder shows the socket of an
// agent that was started anew, the file alone would not.
const (
	DriverFolder    = "/run/divvy/driver"
	ShareFolder     = "/run/divvy/share"
	ShareSocket     = "/run/divvy/share.sock"
	SimulatorSocket = "/run/divvy/simulator.sock"
	preloadFile     = "/etc/ld.so.preload"
)

// Names of the driver's libraries.
const (
	cudaName = "libcuda.so.1"
	cudaLink = "libcuda.so"
	nvmlName = "libnvidia-ml.so.1"
)

// libraryFolders are those that dynamic linkers search without any
// configuration: Debian's and Ubuntu's, and everybody else's. A linker ignores
// the other one.
func libraryFolders() []string { return []string{"/usr/lib/x86_64-linux-gnu", "/usr/lib64"} }

// ErrName says that a name cannot be that of a CDI device.
var ErrName = errors.New("not a name that container runtimes accept")

// Front is the front library that fits the driver.
type Front struct {
	Library string // the prepared libcuda.so.1
	Preload string // a file that names it, for /etc/ld.so.preload
}

// Share is a share of one card or several.
type Share struct {
	Name   string
	Socket string   // of the share, alone in its folder
	Nodes  []string // device files of its cards
	// Folder is one that programs need at the same path, and Env what they need in
	// their environment, to be held by more than the front; empty: nothing more is.
	Folder string
	Env    []string
}

// Hardware is a card, or a part of one that its driver has made.
type Hardware struct {
	Class string
	Name  string
	Nodes []string
	Env   []string
}

// ForShare describes a share.
func ForShare(share Share, driver Driver, front Front) (*specs.Spec, error) {
	real, err := filepath.EvalSymlinks(front.Library)
	if err != nil {
		return nil, fmt.Errorf("front library: %w", err)
	}
	var e edits
	e.mount(driver.CUDA, path.Join(DriverFolder, cudaName))
	e.mount(driver.NVML, path.Join(DriverFolder, nvmlName))
	e.library(real, cudaName, cudaLink, nvmlName)
	e.mount(front.Preload, preloadFile)
	e.mount(filepath.Dir(share.Socket), ShareFolder)
	e.mount(share.Socket, ShareSocket)
	if share.Folder != "" {
		e.mount(share.Folder, share.Folder)
	}
	e.accompany(driver)
	e.nodes(share.Nodes)
	// Images of CUDA ask NVIDIA's own runtime for every card.
	e.Env = append(append(e.Env, "NVIDIA_VISIBLE_DEVICES=void"), share.Env...)
	return spec(ClassShare, share.Name, e)
}

// ForHardware describes a card or a part of one, with its driver where that is
// needed in a container (nil: the image brings what it needs).
func ForHardware(h Hardware, driver *Driver) (*specs.Spec, error) {
	var e edits
	if driver != nil {
		e.library(driver.CUDA, cudaName, cudaLink)
		e.library(driver.NVML, nvmlName)
		e.accompany(*driver)
		e.Env = append(e.Env, "NVIDIA_VISIBLE_DEVICES=void")
	}
	e.Env = append(e.Env, h.Env...)
	e.nodes(h.Nodes)
	if driver == nil && len(e.DeviceNodes) == 0 {
		return nil, fmt.Errorf("%s %s has no device files", h.Class, h.Name)
	}
	return spec(h.Class, h.Name, e)
}

// edits are what a device changes in a container.
type edits struct {
	specs.ContainerEdits
}

func (e *edits) mount(from, to string) {
	e.Mounts = append(e.Mounts, &specs.Mount{
		HostPath: from, ContainerPath: to, Options: []string{"rbind", "rprivate", "ro", "nosuid", "nodev"},
	})
}

// library puts a file into every folder of libraries under some names.
func (e *edits) library(from string, names ...string) {
	for _, folder := range libraryFolders() {
		for _, name := range names {
			e.mount(from, path.Join(folder, name))
		}
	}
}

// accompany adds what goes with the driver under a share and without one.
func (e *edits) accompany(driver Driver) {
	for _, c := range driver.Companions {
		e.library(c.Path, c.Name)
	}
	for _, tool := range driver.Tools {
		e.mount(tool, path.Join("/usr/bin", filepath.Base(tool)))
	}
	if driver.Simulator != "" {
		e.mount(driver.Simulator, SimulatorSocket)
	}
}

func (e *edits) nodes(paths []string) {
	for _, node := range slices.Compact(slices.Sorted(slices.Values(paths))) {
		e.DeviceNodes = append(e.DeviceNodes, &specs.DeviceNode{Path: node})
	}
}

// spec is a file with one device, of the oldest version that has all of it:
// runtimes refuse files of versions that are newer than they are.
func spec(class, name string, e edits) (*specs.Spec, error) {
	name = strings.ReplaceAll(name, "#", "-") // as in 0000:c1:00.0#1
	if err := parser.ValidateDeviceName(name); err != nil {
		return nil, fmt.Errorf("%s %s: %w: %w", class, name, ErrName, err)
	}
	s := &specs.Spec{
		Kind:    Vendor + "/" + class,
		Devices: []specs.Device{{Name: name, ContainerEdits: e.ContainerEdits}},
	}
	version, err := specs.MinimumRequiredVersion(s)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", class, name, err)
	}
	s.Version = version
	return s, nil
}
