// SPDX-License-Identifier: Apache-2.0

package sriov

import (
	"fmt"
	"slices"

	"github.com/divvy-gpu/divvy/internal/gpu/sysfs"
	"github.com/divvy-gpu/divvy/internal/partition"
	"github.com/divvy-gpu/divvy/internal/partition/mig"
)

// NVIDIA's driver of vGPU hosts takes no number of functions: a program that comes
// with it, sriov-manage, switches all of a card on (-e ADDRESS) or off (-d). Its
// user guide knows no other way, and the driver refuses a 0 that is written to
// sriov_numvfs (bigstack-oss/cubecos, on hardware). What else is used here:
//
//   - it writes sriov_totalvfs, card by card, and needs seconds for each
//     (NVIDIA/gpu-operator, pull request 2002); the functions are there when it
//     ends (NVIDIA/vgpu-device-manager, package vfio);
//   - the driver lets the card go meanwhile, which it does when nobody has it open
//     (unbindLock in NVIDIA/open-gpu-kernel-modules, nv-procfs.c), monitors neither;
//   - it has reported success though it failed (vGPU 17.2,
//     NVIDIA/gpu-driver-container, pull request 29), so the functions are counted;
//   - MIG instances go (harvester/harvester, pull request 9093).

// nvidiaDriver is the driver that the program takes a card from and gives it back.
const nvidiaDriver = "nvidia"

// manager is the program below the root, as the driver's packages and the driver
// container of NVIDIA's GPU operator have it; empty if there is none.
func manager(tree *sysfs.Tree) string {
	places := []string{"usr/lib/nvidia/sriov-manage", "run/nvidia/driver/usr/lib/nvidia/sriov-manage"}
	if i := slices.IndexFunc(places, tree.Exists); i >= 0 {
		return places[i]
	}
	return ""
}

// byManager refuses what the program does not do.
func byManager(c partition.Card, vfs int) error {
	s := Of(c)
	switch {
	case vfs != 0 && vfs != s.Total:
		return fmt.Errorf("%w: NVIDIA's driver has all %d functions of %s on, or none: vfs: %d and vfs: 0 can be had", partition.ErrImpossible, s.Total, c.Name, s.Total)
	case s.Tool == "":
		return fmt.Errorf("%w: NVIDIA's functions are switched by sriov-manage, which is not in /usr/lib/nvidia: install the driver of vGPU hosts "+
			"(package nvidia-vgpu-ubuntu-... or NVIDIA-vGPU-rhel-..., or NVIDIA-Linux-...-vgpu-kvm.run)", partition.ErrImpossible)
	case s.Driver != nvidiaDriver:
		return fmt.Errorf("%w: sriov-manage is for GPUs that the driver nvidia has; %s has %s", partition.ErrImpossible, word(s.Driver), c.Name)
	case len(mig.Of(c).Instances) > 0:
		return fmt.Errorf("%w: MIG instances do not outlive that NVIDIA's driver lets a GPU go to switch its functions: destroy them first", partition.ErrImpossible)
	}
	return nil
}

func word(driver string) string {
	if driver == "" {
		return "no driver"
	}
	return driver
}

// manage is a run of the program.
func manage(c partition.Card, how, why string) partition.Step {
	return partition.Step{Action: partition.ActionRun, File: Of(c).Tool, Arguments: []string{how, c.Address}, Why: why}
}
