// SPDX-License-Identifier: Apache-2.0

package partition

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Technique is one way of dividing cards: what a card becomes by it, and the
// steps there. It asks nobody and changes nothing; a Driver does.
type Technique interface {
	// Name is one of those that Explanations lists.
	Name() string
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
		if force && (t.Name() == TechniqueMIG || t.Name() == TechniqueMPS) {
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
	r = r.withFunctions(c)
	wanted := r.wanted()
	after := c
	for _, t := range all {
		if wanted[t.Name()] == nil {
			continue
		}
		delete(wanted, t.Name())
		var err error
		if after, err = t.Aim(after, r, force); err != nil {
			return c, err
		}
	}
	if rest := slices.Sorted(maps.Keys(wanted)); len(rest) > 0 {
		if rest[0] == TechniqueMIG {
			return c, fmt.Errorf("%w: MIG is NVIDIA's driver's, which is not here or was not asked", ErrImpossible)
		}
		return c, fmt.Errorf("%w: %s is the kernel's, which was not asked", ErrImpossible, rest[0])
	}
	return after, all.together(after)
}

// together says why techniques that a card would use cannot go together.
func (all Techniques) together(c Card) error {
	var on []string
	for _, t := range all {
		if t.On(c) {
			on = append(on, t.Name())
		}
	}
	for _, e := range Explanations() {
		for _, other := range on {
			if slices.Contains(on, e.Name) && slices.Contains(e.Against, other) {
				return fmt.Errorf("%w: %s excludes %s on the same card; one of them must be off, first or in the same rule", ErrImpossible, e.Name, other)
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
}

// Actions that several techniques take.
const (
	ActionWrite = "write" // Value to File
	ActionSet   = "set"   // Setting to Value, through the card's driver
	ActionRun   = "run"   // the program File, the vendor's own
)

// String shows a step as a line.
func (s Step) String() string {
	switch s.Action {
	case ActionWrite:
		return fmt.Sprintf("write %q to /%s", s.Value, s.File)
	case ActionRun:
		return fmt.Sprintf("run /%s %s", s.File, strings.Join(s.Arguments, " "))
	case ActionName:
		return fmt.Sprintf("name %s replicas", s.Value)
	case ActionStart:
		daemon, err := ParseDaemon(s.Value)
		if err != nil {
			return fmt.Sprintf("start the MPS control daemon by %q", s.Value)
		}
		return "start the MPS control daemon " + daemon.terms()
	case ActionStop:
		return strings.TrimSpace("stop the MPS control daemon " + s.Value)
	case ActionSet:
		return fmt.Sprintf("set %s to %s", s.Setting, s.Value)
	case ActionOn:
		return "switch MIG mode on"
	case ActionOff:
		return "switch MIG mode off"
	case ActionReset:
		return "reset the card"
	case ActionDestroy:
		return fmt.Sprintf("destroy %s at %d", s.Profile, s.Start)
	case ActionClear:
		return fmt.Sprintf("destroy the compute instances of %s at %d", s.Profile, s.Start)
	case ActionCreate:
		return fmt.Sprintf("create %s at %d", s.Profile, s.Start)
	}
	return fmt.Sprintf("create a compute instance of %d in %s at %d", s.Slices, s.Profile, s.Start)
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

	rule Rule // for the steps that follow
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
	return fmt.Errorf("%w: shares of this card: %s", ErrInUse, strings.Join(c.Shares, ", "))
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
	plan := CardPlan{UUID: c.UUID, Index: c.Index, Name: c.Name, Steps: []Step{}, Before: c, After: c, Force: p.Force, rule: r}
	after, err := p.Techniques.aim(c, r, p.Force)
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
	c.Kept, c.Destroyed = 0, 0
	stay := c.After.parts()
	for _, part := range c.Before.parts() {
		if slices.Contains(stay, part) {
			c.Kept++
		} else {
			c.Destroyed++
		}
	}
}
