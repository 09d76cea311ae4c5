// SPDX-License-Identifier: Apache-2.0

package partition

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// TechniqueAMD is AMD's partition modes.
const TechniqueAMD = "amd-partition"

// AMD is the modes that are wanted; an absent one stays as it is.
type AMD struct {
	Compute string `yaml:"compute,omitempty" json:"compute,omitempty"` // SPX, DPX, TPX, QPX, CPX
	Memory  string `yaml:"memory,omitempty" json:"memory,omitempty"`   // NPS1, NPS2, NPS4, NPS8
}

func (a *AMD) validate() error {
	if a.Compute == "" && a.Memory == "" {
		return errors.New("neither compute nor memory is given")
	}
	for _, mode := range []string{a.Compute, a.Memory} {
		if err := checkMode(mode); err != nil {
			return err
		}
	}
	return nil
}

// AMDModes is the modes of a card, and those that its driver offers.
type AMDModes struct {
	Compute      string   `yaml:"compute" json:"compute"`
	Memory       string   `yaml:"memory,omitempty" json:"memory,omitempty"`
	ComputeModes []string `yaml:"computeModes,flow" json:"computeModes"`
	MemoryModes  []string `yaml:"memoryModes,omitempty,flow" json:"memoryModes,omitempty"`
	// Hive is the addresses of the cards that XGMI joins, this one too: they have
	// one memory mode. Strangers are cards that may be joined with it too, but that
	// another driver has.
	Hive      []string `yaml:"hive,omitempty,flow" json:"hive,omitempty"`
	Strangers []string `yaml:"strangers,omitempty,flow" json:"strangers,omitempty"`
}

func (m *AMDModes) validate() error {
	for _, mode := range append([]string{m.Compute, m.Memory}, append(m.ComputeModes, m.MemoryModes...)...) {
		if err := checkMode(mode); err != nil {
			return err
		}
	}
	return nil
}

func (m *AMDModes) layout() string {
	return strings.TrimSuffix("partition mode "+m.Compute+"/"+m.Memory, "/")
}

func (m *AMDModes) parts() []string { return nil }

func (m *AMDModes) lines() []string {
	line := m.layout() + " of " + strings.Join(m.ComputeModes, ", ")
	if m.MemoryModes != nil {
		line += " and " + strings.Join(m.MemoryModes, ", ")
	}
	return []string{line}
}

func checkMode(mode string) error {
	if !regexp.MustCompile(`^([A-Z]{3}|NPS[1-9])?$`).MatchString(mode) {
		return fmt.Errorf("%q is no mode: they are called like CPX and NPS4", mode)
	}
	return nil
}
