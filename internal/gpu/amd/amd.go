// SPDX-License-Identifier: Apache-2.0

// Package amd reads AMD cards from sysfs: the amdgpu driver's attributes, its
// sensors, and the topology that the compute driver (KFD) publishes. A card in
// several compute partitions is several KFD nodes with one unique id, and one
// Device here with its partitions.
package amd

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/gpu/sysfs"
)

const vendorID = 0x1002

// Reader reads the AMD cards of one machine. It is not for concurrent use.
type Reader struct {
	bus   *sysfs.Bus
	tree  *sysfs.Tree
	cards []sysfs.Function
	nodes []node
}

var _ gpu.Reader = (*Reader)(nil)

// New reads the machine's KFD topology once; the rest is read when asked for.
func New(bus *sysfs.Bus) *Reader {
	return &Reader{bus: bus, tree: bus.Tree(), cards: bus.Cards(vendorID, nil), nodes: topology(bus.Tree())}
}

// model is what a card is called where neither its driver nor the machine's list
// of PCI ids knows: the data-centre parts.
func model(device uint16) string {
	return map[uint16]string{
		0x66a1: "AMD Instinct MI50/MI60", 0x738c: "AMD Instinct MI100", 0x740c: "AMD Instinct MI250X/MI250", 0x7408: "AMD Instinct MI250X",
		0x740f: "AMD Instinct MI210", 0x74a0: "AMD Instinct MI300A", 0x74a1: "AMD Instinct MI300X", 0x74a2: "AMD Instinct MI308X",
		0x74a5: "AMD Instinct MI325X", 0x74b5: "AMD Instinct MI300X VF",
	}[device]
}

// Inventory lists the machine's AMD cards.
func (r *Reader) Inventory() []gpu.Device {
	var devices []gpu.Device
	for _, f := range r.cards {
		d := r.bus.Describe(f, gpu.VendorAMD)
		at := func(name string) string { return path.Join(f.Folder, name) }
		if name := r.tree.Text(at("product_name")); name.Value != "" {
			d.Name = name.Value
		} else if name := model(f.DeviceID); name != "" {
			d.Name = name
		}
		if id := r.tree.Text(at("unique_id")); id.Value != "" {
			d.UUID = gpu.Known(strings.TrimPrefix(id.Value, "0x"))
		}
		if serial := r.tree.Text(at("serial_number")); serial.Value != "" {
			d.Serial = serial
		}
		d.Resource = "amd.com/gpu"
		own := r.own(f)
		d.MemoryBytes, d.MemoryShared = r.memory(f, own)
		if len(own) > 0 {
			d.Architecture = own[0].architecture()
			d.Nodes = append(d.Nodes, "/dev/kfd")
		}
		d.Partitions = append(r.partitions(f, d, own), r.bus.VFs(f)...)
		d.Partitions = slices.Grow(d.Partitions, 1) // never null in JSON
		devices = append(devices, d)
	}
	return devices
}

// memory is what programs get of a card. Where that is the host's memory, as on APUs, the
// driver's figure is of a small part that firmware sets aside, and the compute driver tells
// how much of the host's its programs may have (amdgpu since Linux 6.10: amdgpu_amdkfd.c,
// amdgpu_amdkfd_get_local_mem_info).
func (r *Reader) memory(f sysfs.Function, own []node) (bytes gpu.Fact[uint64], shared bool) {
	aside := r.tree.Uint(path.Join(f.Folder, "mem_info_vram_total"))
	var pool gpu.Fact[uint64]
	for _, n := range own {
		pool = add(pool, n.memory)
	}
	// Parts of a divided card may each tell of all its memory.
	if pool.Value > aside.Value && (len(own) == 1 || aside.Value == 0) {
		return pool, true
	}
	return aside, false
}

// own lists the KFD nodes of a card, by partition.
func (r *Reader) own(f sysfs.Function) []node {
	var own []node
	for _, n := range r.nodes {
		if n.address() == f.Address {
			own = append(own, n)
		}
	}
	slices.SortFunc(own, func(a, b node) int { return int(a.partition()) - int(b.partition()) })
	return own
}

// partitions tells the compute partitions of a card that has more than one.
func (r *Reader) partitions(f sysfs.Function, d gpu.Device, own []node) []gpu.Partition {
	parts := []gpu.Partition{}
	if len(own) < 2 {
		return parts
	}
	compute := r.tree.Text(path.Join(f.Folder, "current_compute_partition")).Or("?")
	memory := r.tree.Text(path.Join(f.Folder, "current_memory_partition")).Or("?")
	for i, n := range own {
		p := gpu.Partition{
			Kind: gpu.PartitionCompute, ID: fmt.Sprintf("%s#%d", f.Address, i), Name: compute + "/" + memory,
			Driver: d.Driver, Units: n.units(), MemoryBytes: n.memory, Nodes: []string{},
			Settings: map[string]string{"kfdNode": fmt.Sprint(n.index)},
		}
		if minor := n.minor(); minor > 0 {
			p.Nodes = append(p.Nodes, fmt.Sprintf("/dev/dri/renderD%d", minor))
		}
		parts = append(parts, p)
	}
	return parts
}

// Topology tells of XGMI between the machine's cards.
func (r *Reader) Topology() []gpu.Link { return links(r.nodes) }

func (r *Reader) find(address string) (sysfs.Function, error) {
	for _, f := range r.cards {
		if f.Address == address {
			return f, nil
		}
	}
	return sysfs.Function{}, fmt.Errorf("%w: %s is no AMD GPU", gpu.ErrNoCard, address)
}

// Use reads the driver's counters and sensors.
func (r *Reader) Use(address string) (gpu.Use, error) {
	f, err := r.find(address)
	if err != nil {
		return gpu.Use{}, err
	}
	hwmon := r.bus.Hwmon(f)
	used := "mem_info_vram_used"
	if _, shared := r.memory(f, r.own(f)); shared {
		used = "mem_info_gtt_used"
	}
	use := gpu.Use{
		MemoryUsedBytes: r.tree.Uint(path.Join(f.Folder, used)),
		BusyPercent:     percent(r.tree.Scaled(path.Join(f.Folder, "gpu_busy_percent"), 1)),
		PowerLimitWatts: r.tree.Scaled(path.Join(hwmon, "power1_cap"), 1e6),
		TemperatureC:    r.temperature(hwmon),
		ClockMHz:        activeClock(r.tree.Text(path.Join(f.Folder, "pp_dpm_sclk")).Value),
		Holders:         r.bus.Holders(gpu.Device{Address: f.Address, Nodes: r.renderNodes(f)}),
	}
	// Newer cards measure the power of now, older ones an average.
	for _, name := range []string{"power1_input", "power1_average"} {
		if watts := r.tree.Scaled(path.Join(hwmon, name), 1e6); watts.Known {
			use.PowerWatts = watts
			break
		}
	}
	use.Holders = r.withComputeProcesses(f, use.Holders)
	return use, nil
}

func percent(f gpu.Fact[float64]) gpu.Fact[float64] {
	if f.Value > 100 {
		return gpu.Fact[float64]{}
	}
	return f
}

// renderNodes are the device files of a card and of its partitions, without the
// one that all cards share.
func (r *Reader) renderNodes(f sysfs.Function) []string {
	nodes := r.bus.Describe(f, gpu.VendorAMD).Nodes
	for _, n := range r.own(f) {
		if name := fmt.Sprintf("/dev/dri/renderD%d", n.minor()); n.minor() > 0 && !slices.Contains(nodes, name) {
			nodes = append(nodes, name)
		}
	}
	return nodes
}

// temperature is that of the hottest spot (junction), else of the edge.
func (r *Reader) temperature(hwmon string) gpu.Fact[float64] {
	best := r.tree.Scaled(path.Join(hwmon, "temp1_input"), 1000)
	for i := 1; i <= 8; i++ {
		if r.tree.Text(path.Join(hwmon, fmt.Sprintf("temp%d_label", i))).Value == "junction" {
			if hot := r.tree.Scaled(path.Join(hwmon, fmt.Sprintf("temp%d_input", i)), 1000); hot.Known {
				return hot
			}
		}
	}
	return best
}

// activeClock reads "1: 2100Mhz *" from the list of clock levels.
func activeClock(levels string) gpu.Fact[float64] {
	for line := range strings.Lines(levels) {
		line, active := strings.CutSuffix(strings.TrimSpace(line), "*")
		_, value, ok := strings.Cut(line, ":")
		if !active || !ok {
			continue
		}
		digits := strings.TrimSuffix(strings.ToLower(strings.TrimSpace(value)), "mhz")
		if mhz := sysfs.Uint(gpu.Known(digits)); mhz.Known {
			return gpu.Known(float64(mhz.Value))
		}
	}
	return gpu.Fact[float64]{}
}

// Health sums up the error counters of the card's blocks.
func (r *Reader) Health(address string) (gpu.Condition, error) {
	f, err := r.find(address)
	if err != nil {
		return gpu.Condition{}, err
	}
	h := gpu.Condition{Troubles: []string{}}
	for _, name := range r.tree.Names(path.Join(f.Folder, "ras")) {
		if !strings.HasSuffix(name, "_err_count") {
			continue
		}
		ue, ce := ErrorCounts(r.tree.Text(path.Join(f.Folder, "ras", name)).Value)
		h.UncorrectedErrors, h.CorrectedErrors = add(h.UncorrectedErrors, ue), add(h.CorrectedErrors, ce)
	}
	if !r.bus.Describe(f, gpu.VendorAMD).Driver.Known {
		h.Troubles = append(h.Troubles, "no driver is bound to it")
	}
	return h, nil
}

func add(a, b gpu.Fact[uint64]) gpu.Fact[uint64] {
	if !b.Known {
		return a
	}
	return gpu.Known(a.Value + min(b.Value, ^uint64(0)-a.Value))
}

// ErrorCounts reads "ue: 0" and "ce: 3" of a block's counters.
func ErrorCounts(text string) (uncorrected, corrected gpu.Fact[uint64]) {
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch n := sysfs.Uint(gpu.Known(value)); key {
		case "ue":
			uncorrected = n
		case "ce":
			corrected = n
		}
	}
	return uncorrected, corrected
}

// Capabilities says how an AMD card can be divided.
func (r *Reader) Capabilities(address string) ([]gpu.Capability, error) {
	f, err := r.find(address)
	if err != nil {
		return nil, err
	}
	return []gpu.Capability{
		{Name: gpu.CanShare, Can: gpu.No, Reason: "memory is held for CUDA programs only; HIP is not yet"},
		{Name: gpu.CanReplicas, Can: gpu.Yes},
		r.modes(f, gpu.CanComputePartitions, "compute"),
		r.modes(f, gpu.CanMemoryPartitions, "memory"),
		r.bus.SRIOV(f),
		r.bus.Passthrough(f),
	}, nil
}

// modes reads current_X_partition and available_X_partition.
func (r *Reader) modes(f sysfs.Function, capability, what string) gpu.Capability {
	c := gpu.Capability{Name: capability, Can: gpu.No, Reason: "the GPU has one " + what + " mode"}
	current := r.tree.Text(path.Join(f.Folder, "current_"+what+"_partition"))
	if current.Value == "" || current.Value == "UNKNOWN" {
		return c
	}
	c.Current = current.Value
	available := r.tree.Text(path.Join(f.Folder, "available_"+what+"_partition")).Value
	c.Options = strings.FieldsFunc(available, func(r rune) bool { return r == ',' || r == ' ' })
	if len(c.Options) > 1 {
		c.Can, c.Reason = gpu.Yes, ""
	}
	return c
}

// Events compares the cards' health with what it was.
func (r *Reader) Events(since gpu.Snapshot) ([]gpu.Event, gpu.Snapshot) {
	now := gpu.Look(r)
	return gpu.Changes(since, now), now
}
