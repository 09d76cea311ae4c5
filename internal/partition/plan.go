// SPDX-License-Identifier: Apache-2.0

package partition

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Technique is one way of dividing cards: what it is, how cards are divided by it,
// what a card becomes, the steps there, and their execution.
type Technique interface {
	// Name is one of those in the table of exclusions.
	Name() string
	// About is what does not depend on a machine.
	About() About
	// Observe fills in how a card is divided, and what else is learnt of it; of a card
	// that cannot be asked it says nothing.
	Observe(ctx context.Context, c *Card) error
	// On says whether a card is divided this way.
	On(c Card) bool
	// Aim returns a card as a rule that names the technique wants it. It fails
	// with ErrImpossible, ErrInUse or ErrSpared; with force nothing is spared, and
	// some techniques give up what is in use.
	Aim(c Card, r Rule, force bool) (Card, error)
	// Steps leads from one state of a card to another as far as this technique can
	// tell them apart. It is used forward, and to roll back from anywhere between.
	Steps(from, to Card) []Step
	// Busy words who would lose something by steps, empty if nobody does.
	Busy(c Card, steps []Step) string
	// Do takes one of its steps on a card.
	Do(ctx context.Context, c Card, s Step) error
}

// About is what a technique is wherever it is used.
type About struct {
	Explanation // its Name and Against are filled in
	// Want and Division are empty ones, to be read into.
	Want     func() Want
	Division func() Division
	// Yields says that with force what is in use is given up.
	Yields bool
}

// implying is a Technique whose rules imply others.
type implying interface {
	// Implied returns the rule with what it implies for a card.
	Implied(c Card, r Rule) Rule
}

// Without is a technique that cannot be used here, for a reason: cards are still
// observed, and documents read.
func Without(t Technique, why string) Technique { return without{t, why} }

type without struct {
	Technique
	why string
}

func (w without) Aim(c Card, _ Rule, _ bool) (Card, error) {
	return c, fmt.Errorf("%w: %s", ErrImpossible, w.why)
}
func (without) Steps(_, _ Card) []Step       { return nil }
func (without) Busy(_ Card, _ []Step) string { return "" }
func (w without) Do(context.Context, Card, Step) error {
	return fmt.Errorf("%w: %s", ErrImpossible, w.why)
}

// Techniques are those that can be used here, in the order in which they build
// on each other.
type Techniques []Technique

// Steps leads from one state of a card to another: first what is switched off,
// then what is switched on.
func (all Techniques) Steps(from, to Card) []Step {
	steps := []Step{}
	for _, t := range slices.Backward(all) {
		if !t.On(to) {
			steps = append(steps, named(t, t.Steps(from, to))...)
		}
	}
	for _, t := range all {
		if t.On(to) {
			steps = append(steps, named(t, t.Steps(from, to))...)
		}
	}
	return steps
}

// named says whose steps are nobody's yet.
func named(t Technique, steps []Step) []Step {
	for i := range steps {
		if steps[i].Technique == "" {
			steps[i].Technique = t.Name()
		}
	}
	return steps
}

// Busy words who would lose something by steps; with force, who would by those of
// techniques that do not give up what is in use.
func (all Techniques) Busy(c Card, steps []Step, force bool) string {
	for _, t := range all {
		if force && t.About().Yields {
			continue
		}
		var own []Step
		for _, s := range steps {
			if s.Technique == t.Name() {
				own = append(own, s)
			}
		}
		if busy := t.Busy(c, own); len(own) > 0 && busy != "" {
			return busy
		}
	}
	return ""
}

// aim returns a card as a rule wants it.
func (all Techniques) aim(c Card, r Rule, force bool) (Card, error) {
	for _, t := range all {
		if i, ok := t.(implying); ok {
			r = i.Implied(c, r)
		}
	}
	after, aimed := c, 0
	for _, t := range all {
		if r.Wants[t.Name()] == nil {
			continue
		}
		aimed++
		var err error
		if after, err = t.Aim(after, r, force); err != nil {
			return c, err
		}
	}
	if aimed < len(r.Wants) {
		return c, fmt.Errorf("%w: the rule names what is not known here", ErrImpossible)
	}
	return after, nil
}

// together says why techniques that a card would use cannot go together.
func (all Techniques) together(c Card) error {
	var on []string
	for _, t := range all {
		if t.On(c) {
			on = append(on, t.Name())
		}
	}
	for _, e := range exclusions {
		for _, other := range on {
			if slices.Contains(on, e.one) && slices.Contains(e.others, other) {
				return fmt.Errorf("%w: %s excludes %s on the same GPU; one of them must be off, first or in the same rule", ErrImpossible, e.one, other)
			}
		}
	}
	return nil
}

// Step is one change of one card. What the other fields mean is the technique's.
type Step struct {
	Technique string `json:"technique"`
	Action    string `json:"action"`
	Profile   string `json:"profile,omitempty"`
	Start     int    `json:"start"`
	Slices    int    `json:"slices,omitempty"`  // of a compute instance
	File      string `json:"file,omitempty"`    // below the root, of ActionWrite and ActionRun
	Setting   string `json:"setting,omitempty"` // of ActionSet
	Value     string `json:"value,omitempty"`
	// Arguments are those of the program of ActionRun.
	Arguments []string `json:"arguments,omitempty"`
	Turn      int      `json:"turn,omitempty"` // among cards that change together: lower ones of all come first
	Why       string   `json:"why,omitempty"`
	// Words show the step, where the technique has its own.
	Words string `json:"-"`
}

// Actions that several techniques take.
const (
	ActionWrite = "write" // Value to File
	ActionSet   = "set"   // Setting to Value, through the card's driver
	ActionRun   = "run"   // the program File, the vendor's own
	ActionReset = "reset" // the card
)

// String shows a step as a line.
func (s Step) String() string {
	switch s.Action {
	case ActionWrite:
		return fmt.Sprintf("write %q to /%s", s.Value, s.File)
	case ActionRun:
		return fmt.Sprintf("run /%s %s", s.File, strings.Join(s.Arguments, " "))
	case ActionSet:
		return fmt.Sprintf("set %s to %s", s.Setting, s.Value)
	}
	return s.Words
}

// Refusals of a card's plan.
const (
	RefusedImpossible = "impossible"
	RefusedInUse      = "in-use"
	RefusedSpared     = "spared" // without force
)

// CardPlan is how one card gets from what it is to what it should be.
type CardPlan struct {
	UUID    string `json:"uuid"`
	Index   int    `json:"index"`
	Name    string `json:"name"`
	Refused string `json:"refused,omitempty"` // impossible, in-use, spared
	Reason  string `json:"reason,omitempty"`
	Steps   []Step `json:"steps"`
	// Destroyed and Kept count the parts of the card.
	Destroyed  int  `json:"destroyed"`
	Kept       int  `json:"kept"`
	NeedsReset bool `json:"needsReset"` // a step resets the card
	Force      bool `json:"force"`      // what is in use may be destroyed
	// Joined are the IDs of the cards that only change together with this one,
	// itself too; nil: it changes alone.
	Joined []string `json:"joined,omitempty"`
	// Awaits says that more steps follow, and what is known only after these.
	Awaits string `json:"awaits,omitempty"`
	Before Card   `json:"before"`
	After  Card   `json:"after"`

	rule    Rule  // for the steps that follow
	refusal error // what Reason words
}

// Plan is the plans of all cards that a goal speaks of.
type Plan struct {
	Schema   string     `json:"schema"`
	Possible bool       `json:"possible"` // no card is refused
	Steps    int        `json:"steps"`    // of all cards; 0: nothing is to be done
	Cards    []CardPlan `json:"cards"`
}

// Planner plans by techniques.
type Planner struct {
	Techniques Techniques
	Force      bool // allow to destroy what is in use
}

// takesShares refuses steps that take a card from the shares on it.
func takesShares(c Card, steps []Step) error {
	taken := func(s Step) bool { return excludes(techniqueShare, s.Technique) }
	if len(c.Shares) == 0 || !slices.ContainsFunc(steps, taken) {
		return nil
	}
	return fmt.Errorf("%w: shares of this GPU: %s", ErrInUse, strings.Join(c.Shares, ", "))
}

// Plan compares a machine with a goal.
func (p Planner) Plan(s State, g Goal) Plan {
	plan := Plan{Schema: SchemaPlan, Possible: true, Cards: []CardPlan{}}
	for _, c := range s.Cards {
		r, ok := g.For(c)
		if !ok {
			continue
		}
		plan.Cards = append(plan.Cards, p.Card(c, r))
	}
	plan.join(p.Techniques)
	for _, card := range plan.Cards {
		plan.Possible = plan.Possible && card.Refused == ""
		plan.Steps += len(card.Steps)
	}
	return plan
}

// Card plans one card.
func (p Planner) Card(c Card, r Rule) CardPlan {
	after, err := p.Techniques.aim(c, r, p.Force)
	plan := p.To(c, after, err)
	plan.rule = r
	return plan
}

// To plans the way of one card to a state, or refuses it for an error.
func (p Planner) To(c, after Card, err error) CardPlan {
	plan := CardPlan{UUID: c.UUID, Index: c.Index, Name: c.Name, Steps: []Step{}, Before: c, After: c, Force: p.Force}
	if err == nil {
		err = p.Techniques.together(after)
	}
	var steps []Step
	if err == nil {
		if steps = p.Techniques.Steps(c, after); !p.Force {
			err = takesShares(c, steps)
		}
	}
	if err != nil {
		plan.refuse(err)
		return plan
	}
	plan.Awaits, after.Awaits = after.Awaits, ""
	plan.Before, plan.After, plan.Steps = c.asked(after), after, steps
	plan.count()
	return plan
}

// count sums up what the steps of a plan do.
func (c *CardPlan) count() {
	c.NeedsReset = slices.ContainsFunc(c.Steps, func(s Step) bool { return s.Action == ActionReset })
	c.Kept, c.Destroyed = count(c.Before, c.After)
}
