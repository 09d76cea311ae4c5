// SPDX-License-Identifier: Apache-2.0

package vgpu

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/partition"
)

// most bounds virtual cards of one card, and the functions that carry them.
const most = 256

// Placements of vGPUs on a card.
const (
	PlacementHomogeneous = "homogeneous" // all of one size
	PlacementMixed       = "mixed"       // the card's mixed-size mode
)

// Goal is how many virtual cards of which type are wanted.
type Goal struct {
	// Devices counts by the driver's name of a type or its id: NVIDIA A40-12Q,
	// nvidia-563, 1414, i915-GVTg_V5_4.
	Devices map[string]int `yaml:"devices" json:"devices"`
	// Placement and Scheduler are of NVIDIA's; absent: as it is.
	Placement string `yaml:"placement,omitempty" json:"placement,omitempty"`
	Scheduler string `yaml:"scheduler,omitempty" json:"scheduler,omitempty"` // best-effort, equal-share, fixed-share
}

// Count is how many virtual cards are wanted of all types.
func (v *Goal) Count() int {
	total := 0
	for _, n := range v.Devices {
		total += n
	}
	return total
}

func (v *Goal) Validate() error {
	for name, n := range v.Devices {
		if err := checkType(name); err != nil {
			return err
		}
		if n < 0 || n > most {
			return fmt.Errorf("%d of %s", n, name)
		}
	}
	switch {
	case v.Count() > most:
		return fmt.Errorf("%d virtual GPUs", v.Count())
	case v.Placement != "" && v.Placement != PlacementHomogeneous && v.Placement != PlacementMixed:
		return fmt.Errorf("placement %q is not homogeneous or mixed", v.Placement)
	case v.Scheduler != "" && !slices.Contains([]string{"best-effort", "equal-share", "fixed-share"}, v.Scheduler):
		return fmt.Errorf("scheduler %q is not best-effort, equal-share or fixed-share", v.Scheduler)
	}
	return nil
}

// checkType refuses what would lead out of a folder of types.
func checkType(name string) error {
	if !regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9 ._-]{0,80}$`).MatchString(name) {
		return fmt.Errorf("%q is no type of virtual GPUs", name)
	}
	return nil
}

// Ways in which virtual cards are made.
const (
	ByMediated = "mdev" // mediated devices, by UUID
	ByFunction = "vf"   // a type written to a virtual function
)

// Hosts is where a card's virtual cards are made.
type Hosts struct {
	By string `yaml:"by" json:"by"`
	On []Host `yaml:"on" json:"on"`
	// Placement and Scheduler are what NVIDIA's driver tells; empty: nothing.
	Placement string `yaml:"placement,omitempty" json:"placement,omitempty"`
	Scheduler string `yaml:"scheduler,omitempty" json:"scheduler,omitempty"`
}

// Host is a function that carries virtual cards: the card itself, or a virtual
// function, which carries one.
type Host struct {
	Address string     `yaml:"address" json:"address"`
	Single  bool       `yaml:"single,omitempty" json:"single,omitempty"` // carries one
	Types   []Type     `yaml:"types,omitempty" json:"types,omitempty"`   // that it offers now
	Made    []Instance `yaml:"made,omitempty" json:"made,omitempty"`
}

// Type is a type and how many more can be made of it now.
type Type struct {
	ID        string `yaml:"id" json:"id"`
	Name      string `yaml:"name,omitempty" json:"name,omitempty"`
	Available int    `yaml:"available" json:"available"`
}

// Instance is a virtual GPU that exists. UUID is of mediated devices.
type Instance struct {
	UUID      string              `yaml:"uuid,omitempty" json:"uuid,omitempty"`
	Type      string              `yaml:"type" json:"type"` // its id
	Processes []partition.Process `yaml:"processes,omitempty" json:"processes,omitempty"`
}

func (h *Hosts) Validate() error {
	if h.By != ByMediated && h.By != ByFunction || len(h.On) > most {
		return fmt.Errorf("virtual GPUs by %q on %d functions", h.By, len(h.On))
	}
	for _, host := range h.On {
		for _, card := range host.Made {
			if err := checkType(card.Type); err != nil {
				return err
			}
			if card.UUID != "" && !regexp.MustCompile(`^[0-9a-fA-F-]{36}$`).MatchString(card.UUID) {
				return fmt.Errorf("%q is no UUID", card.UUID)
			}
		}
	}
	return nil
}

func (h *Hosts) Layout(partition.Card) string {
	words := h.Parts()
	if h.Placement != "" {
		words = append(words, h.Placement+" vGPUs")
	}
	if h.Scheduler != "" {
		words = append(words, "scheduler "+h.Scheduler)
	}
	return strings.Join(words, ", ")
}

// Asking is h without what the other state does not tell.
func (h *Hosts) Asking(other partition.Division) partition.Division {
	o, _ := other.(*Hosts)
	if o == nil {
		return nil
	}
	seen := *h
	if o.Placement == "" {
		seen.Placement = ""
	}
	if o.Scheduler == "" {
		seen.Scheduler = ""
	}
	return &seen
}

// Of is a card's vGPUs, OfGVTg those of GVT-g; nil: it offers none, or nobody was asked.
func Of(c partition.Card) *Hosts { return of(c, partition.TechniqueVGPU) }

// OfGVTg is like Of.
func OfGVTg(c partition.Card) *Hosts { return of(c, partition.TechniqueGVTg) }

func of(c partition.Card, technique string) *Hosts { return partition.DivisionOf[*Hosts](c, technique) }

// Parts goes by ids, since a full card does not tell names.
func (h *Hosts) Parts() []string {
	var names []string
	for _, host := range h.On {
		for _, card := range host.Made {
			names = append(names, strings.TrimRight(fmt.Sprintf("virtual GPU of %s on %s %s", card.Type, host.Address, card.UUID), " "))
		}
	}
	slices.Sort(names)
	return names
}

func (h *Hosts) Lines() []string {
	var lines, offers []string
	for _, host := range h.On {
		for _, card := range host.Made {
			line := strings.TrimRight(fmt.Sprintf("virtual GPU %s  on %s  %s", h.Name(card.Type), host.Address, card.UUID), " ")
			if len(card.Processes) > 0 {
				line += "  used by " + partition.Describe(card.Processes)
			}
			lines = append(lines, line)
		}
		for _, t := range host.Types {
			if offer := h.Name(t.ID); t.Available > 0 && !slices.Contains(offers, offer) {
				offers = append(offers, offer)
			}
		}
	}
	if h.Placement != "" {
		lines = append(lines, h.Placement+" vGPUs")
	}
	if h.Scheduler != "" {
		lines = append(lines, "vGPU scheduler "+h.Scheduler)
	}
	if offers != nil {
		lines = append(lines, "room for virtual GPUs of "+strings.Join(offers, " or "))
	}
	return lines
}

// Name is what the driver calls a type; a full card may not tell, and the id
// stands.
func (h *Hosts) Name(id string) string {
	for _, host := range h.On {
		for _, t := range host.Types {
			if t.ID == id && t.Name != "" {
				return t.Name
			}
		}
	}
	return id
}
