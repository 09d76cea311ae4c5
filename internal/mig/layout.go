// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"slices"
	"strconv"
	"strings"
)

// Layout is what instances take of a card of one model. The zero Layout with a
// Product is an empty card; a copy is a layout of its own, and equal ones compare
// equal.
type Layout struct {
	Product *Product // nil: the card has no MIG
	taken   uint32   // placement units
	slices  int
	engines Engines
	held    [maxProfiles]int8 // by profile
}

func (f *Profile) units(start int) uint32 { return (1<<f.Size - 1) << start }

// beside says whether one more instance of profile i goes with the others,
// wherever it starts.
func (l *Layout) beside(i int) bool {
	f := &l.Product.Profiles[i]
	return l.slices+f.Slices <= l.Product.Slices && int(l.held[i]) < f.Most && l.engines.Plus(f.Engines).Within(l.Product.Engines)
}

// Opens says whether one more instance of profile i may start there, which is one
// of the profile's starts.
func (l *Layout) Opens(i, start int) bool {
	return l.taken&l.Product.Profiles[i].units(start) == 0 && l.beside(i)
}

// Open says whether one more instance of profile i fits somewhere.
func (l *Layout) Open(i int) bool {
	f := &l.Product.Profiles[i]
	return l.beside(i) && slices.ContainsFunc(f.Starts, func(s int) bool { return l.taken&f.units(s) == 0 })
}

// Add takes an instance of profile i at a start that Opens.
func (l *Layout) Add(i, start int) {
	f := &l.Product.Profiles[i]
	l.taken |= f.units(start)
	l.slices += f.Slices
	l.engines = l.engines.Plus(f.Engines)
	l.held[i]++
}

// Drop gives back what Add took.
func (l *Layout) Drop(i, start int) {
	f := &l.Product.Profiles[i]
	l.taken &^= f.units(start)
	l.slices -= f.Slices
	l.engines = l.engines.minus(f.Engines)
	l.held[i]--
}

// Shut takes all of an empty card, as for one that serves as a whole.
func (l *Layout) Shut() { l.taken, l.slices = ^uint32(0), l.Product.Slices }

// Free is the compute slices that nothing has.
func (l *Layout) Free() int { return l.Product.Slices - l.slices }

// Room weighs what could still be made, each profile at each start, by the square
// of its slices, so that keeping a large one possible outweighs keeping a small
// one.
func (l *Layout) Room() int {
	sum := 0
	for i := range l.Product.Profiles {
		if !l.beside(i) {
			continue
		}
		f := &l.Product.Profiles[i]
		for _, s := range f.Starts {
			if l.taken&f.units(s) == 0 {
				sum += f.Slices * f.Slices
			}
		}
	}
	return sum
}

// Best is the start at which an instance of profile i leaves the most room, -1
// where it does not fit. Equal room goes to the higher start: that fills the units
// first that only small profiles can reach.
func (l *Layout) Best(i int) int {
	best, most := -1, -1
	for _, s := range l.Product.Profiles[i].Starts {
		if !l.Opens(i, s) {
			continue
		}
		after := *l
		after.Add(i, s)
		if room := after.Room(); room >= most {
			best, most = s, room
		}
	}
	return best
}

// Plain says whether the profile is one of compute and memory alone: others have
// more or fewer engines, or graphics.
func (f *Profile) Plain() bool { return strings.HasSuffix(f.Name, "gb") }

// Memory is an instance's memory in MiB by the table; where no listing of the
// model was seen, seven eighths of the gigabytes in its name, which is less than
// any listing has.
func (f *Profile) Memory() int {
	if f.MemoryMiB > 0 {
		return f.MemoryMiB
	}
	_, rest, _ := strings.Cut(f.Name, "g.")
	digits, _, _ := strings.Cut(rest, "gb")
	gib, err := strconv.Atoi(digits)
	if err != nil {
		return 0
	}
	return gib * 1024 * 7 / 8
}

// SlicesOf reads the compute slices off a profile's name ("3g.40gb": 3); 0: it is
// none.
func SlicesOf(name string) int {
	digits, _, ok := strings.Cut(name, "g.")
	n, err := strconv.ParseUint(digits, 10, 8)
	if !ok || err != nil {
		return 0
	}
	return int(n)
}
