// SPDX-License-Identifier: Apache-2.0

package advise

import (
	"fmt"
	"slices"
	"strings"
)

// question is facts and inventory with what follows from them in words, by which
// rules are chosen.
type question struct {
	f     Facts
	inv   Inventory
	words map[string]string
	quiet bool // the reasons are not for reading
}

// quantumMs is how long a turn of a share lasts (docs/sharing-time.md).
const quantumMs = 10

// moveMs is what moving a share of so many bytes out of a card takes at least: the
// shortest stay on it, or the bytes over PCIe 5.0 x16 (32 GT/s, 64 GB/s each way).
func moveMs(bytes uint64) float64 { return max(500, float64(bytes)/64e9*1000) }

func newCase(f Facts, inv Inventory) *question {
	c := &question{f: f, inv: inv, words: map[string]string{}}
	w := c.words
	w["workload"], w["stage"], w["tenants"], w["in"] = f.Workload, f.Stage, f.Tenants, f.In
	w["bound"], w["aim"], w["place"], w["changes"] = f.Bound, f.Aim, f.Place, f.Changes
	w["licence"] = yesNo(slices.Contains(f.Licences, "vgpu"))
	w["wsl"], w["cards"] = yesNo(inv.WSL), yesNo(len(inv.Cards) > 0)
	w["movable-built"], w["remote-built"], w["kubernetes-built"] = yesNo(inv.Built.Movable), yesNo(inv.Built.Remote), yesNo(inv.Built.Kubernetes)
	w["one-card"] = yesNo(f.Cards == 1 && c.fitsSomeCard())
	w["size"] = c.size()
	w["p99"] = "none"
	if f.P99Ms > 0 {
		w["p99"] = "loose"
		if f.P99Ms < tightMs(&f) {
			w["p99"] = "tight"
		}
	}
	w["move"] = yesNo(f.P99Ms > 0 && f.P99Ms < moveMs(f.MemoryBytes))
	w["share-size"] = "enough"
	if f.ShareBytes > 0 && f.ShareBytes < f.LeastBytes {
		w["share-size"] = "too-small"
	}
	w["busy"] = "at-once"
	if f.Duty*float64(f.Count) < 100 {
		w["busy"] = "seldom"
	}
	w["neighbours"] = "some"
	if c.mostParts() == 1 && w["busy"] == "at-once" {
		w["neighbours"] = "none"
	}
	w["memory"] = c.memorySum()
	w["dra"] = "none"
	if f.In == "kubernetes" {
		switch n := minor(f.Kubernetes); {
		case f.Kubernetes == "":
			w["dra"] = "unknown"
		case n < 34:
			w["dra"] = "before-1.34"
		case n < 36:
			w["dra"] = "from-1.34"
		default:
			w["dra"] = "from-1.36"
		}
	}
	w["display"] = yesNo(c.hasDisplayMIG())
	return c
}

// tightMs is the latency that turns do not keep: a neighbour's work, one's own, and
// a turn of each.
func tightMs(f *Facts) float64 { return 2 * (f.AloneMs + quantumMs) }

// mostParts is into how many parts a card can be divided while a token in each still
// keeps the latency that is promised: a part has as much less of the bandwidth that
// decoding waits for. 0: no limit is known.
func (c *question) mostParts() int {
	if c.f.P99Ms == 0 || c.f.AloneMs == 0 {
		return 0
	}
	return max(1, int(min(c.f.P99Ms/c.f.AloneMs, mostCount)))
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// fitsSomeCard says that one instance fits one card, as far as that is known.
func (c *question) fitsSomeCard() bool {
	if c.f.MemoryBytes == 0 || len(c.inv.Cards) == 0 {
		return true
	}
	return slices.ContainsFunc(c.inv.Cards, func(x Card) bool { return x.MemoryBytes == 0 || x.MemoryBytes >= c.f.MemoryBytes })
}

// size says whether an instance takes over half of the largest card.
func (c *question) size() string {
	largest := uint64(0)
	for _, x := range c.inv.Cards {
		largest = max(largest, x.MemoryBytes)
	}
	switch {
	case c.f.Cards > 1:
		return "large"
	case c.f.MemoryBytes == 0 || largest == 0:
		return "unknown"
	case c.f.MemoryBytes > largest/2:
		return "large"
	}
	return "small"
}

// memorySum says whether all instances fit on the cards together.
func (c *question) memorySum() string {
	total := uint64(0)
	for _, x := range c.inv.Cards {
		if x.MemoryBytes == 0 {
			return "unknown"
		}
		total += x.MemoryBytes
	}
	switch {
	case c.f.MemoryBytes == 0 || total == 0:
		return "unknown"
	case float64(c.f.MemoryBytes)*float64(c.f.Count)*float64(c.f.Cards) > float64(total):
		return "over"
	}
	return "fits"
}

// hasDisplayMIG says that a card has MIG and a display both: those of the RTX PRO
// Blackwell family.
func (c *question) hasDisplayMIG() bool {
	return slices.ContainsFunc(c.inv.Cards, func(x Card) bool { return strings.Contains(x.Name, "RTX PRO") && x.Can["mig"].Can == "yes" })
}

// state is one technique in a case.
type state struct {
	technique string
	verdict   Verdict
	reasons   []Reason
	plan      plan
	place     int // in the order of preference

	denials, doubts, notes []Reason
}

// notPreferred is the place of a technique that a workload's preferences do not
// name.
const notPreferred = 100

// left is why something comes first that a workload would rather not have.
var left = Reason{"R-LEFT", "no technique that suits better is possible here", docPage}

// rank weighs all techniques: filters, then preferences.
func (c *question) rank() []state {
	row := c.row()
	all := make([]state, 0, len(techniques))
	for _, t := range techniques {
		all = append(all, state{technique: t, verdict: Possible, place: notPreferred})
	}
	for i := range rules {
		if r := &rules[i]; r.holds(c.words) {
			for n := range all {
				if slices.Contains(r.Techniques, all[n].technique) {
					c.apply(&all[n], r)
				}
			}
		}
	}
	for n := range all {
		s := &all[n]
		if !c.quiet || s.denials == nil {
			s.plan = c.fit(s.technique)
		}
		if s.plan.problem != "" {
			s.denials = append(s.denials, Reason{s.plan.rule, s.plan.problem, roomSource(s.plan.rule)})
		}
		if s.plan.note != "" {
			s.notes = append(s.notes, Reason{ruleBusy, s.plan.note, roomSource(ruleBusy)})
		}
		if at := slices.Index(row.Order, s.technique); at >= 0 {
			s.place = at
		}
	}
	for i := range nudges {
		if r := &nudges[i]; r.holds(c.words) {
			for n := range all {
				if slices.Contains(r.Techniques, all[n].technique) {
					all[n].place += r.Places
					c.apply(&all[n], &r.Rule)
				}
			}
		}
	}
	slices.SortStableFunc(all, func(a, b state) int { return a.order() - b.order() })
	given := 0
	for i := range all {
		s := &all[i]
		switch {
		case s.denials != nil, s.doubts != nil && given > 0:
			s.verdict = No
			s.reasons = slices.Concat(s.denials, s.doubts, s.notes)
			continue
		case given == 0:
			s.verdict = First
			given++
		case given == 1 && s.place < notPreferred:
			s.verdict = Second
			given++
		}
		switch {
		case s.doubts != nil:
			s.reasons = append(s.reasons, left)
		case s.verdict != Possible && slices.Contains(row.Order, s.technique) && row.Why != "":
			s.reasons = append(s.reasons, Reason{row.ID, c.fill(row.Why), row.Source})
		}
		s.reasons = slices.Concat(s.reasons, s.notes, s.doubts)
	}
	slices.SortStableFunc(all, func(a, b state) int {
		if a.verdict == No && b.verdict == No {
			return slices.Index(techniques, a.technique) - slices.Index(techniques, b.technique)
		}
		return verdictOrder[a.verdict] - verdictOrder[b.verdict]
	})
	return all
}

var verdictOrder = map[Verdict]int{First: 0, Second: 1, Possible: 2, No: 3}

// order puts what is preferred first, what is not suited last.
func (s *state) order() int {
	n := s.place
	if s.doubts != nil {
		n += 1000
	}
	if s.denials != nil {
		n += 10_000
	}
	return n
}

// apply applies a rule to a technique.
func (c *question) apply(s *state, r *Rule) {
	reason := Reason{r.ID, c.fill(r.Text), r.Source}
	switch r.Says {
	case Denies:
		s.denials = append(s.denials, reason)
	case Discourages:
		s.doubts = append(s.doubts, reason)
	case Notes:
		s.notes = append(s.notes, reason)
	}
}

// fill puts figures into a rule's text.
func (c *question) fill(text string) string {
	if c.quiet || !strings.Contains(text, "{") {
		return text
	}
	return strings.NewReplacer("{cards}", fmt.Sprint(c.f.Cards), "{p99}", fmt.Sprintf("%g ms", c.f.P99Ms), "{alone}", fmt.Sprintf("%.0f ms", c.f.AloneMs), "{count}", fmt.Sprint(c.f.Count), "{memory}", sizeWords(c.f.MemoryBytes),
		"{share}", sizeWords(c.f.ShareBytes), "{least}", sizeWords(c.f.LeastBytes)).Replace(text)
}

// row finds what the workload prefers.
func (c *question) row() *Preference {
	for i := range preferences {
		if p := &preferences[i]; holds(p.When, c.words) {
			return p
		}
	}
	return &preferences[len(preferences)-1]
}

// sizeWords writes an amount of memory.
func sizeWords(bytes uint64) string {
	switch {
	case bytes == 0:
		return "unknown memory"
	case bytes >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30))
	}
	return fmt.Sprintf("%d MiB", bytes>>20)
}
