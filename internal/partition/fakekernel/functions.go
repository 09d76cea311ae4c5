// SPDX-License-Identifier: Apache-2.0

package fakekernel

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/divvy-gpu/divvy/internal/gpu/sysfs"
)

// record remembers what functions that are made anew are to be like.
func (k *Kernel) record(r sysfs.Record) {
	at := strings.Split(r.Name, "/")
	for i, name := range at[:len(at)-1] {
		if sysfs.IsAddress(name) && (at[i+1] == "nvidia" || at[i+1] == "mdev_supported_types") && r.Target == "" {
			k.recorded[name] = append(k.recorded[name], sysfs.Record{Name: strings.Join(at[i+1:], "/"), Data: r.Data})
		}
		if sysfs.IsAddress(name) && at[i+1] == "virtfn0" {
			k.functions[name] = filepath.Base(r.Target)
		}
	}
}

// number switches virtual functions on or off: quotas that nobody set are shared
// out, and all given back at the end.
func (k *Kernel) number(folder, value string) error {
	wanted, err := strconv.Atoi(value)
	now, total := count(filepath.Join(folder, "sriov_numvfs")), count(filepath.Join(folder, "sriov_totalvfs"))
	switch {
	case err != nil:
		return syscall.EINVAL
	case text(filepath.Join(folder, "vendor")) == "0x10de":
		return syscall.ENOENT // its driver refuses it, by this word
	case wanted > total:
		return syscall.ERANGE
	case wanted > 0 && now > 0 && wanted != now:
		return syscall.EBUSY
	}
	return k.switched(folder, now, wanted)
}

// switched makes or removes functions.
func (k *Kernel) switched(folder string, now, wanted int) error {
	for n := range now {
		if wanted > 0 {
			break
		}
		address := filepath.Base(readLink(filepath.Join(folder, fmt.Sprintf("virtfn%d", n))))
		for _, gone := range []string{k.device(address), filepath.Join(k.Folder, "sys/bus/pci/devices", address), filepath.Join(folder, fmt.Sprintf("virtfn%d", n))} {
			if err := os.RemoveAll(gone); err != nil {
				return err
			}
		}
		if err := k.quota(folder, n+1, "0", true); err != nil {
			return err
		}
	}
	for n := range wanted - now {
		if err := k.function(folder, n); err != nil {
			return err
		}
		if err := k.quota(folder, n+1, strconv.Itoa(16<<30/wanted), false); err != nil {
			return err
		}
	}
	return set(filepath.Join(folder, "sriov_numvfs"), strconv.Itoa(wanted))
}

// function makes one virtual function beside its card.
func (k *Kernel) function(folder string, n int) error {
	card := filepath.Base(folder)
	address, err := k.address(card, n)
	if err != nil {
		return err
	}
	at := filepath.Join(filepath.Dir(folder), address)
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"vendor", "device", "class"} {
		if err := set(filepath.Join(at, name), text(filepath.Join(folder, name))); err != nil {
			return err
		}
	}
	inside, err := filepath.Rel(filepath.Join(k.Folder, "sys"), at)
	if err != nil {
		return err
	}
	for link, target := range map[string]string{
		filepath.Join(at, "physfn"):                             "../" + card,
		filepath.Join(folder, fmt.Sprintf("virtfn%d", n)):       "../" + address,
		filepath.Join(k.Folder, "sys/bus/pci/devices", address): "../../../" + inside,
	} {
		if err := os.Symlink(target, link); err != nil {
			return err
		}
	}
	driver := filepath.Base(readLink(filepath.Join(folder, "driver")))
	if text(filepath.Join(folder, "sriov_drivers_autoprobe")) != "1" || driver == "gim" { // which takes no function
		return nil
	}
	k.drivers[address] = driver
	return k.probe(address)
}

// address is where a card's virtual functions are, from 0: one after the other from
// the first that was recorded, else from the card itself.
func (k *Kernel) address(card string, n int) (string, error) {
	from, offset := k.functions[card], n
	if from == "" {
		from, offset = card, n+1
	}
	var domain, bus, device, function int
	if _, err := fmt.Sscanf(from, "%x:%x:%x.%x", &domain, &bus, &device, &function); err != nil {
		return "", err
	}
	routing := bus<<8 | device<<3 | function + offset
	return fmt.Sprintf("%04x:%02x:%02x.%d", domain, routing>>8, routing>>3&31, routing&7), nil
}

// quota sets the memory of a function: always, or where nobody has.
func (k *Kernel) quota(folder string, n int, value string, always bool) error {
	for _, pattern := range []string{"sriov_admin/vf%d/profile/vram_quota", "drm/card*/*iov/vf%d/gt*/lmem_quota"} {
		files, err := filepath.Glob(filepath.Join(folder, fmt.Sprintf(pattern, n)))
		if err != nil {
			return err
		}
		for _, file := range files {
			if !always && text(file) != "0" {
				continue
			}
			if err := set(file, value); err != nil {
				return err
			}
		}
	}
	return nil
}
