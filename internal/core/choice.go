// SPDX-License-Identifier: Apache-2.0

package core

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/placement"
)

// choose finds the cards for a new share: those that are named, or of those that have
// what it asks for on each the ones that placement takes.
func (c *Core) choose(spec *Spec) ([]*card, *Failure) {
	if len(c.cards) == 0 {
		return nil, refuse(NotFound, "this machine has no GPU").hint("divvy run --simulate")
	}
	cards := slices.DeleteFunc(slices.Clone(c.cards), func(k *card) bool {
		return len(spec.Among) > 0 && !slices.Contains(spec.Among, k.UUID)
	})
	if len(cards) == 0 {
		return nil, refuse(NotFound, "none of the GPUs to choose from is here").hint("divvy devices")
	}
	if spec.GPU != "" {
		return c.named(spec, cards)
	}
	count := max(spec.GPUs, 1)
	if len(cards) < count {
		where := "this machine has"
		if len(spec.Among) > 0 {
			where = "there are to choose from only"
		}
		return nil, refuse(NotFound, "%d GPUs are asked for, and %s %d", count, where, len(cards)).hint("divvy devices")
	}
	usable := slices.DeleteFunc(slices.Clone(cards), func(k *card) bool { return !k.takes() })
	if len(usable) < count {
		return nil, slices.DeleteFunc(cards, (*card).takes)[0].refusal()
	}
	if count > MaxSlots {
		return nil, tooMany(count)
	}
	return c.place(spec, usable, count)
}

// MaxSlots is how many cards a share can have: there are so many slots on a page.
const MaxSlots = 8

func tooMany(count int) *Failure {
	return refuse(Usage, "a share has at most %d GPUs, not %d", MaxSlots, count)
}

// named are the cards that a spec names, in its order.
func (c *Core) named(spec *Spec, among []*card) ([]*card, *Failure) {
	var cards []*card
	for selector := range strings.SplitSeq(spec.GPU, ",") {
		k, failure := c.find(strings.TrimSpace(selector))
		switch {
		case failure != nil:
			return nil, failure
		case slices.Contains(cards, k):
			return nil, refuse(Usage, "GPU %s is named twice: a share has a GPU once", k.UUID)
		case !slices.Contains(among, k):
			return nil, refuse(NotFound, "GPU %s is not among those to choose from", k.UUID).hint("divvy devices")
		case !k.takes():
			return nil, k.refusal()
		}
		cards = append(cards, k)
	}
	if spec.GPUs != 0 && spec.GPUs != len(cards) {
		return nil, refuse(Usage, "%d GPUs are asked for and %d named", spec.GPUs, len(cards)).hint("name as many, or leave --gpus out")
	}
	if len(cards) > MaxSlots {
		return nil, tooMany(len(cards))
	}
	return cards, nil
}

// place has placement choose so many cards of those that have room.
func (c *Core) place(spec *Spec, cards []*card, count int) ([]*card, *Failure) {
	var able, lacking []placement.Vacancy
	for i, k := range cards {
		v := c.vacancy(k, nil)
		v.Card = i
		if v.Hosts(spec.milli(), spec.MemoryBytes) && c.checkExclusive(k, spec) == nil {
			able = append(able, v)
		} else {
			lacking = append(lacking, v)
		}
	}
	if len(able) < count {
		return nil, c.noRoom(spec, cards, able, lacking)
	}
	var chosen []*card
	for _, v := range placement.Together(able, count) {
		chosen = append(chosen, cards[v.Card])
	}
	if len(spec.Among) > 0 { // whoever lists GPUs counts them so
		slices.SortFunc(chosen, func(a, b *card) int {
			return cmp.Compare(slices.Index(spec.Among, a.UUID), slices.Index(spec.Among, b.UUID))
		})
	}
	return chosen, nil
}

// noRoom names what the emptiest of the cards lacks that have no room, or one that could
// hold the share if it were empty.
func (c *Core) noRoom(spec *Spec, cards []*card, able, lacking []placement.Vacancy) *Failure {
	best := cards[placement.Emptiest(lacking).Card]
	if spec.MemoryBytes > best.UsableBytes {
		best = cards[slices.MaxFunc(lacking, func(a, b placement.Vacancy) int {
			return cmp.Compare(cards[a.Card].UsableBytes, cards[b.Card].UsableBytes)
		}).Card]
	}
	failure := c.lacks(best, spec)
	if spec.GPUs > 1 {
		failure.Message = fmt.Sprintf("a share over %d GPUs has room on %d: %s", spec.GPUs, len(able), failure.Message)
	}
	return failure
}

// lacks says what a card has not that a new share asks of it.
func (c *Core) lacks(k *card, spec *Spec) *Failure {
	if failure := checkContext(k, spec.MemoryBytes); failure != nil {
		return failure
	}
	if failure := c.checkExclusive(k, spec); failure != nil {
		return failure
	}
	return c.checkRoom(k, spec.milli(), spec.MemoryBytes, nil)
}
