// SPDX-License-Identifier: Apache-2.0

package fakekernel

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// amdgpu is what AMD's driver and firmware know without showing it.
type amdgpu struct {
	hives  map[string]string // by address, of cards that have KFD nodes; a card that is joined with none is its own
	asked  map[string]string // the memory mode that is asked of a hive
	placed map[string]string // that the firmware of a card takes at its next reset
	waits  map[string]bool   // cards that wait for the others of their hive to be reset
}

const kfdNodes = "sys/class/kfd/kfd/topology/nodes"

// hives reads which cards XGMI joins.
func (k *Kernel) hives() (map[string]string, error) {
	k.amdgpu = amdgpu{asked: map[string]string{}, placed: map[string]string{}, waits: map[string]bool{}}
	hives := map[string]string{}
	nodes, err := k.nodes()
	for _, at := range nodes {
		address, hive := k.node(at)
		if hives[address] = hive; hive == "0" {
			hives[address] = address
		}
	}
	return hives, err
}

func (k *Kernel) nodes() ([]string, error) {
	return filepath.Glob(filepath.Join(k.Folder, kfdNodes, "*/properties"))
}

// node reads whose KFD node a file of properties is.
func (k *Kernel) node(properties string) (address, hive string) {
	p := map[string]string{"hive_id": "0"}
	for line := range strings.Lines(text(properties)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			p[name] = value
		}
	}
	location, err := strconv.Atoi(p["location_id"])
	if err != nil || location == 0 {
		return "", "0"
	}
	return fmt.Sprintf("0000:%02x:%02x.0", location>>8, location>>3&0x1f), p["hive_id"]
}

// mates are the cards of a hive that the driver has.
func (k *Kernel) mates(hive string) []string {
	var mates []string
	for _, address := range slices.Sorted(maps.Keys(k.amdgpu.hives)) {
		if k.amdgpu.hives[address] == hive && filepath.Base(readLink(filepath.Join(k.device(address), "driver"))) == "amdgpu" {
			mates = append(mates, address)
		}
	}
	return mates
}

// goes says whether the driver would take a compute mode with a memory mode.
func goes(compute, memory string) bool {
	switch memory {
	case "NPS2":
		return compute == "DPX" || compute == "CPX"
	case "NPS4":
		return compute == "QPX" || compute == "CPX"
	}
	return true
}

// ask keeps a request for a memory mode; for the mode that is it is no request.
func (k *Kernel) ask(folder, mode string) error {
	if !strings.Contains(text(filepath.Join(folder, "available_memory_partition")), mode) {
		return syscall.EINVAL
	}
	if mode != text(filepath.Join(folder, "current_memory_partition")) {
		k.amdgpu.asked[k.amdgpu.hives[filepath.Base(folder)]] = mode
	}
	return nil
}

// away is where the files of a card are while its driver does not show them.
func (k *Kernel) away(address string) string { return filepath.Join(k.Folder, "away", address) }

// shown lists the files that only the driver shows.
func (k *Kernel) shown(address string) (map[string]string, error) {
	files := map[string]string{}
	for _, name := range []string{"current_compute_partition", "available_compute_partition", "current_memory_partition", "available_memory_partition"} {
		files[filepath.Join(k.device(address), name)] = name
	}
	nodes, err := k.nodes()
	for _, at := range nodes {
		if of, _ := k.node(at); of == address {
			files[filepath.Dir(at)] = "node" + filepath.Base(filepath.Dir(at))
		}
	}
	return files, err
}

// letGo takes a card from the driver. With the first one of a hive the request
// goes to the firmware of all that the driver still has.
func (k *Kernel) letGo(address string) error {
	link, hive := filepath.Join(k.device(address), "driver"), k.amdgpu.hives[address]
	if filepath.Base(readLink(link)) != "amdgpu" {
		return syscall.ENODEV
	}
	if mode := k.amdgpu.asked[hive]; mode != "" && mode != text(filepath.Join(k.device(address), "current_memory_partition")) {
		for _, mate := range k.mates(hive) {
			k.amdgpu.placed[mate] = mode
		}
		delete(k.amdgpu.asked, hive)
	}
	files, err := k.shown(address)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(k.away(address), 0o755); err != nil {
		return err
	}
	for at, name := range files {
		if err := os.Rename(at, filepath.Join(k.away(address), name)); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	if err := os.Remove(link); err != nil {
		return err
	}
	delete(k.amdgpu.waits, address)
	if len(k.mates(hive)) == 0 {
		delete(k.amdgpu.asked, hive)
	}
	return nil
}

// takeUp gives a card to the driver. One whose firmware has a request waits until
// all of its hive do, and those are reset together.
func (k *Kernel) takeUp(address string) error {
	hive := k.amdgpu.hives[address]
	k.amdgpu.waits[address] = k.amdgpu.placed[address] != ""
	if !k.amdgpu.waits[address] {
		return k.show(address)
	}
	for _, mate := range k.mates(hive) {
		if !k.amdgpu.waits[mate] {
			return fmt.Errorf("%w: %s is taken while %s was not let go of: both would be reset in use", syscall.EIO, address, mate)
		}
	}
	for of, other := range k.amdgpu.hives {
		if other == hive && !k.amdgpu.waits[of] {
			return nil
		}
	}
	for _, mate := range k.mates(hive) {
		mode := k.amdgpu.placed[mate]
		delete(k.amdgpu.placed, mate)
		delete(k.amdgpu.waits, mate)
		compute := map[string]string{"NPS1": "SPX", "NPS2": "DPX", "NPS4": "QPX"}[mode]
		for name, value := range map[string]string{"current_memory_partition": mode, "current_compute_partition": compute} {
			if err := set(filepath.Join(k.away(mate), name), value); err != nil {
				return err
			}
		}
		if err := k.show(mate); err != nil {
			return err
		}
	}
	return nil
}

// show puts back what the driver shows of a card.
func (k *Kernel) show(address string) error {
	hidden, err := filepath.Glob(filepath.Join(k.away(address), "*"))
	for _, at := range hidden {
		to := filepath.Join(k.device(address), filepath.Base(at))
		if node, ok := strings.CutPrefix(filepath.Base(at), "node"); ok {
			to = filepath.Join(k.Folder, kfdNodes, node)
		}
		if err := os.Rename(at, to); err != nil {
			return err
		}
	}
	return err
}
