// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"fmt"
	"slices"
)

// Difference is a fact that the table and a driver tell differently.
type Difference struct {
	Profile string // by the table's name where it has one
	What    string // name, starts, size, ...; empty: the profile itself
	Table   string
	Driver  string
}

// String shows a difference with both values.
func (d Difference) String() string {
	what := d.Profile
	if d.What != "" {
		what += ": " + d.What
	}
	return fmt.Sprintf("%s: %s in the table, %s by the driver", what, d.Table, d.Driver)
}

// memoryTolerance is how far a driver's memory may be from the table's, of which
// drivers of one model differ: one part in so many.
const memoryTolerance = 20

// WithDriver is a model as a card's own driver describes its profiles, and how
// that differs from the table, whose model it is (nil: the table does not know
// the card). Profiles are matched by NVML's number and their slices, not by name;
// the driver's name counts, and the table's is taken for it as well.
//
// What a driver does not tell follows from its profiles: the largest start and
// size are the card's units, and the profile of the whole card has all slices and
// engines.
func WithDriver(table *Product, card string, told []Profile) (*Product, []Difference, error) {
	p := &Product{Key: card, Names: []string{card}}
	if table != nil {
		*p = *table
		p.Units, p.Slices, p.Engines = 0, 0, Engines{}
	}
	p.Profiles = slices.Clone(told)
	for i := range p.Profiles {
		f := &p.Profiles[i]
		f.Starts = slices.Sorted(slices.Values(f.Starts))
		for _, start := range f.Starts {
			p.Units = max(p.Units, start+f.Size)
		}
		p.Slices = max(p.Slices, f.Slices)
		p.Engines = p.Engines.atLeast(f.Engines)
	}
	var differences []Difference
	if table != nil {
		differences = p.adopt(table)
	}
	if err := p.Validate(); err != nil {
		return nil, nil, fmt.Errorf("what the driver says of %s: %w", card, err)
	}
	return p, differences, nil
}

// adopt takes names over from the table and lists what it tells differently.
func (p *Product) adopt(table *Product) []Difference {
	var found []Difference
	for _, t := range table.Profiles {
		i := p.alike(t)
		if i < 0 {
			found = append(found, Difference{Profile: t.Name, Table: "there", Driver: "not there"})
			continue
		}
		f := &p.Profiles[i]
		found = append(found, f.differences(t)...)
		for _, name := range append([]string{t.Name}, t.Aliases...) {
			if name != f.Name && p.Index(name) < 0 {
				f.Aliases = append(f.Aliases, name)
			}
		}
	}
	for _, f := range p.Profiles {
		if table.alike(f) < 0 {
			found = append(found, Difference{Profile: f.Name, Table: "not there", Driver: "there"})
		}
	}
	return found
}

// alike finds the profile with the same number and slices, -1 if there is none.
func (p *Product) alike(f Profile) int {
	return slices.IndexFunc(p.Profiles, func(o Profile) bool { return o.NVML == f.NVML && o.Slices == f.Slices })
}

// differences compares the driver's profile with the table's. Numbers by which
// the driver calls it, and small differences of memory, are no news.
func (f Profile) differences(table Profile) []Difference {
	var found []Difference
	tell := func(what string, inTable, byDriver any) {
		if a, b := fmt.Sprint(inTable), fmt.Sprint(byDriver); a != b {
			found = append(found, Difference{Profile: table.Name, What: what, Table: a, Driver: b})
		}
	}
	if !slices.Contains(table.Aliases, f.Name) {
		tell("name", table.Name, f.Name)
	}
	tell("starts", table.Starts, f.Starts)
	tell("size", table.Size, f.Size)
	tell("most", table.Most, f.Most)
	tell("engines", table.Engines, f.Engines)
	if apart := f.MemoryMiB - table.MemoryMiB; max(apart, -apart)*memoryTolerance > table.MemoryMiB {
		tell("MiB", table.MemoryMiB, f.MemoryMiB)
	}
	return found
}

// atLeast is the larger number of each engine.
func (e Engines) atLeast(o Engines) Engines {
	return Engines{max(e.Dec, o.Dec), max(e.Enc, o.Enc), max(e.JPEG, o.JPEG), max(e.OFA, o.OFA)}
}

// String lists engines as the driver's tools call them.
func (e Engines) String() string {
	return fmt.Sprintf("%d decoders, %d encoders, %d JPEG, %d OFA", e.Dec, e.Enc, e.JPEG, e.OFA)
}
