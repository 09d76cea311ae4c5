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
	"github.com/divvy-gpu/divvy/internal/partition/kernel"
	"github.com/divvy-gpu/divvy/internal/partition/mig"
	"github.com/divvy-gpu/divvy/internal/partition/sriov"
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
	kernel       *kernel.Kernel
	driver       func() (Source, error)
	explained    partition.Explanation
}

// New is NVIDIA's vGPU where only the kernel is asked; nil: it plans only.
func New(k *kernel.Kernel) partition.Technique { return NVIDIA(k, noDriver) }

// NVIDIA is vGPU on a kernel's cards, with what NVIDIA's driver sets, where it is
// there.
func NVIDIA(k *kernel.Kernel, driver func() (Source, error)) partition.Technique {
	return Technique{
		name: partition.TechniqueVGPU, vendor: gpu.VendorNVIDIA, kernel: k, driver: driver,
		needs: "its driver is not that of a vGPU host",
		explained: partition.Explanation{
			Title: "NVIDIA vGPU", Vendors: "nvidia",
			Goal: "vgpu: {devices: {NVIDIA A40-12Q: 2}}",
			Isolation: []string{
				"memory: a fixed frame buffer", "compute: time slices (best effort, equal, fixed), or MIG slices for MIG-backed types", "faults: the guest's as a rule",
				"side channels: time-sliced types share caches",
			},
			Cost:     "a licence, and the host driver of the vGPU package",
			Needs:    "types of one size a GPU, unless it is set to mixed placement; virtual functions on most, which are switched on first",
			Excludes: "use of the same GPU by programs on the host",
		},
	}
}

// GVTg is Intel's GVT-g.
func GVTg(k *kernel.Kernel) partition.Technique {
	return Technique{
		name: partition.TechniqueGVTg, vendor: gpu.VendorIntel, kernel: k, driver: noDriver,
		needs: "the kernel has no GVT-g for it (i915 with enable_gvt=1, up to Comet Lake)",
		explained: partition.Explanation{
			Title: "Intel GVT-g", Vendors: "intel (Broadwell to Comet Lake graphics)",
			Goal:      "gvtg: {devices: {i915-GVTg_V5_8: 1}}",
			Isolation: []string{"memory: own part of the aperture", "compute: time slices by weight", "faults: a guest can hang all", "side channels: not closed"},
			Cost:      "legacy: no longer developed",
			Needs:     "a kernel that still has it, i915.enable_gvt=1",
			Excludes:  "newer graphics",
		},
	}
}

// noDriver is NVIDIA's driver where it is not asked.
func noDriver() (Source, error) { return nil, nil }

func (t Technique) Name() string { return t.name }

func (t Technique) About() partition.About {
	return partition.About{
		Want: func() partition.Want { return &Goal{} }, Division: func() partition.Division { return &Hosts{} }, Explanation: t.explained,
	}
}

func (t Technique) wanted(r partition.Rule) *Goal {
	g, _ := r.Wants[t.name].(*Goal)
	return g
}

// Implied adds to a rule the virtual functions that NVIDIA's vGPUs are made on, where
// they are off and the rule says nothing of them.
func (t Technique) Implied(c partition.Card, r partition.Rule) partition.Rule {
	functions, want := sriov.Of(c), t.wanted(r)
	off := c.NVIDIA() && of(c, t.name) == nil && functions != nil && functions.Total > 0 && len(functions.On) == 0
	if t.vendor == gpu.VendorNVIDIA && off && want != nil && want.Count() > 0 && r.Wants[partition.TechniqueSRIOV] == nil {
		r.Wants = maps.Clone(r.Wants)
		r.Wants[partition.TechniqueSRIOV] = &sriov.Goal{VFs: functions.Total}
	}
	return r
}

// On says whether a card has virtual cards.
func (t Technique) On(c partition.Card) bool {
	hosts := of(c, t.name)
	return hosts != nil && slices.ContainsFunc(hosts.On, func(h Host) bool { return len(h.Made) > 0 })
}

// Aim keeps what is wanted, those in use first, and places the others. What is in
// use is not given up with force either: the kernel would wait for its user.
func (t Technique) Aim(c partition.Card, r partition.Rule, _ bool) (partition.Card, error) {
	want, now := t.wanted(r), of(c, t.name)
	if now == nil {
		if want.Count() == 0 {
			return c, nil
		}
		if t.vendor == gpu.VendorNVIDIA && planned(c) {
			c.Awaits = "virtual GPUs, of the types that the functions offer when they are on"
			return c, nil
		}
		return c, fmt.Errorf("%w: %s offers no virtual GPUs: %s", partition.ErrImpossible, c.Name, t.needs)
	}
	missing, err := byID(*now, want.Devices)
	if err != nil {
		return c, err
	}
	after := Hosts{By: now.By, Placement: now.Placement, Scheduler: now.Scheduler}
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
		return c, fmt.Errorf("%w: sizes are mixed or not while a GPU has no vGPU; it keeps %s", partition.ErrImpossible, strings.Join(made(after), ", "))
	}
	if err := place(&after, *now, missing); err != nil {
		return c, err
	}
	return c.With(t.name, &after), nil
}

// planned says whether virtual functions will be on that are not yet.
func planned(c partition.Card) bool {
	functions := sriov.Of(c)
	return functions != nil && slices.ContainsFunc(functions.On, func(f sriov.Function) bool { return f.Address == "" })
}

// keep leaves what is wanted where it is, those in use first, and takes it off what
// is missing. It words what is in use and not wanted.
func keep(after *Hosts, now Hosts, missing map[string]int) (inUse []string) {
	for _, host := range now.On {
		cards := slices.Clone(host.Made)
		slices.SortStableFunc(cards, func(a, b Instance) int { return min(len(b.Processes), 1) - min(len(a.Processes), 1) })
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
func (t Technique) modes(after *Hosts, want *Goal) error {
	for _, mode := range []struct {
		what, want string
		now        *string
	}{{"placement", want.Placement, &after.Placement}, {"scheduler", want.Scheduler, &after.Scheduler}} {
		switch {
		case mode.want == "" || mode.want == *mode.now:
		case *mode.now == "" && mode.want == PlacementHomogeneous: // as without the mode
		case *mode.now == "":
			return fmt.Errorf("%w: the %s is set by NVIDIA's driver of a vGPU host, which is not here or was not asked", partition.ErrImpossible, mode.what)
		default:
			*mode.now = mode.want
		}
	}
	return nil
}

// made lists virtual cards, guests those that are in use.
func made(hosts Hosts) []string {
	var words []string
	for _, host := range hosts.On {
		for _, card := range host.Made {
			words = append(words, hosts.Name(card.Type)+" on "+host.Address)
		}
	}
	return words
}

func guests(hosts Hosts) []string {
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
func byID(hosts Hosts, devices map[string]int) (map[string]int, error) {
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
			return nil, fmt.Errorf("%w: the GPU offers no type %s; it offers %s", partition.ErrImpossible, name, strings.Join(offered, ", "))
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
func (t Technique) size(c partition.Card, after, hosts Hosts, counts map[string]int) error {
	if t.vendor != gpu.VendorNVIDIA {
		return nil
	}
	first := ""
	for _, id := range slices.Sorted(maps.Keys(counts)) {
		name := hosts.Name(id)
		switch {
		case counts[id] == 0 || sized(name) == "":
		case !mig.Of(c).Unknown && backed(name) != mig.Of(c).On:
			return fmt.Errorf("%w: %s is for GPUs whose MIG mode is %s", partition.ErrImpossible, name, map[bool]string{true: "on", false: "off"}[backed(name)])
		case backed(name) || after.Placement == PlacementMixed:
		case first == "":
			first = name
		case sized(name) != sized(first):
			return fmt.Errorf("%w: %s and %s are of different sizes, and a GPU takes one size unless its mixed-size mode is on: say placement: mixed", partition.ErrImpossible, first, name)
		}
	}
	return nil
}

// place makes what is missing where there is room: a virtual function carries one,
// a card as many as it offers. Where others go first only the driver knows what
// there will be room for.
func place(after *Hosts, now Hosts, missing map[string]int) error {
	unknown := after.Placement != now.Placement
	each(now, *after, func(Host, Instance) { unknown = true })
	for _, id := range slices.Sorted(maps.Keys(missing)) {
		name := now.Name(id)
		for n := range missing[id] {
			at := slices.IndexFunc(after.On, func(h Host) bool {
				return (!h.Single || len(h.Made) == 0) && (unknown || count(h, id)-count(same(now, h), id) < offers(h, id))
			})
			if at < 0 {
				return fmt.Errorf("%w: %d more of %s are wanted, there is room for %d", partition.ErrImpossible, missing[id], name, n)
			}
			host := &after.On[at]
			card := Instance{Type: id}
			if after.By == ByMediated {
				card.UUID = fresh(*after, now, host.Address, id)
			}
			host.Made = append(slices.Clone(host.Made), card)
		}
	}
	return nil
}

// same is a function as it is in another state.
func same(hosts Hosts, host Host) Host {
	for _, h := range hosts.On {
		if h.Address == host.Address {
			return h
		}
	}
	return Host{}
}

func count(host Host, id string) int {
	n := 0
	for _, card := range host.Made {
		if card.Type == id {
			n++
		}
	}
	return n
}

func offers(host Host, id string) int {
	for _, t := range host.Types {
		if t.ID == id {
			return t.Available
		}
	}
	return 0
}

// fresh is a UUID that no virtual card here has: always the same for the same
// place, so that a plan made again is the same plan.
func fresh(after, now Hosts, address, id string) string {
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

func has(hosts Hosts, uuid string) bool {
	return slices.ContainsFunc(hosts.On, func(h Host) bool {
		return slices.ContainsFunc(h.Made, func(c Instance) bool { return c.UUID == uuid })
	})
}

// Steps removes what is not wanted, then makes what is.
func (t Technique) Steps(from, to partition.Card) []partition.Step {
	before, after := of(from, t.name), of(to, t.name)
	if before == nil {
		return nil
	}
	if after == nil {
		if functions := sriov.Of(to); t.vendor != gpu.VendorNVIDIA || functions == nil || len(functions.On) > 0 {
			return nil // it says nothing of virtual cards
		}
		after = &Hosts{} // without functions there are none
	}
	var steps []partition.Step
	each(*before, *after, func(host Host, card Instance) {
		s := partition.Step{Action: partition.ActionWrite, File: path.Join(mediated, card.UUID, "remove"), Value: "1", Why: before.Name(card.Type) + " is not wanted"}
		if before.By == ByFunction {
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
	each(*after, *before, func(host Host, card Instance) {
		s := partition.Step{Action: partition.ActionWrite, File: sysfs.Attribute(host.Address, path.Join("mdev_supported_types", card.Type, "create")), Value: card.UUID, Why: after.Name(card.Type) + " is wanted"}
		if after.By == ByFunction {
			s.File, s.Value = sysfs.Attribute(host.Address, "nvidia/current_vgpu_type"), card.Type
		}
		steps = append(steps, s)
	})
	return steps
}

// each calls f for the virtual cards of one state that the other has not.
func each(of, without Hosts, f func(Host, Instance)) {
	for _, host := range of.On {
		others := same(without, host).Made
		for _, card := range host.Made {
			if !slices.ContainsFunc(others, func(o Instance) bool { return o.UUID == card.UUID && o.Type == card.Type }) {
				f(host, card)
			}
		}
	}
}

// Busy words who uses virtual cards that would go.
func (t Technique) Busy(c partition.Card, steps []partition.Step) string {
	hosts := of(c, t.name)
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

func used(hosts Hosts, host Host, card Instance) string {
	return fmt.Sprintf("%s on %s is used by %s", hosts.Name(card.Type), host.Address, partition.Describe(card.Processes))
}
