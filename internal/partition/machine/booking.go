// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/partition"
	"github.com/divvy-gpu/divvy/internal/partition/mig"
)

// Booking is one MIG instance that is made for somebody, by a name, or a MIG device that was there.
type Booking struct {
	Name    string            `json:"name"`
	Card    string            `json:"card"` // UUID
	Profile string            `json:"profile"`
	Start   int               `json:"start"` // or mig.Anywhere, until it is made
	Labels  map[string]string `json:"labels,omitempty"`
	// Devices are the UUIDs of its compute instances, by which nothing else is taken for it;
	// where the driver tells.
	Devices []string `json:"devices,omitempty"`
	// Device is the UUID of the one that was there before, and stays; empty: it is made. Then
	// profile, start and devices are those of its instance, which others may have parts of.
	Device string `json:"device,omitempty"`
	Stage  Stage  `json:"stage"`
}

// Stage is how far a booking has got, as it is kept.
type Stage string

// A booking is making until its instance is there, and going from when that begins to be
// destroyed. What a crash leaves of either is destroyed by the next change of cards.
const (
	StageMaking Stage = "making"
	StageMade   Stage = "made"
	StageGoing  Stage = "going"
	stageGone   Stage = "gone"
)

// MaxBookings bounds the bookings of a machine.
const MaxBookings = 1024

var (
	// ErrOther says that a booking of this name is of another instance.
	ErrOther = errors.New("another is booked under this name")
	// ErrNoDevice says that a GPU has no MIG device of a UUID.
	ErrNoDevice = errors.New("no such MIG device")
	// ErrNotBooked says that there is no booking of a name.
	ErrNotBooked = errors.New("not booked")
)

func (b Booking) instance() mig.Instance {
	return mig.Instance{Profile: b.Profile, Start: b.Start, Devices: b.Devices}
}

// Differs are the fields in which a booking is not as it is wanted.
func (b Booking) Differs(want Booking) []string {
	var names []string
	for name, same := range map[string]bool{
		"gpu": b.Card == want.Card, "device": b.Device == want.Device, "labels": maps.Equal(b.Labels, want.Labels),
		"profile": b.Profile == want.Profile || want.Device != "" && want.Profile == "",
		"start":   b.Start == want.Start || want.Start == mig.Anywhere,
	} {
		if !same {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Book makes one MIG instance, with a compute instance of all its slices, for who books it, or
// finds it made; made says which. One that is gone meanwhile, by a reset or by force, is made
// anew. No other instance is touched: mig.ErrNoRoom says that it does not fit beside them. The
// card's mode must be on. Where a step fails, the card is as it was; after a crash the next change
// of cards sees to it.
//
// Where a device is wanted, nothing is made: ErrNoDevice says that it is not there, mig.ErrNoRoom
// that another booking has it.
func (m *Machine) Book(ctx context.Context, j *Journal, want Booking) (b Booking, made bool, err error) {
	if _, err := m.Recover(ctx, j); err != nil {
		return Booking{}, false, err
	}
	b, known := j.bookings[want.Name]
	switch {
	case known && b.Stage != StageMade:
		return Booking{}, false, fmt.Errorf("booking %s: what there was of it is not gone: %w", b.Name, j.unsettled[b.Name])
	case known && len(b.Differs(want)) > 0:
		return b, false, ErrOther
	case !known && len(j.bookings) >= MaxBookings:
		return Booking{}, false, fmt.Errorf("%w: %d are booked already", mig.ErrNoRoom, MaxBookings)
	}
	c, err := m.card(ctx, want.Card)
	if err != nil {
		return Booking{}, false, err
	}
	if known && mig.Of(c).Find(b.instance()) >= 0 {
		return b, false, nil
	}
	if want.Device != "" {
		b, err := j.take(c, want)
		return b, err == nil, err
	}
	after, one, err := m.add(c, want)
	if err != nil {
		return Booking{}, false, fmt.Errorf("make %s on GPU %s: %w", want.Profile, c.UUID, err)
	}
	b = want
	b.Start, b.Devices, b.Stage = one.Start, nil, StageMaking
	if err := j.note(b); err != nil {
		return Booking{}, false, err
	}
	if err = m.to(ctx, j, c, after); err == nil {
		b, err = m.keep(ctx, j, b)
	}
	if err != nil { // as after a crash
		_, again := m.Recover(context.WithoutCancel(ctx), j)
		return Booking{}, false, errors.Join(fmt.Errorf("make %s at %d: %w", b.Profile, b.Start, err), again)
	}
	return b, true, nil
}

// take books a device that is there.
func (j *Journal) take(c partition.Card, want Booking) (Booking, error) {
	all := mig.Of(c).Instances
	at := slices.IndexFunc(all, func(i mig.Instance) bool { return slices.Contains(i.Devices, want.Device) })
	if at < 0 {
		return Booking{}, fmt.Errorf("GPU %s: %w: %s", c.UUID, ErrNoDevice, want.Device)
	}
	i := all[at]
	for _, b := range j.Bookings() {
		if b.Name != want.Name && slices.Contains(b.Devices, want.Device) && (b.Device == "" || b.Device == want.Device) {
			return Booking{}, fmt.Errorf("%w: %s is booked by %s", mig.ErrNoRoom, want.Device, b.Name)
		}
	}
	b := want
	b.Profile, b.Start, b.Devices, b.Stage = i.Profile, i.Start, i.Devices, StageMade
	if differs := b.Differs(want); len(differs) > 0 {
		return Booking{}, fmt.Errorf("%w: %s is %s at %d", partition.ErrImpossible, want.Device, i.Profile, i.Start)
	}
	return b, j.note(b)
}

// add is a card with what is wanted.
func (m *Machine) add(c partition.Card, want Booking) (partition.Card, mig.Instance, error) {
	t, err := m.mig()
	if err == nil && !t.On(c) {
		err = fmt.Errorf("%w: its MIG mode is off (divvy partition apply)", partition.ErrImpossible)
	}
	if err != nil {
		return c, mig.Instance{}, err
	}
	return t.Add(c, want.Profile, want.Start)
}

// keep notes that an instance is there, and by which UUIDs.
func (m *Machine) keep(ctx context.Context, j *Journal, b Booking) (Booking, error) {
	c, err := m.card(ctx, b.Card)
	if err != nil {
		return b, err
	}
	at := mig.Of(c).Find(b.instance())
	if at < 0 {
		return b, errors.New("it is gone again")
	}
	b.Devices, b.Stage = mig.Of(c).Instances[at].Devices, StageMade
	return b, j.note(b)
}

// Release destroys the instance of a booking, and the booking; one that is gone, has another in
// its place, or was there before is left out. partition.ErrInUse: a program uses it. ErrNotBooked: there is no
// such booking.
func (m *Machine) Release(ctx context.Context, j *Journal, name string) error {
	if _, err := m.Recover(ctx, j); err != nil {
		return err
	}
	b, ok := j.bookings[name]
	if !ok {
		return fmt.Errorf("booking %s: %w", name, ErrNotBooked)
	}
	err := j.unsettled[name]
	if b.Stage == StageMade {
		err = m.release(ctx, j, b)
	}
	if err != nil {
		return fmt.Errorf("destroy %s at %d: %w", b.Profile, b.Start, err)
	}
	return nil
}

func (m *Machine) release(ctx context.Context, j *Journal, b Booking) error {
	c, err := m.card(ctx, b.Card)
	if err != nil && !errors.Is(err, gpu.ErrNoCard) {
		return err
	}
	// Whose part of an instance a program uses nobody tells.
	if at := mig.Of(c).Find(b.instance()); at >= 0 && len(b.Devices) <= 1 && len(mig.Of(c).Instances[at].Processes) > 0 {
		return inUse(mig.Of(c).Instances[at])
	}
	if b.Device != "" {
		b.Stage = stageGone
		return j.note(b)
	}
	return m.drop(ctx, j, b)
}

func inUse(i mig.Instance) error {
	return fmt.Errorf("%w by %s", partition.ErrInUse, partition.Describe(i.Processes))
}

// drop destroys what there is of a booking, and ends it. From its first record on there is no way
// back.
func (m *Machine) drop(ctx context.Context, j *Journal, b Booking) error {
	if b.Stage != StageGoing {
		b.Stage = StageGoing
		if err := j.note(b); err != nil {
			return err
		}
	}
	c, err := m.card(ctx, b.Card)
	if err != nil && !errors.Is(err, gpu.ErrNoCard) { // one that is gone has nothing
		return err
	}
	if at := mig.Of(c).Find(b.instance()); at >= 0 {
		i := mig.Of(c).Instances[at]
		if len(i.Processes) > 0 {
			return inUse(i)
		}
		t, err := m.mig()
		if err != nil {
			return err
		}
		after, _ := t.Drop(c, i)
		if err := m.to(ctx, j, c, after); err != nil {
			return err
		}
	}
	b.Stage = stageGone
	return j.note(b)
}

// settle ends bookings that were neither made nor destroyed to their end. What cannot be
// destroyed now, as it is in use, is left for the next time. began: a change of cards may have;
// else nothing was made, and what is in a booking's place is another's.
func (m *Machine) settle(ctx context.Context, j *Journal, began bool) {
	j.unsettled = map[string]error{}
	for _, b := range j.Bookings() {
		var err error
		switch {
		case b.Stage == StageMade:
		case b.Stage == StageMaking && !began:
			b.Stage = stageGone
			err = j.note(b)
		default:
			err = m.drop(ctx, j, b)
		}
		if err != nil {
			j.unsettled[b.Name] = err
		}
	}
}

// Has says whether the instance of a booking is made, and there. An error is one that was left
// where it is neither.
func (m *Machine) Has(ctx context.Context, j *Journal, b Booking) (bool, error) {
	if b.Stage != StageMade {
		return false, fmt.Errorf("booking %s: what there was of it is not gone: %w", b.Name, j.unsettled[b.Name])
	}
	c, err := m.card(ctx, b.Card)
	if err != nil && !errors.Is(err, gpu.ErrNoCard) {
		return false, err
	}
	return mig.Of(c).Find(b.instance()) >= 0, nil
}

// card observes a card by its UUID, as its changes are.
func (m *Machine) card(ctx context.Context, uuid string) (partition.Card, error) {
	c, err := m.Observe(ctx, uuid)
	if err == nil && c.ID() != uuid {
		c, err = m.Observe(ctx, c.ID())
	}
	return c, err
}

// to leads one card to a state.
func (m *Machine) to(ctx context.Context, j *Journal, from, to partition.Card) error {
	_, err := m.Apply(ctx, j, partition.Planner{Techniques: m.Techniques}.To(from, to, nil))
	return err
}

// booked notes on a card what of it is booked.
func (m *Machine) booked(c partition.Card) partition.Card {
	if m.journal == nil {
		return c
	}
	made := map[string]mig.Instance{}
	for name, b := range m.journal.bookings {
		if b.Card == c.UUID && b.Stage == StageMade {
			made[name] = b.instance()
		}
	}
	if len(made) == 0 {
		return c
	}
	return mig.Book(c, made)
}

// mig is the technique where it can be used.
func (m *Machine) mig() (mig.Technique, error) {
	for _, t := range m.Techniques {
		if own, ok := t.(mig.Technique); ok && m.driver != nil {
			return own, nil
		}
	}
	return mig.Technique{}, fmt.Errorf("%w: MIG is NVIDIA's driver's, which is not here or was not asked", partition.ErrImpossible)
}

// Bookings are those that the journal has, by name.
func (j *Journal) Bookings() []Booking {
	var all []Booking
	for _, name := range slices.Sorted(maps.Keys(j.bookings)) {
		all = append(all, j.bookings[name])
	}
	return all
}

// readBookings plays the records of bookings. One that cannot be read is a newer version's.
func readBookings(records [][]byte) map[string]Booking {
	all := map[string]Booking{}
	for _, raw := range records {
		var b Booking
		if json.Unmarshal(raw, &b) != nil || b.Name == "" {
			continue
		}
		all[b.Name] = b
		if b.Stage == stageGone {
			delete(all, b.Name)
		}
	}
	return all
}

// compactBookings is how many records of bookings there are before those that count no more go.
const compactBookings = 4 * MaxBookings

// note keeps what a booking is now on disk.
func (j *Journal) note(b Booking) error {
	raw, err := json.Marshal(b)
	if err != nil {
		return err
	}
	if err := errors.Join(j.booked.Append(raw), j.booked.Sync()); err != nil {
		return fmt.Errorf("keep booking %s: %w", b.Name, err)
	}
	if j.bookings[b.Name] = b; b.Stage == stageGone {
		delete(j.bookings, b.Name)
	}
	if j.notes++; j.notes < compactBookings {
		return nil
	}
	var records [][]byte
	for _, b := range j.Bookings() {
		raw, err := json.Marshal(b)
		if err != nil {
			return err
		}
		records = append(records, raw)
	}
	j.notes = len(records)
	return j.booked.Replace(records)
}
