// SPDX-License-Identifier: Apache-2.0

package partition

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Joiner is a Technique by which some changes are never one card's alone.
type Joiner interface {
	// Joined lists the cards, by ID, that can only go together from one state to
	// another, the card itself too, and words what becomes of each, alike for all;
	// nil if the card goes alone.
	Joined(from, to Card) (ids []string, what string)
	// Rejoin is the steps of a card on the way back or forth: its own, or others
	// in view of those of all that change together with it.
	Rejoin(c Card, own, all []Step) []Step
}

// joined asks all techniques; the first that joins cards counts.
func (all Techniques) joined(from, to Card) ([]string, string) {
	for _, t := range all {
		if j, ok := t.(Joiner); ok {
			if ids, what := j.Joined(from, to); ids != nil {
				return ids, what
			}
		}
	}
	return nil, ""
}

// way is the steps from where cards are to a state, in turns, and who would lose
// something by them.
func (all Techniques) way(from, to []Card) (steps []cardStep, busy string) {
	own := make([][]Step, len(to))
	var ids []string
	for i, c := range to {
		ids, own[i] = append(ids, c.ID()), all.Steps(from[i], c)
	}
	together := slices.Concat(own...)
	for i, c := range from {
		for _, t := range all {
			if j, ok := t.(Joiner); ok && len(to) > 1 {
				own[i] = named(t, j.Rejoin(c, own[i], together))
			}
		}
		if busy == "" {
			busy = all.Busy(c, own[i], false)
		}
	}
	return inTurns(ids, own), busy
}

// join fills in with which cards each changes, and refuses cards without the
// others: those that the goal does not speak of, wants otherwise, or that are
// refused themselves.
func (p *Plan) join(all Techniques) {
	what := make([]string, len(p.Cards))
	for i, c := range p.Cards {
		if c.Refused == "" {
			p.Cards[i].Joined, what[i] = all.joined(c.Before, c.After)
		}
	}
	reasons := make([]error, len(p.Cards)) // all before any is refused for another
	for i, c := range p.Cards {
		reasons[i] = p.apart(c, what[i], what)
	}
	for i, err := range reasons {
		if err != nil {
			p.Cards[i].refuse(err)
		}
	}
}

// apart says why a card cannot change with others as it must; what becomes of it,
// and of each card.
func (p *Plan) apart(c CardPlan, what string, all []string) error {
	for _, id := range c.Joined {
		j := slices.IndexFunc(p.Cards, func(o CardPlan) bool { return o.Before.ID() == id })
		switch {
		case j < 0:
			return fmt.Errorf("%w: %s is for all GPUs joined with this one, and the file does not speak of %s", ErrImpossible, what, id)
		case p.Cards[j].Refused != "":
			kind := map[string]error{RefusedInUse: ErrInUse, RefusedSpared: ErrSpared, RefusedImpossible: ErrImpossible}[p.Cards[j].Refused]
			return fmt.Errorf("%w: %s is for all GPUs joined with this one; of %s: %s", kind, what, id, p.Cards[j].Reason)
		case all[j] != what:
			return fmt.Errorf("%w: %s is for all GPUs joined with this one; of %s it would be: %s", ErrImpossible, what, id, cmp.Or(all[j], "nothing new"))
		}
	}
	return nil
}

// refuse leaves a card as it is.
func (c *CardPlan) refuse(err error) {
	c.Refused, c.Reason, c.refusal = RefusedImpossible, err.Error(), err
	switch {
	case errors.Is(err, ErrInUse):
		c.Refused = RefusedInUse
	case errors.Is(err, ErrSpared):
		c.Refused = RefusedSpared
	}
	c.Steps, c.After, c.Joined, c.Awaits = []Step{}, c.Before, nil, ""
	c.count()
}

// Bands are the plans in groups of cards that change together, in order.
func (p Plan) Bands() [][]CardPlan {
	var bands [][]CardPlan
	for _, c := range p.Cards {
		i := slices.IndexFunc(bands, func(band []CardPlan) bool { return slices.Contains(band[0].Joined, c.Before.ID()) })
		if i < 0 {
			bands = append(bands, []CardPlan{c})
		} else {
			bands[i] = append(bands[i], c)
		}
	}
	return bands
}

// stepsOf is the steps of a band, in turns.
func stepsOf(band []CardPlan) []cardStep {
	var ids []string
	var steps [][]Step
	for _, p := range band {
		ids, steps = append(ids, p.Before.ID()), append(steps, p.Steps)
	}
	return inTurns(ids, steps)
}

// plain is steps without whose they are.
func plain(steps []cardStep) []Step {
	var all []Step
	for _, s := range steps {
		all = append(all, s.Step)
	}
	return all
}

// cardStep is a step of one of several cards.
type cardStep struct {
	id string
	Step
}

// inTurns puts the steps of several cards, each in its order, into one: those of
// a turn come before those of later turns, whichever card they are of.
func inTurns(ids []string, steps [][]Step) []cardStep {
	var all []cardStep
	rest := slices.Clone(steps)
	for {
		next := -1
		for i, own := range rest {
			if len(own) > 0 && (next < 0 || own[0].Turn < rest[next][0].Turn) {
				next = i
			}
		}
		if next < 0 {
			return all
		}
		all = append(all, cardStep{ids[next], rest[next][0]})
		rest[next] = rest[next][1:]
	}
}
