// SPDX-License-Identifier: Apache-2.0

package partition

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Goal is what cards should be: rules, of which the last that matches a card
// counts. A card that none matches is left alone.
type Goal struct {
	Schema string `yaml:"schema" json:"schema"`
	Cards  []Rule `yaml:"cards" json:"cards"`
}

// Rule is what the cards that it matches should be: one field a technique. Of
// techniques that it does not name it says nothing.
type Rule struct {
	Match    Match         `yaml:"match" json:"match"`
	MIG      *MIG          `yaml:"mig,omitempty" json:"mig,omitempty"`
	AMD      *AMD          `yaml:"amd,omitempty" json:"amd,omitempty"`
	SRIOV    *SRIOV        `yaml:"sriov,omitempty" json:"sriov,omitempty"`
	VGPU     *VirtualCards `yaml:"vgpu,omitempty" json:"vgpu,omitempty"`
	GVTg     *VirtualCards `yaml:"gvtg,omitempty" json:"gvtg,omitempty"`
	VFIO     *VFIO         `yaml:"vfio,omitempty" json:"vfio,omitempty"`
	MPS      *MPS          `yaml:"mps,omitempty" json:"mps,omitempty"`
	Replicas *Replicas     `yaml:"replicas,omitempty" json:"replicas,omitempty"`
}

// wanted is what a rule says of one technique.
type wanted interface{ validate() error }

// wanted is what a rule says, by technique.
func (r Rule) wanted() map[string]wanted {
	all := map[string]wanted{}
	if r.MIG != nil {
		all[TechniqueMIG] = r.MIG
	}
	if r.AMD != nil {
		all[TechniqueAMD] = r.AMD
	}
	if r.SRIOV != nil {
		all[TechniqueSRIOV] = r.SRIOV
	}
	if r.VGPU != nil {
		all[TechniqueVGPU] = r.VGPU
	}
	if r.GVTg != nil {
		all[TechniqueGVTg] = r.GVTg
	}
	if r.VFIO != nil {
		all[TechniqueVFIO] = r.VFIO
	}
	if r.MPS != nil {
		all[TechniqueMPS] = r.MPS
	}
	if r.Replicas != nil {
		all[TechniqueReplicas] = r.Replicas
	}
	return all
}

// Match chooses cards. Within a field one is enough, all fields that are given
// must match, and none given matches every card.
type Match struct {
	Vendor  []string `yaml:"vendor,omitempty,flow" json:"vendor,omitempty"` // nvidia, amd, intel, a descriptor's name
	Index   []int    `yaml:"index,omitempty,flow" json:"index,omitempty"`
	UUID    []string `yaml:"uuid,omitempty,flow" json:"uuid,omitempty"`
	Address []string `yaml:"address,omitempty,flow" json:"address,omitempty"`
	// Model is a card's name, a part of it, or its PCI ids like 0x233010DE.
	Model []string `yaml:"model,omitempty,flow" json:"model,omitempty"`
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
		all := r.wanted()
		if len(all) == 0 {
			return fmt.Errorf("read the goal: rule %d names no technique", i+1)
		}
		for _, name := range slices.Sorted(maps.Keys(all)) {
			if err := all[name].validate(); err != nil {
				return fmt.Errorf("read the goal: rule %d: %s: %w", i+1, name, err)
			}
		}
	}
	return nil
}

// For returns what a card should be, and whether any rule says so.
func (g Goal) For(c Card) (Rule, bool) {
	for _, r := range slices.Backward(g.Cards) {
		if r.Match.matches(c) {
			return r, true
		}
	}
	return Rule{}, false
}

func (m Match) matches(c Card) bool {
	return (m.Vendor == nil || slices.Contains(m.Vendor, c.vendor())) &&
		(m.Index == nil || slices.Contains(m.Index, c.Index)) &&
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
