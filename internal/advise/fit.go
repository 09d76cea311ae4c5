// SPDX-License-Identifier: Apache-2.0

package advise

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// plan is how the instances of a case go onto the cards by one technique, or why
// they do not.
type plan struct {
	rule, problem string
	note          string // of a plan that goes
	per           []placed
}

// placed is what one card carries.
type placed struct {
	card  int // in the inventory
	n     int
	bytes uint64 // of each; 0: not known
	what  string // a profile, a type, a mode
}

func (p plan) cards() int { return len(p.per) }

// Rules that an inventory decides, not the facts alone.
const (
	ruleNoCard   = "H-NONE"
	ruleDevices  = "H-DEVICES"
	ruleUnknown  = "H-UNKNOWN"
	ruleBusy     = "H-BUSY"
	ruleTooSmall = "S-SMALL"
	ruleTooSlow  = "P-PART"
	ruleRoom     = "S-ROOM"
)

// roomRules say where these are from.
var roomRules = []Rule{
	{ID: ruleNoCard, Says: Denies, Text: "there is no GPU", Source: "divvy devices"},
	{ID: ruleDevices, Says: Denies, Text: "divvy devices says that no GPU here can be divided in this way", Source: "divvy devices -o tree"},
	{ID: ruleUnknown, Says: Denies, Text: "divvy devices does not know whether the GPU can be divided in this way", Source: "divvy devices -o tree"},
	{ID: ruleBusy, Says: Denies, Text: "the GPU is in use, or is divided in another way", Source: docPartition},
	{ID: ruleTooSmall, Says: Denies, Text: "one instance takes more than any part has", Source: docEstimate},
	{ID: ruleTooSlow, Says: Denies, Text: "in every part that holds an instance, a token takes longer than the latency that is promised", Source: docEstimate},
	{ID: ruleRoom, Says: Denies, Text: "the instances take more than there is", Source: docEstimate},
}

func roomSource(id string) string {
	for _, r := range roomRules {
		if r.ID == id {
			return r.Source
		}
	}
	return docPage
}

// leastShare is what a program takes on a card before its first allocation: a
// context with its kernels, 0.5 to 1.8 GiB (docs/estimate.md, "overhead").
const leastShare = 1 << 30

// capability is what `divvy devices` calls what a technique takes.
var capability = map[string]string{
	MIG: "mig", VGPU: "vgpu", Passthrough: "passthrough", Share: "share", MPS: "mps", Replicas: "replicas", SRIOV: "sriov", AMDModes: "compute-partition", Movable: "share",
	Whole: "", Queue: "",
}

// usable says that programs of this machine can use a card: its driver has it.
func usable(c Card) bool { return c.Can["replicas"].Can == "yes" || c.Can["share"].Can == "yes" }

// ofVendor is whose a technique is.
var ofVendor = map[string]string{MIG: "nvidia", VGPU: "nvidia", MPS: "nvidia", AMDModes: "amd"}

// able says that a card can be given by a technique, else why not.
func (c *question) able(t string, x *Card) (bool, Can) {
	need := capability[t]
	can := x.Can[need]
	if vendor := ofVendor[t]; vendor != "" && x.Vendor != vendor && can.Can != "yes" {
		return false, Can{Can: "no", Reason: map[string]string{"nvidia": "it is not NVIDIA's", "amd": "it is not AMD's"}[vendor]}
	}
	if need == "" {
		can = x.Can["replicas"]
		return usable(*x) || onMIG(x), can
	}
	if t == Replicas && c.pods() && x.Vendor != "nvidia" && x.Vendor != "intel" {
		return false, Can{Can: "no", Reason: "its vendor's device plugin for Kubernetes does not share GPUs"}
	}
	if share := x.Can["share"]; t == MPS && can.Can == "yes" && share.Can != "yes" && !c.pods() {
		return false, share // the daemon holds shares
	}
	if t == SRIOV && x.Vendor == "nvidia" && can.Can == "yes" {
		return false, Can{Can: "no", Reason: "NVIDIA's virtual functions carry vGPUs only"}
	}
	if t == VGPU && can.Can == "no" && x.Can["sriov"].Can == "yes" && strings.HasPrefix(x.Can["sriov"].Current, "0 of ") {
		can.Reason = "its virtual functions are off: switch them on (divvy partition explain sriov) and ask again"
	}
	return can.Can == "yes", can
}

// onMIG says that a card is in MIG mode without instances: it can be made whole.
func onMIG(x *Card) bool {
	return x.Can["mig"].Can == "yes" && x.Can["mig"].Current == "on" && len(x.Parts[MIG]) == 0
}

// idle are techniques that change what a card is: they take one that no program
// has open.
var idle = []string{Passthrough, VGPU, SRIOV, AMDModes}

// busy says what keeps a card from a technique though it can be divided so:
// shares, programs, and other ways of dividing it.
func (c *question) busy(t string, i int) string {
	x := &c.inv.Cards[i]
	if t == Share || t == Movable || t == Replicas {
		for _, other := range []string{MIG, VGPU} {
			if len(x.Parts[other]) > 0 {
				return fmt.Sprintf("%s is divided already, as %s", x.Name, inWords[other])
			}
		}
		return ""
	}
	if x.Shares > 0 {
		return fmt.Sprintf("%s has %d of an agent's shares", x.Name, x.Shares)
	}
	for _, other := range techniques {
		if len(x.Parts[other]) == 0 || other == t || t == VGPU && (other == SRIOV || other == MIG) {
			continue
		}
		kind := slices.Min(slices.Collect(maps.Keys(x.Parts[other])))
		return fmt.Sprintf("%s is divided already: %d x %s", x.Name, x.Parts[other][kind], cmp.Or(kind, inWords[other]))
	}
	const held = "%s is in use by %s, and changes only while it is idle"
	undivide := (t == Whole || t == Queue || t == Passthrough) && (modeParts[x.Can["compute-partition"].Current] > 1 || onMIG(x))
	if x.Holder != "" && (slices.Contains(idle, t) || t == MIG && x.Can["mig"].Current != "on" || undivide) {
		return fmt.Sprintf(held, x.Name, x.Holder)
	}
	if !undivide {
		return ""
	}
	for _, other := range c.alsoChanged(i) {
		y := &c.inv.Cards[other]
		switch {
		case y.Holder != "" && other != i:
			return fmt.Sprintf(held, y.Name, y.Holder)
		case !canBeWhole(y):
			return fmt.Sprintf("%s is in mode %s/%s, and cannot be made whole", y.Name, y.Can["compute-partition"].Current, cmp.Or(y.Can["memory-partition"].Current, "NPS1"))
		}
	}
	return ""
}

// canBeWhole says that a card's modes can be changed as far as it takes to make it
// whole.
func canBeWhole(x *Card) bool {
	divided := modeParts[x.Can["compute-partition"].Current] > 1
	return !divided || x.Can["compute-partition"].Can == "yes" && (!otherMemory(x) || x.Can["memory-partition"].Can == "yes")
}

// otherMemory says that an AMD card is in a memory mode that it cannot be whole in.
func otherMemory(x *Card) bool {
	mode := x.Can["memory-partition"].Current
	return mode != "" && mode != "NPS1"
}

// joined are the cards that share a card's memory mode, itself too.
func (c *question) joined(i int) []int {
	all := []int{i}
	for j := range c.inv.Cards {
		if y := &c.inv.Cards[j]; j != i && y.Linked > 1 && c.inv.Cards[i].Linked > 1 && y.Vendor == c.inv.Cards[i].Vendor && y.Can["memory-partition"].Current != "" {
			all = append(all, j)
		}
	}
	slices.Sort(all)
	return all
}

// fit finds room for a technique.
func (c *question) fit(t string) plan {
	if t == Remote {
		return plan{}
	}
	if len(c.inv.Cards) == 0 {
		return plan{rule: ruleNoCard, problem: "there is no GPU here"}
	}
	var eligible []int
	inUse := ""
	for i := range c.inv.Cards {
		x := &c.inv.Cards[i]
		if ok, _ := c.able(t, x); !ok {
			continue
		}
		if why := c.busy(t, i); why != "" {
			inUse = cmp.Or(inUse, why)
			continue
		}
		eligible = append(eligible, i)
	}
	switch {
	case eligible == nil && inUse != "":
		return plan{rule: ruleBusy, problem: inUse}
	case eligible == nil:
		return c.cannot(t)
	}
	switch t {
	case Whole, Passthrough, Queue:
		return c.fitWhole(t, eligible)
	}
	return c.fitParts(t, eligible)
}

// cannot says why no card can.
func (c *question) cannot(t string) plan {
	unknown := ""
	for i := range c.inv.Cards {
		x := &c.inv.Cards[i]
		_, can := c.able(t, x)
		switch {
		case can.Can == "unknown":
			unknown = cmp.Or(unknown, fmt.Sprintf("divvy devices does not know whether %s can", x.Name)+prefixed(": ", can.Reason))
		case can.Reason != "":
			return plan{rule: ruleDevices, problem: fmt.Sprintf("%s cannot: %s", x.Name, can.Reason)}
		}
	}
	if unknown != "" {
		return plan{rule: ruleUnknown, problem: unknown}
	}
	return plan{rule: ruleDevices, problem: fmt.Sprintf("%s cannot", c.inv.Cards[0].Name)}
}

func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

// fitWhole gives each instance cards of its own.
func (c *question) fitWhole(t string, eligible []int) plan {
	var fitting []int
	for _, i := range eligible {
		if x := c.inv.Cards[i]; c.f.MemoryBytes == 0 || x.MemoryBytes == 0 || x.MemoryBytes >= c.f.MemoryBytes {
			fitting = append(fitting, i)
		}
	}
	if fitting == nil {
		return plan{rule: ruleTooSmall, problem: fmt.Sprintf("one instance takes %s, more than any GPU here has", sizeWords(c.f.MemoryBytes))}
	}
	// Cards of one instance are alike; the smallest that do are taken, and of them
	// those that no program has open.
	slices.SortStableFunc(fitting, func(a, b int) int {
		return cmp.Compare(len(c.inv.Cards[a].Holder), len(c.inv.Cards[b].Holder))
	})
	groups := map[string][]int{}
	var names []string
	for _, i := range fitting {
		name := c.inv.Cards[i].Name
		if groups[name] == nil {
			names = append(names, name)
		}
		groups[name] = append(groups[name], i)
	}
	slices.SortStableFunc(names, func(a, b string) int {
		return cmp.Compare(c.inv.Cards[groups[a][0]].MemoryBytes, c.inv.Cards[groups[b][0]].MemoryBytes)
	})
	var p plan
	left := c.f.Count
	if t == Queue {
		left = 1
	}
	for _, name := range names {
		group := groups[name]
		for len(group) >= c.f.Cards && left > 0 {
			for _, i := range group[:c.f.Cards] {
				x := &c.inv.Cards[i]
				p.per = append(p.per, placed{card: i, n: 1, bytes: x.MemoryBytes})
				if x.Holder != "" {
					p.note = fmt.Sprintf("%s is in use by %s: end it first", x.Name, x.Holder)
				}
			}
			group = group[c.f.Cards:]
			left--
		}
	}
	if left > 0 {
		return plan{rule: ruleRoom, problem: c.tooFew(t, len(fitting))}
	}
	slices.SortFunc(p.per, func(a, b placed) int { return a.card - b.card })
	return p
}

// tooFew says how many cards are missing.
func (c *question) tooFew(t string, n int) string {
	count := c.f.Count
	if t == Queue {
		count = 1
	}
	are := map[bool]string{true: "is", false: "are"}
	wanted := gpus(count*c.f.Cards) + " " + are[count*c.f.Cards == 1]
	if c.f.Cards > 1 {
		wanted = fmt.Sprintf("%s of one kind are", gpus(c.f.Cards))
		if count > 1 {
			wanted = fmt.Sprintf("%d times %s", count, wanted)
		}
	}
	return fmt.Sprintf("%s needed, %d %s here", wanted, n, are[n == 1])
}

// each is how many instances a card should carry where their memory is not known:
// they are spread over as many cards as their work keeps busy, two at least on each.
func (c *question) each(cards int) int {
	busy := int(math.Ceil(float64(c.f.Count) * c.f.Duty / 100))
	cards = max(min(cards, busy), 1)
	return max((c.f.Count+cards-1)/cards, 2)
}

// fitParts puts instances onto as few cards as hold them.
func (c *question) fitParts(t string, eligible []int) plan {
	most := c.f.Count
	if c.f.MemoryBytes == 0 {
		most = c.each(len(eligible))
	}
	var rooms []placed
	total := 0
	for _, i := range eligible {
		if r := c.room(t, i, most); r.n > 0 {
			r.n = min(r.n, most)
			rooms = append(rooms, r)
			total += r.n
		}
	}
	if total == 0 {
		return c.tooSmall(t, eligible)
	}
	if total < c.f.Count && c.f.MemoryBytes == 0 { // not evenly, then
		total = 0
		for n := range rooms {
			rooms[n] = c.room(t, rooms[n].card, c.f.Count)
			total += rooms[n].n
		}
	}
	if total < c.f.Count && t == SRIOV && c.functionsOn() {
		return plan{rule: ruleBusy, problem: fmt.Sprintf("%d of %d virtual functions are on, and their number changes only through none", total, c.f.Count)}
	}
	if total < c.f.Count {
		return plan{rule: ruleRoom, problem: fmt.Sprintf("there is room for %d of %d", total, c.f.Count)}
	}
	slices.SortStableFunc(rooms, func(a, b placed) int { return b.n - a.n })
	var p plan
	left := c.f.Count
	for _, r := range rooms {
		if left == 0 {
			break
		}
		r.n = min(r.n, left)
		left -= r.n
		p.per = append(p.per, r)
	}
	// Where the memory of one is not known, each gets an equal part.
	for i := range p.per {
		r := &p.per[i]
		x := c.inv.Cards[r.card]
		switch {
		case r.bytes > 0 || x.MemoryBytes == 0:
		case t == Share || t == MPS:
			r.bytes = x.FreeBytes / uint64(r.n) >> 28 << 28
		case t == Movable:
			r.bytes = x.FreeBytes >> 28 << 28
		}
	}
	slices.SortFunc(p.per, func(a, b placed) int { return a.card - b.card })
	return p
}

// tooSmall says that not one instance fits a part, or that each part is too slow.
func (c *question) tooSmall(t string, eligible []int) plan {
	patient := *c
	patient.f.P99Ms = 0
	switch {
	case c.mostParts() > 0 && slices.ContainsFunc(eligible, func(i int) bool { return patient.room(t, i, 1).n > 0 }):
		return plan{rule: ruleTooSlow, problem: fmt.Sprintf("a token takes %.0f ms on a whole GPU, and over %g ms on any part here", c.f.AloneMs, c.f.P99Ms)}
	case c.f.MemoryBytes > 0:
		return plan{rule: ruleTooSmall, problem: fmt.Sprintf("one instance takes %s (weights, buffers and context), more than any part has", sizeWords(c.f.MemoryBytes))}
	case t == Share || t == MPS || t == Replicas:
		return plan{rule: ruleTooSmall, problem: "less memory is free than the 1 GiB that a program takes before its first allocation"}
	}
	return plan{rule: ruleRoom, problem: "no part is free"}
}
