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
	"github.com/divvy-gpu/divvy/internal/gpu/nvml"
	"github.com/divvy-gpu/divvy/internal/gpu/sysfs"
	"github.com/divvy-gpu/divvy/internal/mig"
	"github.com/divvy-gpu/divvy/internal/partition"
	"github.com/divvy-gpu/divvy/internal/partition/amd"
	"github.com/divvy-gpu/divvy/internal/partition/kernel"
	multiprocess "github.com/divvy-gpu/divvy/internal/partition/mps"
	"github.com/divvy-gpu/divvy/internal/partition/replicas"
	"github.com/divvy-gpu/divvy/internal/partition/sriov"
	"github.com/divvy-gpu/divvy/internal/partition/tool"
	"github.com/divvy-gpu/divvy/internal/partition/vfio"
	"github.com/divvy-gpu/divvy/internal/partition/vgpu"
)

// byFiles is a technique whose state and steps are the kernel's files.
type byFiles interface {
	partition.Technique
	kernel.Observer
}

// techniquesByFiles lists them in the order in which they build on each other.
func techniquesByFiles() []byFiles {
	return []byFiles{amd.Technique{}, sriov.Technique{}, vgpu.NVIDIA(), vgpu.GVTg(), vfio.Technique{}}
}

// techniques are the ways of dividing cards that this program knows. MIG is on
// virtual functions where both are, since it does not outlive a change of these.
func techniques(products *mig.Table) partition.Techniques {
	var all partition.Techniques
	for _, t := range techniquesByFiles() {
		all = append(all, t)
		if t.Name() == partition.TechniqueSRIOV {
			all = append(all, partition.MIGTechnique{Products: products})
		}
	}
	return append(all, multiprocess.Technique{}, replicas.Technique{})
}

// partitionCards is a driver that lists its cards too.
type partitionCards interface {
	partition.Driver
	State(ctx context.Context) (partition.State, error)
	// Differences words where drivers know better than the table of MIG.
	Differences() []string
}

// machineCards is the cards of a machine: its kernel's, with what NVIDIA's driver
// knows of those that it drives. The driver is let go of before a card is taken
// from it, by a file or by a program, since it is not given while a program has it
// open.
type machineCards struct {
	kernel *kernel.Kernel
	open   func() (*migDriver, func() error, error) // nil: the driver is not asked

	mig         *migDriver // nil: not open
	closeMIG    func() error
	differences []string
}

var _ partitionCards = (*machineCards)(nil)

// driver opens NVIDIA's driver; nil if there is none.
func (m *machineCards) driver() (*migDriver, error) {
	if m.mig != nil || m.open == nil {
		return m.mig, nil
	}
	driver, closeDriver, err := m.open()
	if errors.Is(err, gpu.ErrNoDriver) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	m.mig, m.closeMIG = driver, closeDriver
	return driver, nil
}

// Close lets go of NVIDIA's driver.
func (m *machineCards) Close() error {
	if m.mig == nil {
		return nil
	}
	m.differences = m.Differences()
	m.mig = nil
	return m.closeMIG()
}

// State observes all cards.
func (m *machineCards) State(ctx context.Context) (partition.State, error) {
	state, err := m.kernel.State(ctx)
	if err != nil {
		return state, err
	}
	driver, err := m.driver()
	if err != nil || driver == nil {
		return state, err
	}
	driven, err := driver.State(ctx)
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
	if err == nil && seen.Vendor != gpu.VendorNVIDIA {
		return seen, nil
	}
	driver, driverErr := m.driver()
	if driverErr != nil || driver == nil {
		return seen, errors.Join(err, driverErr)
	}
	driven, driverErr := driver.Observe(ctx, id)
	switch {
	case errors.Is(driverErr, gpu.ErrNoCard):
		return seen, err // another driver has it, such as vfio-pci
	case driverErr != nil || err != nil:
		return driven, driverErr
	}
	return m.both(driven, seen), nil
}

// Differences are those of NVIDIA's driver.
func (m *machineCards) Differences() []string {
	if m.mig == nil {
		return m.differences
	}
	return m.mig.Differences()
}

// vgpuSource is the part of a driver that vGPUs take.
type vgpuSource interface {
	VGPU(uuid string) (nvml.VGPU, error)
	SetVGPUMixed(uuid string, on bool) error
	SetVGPUScheduler(uuid, policy string) error
}

// both is what the driver and the kernel say of one card.
func (m *machineCards) both(driven, seen partition.Card) partition.Card {
	driven.Index, driven.Driver, driven.SRIOV, driven.VGPU, driven.VFIO = seen.Index, seen.Driver, seen.SRIOV, seen.VGPU, seen.VFIO
	if source, ok := m.mig.source.(vgpuSource); ok && driven.VGPU != nil {
		told, _ := source.VGPU(driven.UUID) // a card that went away tells nothing
		driven.VGPU.Scheduler = told.Scheduler.Value
		if told.Mixed.Known {
			driven.VGPU.Placement = map[bool]string{true: partition.PlacementMixed, false: partition.PlacementHomogeneous}[told.Mixed.Value]
		}
	}
	return driven
}

// set sets what only NVIDIA's driver sets of vGPUs.
func (m *machineCards) set(ctx context.Context, id string, s partition.Step) error {
	driver, err := m.driver()
	if err != nil || driver == nil {
		return errors.Join(fmt.Errorf("%s: %w", s, gpu.ErrNoDriver), err)
	}
	source, ok := driver.source.(vgpuSource)
	if !ok {
		return fmt.Errorf("%s: %w", s, gpu.ErrNotSupported)
	}
	card, err := driver.Observe(ctx, id)
	if err != nil {
		return err
	}
	switch s.Setting {
	case vgpu.SettingPlacement:
		return source.SetVGPUMixed(card.UUID, s.Value == partition.PlacementMixed)
	case vgpu.SettingScheduler:
		return source.SetVGPUScheduler(card.UUID, s.Value)
	}
	return fmt.Errorf("unknown step %q", s)
}

// Do takes one step.
func (m *machineCards) Do(ctx context.Context, id string, s partition.Step) error {
	switch {
	case s.Action == partition.ActionSet:
		return m.set(ctx, id, s)
	case s.Technique == partition.TechniqueMIG:
		driver, err := m.driver()
		if err != nil {
			return err
		}
		if driver == nil {
			return fmt.Errorf("%s: %w", s, gpu.ErrNoDriver)
		}
		return driver.Do(ctx, id, s)
	case s.Technique == partition.TechniqueVFIO, s.Action == partition.ActionRun:
		if err := m.Close(); err != nil {
			return err
		}
	}
	return m.kernel.Do(ctx, id, s)
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
		if err != nil {
			return nil, nil, nil, err
		}
		return a.served(in, driver), partition.Techniques{partition.MIGTechnique{Products: products}, multiprocess.Technique{}, replicas.Technique{}}, closeDriver, nil
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
	machine.kernel = kernel.New(inventory.Sources{Tree: tree, Products: products, Descriptors: own}, tool.Machine{Tree: tree, Held: in.lock}, observers...)
	closeCards = func() error { return errors.Join(machine.Close(), tree.Close()) }
	if in.root != "" {
		return machine, all, closeCards, nil
	}
	machine.open = func() (*migDriver, func() error, error) { return a.openMIG("") }
	driver, err := machine.driver()
	if err != nil {
		return nil, nil, nil, err
	}
	all = append(all, replicas.Technique{})
	if driver != nil {
		all = techniques(products)
	}
	return a.served(in, machine), all, closeCards, nil
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
		err = withHint(notThere(errors.New("this machine has no card")), "--state FILE plans without one, docs/partition.md tries it on simulated ones")
	}
	return state, err
}
