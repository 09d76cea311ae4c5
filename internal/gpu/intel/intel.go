// SPDX-License-Identifier: Apache-2.0

// Package intel reads Intel cards from sysfs, under either of their drivers
// (i915 and xe), with virtual functions and how they are provisioned, and GVT-g
// where a kernel still has it. Xe Link is not told by the kernel's own drivers.
package intel

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/gpu/sysfs"
)

const vendorID = 0x8086

// Reader reads the Intel cards of one machine. It is not for concurrent use.
type Reader struct {
	bus   *sysfs.Bus
	tree  *sysfs.Tree
	cards []sysfs.Function
}

var _ gpu.Reader = (*Reader)(nil)

// New returns a reader of the bus's Intel display functions.
func New(bus *sysfs.Bus) *Reader {
	display := func(f sysfs.Function) bool { return f.Class>>16 == 0x03 }
	return &Reader{bus: bus, tree: bus.Tree(), cards: bus.Cards(vendorID, display)}
}

// model is what a card is called where the machine has no list of PCI ids.
func model(device uint16) string {
	return map[uint16]string{
		0x56c0: "Data Center GPU Flex 170", 0x56c1: "Data Center GPU Flex 140", 0x0bd5: "Data Center GPU Max 1550",
		0x0bd6: "Data Center GPU Max 1550", 0x0bda: "Data Center GPU Max 1100", 0x56a0: "Arc A770", 0x56a1: "Arc A750",
		0xe20b: "Arc B580", 0xe20c: "Arc B570", 0xe211: "Arc Pro B60", 0xe212: "Arc Pro B50",
		0x5917: "UHD Graphics 620", 0x5916: "HD Graphics 620", 0x9a49: "Iris Xe Graphics",
	}[device]
}

// Inventory lists the machine's Intel cards.
func (r *Reader) Inventory() []gpu.Device {
	var devices []gpu.Device
	for _, f := range r.cards {
		d := r.bus.Describe(f, gpu.VendorIntel)
		if name := model(f.DeviceID); name != "" {
			d.Name = name
		}
		if !strings.Contains(d.Name, "Intel") {
			d.Name = "Intel " + d.Name
		}
		if d.Driver.Value == "i915" || d.Driver.Value == "xe" {
			d.Resource = "gpu.intel.com/" + d.Driver.Value
		}
		if d.MemoryBytes = r.memory(f); !d.MemoryBytes.Known && integrated(f) && d.Resource != "" {
			d.MemoryBytes, d.MemoryShared = r.host(), true
		}
		d.Partitions = append(d.Partitions, sysfs.Mdevs(r.bus.MdevTypes(f))...)
		d.Partitions = append(d.Partitions, r.vfs(f)...)
		devices = append(devices, d)
	}
	return devices
}

// tiles lists the folders of a card's tiles under xe.
func (r *Reader) tiles(f sysfs.Function) []string {
	var tiles []string
	for _, name := range r.tree.Names(f.Folder) {
		if strings.HasPrefix(name, "tile") {
			tiles = append(tiles, path.Join(f.Folder, name))
		}
	}
	return tiles
}

// integrated says whether a card is the one in the host's processor, which has no memory of its
// own: Intel's has had this place since there are any. What a driver tells is no sign: the
// kernel's own i915 has no file for the memory of cards that have some.
func integrated(f sysfs.Function) bool { return f.Address == "0000:00:02.0" }

// host is all of the host's memory, which i915 lets programs have (i915_gem_shmem_setup: the
// region of system memory is all of it). So does xe, whose own figure, by ioctl alone, has been
// half of it in some kernels, beyond which it moves pages and refuses none.
func (r *Reader) host() gpu.Fact[uint64] {
	for line := range strings.Lines(r.tree.Text("proc/meminfo").Value) {
		if total, is := strings.CutPrefix(line, "MemTotal:"); is {
			number, _ := strings.CutSuffix(strings.TrimSpace(total), " kB")
			if kib := sysfs.Uint(gpu.Known(strings.TrimSpace(number))); kib.Value > 0 && kib.Value <= ^uint64(0)>>10 {
				return gpu.Known(kib.Value << 10)
			}
		}
	}
	return gpu.Fact[uint64]{}
}

// memory is the card's own.
func (r *Reader) memory(f sysfs.Function) gpu.Fact[uint64] {
	var sum gpu.Fact[uint64]
	for _, tile := range r.tiles(f) {
		for _, name := range []string{"physical_vram_size_bytes", "memory/physical_vram_size_bytes"} {
			if n := r.tree.Uint(path.Join(tile, name)); n.Value > 0 {
				sum = gpu.Known(sum.Value + min(n.Value, ^uint64(0)-sum.Value))
				break
			}
		}
	}
	if total := r.tree.Uint(path.Join(r.bus.DRMCard(f), "lmem_total_bytes")); !sum.Known && total.Value > 0 {
		return total
	}
	return sum
}

// vfs lists virtual functions with how they are provisioned.
func (r *Reader) vfs(f sysfs.Function) []gpu.Partition {
	vfs := r.bus.VFs(f)
	card := r.bus.DRMCard(f)
	for i := range vfs {
		n := fmt.Sprintf("vf%d", i+1)
		vfs[i].Settings = map[string]string{}
		for _, folder := range []string{
			path.Join(f.Folder, "sriov_admin", n, "profile"),
			path.Join(card, "iov", n, "gt"), path.Join(card, "iov", n, "gt0"),
			path.Join(card, "prelim_iov", n, "gt"), path.Join(card, "prelim_iov", n, "gt0"),
		} {
			r.settings(folder, &vfs[i])
		}
	}
	return vfs
}

// settings reads one folder of provisioning attributes; what an earlier folder
// told stays.
func (r *Reader) settings(folder string, vf *gpu.Partition) {
	for _, name := range []string{
		"vram_quota", "lmem_quota", "ggtt_quota", "contexts_quota", "doorbells_quota",
		"exec_quantum_ms", "preempt_timeout_us", "sched_priority",
	} {
		text := r.tree.Text(path.Join(folder, name))
		if _, told := vf.Settings[name]; !text.Known || told {
			continue
		}
		value := Choice(text.Value)
		vf.Settings[name] = value
		if quota := sysfs.Uint(gpu.Known(value)); quota.Known && (name == "vram_quota" || name == "lmem_quota") {
			vf.MemoryBytes = quota
		}
	}
}

// Choice reads the word in brackets of "[low] normal high", else the text.
func Choice(text string) string {
	if _, rest, ok := strings.Cut(text, "["); ok {
		if word, _, closed := strings.Cut(rest, "]"); closed {
			return word
		}
	}
	return text
}

// Topology is empty: Xe Link is not told by the kernel's own drivers.
func (r *Reader) Topology() []gpu.Link { return []gpu.Link{} }

func (r *Reader) find(address string) (sysfs.Function, error) {
	for _, f := range r.cards {
		if f.Address == address {
			return f, nil
		}
	}
	return sysfs.Function{}, fmt.Errorf("%w: %s is no Intel GPU", gpu.ErrNoCard, address)
}

// Use reads what the drivers tell in files. How busy a card is, and its power,
// take two looks at counters, and are unknown.
func (r *Reader) Use(address string) (gpu.Use, error) {
	f, err := r.find(address)
	if err != nil {
		return gpu.Use{}, err
	}
	hwmon, card := r.bus.Hwmon(f), r.bus.DRMCard(f)
	use := gpu.Use{Holders: r.bus.Holders(r.bus.Describe(f, gpu.VendorIntel))}
	total, free := r.memory(f), r.tree.Uint(path.Join(card, "lmem_avail_bytes"))
	if total.Known && free.Known && free.Value <= total.Value {
		use.MemoryUsedBytes = gpu.Known(total.Value - free.Value)
	}
	for _, name := range []string{"power1_cap", "power1_max", "power2_cap", "power2_max"} {
		if use.PowerLimitWatts = r.tree.Scaled(path.Join(hwmon, name), 1e6); use.PowerLimitWatts.Known {
			break
		}
	}
	for _, name := range []string{"temp1_input", "temp2_input"} {
		if use.TemperatureC = r.tree.Scaled(path.Join(hwmon, name), 1000); use.TemperatureC.Known {
			break
		}
	}
	for _, name := range []string{
		path.Join(f.Folder, "tile0/gt0/freq0/act_freq"), path.Join(card, "gt/gt0/rps_act_freq_mhz"), path.Join(card, "gt_act_freq_mhz"),
	} {
		if use.ClockMHz = r.tree.Scaled(name, 1); use.ClockMHz.Known {
			break
		}
	}
	return use, nil
}

// Health reads why a card is slowed down, and whether its driver runs.
func (r *Reader) Health(address string) (gpu.Condition, error) {
	f, err := r.find(address)
	if err != nil {
		return gpu.Condition{}, err
	}
	h := gpu.Condition{Troubles: []string{}, Throttled: r.throttled(f)}
	if !r.bus.Describe(f, gpu.VendorIntel).Driver.Known {
		h.Troubles = append(h.Troubles, "no driver is bound to it")
	}
	if mode := r.tree.Text(path.Join(f.Folder, "survivability_mode")); mode.Known {
		h.Troubles = append(h.Troubles, "the driver is in survivability mode: its firmware must be written anew")
	}
	return h, nil
}

// throttled joins the reasons of all graphics units.
func (r *Reader) throttled(f sysfs.Function) gpu.Fact[string] {
	var folders []string
	for _, tile := range r.tiles(f) {
		for _, name := range r.tree.Names(tile) {
			if strings.HasPrefix(name, "gt") {
				folders = append(folders, path.Join(tile, name, "freq0/throttle"))
			}
		}
	}
	gts := path.Join(r.bus.DRMCard(f), "gt")
	for _, name := range r.tree.Names(gts) {
		folders = append(folders, path.Join(gts, name))
	}
	var reasons []string
	told := false
	for _, folder := range folders {
		for _, name := range r.tree.Names(folder) {
			reason, ok := strings.CutPrefix(strings.TrimPrefix(name, "throttle_"), "reason_")
			if !ok || reason == "status" {
				continue
			}
			on := r.tree.Uint(path.Join(folder, name))
			told = told || on.Known
			if on.Value != 0 && !slices.Contains(reasons, reason) {
				reasons = append(reasons, reason)
			}
		}
	}
	if !told {
		return gpu.Fact[string]{}
	}
	return gpu.Known(strings.Join(reasons, ", "))
}

// Capabilities says how an Intel card can be divided.
func (r *Reader) Capabilities(address string) ([]gpu.Capability, error) {
	f, err := r.find(address)
	if err != nil {
		return nil, err
	}
	gvt := gpu.Capability{Name: gpu.CanGVTg, Can: gpu.No, Reason: "the kernel offers no GVT-g types for it (i915 with enable_gvt=1, up to Comet Lake)"}
	if types := r.bus.MdevTypes(f); len(types) > 0 {
		gvt = gpu.Capability{Name: gpu.CanGVTg, Can: gpu.Yes, Options: sysfs.Offer(types), Reason: "legacy: no longer developed"}
	}
	return []gpu.Capability{
		{Name: gpu.CanShare, Can: gpu.No, Reason: "memory is held for CUDA programs only"},
		{Name: gpu.CanReplicas, Can: gpu.Yes},
		gvt, r.bus.SRIOV(f), r.bus.Passthrough(f),
	}, nil
}

// Events compares the cards' health with what it was.
func (r *Reader) Events(since gpu.Snapshot) ([]gpu.Event, gpu.Snapshot) {
	now := gpu.Look(r)
	return gpu.Changes(since, now), now
}
