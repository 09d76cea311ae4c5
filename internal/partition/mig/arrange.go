// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"fmt"
	"math/bits"
	"slices"

	facts "github.com/divvy-gpu/divvy/internal/mig"
)

// item is one GPU instance that is wanted: a profile and its compute instances.
type item struct {
	profile int
	compute []int // slices of each, ascending
}

// held is an instance that exists.
type held struct {
	item
	start int
	busy  bool
}

// arrangement is how a goal is reached: which instances stay, each as which
// item, and where the other items go.
type arrangement struct {
	stays  map[int]int // index of what is held -> index of the item
	starts map[int]int // index of the item -> start, for those that are made

	destroyed, busy, recomputed, room int
}

// better says whether a costs less than b: fewer instances destroyed, fewer of
// them in use, fewer whose compute instances are made anew, more room left.
func (a *arrangement) better(b *arrangement) bool {
	if b == nil {
		return true
	}
	for _, d := range [...]int{a.destroyed - b.destroyed, a.busy - b.busy, a.recomputed - b.recomputed, b.room - a.room} {
		if d != 0 {
			return d < 0
		}
	}
	return false
}

// arrange finds the best arrangement of the items, nil if there is none. Without
// force nothing that is in use is destroyed or changed.
func arrange(p *facts.Product, have []held, want []item, force bool) *arrangement {
	var best *arrangement
	subsets := make([]uint32, 1<<len(have))
	for i := range subsets {
		subsets[i] = uint32(i)
	}
	slices.SortStableFunc(subsets, func(a, b uint32) int { return bits.OnesCount32(a) - bits.OnesCount32(b) })
	for _, gone := range subsets {
		destroyed := bits.OnesCount32(gone)
		if best != nil && destroyed > best.destroyed {
			break
		}
		if a := arrangeWithout(p, have, want, gone, force); a != nil && a.better(best) {
			best = a
		}
	}
	return best
}

// arrangeWithout destroys a given set and keeps the others.
func arrangeWithout(p *facts.Product, have []held, want []item, gone uint32, force bool) *arrangement {
	l := facts.Layout{Product: p}
	a := &arrangement{stays: map[int]int{}, starts: map[int]int{}, destroyed: bits.OnesCount32(gone)}
	used := make([]bool, len(want))
	var unequal []int
	for h, e := range have {
		if gone&(1<<h) != 0 {
			if e.busy {
				a.busy++
			}
			continue
		}
		l.Add(e.profile, e.start)
		equal := slices.IndexFunc(want, func(w item) bool { return w.profile == e.profile && slices.Equal(w.compute, e.compute) })
		for equal >= 0 && used[equal] {
			next := slices.IndexFunc(want[equal+1:], func(w item) bool { return w.profile == e.profile && slices.Equal(w.compute, e.compute) })
			if equal += next + 1; next < 0 {
				equal = -1
			}
		}
		if equal < 0 {
			unequal = append(unequal, h)
			continue
		}
		used[equal] = true
		a.stays[h] = equal
	}
	for _, h := range unequal {
		i := -1
		for w := range want {
			if !used[w] && want[w].profile == have[h].profile {
				i = w
				break
			}
		}
		if i < 0 {
			return nil // nothing wants what is kept
		}
		if have[h].busy {
			a.busy++
		}
		used[i] = true
		a.stays[h] = i
		a.recomputed++
	}
	if a.busy > 0 && !force {
		return nil
	}
	var rest []int
	for i := range want {
		if !used[i] {
			rest = append(rest, i)
		}
	}
	// Large ones first; equal ones next to each other, so that their order need
	// not be tried.
	slices.SortStableFunc(rest, func(x, y int) int {
		if d := p.Profiles[want[y].profile].Size - p.Profiles[want[x].profile].Size; d != 0 {
			return d
		}
		return want[x].profile - want[y].profile
	})
	s := search{layout: &l, want: want, rest: rest, starts: make([]int, len(rest)), best: -1}
	s.place(0)
	if s.best < 0 {
		return nil
	}
	a.room = s.best
	for n, i := range rest {
		a.starts[i] = s.chosen[n]
	}
	return a
}

// search tries all placements of the rest.
type search struct {
	layout *facts.Layout
	want   []item
	rest   []int
	starts []int

	best   int // room of the best one, -1: none
	chosen []int
}

func (s *search) place(n int) {
	if n == len(s.rest) {
		if room := s.layout.Room(); room > s.best {
			s.best, s.chosen = room, slices.Clone(s.starts)
		}
		return
	}
	i := s.want[s.rest[n]].profile
	first := -1
	if n > 0 && s.want[s.rest[n-1]].profile == i {
		first = s.starts[n-1]
	}
	for _, start := range s.layout.Product.Profiles[i].Starts {
		if start <= first || !s.layout.Opens(i, start) {
			continue
		}
		s.layout.Add(i, start)
		s.starts[n] = start
		s.place(n + 1)
		s.layout.Drop(i, start)
	}
}

// why words what makes a goal impossible on an empty card.
func why(p *facts.Product, want []item) string {
	count := make([]int, len(p.Profiles))
	compute, width := 0, 0
	var engines facts.Engines
	for _, w := range want {
		f := p.Profiles[w.profile]
		count[w.profile]++
		compute += f.Slices
		width += f.Size
		engines = engines.Plus(f.Engines)
	}
	for i, n := range count {
		if f := p.Profiles[i]; n > f.Most {
			return fmt.Sprintf("%d of %s are wanted, a GPU holds %d", n, f.Name, f.Most)
		}
	}
	switch {
	case compute > p.Slices:
		return fmt.Sprintf("%d compute slices are wanted, a GPU has %d", compute, p.Slices)
	case width > p.Units:
		return fmt.Sprintf("%d memory units are wanted, a GPU has %d", width, p.Units)
	case !engines.Within(p.Engines):
		return fmt.Sprintf("media engines are wanted that a GPU has not (wanted %+v, it has %+v)", engines, p.Engines)
	}
	return "there are no starts at which they lie beside each other"
}
