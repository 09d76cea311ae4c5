// SPDX-License-Identifier: Apache-2.0

package fakekernel

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Run does what a vendor's program does, if it is there.
func (k *Kernel) Run(_ context.Context, program string, arguments ...string) error {
	return k.act(program, func(torn bool) error {
		if _, err := os.Stat(filepath.Join(k.Folder, program)); err != nil {
			return err
		}
		if filepath.Base(program) == "sriov-manage" && len(arguments) == 2 {
			return k.manage(arguments[0], arguments[1], torn)
		}
		if filepath.Base(program) == "modprobe" {
			return k.modprobe(arguments, torn)
		}
		return fmt.Errorf("%w: %s %v", syscall.EINVAL, program, arguments)
	})
}

// manage is NVIDIA's sriov-manage: it takes a card that nobody has open from its
// driver, switches all its functions on (-e) or off (-d), and gives it back. Torn it
// ends while the card has no driver.
func (k *Kernel) manage(how, address string, torn bool) error {
	folder := k.device(address)
	open, err := filepath.Glob(filepath.Join(k.Folder, "proc/[0-9]*/fd/*"))
	if err != nil {
		return err
	}
	for _, fd := range open {
		if node := readLink(fd); strings.HasPrefix(node, "/dev/nvidia") && strings.Contains(text(filepath.Join(k.Folder, "proc/driver/nvidia/gpus", address, "information")), "Device Minor: \t "+strings.TrimPrefix(node, "/dev/nvidia")) {
			return fmt.Errorf("cannot obtain unbindLock for %s: %w", address, syscall.EBUSY)
		}
	}
	now, wanted := count(filepath.Join(folder, "sriov_numvfs")), 0
	if how == "-e" {
		wanted = count(filepath.Join(folder, "sriov_totalvfs"))
	}
	if wanted > 0 && now > 0 {
		return syscall.EBUSY
	}
	if err := k.unbind(address); err != nil || torn {
		return err
	}
	if err := k.switched(folder, now, wanted); err != nil {
		return err
	}
	for n := range wanted {
		vf, err := k.address(address, n)
		if err != nil {
			return err
		}
		if err := k.bind(vf, "nvidia"); err != nil {
			return err
		}
		for _, r := range k.recorded[k.functions[address]] {
			if filepath.Base(r.Name) == "current_vgpu_type" {
				r.Data = "0\n"
			}
			inside, err := filepath.Rel(k.Folder, k.device(vf))
			if err != nil {
				return err
			}
			if err := k.put(filepath.Join(inside, r.Name), r.Data); err != nil {
				return err
			}
		}
	}
	if err := k.bind(address, "nvidia"); err != nil {
		return err
	}
	return k.room(folder)
}
