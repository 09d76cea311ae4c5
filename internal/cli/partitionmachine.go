// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"os"

	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/cdi"
	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/gpu/nvml"
	"github.com/divvy-gpu/divvy/internal/gpu/sysfs"
	facts "github.com/divvy-gpu/divvy/internal/mig"
	"github.com/divvy-gpu/divvy/internal/partition"
	"github.com/divvy-gpu/divvy/internal/partition/machine"
	"github.com/divvy-gpu/divvy/internal/partition/mig"
)

// openCards opens what the cards are asked and changed through: NVIDIA's library alone
// where a folder of it is given, the files below a root alone where that is, else both.
func (a *app) openCards(in partitionInput) (cards *machine.Machine, closeCards func() error, err error) {
	if in.root != "" && in.driver != "" {
		return nil, nil, usage(errors.New("--root and --driver-dir exclude each other"))
	}
	c := machine.Config{Held: in.lock}
	if c.Products, err = facts.Default(); err != nil {
		return nil, nil, err
	}
	if in.root == "" {
		c.Library = func() (mig.Source, func() error, error) { return a.openLibrary(cmp.Or(in.driver, in.library)) }
		if c.MPS = in.mps; c.MPS == "" {
			c.MPS = agent.System().MPSFolder()
		}
		c.Replicas = cdi.Folder(in.cdi)
		c.Offers = func() (*cdi.Offers, error) { return a.offersOf(in) }
	}
	closeTree := func() error { return nil }
	if in.driver == "" {
		if c.Tree, err = a.openTree(in.root); err != nil {
			return nil, nil, err
		}
		closeTree = c.Tree.Close
		c.Descriptors, err = a.descriptors()
	}
	if err == nil {
		cards, err = machine.Open(c)
	}
	if err != nil {
		if errors.Is(err, gpu.ErrNoDriver) {
			err = withHint(notThere(err), "--state FILE plans without a driver")
		}
		return nil, nil, errors.Join(err, closeTree())
	}
	if in.root == "" {
		cards.Shares = a.addShares
	}
	return cards, func() error { return errors.Join(cards.Close(), closeTree()) }, nil
}

// offersOf is what containers can be given here.
func (a *app) offersOf(in partitionInput) (*cdi.Offers, error) {
	v := api.Version{DriverDirectory: in.driver}
	if in.driver != "" {
		v.Simulator = a.getenv("DIVVY_SIMULATOR")
	}
	return a.offers(cdi.Folder(in.cdi), v, in.driver == "")
}

// openLibrary opens NVIDIA's library in a folder, or the one the linker finds.
func (a *app) openLibrary(folder string) (mig.Source, func() error, error) {
	if folder == "" && a.getenv("DIVVY_SOCKET") != "" {
		return nil, nil, usage(errors.New("GPUs are not divided from within a share"))
	}
	source, err := nvml.Open(folder)
	if err != nil {
		return nil, nil, err
	}
	return source, source.Close, nil
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
func (a *app) observeCards(ctx context.Context, cards *machine.Machine) (partition.State, error) {
	state, err := cards.State(ctx)
	for _, text := range cards.Differences() {
		a.note("%s", text)
	}
	if err == nil && len(state.Cards) == 0 {
		err = withHint(notThere(errors.New("this machine has no GPU")), "--state FILE plans without one, docs/partition.md tries it on simulated ones")
	}
	return state, err
}
