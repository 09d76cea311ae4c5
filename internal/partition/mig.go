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

// TechniqueMIG is the name of MIGTechnique.
const TechniqueMIG = "mig"

// Actions of MIG's steps.
const (
	ActionOn      = "mig-on"
	ActionOff     = "mig-off"
	ActionReset   = "reset"
	ActionDestroy = "destroy" // a GPU instance, with its compute instances
	ActionClear   = "clear"   // the compute instances of a GPU instance that stays
	ActionCreate  = "create"  // a GPU instance
	ActionCompute = "compute" // a compute instance
)

// MIG is how many instances of which profile; compute instances are written as
// 1c.3g.20gb.
type MIG struct {
	Enabled bool           `yaml:"enabled" json:"enabled"`
	Devices map[string]int `yaml:"devices,omitempty" json:"devices,omitempty"`
}

func (m *MIG) validate() error {
	if !m.Enabled && len(m.Devices) > 0 {
		return errors.New("instances, but MIG is not enabled")
	}
	for name, n := range m.Devices {
		if n < 0 || n > maxInstances*8 {
			return fmt.Errorf("%d of %s", n, name)
		}
		if _, _, err := splitName(name); err != nil {
			return err
		}
	}
	return nil
}

// MIGTechnique divides NVIDIA's cards into GPU instances and these into compute
// instances, with the facts that a card's driver tells or, where none was asked, a
// table's.
type MIGTechnique struct{ Products *mig.Table }

var _ Technique = MIGTechnique{}

// Name is TechniqueMIG.
func (MIGTechnique) Name() string { return TechniqueMIG }

// On says whether the card's MIG mode is on.
func (MIGTechnique) On(c Card) bool { return c.MIG }

// Aim places the instances that are wanted.
func (t MIGTechnique) Aim(c Card, r Rule, force bool) (Card, error) {
	m := r.MIG
	if !m.Enabled && !c.MIG {
		return c, nil
	}
	product, err := t.product(c)
	if err != nil {
		return c, err
	}
	if m.Enabled != c.MIG && len(c.Processes) > 0 {
		return c, fmt.Errorf("%w: the mode of a card changes only when nobody uses it; it is used by %s", ErrInUse, Describe(c.Processes))
	}
	after := c
	after.MIG = m.Enabled
	after.Instances = nil
	if !m.Enabled {
		if busy := busyOf(c.Instances); busy != "" && !force {
			return c, fmt.Errorf("%w: %s", ErrInUse, busy)
		}
		return after, nil
	}
	want, err := items(product, *m)
	if err != nil {
		return c, err
	}
	after.Instances, err = t.instances(product, c, want, force)
	return after, err
}

// Steps lists first what goes, then what comes.
func (t MIGTechnique) Steps(from, to Card) []Step {
	var steps []Step
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
		if product, err := t.product(to); err == nil && product.NeedsReset {
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

// Busy words who would lose an instance.
func (MIGTechnique) Busy(c Card, steps []Step) string {
	var gone []Instance
	for _, s := range steps {
		if s.Action != ActionDestroy && s.Action != ActionClear {
			continue
		}
		for _, i := range c.Instances {
			if i.Profile == s.Profile && i.Start == s.Start {
				gone = append(gone, i)
			}
		}
	}
	return busyOf(gone)
}

// product finds the model of a card: what its driver tells, else the table's.
func (t MIGTechnique) product(c Card) (*mig.Product, error) {
	if c.Model != nil {
		return c.Model, nil
	}
	if id, err := strconv.ParseUint(strings.TrimPrefix(strings.ToLower(c.DeviceID), "0x"), 16, 16); err == nil {
		if product, ok := t.Products.ByDevice(uint16(id)); ok {
			return product, nil
		}
		if t.Products.DocumentedOnly(uint16(id)) {
			return nil, fmt.Errorf("%w: where instances of %s may start is not published; only its driver knows", ErrImpossible, c.Name)
		}
	}
	if product, ok := t.Products.ByName(c.Name); ok {
		return product, nil
	}
	if t.Products.Without(c.Name) {
		return nil, fmt.Errorf("%w: %s has no MIG", ErrImpossible, c.Name)
	}
	return nil, fmt.Errorf("%w: %s is not in the table of cards with MIG", ErrImpossible, c.Name)
}

// instances finds the instances that a card with MIG gets, those that stay with
// the driver's number.
func (t MIGTechnique) instances(product *mig.Product, c Card, want []item, force bool) ([]Instance, error) {
	var have []held
	for _, i := range c.Instances {
		index := product.Index(i.Profile)
		if index < 0 || !slices.Contains(product.Profiles[index].Starts, i.Start) {
			return nil, fmt.Errorf("%w: it has %s at %d, which %s does not have", ErrImpossible, i.Profile, i.Start, product.Key)
		}
		have = append(have, held{item: item{profile: index, compute: i.computes()}, start: i.Start, busy: len(i.Processes) > 0})
	}
	a := arrange(product, have, want, force)
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
		if !slices.Equal(i.computes(), want[w].compute) {
			i.Devices = nil
		}
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
			words = append(words, fmt.Sprintf("%s at %d is used by %s", i.Profile, i.Start, Describe(i.Processes)))
		}
	}
	return strings.Join(words, "; ")
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
func (t MIGTechnique) Room(c Card) ([]string, error) {
	product, err := t.product(c)
	if err != nil {
		return nil, err
	}
	l := mig.Layout{Product: product}
	for _, i := range c.Instances {
		if index := product.Index(i.Profile); index >= 0 {
			l.Add(index, i.Start)
		}
	}
	var room []string
	for i, f := range product.Profiles {
		more, n := l, 0
		for _, s := range f.Starts {
			if more.Opens(i, s) {
				more.Add(i, s)
				n++
			}
		}
		if n > 0 {
			room = append(room, fmt.Sprintf("%d x %s", n, f.Name))
		}
	}
	return room, nil
}
