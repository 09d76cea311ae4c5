// SPDX-License-Identifier: Apache-2.0

// Package kernel carries out partition plans through the kernel's files: it
// reads cards of all vendors below a root, lets techniques tell how each is
// divided, and writes and runs what their steps say. It decides nothing.
package kernel

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/gpu/inventory"
	"github.com/divvy-gpu/divvy/internal/gpu/sysfs"
	"github.com/divvy-gpu/divvy/internal/partition"
)

// Observer tells how a card is divided by one technique.
type Observer interface {
	// Observe fills in the technique's field of the card at a function.
	Observe(bus *sysfs.Bus, f sysfs.Function, c *partition.Card)
}

// Hands change a machine; tool.Machine is one.
type Hands interface {
	// Write writes a value to a file below the root.
	Write(name, value string) error
	// Run runs a program below the root to its end.
	Run(ctx context.Context, program string, arguments ...string) error
}

// Kernel is a machine's kernel. It is not for concurrent use.
type Kernel struct {
	from      inventory.Sources
	to        Hands
	observers []Observer
}

var _ partition.Driver = (*Kernel)(nil)

// New returns the kernel whose files are read from one place and which is changed
// by hands that are there, but in tests.
func New(from inventory.Sources, to Hands, observers ...Observer) *Kernel {
	return &Kernel{from: from, to: to, observers: observers}
}

// State observes all cards, NVIDIA's first, as partition.Card counts them.
func (k *Kernel) State(context.Context) (partition.State, error) {
	return partition.State{Schema: partition.SchemaState, Cards: k.cards("")}, nil
}

// Observe observes the card at an address. gpu.ErrNoCard: there is none.
func (k *Kernel) Observe(_ context.Context, id string) (partition.Card, error) {
	for _, c := range k.cards(id) {
		if c.Address == id {
			return c, nil
		}
	}
	return partition.Card{}, fmt.Errorf("%w: %s", gpu.ErrNoCard, id)
}

// cards lists the cards, with how they are divided for one of them or, for "",
// for all.
func (k *Kernel) cards(address string) []partition.Card {
	bus := sysfs.ReadBus(k.from.Tree)
	cards := []partition.Card{}
	for _, r := range inventory.Readers(k.from) {
		for _, d := range r.Inventory() {
			c := partition.Card{Vendor: d.Vendor, UUID: d.UUID.Or(d.Address), Address: d.Address, Name: d.Name, DeviceID: d.DeviceID, Driver: d.Driver.Value}
			c.MIGUnknown = d.Vendor == gpu.VendorNVIDIA
			if address == "" || address == d.Address {
				use, _ := r.Use(d.Address) // a card that went away has no users
				c.Processes = processes(use.Holders)
				k.divided(bus, &c)
			}
			cards = append(cards, c)
		}
	}
	slices.SortStableFunc(cards, func(a, b partition.Card) int {
		return cmp.Or(others(a)-others(b), strings.Compare(a.Address, b.Address))
	})
	for i := range cards {
		cards[i].Index = i
	}
	return cards
}

func (k *Kernel) divided(bus *sysfs.Bus, c *partition.Card) {
	if f, ok := bus.Find(c.Address); ok {
		for _, o := range k.observers {
			o.Observe(bus, f, c)
		}
	}
}

func others(c partition.Card) int {
	if c.Vendor == gpu.VendorNVIDIA {
		return 0
	}
	return 1
}

// processes are the holders but this one, which asks a card's driver.
func processes(holders []gpu.Holder) []partition.Process {
	var list []partition.Process
	for _, h := range holders {
		if h.PID == os.Getpid() {
			continue
		}
		list = append(list, partition.Process{PID: h.PID, Command: h.Command})
	}
	return list
}

// Do writes or runs what a step says. Only files below sys are written.
func (k *Kernel) Do(ctx context.Context, _ string, s partition.Step) error {
	switch {
	case s.Action == partition.ActionRun && fs.ValidPath(s.File):
		return k.to.Run(ctx, s.File, s.Arguments...)
	case s.Action == partition.ActionWrite && strings.HasPrefix(s.File, "sys/") && fs.ValidPath(s.File):
		return k.to.Write(s.File, s.Value)
	}
	return fmt.Errorf("%s is not done by the kernel's files", s)
}
