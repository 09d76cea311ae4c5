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
)

// Technique is virtual functions.
type Technique struct{}

var (
	_ partition.Technique = Technique{}
	_ partition.Joiner    = Technique{}
)

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

// Observe reads a card's virtual functions; one that has no attribute for them
// has none.
func (Technique) Observe(bus *sysfs.Bus, f sysfs.Function, c *partition.Card) {
	tree := bus.Tree()
	total := tree.Int(path.Join(f.Folder, "sriov_totalvfs"))
	if !total.Known || f.Physical != "" {
		return
	}
	all := &partition.Functions{
		Total: total.Value, Driver: tree.LinkBase(path.Join(f.Folder, "driver")).Value, Places: places(bus, f), On: []partition.Function{},
	}
	if probe := tree.Text(path.Join(f.Folder, "sriov_drivers_autoprobe")); probe.Known {
		on := probe.Value != "0"
		all.Autoprobe = &on
	}
	if c.Vendor == gpu.VendorNVIDIA {
		all.Tool, all.Users = manager(tree), slices.Clone(c.Processes)
	}
	if all.Driver == gimDriver {
		ofGim(bus, f, all)
	}
	for n, vf := range bus.VFs(f) {
		at, _ := bus.Find(vf.ID)
		nodes := append(slices.Clone(vf.Nodes), bus.VFIONodes(sysfs.Attribute(vf.ID, ""))...)
		one := partition.Function{Address: vf.ID, Driver: vf.Driver.Value, Carries: carries(bus, at), Settings: map[string]string{}}
		one.Enabled = tree.Int(path.Join(at.Folder, "enable")).Value > 0
		for _, h := range bus.Holders(gpu.Device{Address: vf.ID, Nodes: nodes}) {
			one.Processes = append(one.Processes, partition.Process{PID: h.PID, Command: h.Command})
		}
		for _, name := range settings() {
			if value, ok := setting(tree, f, all.Places, n+1, name); ok {
				one.Settings[name] = value
			}
		}
		all.On = append(all.On, one)
	}
	c.SRIOV = all
}

// places are the folders in which Intel's drivers have the settings of functions.
func places(bus *sysfs.Bus, f sysfs.Function) []partition.Place {
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
	var found []partition.Place
	for _, folder := range candidates {
		place := partition.Place{Folder: folder}
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
func setting(tree *sysfs.Tree, f sysfs.Function, places []partition.Place, n int, name string) (string, bool) {
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

// Name is partition.TechniqueSRIOV.
func (Technique) Name() string { return partition.TechniqueSRIOV }

// On says whether a function is on.
func (Technique) On(c partition.Card) bool { return c.SRIOV != nil && len(c.SRIOV.On) > 0 }

// Aim sets the number of functions and their settings. What is in use is not
// given up with force either: the kernel would wait for its user.
func (t Technique) Aim(c partition.Card, r partition.Rule, _ bool) (partition.Card, error) {
	want := r.SRIOV
	if c.SRIOV == nil {
		if want.VFs == 0 {
			return c, nil
		}
		return c, fmt.Errorf("%w: %s or its driver has no virtual functions", partition.ErrImpossible, c.Name)
	}
	if want.VFs > c.SRIOV.Total {
		return c, fmt.Errorf("%w: %d virtual functions are wanted, %s and its driver allow %d", partition.ErrImpossible, want.VFs, c.Name, c.SRIOV.Total)
	}
	after := *c.SRIOV
	after.On = []partition.Function{}
	after.Asked = slices.DeleteFunc(settings(), func(name string) bool { return want.Each[name] == "" })
	if want.Autoprobe != nil {
		if c.SRIOV.Autoprobe == nil {
			return c, fmt.Errorf("%w: the kernel has no sriov_drivers_autoprobe for %s", partition.ErrImpossible, c.Name)
		}
		after.Autoprobe = want.Autoprobe
	}
	for n := range want.VFs {
		one := partition.Function{}
		if n < len(c.SRIOV.On) {
			one = c.SRIOV.On[n]
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
	to := c
	to.SRIOV = &after
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
			to.VGPU = nil // functions that were made anew tell what they offer
		}
	}
	return to, nil
}

// carried words the vGPUs that would go with their functions.
func carried(c partition.Card) string {
	var words []string
	for n, vf := range c.SRIOV.On {
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
		switch has := c.SRIOV.Names(); {
		case !slices.Contains(settings(), name):
			return fmt.Errorf("%w: %s is no setting of a virtual function; known are %s", partition.ErrImpossible, name, strings.Join(settings(), ", "))
		case len(c.SRIOV.Places) == 0:
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
	if len(from.SRIOV.On) != len(to.SRIOV.On) {
		return true
	}
	for n, vf := range to.SRIOV.On {
		for _, name := range to.SRIOV.Asked {
			if isQuota(name) && vf.Settings[name] != from.SRIOV.On[n].Settings[name] {
				return true
			}
		}
	}
	return false
}

// off switches all functions off, on as many on.
func off(c partition.Card) partition.Step {
	if c.SRIOV.Driver == gimDriver {
		return unload(c)
	}
	if c.SRIOV.Tool != "" {
		return manage(c, "-d", "functions are to go, and all of them go together")
	}
	return partition.Step{Action: partition.ActionWrite, File: sysfs.Attribute(c.Address, "sriov_numvfs"), Value: "0", Why: "number and quotas change only while no function is on"}
}

func on(c partition.Card, n int) partition.Step {
	if c.SRIOV.Tool != "" {
		return manage(c, "-e", "functions are wanted, and all of them come together")
	}
	return partition.Step{Action: partition.ActionWrite, File: sysfs.Attribute(c.Address, "sriov_numvfs"), Value: strconv.Itoa(n), Why: "functions are wanted"}
}

// Steps switches functions off if they must be made anew, sets what is asked, and
// switches them on.
func (Technique) Steps(from, to partition.Card) []partition.Step {
	if from.SRIOV == nil || to.SRIOV == nil {
		return nil
	}
	if to.SRIOV.Driver == gimDriver {
		return loaded(from, to)
	}
	var steps []partition.Step
	write := func(name, value, why string) {
		steps = append(steps, partition.Step{Action: partition.ActionWrite, File: sysfs.Attribute(to.Address, name), Value: value, Why: why})
	}
	anew := renewed(from, to)
	if anew && len(from.SRIOV.On) > 0 {
		steps = append(steps, off(from))
	}
	steps = append(steps, autoprobe(from, to)...)
	for n, vf := range to.SRIOV.On {
		for _, name := range to.SRIOV.Asked {
			if !anew && from.SRIOV.On[n].Settings[name] == vf.Settings[name] {
				continue
			}
			why := "wanted of every function"
			if !anew {
				why = "it is " + from.SRIOV.On[n].Settings[name]
			}
			for _, place := range to.SRIOV.Places {
				if slices.Contains(place.Has, name) {
					write(path.Join(in(place.Folder, n+1), name), vf.Settings[name], why)
				}
			}
		}
	}
	if anew && len(to.SRIOV.On) > 0 {
		steps = append(steps, on(from, len(to.SRIOV.On)))
	}
	return steps
}

// autoprobe says whether the host's drivers take functions that are made.
func autoprobe(from, to partition.Card) []partition.Step {
	probe, now := to.SRIOV.Autoprobe, from.SRIOV.Autoprobe
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
	if c.SRIOV == nil || !slices.ContainsFunc(steps, func(s partition.Step) bool { return s.File == off(c).File }) {
		return ""
	}
	var words []string
	for n, vf := range c.SRIOV.On {
		switch {
		case len(vf.Processes) > 0:
			words = append(words, fmt.Sprintf("vf%d (%s) is used by %s", n+1, vf.Address, partition.Describe(vf.Processes)))
		case vf.Enabled && c.SRIOV.Driver == gimDriver:
			words = append(words, fmt.Sprintf("vf%d (%s) is held by the driver %s, for which gim would wait: unbind it", n+1, vf.Address, vf.Driver))
		}
	}
	if len(c.SRIOV.Users) > 0 {
		words = append(words, "its driver lets a card go only when nobody has it open; it is open in "+partition.Describe(c.SRIOV.Users))
	}
	return strings.Join(words, "; ")
}
