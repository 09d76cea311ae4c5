// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"math"
	"slices"
	"strings"
)

// Geometry says how a card model may be partitioned: which profiles, how wide
// and where each may start. Facts: data/mig-profiles.yaml.
type Geometry struct {
	Product   string
	Names     []string // what drivers call such cards
	Units     int8     // of the placement axis
	MaxSlices int8     // compute slices in all
	Profiles  []Profile
}

// Profile is one MIG profile of a card model.
type Profile struct {
	Name   string
	Slices int8 // compute slices
	Width  int8 // memory units
	Most   int8 // instances a card can hold
	Starts []int8
	Media  bool // needs the one optical-flow engine
}

func (p *Profile) units(start int8) uint16 { return (1<<p.Width - 1) << start }

// maxProfiles bounds the profiles of one geometry.
const maxProfiles = 12

// partition is what is taken of a card in MIG mode; with a nil geometry the
// card is not in MIG mode.
type partition struct {
	geometry *Geometry
	taken    uint16 // memory units
	slices   int8   // compute slices
	media    bool
	held     [maxProfiles]int8
}

// index finds a profile by name, -1 when the model lacks it.
func (g *Geometry) index(name string) int {
	for i := range g.Profiles {
		if g.Profiles[i].Name == name {
			return i
		}
	}
	return -1
}

// opens reports whether one more instance of profile i may start at s.
func (p *partition) opens(i int, s int8) bool {
	f := &p.geometry.Profiles[i]
	return p.taken&f.units(s) == 0 && p.slices+f.Slices <= p.geometry.MaxSlices && p.held[i] < f.Most && !(f.Media && p.media)
}

// fits returns the start at which the profile leaves the most room, or -1.
// Equal room goes to the higher start: that fills the units only small
// profiles can reach first.
func (p *partition) fits(name string) int8 {
	if p.geometry == nil {
		return -1
	}
	i := p.geometry.index(name)
	if i < 0 {
		return -1
	}
	best, most := int8(-1), -1
	for _, s := range p.geometry.Profiles[i].Starts {
		if !p.opens(i, s) {
			continue
		}
		after := *p
		after.add(i, s)
		if room := after.room(); room >= most {
			best, most = s, room
		}
	}
	return best
}

// open reports whether the profile fits somewhere.
func (p *partition) open(name string) bool {
	if p.geometry == nil {
		return false
	}
	i := p.geometry.index(name)
	return i >= 0 && slices.ContainsFunc(p.geometry.Profiles[i].Starts, func(s int8) bool { return p.opens(i, s) })
}

// close shuts an empty card for profiles while it serves as a whole, and opens
// it again.
func (p *partition) close(shut bool) {
	switch {
	case p.geometry == nil:
	case shut:
		p.taken, p.slices = math.MaxUint16, p.geometry.MaxSlices
	default:
		p.taken, p.slices = 0, 0
	}
}

// room weighs the (profile, start) pairs still open by their slices, so that
// keeping a large profile possible outweighs keeping a small one.
func (p *partition) room() int {
	sum := 0
	for i := range p.geometry.Profiles {
		f := &p.geometry.Profiles[i]
		for _, s := range f.Starts {
			if p.opens(i, s) {
				sum += int(f.Slices) * int(f.Slices)
			}
		}
	}
	return sum
}

func (p *partition) add(i int, s int8) {
	f := &p.geometry.Profiles[i]
	p.taken |= f.units(s)
	p.slices += f.Slices
	p.held[i]++
	p.media = p.media || f.Media
}

func (p *partition) drop(i int, s int8) {
	f := &p.geometry.Profiles[i]
	p.taken &^= f.units(s)
	p.slices -= f.Slices
	p.held[i]--
	p.media = p.media && !f.Media
}

// milli is the card's free part by compute slices, in thousandths.
func (p *partition) milli() int32 {
	return WholeCard * int32(p.geometry.MaxSlices-p.slices) / int32(p.geometry.MaxSlices)
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
