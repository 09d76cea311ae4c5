// SPDX-License-Identifier: Apache-2.0

package fakekernel

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// create makes a mediated device of the type in a folder, if there is room. A
// card of NVIDIA's takes one type then.
func (k *Kernel) create(folder, uuid string) error {
	if count(filepath.Join(folder, "available_instances")) == 0 {
		return syscall.EINVAL
	}
	bus := filepath.Join(k.Folder, "sys/bus/mdev/devices")
	if _, err := os.Lstat(filepath.Join(bus, uuid)); err == nil {
		return syscall.EEXIST
	}
	parent := filepath.Dir(filepath.Dir(folder))
	inside, err := filepath.Rel(k.Folder, filepath.Join(parent, uuid))
	if err != nil {
		return err
	}
	if err := k.put(filepath.Join(inside, "remove"), ""); err != nil {
		return err
	}
	for name, target := range map[string]string{
		filepath.Join(inside, "mdev_type"):                                       "../mdev_supported_types/" + filepath.Base(folder),
		filepath.Join("sys/bus/mdev/devices", uuid):                              "../../../" + strings.TrimPrefix(inside, "sys/"),
		strings.TrimPrefix(filepath.Join(folder, "devices", uuid), k.Folder+"/"): "../../../" + uuid,
	} {
		if err := k.link(name, target); err != nil {
			return err
		}
	}
	return k.room(parent)
}

// remove ends a mediated device.
func (k *Kernel) remove(device string) error {
	kind, err := filepath.EvalSymlinks(filepath.Join(device, "mdev_type"))
	if err != nil {
		return err
	}
	uuid := filepath.Base(device)
	for _, gone := range []string{filepath.Join(kind, "devices", uuid), filepath.Join(k.Folder, "sys/bus/mdev/devices", uuid), device} {
		if err := os.RemoveAll(gone); err != nil {
			return err
		}
	}
	return k.room(filepath.Dir(device))
}

// room counts anew how many of each type can be made: as many as a type has at
// most, one on a virtual function; of one type where NVIDIA's has been made.
func (k *Kernel) room(parent string) error {
	card := parent
	if physical, err := filepath.EvalSymlinks(filepath.Join(parent, "physfn")); err == nil {
		card = physical
	}
	places, err := filepath.Glob(filepath.Join(card, "virtfn*"))
	if err != nil {
		return err
	}
	used, on := map[string]int{}, map[string]int{}
	var types []string
	for _, place := range append(places, card) {
		found, err := filepath.Glob(filepath.Join(place, "mdev_supported_types/*"))
		if err != nil {
			return err
		}
		types = append(types, found...)
		for _, kind := range found {
			made, err := filepath.Glob(filepath.Join(kind, "devices/*"))
			if err != nil {
				return err
			}
			used[filepath.Base(kind)] += len(made)
			on[place] += len(made)
		}
	}
	for _, kind := range types {
		place := filepath.Dir(filepath.Dir(kind))
		most := 2 // of GVT-g's
		if _, rest, ok := strings.Cut(text(filepath.Join(kind, "description")), "max_instance="); ok {
			if _, err := fmt.Sscan(rest, &most); err != nil {
				return err
			}
		}
		free := most - used[filepath.Base(kind)]
		for other, n := range used {
			if n > 0 && other != filepath.Base(kind) && strings.HasPrefix(other, "nvidia") {
				free = 0
			}
		}
		if place != card {
			free = min(free, 1-on[place])
		}
		if err := set(filepath.Join(kind, "available_instances"), fmt.Sprint(max(free, 0))); err != nil {
			return err
		}
	}
	return nil
}

// assign gives a virtual function a type, one that it offers, or 0.
func (k *Kernel) assign(folder, kind string) error {
	offers := filepath.Join(folder, "creatable_vgpu_types")
	if kind == "0" {
		siblings, err := filepath.Glob(filepath.Join(filepath.Dir(folder), "physfn/virtfn*/nvidia/creatable_vgpu_types"))
		for _, sibling := range siblings {
			if k.offers[folder] == "" {
				k.offers[folder] = text(sibling)
			}
		}
		return errors.Join(err, set(offers, k.offers[folder]))
	}
	if count(filepath.Join(folder, "current_vgpu_type")) != 0 {
		return syscall.EBUSY
	}
	if !strings.Contains("\n"+text(offers), "\n"+kind+" ") {
		return syscall.EINVAL
	}
	k.offers[folder] = text(offers)
	return set(offers, "")
}
