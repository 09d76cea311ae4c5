// SPDX-License-Identifier: Apache-2.0

// Package descriptor knows the cards of vendors that have no reader of their
// own, by a file of facts: PCI ids, drivers, device files, the names Kubernetes
// plugins use. Examples are built in; a folder of a user's own adds to them and
// replaces them by name. Such cards can be handed out whole or as replicas.
package descriptor

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/gpu/sysfs"
)

//go:embed vendors/*.yaml
var builtIn embed.FS

// Bounds on descriptor files.
const (
	maxFile  = 64 << 10
	maxFiles = 256
	maxNodes = 16
)

// Descriptor is one vendor's facts.
type Descriptor struct {
	Name   string `yaml:"name"`   // lower case, one word: mthreads
	Vendor string `yaml:"vendor"` // as people write it
	PCI    struct {
		Vendor string `yaml:"vendor"` // 0x1ed5
		// Devices names models by device id; where Only is set, other ids are not
		// cards.
		Devices map[string]string `yaml:"devices"`
		Only    bool              `yaml:"only"`
		// Classes of functions that are cards, like 0x0302; empty: displays,
		// accelerators and coprocessors.
		Classes []string `yaml:"classes"`
		// Skip lists device ids that are no cards, like a card's audio function.
		Skip []string `yaml:"skip"`
	} `yaml:"pci"`
	// Nodes are device files of one card ({index} counts the vendor's cards in the
	// order of the bus) and Shared those that all cards need. Only files that
	// exist are listed.
	Nodes  []string `yaml:"nodes"`
	Shared []string `yaml:"shared"`
	// Resource is the name that the vendor's Kubernetes plugin uses.
	Resource string `yaml:"resource"`
	// Tool is the vendor's command that shows cards; only named, never run.
	Tool string `yaml:"tool"`
	// Sources say where the facts are from.
	Sources []string `yaml:"sources"`
}

// Parse reads a descriptor.
func Parse(raw []byte) (Descriptor, error) {
	var d Descriptor
	if len(raw) > maxFile {
		return d, fmt.Errorf("longer than %d bytes", maxFile)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(raw))
	decoder.KnownFields(true)
	if err := decoder.Decode(&d); err != nil {
		return d, err
	}
	return d, d.Validate()
}

// Validate says what is wrong with a descriptor.
func (d Descriptor) Validate() error {
	if d.Name == "" || strings.Trim(d.Name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || len(d.Name) > 32 {
		return fmt.Errorf("name %q is not a lower-case word", d.Name)
	}
	if slices.Contains([]string{gpu.VendorNVIDIA, gpu.VendorAMD, gpu.VendorIntel}, d.Name) {
		return fmt.Errorf("%s has a reader of its own", d.Name)
	}
	if d.Vendor == "" {
		return errors.New("vendor is missing")
	}
	ids := slices.Concat([]string{d.PCI.Vendor}, d.PCI.Skip, d.PCI.Classes)
	for id := range d.PCI.Devices {
		ids = append(ids, id)
	}
	for _, id := range ids {
		if _, err := id16(id); err != nil {
			return err
		}
	}
	if d.PCI.Only && len(d.PCI.Devices) == 0 {
		return errors.New("pci.only without pci.devices: nothing would be a GPU")
	}
	if len(d.Nodes)+len(d.Shared) > maxNodes {
		return fmt.Errorf("more than %d device files", maxNodes)
	}
	for _, node := range slices.Concat(d.Nodes, d.Shared) {
		if !strings.HasPrefix(node, "/dev/") || path.Clean(node) != node {
			return fmt.Errorf("device file %q is not under /dev", node)
		}
	}
	return nil
}

func id16(text string) (uint16, error) {
	digits, ok := strings.CutPrefix(text, "0x")
	n, err := strconv.ParseUint(digits, 16, 16)
	if !ok || err != nil || len(digits) != 4 {
		return 0, fmt.Errorf("%q is not an id like 0x1ed5", text)
	}
	return uint16(n), nil
}

// BuiltIn returns the examples.
func BuiltIn() ([]Descriptor, error) {
	folder, err := fs.Sub(builtIn, "vendors")
	if err != nil {
		return nil, fmt.Errorf("read the built-in descriptors: %w", err)
	}
	return Load(folder)
}

// Load reads the *.yaml files of a folder, in order of name. A folder that does
// not exist holds none.
func Load(folder fs.FS) ([]Descriptor, error) {
	names, err := fs.Glob(folder, "*.yaml")
	if err != nil {
		return nil, err
	}
	if len(names) > maxFiles {
		return nil, fmt.Errorf("more than %d descriptors", maxFiles)
	}
	var all []Descriptor
	for _, name := range names {
		file, err := folder.Open(name)
		if err != nil {
			return nil, fmt.Errorf("descriptor %s: %w", name, err)
		}
		raw, err := io.ReadAll(io.LimitReader(file, maxFile+1))
		err = errors.Join(err, file.Close())
		if err != nil {
			return nil, fmt.Errorf("descriptor %s: %w", name, err)
		}
		d, err := Parse(raw)
		if err != nil {
			return nil, fmt.Errorf("descriptor %s: %w", name, err)
		}
		all = append(all, d)
	}
	return all, nil
}

// Merge puts own descriptors in the place of built-in ones with their name, and
// after them.
func Merge(builtIn, own []Descriptor) []Descriptor {
	merged := slices.Clone(builtIn)
	for _, d := range own {
		if i := slices.IndexFunc(merged, func(m Descriptor) bool { return m.Name == d.Name }); i >= 0 {
			merged[i] = d
		} else {
			merged = append(merged, d)
		}
	}
	return merged
}

// Reader reads one vendor's cards. It is not for concurrent use.
type Reader struct {
	descriptor Descriptor
	bus        *sysfs.Bus
	cards      []sysfs.Function
}

var _ gpu.Reader = (*Reader)(nil)

// New returns a reader for a valid descriptor.
func New(bus *sysfs.Bus, d Descriptor) *Reader {
	vendor, err := id16(d.PCI.Vendor)
	if err != nil {
		return &Reader{descriptor: d, bus: bus}
	}
	return &Reader{descriptor: d, bus: bus, cards: bus.Cards(vendor, d.isCard)}
}

func (d Descriptor) isCard(f sysfs.Function) bool {
	id := fmt.Sprintf("0x%04x", f.DeviceID)
	if _, named := d.PCI.Devices[id]; d.PCI.Only && !named || slices.Contains(d.PCI.Skip, id) {
		return false
	}
	return len(d.PCI.Classes) == 0 || slices.Contains(d.PCI.Classes, fmt.Sprintf("0x%04x", f.Class>>8))
}

// Inventory lists the vendor's cards.
func (r *Reader) Inventory() []gpu.Device {
	var devices []gpu.Device
	for i, f := range r.cards {
		d := r.bus.Describe(f, r.descriptor.Name)
		if name := r.descriptor.PCI.Devices[d.DeviceID]; name != "" {
			d.Name = name
		}
		if !strings.Contains(strings.ToLower(d.Name), strings.ToLower(r.descriptor.Vendor)) {
			d.Name = r.descriptor.Vendor + " " + d.Name
		}
		d.Nodes = append(d.Nodes, r.nodes(i)...)
		d.Resource = r.descriptor.Resource
		d.Partitions = append(d.Partitions, r.bus.VFs(f)...)
		devices = append(devices, d)
	}
	return devices
}

func (r *Reader) nodes(index int) []string {
	var found []string
	for _, pattern := range slices.Concat(r.descriptor.Nodes, r.descriptor.Shared) {
		node := strings.ReplaceAll(pattern, "{index}", strconv.Itoa(index))
		if r.bus.Tree().Exists(strings.TrimPrefix(node, "/")) {
			found = append(found, node)
		}
	}
	return found
}

// Topology is empty: descriptors know no fabric.
func (r *Reader) Topology() []gpu.Link { return []gpu.Link{} }

func (r *Reader) find(address string) (int, error) {
	i := slices.IndexFunc(r.cards, func(f sysfs.Function) bool { return f.Address == address })
	if i < 0 {
		return 0, fmt.Errorf("%w: %s is no GPU of %s", gpu.ErrNoCard, address, r.descriptor.Vendor)
	}
	return i, nil
}

// Use knows the holders of the card's own device files only.
func (r *Reader) Use(address string) (gpu.Use, error) {
	i, err := r.find(address)
	if err != nil {
		return gpu.Use{}, err
	}
	d := r.bus.Describe(r.cards[i], r.descriptor.Name)
	for _, node := range r.nodes(i) {
		if !slices.Contains(r.descriptor.Shared, node) {
			d.Nodes = append(d.Nodes, node)
		}
	}
	return gpu.Use{Holders: r.bus.Holders(d)}, nil
}

// Health knows whether a driver is bound.
func (r *Reader) Health(address string) (gpu.Condition, error) {
	i, err := r.find(address)
	if err != nil {
		return gpu.Condition{}, err
	}
	h := gpu.Condition{Troubles: []string{}}
	if !r.bus.Describe(r.cards[i], r.descriptor.Name).Driver.Known {
		h.Troubles = append(h.Troubles, "no driver is bound to it")
	}
	return h, nil
}

// Capabilities says what can be done with a card that nothing more is known of.
func (r *Reader) Capabilities(address string) ([]gpu.Capability, error) {
	i, err := r.find(address)
	if err != nil {
		return nil, err
	}
	return []gpu.Capability{
		{Name: gpu.CanShare, Can: gpu.No, Reason: "memory is held for CUDA programs only"},
		{Name: gpu.CanReplicas, Can: gpu.Yes},
		r.bus.SRIOV(r.cards[i]),
		r.bus.Passthrough(r.cards[i]),
	}, nil
}

// Events compares the cards' health with what it was.
func (r *Reader) Events(since gpu.Snapshot) ([]gpu.Event, gpu.Snapshot) {
	now := gpu.Look(r)
	return gpu.Changes(since, now), now
}
