// SPDX-License-Identifier: Apache-2.0

// Package mig divides NVIDIA's cards into GPU instances and these into compute
// instances (MIG), with the facts that a card's driver tells or, where none was
// asked, a table's. It arranges instances so that as few as possible are destroyed,
// and has NVIDIA's driver make them. It reads the files of NVIDIA's mig-parted too.
package mig

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	facts "github.com/divvy-gpu/divvy/internal/mig"
	"github.com/divvy-gpu/divvy/internal/partition"
)

// Actions of MIG's steps, beside partition.ActionReset.
const (
	actionOn      = "mig-on"
	actionOff     = "mig-off"
	actionDestroy = "destroy" // a GPU instance, with its compute instances
	actionClear   = "clear"   // the compute instances of a GPU instance that stays
	actionCreate  = "create"  // a GPU instance
	actionCompute = "compute" // a compute instance
)

// words show a step.
func words(s partition.Step) string {
	switch s.Action {
	case actionOn:
		return "switch MIG mode on"
	case actionOff:
		return "switch MIG mode off"
	case partition.ActionReset:
		return "reset the GPU"
	case actionDestroy:
		return fmt.Sprintf("destroy %s at %d", s.Profile, s.Start)
	case actionClear:
		return fmt.Sprintf("destroy the compute instances of %s at %d", s.Profile, s.Start)
	case actionCreate:
		return fmt.Sprintf("create %s at %d", s.Profile, s.Start)
	}
	return fmt.Sprintf("create a compute instance of %d in %s at %d", s.Slices, s.Profile, s.Start)
}

// maxInstances bounds those of one card.
const maxInstances = 16

// Goal is how many instances of which profile; compute instances are written as
// 1c.3g.20gb.
type Goal struct {
	Enabled bool           `yaml:"enabled" json:"enabled"`
	Devices map[string]int `yaml:"devices,omitempty" json:"devices,omitempty"`
}

func (m *Goal) Validate() error {
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

// State is how a card is divided.
type State struct {
	On bool // the mode
	// Unknown says that only NVIDIA's driver could tell, and was not asked.
	Unknown   bool
	Instances []Instance
	// Model is the card's model as its own driver tells of it; nil: no driver was
	// asked, or it does not tell, and the table counts.
	Model *facts.Product
}

// Instance is a GPU instance with its compute instances.
type Instance struct {
	ID      int    `yaml:"id" json:"id"` // the driver's number; new ones get others
	Profile string `yaml:"profile" json:"profile"`
	Start   int    `yaml:"start" json:"start"` // placement unit
	// Compute lists the slices of each compute instance; absent or null: one of all
	// slices.
	Compute []int `yaml:"compute,flow" json:"compute"`
	// Devices are the UUIDs (MIG-...) by which programs ask for these compute
	// instances, where the driver tells.
	Devices   []string            `yaml:"devices,omitempty,flow" json:"devices,omitempty"`
	Processes []partition.Process `yaml:"processes,omitempty" json:"processes,omitempty"`
	// Booked is the name of the booking that it was made for, empty: for none. It counts as
	// in use.
	Booked string `yaml:"booked,omitempty" json:"booked,omitempty"`
}

// Of is how a card is divided; unknown where nobody told.
func Of(c partition.Card) State {
	if s, ok := c.Divided[partition.TechniqueMIG].(*State); ok {
		return *s
	}
	return State{Unknown: true}
}

// Forget is a card that another driver than NVIDIA's is to have, which knows nothing
// of MIG.
func Forget(c partition.Card) partition.Card {
	s := Of(c)
	s.Unknown = !s.On && c.NVIDIA()
	return c.With(partition.TechniqueMIG, &s)
}

func (s *State) Fields() []partition.Field {
	return []partition.Field{
		{Name: "mig", Value: &s.On}, {Name: "migUnknown", Value: &s.Unknown, Omit: !s.Unknown},
		{Name: "instances", Value: &s.Instances, Omit: len(s.Instances) == 0},
	}
}

func (s *State) Validate() error {
	switch {
	case len(s.Instances) > maxInstances:
		return fmt.Errorf("more than %d instances", maxInstances)
	case !s.On && len(s.Instances) > 0:
		return errors.New("it has instances, but its MIG mode is off")
	}
	return nil
}

func (s *State) Layout(c partition.Card) string {
	switch {
	case s.On:
		var instances []string
		for _, i := range s.Instances {
			instances = append(instances, fmt.Sprintf("%02d:%s%v", i.Start, i.Profile, i.computes()))
		}
		slices.Sort(instances)
		return "MIG on " + strings.Join(instances, " ")
	case c.NVIDIA() && !s.Unknown:
		return "MIG off"
	}
	return ""
}

func (s *State) Parts() []string {
	var names []string
	for _, i := range s.Instances {
		names = append(names, fmt.Sprintf("%s at %d", i.Profile, i.Start))
	}
	return names
}

// Asking is unknown where the other state does not know.
func (s *State) Asking(other partition.Division) partition.Division {
	o, ok := other.(*State)
	return s.beside(!ok || o.Unknown)
}

// Beside is unknown while another driver has the card.
func (s *State) Beside(now partition.Card) partition.Division { return s.beside(Of(now).Unknown) }

func (s *State) beside(unknown bool) *State {
	seen := *s
	seen.Unknown = s.Unknown || unknown && !s.On
	return &seen
}

// computes is the slices of the compute instances, ascending.
func (i Instance) computes() []int {
	if i.Compute != nil {
		return sorted(i.Compute)
	}
	if n := facts.SlicesOf(i.Profile); n > 0 {
		return []int{n}
	}
	return []int{}
}

func (i Instance) busy() bool { return len(i.Processes) > 0 || i.Booked != "" }

// same says whether two instances are the same kind at the same place.
func (i Instance) same(o Instance) bool { return i.Profile == o.Profile && i.Start == o.Start }

func sorted(list []int) []int {
	list = slices.Clone(list)
	slices.Sort(list)
	return list
}

// Technique is MIG.
type Technique struct {
	products *facts.Table
	driver   *Driver
}

// New returns MIG of cards that a driver has; nil: it plans only.
func New(products *facts.Table, driver *Driver) Technique { return Technique{products, driver} }

func (Technique) Name() string { return partition.TechniqueMIG }

func (Technique) About() partition.About {
	return partition.About{
		Yields: true, Want: func() partition.Want { return &Goal{} }, Division: func() partition.Division { return &State{} },
		Explanation: partition.Explanation{
			Title: "Multi-Instance GPU", Vendors: "nvidia (A30, A100, H100 and later data-centre GPUs; not L4, L40S, A10, A40)",
			Goal: "mig: {enabled: true, devices: {3g.40gb: 2}}",
			Isolation: []string{
				"memory: own slices of memory, cache and bandwidth", "compute: own processors", "faults: most stay within an instance; a reset takes all",
				"side channels: narrow; PCIe, power and clock are shared",
			},
			Cost:     "fixed sizes; on A100 and H100 one slice of eight has no processors; no NVLink between instances; no graphics on most",
			Needs:    "mode on (Ampere: a reset, so an idle GPU)",
			Excludes: "a program sees one instance",
		},
	}
}

// On says whether the card's MIG mode is on.
func (Technique) On(c partition.Card) bool { return Of(c).On }

// Aim places the instances that are wanted.
func (t Technique) Aim(c partition.Card, r partition.Rule, force bool) (partition.Card, error) {
	m, s := r.Wants[t.Name()].(*Goal), Of(c)
	if !m.Enabled && !s.On {
		return c, nil
	}
	product, err := t.Product(c)
	if err != nil {
		return c, err
	}
	if m.Enabled != s.On && len(c.Processes) > 0 {
		return c, modeInUse(c)
	}
	after := State{On: m.Enabled, Unknown: s.Unknown, Model: s.Model}
	if !m.Enabled {
		if busy := busyOf(s.Instances); busy != "" && !force {
			return c, fmt.Errorf("%w: %s", partition.ErrInUse, busy)
		}
		return c.With(t.Name(), &after), nil
	}
	want, err := items(product, *m)
	if err != nil {
		return c, err
	}
	after.Instances, err = t.instances(product, s, want, force)
	return c.With(t.Name(), &after), err
}

func modeInUse(c partition.Card) error {
	return fmt.Errorf("%w: the mode of a GPU changes only when no program uses it; it is used by %s", partition.ErrInUse, partition.Describe(c.Processes))
}

// Steps lists first what goes, then what comes.
func (t Technique) Steps(from, to partition.Card) []partition.Step {
	var steps []partition.Step
	add := func(s partition.Step) {
		s.Words = words(s)
		steps = append(steps, s)
	}
	has, want := Of(from), Of(to)
	for _, i := range has.Instances {
		n := slices.IndexFunc(want.Instances, i.same)
		switch {
		case n < 0 || has.On != want.On:
			add(partition.Step{Action: actionDestroy, Profile: i.Profile, Start: i.Start, Why: reason(i, want)})
		case !slices.Equal(i.computes(), want.Instances[n].computes()) && len(i.computes()) > 0:
			add(partition.Step{Action: actionClear, Profile: i.Profile, Start: i.Start, Why: "other compute instances are wanted"})
		}
	}
	if has.On != want.On {
		if want.On {
			add(partition.Step{Action: actionOn, Why: "instances are wanted"})
		} else {
			add(partition.Step{Action: actionOff, Why: "the whole GPU is wanted"})
		}
		if product, err := t.Product(to); err == nil && product.NeedsReset {
			add(partition.Step{Action: partition.ActionReset, Why: "this model changes its mode at a reset"})
		}
	}
	for _, i := range want.Instances {
		n := slices.IndexFunc(has.Instances, i.same)
		if n >= 0 && has.On == want.On && slices.Equal(i.computes(), has.Instances[n].computes()) {
			continue
		}
		if n < 0 || has.On != want.On {
			add(partition.Step{Action: actionCreate, Profile: i.Profile, Start: i.Start, Why: "wanted; this start leaves the most room"})
		}
		for _, size := range slices.Backward(i.computes()) {
			add(partition.Step{Action: actionCompute, Profile: i.Profile, Start: i.Start, Slices: size})
		}
	}
	return steps
}

// Busy words who would lose an instance.
func (Technique) Busy(c partition.Card, steps []partition.Step) string {
	var gone []Instance
	for _, s := range steps {
		if s.Action != actionDestroy && s.Action != actionClear {
			continue
		}
		for _, i := range Of(c).Instances {
			if i.Profile == s.Profile && i.Start == s.Start {
				gone = append(gone, i)
			}
		}
	}
	return busyOf(gone)
}

// Product finds the model of a card: what its driver tells, else the table's.
func (t Technique) Product(c partition.Card) (*facts.Product, error) {
	if model := Of(c).Model; model != nil {
		return model, nil
	}
	if id, err := strconv.ParseUint(strings.TrimPrefix(strings.ToLower(c.DeviceID), "0x"), 16, 16); err == nil {
		if product, ok := t.products.ByDevice(uint16(id)); ok {
			return product, nil
		}
		if t.products.DocumentedOnly(uint16(id)) {
			return nil, fmt.Errorf("%w: where instances of %s may start is not published; only its driver knows", partition.ErrImpossible, c.Name)
		}
	}
	if product, ok := t.products.ByName(c.Name); ok {
		return product, nil
	}
	if t.products.Without(c.Name) {
		return nil, fmt.Errorf("%w: %s has no MIG", partition.ErrImpossible, c.Name)
	}
	return nil, fmt.Errorf("%w: %s is not in the table of GPUs with MIG", partition.ErrImpossible, c.Name)
}

// instances finds the instances that a card with MIG gets, those that stay with
// the driver's number.
func (t Technique) instances(product *facts.Product, s State, want []item, force bool) ([]Instance, error) {
	var have []held
	for _, i := range s.Instances {
		index := product.Index(i.Profile)
		if index < 0 || !slices.Contains(product.Profiles[index].Starts, i.Start) {
			return nil, fmt.Errorf("%w: it has %s at %d, which %s does not have", partition.ErrImpossible, i.Profile, i.Start, product.Key)
		}
		have = append(have, held{item: item{profile: index, compute: i.computes()}, start: i.Start, busy: i.busy()})
	}
	a := arrange(product, have, want, force)
	if a == nil {
		forced := arrange(product, have, want, true)
		if forced == nil {
			return nil, fmt.Errorf("%w: %s", partition.ErrImpossible, why(product, want))
		}
		return nil, fmt.Errorf("%w: %s", partition.ErrInUse, inTheWay(s, have, want, forced))
	}
	var after []Instance
	for h, w := range a.stays {
		i := s.Instances[h]
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
func inTheWay(s State, have []held, want []item, forced *arrangement) string {
	var stopped []Instance
	for h := range have {
		w, stays := forced.stays[h]
		if have[h].busy && (!stays || !slices.Equal(want[w].compute, have[h].compute)) {
			stopped = append(stopped, s.Instances[h])
		}
	}
	return busyOf(stopped)
}

// busyOf words which instances are in use by whom, empty if none is.
func busyOf(instances []Instance) string {
	var words []string
	for _, i := range instances {
		switch {
		case len(i.Processes) > 0:
			words = append(words, fmt.Sprintf("%s at %d is used by %s", i.Profile, i.Start, partition.Describe(i.Processes)))
		case i.Booked != "":
			words = append(words, fmt.Sprintf("%s at %d is booked by %s", i.Profile, i.Start, i.Booked))
		}
	}
	return strings.Join(words, "; ")
}

// reason words why an instance goes.
func reason(i Instance, to State) string {
	if !to.On {
		return "MIG is to be off"
	}
	if !slices.ContainsFunc(to.Instances, func(o Instance) bool { return o.Profile == i.Profile }) {
		return "none of it is wanted"
	}
	return "fewer of it are wanted, or its place is needed for others"
}

// layout is what a card's instances take of it.
func (t Technique) layout(c partition.Card) (l facts.Layout, err error) {
	if l.Product, err = t.Product(c); err != nil {
		return l, err
	}
	for _, i := range Of(c).Instances {
		if index := l.Product.Index(i.Profile); index >= 0 {
			l.Add(index, i.Start)
		}
	}
	return l, nil
}

// Room says how many more of each profile fit beside what a card has, each
// alone, in the order of the table.
func (t Technique) Room(c partition.Card) ([]string, error) {
	l, err := t.layout(c)
	if err != nil {
		return nil, err
	}
	var room []string
	for i, f := range l.Product.Profiles {
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

// ErrNoRoom says that an instance does not fit beside those that a card has.
var ErrNoRoom = errors.New("no room")

// Anywhere is the start of an instance that goes where it leaves the most room.
const Anywhere = -1

// Add returns a card with one more instance of a profile at a start, and the instance.
// What there is stays as it is; the mode is switched on where it is off.
func (t Technique) Add(c partition.Card, profile string, start int) (partition.Card, Instance, error) {
	l, err := t.layout(c)
	if err != nil {
		return c, Instance{}, err
	}
	s, i := Of(c), l.Product.Index(profile)
	if i < 0 {
		return c, Instance{}, fmt.Errorf("%w: %s has no profile %s", partition.ErrImpossible, c.Name, profile)
	}
	f := l.Product.Profiles[i]
	if start == Anywhere {
		start = l.Best(i)
	} else if !slices.Contains(f.Starts, start) {
		return c, Instance{}, fmt.Errorf("%w: %s starts at one of %v on %s", partition.ErrImpossible, profile, f.Starts, c.Name)
	}
	made := Instance{ID: -1, Profile: f.Name, Start: start, Compute: []int{f.Slices}}
	switch {
	case start < 0 || !l.Opens(i, start):
		return c, Instance{}, fmt.Errorf("%w for %s beside %q", ErrNoRoom, profile, c.Layout())
	case !s.On && len(c.Processes) > 0:
		return c, Instance{}, modeInUse(c)
	}
	s.On, s.Unknown = true, false
	s.Instances = append(slices.Clone(s.Instances), made)
	slices.SortFunc(s.Instances, func(a, b Instance) int { return a.Start - b.Start })
	return c.With(t.Name(), &s), made, nil
}

// Drop returns a card without an instance; the mode stays on. false: the card does not
// have it, or has another in its place.
func (t Technique) Drop(c partition.Card, gone Instance) (partition.Card, bool) {
	s := Of(c)
	i := s.Find(gone)
	if i < 0 {
		return c, false
	}
	s.Instances = slices.Delete(slices.Clone(s.Instances), i, i+1)
	return c.With(t.Name(), &s), true
}

// Find is the index of an instance: of the same profile at the same start and, where
// both tell, with the same devices; -1: there is none.
func (s State) Find(o Instance) int {
	return slices.IndexFunc(s.Instances, func(i Instance) bool {
		return i.same(o) && (i.Devices == nil || o.Devices == nil || slices.Equal(i.Devices, o.Devices))
	})
}

// Book notes on a card which of its instances are booked, by the names of the bookings.
func Book(c partition.Card, bookings map[string]Instance) partition.Card {
	s := Of(c)
	s.Instances = slices.Clone(s.Instances)
	for _, name := range slices.Sorted(maps.Keys(bookings)) {
		if i := s.Find(bookings[name]); i >= 0 {
			s.Instances[i].Booked = name
		}
	}
	return c.With(partition.TechniqueMIG, &s)
}
