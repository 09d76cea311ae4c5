// SPDX-License-Identifier: Apache-2.0

package partition

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/internal/mig"
)

// Goal is what cards should be: rules, of which the last that matches a card
// counts. A card that none matches is left alone.
type Goal struct {
	Schema string `yaml:"schema" json:"schema"`
	Cards  []Rule `yaml:"cards" json:"cards"`
}

// Rule is what the cards that it matches should be.
type Rule struct {
	Match Match `yaml:"match" json:"match"`
	MIG   MIG   `yaml:"mig" json:"mig"`
}

// Match chooses cards. Within a field one is enough, all fields that are given
// must match, and none given matches every card.
type Match struct {
	Index   []int    `yaml:"index,omitempty,flow" json:"index,omitempty"`
	UUID    []string `yaml:"uuid,omitempty,flow" json:"uuid,omitempty"`
	Address []string `yaml:"address,omitempty,flow" json:"address,omitempty"`
	// Model is a card's name, a part of it, or its PCI ids like 0x233010DE.
	Model []string `yaml:"model,omitempty,flow" json:"model,omitempty"`
}

// MIG is how many instances of which profile; compute instances are written as
// 1c.3g.20gb.
type MIG struct {
	Enabled bool           `yaml:"enabled" json:"enabled"`
	Devices map[string]int `yaml:"devices,omitempty" json:"devices,omitempty"`
}

// ParseGoal reads a file of desired states: Divvy's own form, or a file of
// NVIDIA's mig-parted as it is, bare or in a ConfigMap, of which selected names
// a configuration; it may be empty where there is only one.
func ParseGoal(raw []byte, selected string) (Goal, error) {
	form, err := formOf(raw)
	if err != nil {
		return Goal{}, fmt.Errorf("read the goal: %w", err)
	}
	if form != formOwn {
		return parseParted(raw, form, selected)
	}
	if selected != "" {
		return Goal{}, errors.New("read the goal: only mig-parted's files have configurations to select from")
	}
	var g Goal
	if err := decode(raw, &g); err != nil {
		return g, fmt.Errorf("read the goal: %w", err)
	}
	return g, g.validate()
}

func (g Goal) validate() error {
	if g.Schema != SchemaGoal {
		return fmt.Errorf("read the goal: schema %q is not %s", g.Schema, SchemaGoal)
	}
	if len(g.Cards) > maxRules {
		return fmt.Errorf("read the goal: more than %d rules", maxRules)
	}
	for i, r := range g.Cards {
		if !r.MIG.Enabled && len(r.MIG.Devices) > 0 {
			return fmt.Errorf("read the goal: rule %d: instances, but MIG is not enabled", i+1)
		}
		for name, n := range r.MIG.Devices {
			if n < 0 || n > maxInstances*8 {
				return fmt.Errorf("read the goal: rule %d: %d of %s", i+1, n, name)
			}
			if _, _, err := splitName(name); err != nil {
				return fmt.Errorf("read the goal: rule %d: %w", i+1, err)
			}
		}
	}
	return nil
}

// For returns what a card should be, and whether any rule says so.
func (g Goal) For(c Card) (MIG, bool) {
	for _, r := range slices.Backward(g.Cards) {
		if r.Match.matches(c) {
			return r.MIG, true
		}
	}
	return MIG{}, false
}

func (m Match) matches(c Card) bool {
	return (m.Index == nil || slices.Contains(m.Index, c.Index)) &&
		(m.UUID == nil || slices.ContainsFunc(m.UUID, func(u string) bool { return len(u) >= 8 && strings.HasPrefix(c.UUID, u) })) &&
		(m.Address == nil || slices.Contains(m.Address, c.Address)) &&
		(m.Model == nil || slices.ContainsFunc(m.Model, c.isModel))
}

// isModel compares PCI ids (device and vendor, as NVIDIA's tools print them) or
// names.
func (c Card) isModel(model string) bool {
	if digits, ok := strings.CutPrefix(strings.ToLower(model), "0x"); ok {
		ids, err := strconv.ParseUint(digits, 16, 32)
		own, ownErr := strconv.ParseUint(strings.TrimPrefix(strings.ToLower(c.DeviceID), "0x"), 16, 32)
		if err != nil || ownErr != nil {
			return false
		}
		if ids > 0xffff {
			return ids>>16 == own && ids&0xffff == 0x10de
		}
		return ids == own
	}
	return model != "" && strings.Contains(c.Name, model)
}

// splitName reads "1c.3g.20gb" as one slice of 3g.20gb, and "3g.20gb" as all
// (0).
func splitName(name string) (slices int, profile string, err error) {
	head, rest, ok := strings.Cut(name, ".")
	if digits, isCompute := strings.CutSuffix(head, "c"); ok && isCompute {
		n, err := strconv.Atoi(digits)
		if err != nil || n < 1 || n > maxInstances {
			return 0, "", fmt.Errorf("%q is no profile", name)
		}
		slices, head, profile = n, "", rest
		head, rest, ok = strings.Cut(rest, ".")
	} else {
		profile = name
	}
	g, isInstance := strings.CutSuffix(head, "g")
	if n, err := strconv.Atoi(g); !ok || !isInstance || err != nil || n < 1 || !strings.Contains(rest, "gb") {
		return 0, "", fmt.Errorf("%q is no profile: they are called like 3g.40gb, 1g.10gb+me or 1c.3g.40gb", name)
	}
	return slices, profile, nil
}

// items turns a goal into instances of a product. Compute instances of one
// profile fill as few GPU instances as hold them, the largest first.
func items(p *mig.Product, m MIG) ([]item, error) {
	var want []item
	parts := map[int][]int{}
	for _, name := range slices.Sorted(maps.Keys(m.Devices)) {
		size, profile, err := splitName(name)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrImpossible, err)
		}
		i := p.Index(profile)
		if i < 0 {
			var names []string
			for _, f := range p.Profiles {
				names = append(names, f.Name)
			}
			return nil, fmt.Errorf("%w: the card has no profile %s; it has %s", ErrImpossible, profile, strings.Join(names, ", "))
		}
		all := p.Profiles[i].Slices
		if size > all {
			return nil, fmt.Errorf("%w: %s wants %d of %d slices", ErrImpossible, name, size, all)
		}
		for range m.Devices[name] {
			if size == 0 {
				want = append(want, item{profile: i, compute: []int{all}})
			} else {
				parts[i] = append(parts[i], size)
			}
		}
		if len(want)+len(parts[i]) > maxInstances*8 {
			return nil, fmt.Errorf("%w: more instances than any card holds", ErrImpossible)
		}
	}
	for _, i := range slices.Sorted(maps.Keys(parts)) {
		want = append(want, fill(i, parts[i], p.Profiles[i].Slices)...)
	}
	if len(want) > maxInstances {
		return nil, fmt.Errorf("%w: %d instances are more than any card holds", ErrImpossible, len(want))
	}
	return want, nil
}

// fill packs compute instances, largest first, into the first that has room.
func fill(profile int, sizes []int, capacity int) []item {
	sizes = sorted(sizes)
	slices.Reverse(sizes)
	var filled []item
	var left []int
next:
	for _, size := range sizes {
		for n := range filled {
			if left[n] >= size {
				filled[n].compute = append(filled[n].compute, size)
				left[n] -= size
				continue next
			}
		}
		filled = append(filled, item{profile: profile, compute: []int{size}})
		left = append(left, capacity-size)
	}
	for n := range filled {
		filled[n].compute = sorted(filled[n].compute)
	}
	return filled
}
