// SPDX-License-Identifier: Apache-2.0

package placement

import "strings"

// Geometry says how a card model may be partitioned: which profiles, how wide
// and where each may start. Facts: data/mig-profiles.yaml.
type Geometry struct {
	Product   string
	Units     int8 // of the placement axis
	MaxSlices int8 // compute slices in all
	Profiles  []Profile
}

// Profile is one MIG profile of a card model.
type Profile struct {
	Name   string
	Slices int8 // compute slices
	Width  int8 // memory units
	Most   int8 // instances a card can hold
	Starts []int8
}

// profile finds a profile by name, nil when the model lacks it.
func (g *Geometry) profile(name string) *Profile {
	for i := range g.Profiles {
		if g.Profiles[i].Name == name {
			return &g.Profiles[i]
		}
	}
	return nil
}

// partition is what is taken of a card in MIG mode; with a nil geometry the
// card is not in MIG mode.
type partition struct {
	geometry *Geometry
	taken    uint16 // memory units
	slices   int8   // compute slices
	held     [24]int8
}

func (p *Profile) units(start int8) uint16 { return (1<<p.Width - 1) << start }

// fits returns the start at which the profile leaves the most room, or -1.
func (p *partition) fits(name string) int8 {
	if p.geometry == nil {
		return -1
	}
	index := -1
	for i := range p.geometry.Profiles {
		if p.geometry.Profiles[i].Name == name {
			index = i
		}
	}
	if index < 0 {
		return -1
	}
	f := &p.geometry.Profiles[index]
	if p.slices+f.Slices > p.geometry.MaxSlices || p.held[index] >= f.Most {
		return -1
	}
	best, most := int8(-1), -1
	for _, s := range f.Starts {
		u := f.units(s)
		if p.taken&u != 0 {
			continue
		}
		if room := p.geometry.room(p.taken|u, p.slices+f.Slices); room > most {
			best, most = s, room
		}
	}
	return best
}

// room counts the (profile, start) pairs still open, each weighted by its
// slices, so that keeping a large profile possible outweighs a small one.
func (g *Geometry) room(taken uint16, slices int8) int {
	sum := 0
	for i := range g.Profiles {
		f := &g.Profiles[i]
		if slices+f.Slices > g.MaxSlices {
			continue
		}
		for _, s := range f.Starts {
			if taken&f.units(s) == 0 {
				sum += int(f.Slices)
			}
		}
	}
	return sum
}

// change takes or gives back a partition and returns its part of the card in
// thousandths.
func (p *partition) change(name string, start int8, take bool) int32 {
	for i := range p.geometry.Profiles {
		f := &p.geometry.Profiles[i]
		if f.Name != name {
			continue
		}
		if take {
			p.taken |= f.units(start)
			p.slices += f.Slices
			p.held[i]++
		} else {
			p.taken &^= f.units(start)
			p.slices -= f.Slices
			p.held[i]--
		}
		return int32(f.Slices) * WholeCard / int32(p.geometry.MaxSlices)
	}
	return 0
}

// profileSlices reads the compute slices off a profile's name ("3g.40gb": 3).
func profileSlices(name string) int64 {
	digits, _, ok := strings.Cut(name, "g.")
	if !ok {
		return 0
	}
	var n int64
	for _, d := range digits {
		if d < '0' || d > '9' || n > 100 {
			return 0
		}
		n = n*10 + int64(d-'0')
	}
	return n
}
