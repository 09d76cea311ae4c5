// SPDX-License-Identifier: Apache-2.0

package sriov

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/partition"
)

// maxFunctions bounds the virtual functions of one card.
const maxFunctions = 256

// Goal is how many virtual functions are wanted, and how each is provisioned.
type Goal struct {
	VFs int `yaml:"vfs" json:"vfs"`
	// Autoprobe says whether the host's drivers take new functions; absent: as it
	// is.
	Autoprobe *bool `yaml:"autoprobe,omitempty" json:"autoprobe,omitempty"`
	// Each is settings of every function, by the kernel's own names; quotas of
	// memory are bytes.
	Each map[string]string `yaml:"each,omitempty" json:"each,omitempty"`
}

func (s *Goal) Validate() error {
	if s.VFs < 0 || s.VFs > maxFunctions {
		return fmt.Errorf("%d virtual functions", s.VFs)
	}
	if s.VFs == 0 && len(s.Each) > 0 {
		return errors.New("settings of functions, but no function")
	}
	return checkSettings(s.Each)
}

func checkSettings(settings map[string]string) error {
	for name, value := range settings {
		if !regexp.MustCompile(`^[a-z][a-z0-9_]{0,40}$`).MatchString(name) || !regexp.MustCompile(`^[a-z0-9]{1,20}$`).MatchString(value) {
			return fmt.Errorf("%q: %q is no setting: they are called like exec_quantum_ms, and are numbers or words", name, value)
		}
	}
	return nil
}

// Functions is the virtual functions of a card.
type Functions struct {
	Total     int    `yaml:"total" json:"total"` // that the card and its driver allow
	Driver    string `yaml:"driver,omitempty" json:"driver,omitempty"`
	Autoprobe *bool  `yaml:"autoprobe,omitempty" json:"autoprobe,omitempty"`
	// Tool is the program, below the root, that switches all functions of a card
	// whose driver takes no number; absent: there is none.
	Tool string `yaml:"tool,omitempty" json:"tool,omitempty"`
	// Users have the card open, which nobody may while Tool takes it from its driver.
	Users []partition.Process `yaml:"users,omitempty" json:"users,omitempty"`
	// Together are the addresses of the cards, this one too, whose functions the
	// driver makes when it is loaded. Parameters are what it was loaded with, without
	// their number.
	Together   []string `yaml:"together,omitempty,flow" json:"together,omitempty"`
	Parameters []string `yaml:"parameters,omitempty,flow" json:"parameters,omitempty"`
	// Places are where settings are; one is in all of them that have it.
	Places []Place    `yaml:"places,omitempty" json:"places,omitempty"`
	On     []Function `yaml:"on" json:"on"`
	// Wanted are the settings that a goal speaks of: others may be whatever the
	// driver makes them.
	Wanted []string `yaml:"asked,omitempty,flow" json:"asked,omitempty"`
}

// Place is a folder with settings of a function.
type Place struct {
	Folder string   `yaml:"folder" json:"folder"` // below the card's own, with VF where vf1 stands for the first
	Has    []string `yaml:"has,flow" json:"has"`
}

// Function is a virtual function that is on.
type Function struct {
	Address   string              `yaml:"address,omitempty" json:"address,omitempty"` // of those that exist
	Driver    string              `yaml:"driver,omitempty" json:"driver,omitempty"`
	Settings  map[string]string   `yaml:"settings,omitempty" json:"settings,omitempty"`
	Carries   string              `yaml:"carries,omitempty" json:"carries,omitempty"` // a vGPU
	Enabled   bool                `yaml:"enabled,omitempty" json:"enabled,omitempty"` // by its driver
	Processes []partition.Process `yaml:"processes,omitempty" json:"processes,omitempty"`
}

// Of is a card's virtual functions; nil: it has none, or nobody was asked.
func Of(c partition.Card) *Functions {
	return partition.DivisionOf[*Functions](c, partition.TechniqueSRIOV)
}

// Asking has those settings in question of which the other state speaks.
func (f *Functions) Asking(other partition.Division) partition.Division {
	if other == nil {
		return nil
	}
	return f.Asked(other)
}

// Asked is Asking where the other state knows of functions.
func (f *Functions) Asked(other partition.Division) partition.Division {
	seen := *f
	seen.Wanted = other.(*Functions).Wanted
	return &seen
}

// Brings says whether functions give cards back to a driver.
func (f *Functions) Brings(driver string) bool { return f.Together != nil && driver == f.Driver }

func (f *Functions) Validate() error {
	if len(f.On) > maxFunctions || f.Total < 0 || f.Total > 1<<16 {
		return fmt.Errorf("%d virtual functions of %d", len(f.On), f.Total)
	}
	for _, place := range f.Places {
		if strings.Contains(place.Folder, "..") {
			return fmt.Errorf("settings in %q", place.Folder)
		}
	}
	for _, vf := range f.On {
		if err := checkSettings(vf.Settings); err != nil {
			return err
		}
	}
	return nil
}

func (f *Functions) Layout(partition.Card) string {
	words := ""
	if len(f.On) > 0 {
		words = fmt.Sprintf("%d virtual functions", len(f.On))
	}
	if f.Autoprobe != nil && !*f.Autoprobe {
		words += ", virtual functions are not taken by the host's drivers"
	}
	for n, vf := range f.On {
		if settings := f.asked(vf, ""); settings != "" {
			words += fmt.Sprintf("; vf%d%s", n+1, settings)
		}
	}
	return words
}

// Parts are functions with the quotas for which they are made anew.
func (f *Functions) Parts() []string {
	var names []string
	for n, vf := range f.On {
		names = append(names, fmt.Sprintf("vf%d of %d%s", n+1, len(f.On), f.asked(vf, "_quota")))
	}
	return names
}

func (f *Functions) Lines() []string {
	lines := []string{fmt.Sprintf("%d of %d virtual functions", len(f.On), f.Total)}
	if f.Autoprobe != nil && !*f.Autoprobe {
		lines[0] += ", not taken by the host's drivers"
	}
	for n, vf := range f.On {
		words := []string{fmt.Sprintf("vf%d  %s  %s", n+1, vf.Address, vf.Driver)}
		for _, name := range slices.Sorted(maps.Keys(vf.Settings)) {
			words = append(words, name+"="+vf.Settings[name])
		}
		if vf.Carries != "" {
			words = append(words, "carries "+vf.Carries)
		}
		if len(vf.Processes) > 0 {
			words = append(words, "used by "+partition.Describe(vf.Processes))
		}
		lines = append(lines, strings.Join(words, "  "))
	}
	return lines
}

// asked words the settings of a function that the goal speaks of, those with a
// suffix.
func (f *Functions) asked(vf Function, suffix string) string {
	words := ""
	for _, name := range f.Wanted {
		if !strings.HasSuffix(name, suffix) {
			continue
		}
		words += " " + name + "=" + vf.Settings[name]
	}
	return words
}

// Names lists the settings that functions have.
func (f *Functions) Names() []string {
	var names []string
	for _, place := range f.Places {
		names = append(names, place.Has...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
