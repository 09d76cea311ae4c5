// SPDX-License-Identifier: Apache-2.0

package fakekernel

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

const gimModule = "sys/module/gim"

// modprobe unloads AMD's host driver (-r gim) or loads it with parameters, each of
// which does nothing the second time. Torn it ends when the first card is done.
func (k *Kernel) modprobe(arguments []string, torn bool) error {
	_, err := os.Stat(filepath.Join(k.Folder, gimModule))
	loaded := err == nil
	switch {
	case slices.Equal(arguments, []string{"-r", "gim"}):
		if !loaded {
			return nil
		}
		return k.unloadGim(torn)
	case len(arguments) > 0 && arguments[0] == "gim":
		if loaded {
			return nil
		}
		return k.loadGim(arguments[1:], torn)
	}
	return fmt.Errorf("%w: modprobe %v", syscall.EINVAL, arguments)
}

// gimCards are the cards that the driver had as unpacked.
func (k *Kernel) gimCards() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(k.drivers)), func(address string) bool { return k.drivers[address] != "gim" })
}

// unloadGim takes the driver from its cards, and their functions with it.
func (k *Kernel) unloadGim(torn bool) error {
	for _, address := range k.gimCards() {
		folder := k.device(address)
		if readLink(filepath.Join(folder, "driver")) == "" {
			continue
		}
		if err := errors.Join(k.switched(folder, count(filepath.Join(folder, "sriov_numvfs")), 0), k.unbind(address)); err != nil || torn {
			return err
		}
	}
	return os.RemoveAll(filepath.Join(k.Folder, gimModule))
}

// loadGim makes functions; parameters that are not given show nothing.
func (k *Kernel) loadGim(parameters []string, torn bool) error {
	given := map[string]string{"vf_num": "", "fb_sharing_mode": "", "log_level": "", "power_saving_mode": "0", "enabled_devices": "(null)"}
	for _, p := range parameters {
		name, value, _ := strings.Cut(p, "=")
		if _, known := given[name]; !known {
			return syscall.EINVAL
		}
		given[name] = value
	}
	for name, value := range given {
		if err := k.put(filepath.Join(gimModule, "parameters", name), value+"\n"); err != nil {
			return err
		}
	}
	wanted, err := strconv.Atoi(given["vf_num"])
	if err != nil {
		return err
	}
	for _, address := range k.gimCards() {
		folder := k.device(address)
		if wanted > count(filepath.Join(folder, "sriov_totalvfs")) {
			return syscall.EINVAL
		}
		if err := k.bind(address, "gim"); err != nil {
			return err
		}
		if err := k.switched(folder, 0, wanted); err != nil || torn {
			return err
		}
	}
	return nil
}
