// SPDX-License-Identifier: Apache-2.0

package partition

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/internal/mig"
)

// Actions of a Step.
const (
	ActionOn      = "mig-on"
	ActionOff     = "mig-off"
	ActionReset   = "reset"
	ActionDestroy = "destroy" // a GPU instance, with its compute instances
	ActionClear   = "clear"   // the compute instances of a GPU instance that stays
	ActionCreate  = "create"  // a GPU instance
	ActionCompute = "compute" // a compute instance
)

// Step is one change of one card.
type Step struct {
	Action  string `json:"action"`
	Profile string `json:"profile,omitempty"`
	Start   int    `json:"start"`
	Slices  int    `json:"slices,omitempty"` // of a compute instance
	Why     string `json:"why,omitempty"`
}

// String shows a step as a line.
func (s Step) String() string {
	switch s.Action {
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
)

// CardPlan is how one card gets from what it is to what it should be.
type CardPlan struct {
	UUID    string `json:"uuid"`
	Index   int    `json:"index"`
	Name    string `json:"name"`
	Refused string `json:"refused,omitempty"` // impossible, in-use
	Reason  string `json:"reason,omitempty"`
	Steps   []Step `json:"steps"`
	// Destroyed and Kept count GPU instances.
	Destroyed  int  `json:"destroyed"`
	Kept       int  `json:"kept"`
	NeedsReset bool `json:"needsReset"` // to change the MIG mode of this model
	Force      bool `json:"force"`      // what is in use may be destroyed
	Before     Card `json:"before"`
	After      Card `json:"after"`
}

// Plan is the plans of all cards that a goal speaks of.
type Plan struct {
	Schema   string     `json:"schema"`
	Possible bool       `json:"possible"` // no card is refused
	Steps    int        `json:"steps"`    // of all cards; 0: nothing is to be done
	Cards    []CardPlan `json:"cards"`
}

// Planner plans with the facts of a table.
type Planner struct {
	Products *mig.Table
	Force    bool // allow to destroy what is in use
}

// Plan compares a machine with a goal.
func (p Planner) Plan(s State, g Goal) Plan {
	plan := Plan{Schema: SchemaPlan, Possible: true, Cards: []CardPlan{}}
	for _, c := range s.Cards {
		m, ok := g.For(c)
		if !ok {
			continue
		}
		card := p.Card(c, m)
		plan.Possible = plan.Possible && card.Refused == ""
		plan.Steps += len(card.Steps)
		plan.Cards = append(plan.Cards, card)
	}
	return plan
}

// Card plans one card.
func (p Planner) Card(c Card, m MIG) CardPlan {
	plan := CardPlan{UUID: c.UUID, Index: c.Index, Name: c.Name, Steps: []Step{}, Before: c, After: c, Kept: len(c.Instances), Force: p.Force}
	if err := p.card(&plan, c, m); err != nil {
		plan.Refused = RefusedImpossible
		if errors.Is(err, ErrInUse) {
			plan.Refused = RefusedInUse
		}
		plan.Reason = err.Error()
		plan.Steps, plan.After, plan.Kept, plan.Destroyed = []Step{}, c, len(c.Instances), 0
	}
	return plan
}

func (p Planner) card(plan *CardPlan, c Card, m MIG) error {
	if !m.Enabled && !c.MIG {
		return nil
	}
	product, err := p.product(c)
	if err != nil {
		return err
	}
	plan.NeedsReset = product.NeedsReset
	if m.Enabled != c.MIG && len(c.Processes) > 0 {
		return fmt.Errorf("%w: the mode of a card changes only when nobody uses it; it is used by %s", ErrInUse, describe(c.Processes))
	}
	after := c
	after.MIG = m.Enabled
	after.Instances = nil
	if m.Enabled {
		want, err := items(product, m)
		if err != nil {
			return err
		}
		if after.Instances, err = p.instances(product, c, want); err != nil {
			return err
		}
	} else if busy := busyOf(c.Instances); busy != "" && !p.Force {
		return fmt.Errorf("%w: %s", ErrInUse, busy)
	}
	plan.After = after
	plan.Steps = transition(c, after, product.NeedsReset)
	plan.Kept = 0
	for _, i := range c.Instances {
		if slices.ContainsFunc(after.Instances, i.same) && after.MIG == c.MIG {
			plan.Kept++
		}
	}
	plan.Destroyed = len(c.Instances) - plan.Kept
	return nil
}

// product finds the model of a card.
func (p Planner) product(c Card) (*mig.Product, error) {
	if id, err := strconv.ParseUint(strings.TrimPrefix(strings.ToLower(c.DeviceID), "0x"), 16, 16); err == nil {
		if product, ok := p.Products.ByDevice(uint16(id)); ok {
			return product, nil
		}
		if p.Products.DocumentedOnly(uint16(id)) {
			return nil, fmt.Errorf("%w: where instances of %s may start is not published; only its driver knows", ErrImpossible, c.Name)
		}
	}
	if product, ok := p.Products.ByName(c.Name); ok {
		return product, nil
	}
	if p.Products.Without(c.Name) {
		return nil, fmt.Errorf("%w: %s has no MIG", ErrImpossible, c.Name)
	}
	return nil, fmt.Errorf("%w: %s is not in the table of cards with MIG", ErrImpossible, c.Name)
}

// instances finds the instances that a card with MIG gets, those that stay with
// the driver's number.
func (p Planner) instances(product *mig.Product, c Card, want []item) ([]Instance, error) {
	var have []held
	for _, i := range c.Instances {
		index := product.Index(i.Profile)
		if index < 0 || !slices.Contains(product.Profiles[index].Starts, i.Start) {
			return nil, fmt.Errorf("%w: it has %s at %d, which the table of %s does not know", ErrImpossible, i.Profile, i.Start, product.Key)
		}
		have = append(have, held{item: item{profile: index, compute: i.computes()}, start: i.Start, busy: len(i.Processes) > 0})
	}
	a := arrange(product, have, want, p.Force)
	if a == nil {
		forced := arrange(product, have, want, true)
		if forced == nil {
			return nil, fmt.Errorf("%w: %s", ErrImpossible, why(product, want))
		}
		return nil, fmt.Errorf("%w: %s", ErrInUse, inTheWay(c, have, want, forced))
	}
	var after []Instance
	for h, w := range a.stays {
		i := c.Instances[h]
		i.Compute = want[w].compute
		after = append(after, i)
	}
	for w, start := range a.starts {
		after = append(after, Instance{ID: -1, Profile: product.Profiles[want[w].profile].Name, Start: start, Compute: want[w].compute})
	}
	slices.SortFunc(after, func(x, y Instance) int { return x.Start - y.Start })
	return after, nil
}

// inTheWay names what is in use and would have to go.
func inTheWay(c Card, have []held, want []item, forced *arrangement) string {
	var stopped []Instance
	for h := range have {
		w, stays := forced.stays[h]
		if have[h].busy && (!stays || !slices.Equal(want[w].compute, have[h].compute)) {
			stopped = append(stopped, c.Instances[h])
		}
	}
	return busyOf(stopped)
}

// busyOf words which instances are in use by whom, empty if none is.
func busyOf(instances []Instance) string {
	var words []string
	for _, i := range instances {
		if len(i.Processes) > 0 {
			words = append(words, fmt.Sprintf("%s at %d is used by %s", i.Profile, i.Start, describe(i.Processes)))
		}
	}
	return strings.Join(words, "; ")
}

// transition lists the steps from one layout of a card to another: first what
// goes, then what comes. It is used forward, and to roll back.
func transition(from, to Card, needsReset bool) []Step {
	steps := []Step{}
	add := func(s Step) { steps = append(steps, s) }
	for _, i := range from.Instances {
		n := slices.IndexFunc(to.Instances, i.same)
		switch {
		case n < 0 || from.MIG != to.MIG:
			add(Step{Action: ActionDestroy, Profile: i.Profile, Start: i.Start, Why: reason(i, to)})
		case !slices.Equal(i.computes(), to.Instances[n].computes()) && len(i.computes()) > 0:
			add(Step{Action: ActionClear, Profile: i.Profile, Start: i.Start, Why: "other compute instances are wanted"})
		}
	}
	if from.MIG != to.MIG {
		if to.MIG {
			add(Step{Action: ActionOn, Why: "instances are wanted"})
		} else {
			add(Step{Action: ActionOff, Why: "the whole card is wanted"})
		}
		if needsReset {
			add(Step{Action: ActionReset, Why: "this model changes its mode at a reset"})
		}
	}
	for _, i := range to.Instances {
		n := slices.IndexFunc(from.Instances, i.same)
		if n >= 0 && from.MIG == to.MIG && slices.Equal(i.computes(), from.Instances[n].computes()) {
			continue
		}
		if n < 0 || from.MIG != to.MIG {
			add(Step{Action: ActionCreate, Profile: i.Profile, Start: i.Start, Why: "wanted; this start leaves the most room"})
		}
		for _, size := range slices.Backward(i.computes()) {
			add(Step{Action: ActionCompute, Profile: i.Profile, Start: i.Start, Slices: size})
		}
	}
	return steps
}

// reason words why an instance goes.
func reason(i Instance, to Card) string {
	if !to.MIG {
		return "MIG is to be off"
	}
	if !slices.ContainsFunc(to.Instances, func(o Instance) bool { return o.Profile == i.Profile }) {
		return "none of it is wanted"
	}
	return "fewer of it are wanted, or its place is needed for others"
}

// Room says how many more of each profile fit beside what a card has, each
// alone, in the order of the table.
func (p Planner) Room(c Card) ([]string, error) {
	product, err := p.product(c)
	if err != nil {
		return nil, err
	}
	l := newLayout(product)
	for _, i := range c.Instances {
		if index := product.Index(i.Profile); index >= 0 {
			l.add(index, i.Start)
		}
	}
	var room []string
	for i, f := range product.Profiles {
		more := *l
		more.count = slices.Clone(l.count)
		n := 0
		for _, s := range f.Starts {
			if more.opens(i, s) {
				more.add(i, s)
				n++
			}
		}
		if n > 0 {
			room = append(room, fmt.Sprintf("%d x %s", n, f.Name))
		}
	}
	return room, nil
}
