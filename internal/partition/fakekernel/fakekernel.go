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
	// FailAt is the write or program that fails, from 1; 0: none. With Late it fails
	// after its effect, a program with Torn in the middle of it.
	FailAt int
	Late   bool
	Torn   bool
	// Dead: after the failing write all others fail, as after a crash.
	Dead bool
	// Lies says that writes succeed and do nothing.
	Lies bool

	drivers   map[string]string         // the drivers of functions as unpacked
	offers    map[string]string         // the vGPU types of virtual functions that have one
	told      map[string]string         // what NVIDIA's driver tells of cards that it has let go
	recorded  map[string][]sysfs.Record // what NVIDIA's driver shows on virtual functions, as unpacked
	functions map[string]string         // the first virtual functions of cards as unpacked
	amdgpu    amdgpu
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
	k := &Kernel{Folder: folder, drivers: map[string]string{}, offers: map[string]string{}, told: map[string]string{}, recorded: map[string][]sysfs.Record{}, functions: map[string]string{}}
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
		k.record(r)
	}
	k.amdgpu.hives, err = k.hives()
	return k, err
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
	return k.act(name, func(bool) error { return k.write(name, strings.TrimSpace(value)) })
}

// act lets something happen, unless it is to fail.
func (k *Kernel) act(name string, happens func(torn bool) error) error {
	k.Writes++
	fails := k.FailAt > 0 && k.Writes == k.FailAt
	switch {
	case fails && !k.Late && !k.Torn, k.Dead && k.FailAt > 0 && k.Writes > k.FailAt:
		return syscall.EIO
	case k.Lies:
		return nil
	}
	if err := happens(fails && k.Torn); err != nil {
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
		if filepath.Base(filepath.Dir(name)) == "amdgpu" {
			return k.letGo(value)
		}
		return k.unbind(value)
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
		if err := k.number(folder, value); err != nil {
			return err
		}
	case "driver_override":
		if value == "" {
			value = "(null)"
		}
	case "sched_priority":
		value = strings.Replace("low normal high", value, "["+value+"]", 1)
	case "current_compute_partition":
		if !strings.Contains(text(filepath.Join(folder, "available_compute_partition")), value) || !goes(value, text(filepath.Join(folder, "current_memory_partition"))) {
			return syscall.EINVAL
		}
	case "current_memory_partition":
		return k.ask(folder, value)
	}
	return set(at, value)
}

func readLink(name string) string {
	target, err := os.Readlink(name)
	if err != nil {
		return ""
	}
	return target
}

func count(name string) int {
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

// unbind takes a function from its driver. What only a driver shows goes with it.
func (k *Kernel) unbind(address string) error {
	shown := filepath.Join(k.Folder, "proc/driver/nvidia/gpus", address)
	if told := text(filepath.Join(shown, "information")); told != "" {
		k.told[address] = told + "\n"
	}
	return errors.Join(os.Remove(filepath.Join(k.device(address), "driver")), os.RemoveAll(shown))
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
	return k.bind(address, driver)
}

// bind gives a function to a driver.
func (k *Kernel) bind(address, driver string) error {
	if told := k.told[address]; told != "" && driver == "nvidia" {
		if err := k.put(filepath.Join("proc/driver/nvidia/gpus", address, "information"), told); err != nil {
			return err
		}
	}
	if err := os.Symlink("../../../../bus/pci/drivers/"+driver, filepath.Join(k.device(address), "driver")); err != nil || driver != "amdgpu" {
		return err
	}
	return k.takeUp(address)
}
