// SPDX-License-Identifier: Apache-2.0

// Package partition turns what cards should be into steps: a file of desired
// states, the state that is observed, a plan with the reason of each step,
// and its execution with verification, rollback and recovery after a crash. How
// a card is divided is a Technique's; MIG is here, others have rooms below this
// one. It opens no files and asks no driver: those are given to it.
package partition

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/divvy-gpu/divvy/internal/mig"
)

// Schema names of the documents.
const (
	SchemaState = "divvy.partition.state/v1"
	SchemaGoal  = "divvy.partition/v1"
	SchemaPlan  = "divvy.partition.plan/v1"
)

// Bounds on what a file may hold.
const (
	maxDocument  = 1 << 20
	maxCards     = 1024
	maxInstances = 16 // of one card
	maxRules     = 4096
)

// State is how the cards of one machine are partitioned.
type State struct {
	Schema string `yaml:"schema" json:"schema"`
	Cards  []Card `yaml:"cards" json:"cards"`
}

// Card is one card: what it is, and one field a technique that it can be divided
// by.
type Card struct {
	// Index counts NVIDIA's cards first, as their driver and mig-parted's files do,
	// then the others in the order of the bus.
	Index    int    `yaml:"index" json:"index"`
	Vendor   string `yaml:"vendor,omitempty" json:"vendor,omitempty"` // absent: nvidia
	UUID     string `yaml:"uuid" json:"uuid"`                         // the vendor's lasting name; without one: the address
	Address  string `yaml:"address,omitempty" json:"address,omitempty"`
	Name     string `yaml:"name" json:"name"`
	DeviceID string `yaml:"deviceId,omitempty" json:"deviceId,omitempty"` // 0x2330
	Driver   string `yaml:"driver,omitempty" json:"driver,omitempty"`     // of the kernel, that has the card
	MIG      bool   `yaml:"mig" json:"mig"`                               // its mode is on
	// MIGUnknown says that only NVIDIA's driver could tell, and was not asked.
	MIGUnknown bool         `yaml:"migUnknown,omitempty" json:"migUnknown,omitempty"`
	Processes  []Process    `yaml:"processes,omitempty" json:"processes,omitempty"`
	Instances  []Instance   `yaml:"instances,omitempty" json:"instances,omitempty"`
	AMD        *AMDModes    `yaml:"amd,omitempty" json:"amd,omitempty"`
	SRIOV      *Functions   `yaml:"sriov,omitempty" json:"sriov,omitempty"`
	VGPU       *Hosts       `yaml:"vgpu,omitempty" json:"vgpu,omitempty"`
	GVTg       *Hosts       `yaml:"gvtg,omitempty" json:"gvtg,omitempty"`
	VFIO       *Passthrough `yaml:"vfio,omitempty" json:"vfio,omitempty"`
	MPS        *Daemon      `yaml:"mps,omitempty" json:"mps,omitempty"`
	Replicas   *Replicas    `yaml:"replicas,omitempty" json:"replicas,omitempty"`
	// Shares are the agent's shares of the whole card.
	Shares []string `yaml:"shares,omitempty,flow" json:"shares,omitempty"`
	// Model is the card's model as its own driver tells of it; nil: no driver was
	// asked, or it does not tell, and the table counts.
	Model *mig.Product `yaml:"-" json:"-"`
	// Awaits is set by a technique's Aim that cannot tell all of what a rule wants
	// before the steps so far were taken: what it waits to know.
	Awaits string `yaml:"-" json:"-"`
}

// ID is what a driver finds the card by: its PCI address, which it keeps under
// every driver; where none is known the UUID.
func (c Card) ID() string {
	if c.Address != "" {
		return c.Address
	}
	return c.UUID
}

func (c Card) vendor() string {
	if c.Vendor == "" {
		return "nvidia"
	}
	return c.Vendor
}

// divided is how a card is divided by one technique.
type divided interface {
	validate() error
	// layout words it, alike for alike states whoever uses what.
	layout() string
	// parts names what the card is divided into.
	parts() []string
	// lines words it for people, with what layout leaves out.
	lines() []string
}

// divided lists how the card is divided, in the order of Explanations. MIG, whose
// fields are the card's own, is not among them.
func (c Card) divided() []divided {
	var all []divided
	if c.AMD != nil {
		all = append(all, c.AMD)
	}
	if c.SRIOV != nil {
		all = append(all, c.SRIOV)
	}
	if c.VGPU != nil {
		all = append(all, c.VGPU)
	}
	if c.GVTg != nil {
		all = append(all, c.GVTg)
	}
	if c.VFIO != nil {
		all = append(all, c.VFIO)
	}
	if c.MPS != nil {
		all = append(all, c.MPS)
	}
	if c.Replicas != nil {
		all = append(all, c.Replicas)
	}
	return all
}

// Process is one that uses a card or an instance.
type Process struct {
	PID     int    `yaml:"pid" json:"pid"`
	Command string `yaml:"command,omitempty" json:"command,omitempty"`
}

// Instance is a GPU instance with its compute instances.
type Instance struct {
	ID      int    `yaml:"id" json:"id"` // the driver's number; new ones get others
	Profile string `yaml:"profile" json:"profile"`
	Start   int    `yaml:"start" json:"start"` // placement unit
	// Compute lists the slices of each compute instance; absent or null: one of all
	// slices.
	Compute []int `yaml:"compute,flow" json:"compute"`
	// Devices are the UUIDs (MIG-...) by which programs ask for these compute
	// instances, where the driver tells.
	Devices   []string  `yaml:"devices,omitempty,flow" json:"devices,omitempty"`
	Processes []Process `yaml:"processes,omitempty" json:"processes,omitempty"`
}

// ParseState reads a state, in YAML or JSON.
func ParseState(raw []byte) (State, error) {
	var s State
	if err := decode(raw, &s); err != nil {
		return s, fmt.Errorf("read the state: %w", err)
	}
	return s, s.validate()
}

func (s State) validate() error {
	if s.Schema != SchemaState {
		return fmt.Errorf("read the state: schema %q is not %s", s.Schema, SchemaState)
	}
	if len(s.Cards) > maxCards {
		return fmt.Errorf("read the state: more than %d cards", maxCards)
	}
	seen := map[string]bool{}
	for _, c := range s.Cards {
		switch {
		case c.UUID == "" || seen[c.UUID]:
			return fmt.Errorf("read the state: card %d: UUID %q is missing or there twice", c.Index, c.UUID)
		case len(c.Instances) > maxInstances:
			return fmt.Errorf("read the state: card %s: more than %d instances", c.UUID, maxInstances)
		case !c.MIG && len(c.Instances) > 0:
			return fmt.Errorf("read the state: card %s has instances, but its MIG mode is off", c.UUID)
		}
		seen[c.UUID] = true
		for _, d := range c.divided() {
			if err := d.validate(); err != nil {
				return fmt.Errorf("read the state: card %s: %w", c.UUID, err)
			}
		}
	}
	return nil
}

// decode reads one YAML or JSON document and refuses unknown fields.
func decode(raw []byte, into any) error {
	if len(raw) > maxDocument {
		return fmt.Errorf("longer than %d bytes", maxDocument)
	}
	if bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) {
		// JSON is YAML, but for tabs between its tokens; within strings it has none.
		raw = bytes.ReplaceAll(raw, []byte("\t"), []byte(" "))
	}
	decoder := yaml.NewDecoder(bytes.NewReader(raw))
	decoder.KnownFields(true)
	return decoder.Decode(into)
}

// computes is the slices of the compute instances, ascending.
func (i Instance) computes() []int {
	if i.Compute != nil {
		return sorted(i.Compute)
	}
	if n := mig.SlicesOf(i.Profile); n > 0 {
		return []int{n}
	}
	return []int{}
}

// same says whether two instances are the same kind at the same place.
func (i Instance) same(o Instance) bool { return i.Profile == o.Profile && i.Start == o.Start }

// Layout words how a card is divided, alike for alike layouts whatever numbers
// the driver gave and whoever uses it.
func (c Card) Layout() string {
	var words []string
	switch {
	case c.MIG:
		var instances []string
		for _, i := range c.Instances {
			instances = append(instances, fmt.Sprintf("%02d:%s%v", i.Start, i.Profile, i.computes()))
		}
		slices.Sort(instances)
		words = append(words, "MIG on "+strings.Join(instances, " "))
	case c.vendor() == "nvidia" && !c.MIGUnknown:
		words = append(words, "MIG off")
	}
	for _, d := range c.divided() {
		if word := d.layout(); word != "" {
			words = append(words, word)
		}
	}
	if len(words) == 0 {
		return "whole"
	}
	return strings.Join(words, "; ")
}

// Lines words how a card is divided by each technique but MIG.
func (c Card) Lines() []string {
	lines := []string{}
	for _, d := range c.divided() {
		lines = append(lines, d.lines()...)
	}
	return lines
}

// parts names what a card is divided into.
func (c Card) parts() []string {
	var names []string
	for _, i := range c.Instances {
		names = append(names, fmt.Sprintf("%s at %d", i.Profile, i.Start))
	}
	for _, d := range c.divided() {
		names = append(names, d.parts()...)
	}
	return names
}

func sorted(list []int) []int {
	list = slices.Clone(list)
	slices.Sort(list)
	return list
}

// Describe words processes.
func Describe(processes []Process) string {
	var words []string
	for _, p := range processes {
		word := fmt.Sprint(p.PID)
		if p.Command != "" {
			word += " (" + p.Command + ")"
		}
		words = append(words, word)
	}
	return strings.Join(words, ", ")
}

// ErrImpossible says that a goal cannot be reached, whatever is given up for it.
var ErrImpossible = errors.New("impossible")

// ErrSpared says that a goal is reached with force only: it takes what the machine
// itself needs.
var ErrSpared = errors.New("spared")

// ErrInUse says that a goal can be reached only by destroying what is in use.
var ErrInUse = errors.New("in use")
