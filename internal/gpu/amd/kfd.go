// SPDX-License-Identifier: Apache-2.0

package amd

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/gpu/sysfs"
)

const kfd = "sys/class/kfd/kfd"

// Bounds on a topology: eight cards of eight partitions are 64 nodes with 70
// links each.
const (
	maxNodes = 1024
	maxLinks = 1024 // of one node
)

// linkXGMI is the type of an XGMI link; 2 is PCIe.
const linkXGMI = 11

// node is a KFD node that has compute units.
type node struct {
	index      int
	id         string // gpu_id: the name its processes' files use
	properties map[string]uint64
	memory     gpu.Fact[uint64]
	links      []map[string]uint64
}

// Properties reads the lines "name number" of a KFD file; other lines are left
// out.
func Properties(text string) map[string]uint64 {
	found := map[string]uint64{}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) != 2 {
			continue
		}
		if n, err := strconv.ParseUint(fields[1], 10, 64); err == nil {
			found[fields[0]] = n
		}
	}
	return found
}

// topology reads the KFD nodes that are cards or parts of them.
func topology(tree *sysfs.Tree) []node {
	var nodes []node
	folder := path.Join(kfd, "topology/nodes")
	for _, name := range tree.Names(folder) {
		index, err := strconv.Atoi(name)
		if err != nil || len(nodes) == maxNodes {
			continue
		}
		at := path.Join(folder, name)
		n := node{index: index, id: tree.Text(path.Join(at, "gpu_id")).Value, properties: Properties(tree.Text(path.Join(at, "properties")).Value)}
		if n.properties["simd_count"] == 0 {
			continue // a CPU
		}
		n.memory = memory(tree, path.Join(at, "mem_banks"))
		for _, kind := range []string{"io_links", "p2p_links"} {
			for i, link := range tree.Names(path.Join(at, kind)) {
				if i == maxLinks {
					break
				}
				n.links = append(n.links, Properties(tree.Text(path.Join(at, kind, link, "properties")).Value))
			}
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// memory adds up the banks of card memory (heap types 1 and 2).
func memory(tree *sysfs.Tree, banks string) gpu.Fact[uint64] {
	var sum gpu.Fact[uint64]
	for _, bank := range tree.Names(banks) {
		p := Properties(tree.Text(path.Join(banks, bank, "properties")).Value)
		if size, ok := p["size_in_bytes"]; ok && (p["heap_type"] == 1 || p["heap_type"] == 2) {
			sum = add(sum, gpu.Known(size))
		}
	}
	return sum
}

// address is the PCI address of the card: KFD numbers partitions in the place
// of the PCI function, of which these cards have only number 0.
func (n node) address() string {
	location := n.properties["location_id"]
	return fmt.Sprintf("%04x:%02x:%02x.0", n.properties["domain"]&0xffffffff, location>>8&0xff, location>>3&0x1f)
}

func (n node) partition() uint64 { return n.properties["location_id"] & 7 }

func (n node) minor() uint64 { return n.properties["drm_render_minor"] }

// units are the compute units: each has simd_per_cu SIMDs.
func (n node) units() gpu.Fact[int] {
	per := n.properties["simd_per_cu"]
	if per == 0 {
		return gpu.Fact[int]{}
	}
	return sysfs.Int(gpu.Known(n.properties["simd_count"] / per))
}

// architecture turns 90402 into gfx942: the last two digits are one in
// hexadecimal.
func (n node) architecture() gpu.Fact[string] {
	v := n.properties["gfx_target_version"]
	if v < 10000 || v > 999999 {
		return gpu.Fact[string]{}
	}
	return gpu.Known(fmt.Sprintf("gfx%d%d%x", v/10000, v/100%100, v%100))
}

// links tells of XGMI between cards, each pair once. Links between the
// partitions of two cards are the same wires.
func links(nodes []node) []gpu.Link {
	byIndex := map[uint64]node{}
	for _, n := range nodes {
		byIndex[uint64(n.index)] = n
	}
	type pair struct{ a, b string }
	seen := map[pair]gpu.Link{}
	for _, n := range nodes {
		for _, l := range n.links {
			other, ok := byIndex[l["node_to"]]
			if !ok || l["type"] != linkXGMI || other.address() == n.address() {
				continue
			}
			p := pair{n.address(), other.address()}
			if p.a > p.b {
				p.a, p.b = p.b, p.a
			}
			link := gpu.Link{A: p.a, B: p.b, Kind: "xgmi"}
			if width := l["max_bandwidth"]; width > 0 {
				link.Bandwidth = gpu.Known(width)
			}
			if old, twice := seen[p]; !twice || old.Bandwidth.Value < link.Bandwidth.Value {
				seen[p] = link
			}
		}
	}
	found := []gpu.Link{}
	for _, l := range seen {
		found = append(found, l)
	}
	slices.SortFunc(found, func(x, y gpu.Link) int { return cmp.Or(cmp.Compare(x.A, y.A), cmp.Compare(x.B, y.B)) })
	return found
}

// Hive lists the cards that XGMI joins with one, itself too: those whose KFD nodes
// have its hive_id; nil if it is joined with none. KFD knows only what amdgpu
// drives: strangers are cards of the same model that it does not, which may be
// joined with it too.
func Hive(bus *sysfs.Bus, f sysfs.Function) (joined, strangers []string) {
	folder := path.Join(kfd, "topology/nodes")
	hives := map[string]uint64{}
	for _, name := range bus.Tree().Names(folder) {
		n := node{properties: Properties(bus.Tree().Text(path.Join(folder, name, "properties")).Value)}
		if n.properties["simd_count"] > 0 && len(hives) < maxNodes {
			hives[n.address()] = n.properties["hive_id"]
		}
	}
	if hives[f.Address] == 0 {
		return nil, nil
	}
	for _, other := range bus.Cards(vendorID, func(o sysfs.Function) bool { return o.DeviceID == f.DeviceID }) {
		switch {
		case hives[other.Address] == hives[f.Address]:
			joined = append(joined, other.Address)
		case bus.Tree().LinkBase(path.Join(other.Folder, "driver")).Value != "amdgpu":
			strangers = append(strangers, other.Address)
		}
	}
	return joined, strangers
}

// withComputeProcesses adds what KFD tells of its processes on a card: memory
// counted there wins over that of descriptors, which compute does not go
// through.
func (r *Reader) withComputeProcesses(f sysfs.Function, holders []gpu.Holder) []gpu.Holder {
	processes := path.Join(kfd, "proc")
	for _, name := range r.tree.Names(processes) {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		var bytes gpu.Fact[uint64]
		for _, n := range r.own(f) {
			if n.id != "" {
				bytes = add(bytes, r.tree.Uint(path.Join(processes, name, "vram_"+n.id)))
			}
		}
		i := slices.IndexFunc(holders, func(h gpu.Holder) bool { return h.PID == pid })
		switch {
		case i >= 0 && bytes.Value > 0:
			holders[i].MemoryBytes = bytes
		case i < 0 && bytes.Value > 0:
			holders = append(holders, gpu.Holder{PID: pid, Command: r.tree.Text(path.Join("proc", name, "comm")).Or("?"), MemoryBytes: bytes})
		}
	}
	slices.SortFunc(holders, func(a, b gpu.Holder) int { return a.PID - b.PID })
	return holders
}
