// SPDX-License-Identifier: Apache-2.0

// Package mig holds the facts of NVIDIA MIG: which card models have which
// profiles and where instances of them may start (data/mig-profiles.yaml), and what
// fits on a card beside what (Layout). On a live card the driver's own answer wins.
// Placement, partition plans and the planner of fleets all decide with it; the
// simulator has rules of its own, which tests compare with these.
package mig

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/divvy-gpu/divvy/data"
)

// Table is the models that are known.
type Table struct {
	products   []*Product
	documented map[uint16]bool
	without    []string
}

// Product is one card model.
type Product struct {
	Key          string
	Names        []string // what drivers call such cards
	Devices      []uint16 // PCI device ids
	Architecture string
	MemoryMiB    int // of the whole card, as its driver counts it; 0: not known
	Units        int // of the placement axis
	Slices       int // compute slices in all
	// NeedsReset says that switching MIG on or off takes a reset of the card.
	NeedsReset bool
	Engines    Engines
	Profiles   []Profile
}

// Engines are media engines, which instances never share.
type Engines struct {
	Dec  int `yaml:"dec" json:"dec"`
	Enc  int `yaml:"enc" json:"enc"`
	JPEG int `yaml:"jpeg" json:"jpeg"`
	OFA  int `yaml:"ofa" json:"ofa"`
}

// Plus adds engines.
func (e Engines) Plus(o Engines) Engines {
	return Engines{e.Dec + o.Dec, e.Enc + o.Enc, e.JPEG + o.JPEG, e.OFA + o.OFA}
}

func (e Engines) minus(o Engines) Engines {
	return Engines{e.Dec - o.Dec, e.Enc - o.Enc, e.JPEG - o.JPEG, e.OFA - o.OFA}
}

// Within says whether there are enough of each in total.
func (e Engines) Within(total Engines) bool {
	return e.Dec <= total.Dec && e.Enc <= total.Enc && e.JPEG <= total.JPEG && e.OFA <= total.OFA
}

// Profile is one kind of GPU instance.
type Profile struct {
	Name      string
	Aliases   []string // names that other drivers print for it
	ID        int      // as nvidia-smi prints it; differs between drivers
	Slices    int      // compute slices
	MemoryMiB int
	Most      int // instances a card can hold
	Size      int // placement units
	Starts    []int
	Engines   Engines
	Copy      int // copy engines
	// Multiprocessors as a listing of a real card has them; 0: none was seen.
	Multiprocessors int
	// NVML is the number by which NVML asks for such a profile,
	// NVML_GPU_INSTANCE_PROFILE_*; -1: by none.
	NVML int
}

// nvmlProfile gives the number of a profile that the table names as NVML does;
// -1: NVML has no such name.
func nvmlProfile(name string) int {
	return slices.Index([]string{
		"1_SLICE", "2_SLICE", "3_SLICE", "4_SLICE", "7_SLICE", "8_SLICE", "6_SLICE", "1_SLICE_REV1", "2_SLICE_REV1", "1_SLICE_REV2",
		"1_SLICE_GFX", "2_SLICE_GFX", "4_SLICE_GFX", "1_SLICE_NO_ME", "2_SLICE_NO_ME", "1_SLICE_ALL_ME", "2_SLICE_ALL_ME", "3_SLICE_GFX",
	}, name)
}

// Bounds on what a table may say: placements are kept in machine words.
const (
	maxUnits    = 16
	maxProfiles = 32
	maxProducts = 256
)

type fileProduct struct {
	Key        string      `yaml:"key"`
	Names      []string    `yaml:"name_patterns"`
	Devices    []string    `yaml:"pci_device_ids"`
	Arch       string      `yaml:"architecture"`
	MemoryMiB  int         `yaml:"memory_mib"`
	Units      int         `yaml:"placement_units"`
	Slices     int         `yaml:"max_compute_slices"`
	NeedsReset bool        `yaml:"mig_mode_change_needs_gpu_reset"`
	Engines    Engines     `yaml:"engines_total"`
	Profiles   []yaml.Node `yaml:"profiles"`
}

type fileProfile struct {
	Name       string   `yaml:"name"`
	Aliases    []string `yaml:"aliases"`
	ID         int      `yaml:"id"`
	Slices     int      `yaml:"compute_slices"`
	MemoryMiB  int      `yaml:"memory_mib"`
	Most       int      `yaml:"max_instances"`
	Placements struct {
		Size   int   `yaml:"size"`
		Starts []int `yaml:"starts"`
	} `yaml:"placements"`
	NVML            string `yaml:"nvml"`
	Multiprocessors int    `yaml:"sms"`
	Engines         struct {
		Engines `yaml:",inline"`
		Copy    int `yaml:"copy"`
	} `yaml:"engines"`
}

// Default is the table the program carries.
func Default() (*Table, error) { return Parse(data.MIGProfiles()) }

// Parse reads a table.
func Parse(raw []byte) (*Table, error) {
	var file struct {
		Version    int           `yaml:"schema_version"`
		Products   []fileProduct `yaml:"products"`
		Documented []fileProduct `yaml:"documented_only"`
		Without    []string      `yaml:"no_mig"`
	}
	if err := yaml.NewDecoder(bytes.NewReader(raw)).Decode(&file); err != nil {
		return nil, fmt.Errorf("read the MIG table: %w", err)
	}
	if file.Version != 1 {
		return nil, fmt.Errorf("read the MIG table: version %d is not 1", file.Version)
	}
	if len(file.Products) > maxProducts {
		return nil, fmt.Errorf("read the MIG table: more than %d products", maxProducts)
	}
	t := &Table{documented: map[uint16]bool{}, without: file.Without}
	for _, from := range file.Products {
		p, err := from.product()
		if err == nil {
			err = p.Validate()
		}
		if err != nil {
			return nil, fmt.Errorf("read the MIG table: %s: %w", from.Key, err)
		}
		t.products = append(t.products, p)
	}
	for _, from := range file.Documented {
		ids, err := deviceIDs(from.Devices)
		if err != nil {
			return nil, fmt.Errorf("read the MIG table: %s: %w", from.Key, err)
		}
		for _, id := range ids {
			t.documented[id] = true
		}
	}
	return t, nil
}

func (from fileProduct) product() (*Product, error) {
	devices, err := deviceIDs(from.Devices)
	if err != nil {
		return nil, err
	}
	p := &Product{
		Key: from.Key, Names: from.Names, Devices: devices, Architecture: from.Arch, MemoryMiB: from.MemoryMiB, Units: from.Units, Slices: from.Slices,
		NeedsReset: from.NeedsReset, Engines: from.Engines,
	}
	for _, n := range from.Profiles {
		var f fileProfile
		if err := n.Decode(&f); err != nil {
			return nil, err
		}
		p.Profiles = append(p.Profiles, Profile{
			Name: f.Name, ID: f.ID, Slices: f.Slices, MemoryMiB: f.MemoryMiB, Most: f.Most,
			Size: f.Placements.Size, Starts: f.Placements.Starts, Engines: f.Engines.Engines,
			Copy: f.Engines.Copy, Multiprocessors: f.Multiprocessors, NVML: nvmlProfile(f.NVML), Aliases: f.Aliases,
		})
	}
	return p, nil
}

func deviceIDs(texts []string) ([]uint16, error) {
	var ids []uint16
	for _, text := range texts {
		n, err := strconv.ParseUint(text, 0, 16)
		if err != nil {
			return nil, fmt.Errorf("%q is no device id", text)
		}
		ids = append(ids, uint16(n))
	}
	return ids, nil
}

// Validate says what is wrong with a product.
func (p *Product) Validate() error {
	switch {
	case p.Key == "" || len(p.Names) == 0:
		return errors.New("no name")
	case p.Units < 1 || p.Units > maxUnits || p.Slices < 1 || p.Slices > maxUnits:
		return fmt.Errorf("%d units and %d slices are not between 1 and %d", p.Units, p.Slices, maxUnits)
	case len(p.Profiles) == 0 || len(p.Profiles) > maxProfiles:
		return fmt.Errorf("%d profiles are not between 1 and %d", len(p.Profiles), maxProfiles)
	}
	for i, f := range p.Profiles {
		if f.Slices < 1 || f.Slices > p.Slices || f.Size < 1 || f.Size > p.Units || f.Most < 1 || f.Most > p.Units || len(f.Starts) == 0 {
			return fmt.Errorf("profile %q: %d slices on %d units, at most %d, starts %v", f.Name, f.Slices, f.Size, f.Most, f.Starts)
		}
		if f.Copy < 0 || f.Multiprocessors < 0 || f.MemoryMiB < 0 {
			return fmt.Errorf("profile %q: %d MiB, %d multiprocessors, %d copy engines", f.Name, f.MemoryMiB, f.Multiprocessors, f.Copy)
		}
		for _, s := range f.Starts {
			if s < 0 || s+f.Size > p.Units {
				return fmt.Errorf("profile %q: start %d leads out of the GPU", f.Name, s)
			}
		}
		if p.Index(f.Name) != i {
			return fmt.Errorf("profile %q is listed twice", f.Name)
		}
	}
	return nil
}

// Products lists the models, in the order of the table.
func (t *Table) Products() []*Product { return slices.Clone(t.products) }

// ByDevice finds a model by its PCI device id.
func (t *Table) ByDevice(id uint16) (*Product, bool) {
	for _, p := range t.products {
		if slices.Contains(p.Devices, id) {
			return p, true
		}
	}
	return nil, false
}

// ByName finds a model by what its driver calls it, or by its key in the table.
// "(simulated)" after a name does not matter.
func (t *Table) ByName(name string) (*Product, bool) {
	name = strings.TrimSpace(strings.TrimSuffix(name, "(simulated)"))
	for _, p := range t.products {
		if p.Key == name || slices.Contains(p.Names, name) {
			return p, true
		}
	}
	return nil, false
}

// ByLabel finds a model as ByName does, and by the cluster label that is made of
// its name.
func (t *Table) ByLabel(label string) (*Product, bool) {
	plain := func(name string) string {
		name = strings.ToLower(strings.ReplaceAll(name, " ", "-"))
		name, _, _ = strings.Cut(name, "-mig-")
		return strings.TrimSuffix(strings.TrimPrefix(name, "nvidia-"), "-shared")
	}
	for _, p := range t.products {
		if slices.ContainsFunc(append([]string{p.Key}, p.Names...), func(name string) bool { return plain(name) == plain(label) }) {
			return p, true
		}
	}
	return nil, false
}

// DocumentedOnly says that profiles of a model are published, but not where
// instances of them may start.
func (t *Table) DocumentedOnly(id uint16) bool { return t.documented[id] }

// Without says that a model is known to have no MIG.
func (t *Table) Without(name string) bool {
	return slices.Contains(t.without, strings.TrimSpace(strings.TrimSuffix(name, "(simulated)")))
}

// Index finds a profile by its name or another of its names, -1 when the model
// lacks it.
func (p *Product) Index(name string) int {
	if i := slices.IndexFunc(p.Profiles, func(f Profile) bool { return f.Name == name }); i >= 0 {
		return i
	}
	return slices.IndexFunc(p.Profiles, func(f Profile) bool { return slices.Contains(f.Aliases, name) })
}
