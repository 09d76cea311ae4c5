// SPDX-License-Identifier: Apache-2.0

package advise

import (
	"fmt"
	"maps"
	"slices"

	"github.com/divvy-gpu/divvy/internal/mig"
)

// change is one thing that could be otherwise: by n, of which more is a larger
// change.
type change struct {
	most  int // the largest n
	words func(n int) string
	make  func(f *Facts, inv *Inventory, n int)
}

// fixed is a change of one size.
func fixed(words string, make func(f *Facts, inv *Inventory)) change {
	return change{1, func(int) string { return words }, func(f *Facts, inv *Inventory, _ int) { make(f, inv) }}
}

// Changes that are told apart from others: where it runs, and any other card.
var (
	inContainer = fixed("containers (--in container)", func(f *Facts, _ *Inventory) { f.In, f.Kubernetes = "container", "" })
	another     = fixed("a GPU of 24 GiB", func(_ *Facts, inv *Inventory) { inv.Cards = append(slices.Clone(inv.Cards), plainCard) })
	inVM        = fixed("virtual machines (--in vm)", func(f *Facts, _ *Inventory) { f.In, f.Kubernetes = "vm", "" })
)

// mostMore is how many cards a change adds at most.
const mostMore = 64

// changesOf lists what could be otherwise in a case, the smaller ones first.
func changesOf(f *Facts, inv *Inventory) []change {
	var all []change
	add := func(applies bool, c change) {
		if applies && c.most > 0 {
			all = append(all, c)
		}
	}
	add(!slices.Contains(f.Licences, "vgpu"), fixed("a licence of NVIDIA's vGPU (--licences vgpu)", func(f *Facts, _ *Inventory) { f.Licences = []string{"vgpu"} }))
	add(f.ShareBytes > 0 && f.ShareBytes < f.LeastBytes, fixed(fmt.Sprintf("shares of at least %s", sizeWords(f.LeastBytes)), func(f *Facts, _ *Inventory) { f.ShareBytes = 0 }))
	add(f.P99Ms > 0, fixed("no limit on the 99th percentile", func(f *Facts, _ *Inventory) { f.P99Ms = 0 }))
	count := f.Count
	add(true, change{count - 1, func(n int) string { return fmt.Sprintf("%d of them instead of %d (--count)", count-n, count) },
		func(f *Facts, _ *Inventory, n int) { f.Count = count - n }})
	mebibytes := int(f.MemoryBytes >> 20)
	add(true, change{mebibytes - 1, func(n int) string {
		return fmt.Sprintf("at most %s for one of them", sizeWords(uint64(mebibytes-n)<<20))
	},
		func(f *Facts, _ *Inventory, n int) {
			f.MemoryBytes = uint64(mebibytes-n) << 20
			f.LeastBytes = min(f.LeastBytes, f.MemoryBytes)
		}})
	cards := f.Cards
	add(true, change{cards - 1, func(n int) string {
		return fmt.Sprintf("one of them on %s (a smaller model, fewer bits)", gpus(cards-n))
	},
		func(f *Facts, _ *Inventory, n int) { f.Cards = cards - n }})
	add(f.Tenants == "strangers", fixed("tenants who trust each other (--tenants trusted)", func(f *Facts, _ *Inventory) { f.Tenants = "trusted" }))
	add(f.Tenants != "one", fixed("one owner (--tenants one)", func(f *Facts, _ *Inventory) { f.Tenants = "one" }))
	add(f.In != "container", inContainer)
	add(f.In != "vm", inVM)
	add(slices.ContainsFunc(inv.Cards, func(c Card) bool { return c.Holder != "" || c.Shares > 0 }), fixed("GPUs that are idle, without shares", func(_ *Facts, inv *Inventory) {
		eachCard(inv, func(c *Card) { c.Holder, c.Shares, c.FreeBytes = "", 0, c.MemoryBytes })
	}))
	add(slices.ContainsFunc(inv.Cards, func(c Card) bool { return len(c.Parts) > 0 }), fixed("GPUs that are not divided (divvy partition show)", func(_ *Facts, inv *Inventory) {
		eachCard(inv, func(c *Card) { c.Parts, c.Can = nil, undivided(c.Can) })
	}))
	if len(inv.Cards) > 0 {
		last := inv.Cards[len(inv.Cards)-1]
		add(len(inv.Cards)+mostMore <= mostCards, change{mostMore, func(n int) string { return fmt.Sprintf("%d more %s", n, last.Name) },
			func(_ *Facts, inv *Inventory, n int) {
				another := last
				another.FreeBytes, another.Shares, another.Holder, another.Parts, another.Can = another.MemoryBytes, 0, "", nil, undivided(last.Can)
				inv.Cards = append(slices.Clone(inv.Cards), slices.Repeat([]Card{another}, n)...)
			}})
	}
	add(len(inv.Cards) == 0, another)
	if migCard, known := migCardOf(inv.Products); known {
		add(!slices.ContainsFunc(inv.Cards, func(c Card) bool { return c.Can["mig"].Can == "yes" }), fixed("a GPU with MIG, such as an A100 or H100",
			func(_ *Facts, inv *Inventory) { inv.Cards = append(slices.Clone(inv.Cards), migCard) }))
	}
	add(len(inv.Cards) > 0, another)
	return all
}

// eachCard changes a copy of the cards.
func eachCard(inv *Inventory, change func(c *Card)) {
	inv.Cards = slices.Clone(inv.Cards)
	for i := range inv.Cards {
		change(&inv.Cards[i])
	}
}

// undivided is what a card can without its virtual functions.
func undivided(can map[string]Can) map[string]Can {
	sriov, ok := can["sriov"]
	if !ok || sriov.Current == "" {
		return can
	}
	can = maps.Clone(can)
	_, total := functions(sriov.Current)
	sriov.Current = fmt.Sprintf("0 of %d", total)
	can["sriov"] = sriov
	return can
}

// stricterThan lists what could be asked for beyond a case: it never makes more
// possible, and may make something else better.
func stricterThan(f *Facts) []change {
	var all []change
	if f.Tenants != "strangers" {
		all = append(all, fixed("tenants who do not trust each other (--tenants strangers)", func(f *Facts, _ *Inventory) { f.Tenants = "strangers" }))
	}
	serves := slices.Contains([]string{"large-serve", "small-serve", "edge"}, f.Workload)
	if least := tightMs(f); serves && f.P99Ms == 0 {
		all = append(all, fixed(fmt.Sprintf("a latency under %.0f ms at the 99th percentile (--p99)", least), func(f *Facts, _ *Inventory) { f.P99Ms = least * 0.99 }))
	}
	if f.Changes != "hourly" {
		all = append(all, fixed("parts that change by the hour (--changes hourly)", func(f *Facts, _ *Inventory) { f.Changes = "hourly" }))
	}
	return all
}

// plainCard is a card without MIG, as a change would add it.
var plainCard = Card{ID: "GPU-another", Name: "a GPU of 24 GiB", Vendor: "nvidia", MemoryBytes: 24 << 30, FreeBytes: 24 << 30, Linked: 1,
	Can: map[string]Can{"share": {Can: "yes"}, "replicas": {Can: "yes"}, "mps": {Can: "yes"}, "passthrough": {Can: "yes"}}}

// migCardOf is a card with MIG, as a change would add it.
func migCardOf(products *mig.Table) (Card, bool) {
	if products == nil {
		return Card{}, false
	}
	const name = "NVIDIA H100 80GB HBM3"
	product, known := products.ByName(name)
	if !known {
		return Card{}, false
	}
	bytes := uint64(product.MemoryMiB) << 20
	return Card{ID: "GPU-another", Name: name, Vendor: "nvidia", MemoryBytes: bytes, FreeBytes: bytes, Linked: 1, MIG: ProfilesOf(product),
		Can: map[string]Can{"share": {Can: "yes"}, "replicas": {Can: "yes"}, "mps": {Can: "yes"}, "mig": {Can: "yes"}, "passthrough": {Can: "yes"}}}, true
}

// made is a change of a size.
type made struct {
	change
	n int
}

// otherwise weighs a case with changes made.
func otherwise(f Facts, inv Inventory, all []made) Advice {
	f.Licences = slices.Clone(f.Licences)
	for _, c := range all {
		c.make(&f, &inv, c.n)
	}
	f, err := f.Complete()
	if err != nil { // facts that exclude each other: no way
		return Advice{}
	}
	c := newCase(f, inv)
	c.quiet = true
	return c.answer(false)
}

// shrink makes each change as small as it can be while wanted holds.
func shrink(f Facts, inv Inventory, all []made, wanted func(Advice) bool) []made {
	for i := range all {
		low, high := 1, all[i].n // high is known to do
		for low < high {
			middle := low + (high-low)/2
			all[i].n = middle
			if wanted(otherwise(f, inv, all)) {
				high = middle
			} else {
				low = middle + 1
			}
		}
		all[i].n = high
	}
	return all
}

// smallest finds the fewest changes after which wanted holds, each as small as it
// can be; nil: there are none.
func smallest(f Facts, inv Inventory, all []change, wanted func(Advice) bool) []made {
	whole := make([]made, len(all))
	for i, c := range all {
		whole[i] = made{c, c.most}
	}
	for i := range whole {
		if wanted(otherwise(f, inv, whole[i:i+1])) {
			return shrink(f, inv, slices.Clone(whole[i:i+1]), wanted)
		}
	}
	for i := range whole {
		for j := i + 1; j < len(whole); j++ {
			if two := []made{whole[i], whole[j]}; wanted(otherwise(f, inv, two)) {
				return shrink(f, inv, two, wanted)
			}
		}
	}
	// All changes at once, in a container or in a virtual machine; then without
	// each that is not needed, the larger ones first.
	for _, place := range []made{{inContainer, 1}, {inVM, 1}} {
		at := slices.IndexFunc(whole, func(m made) bool { return m.words(1) == place.words(1) })
		kept := slices.DeleteFunc(slices.Clone(whole), func(m made) bool {
			words := m.words(1)
			return words == inContainer.words(1) || words == inVM.words(1)
		})
		if at >= 0 {
			kept = append(kept, place)
		}
		if !wanted(otherwise(f, inv, kept)) {
			continue
		}
		for i := len(kept) - 1; i >= 0; i-- {
			if without := slices.Delete(slices.Clone(kept), i, i+1); wanted(otherwise(f, inv, without)) {
				kept = without
			}
		}
		return shrink(f, inv, kept, wanted)
	}
	return nil
}

func inWordsOf(all []made) string {
	text := ""
	for i, c := range all {
		if i > 0 {
			text += ", and "
		}
		text += c.words(c.n)
	}
	return text
}

// mostChanges is how many changes an advice names.
const mostChanges = 4

// whatWouldChange names single changes after which another technique comes first,
// or any where none is possible; where it takes several changes, the fewest.
func whatWouldChange(f Facts, inv Inventory, a *Advice) []string {
	out := []string{}
	all := changesOf(&f, &inv)
	seen := map[string]bool{}
	first := a.First()
	if first != nil {
		seen[first.Technique] = true
	}
	single := all
	if first != nil { // these two say nothing about what is asked
		single = slices.DeleteFunc(append(stricterThan(&f), all...), func(c change) bool { return c.words(1) == inVM.words(1) || c.words(1) == another.words(1) })
	}
	for _, c := range single {
		if len(out) == mostChanges {
			return out
		}
		whole := []made{{c, c.most}}
		otherwise := otherwise(f, inv, whole)
		b := otherwise.First()
		if b == nil || first != nil && seen[b.Technique] {
			continue
		}
		seen[b.Technique] = true
		changes := shrink(f, inv, whole, func(x Advice) bool { return x.First() != nil && x.First().Technique == b.Technique })
		out = append(out, fmt.Sprintf("%s: %s", inWordsOf(changes), b.Technique))
	}
	if first != nil || len(out) > 0 {
		return out
	}
	if changes := smallest(f, inv, all, func(b Advice) bool { return b.First() != nil }); changes != nil {
		b := otherwise(f, inv, changes)
		out = append(out, fmt.Sprintf("%s: %s", inWordsOf(changes), b.First().Technique))
	}
	return out
}

// ToAllow finds the smallest changes after which a technique is possible; empty:
// none is known.
func ToAllow(technique string, f Facts, inv Inventory) string {
	f, err := f.Complete()
	if err != nil {
		return ""
	}
	return inWordsOf(smallest(f, inv, changesOf(&f, &inv), func(b Advice) bool {
		c := b.Of(technique)
		return c != nil && c.Verdict != No
	}))
}
