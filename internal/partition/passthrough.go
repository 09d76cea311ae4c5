// SPDX-License-Identifier: Apache-2.0

package partition

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// TechniqueVFIO is a whole card for one guest.
const TechniqueVFIO = "passthrough"

// DriverVFIO is the driver through which guests get devices.
const DriverVFIO = "vfio-pci"

// DriverAny stands for whichever driver but DriverVFIO takes a function, or none.
const DriverAny = "any"

// VFIO is whether a card is handed to guests.
type VFIO struct {
	Enabled bool `yaml:"enabled" json:"enabled"`
}

func (*VFIO) validate() error { return nil }

// Passthrough is how a card stands with VFIO.
type Passthrough struct {
	Group  string `yaml:"group,omitempty" json:"group,omitempty"` // IOMMU group
	Cannot string `yaml:"cannot,omitempty" json:"cannot,omitempty"`
	// Console is why the card is the machine's console; absent: it is not.
	Console string `yaml:"console,omitempty" json:"console,omitempty"`
	// Functions are the card's own and those that go with it: of its slot and
	// group, such as its sound.
	Functions []DrivenFunction `yaml:"functions" json:"functions"`
	// Users have the card or its group open, those that only ask its driver too.
	Users []Process `yaml:"users,omitempty" json:"users,omitempty"`
}

// DrivenFunction is a PCI function and its driver.
type DrivenFunction struct {
	Address  string `yaml:"address" json:"address"`
	Driver   string `yaml:"driver,omitempty" json:"driver,omitempty"`
	Override string `yaml:"override,omitempty" json:"override,omitempty"` // the only driver that may take it
}

// Handed says whether guests can get the card: all its functions.
func (p *Passthrough) Handed() bool {
	return len(p.Functions) > 0 && !slices.ContainsFunc(p.Functions, func(f DrivenFunction) bool { return f.Driver != DriverVFIO })
}

func (p *Passthrough) validate() error {
	for _, f := range p.Functions {
		if !regexp.MustCompile(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`).MatchString(f.Address) ||
			!regexp.MustCompile(`^[A-Za-z0-9_-]{0,60}$`).MatchString(f.Driver) {
			return fmt.Errorf("function %q with driver %q", f.Address, f.Driver)
		}
	}
	return nil
}

func (p *Passthrough) layout() string {
	var words []string
	for _, f := range p.Functions {
		driver := f.Driver
		if driver == "" {
			driver = "no driver"
		}
		words = append(words, f.Address+" "+driver)
	}
	return strings.Join(words, ", ")
}

func (p *Passthrough) parts() []string { return nil }

func (p *Passthrough) lines() []string {
	if !p.Handed() {
		if p.Console != "" {
			return []string{"the machine's console: " + p.Console}
		}
		return nil
	}
	line := "handed to guests by VFIO, IOMMU group " + p.Group
	if len(p.Users) > 0 {
		line += ", used by " + Describe(p.Users)
	}
	if p.Cannot != "" {
		line += ", but no guest can get it: " + p.Cannot
	}
	return []string{line}
}

// asking is p where any driver that another state allows counts as DriverAny.
func (p *Passthrough) asking(o *Passthrough) *Passthrough {
	seen := *p
	seen.Functions = slices.Clone(p.Functions)
	for i, f := range seen.Functions {
		anyWill := slices.ContainsFunc(o.Functions, func(other DrivenFunction) bool { return other.Address == f.Address && other.Driver == DriverAny })
		if anyWill && f.Driver != DriverVFIO {
			seen.Functions[i].Driver = DriverAny
		}
	}
	return &seen
}
