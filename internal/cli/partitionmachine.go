// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/gpu/inventory"
	"github.com/divvy-gpu/divvy/internal/gpu/sysfs"
	"github.com/divvy-gpu/divvy/internal/mig"
	"github.com/divvy-gpu/divvy/internal/partition"
	"github.com/divvy-gpu/divvy/internal/partition/amd"
	"github.com/divvy-gpu/divvy/internal/partition/kernel"
	"github.com/divvy-gpu/divvy/internal/partition/sriov"
	"github.com/divvy-gpu/divvy/internal/partition/vgpu"
)

// byFiles is a technique whose state and steps are the kernel's files.
type byFiles interface {
	partition.Technique
	kernel.Observer
}

// techniquesByFiles lists them in the order in which they build on each other.
func techniquesByFiles() []byFiles {
	return []byFiles{amd.Technique{}, sriov.Technique{}, vgpu.NVIDIA(), vgpu.GVTg()}
}

// techniques are the ways of dividing cards that this program knows.
func techniques(products *mig.Table) partition.Techniques {
	all := partition.Techniques{partition.MIGTechnique{Products: products}}
	for _, t := range techniquesByFiles() {
		all = append(all, t)
	}
	return all
}

// partitionCards is a driver that lists its cards too.
type partitionCards interface {
	partition.Driver
	State(ctx context.Context) (partition.State, error)
	// Differences words where drivers know better than the table of MIG.
	Differences() []string
}

// machineCards is the cards of a machine: its kernel's, with what NVIDIA's driver
// knows of those that it drives.
type machineCards struct {
	kernel *kernel.Kernel
	mig    *migDriver // nil: there is no driver
}

var _ partitionCards = (*machineCards)(nil)

// State observes all cards.
func (m *machineCards) State(ctx context.Context) (partition.State, error) {
	state, err := m.kernel.State(ctx)
	if err != nil || m.mig == nil {
		return state, err
	}
	driven, err := m.mig.State(ctx)
	if err != nil {
		return state, err
	}
	for _, c := range driven.Cards {
		i := slices.IndexFunc(state.Cards, func(o partition.Card) bool { return o.Address == c.Address })
		if i < 0 {
			c.Index = len(state.Cards) // such as a simulated one
			state.Cards = append(state.Cards, c)
			continue
		}
		state.Cards[i] = m.both(c, state.Cards[i])
	}
	return state, nil
}

// Observe reads how a card is divided.
func (m *machineCards) Observe(ctx context.Context, id string) (partition.Card, error) {
	seen, err := m.kernel.Observe(ctx, id)
	if m.mig == nil || err == nil && seen.Vendor != gpu.VendorNVIDIA {
		return seen, err
	}
	driven, drivenErr := m.mig.Observe(ctx, id)
	switch {
	case errors.Is(drivenErr, gpu.ErrNoCard):
		return seen, err // another driver has it, such as vfio-pci
	case drivenErr != nil || err != nil:
		return driven, drivenErr
	}
	return m.both(driven, seen), nil
}

// Differences are those of NVIDIA's driver.
func (m *machineCards) Differences() []string {
	if m.mig == nil {
		return nil
	}
	return m.mig.Differences()
}

// both is what the driver and the kernel say of one card. A process that either
// sees uses it.
func (m *machineCards) both(driven, seen partition.Card) partition.Card {
	m.kernel.Divided(&driven)
	driven.Index = seen.Index
	for _, p := range seen.Processes {
		known := func(o partition.Process) bool { return o.PID == p.PID }
		inInstance := func(i partition.Instance) bool { return slices.ContainsFunc(i.Processes, known) }
		if !slices.ContainsFunc(driven.Processes, known) && !slices.ContainsFunc(driven.Instances, inInstance) {
			driven.Processes = append(driven.Processes, p)
		}
	}
	return driven
}

// Do takes one step.
func (m *machineCards) Do(ctx context.Context, id string, s partition.Step) error {
	if s.Technique != partition.TechniqueMIG {
		return m.kernel.Do(ctx, id, s)
	}
	if m.mig == nil {
		return fmt.Errorf("%s: %w", s, gpu.ErrNoDriver)
	}
	return m.mig.Do(ctx, id, s)
}

// openCards opens what the cards are asked and changed through, with the
// techniques for it: the driver's library alone where a folder of it is given,
// the files below a root alone where that is, else both.
func (a *app) openCards(in partitionInput) (cards partitionCards, all partition.Techniques, closeCards func() error, err error) {
	if in.root != "" && in.driver != "" {
		return nil, nil, nil, usage(errors.New("--root and --driver-dir exclude each other"))
	}
	products, err := mig.Default()
	if err != nil {
		return nil, nil, nil, err
	}
	if in.driver != "" {
		driver, closeDriver, err := a.openMIG(in.driver)
		return sharedCards{driver, a}, partition.Techniques{partition.MIGTechnique{Products: products}}, closeDriver, err
	}
	tree, err := a.openTree(in.root)
	if err != nil {
		return nil, nil, nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, tree.Close())
		}
	}()
	own, err := a.descriptors()
	if err != nil {
		return nil, nil, nil, err
	}
	machine := &machineCards{}
	var observers []kernel.Observer
	for _, t := range techniquesByFiles() {
		observers = append(observers, t)
		all = append(all, t)
	}
	machine.kernel = kernel.New(inventory.Sources{Tree: tree, Products: products, Descriptors: own}, tree, observers...)
	closeCards = tree.Close
	if in.root == "" {
		driver, closeDriver, driverErr := a.openMIG("")
		switch {
		case driverErr == nil:
			machine.mig, closeCards = driver, func() error { return errors.Join(closeDriver(), tree.Close()) }
			all = techniques(products)
		case !errors.Is(driverErr, gpu.ErrNoDriver):
			return nil, nil, nil, driverErr
		}
		return sharedCards{machine, a}, all, closeCards, nil
	}
	return machine, all, closeCards, nil
}

// openTree opens the files of this machine, or of one whose root or recording is
// given.
func (a *app) openTree(root string) (*sysfs.Tree, error) {
	open := sysfs.OpenRecorded
	if root == "" {
		// Where the kernel's files are, for tests and containers.
		if root, open = a.getenv("DIVVY_ROOT"), sysfs.Open; root == "" {
			root = "/"
		}
	}
	tree, err := open(root)
	if errors.Is(err, os.ErrNotExist) {
		return nil, notThere(err)
	}
	return tree, err
}

// observeCards reads how all cards are, and says where their drivers know better
// than the table. A machine without a card has nothing to be divided.
func (a *app) observeCards(ctx context.Context, cards partitionCards) (partition.State, error) {
	state, err := cards.State(ctx)
	for _, text := range cards.Differences() {
		a.note("%s", text)
	}
	if err == nil && len(state.Cards) == 0 {
		err = withHint(notThere(errors.New("this machine has no card")), "--state FILE plans without one")
	}
	return state, err
}
