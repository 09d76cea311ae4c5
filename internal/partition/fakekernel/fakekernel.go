// SPDX-License-Identifier: Apache-2.0

// Package fakekernel is a kernel for tests: a folder with a machine's files, in
// which writes to the attributes that divide cards have the effects and the
// refusals that the kernel's have. It is never part of the program.
package fakekernel

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/divvy-gpu/divvy/internal/gpu/sysfs"
)

// Kernel is a machine in a folder. Its fields may be changed between writes.
type Kernel struct {
	Folder string
	// Writes counts what was asked for.
	Writes int
	// FailAt is the write that fails, from 1; 0: none. With Late it fails after
	// its effect.
	FailAt int
	Late   bool
	// Dead: after the failing write all others fail, as after a crash.
	Dead bool
	// Lies says that writes succeed and do nothing.
	Lies bool

	drivers map[string]string // the drivers of functions as unpacked
	offers  map[string]string // the vGPU types of virtual functions that have one
}

// Unpack makes the machine of an archive below a folder.
func Unpack(archive, folder string) (*Kernel, error) {
	raw, err := os.ReadFile(archive)
	if err != nil {
		return nil, err
	}
	records, err := sysfs.ParseArchive(raw)
	if err != nil {
		return nil, err
	}
	k := &Kernel{Folder: folder, drivers: map[string]string{}, offers: map[string]string{}}
	for _, r := range records {
		if r.Target != "" {
			err = k.link(r.Name, r.Target)
		} else {
			err = k.put(r.Name, r.Data)
		}
		if err != nil {
			return nil, err
		}
		if filepath.Base(r.Name) == "driver" {
			k.drivers[filepath.Base(filepath.Dir(r.Name))] = filepath.Base(r.Target)
		}
	}
	return k, nil
}

func (k *Kernel) put(name, data string) error {
	at := filepath.Join(k.Folder, name)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	return os.WriteFile(at, []byte(data), 0o644)
}

func (k *Kernel) link(name, target string) error {
	at := filepath.Join(k.Folder, name)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	return os.Symlink(target, at)
}

// text is what a file holds, empty if it is not there.
func text(name string) string {
	raw, err := os.ReadFile(name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(raw))
}

func set(name, value string) error { return os.WriteFile(name, []byte(value+"\n"), 0o644) }

// Write does what the kernel does when a value is written to an attribute.
func (k *Kernel) Write(name, value string) error {
	k.Writes++
	fails := k.FailAt > 0 && k.Writes == k.FailAt
	switch {
	case fails && !k.Late, k.Dead && k.FailAt > 0 && k.Writes > k.FailAt:
		return syscall.EIO
	case k.Lies:
		return nil
	}
	if err := k.write(name, strings.TrimSpace(value)); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if fails {
		return syscall.EIO
	}
	return nil
}

func (k *Kernel) write(name, value string) error {
	base := filepath.Base(name)
	if base == "drivers_probe" {
		return k.probe(value)
	}
	if base == "unbind" {
		// What only a driver shows goes with it.
		return errors.Join(os.Remove(filepath.Join(k.device(value), "driver")), os.RemoveAll(filepath.Join(k.Folder, "proc/driver/nvidia/gpus", value)))
	}
	folder, err := filepath.EvalSymlinks(filepath.Join(k.Folder, filepath.Dir(name)))
	if err != nil {
		return err
	}
	at := filepath.Join(folder, base)
	if _, err := os.Stat(at); err != nil && base != "create" && base != "remove" {
		return err
	}
	switch base {
	case "create":
		return k.create(folder, value)
	case "remove":
		return k.remove(folder)
	case "current_vgpu_type":
		if err := k.assign(folder, value); err != nil {
			return err
		}
	case "sriov_numvfs":
		if err := k.functions(folder, value); err != nil {
			return err
		}
	case "driver_override":
		if value == "" {
			value = "(null)"
		}
	case "sched_priority":
		value = strings.Replace("low normal high", value, "["+value+"]", 1)
	case "current_compute_partition":
		if !strings.Contains(text(filepath.Join(folder, "available_compute_partition")), value) {
			return syscall.EINVAL
		}
	}
	return set(at, value)
}

// functions switches virtual functions on or off: numbered from the card's own
// function, quotas that nobody set shared out, all given back at the end.
func (k *Kernel) functions(folder, value string) error {
	wanted, err := strconv.Atoi(value)
	now, total := number(filepath.Join(folder, "sriov_numvfs")), number(filepath.Join(folder, "sriov_totalvfs"))
	switch {
	case err != nil:
		return syscall.EINVAL
	case wanted > total:
		return syscall.ERANGE
	case wanted > 0 && now > 0 && wanted != now:
		return syscall.EBUSY
	}
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
	return nil
}

// function makes one virtual function beside its card.
func (k *Kernel) function(folder string, n int) error {
	card := filepath.Base(folder)
	slot, _, _ := strings.Cut(card, ".")
	address := fmt.Sprintf("%s.%d", slot, n+1)
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
	if text(filepath.Join(folder, "sriov_drivers_autoprobe")) == "1" {
		k.drivers[address] = filepath.Base(readLink(filepath.Join(folder, "driver")))
		return k.probe(address)
	}
	return nil
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

func readLink(name string) string {
	target, err := os.Readlink(name)
	if err != nil {
		return ""
	}
	return target
}

func number(name string) int {
	n, err := strconv.Atoi(text(name))
	if err != nil {
		return 0
	}
	return n
}

// device is the folder of a PCI function.
func (k *Kernel) device(address string) string {
	at, err := filepath.EvalSymlinks(filepath.Join(k.Folder, "sys/bus/pci/devices", address))
	if err != nil {
		return filepath.Join(k.Folder, "none")
	}
	return at
}

// probe binds a function to the driver that its override names, else to the one
// it had.
func (k *Kernel) probe(address string) error {
	folder := k.device(address)
	if _, err := os.Lstat(filepath.Join(folder, "driver")); err == nil {
		return nil // it has one
	}
	driver := text(filepath.Join(folder, "driver_override"))
	if driver == "" || driver == "(null)" {
		driver = k.drivers[address]
		if driver == "vfio-pci" { // not by itself
			driver = map[string]string{"0x10de": "nvidia", "0x1002": "amdgpu", "0x8086": "xe"}[text(filepath.Join(folder, "vendor"))]
		}
	}
	if driver == "" {
		return nil
	}
	return os.Symlink("../../../../bus/pci/drivers/"+driver, filepath.Join(folder, "driver"))
}
