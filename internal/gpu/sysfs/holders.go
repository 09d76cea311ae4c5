// SPDX-License-Identifier: Apache-2.0

package sysfs

import (
	"bufio"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/internal/gpu"
)

// Bounds on the look through /proc.
const (
	maxProcesses   = 32768
	maxDescriptors = 4096 // of one process
)

// Holders lists the processes that have one of a card's device files open, with
// the card memory that their driver tells of. Without privilege it sees only
// one's own processes.
func (b *Bus) Holders(d gpu.Device) []gpu.Holder {
	holders := []gpu.Holder{}
	nodes := map[string]bool{}
	for _, n := range d.Nodes {
		nodes[n] = true
	}
	if len(nodes) == 0 {
		return holders
	}
	looked := 0
	for _, name := range b.tree.Names("proc") {
		pid, err := strconv.Atoi(name)
		if err != nil || pid <= 0 {
			continue
		}
		if looked++; looked > maxProcesses {
			break
		}
		if h, ok := b.holder(name, pid, d.Address, nodes); ok {
			holders = append(holders, h)
		}
	}
	return holders
}

func (b *Bus) holder(name string, pid int, address string, nodes map[string]bool) (gpu.Holder, bool) {
	h := gpu.Holder{PID: pid}
	held := false
	counted := map[string]bool{}
	for i, fd := range b.tree.Names(path.Join("proc", name, "fd")) {
		if i == maxDescriptors {
			break
		}
		if target := b.tree.Link(path.Join("proc", name, "fd", fd)); !nodes[target.Value] {
			continue
		}
		held = true
		client, bytes := ClientMemory(b.tree.Text(path.Join("proc", name, "fdinfo", fd)).Value, address)
		if bytes.Known && !counted[client] {
			counted[client] = true
			h.MemoryBytes = gpu.Known(h.MemoryBytes.Value + bytes.Value)
		}
	}
	if held {
		h.Command = b.tree.Text(path.Join("proc", name, "comm")).Or("?")
	}
	return h, held
}

// ClientMemory reads a DRM client's number and its memory on the card at an
// address from the text of an fdinfo file. Regions of card memory are called
// vram or local, by the driver.
func ClientMemory(text, address string) (client string, bytes gpu.Fact[uint64]) {
	var sum uint64
	told := map[string]uint64{} // by region; resident wins over memory
	of := ""
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		key, value, ok := strings.Cut(lines.Text(), ":")
		value = strings.TrimSpace(value)
		switch {
		case !ok:
		case key == "drm-pdev":
			of = value
		case key == "drm-client-id":
			client = value
		default:
			region, isResident := strings.CutPrefix(key, "drm-resident-")
			if !isResident {
				var isMemory bool
				if region, isMemory = strings.CutPrefix(key, "drm-memory-"); !isMemory {
					continue
				}
			}
			if !strings.HasPrefix(region, "vram") && !strings.HasPrefix(region, "local") {
				continue
			}
			n, ok := amount(value)
			if _, before := told[region]; ok && (isResident || !before) {
				told[region] = n
			}
		}
	}
	if of != address || len(told) == 0 {
		return client, gpu.Fact[uint64]{}
	}
	for _, n := range told {
		if sum+n < sum {
			return client, gpu.Fact[uint64]{}
		}
		sum += n
	}
	return client, gpu.Known(sum)
}

// amount reads "12 KiB", "3 MiB" or bytes.
func amount(text string) (uint64, bool) {
	fields := strings.Fields(text)
	if len(fields) == 0 || len(fields) > 2 {
		return 0, false
	}
	n, err := strconv.ParseUint(fields[0], 10, 64)
	if err != nil {
		return 0, false
	}
	shift := 0
	if len(fields) == 2 {
		i := slices.Index([]string{"B", "KiB", "MiB", "GiB"}, fields[1])
		if i < 0 {
			return 0, false
		}
		shift = 10 * i
	}
	if n<<shift>>shift != n {
		return 0, false
	}
	return n << shift, true
}
