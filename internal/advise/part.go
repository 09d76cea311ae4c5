// SPDX-License-Identifier: Apache-2.0

package advise

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// room is how many instances a card can carry, and of what kind.
func (c *question) room(t string, i, wanted int) placed {
	x, need := c.inv.Cards[i], c.f.MemoryBytes
	p := placed{card: i, bytes: need}
	byMemory := func(free uint64) int {
		switch {
		case x.MemoryBytes == 0:
			return wanted
		case need > 0:
			return int(min(free/need, mostCount))
		}
		return int(min(free/leastShare, mostCount))
	}
	switch t {
	case Share, MPS:
		p.n = byMemory(x.FreeBytes)
	case Movable: // together they may be larger than the card, each alone not
		if need == 0 || x.MemoryBytes == 0 || need <= x.FreeBytes {
			p.n = wanted
		}
	case Replicas:
		p.n = min(byMemory(x.MemoryBytes), mostReplicas)
	case MIG:
		return c.profile(i, wanted)
	case VGPU:
		p = c.virtualCard(i, wanted)
	case SRIOV: // functions have equal parts; their number changes through none
		on, total := functions(x.Can["sriov"].Current)
		if p.n = min(total, byMemory(x.MemoryBytes)); on > 0 {
			p.n = min(p.n, on)
		}
		if most := c.mostParts(); most > 0 && on > most {
			p.n = 0
		}
	case AMDModes:
		return c.mode(i, wanted)
	}
	if most := c.mostParts(); most > 0 && (t == SRIOV || c.words["busy"] == "at-once") {
		p.n = min(p.n, most)
	}
	return p
}

// mostReplicas is how many names a card can have (divvy partition).
const mostReplicas = 256

// profile is the smallest kind of MIG instance that holds an instance; where its
// memory is not known, the largest of which there are enough. What is there stays.
func (c *question) profile(i, wanted int) placed {
	x := c.inv.Cards[i]
	full := 0 // slices of the instance that is all of the card: no division
	for _, p := range x.MIG {
		full = max(full, p.Slices)
	}
	profiles := slices.DeleteFunc(slices.Clone(x.MIG), func(p Profile) bool { return strings.Contains(p.Name, "+") || p.Slices == full })
	slices.SortStableFunc(profiles, func(a, b Profile) int {
		return cmp.Or(cmp.Compare(a.MemoryBytes, b.MemoryBytes), cmp.Compare(a.Slices, b.Slices))
	})
	slicesLeft, bytesLeft, most := full, uint64(0), map[string]int{}
	for _, p := range x.MIG {
		bytesLeft = max(bytesLeft, p.MemoryBytes)
	}
	fastEnough := uint64(0) // memory, and with it bandwidth
	if parts := c.mostParts(); parts > 0 {
		fastEnough = bytesLeft / uint64(parts) / 100 * 95 // profiles' sizes are rounded down
	}
	for _, p := range x.MIG {
		n := x.Parts[MIG][p.Name]
		slicesLeft -= n * p.Slices
		bytesLeft -= min(bytesLeft, uint64(n)*p.MemoryBytes)
		most[p.Name] = p.Most - n
	}
	best := placed{card: i}
	for _, p := range profiles {
		n := most[p.Name]
		if len(x.Parts[MIG]) > 0 {
			n = min(n, slicesLeft/max(p.Slices, 1), int(bytesLeft/max(p.MemoryBytes, 1)))
		}
		switch {
		case n <= 0 || p.MemoryBytes < max(c.f.MemoryBytes, fastEnough):
		case c.f.MemoryBytes > 0:
			return placed{card: i, n: n, bytes: p.MemoryBytes, what: p.Name}
		case n >= wanted || best.n == 0:
			best = placed{card: i, n: n, bytes: p.MemoryBytes, what: p.Name}
		}
	}
	return best
}

// virtualCard is the smallest type of vGPU that holds an instance.
func (c *question) virtualCard(i, wanted int) placed {
	x := &c.inv.Cards[i]
	best := placed{card: i}
	for _, option := range x.Can["vgpu"].Options {
		v, ok := vgpuType(option)
		if !ok || c.f.Workload == "vdi" && v.series == "C" || v.byMIG != (x.Can["mig"].Current == "on") {
			continue
		}
		n := v.left
		if n < 0 { // the driver does not say how many more: by size, and by functions
			n = int(x.MemoryBytes / v.bytes)
			if on, _ := functions(x.Can["sriov"].Current); on > 0 {
				n = min(n, on)
			}
			for _, made := range x.Parts[VGPU] {
				n -= made
			}
		}
		switch {
		case n <= 0 || c.f.MemoryBytes > v.bytes:
		case best.n == 0, c.f.MemoryBytes > 0 && v.bytes < best.bytes, c.f.MemoryBytes == 0 && n >= wanted && v.bytes > best.bytes, c.f.MemoryBytes == 0 && best.n < wanted && n > best.n:
			best = placed{card: i, n: n, bytes: v.bytes, what: v.name}
		}
	}
	return best
}

// virtualType is a type of vGPU; its name ends in its GiB and its series.
type virtualType struct {
	name   string
	bytes  uint64
	series string
	byMIG  bool // for a MIG instance, as A100-1-5C
	left   int  // how many more; -1: not known
}

// vgpuType reads "NVIDIA A40-12Q (nvidia-560): 4" and "NVIDIA H200X-1-18C (1414)".
func vgpuType(option string) (virtualType, bool) {
	v := virtualType{left: -1}
	name, count, counted := strings.Cut(option, ": ")
	if counted {
		n, err := strconv.Atoi(strings.TrimSpace(count))
		if err != nil || n < 0 {
			return v, false
		}
		v.left = n
	}
	v.name, _, _ = strings.Cut(name, " (")
	parts := strings.Split(v.name, "-")
	size := parts[len(parts)-1]
	if len(parts) < 2 || len(size) < 2 {
		return v, false
	}
	v.series = size[len(size)-1:]
	gib, err := strconv.Atoi(size[:len(size)-1])
	if err != nil || gib < 1 || gib > 1024 {
		return v, false
	}
	v.bytes = uint64(gib) << 30
	_, err = strconv.Atoi(parts[len(parts)-2])
	v.byMIG = len(parts) > 2 && err == nil
	return v, true
}

// functions reads "2 of 31": how many virtual functions are on, and can be.
func functions(current string) (on, total int) {
	first, second, _ := strings.Cut(current, " of ")
	on, err1 := strconv.Atoi(first)
	total, err2 := strconv.Atoi(second)
	if err1 != nil || err2 != nil || on < 0 || total < on || total > 256 {
		return 0, 0
	}
	return on, total
}

// functionsOn says that a card has virtual functions on.
func (c *question) functionsOn() bool {
	return slices.ContainsFunc(c.inv.Cards, func(x Card) bool {
		on, _ := functions(x.Can["sriov"].Current)
		return on > 0
	})
}

// modeParts is into how many parts an AMD compute mode divides a card.
var modeParts = map[string]int{"DPX": 2, "TPX": 3, "QPX": 4, "CPX": 8}

// goesWith are the memory modes that compute modes go with (divvy partition);
// those that are not named go with all.
var goesWith = map[string][]string{"DPX": {"NPS1", "NPS2"}, "TPX": {"NPS1", "NPS4", "NPS8"}, "QPX": {"NPS1", "NPS4", "NPS8"}}

// mode is the AMD compute mode that is set, where it has enough parts, else the
// one that has enough with the fewest.
func (c *question) mode(i, wanted int) placed {
	x := c.inv.Cards[i]
	best := placed{card: i}
	memory := x.Can["memory-partition"].Current
	for _, option := range x.Can["compute-partition"].Options {
		parts := modeParts[option]
		if parts == 0 || memory != "" && goesWith[option] != nil && !slices.Contains(goesWith[option], memory) {
			continue
		}
		bytes := x.MemoryBytes / uint64(parts)
		if c.f.MemoryBytes > 0 && x.MemoryBytes > 0 && c.f.MemoryBytes > bytes {
			continue
		}
		if most := c.mostParts(); most > 0 && parts > most {
			continue
		}
		set := option == x.Can["compute-partition"].Current && parts >= wanted
		if best.n == 0 || set || best.n < wanted && parts > best.n || parts >= wanted && parts < best.n {
			best = placed{card: i, n: parts, bytes: bytes, what: option}
		}
		if set {
			break
		}
	}
	return best
}
