// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/cdi"
	"github.com/divvy-gpu/divvy/internal/gpu"
	facts "github.com/divvy-gpu/divvy/internal/mig"
	"github.com/divvy-gpu/divvy/internal/partition"
	"github.com/divvy-gpu/divvy/internal/partition/machine"
	"github.com/divvy-gpu/divvy/internal/partition/mig"
)

// instances is what makes an agent's MIG instances: each change opens the journal and the GPUs as
// divvy partition apply does, so that one of them changes GPUs at a time.
type instances struct {
	app       *app
	log       *slog.Logger
	driver    string // folder of its libraries
	simulated bool
	journal   string
	mps       string
	offers    func() (*cdi.Offers, error) // nil: none are written
	turn      chan struct{}               // holds one while somebody changes
	asking    chan struct{}               // holds one while the driver is asked

	mutex sync.Mutex        // guards everything below
	known []machine.Booking // as the journal had them last
	read  bool              // it has been
}

var _ agent.Instances = (*instances)(nil)

func newInstances(a *app, f *agentFlags, cfg agent.Config) *instances {
	i := &instances{
		app: a, log: cfg.Logger, driver: cfg.DriverDirectory, simulated: f.simulator != "", mps: cfg.MPSFolder(),
		journal: filepath.Join(cfg.JournalDirectory, filepath.Base(machine.DefaultJournal)), turn: make(chan struct{}, 1), asking: make(chan struct{}, 1),
	}
	if f.cdi != "" {
		i.offers = func() (*cdi.Offers, error) { return f.offers(a, cfg) }
	}
	return i
}

// change has f change GPUs, when nobody else does.
func (i *instances) change(ctx context.Context, f func(*machine.Machine, *machine.Journal) error) (err error) {
	select {
	case i.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-i.turn }()
	j, err := machine.OpenJournal(i.journal)
	if err != nil {
		return err
	}
	defer func() {
		i.mutex.Lock()
		i.known, i.read = j.Bookings(), true
		i.mutex.Unlock()
		err = errors.Join(err, j.Close())
	}()
	in := partitionInput{lock: j.Lock, mps: i.mps, library: i.driver}
	if i.simulated {
		in.driver = i.driver
	}
	cards, closeCards, err := i.app.openCards(in)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeCards()) }()
	cards.Shares = nil // a GPU in MIG mode has none
	return f(cards, j)
}

func (i *instances) Ensure(ctx context.Context, spec api.InstanceSpec) (made api.Instance, isNew bool, err error) {
	want := machine.Booking{Name: spec.Name, Card: spec.GPU, Profile: spec.Profile, Start: mig.Anywhere, Device: spec.Device, Labels: spec.Labels}
	if spec.Start != nil {
		want.Start = *spec.Start
	}
	err = i.change(ctx, func(cards *machine.Machine, j *machine.Journal) error {
		b, booked, err := cards.Book(ctx, j, want)
		if errors.Is(err, partition.ErrInUse) {
			return &api.Error{Code: api.CodeUnavailable, Message: err.Error(), Hint: "ask again"}
		}
		if errors.Is(err, machine.ErrOther) {
			return &api.Error{Code: api.CodeExists, Message: fmt.Sprintf("instance %q is %s at %d of GPU %s", b.Name, b.Profile, b.Start, b.Card), Differs: b.Differs(want)}
		}
		if err != nil {
			return err
		}
		made, isNew = i.instance(b), booked
		if i.offers == nil {
			return nil
		}
		offers, err := i.offers()
		if err != nil {
			return err
		}
		return offer(offers, b)
	})
	return made, isNew, instanceError(err)
}

// bookedDevices are the UUIDs of what is booked.
func bookedDevices(b machine.Booking) []string {
	if b.Device != "" {
		return []string{b.Device}
	}
	return slices.Concat([]string{}, b.Devices)
}

// offer lets containers have an instance.
func offer(offers *cdi.Offers, b machine.Booking) error {
	devices := bookedDevices(b)
	if len(devices) != 1 {
		return fmt.Errorf("instance %q has %d MIG devices, and containers can have one", b.Name, len(devices))
	}
	return offers.Instance(b.Name, devices[0])
}

func (i *instances) Delete(ctx context.Context, name string) error {
	return instanceError(i.change(ctx, func(cards *machine.Machine, j *machine.Journal) error {
		err := cards.Release(ctx, j, name)
		if i.offers == nil || err != nil && !errors.Is(err, machine.ErrNotBooked) {
			return err
		}
		offers, failed := i.offers()
		if failed == nil {
			failed = offers.Folder.Remove(cdi.ClassInstance, name)
		}
		return errors.Join(err, failed)
	}))
}

// Settle recovers, and writes the files of what there is; without a journal of bookings there is nothing.
func (i *instances) Settle(ctx context.Context) error {
	if _, err := os.Stat(i.journal + machine.BookingsSuffix); errors.Is(err, os.ErrNotExist) {
		i.mutex.Lock()
		defer i.mutex.Unlock()
		i.read = true
		return nil
	}
	return i.change(ctx, func(cards *machine.Machine, j *machine.Journal) error {
		if _, err := cards.Recover(ctx, j); err != nil {
			return err
		}
		var offers *cdi.Offers
		if i.offers != nil {
			var err error
			if offers, err = i.offers(); err != nil {
				return err
			}
		}
		var names []string
		var failures []error
		for _, b := range j.Bookings() {
			there, err := cards.Has(ctx, j, b)
			if err == nil && there && offers != nil {
				err = offer(offers, b)
			}
			if failures = append(failures, err); there {
				names = append(names, b.Name)
			}
		}
		if offers != nil {
			failures = append(failures, offers.KeepInstances(names))
		}
		return errors.Join(failures...)
	})
}

func (i *instances) List(ctx context.Context) (api.Instances, error) {
	list := api.Instances{Instances: []api.Instance{}}
	i.mutex.Lock()
	known, read := i.known, i.read
	i.mutex.Unlock()
	if !read {
		return list, &api.Error{Code: api.CodeUnavailable, Message: "the agent has not read which MIG instances it made", Hint: "ask again"}
	}
	booked := map[string]map[string]mig.Instance{} // by GPU
	for _, b := range known {
		if b.Stage != machine.StageMade {
			continue
		}
		list.Instances = append(list.Instances, i.instance(b))
		if booked[b.Card] == nil {
			booked[b.Card] = map[string]mig.Instance{}
		}
		booked[b.Card][b.Name] = mig.Instance{Profile: b.Profile, Start: b.Start, Devices: b.Devices}
	}
	list.Cards = i.ask(ctx, booked)
	return list, nil
}

// ask is cards for as long as who asks waits; nil: the driver does not answer. One that hangs is
// asked once.
func (i *instances) ask(ctx context.Context, booked map[string]map[string]mig.Instance) []api.MIGCard {
	ctx, cancel := context.WithTimeout(ctx, libraryAnswersFor)
	defer cancel()
	select {
	case i.asking <- struct{}{}:
	case <-ctx.Done():
		return nil
	}
	answered := make(chan []api.MIGCard, 1)
	go func() { // ends when the driver answers
		defer func() { <-i.asking }()
		cards, err := i.cards(context.WithoutCancel(ctx), booked)
		if err != nil {
			i.log.Debug("how GPUs are divided by MIG", "error", err)
			cards = nil
		}
		answered <- cards
	}()
	select {
	case cards := <-answered:
		return cards
	case <-ctx.Done():
		return nil
	}
}

// cards asks the driver, and nothing else, how the GPUs in MIG mode are divided.
func (i *instances) cards(ctx context.Context, booked map[string]map[string]mig.Instance) (list []api.MIGCard, err error) {
	products, err := facts.Default()
	if err != nil {
		return nil, err
	}
	m, err := machine.Open(machine.Config{Products: products, Library: func() (mig.Source, func() error, error) { return i.app.openLibrary(i.driver) }})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	state, err := m.State(ctx)
	if err != nil {
		return nil, err
	}
	list = []api.MIGCard{}
	for _, c := range state.Cards {
		if !mig.Of(c).On {
			continue
		}
		product, err := mig.New(products, nil).Product(c)
		if err != nil {
			return nil, err
		}
		card := api.MIGCard{CardUUID: c.UUID, Units: product.Units, All: amounts(product.Slices, product.Engines), Profiles: []api.MIGProfile{}, Has: []api.MIGPart{}}
		for _, p := range product.Profiles {
			card.Profiles = append(card.Profiles, api.MIGProfile{
				Name: p.Name, MemoryBytes: uint64(p.Memory()) << 20, Takes: amounts(p.Slices, p.Engines), Size: p.Size, Starts: slices.Clone(p.Starts), Most: p.Most,
			})
		}
		for _, has := range mig.Of(mig.Book(c, booked[c.UUID])).Instances {
			card.Has = append(card.Has, api.MIGPart{Profile: has.Profile, Start: has.Start, Devices: slices.Concat([]string{}, has.Devices), Name: has.Booked})
		}
		list = append(list, card)
	}
	return list, nil
}

func amounts(slices int, e facts.Engines) api.MIGAmounts {
	return api.MIGAmounts{Slices: slices, Decoders: e.Dec, Encoders: e.Enc, JPEG: e.JPEG, OFA: e.OFA}
}

func (i *instances) instance(b machine.Booking) api.Instance {
	made := api.Instance{
		InstanceSpec: api.InstanceSpec{Name: b.Name, GPU: b.Card, Device: b.Device, Profile: b.Profile, Start: &b.Start, Labels: b.Labels},
		Devices:      bookedDevices(b),
	}
	if i.offers != nil {
		made.CDIDevice = cdi.Name(cdi.ClassInstance, b.Name)
	}
	return made
}

// instanceError is what the interface says of a failure.
func instanceError(err error) error {
	var known *api.Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	e := &api.Error{Code: api.CodeUnavailable, Message: err.Error()}
	switch {
	case errors.Is(err, mig.ErrNoRoom):
		e.Code = api.CodeNoRoom
	case errors.Is(err, machine.ErrNotBooked), errors.Is(err, machine.ErrNoDevice), errors.Is(err, gpu.ErrNoCard):
		e.Code = api.CodeNotFound
	case errors.Is(err, partition.ErrInUse), errors.Is(err, partition.ErrImpossible):
		e.Code = api.CodeNotAllowed
	case errors.Is(err, machine.ErrBusy):
		e.Hint = "ask again"
	}
	return e
}
