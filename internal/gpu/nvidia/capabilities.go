// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/gpu/sysfs"
)

// Where the driver tells of MIG's capabilities: who may open the device file of
// one may use what it stands for. After "Device Nodes and Capabilities" in
// NVIDIA's MIG User Guide, and internal/nvcaps of NVIDIA/nvidia-container-toolkit.
const (
	procCapabilities = "proc/driver/nvidia/capabilities"
	procMIGMinors    = "proc/driver/nvidia-caps/mig-minors"
	capabilityPrefix = "/dev/nvidia-caps/nvidia-cap"
)

// migNodes are the device files that a process needs for a MIG device beside its
// card's: those of its GPU instance and of its compute instance. minor is the
// card's, which numbers it here. None are known where the driver does not tell of
// both.
func (r *Reader) migNodes(minor uint64, at gpu.MIGPlace) []string {
	instance := fmt.Sprintf("gi%d", at.GPU)
	nodes := []string{}
	for _, part := range []string{instance, path.Join(instance, fmt.Sprintf("ci%d", at.Compute))} {
		number := r.capability(fmt.Sprintf("gpu%d", minor), part)
		if !number.Known {
			return []string{}
		}
		nodes = append(nodes, capabilityPrefix+strconv.FormatUint(number.Value, 10))
	}
	return nodes
}

// capability is the minor number of the device file that stands for access to a
// part of a card: by the file of the instance itself, which is there while the
// instance is, else by the driver's table of all that there may be.
func (r *Reader) capability(card, part string) gpu.Fact[uint64] {
	access := Information(r.tree.Text(path.Join(procCapabilities, card, "mig", part, "access")).Value)
	if number := sysfs.Uint(gpu.Known(access["DeviceFileMinor"])); number.Known {
		return number
	}
	return Minors(r.tree.Table(procMIGMinors).Value)[path.Join(card, part, "access")]
}

// Minors reads lines like "gpu0/gi1/ci0/access 13".
func Minors(text string) map[string]gpu.Fact[uint64] {
	found := map[string]gpu.Fact[uint64]{}
	for line := range strings.Lines(text) {
		if name, number, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			if minor := sysfs.Uint(gpu.Known(number)); minor.Known {
				found[name] = minor
			}
		}
	}
	return found
}
