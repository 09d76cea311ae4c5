// SPDX-License-Identifier: Apache-2.0

package sriov

import (
	"fmt"
	"path"
	"slices"

	"github.com/divvy-gpu/divvy/internal/gpu/sysfs"
	"github.com/divvy-gpu/divvy/internal/partition"
)

// AMD's host driver gim makes functions while it is loaded, as many of each card
// as its parameter vf_num says (one number a card, the last one for all others), and
// in no other way: it has no sriov_configure, so the kernel refuses a number that is
// written to sriov_numvfs. So it is loaded anew, by modprobe, with one number for
// all its cards: which of several is whose, nothing tells. Facts are from
// amd/MxGPU-Virtualization (gim_shim: gim_config.c, gim_config.h, gim_drv.c):
//
//   - the number is 1 to 31; gim keeps it in /etc/gim_config, a parameter wins;
//   - where it changes, gim forgets the partition modes that it keeps there;
//   - modprobe returns when all cards have their functions;
//   - gim does not leave before every function is disabled (enable_cnt in the
//     kernel, the file enable), for which it waits without end;
//   - its parameters can be read back: of lists what was given, else nothing.

// gimDriver is a driver and its module.
const gimDriver = "gim"

const gimMost = 31 // functions of a card

const gimParameters = "sys/module/" + gimDriver + "/parameters"

// Turns in which the cards of gim take their steps.
const (
	turnUnload = 1 + iota
	turnProbe
	turnLoad
)

// ofGim fills in what is known of a card that gim has.
func ofGim(bus *sysfs.Bus, f sysfs.Function, all *Functions) {
	tree := bus.Tree()
	places := []string{"usr/sbin/modprobe", "sbin/modprobe"}
	// A link to /bin/kmod leads out of the root, and is there all the same.
	if i := slices.IndexFunc(places, func(name string) bool { return tree.Exists(name) || tree.Link(name).Known }); i >= 0 {
		all.Tool = places[i]
	}
	for _, other := range bus.Cards(f.VendorID, nil) {
		if tree.LinkBase(path.Join(other.Folder, "driver")).Value == gimDriver {
			all.Together = append(all.Together, other.Address)
		}
	}
	// Of these 0 is what they are when they are not given.
	single := []string{
		"power_saving_mode", "gpu_data_addr_hi", "gpu_data_addr_lo", "gpu_data_size", "deferred_full_live_update", "bp_mode",
		"sentinel_mode", "enable_live_migration", "vf_hbm_mgmt_mode",
	}
	for _, name := range tree.Names(gimParameters) {
		value := tree.Text(path.Join(gimParameters, name)).Value
		if value == "" || value == "(null)" || name == "vf_num" || value == "0" && slices.Contains(single, name) {
			continue
		}
		all.Parameters = append(all.Parameters, name+"="+value)
	}
}

// byGim refuses what gim does not do.
func byGim(c partition.Card, vfs int) error {
	s := Of(c)
	switch {
	case s.Driver != gimDriver:
		return fmt.Errorf("%w: AMD's functions are made by its host driver gim; %s has %s", partition.ErrImpossible, word(s.Driver), c.Name)
	case vfs == 0:
		return fmt.Errorf("%w: gim makes at least one function of each of its GPUs; without it there is none: run modprobe -r gim", partition.ErrImpossible)
	case vfs > gimMost:
		return fmt.Errorf("%w: gim makes at most %d functions of a GPU", partition.ErrImpossible, gimMost)
	case s.Tool == "":
		return fmt.Errorf("%w: gim takes the number when it is loaded, and modprobe is not in /usr/sbin", partition.ErrImpossible)
	}
	return nil
}

// Joined are the cards that gim has, where the number of functions changes.
func (Technique) Joined(from, to partition.Card) ([]string, string) {
	has, want := Of(from), Of(to)
	if has == nil || want == nil || want.Driver != gimDriver || len(want.Together) < 2 || !renewed(from, to) {
		return nil, ""
	}
	return want.Together, fmt.Sprintf("%d virtual functions instead of %d", len(want.On), len(has.On))
}

// Rejoin has a card wait for its users when gim is loaded anew for another: its
// functions go too.
func (Technique) Rejoin(_ partition.Card, own, all []partition.Step) []partition.Step {
	unloads := func(s partition.Step) bool { return slices.Equal(s.Arguments, []string{"-r", gimDriver}) }
	if i := slices.IndexFunc(all, unloads); i >= 0 && !slices.ContainsFunc(own, unloads) {
		return slices.Concat([]partition.Step{all[i]}, own)
	}
	return own
}

func modprobe(c partition.Card, turn int, why string, arguments ...string) partition.Step {
	return partition.Step{Action: partition.ActionRun, File: Of(c).Tool, Arguments: arguments, Turn: turn, Why: why}
}

// unload does nothing where gim is not loaded.
func unload(c partition.Card) partition.Step {
	return modprobe(c, turnUnload, "gim takes a number when it is loaded; its functions go with it, of all its GPUs", "-r", gimDriver)
}

// loaded loads gim anew, with what it was loaded with before. Each of its cards has
// these steps; from the second on they find it done.
func loaded(from, to partition.Card) []partition.Step {
	var steps []partition.Step
	anew := renewed(from, to)
	if anew {
		steps = append(steps, unload(to))
	}
	for _, s := range autoprobe(from, to) {
		s.Turn = turnProbe
		steps = append(steps, s)
	}
	if anew {
		arguments := slices.Concat([]string{gimDriver}, Of(to).Parameters, []string{fmt.Sprintf("vf_num=%d", len(Of(to).On))})
		steps = append(steps, modprobe(to, turnLoad, "functions are wanted; the other parameters are as they were", arguments...))
	}
	return steps
}
