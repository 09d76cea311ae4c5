// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/divvy-gpu/divvy/internal/partition"
)

// Forms of a file of desired states.
const (
	formOwn = iota
	formParted
	formConfigMap // mig-parted's file within a Kubernetes ConfigMap
)

// formOf tells files apart by their fields.
func formOf(raw []byte) (int, error) {
	if len(raw) > partition.MaxDocument {
		return 0, fmt.Errorf("longer than %d bytes", partition.MaxDocument)
	}
	var head struct {
		Version string    `yaml:"version"`
		Configs yaml.Node `yaml:"mig-configs"`
		Kind    string    `yaml:"kind"`
	}
	if err := yaml.NewDecoder(bytes.NewReader(partition.NoTabs(raw))).Decode(&head); err != nil {
		return 0, err
	}
	switch {
	case head.Kind == "ConfigMap":
		return formConfigMap, nil
	case head.Version != "" || !head.Configs.IsZero():
		return formParted, nil
	}
	return formOwn, nil
}

type partedFile struct {
	Version string                  `yaml:"version"`
	Configs map[string][]partedRule `yaml:"mig-configs"`
}

type partedRule struct {
	Filter  oneOrMore      `yaml:"device-filter,omitempty"`
	Devices *devices       `yaml:"devices"`
	Enabled *bool          `yaml:"mig-enabled"`
	MIG     map[string]int `yaml:"mig-devices"`
}

// oneOrMore is a word or a list of words.
type oneOrMore []string

func (o *oneOrMore) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		*o = []string{n.Value}
		return nil
	}
	return n.Decode((*[]string)(o))
}

// devices is "all", or a list of card numbers.
type devices struct {
	all   bool
	index []int
}

func (d *devices) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		if n.Value != "all" {
			return fmt.Errorf("devices: %q is neither all nor a list of numbers", n.Value)
		}
		d.all = true
		return nil
	}
	return n.Decode(&d.index)
}

// ParseGoal reads a file of desired states: Divvy's own form, by the techniques that
// are known, or a file of NVIDIA's mig-parted as it is, bare or in a ConfigMap, of
// which selected names a configuration; it may be empty where there is only one.
func ParseGoal(raw []byte, selected string, all partition.Techniques) (partition.Goal, error) {
	form, err := formOf(raw)
	switch {
	case err != nil:
		return partition.Goal{}, fmt.Errorf("read the goal: %w", err)
	case form != formOwn:
		return parseParted(raw, form, selected)
	case selected != "":
		return partition.Goal{}, errors.New("read the goal: only mig-parted's files have configurations to select from")
	}
	return all.ParseGoal(raw)
}

func parseParted(raw []byte, form int, selected string) (partition.Goal, error) {
	if form == formConfigMap {
		inner, err := unwrap(raw)
		if err != nil {
			return partition.Goal{}, fmt.Errorf("read the goal: %w", err)
		}
		raw = inner
	}
	var file partedFile
	if err := partition.Decode(raw, &file); err != nil {
		return partition.Goal{}, fmt.Errorf("read mig-parted's file: %w", err)
	}
	if file.Version != "v1" {
		return partition.Goal{}, fmt.Errorf("read mig-parted's file: version %q is not v1", file.Version)
	}
	names := slices.Sorted(maps.Keys(file.Configs))
	if len(names) == 0 {
		return partition.Goal{}, fmt.Errorf("read mig-parted's file: it has no configuration")
	}
	if selected == "" {
		if len(names) > 1 {
			return partition.Goal{}, fmt.Errorf("read mig-parted's file: select one of its configurations: %s", strings.Join(names, ", "))
		}
		selected = names[0]
	}
	rules, ok := file.Configs[selected]
	if !ok {
		return partition.Goal{}, fmt.Errorf("read mig-parted's file: no configuration %q; it has %s", selected, strings.Join(names, ", "))
	}
	g := partition.Goal{Schema: partition.SchemaGoal}
	for i, r := range rules {
		switch {
		case r.Devices == nil || r.Enabled == nil:
			return partition.Goal{}, fmt.Errorf("read mig-parted's file: %s: rule %d lacks devices or mig-enabled", selected, i+1)
		case *r.Enabled && r.MIG == nil:
			return partition.Goal{}, fmt.Errorf("read mig-parted's file: %s: rule %d lacks mig-devices", selected, i+1)
		}
		rule := partition.Rule{
			Match: partition.Match{Vendor: []string{"nvidia"}, Model: r.Filter},
			Wants: partition.Wants{partition.TechniqueMIG: &Goal{Enabled: *r.Enabled, Devices: r.MIG}},
		}
		if !r.Devices.all {
			rule.Match.Index = r.Devices.index
			if rule.Match.Index == nil {
				rule.Match.Index = []int{}
			}
		}
		g.Cards = append(g.Cards, rule)
	}
	if len(g.Cards) == 0 {
		return partition.Goal{}, fmt.Errorf("read mig-parted's file: configuration %s is empty", selected)
	}
	return g, g.Validate()
}

// unwrap finds mig-parted's file among the texts of a ConfigMap.
func unwrap(raw []byte) ([]byte, error) {
	var wrapped struct {
		Data map[string]string `yaml:"data"`
	}
	if err := yaml.NewDecoder(bytes.NewReader(raw)).Decode(&wrapped); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(wrapped.Data)) {
		if text := []byte(wrapped.Data[name]); strings.Contains(wrapped.Data[name], "mig-configs") {
			if form, err := formOf(text); err == nil && form == formParted {
				return text, nil
			}
		}
	}
	return nil, fmt.Errorf("the ConfigMap holds no file of mig-parted")
}

// Selections lists the configurations of a file, none for Divvy's own form.
func Selections(raw []byte) []string {
	form, err := formOf(raw)
	if err != nil || form == formOwn {
		return nil
	}
	if form == formConfigMap {
		if raw, err = unwrap(raw); err != nil {
			return nil
		}
	}
	var file partedFile
	if partition.Decode(raw, &file) != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(file.Configs))
}

// PartedYAML writes a goal as mig-parted's file with one configuration. UUIDs
// and addresses have no place there.
func PartedYAML(g partition.Goal, name string) ([]byte, error) {
	type rule struct {
		Filter  []string       `yaml:"device-filter,flow,omitempty"`
		Devices any            `yaml:"devices,flow"`
		Enabled bool           `yaml:"mig-enabled"`
		MIG     map[string]int `yaml:"mig-devices"`
	}
	var rules []rule
	for i, r := range g.Cards {
		if r.Match.UUID != nil || r.Match.Address != nil {
			return nil, fmt.Errorf("rule %d matches by UUID or address, which mig-parted's files cannot say", i+1)
		}
		want, ok := r.Wants[partition.TechniqueMIG].(*Goal)
		if !ok || len(r.Wants) > 1 {
			return nil, fmt.Errorf("rule %d is not about MIG alone, and mig-parted's files speak of nothing else", i+1)
		}
		out := rule{Filter: r.Match.Model, Devices: "all", Enabled: want.Enabled, MIG: want.Devices}
		if r.Match.Index != nil {
			out.Devices = r.Match.Index
		}
		if out.MIG == nil {
			out.MIG = map[string]int{}
		}
		rules = append(rules, out)
	}
	return yaml.Marshal(struct {
		Version string            `yaml:"version"`
		Configs map[string][]rule `yaml:"mig-configs"`
	}{"v1", map[string][]rule{name: rules}})
}
