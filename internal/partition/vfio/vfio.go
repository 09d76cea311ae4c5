// SPDX-License-Identifier: Apache-2.0

// Package vfio hands whole cards to guests: their functions are taken from their
// drivers and given to vfio-pci, by driver_override, unbind and drivers_probe.
// Facts are from the kernel's documents sysfs-bus-pci and vfio.
package vfio

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/gpu/sysfs"
	"github.com/divvy-gpu/divvy/internal/partition"
	"github.com/divvy-gpu/divvy/internal/partition/kernel"
	"github.com/divvy-gpu/divvy/internal/partition/mig"
)

// DriverVFIO is the driver through which guests get devices.
const DriverVFIO = "vfio-pci"

// driverAny stands for whichever driver but DriverVFIO takes a function, or none.
const driverAny = "any"

// Goal is whether a card is handed to guests.
type Goal struct {
	Enabled bool `yaml:"enabled" json:"enabled"`
}

func (*Goal) Validate() error { return nil }

// Wanted says whether a rule hands cards to guests.
func Wanted(r partition.Rule) bool {
	g, ok := r.Wants[partition.TechniqueVFIO].(*Goal)
	return ok && g.Enabled
}

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
	Users []partition.Process `yaml:"users,omitempty" json:"users,omitempty"`
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

func (p *Passthrough) Validate() error {
	for _, f := range p.Functions {
		if !regexp.MustCompile(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`).MatchString(f.Address) ||
			!regexp.MustCompile(`^[A-Za-z0-9_-]{0,60}$`).MatchString(f.Driver) {
			return fmt.Errorf("function %q with driver %q", f.Address, f.Driver)
		}
	}
	return nil
}

func (p *Passthrough) Layout(partition.Card) string {
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

func (p *Passthrough) Lines() []string {
	if !p.Handed() {
		if p.Console != "" {
			return []string{"the machine's console: " + p.Console}
		}
		return nil
	}
	line := "handed to guests by VFIO, IOMMU group " + p.Group
	if len(p.Users) > 0 {
		line += ", used by " + partition.Describe(p.Users)
	}
	if p.Cannot != "" {
		line += ", but no guest can get it: " + p.Cannot
	}
	return []string{line}
}

// Of is how a card stands with VFIO; nil: nobody was asked.
func Of(c partition.Card) *Passthrough {
	return partition.DivisionOf[*Passthrough](c, partition.TechniqueVFIO)
}

// Asking has any driver that the other state allows as driverAny.
func (p *Passthrough) Asking(other partition.Division) partition.Division {
	o, _ := other.(*Passthrough)
	if o == nil {
		return nil
	}
	seen := *p
	seen.Functions = slices.Clone(p.Functions)
	for i, f := range seen.Functions {
		anyWill := slices.ContainsFunc(o.Functions, func(w DrivenFunction) bool { return w.Address == f.Address && w.Driver == driverAny })
		if anyWill && f.Driver != DriverVFIO {
			seen.Functions[i].Driver = driverAny
		}
	}
	return &seen
}

// Technique is passthrough by VFIO.
type Technique struct{ kernel.Files }

// New returns passthrough of a kernel's cards; nil: it plans only.
func New(k *kernel.Kernel) partition.Technique {
	return Technique{kernel.Files{Kernel: k, Look: observe}}
}

const drivers = "sys/bus/pci/drivers"

// observe reads who drives a card and what goes with it, and whether a guest could
// get it.
func observe(bus *sysfs.Bus, f sysfs.Function, c *partition.Card) {
	tree := bus.Tree()
	p := &Passthrough{Group: tree.LinkBase(path.Join(f.Folder, "iommu_group")).Value, Console: bus.Console(f), Functions: []DrivenFunction{function(tree, f.Address)}}
	for _, mate := range tree.Names(path.Join("sys/kernel/iommu_groups", p.Group, "devices")) {
		if other, _ := bus.Find(mate); p.Group != "" && mate != f.Address && sysfs.Slot(mate) == sysfs.Slot(f.Address) && other.Physical == "" {
			p.Functions = append(p.Functions, function(tree, mate))
		}
	}
	switch can := bus.Passthrough(f); {
	case can.Can == gpu.No:
		p.Cannot = can.Reason
	case can.Can == gpu.Unknown:
		p.Cannot = "the kernel lists no IOMMU groups: switch the IOMMU on in firmware and kernel"
	case !tree.Exists(path.Join(drivers, DriverVFIO)):
		p.Cannot = "vfio-pci is not loaded: run modprobe vfio-pci"
	}
	p.Users = slices.Concat(c.Holders, kernel.Users(bus, f.Address, bus.VFIONodes(f.Folder)))
	*c = c.With(partition.TechniqueVFIO, p)
}

func function(tree *sysfs.Tree, address string) DrivenFunction {
	f := DrivenFunction{
		Address: address, Driver: tree.LinkBase(sysfs.Attribute(address, "driver")).Value,
		Override: tree.Text(sysfs.Attribute(address, "driver_override")).Value,
	}
	if f.Override == "(null)" {
		f.Override = ""
	}
	return f
}

func (Technique) Name() string { return partition.TechniqueVFIO }

func (Technique) About() partition.About {
	return partition.About{
		Want: func() partition.Want { return &Goal{} }, Division: func() partition.Division { return &Passthrough{} },
		Explanation: partition.Explanation{
			Title: "the whole GPU to one guest (VFIO)", Vendors: "all",
			Goal: "vfio: {enabled: true}",
			Isolation: []string{
				"memory: the whole GPU, behind the IOMMU", "compute: the whole GPU", "faults: the guest's alone; a GPU that cannot be reset may take the host's bus with it",
				"side channels: none within the GPU; the bus is shared",
			},
			Cost:  "one guest a GPU, and the host loses the GPU",
			Needs: "an IOMMU that is on, and a group that holds nothing else; another GPU for the machine's console",
		},
	}
}

// On says whether vfio-pci has the card.
func (Technique) On(c partition.Card) bool { return Of(c) != nil && Of(c).Handed() }

// Aim hands a card over or takes it back. What is in use is not taken with force
// either: the kernel would wait for its user. The machine's console is spared.
func (t Technique) Aim(c partition.Card, r partition.Rule, force bool) (partition.Card, error) {
	has, wanted := Of(c), Wanted(r)
	if has == nil || len(has.Functions) == 0 {
		if !wanted {
			return c, nil
		}
		return c, fmt.Errorf("%w: %s is not on this machine's PCI bus", partition.ErrImpossible, c.Name)
	}
	if wanted && has.Cannot != "" {
		return c, fmt.Errorf("%w: %s", partition.ErrImpossible, has.Cannot)
	}
	after := *has
	after.Functions = slices.Clone(has.Functions)
	changes := false
	for i, f := range after.Functions {
		switch {
		case wanted && f.Driver != DriverVFIO:
			after.Functions[i].Driver, after.Functions[i].Override, changes = DriverVFIO, DriverVFIO, true
		case !wanted && f.Driver == DriverVFIO:
			after.Functions[i].Driver, after.Functions[i].Override, changes = driverAny, "", true
		}
	}
	if !changes {
		return c, nil
	}
	if wanted && has.Console != "" && !force {
		return c, fmt.Errorf("%w: %s is this machine's console (%s), whose screen would go dark: "+
			"make another GPU the first one in the firmware's settings", partition.ErrSpared, c.Name, has.Console)
	}
	if len(has.Users) > 0 {
		return c, fmt.Errorf("%w: a GPU changes its driver only when no program has it open; it is open in %s", partition.ErrInUse, partition.Describe(has.Users))
	}
	return mig.Forget(c).With(t.Name(), &after), nil
}

// Steps takes functions from one driver and gives them to another.
func (Technique) Steps(from, to partition.Card) []partition.Step {
	has, goal := Of(from), Of(to)
	if has == nil || goal == nil {
		return nil
	}
	var steps []partition.Step
	write := func(file, value, why string) {
		steps = append(steps, partition.Step{Action: partition.ActionWrite, File: file, Value: value, Why: why})
	}
	for _, want := range goal.Functions {
		i := slices.IndexFunc(has.Functions, func(f DrivenFunction) bool { return f.Address == want.Address })
		if i < 0 {
			continue
		}
		now := has.Functions[i]
		if now.Override != want.Override {
			why := "only " + want.Override + " is to take it"
			if want.Override == "" {
				why = "any driver may take it"
			}
			write(sysfs.Attribute(want.Address, "driver_override"), want.Override+"\n", why)
		}
		if now.Driver == want.Driver || want.Driver == driverAny && now.Driver != DriverVFIO && now.Driver != "" {
			continue
		}
		if now.Driver != "" {
			write(path.Join(drivers, now.Driver, "unbind"), want.Address, now.Driver+" has it")
		}
		if want.Driver != "" && !brought(to, want.Driver) {
			write("sys/bus/pci/drivers_probe", want.Address, "a driver is to take it")
		}
	}
	return steps
}

// bringer is a division whose technique gives a card back to its driver, which takes
// more than a probe: all cards of a hive, or the driver loaded.
type bringer interface{ Brings(driver string) bool }

func brought(to partition.Card, driver string) bool {
	for _, d := range to.Divided {
		if b, ok := d.(bringer); ok && b.Brings(driver) {
			return true
		}
	}
	return false
}

// Busy words who uses a card that would change its driver.
func (Technique) Busy(c partition.Card, steps []partition.Step) string {
	unbinds := func(s partition.Step) bool { return strings.HasSuffix(s.File, "/unbind") }
	if Of(c) == nil || !slices.ContainsFunc(steps, unbinds) {
		return ""
	}
	return partition.Describe(Of(c).Users)
}
