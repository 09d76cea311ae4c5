// SPDX-License-Identifier: Apache-2.0

package partition

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Goal is what cards should be: rules, of which the last that matches a card
// counts. A card that none matches is left alone.
type Goal struct {
	Schema string `yaml:"schema" json:"schema"`
	Cards  []Rule `yaml:"cards" json:"cards"`
}

// Rule is what the cards that it matches should be. Of techniques that it does not
// name it says nothing.
type Rule struct {
	Match Match
	Wants Wants
}

// Wants is what a rule says, by technique; in documents each has a field of the
// rule.
type Wants map[string]Want

// Want is what a rule says of one technique.
type Want interface{ Validate() error }

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

// ParseGoal reads a file of desired states in Divvy's own form.
func (all Techniques) ParseGoal(raw []byte) (Goal, error) {
	var file struct {
		Schema string `yaml:"schema"`
		Cards  []struct {
			Match  Match  `yaml:"match"`
			Fields fields `yaml:",inline"`
		} `yaml:"cards"`
	}
	err := Decode(raw, &file)
	g := Goal{Schema: file.Schema}
	for i, from := range file.Cards {
		r := Rule{Match: from.Match, Wants: Wants{}}
		for _, t := range all {
			if err != nil {
				break
			}
			want, there := t.About().Want(), false
			if there, err = from.Fields.take(fieldOf(t.Name()), want); there {
				r.Wants[t.Name()] = want
			}
		}
		if err == nil && len(from.Fields) > 0 {
			err = fmt.Errorf("rule %d has fields that no technique knows: %s", i+1, from.Fields)
		}
		g.Cards = append(g.Cards, r)
	}
	if err != nil {
		return g, fmt.Errorf("read the goal: %w", err)
	}
	return g, g.Validate()
}

// Validate says what is wrong with a goal.
func (g Goal) Validate() error {
	if g.Schema != SchemaGoal {
		return fmt.Errorf("read the goal: schema %q is not %s", g.Schema, SchemaGoal)
	}
	if len(g.Cards) > maxRules {
		return fmt.Errorf("read the goal: more than %d rules", maxRules)
	}
	for i, r := range g.Cards {
		if len(r.Wants) == 0 {
			return fmt.Errorf("read the goal: rule %d names no technique", i+1)
		}
		for _, name := range slices.Sorted(maps.Keys(r.Wants)) {
			if err := r.Wants[name].Validate(); err != nil {
				return fmt.Errorf("read the goal: rule %d: %s: %w", i+1, name, err)
			}
		}
	}
	return nil
}

// YAML writes a goal in Divvy's own form.
func (g Goal) YAML() ([]byte, error) { return yaml.Marshal(g) }

// byField is what a rule says, by its fields in documents.
func (r Rule) byField() map[string]Want {
	all := map[string]Want{}
	for name, want := range r.Wants {
		all[fieldOf(name)] = want
	}
	return all
}

// MarshalYAML writes a rule with a field a technique.
func (r Rule) MarshalYAML() (any, error) {
	return struct {
		Match Match           `yaml:"match"`
		Wants map[string]Want `yaml:",inline"`
	}{r.Match, r.byField()}, nil
}

// MarshalJSON writes a rule with a field a technique.
func (r Rule) MarshalJSON() ([]byte, error) {
	all := map[string]any{"match": r.Match}
	for field, want := range r.byField() {
		all[field] = want
	}
	return json.Marshal(all)
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
