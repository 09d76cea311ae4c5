// SPDX-License-Identifier: Apache-2.0

// Package sriov divides cards into virtual functions: their number
// (sriov_numvfs, which goes through 0), whether the host's drivers take them
// (sriov_drivers_autoprobe), and how Intel's drivers provision each. Facts are
// from the kernel's documents sysfs-bus-pci and sysfs-driver-intel-xe-sriov
// (Linux 6.19; vram_quota 7.0), and for i915 from Intel's data-centre packages
// (iov, prelim_iov). NVIDIA's functions are switched by its own program
// (nvidia.go), AMD's by loading its host driver anew (gim.go).
package sriov

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/gpu/intel"
	"github.com/divvy-gpu/divvy/internal/gpu/sysfs"
	"github.com/divvy-gpu/divvy/internal/partition"
	"github.com/divvy-gpu/divvy/internal/partition/kernel"
)

// Technique is virtual functions.
type Technique struct{ kernel.Files }

var _ partition.Joiner = Technique{}

// New returns the functions of a kernel's cards; nil: it plans only.
func New(k *kernel.Kernel) partition.Technique {
	return Technique{kernel.Files{Kernel: k, Look: observe}}
}

// settings are the attributes that are known, in the order in which they are
// written: what must be set before a function is on comes first.
func settings() []string {
	return []string{
		"vram_quota", "lmem_quota", "ggtt_quota", "contexts_quota", "doorbells_quota",
		"exec_quantum_ms", "preempt_timeout_us", "sched_priority",
	}
}

// isQuota says whether a setting is only changed while no function is on. Newer
// drivers would take some at any time; none is asked to take away what a guest
// uses.
func isQuota(name string) bool { return strings.HasSuffix(name, "_quota") }

// observe reads a card's virtual functions; one that has no attribute for them
// has none.
func observe(bus *sysfs.Bus, f sysfs.Function, c *partition.Card) {
	tree := bus.Tree()
	total := tree.Int(path.Join(f.Folder, "sriov_totalvfs"))
	if !total.Known || f.Physical != "" {
		return
	}
	all := &Functions{
		Total: total.Value, Driver: tree.LinkBase(path.Join(f.Folder, "driver")).Value, Places: places(bus, f), On: []Function{},
	}
	if probe := tree.Text(path.Join(f.Folder, "sriov_drivers_autoprobe")); probe.Known {
		on := probe.Value != "0"
		all.Autoprobe = &on
	}
	if c.Vendor == gpu.VendorNVIDIA {
		all.Tool, all.Users = manager(tree), slices.Clone(c.Holders)
	}
	if all.Driver == gimDriver {
		ofGim(bus, f, all)
	}
	for n, vf := range bus.VFs(f) {
		at, _ := bus.Find(vf.ID)
		nodes := append(slices.Clone(vf.Nodes), bus.VFIONodes(sysfs.Attribute(vf.ID, ""))...)
		one := Function{Address: vf.ID, Driver: vf.Driver.Value, Carries: carries(bus, at), Settings: map[string]string{}}
		one.Enabled = tree.Int(path.Join(at.Folder, "enable")).Value > 0
		one.Processes = kernel.Users(bus, vf.ID, nodes)
		for _, name := range settings() {
			if value, ok := setting(tree, f, all.Places, n+1, name); ok {
				one.Settings[name] = value
			}
		}
		all.On = append(all.On, one)
	}
	*c = c.With(partition.TechniqueSRIOV, all)
}

// places are the folders in which Intel's drivers have the settings of functions.
func places(bus *sysfs.Bus, f sysfs.Function) []Place {
	tree := bus.Tree()
	candidates := []string{"sriov_admin/VF/profile"}
	if card := bus.DRMCard(f); card != "" {
		drm := path.Join("drm", path.Base(card))
		for _, iov := range []string{"iov", "prelim_iov"} {
			for _, gt := range []string{"gt", "gt0", "gt1", "gt2", "gt3"} {
				candidates = append(candidates, path.Join(drm, iov, "VF", gt))
			}
		}
	}
	var found []Place
	for _, folder := range candidates {
		place := Place{Folder: folder}
		for _, name := range settings() {
			if tree.Exists(path.Join(f.Folder, in(folder, 1), name)) {
				place.Has = append(place.Has, name)
			}
		}
		if place.Has != nil {
			found = append(found, place)
		}
	}
	return found
}

// in is the folder of settings of one function.
func in(folder string, n int) string { return strings.Replace(folder, "VF", fmt.Sprintf("vf%d", n), 1) }

// setting reads a setting; where the places differ, all values.
func setting(tree *sysfs.Tree, f sysfs.Function, places []Place, n int, name string) (string, bool) {
	var values []string
	for _, place := range places {
		text := tree.Text(path.Join(f.Folder, in(place.Folder, n), name))
		if value := intel.Choice(text.Value); text.Known && !slices.Contains(values, value) {
			values = append(values, value)
		}
	}
	return strings.Join(values, "x"), len(values) > 0
}

// carries says what was made on a function and would go with it.
func carries(bus *sysfs.Bus, f sysfs.Function) string {
	if current := bus.Tree().Text(path.Join(f.Folder, "nvidia/current_vgpu_type")); current.Known && current.Value != "0" {
		return "vGPU type " + current.Value
	}
	for _, p := range sysfs.Mdevs(bus.MdevTypes(f)) {
		return "vGPU " + p.ID
	}
	return ""
}

func (Technique) Name() string { return partition.TechniqueSRIOV }

func (Technique) About() partition.About {
	return partition.About{
		Want: func() partition.Want { return &Goal{} }, Division: func() partition.Division { return &Functions{} },
		Explanation: partition.Explanation{
			Title: "virtual functions", Vendors: "amd (MxGPU), intel (i915, xe), nvidia (carries vGPU)",
			Goal: "sriov: {vfs: 4}",
			Isolation: []string{
				"memory: own part, behind the IOMMU", "compute: time slices, by the GPU's scheduler", "faults: a function reset as a rule; a hang can hold up others for a slice",
				"side channels: caches are shared in time",
			},
			Cost:     "equal or provisioned parts, set before functions are on; nvidia: all functions of a GPU or none",
			Needs:    "firmware, IOMMU, and a driver that allows functions; nvidia: its sriov-manage, and a GPU that no program has open; amd: its host driver gim, which is loaded anew for all its GPUs",
			Excludes: "changing the provisioning of a function in use",
		},
	}
}

// On says whether a function is on.
func (Technique) On(c partition.Card) bool { return Of(c) != nil && len(Of(c).On) > 0 }

// Aim sets the number of functions and their settings. What is in use is not
// given up with force either: the kernel would wait for its user.
func (t Technique) Aim(c partition.Card, r partition.Rule, _ bool) (partition.Card, error) {
	want, has := r.Wants[t.Name()].(*Goal), Of(c)
	if has == nil {
		if want.VFs == 0 {
			return c, nil
		}
		return c, fmt.Errorf("%w: %s or its driver has no virtual functions", partition.ErrImpossible, c.Name)
	}
	if want.VFs > has.Total {
		return c, fmt.Errorf("%w: %d virtual functions are wanted, %s and its driver allow %d", partition.ErrImpossible, want.VFs, c.Name, has.Total)
	}
	after := *has
	after.On = []Function{}
	after.Wanted = slices.DeleteFunc(settings(), func(name string) bool { return want.Each[name] == "" })
	if want.Autoprobe != nil {
		if has.Autoprobe == nil {
			return c, fmt.Errorf("%w: the kernel has no sriov_drivers_autoprobe for %s", partition.ErrImpossible, c.Name)
		}
		after.Autoprobe = want.Autoprobe
	}
	for n := range want.VFs {
		one := Function{}
		if n < len(has.On) {
			one = has.On[n]
		}
		one.Settings = maps.Clone(one.Settings)
		if one.Settings == nil {
			one.Settings = map[string]string{}
		}
		maps.Copy(one.Settings, want.Each)
		after.On = append(after.On, one)
	}
	if err := known(c, want.Each); err != nil {
		return c, err
	}
	to := c.With(t.Name(), &after)
	if renewed(c, to) {
		if err := ownWay(c, want.VFs); err != nil {
			return c, err
		}
		if busy := t.Busy(c, []partition.Step{off(c)}); busy != "" {
			return c, fmt.Errorf("%w: %s", partition.ErrInUse, busy)
		}
		if carried := carried(c); carried != "" {
			return c, fmt.Errorf("%w: %s", partition.ErrInUse, carried)
		}
		if c.Vendor == gpu.VendorNVIDIA {
			to = to.With(partition.TechniqueVGPU, nil) // functions that were made anew tell what they offer
		}
	}
	return to, nil
}

// carried words the vGPUs that would go with their functions.
func carried(c partition.Card) string {
	var words []string
	for n, vf := range Of(c).On {
		if vf.Carries != "" {
			words = append(words, fmt.Sprintf("vf%d (%s) carries %s", n+1, vf.Address, vf.Carries))
		}
	}
	if words == nil {
		return ""
	}
	return strings.Join(words, "; ") + ": apply vgpu: {devices: {}} first"
}

// known refuses settings that the card has not.
func known(c partition.Card, each map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(each)) {
		switch has := Of(c).Names(); {
		case !slices.Contains(settings(), name):
			return fmt.Errorf("%w: %s is no setting of a virtual function; known are %s", partition.ErrImpossible, name, strings.Join(settings(), ", "))
		case len(Of(c).Places) == 0:
			return fmt.Errorf("%w: the driver of %s has no settings of functions in sysfs (xe before Linux 6.19 has them in debugfs, which is no interface)", partition.ErrImpossible, c.Name)
		case !slices.Contains(has, name):
			return fmt.Errorf("%w: the functions of %s have no %s; they have %s", partition.ErrImpossible, c.Name, name, strings.Join(has, ", "))
		}
	}
	return nil
}

// ownWay refuses drivers that do not take a number from the kernel, and says what
// does it.
func ownWay(c partition.Card, vfs int) error {
	switch {
	case c.Vendor == gpu.VendorNVIDIA:
		return byManager(c, vfs)
	case c.Vendor == gpu.VendorAMD:
		return byGim(c, vfs)
	}
	return nil
}

// renewed says whether functions go and come back: their number or a quota
// changes.
func renewed(from, to partition.Card) bool {
	has, want := Of(from), Of(to)
	if len(has.On) != len(want.On) {
		return true
	}
	for n, vf := range want.On {
		for _, name := range want.Wanted {
			if isQuota(name) && vf.Settings[name] != has.On[n].Settings[name] {
				return true
			}
		}
	}
	return false
}

// off switches all functions off, on as many on.
func off(c partition.Card) partition.Step {
	if Of(c).Driver == gimDriver {
		return unload(c)
	}
	if Of(c).Tool != "" {
		return manage(c, "-d", "functions are to go, and all of them go together")
	}
	return partition.Step{Action: partition.ActionWrite, File: sysfs.Attribute(c.Address, "sriov_numvfs"), Value: "0", Why: "number and quotas change only while no function is on"}
}

func on(c partition.Card, n int) partition.Step {
	if Of(c).Tool != "" {
		return manage(c, "-e", "functions are wanted, and all of them come together")
	}
	return partition.Step{Action: partition.ActionWrite, File: sysfs.Attribute(c.Address, "sriov_numvfs"), Value: strconv.Itoa(n), Why: "functions are wanted"}
}

// Steps switches functions off if they must be made anew, sets what is asked, and
// switches them on.
func (Technique) Steps(from, to partition.Card) []partition.Step {
	has, want := Of(from), Of(to)
	if has == nil || want == nil {
		return nil
	}
	if want.Driver == gimDriver {
		return loaded(from, to)
	}
	var steps []partition.Step
	write := func(name, value, why string) {
		steps = append(steps, partition.Step{Action: partition.ActionWrite, File: sysfs.Attribute(to.Address, name), Value: value, Why: why})
	}
	anew := renewed(from, to)
	if anew && len(has.On) > 0 {
		steps = append(steps, off(from))
	}
	steps = append(steps, autoprobe(from, to)...)
	for n, vf := range want.On {
		for _, name := range want.Wanted {
			if !anew && has.On[n].Settings[name] == vf.Settings[name] {
				continue
			}
			why := "wanted of every function"
			if !anew {
				why = "it is " + has.On[n].Settings[name]
			}
			for _, place := range want.Places {
				if slices.Contains(place.Has, name) {
					write(path.Join(in(place.Folder, n+1), name), vf.Settings[name], why)
				}
			}
		}
	}
	if anew && len(want.On) > 0 {
		steps = append(steps, on(from, len(want.On)))
	}
	return steps
}

// autoprobe says whether the host's drivers take functions that are made.
func autoprobe(from, to partition.Card) []partition.Step {
	probe, now := Of(to).Autoprobe, Of(from).Autoprobe
	if probe == nil || now == nil || *probe == *now {
		return nil
	}
	value, why := "1", "the host's drivers are to take functions"
	if !*probe {
		value, why = "0", "the host's drivers are not to take functions"
	}
	return []partition.Step{{Action: partition.ActionWrite, File: sysfs.Attribute(to.Address, "sriov_drivers_autoprobe"), Value: value, Why: why}}
}

// Busy words who uses functions that would go, or a card whose driver would let it
// go meanwhile.
func (Technique) Busy(c partition.Card, steps []partition.Step) string {
	has := Of(c)
	if has == nil || !slices.ContainsFunc(steps, func(s partition.Step) bool { return s.File == off(c).File }) {
		return ""
	}
	var words []string
	for n, vf := range has.On {
		switch {
		case len(vf.Processes) > 0:
			words = append(words, fmt.Sprintf("vf%d (%s) is used by %s", n+1, vf.Address, partition.Describe(vf.Processes)))
		case vf.Enabled && has.Driver == gimDriver:
			words = append(words, fmt.Sprintf("vf%d (%s) is held by the driver %s, for which gim would wait: unbind it", n+1, vf.Address, vf.Driver))
		}
	}
	if len(has.Users) > 0 {
		words = append(words, "its driver lets a GPU go only when no program has it open; it is open in "+partition.Describe(has.Users))
	}
	return strings.Join(words, "; ")
}
