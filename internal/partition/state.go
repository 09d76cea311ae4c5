// SPDX-License-Identifier: Apache-2.0

// Package partition turns what cards should be into steps: a file of desired
// states, the state that is observed, a plan with the reason of each step,
// and its execution with verification, rollback and recovery after a crash. How
// a card is divided is a Technique's, each of which has a room below this one with
// all that is its own; package machine puts them together. It opens no files and
// asks no driver: those are given to it.
package partition

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Schema names of the documents.
const (
	SchemaState = "divvy.partition.state/v1"
	SchemaGoal  = "divvy.partition/v1"
	SchemaPlan  = "divvy.partition.plan/v1"
)

// Bounds on what a file may hold.
const (
	MaxDocument = 1 << 20
	maxCards    = 1024
	maxRules    = 4096
)

// State is how the cards of one machine are partitioned.
type State struct {
	Schema string `json:"schema"`
	Cards  []Card `json:"cards"`
}

// Card is one card: what it is, and how it is divided.
type Card struct {
	// Index counts NVIDIA's cards first, as their driver and mig-parted's files do,
	// then the others in the order of the bus.
	Index     int       `yaml:"index" json:"index"`
	Vendor    string    `yaml:"vendor,omitempty" json:"vendor,omitempty"` // absent: nvidia
	UUID      string    `yaml:"uuid" json:"uuid"`                         // the vendor's lasting name; without one: the address
	Address   string    `yaml:"address,omitempty" json:"address,omitempty"`
	Name      string    `yaml:"name" json:"name"`
	DeviceID  string    `yaml:"deviceId,omitempty" json:"deviceId,omitempty"` // 0x2330
	Driver    string    `yaml:"driver,omitempty" json:"driver,omitempty"`     // of the kernel, that has the card
	Processes []Process `yaml:"processes,omitempty" json:"processes,omitempty"`
	// Shares are the agent's shares of the whole card.
	Shares []string `yaml:"shares,omitempty,flow" json:"shares,omitempty"`
	// Holders have files of the card open, those that only ask its driver too.
	Holders []Process `yaml:"-" json:"-"`
	// Divided is how it is divided, by technique; in documents each has a field of
	// the card. It is not changed, but replaced: see With.
	Divided map[string]Division `yaml:"-" json:"-"`
	// Awaits is set by a technique's Aim that cannot tell all of what a rule wants
	// before the steps so far were taken: what it waits to know.
	Awaits string `yaml:"-" json:"-"`

	unread map[string]json.RawMessage // fields that techniques have to read
}

// ID is what a driver finds the card by: its PCI address, which it keeps under
// every driver; where none is known the UUID.
func (c Card) ID() string {
	if c.Address != "" {
		return c.Address
	}
	return c.UUID
}

// NVIDIA says whether it is a card of NVIDIA.
func (c Card) NVIDIA() bool { return c.vendor() == vendorNVIDIA }

const vendorNVIDIA = "nvidia"

func (c Card) vendor() string {
	if c.Vendor == "" {
		return vendorNVIDIA
	}
	return c.Vendor
}

// Process is one that uses a card or a part of it.
type Process struct {
	PID     int    `yaml:"pid" json:"pid"`
	Command string `yaml:"command,omitempty" json:"command,omitempty"`
}

// Validate says what is wrong with a state.
func (s State) Validate() error {
	if s.Schema != SchemaState {
		return fmt.Errorf("read the state: schema %q is not %s", s.Schema, SchemaState)
	}
	if len(s.Cards) > maxCards {
		return fmt.Errorf("read the state: more than %d GPUs", maxCards)
	}
	seen := map[string]bool{}
	for _, c := range s.Cards {
		if c.UUID == "" || seen[c.UUID] {
			return fmt.Errorf("read the state: GPU %d: UUID %q is missing or there twice", c.Index, c.UUID)
		}
		seen[c.UUID] = true
		for _, known := range inOrder {
			if d := c.Divided[known.name]; d != nil {
				if err := d.Validate(); err != nil {
					return fmt.Errorf("read the state: GPU %s: %w", c.UUID, err)
				}
			}
		}
	}
	return nil
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

// Division is how a card is divided by one technique, or what it could be.
type Division interface {
	Validate() error
	// Layout words it, alike for alike divisions whoever uses what; empty: it says
	// nothing.
	Layout(c Card) string
}

// apart is a Division that names what the card is divided into.
type apart interface{ Parts() []string }

// worded is a Division that is worded for people, with what Layout leaves out.
type worded interface{ Lines() []string }

// asked is a Division of which another state of the card may ask less than all, since
// it does not know of it; nil: nothing. Of a Division that is not asked for by one of
// its kind nothing is asked, where this does not say otherwise.
type asked interface{ Asking(other Division) Division }

// unsure is a Division of which less counts than it says beside what is seen now:
// what nobody can tell there.
type unsure interface{ Beside(now Card) Division }

// questioned is a Division of which more or less counts, as another state asks that
// knows of it.
type questioned interface{ Asked(other Division) Division }

// With returns the card divided so by a technique; nil: not known.
func (c Card) With(technique string, d Division) Card {
	c.Divided = maps.Clone(c.Divided)
	if d == nil {
		delete(c.Divided, technique)
		return c
	}
	if c.Divided == nil {
		c.Divided = map[string]Division{}
	}
	c.Divided[technique] = d
	return c
}

// DivisionOf is how a card is divided by a technique, as its own type; the zero value
// where nobody told.
func DivisionOf[D Division](c Card, technique string) D {
	d, _ := c.Divided[technique].(D)
	return d
}

// each visits the card's divisions in order.
func (c Card) each(visit func(name string, d Division)) {
	for _, known := range inOrder {
		if d := c.Divided[known.name]; d != nil {
			visit(known.name, d)
		}
	}
}

// asking is a card seen with the questions of another state of it: what that one
// does not know of may be anything, such as what a driver that comes back shows.
func (c Card) asking(o Card) Card {
	c.each(func(name string, d Division) {
		other := o.Divided[name]
		if a, ok := d.(asked); ok {
			c = c.With(name, a.Asking(other))
		} else if other == nil {
			c = c.With(name, nil)
		}
	})
	return c
}

// asked is a card with the settings in question of which another state speaks.
func (c Card) asked(o Card) Card {
	c.each(func(name string, d Division) {
		if q, ok := d.(questioned); ok && o.Divided[name] != nil {
			c = c.With(name, q.Asked(o.Divided[name]))
		}
	})
	return c
}

// alike says whether a card is as it should be, in what the other state asks.
func (c Card) alike(o Card) bool {
	c = c.asking(o)
	o.each(func(name string, d Division) {
		if u, ok := d.(unsure); ok {
			o = o.With(name, u.Beside(c))
		}
	})
	return c.Layout() == o.Layout()
}

// Layout words how a card is divided, alike for alike layouts whatever numbers
// the driver gave and whoever uses it.
func (c Card) Layout() string {
	var words []string
	c.each(func(_ string, d Division) {
		if word := d.Layout(c); word != "" {
			words = append(words, word)
		}
	})
	if len(words) == 0 {
		return "whole"
	}
	return strings.Join(words, "; ")
}

// Lines words how a card is divided.
func (c Card) Lines() []string {
	lines := []string{}
	c.each(func(_ string, d Division) {
		if w, ok := d.(worded); ok {
			lines = append(lines, w.Lines()...)
		}
	})
	return lines
}

// parts names what a card is divided into.
func (c Card) parts() []string {
	var names []string
	c.each(func(_ string, d Division) {
		if a, ok := d.(apart); ok {
			names = append(names, a.Parts()...)
		}
	})
	return names
}

// count sums up what becomes of parts.
func count(before, after Card) (kept, destroyed int) {
	stay := after.parts()
	for _, part := range before.parts() {
		if slices.Contains(stay, part) {
			kept++
		} else {
			destroyed++
		}
	}
	return kept, destroyed
}
