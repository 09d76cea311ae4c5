// SPDX-License-Identifier: Apache-2.0

// Package vgpu makes virtual cards of fixed types: NVIDIA's vGPUs, as mediated
// devices or by the type that is written to a virtual function, and Intel's GVT-g.
// Facts are from the kernel's document vfio-mediated-device, NVIDIA's vGPU user
// guide (18.0) and NVIDIA/vgpu-device-manager. Which types go beside each other is
// the driver's word; known before it speaks is that a card takes vGPUs of one
// size, unless its mixed-size mode is on. That mode, and how vGPUs share time, only
// NVIDIA's library tells and sets.
package vgpu

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/gpu/sysfs"
	"github.com/divvy-gpu/divvy/internal/partition"
)

// Settings that NVIDIA's driver sets.
const (
	SettingPlacement = "vgpu-placement"
	SettingScheduler = "vgpu-scheduler"
)

// Technique is one vendor's virtual cards.
type Technique struct {
	name, vendor string
	needs        string // what is missing where none are offered
	of           func(*partition.Card) **partition.Hosts
	wanted       func(partition.Rule) *partition.VirtualCards
}

var _ partition.Technique = Technique{}

// NVIDIA is vGPU.
func NVIDIA() Technique {
	return Technique{
		name: partition.TechniqueVGPU, vendor: gpu.VendorNVIDIA,
		needs:  "its driver is not that of a vGPU host",
		of:     func(c *partition.Card) **partition.Hosts { return &c.VGPU },
		wanted: func(r partition.Rule) *partition.VirtualCards { return r.VGPU },
	}
}

// GVTg is Intel's GVT-g.
func GVTg() Technique {
	return Technique{
		name: partition.TechniqueGVTg, vendor: gpu.VendorIntel,
		needs:  "the kernel has no GVT-g for it (i915 with enable_gvt=1, up to Comet Lake)",
		of:     func(c *partition.Card) **partition.Hosts { return &c.GVTg },
		wanted: func(r partition.Rule) *partition.VirtualCards { return r.GVTg },
	}
}

// Name is partition.TechniqueVGPU or TechniqueGVTg.
func (t Technique) Name() string { return t.name }

// On says whether a card has virtual cards.
func (t Technique) On(c partition.Card) bool {
	hosts := *t.of(&c)
	return hosts != nil && slices.ContainsFunc(hosts.On, func(h partition.Host) bool { return len(h.Made) > 0 })
}

// Aim keeps what is wanted, those in use first, and places the others. What is in
// use is not given up with force either: the kernel would wait for its user.
func (t Technique) Aim(c partition.Card, r partition.Rule, _ bool) (partition.Card, error) {
	want, now := t.wanted(r), *t.of(&c)
	if now == nil {
		if want.Count() == 0 {
			return c, nil
		}
		if t.vendor == gpu.VendorNVIDIA && planned(c) {
			c.Awaits = "virtual cards, of the types that the functions offer when they are on"
			return c, nil
		}
		return c, fmt.Errorf("%w: %s offers no virtual cards: %s", partition.ErrImpossible, c.Name, t.needs)
	}
	missing, err := byID(*now, want.Devices)
	if err != nil {
		return c, err
	}
	after := partition.Hosts{By: now.By, Placement: now.Placement, Scheduler: now.Scheduler}
	if err := t.modes(&after, want); err != nil {
		return c, err
	}
	if err := t.size(c, after, *now, missing); err != nil {
		return c, err
	}
	inUse := keep(&after, *now, missing)
	if after.Scheduler != now.Scheduler && inUse == nil {
		inUse = guests(*now)
	}
	if inUse != nil {
		return c, fmt.Errorf("%w: %s", partition.ErrInUse, strings.Join(inUse, "; "))
	}
	if after.Placement != now.Placement && len(made(after)) > 0 {
		return c, fmt.Errorf("%w: sizes are mixed or not while a card has no vGPU; it keeps %s", partition.ErrImpossible, strings.Join(made(after), ", "))
	}
	if err := place(&after, *now, missing); err != nil {
		return c, err
	}
	*t.of(&c) = &after
	return c, nil
}

// planned says whether virtual functions will be on that are not yet.
func planned(c partition.Card) bool {
	return c.SRIOV != nil && slices.ContainsFunc(c.SRIOV.On, func(f partition.Function) bool { return f.Address == "" })
}

// keep leaves what is wanted where it is, those in use first, and takes it off what
// is missing. It words what is in use and not wanted.
func keep(after *partition.Hosts, now partition.Hosts, missing map[string]int) (inUse []string) {
	for _, host := range now.On {
		cards := slices.Clone(host.Made)
		slices.SortStableFunc(cards, func(a, b partition.VirtualCard) int { return min(len(b.Processes), 1) - min(len(a.Processes), 1) })
		host.Made = nil
		for _, card := range cards {
			switch {
			case missing[card.Type] > 0:
				missing[card.Type]--
				host.Made = append(host.Made, card)
			case len(card.Processes) > 0:
				inUse = append(inUse, used(now, host, card))
			}
		}
		after.On = append(after.On, host)
	}
	return inUse
}

// modes sets what only NVIDIA's driver sets.
func (t Technique) modes(after *partition.Hosts, want *partition.VirtualCards) error {
	for _, mode := range []struct {
		what, want string
		now        *string
	}{{"placement", want.Placement, &after.Placement}, {"scheduler", want.Scheduler, &after.Scheduler}} {
		switch {
		case mode.want == "" || mode.want == *mode.now:
		case *mode.now == "" && mode.want == partition.PlacementHomogeneous: // as without the mode
		case *mode.now == "":
			return fmt.Errorf("%w: the %s is set by NVIDIA's driver of a vGPU host, which is not here or was not asked", partition.ErrImpossible, mode.what)
		default:
			*mode.now = mode.want
		}
	}
	return nil
}

// made lists virtual cards, guests those that are in use.
func made(hosts partition.Hosts) []string {
	var words []string
	for _, host := range hosts.On {
		for _, card := range host.Made {
			words = append(words, hosts.Name(card.Type)+" on "+host.Address)
		}
	}
	return words
}

func guests(hosts partition.Hosts) []string {
	var words []string
	for _, host := range hosts.On {
		for _, card := range host.Made {
			if len(card.Processes) > 0 {
				words = append(words, used(hosts, host, card))
			}
		}
	}
	return words
}

// byID turns names and ids of types into counts by id.
func byID(hosts partition.Hosts, devices map[string]int) (map[string]int, error) {
	counts := map[string]int{}
	var offered []string
	known := map[string]string{}
	for _, host := range hosts.On {
		for _, offer := range host.Types {
			known[offer.ID], known[offer.Name] = offer.ID, offer.ID
			if !slices.Contains(offered, offer.Name) {
				offered = append(offered, offer.Name)
			}
		}
		for _, card := range host.Made {
			known[card.Type] = card.Type
		}
	}
	slices.SortFunc(offered, sysfs.Natural)
	for _, name := range slices.Sorted(maps.Keys(devices)) {
		id, ok := known[name]
		if devices[name] > 0 && !ok {
			return nil, fmt.Errorf("%w: the card offers no type %s; it offers %s", partition.ErrImpossible, name, strings.Join(offered, ", "))
		}
		counts[id] += devices[name]
	}
	return counts, nil
}

// backed and sized read NVIDIA's names: A40-12Q has 12 GB, H200X-1-18C is one
// slice of MIG.
func backed(name string) bool { return regexp.MustCompile(`-[0-9]+-[0-9]+[A-Z]+$`).MatchString(name) }

func sized(name string) string {
	found := regexp.MustCompile(`-([0-9]+)[A-Z]+$`).FindStringSubmatch(name)
	if found == nil {
		return ""
	}
	return found[1]
}

// size refuses what NVIDIA's cards do not carry together.
func (t Technique) size(c partition.Card, after, hosts partition.Hosts, counts map[string]int) error {
	if t.vendor != gpu.VendorNVIDIA {
		return nil
	}
	first := ""
	for _, id := range slices.Sorted(maps.Keys(counts)) {
		name := hosts.Name(id)
		switch {
		case counts[id] == 0 || sized(name) == "":
		case !c.MIGUnknown && backed(name) != c.MIG:
			return fmt.Errorf("%w: %s is for cards whose MIG mode is %s", partition.ErrImpossible, name, map[bool]string{true: "on", false: "off"}[backed(name)])
		case backed(name) || after.Placement == partition.PlacementMixed:
		case first == "":
			first = name
		case sized(name) != sized(first):
			return fmt.Errorf("%w: %s and %s are of different sizes, and a card takes one size unless its mixed-size mode is on: say placement: mixed", partition.ErrImpossible, first, name)
		}
	}
	return nil
}

// place makes what is missing where there is room: a virtual function carries one,
// a card as many as it offers. Where others go first only the driver knows what
// there will be room for.
func place(after *partition.Hosts, now partition.Hosts, missing map[string]int) error {
	unknown := after.Placement != now.Placement
	each(now, *after, func(partition.Host, partition.VirtualCard) { unknown = true })
	for _, id := range slices.Sorted(maps.Keys(missing)) {
		name := now.Name(id)
		for n := range missing[id] {
			at := slices.IndexFunc(after.On, func(h partition.Host) bool {
				return (!h.Single || len(h.Made) == 0) && (unknown || count(h, id)-count(same(now, h), id) < offers(h, id))
			})
			if at < 0 {
				return fmt.Errorf("%w: %d more of %s are wanted, there is room for %d", partition.ErrImpossible, missing[id], name, n)
			}
			host := &after.On[at]
			card := partition.VirtualCard{Type: id}
			if after.By == partition.ByMediated {
				card.UUID = fresh(*after, now, host.Address, id)
			}
			host.Made = append(slices.Clone(host.Made), card)
		}
	}
	return nil
}

// same is a function as it is in another state.
func same(hosts partition.Hosts, host partition.Host) partition.Host {
	for _, h := range hosts.On {
		if h.Address == host.Address {
			return h
		}
	}
	return partition.Host{}
}

func count(host partition.Host, id string) int {
	n := 0
	for _, card := range host.Made {
		if card.Type == id {
			n++
		}
	}
	return n
}

func offers(host partition.Host, id string) int {
	for _, t := range host.Types {
		if t.ID == id {
			return t.Available
		}
	}
	return 0
}

// fresh is a UUID that no virtual card here has: always the same for the same
// place, so that a plan made again is the same plan.
func fresh(after, now partition.Hosts, address, id string) string {
	for n := 0; ; n++ {
		sum := sha1.Sum(fmt.Appendf(nil, "divvy virtual card %s %s %d", address, id, n))
		sum[6], sum[8] = sum[6]&0x0f|0x50, sum[8]&0x3f|0x80 // a UUID by name
		digits := hex.EncodeToString(sum[:16])
		uuid := strings.Join([]string{digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]}, "-")
		if !has(after, uuid) && !has(now, uuid) {
			return uuid
		}
	}
}

func has(hosts partition.Hosts, uuid string) bool {
	return slices.ContainsFunc(hosts.On, func(h partition.Host) bool {
		return slices.ContainsFunc(h.Made, func(c partition.VirtualCard) bool { return c.UUID == uuid })
	})
}

// Steps removes what is not wanted, then makes what is.
func (t Technique) Steps(from, to partition.Card) []partition.Step {
	before, after := *t.of(&from), *t.of(&to)
	if before == nil {
		return nil
	}
	if after == nil {
		if t.vendor != gpu.VendorNVIDIA || to.SRIOV == nil || len(to.SRIOV.On) > 0 {
			return nil // it says nothing of virtual cards
		}
		after = &partition.Hosts{} // without functions there are none
	}
	var steps []partition.Step
	each(*before, *after, func(host partition.Host, card partition.VirtualCard) {
		s := partition.Step{Action: partition.ActionWrite, File: path.Join(mediated, card.UUID, "remove"), Value: "1", Why: before.Name(card.Type) + " is not wanted"}
		if before.By == partition.ByFunction {
			s.File, s.Value = sysfs.Attribute(host.Address, "nvidia/current_vgpu_type"), "0"
		}
		steps = append(steps, s)
	})
	set := func(setting, now, want string) {
		if want != "" && now != want {
			steps = append(steps, partition.Step{Action: partition.ActionSet, Setting: setting, Value: want, Why: "it is " + now})
		}
	}
	set(SettingPlacement, before.Placement, after.Placement)
	set(SettingScheduler, before.Scheduler, after.Scheduler)
	each(*after, *before, func(host partition.Host, card partition.VirtualCard) {
		s := partition.Step{Action: partition.ActionWrite, File: sysfs.Attribute(host.Address, path.Join("mdev_supported_types", card.Type, "create")), Value: card.UUID, Why: after.Name(card.Type) + " is wanted"}
		if after.By == partition.ByFunction {
			s.File, s.Value = sysfs.Attribute(host.Address, "nvidia/current_vgpu_type"), card.Type
		}
		steps = append(steps, s)
	})
	return steps
}

// each calls f for the virtual cards of one state that the other has not.
func each(of, without partition.Hosts, f func(partition.Host, partition.VirtualCard)) {
	for _, host := range of.On {
		others := same(without, host).Made
		for _, card := range host.Made {
			if !slices.ContainsFunc(others, func(o partition.VirtualCard) bool { return o.UUID == card.UUID && o.Type == card.Type }) {
				f(host, card)
			}
		}
	}
}

// Busy words who uses virtual cards that would go.
func (t Technique) Busy(c partition.Card, steps []partition.Step) string {
	hosts := *t.of(&c)
	if hosts == nil {
		return ""
	}
	if slices.ContainsFunc(steps, func(s partition.Step) bool { return s.Setting == SettingScheduler }) {
		return strings.Join(guests(*hosts), "; ")
	}
	var words []string
	for _, host := range hosts.On {
		for _, card := range host.Made {
			goes := slices.ContainsFunc(steps, func(s partition.Step) bool {
				return s.File == path.Join(mediated, card.UUID, "remove") && card.UUID != "" ||
					s.Value == "0" && s.File == sysfs.Attribute(host.Address, "nvidia/current_vgpu_type")
			})
			if goes && len(card.Processes) > 0 {
				words = append(words, used(*hosts, host, card))
			}
		}
	}
	return strings.Join(words, "; ")
}

func used(hosts partition.Hosts, host partition.Host, card partition.VirtualCard) string {
	return fmt.Sprintf("%s on %s is used by %s", hosts.Name(card.Type), host.Address, partition.Describe(card.Processes))
}
