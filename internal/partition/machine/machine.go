// SPDX-License-Identifier: Apache-2.0

// Package machine is the cards of a machine with all techniques together. It lists
// the cards that the kernel shows and those that NVIDIA's driver has, lets each
// technique observe each card, and gives each step to the technique whose it is.
// Changes are kept in a journal, by which one process at a time makes them. It
// decides nothing; whoever divides cards does so through it.
package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/cdi"
	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/gpu/descriptor"
	"github.com/divvy-gpu/divvy/internal/gpu/inventory"
	"github.com/divvy-gpu/divvy/internal/gpu/sysfs"
	facts "github.com/divvy-gpu/divvy/internal/mig"
	"github.com/divvy-gpu/divvy/internal/partition"
	"github.com/divvy-gpu/divvy/internal/partition/amd"
	"github.com/divvy-gpu/divvy/internal/partition/kernel"
	"github.com/divvy-gpu/divvy/internal/partition/mig"
	"github.com/divvy-gpu/divvy/internal/partition/mps"
	"github.com/divvy-gpu/divvy/internal/partition/replicas"
	"github.com/divvy-gpu/divvy/internal/partition/sriov"
	"github.com/divvy-gpu/divvy/internal/partition/tool"
	"github.com/divvy-gpu/divvy/internal/partition/vfio"
	"github.com/divvy-gpu/divvy/internal/partition/vgpu"
)

// Machine is a machine's cards. It is not for concurrent use.
type Machine struct {
	Techniques partition.Techniques // those that cannot be used here say so
	// Shares notes on cards which shares there are on them; nil: there are none.
	Shares func(ctx context.Context, cards []partition.Card) error

	kernel  *kernel.Kernel            // nil: its files are not asked
	driver  *mig.Driver               // nil: NVIDIA's is not here, or not asked
	known   map[string]partition.Card // as they were last observed, by ID
	journal *Journal                  // nil: what is booked is not known
}

var _ partition.Driver = (*Machine)(nil)

// New returns the cards of a kernel and a driver, either of which may be nil, with
// techniques in the order in which they build on each other.
func New(k *kernel.Kernel, d *mig.Driver, techniques partition.Techniques) *Machine {
	return &Machine{Techniques: techniques, kernel: k, driver: d, known: map[string]partition.Card{}}
}

// Techniques are all that there are, to read documents and to plan by them. MIG is on
// virtual functions where both are, since it does not outlive a change of these.
func Techniques(products *facts.Table) partition.Techniques {
	return Config{Products: products}.Techniques(nil, nil)
}

// Config is what a machine is asked and changed through.
type Config struct {
	Products *facts.Table
	// Tree is the kernel's files; nil: they are not asked. Held is given to programs
	// that are run below it, open.
	Tree        *sysfs.Tree
	Descriptors []descriptor.Descriptor
	Held        *os.File
	// Library opens NVIDIA's driver; nil: it is not asked.
	Library func() (mig.Source, func() error, error)
	MPS     string // folder of the daemons' directories
	// Offers are what containers are offered in the folder Replicas; nil: nothing.
	Replicas cdi.Folder
	Offers   func() (*cdi.Offers, error)
}

// Open returns a machine's cards. gpu.ErrNoDriver: only NVIDIA's driver is asked, and is
// not here.
func Open(c Config) (*Machine, error) {
	var k *kernel.Kernel
	if c.Tree != nil {
		from := inventory.Sources{Tree: c.Tree, Products: c.Products, Descriptors: c.Descriptors}
		k = kernel.New(from, tool.Machine{Tree: c.Tree, Held: c.Held})
	}
	var d *mig.Driver
	var source mig.Source // nil: the driver is not here now, or not asked
	if c.Library != nil {
		d = mig.NewDriver(c.Library)
		var err error
		if source, err = d.Source(); err == nil && source == nil && k == nil {
			err = gpu.ErrNoDriver
		}
		if err != nil {
			return nil, err
		}
	}
	all := c.Techniques(k, d)
	for i, t := range all {
		switch name := t.Name(); name {
		case partition.TechniqueMIG, partition.TechniqueMPS:
			if source == nil {
				all[i] = partition.Without(t, strings.ToUpper(name)+" is NVIDIA's driver's, which is not here or was not asked")
			}
		case partition.TechniqueReplicas:
			if c.Offers == nil {
				all[i] = partition.Without(t, "replicas are files of CDI, which were not asked")
			}
		default:
			if k == nil {
				all[i] = partition.Without(t, name+" is the kernel's, which was not asked")
			}
		}
	}
	return New(k, d, all), nil
}

// Techniques are all that there are, of a kernel's and a driver's cards.
func (c Config) Techniques(k *kernel.Kernel, d *mig.Driver) partition.Techniques {
	ask := func() (vgpu.Source, error) {
		source, err := d.Source()
		told, _ := source.(vgpu.Source)
		return told, err
	}
	return partition.Techniques{
		amd.New(k), sriov.New(k), mig.New(c.Products, d), vgpu.NVIDIA(k, ask), vgpu.GVTg(k), vfio.New(k), mps.New(c.MPS), replicas.New(c.Replicas, c.Offers),
	}
}

// State observes all cards.
func (m *Machine) State(ctx context.Context) (partition.State, error) {
	state := partition.State{Schema: partition.SchemaState, Cards: m.kernel.Cards("")}
	driven, err := m.driver.Cards()
	if err != nil {
		return state, err
	}
	shown := state.Cards
	for _, c := range driven {
		if !slices.ContainsFunc(shown, func(o partition.Card) bool { return o.Address == c.Address }) {
			c.Index = len(state.Cards) // such as a simulated one
			state.Cards = append(state.Cards, c)
		}
	}
	for i := range state.Cards {
		if err := m.observe(ctx, &state.Cards[i]); err != nil {
			return state, err
		}
	}
	if m.Shares != nil {
		err = m.Shares(ctx, state.Cards)
	}
	return state, err
}

// Observe reads how the card with this ID, or UUID, is divided. gpu.ErrNoCard: there is
// none.
func (m *Machine) Observe(ctx context.Context, id string) (partition.Card, error) {
	cards := m.kernel.Cards(id)
	seen := slices.IndexFunc(cards, func(c partition.Card) bool { return c.Address == id })
	if seen < 0 {
		driven, err := m.driver.Cards()
		if err != nil {
			return partition.Card{}, err
		}
		seen = slices.IndexFunc(driven, func(c partition.Card) bool { return c.UUID == id || c.Address == id })
		if cards = driven; seen < 0 {
			return partition.Card{}, fmt.Errorf("%w: %s", gpu.ErrNoCard, id)
		}
	}
	c := cards[seen]
	err := m.observe(ctx, &c)
	m.known[id] = c
	return c, err
}

func (m *Machine) observe(ctx context.Context, c *partition.Card) error {
	for _, t := range m.Techniques {
		if err := t.Observe(ctx, c); err != nil {
			return err
		}
	}
	*c = m.booked(*c)
	m.known[c.ID()] = *c
	return nil
}

// Do takes one step. NVIDIA's driver is let go of before a card is taken from it, by a
// file or by a program, since it is not given while a program has it open.
func (m *Machine) Do(ctx context.Context, id string, s partition.Step) error {
	c, ok := m.known[id]
	if !ok {
		var err error
		if c, err = m.Observe(ctx, id); err != nil {
			return err
		}
	}
	if s.Technique == partition.TechniqueVFIO || s.Action == partition.ActionRun {
		if err := m.Close(); err != nil {
			return err
		}
	}
	for _, t := range m.Techniques {
		if t.Name() == s.Technique {
			return t.Do(ctx, c, s)
		}
	}
	return errors.New("no technique takes the step " + s.String())
}

// Differences words where NVIDIA's driver knows better than the table of MIG.
func (m *Machine) Differences() []string { return m.driver.Differences() }

// Close lets go of NVIDIA's driver, which the next question opens again.
func (m *Machine) Close() error { return m.driver.Close() }
