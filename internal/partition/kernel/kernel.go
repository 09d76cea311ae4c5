// SPDX-License-Identifier: Apache-2.0

// Package kernel is what techniques that the kernel's files carry out have in
// common: it reads the cards of all vendors below a root, shows each technique the
// bus, and writes and runs what steps say. It decides nothing.
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

// Executor change a machine; tool.Machine is one.
type Executor interface {
	// Write writes a value to a file below the root.
	Write(name, value string) error
	// Run runs a program below the root to its end.
	Run(ctx context.Context, program string, arguments ...string) error
}

// Kernel is a machine's kernel. It is not for concurrent use. A nil one shows
// nothing and does nothing.
type Kernel struct {
	from inventory.Sources
	to   Executor
	bus  *sysfs.Bus // as Cards has read it
}

// New returns the kernel whose files are read from one place and which is changed
// by hands that are there, but in tests.
func New(from inventory.Sources, to Executor) *Kernel { return &Kernel{from: from, to: to} }

// Cards reads the machine anew and lists its cards, NVIDIA's first, as
// partition.Card counts them. Who uses them is told of the one at an address or, for
// "", of all.
func (k *Kernel) Cards(address string) []partition.Card {
	cards := []partition.Card{}
	if k == nil {
		return cards
	}
	k.bus = sysfs.ReadBus(k.from.Tree)
	for _, r := range inventory.Readers(k.from) {
		for _, d := range r.Inventory() {
			c := partition.Card{Vendor: d.Vendor, UUID: d.UUID.Or(d.Address), Address: d.Address, Name: d.Name, DeviceID: d.DeviceID, Driver: d.Driver.Value}
			if address == "" || address == d.Address {
				use, _ := r.Use(d.Address) // a card that went away has no users
				c.Holders = processes(use.Holders)
				c.Processes = c.Holders
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

// Look is how a technique sees a card at its function on the bus.
type Look func(*sysfs.Bus, sysfs.Function, *partition.Card)

// Show shows the bus as it was when Cards was asked, with a card's function on it; a
// card that is not there is not shown.
func (k *Kernel) Show(c *partition.Card, look Look) {
	if k == nil {
		return
	}
	if f, ok := k.bus.Find(c.Address); ok {
		look(k.bus, f, c)
	}
}

// Files is what techniques have in common whose state and steps are the kernel's files.
type Files struct {
	Kernel *Kernel
	Look   Look
}

// Observe looks at a card.
func (f Files) Observe(_ context.Context, c *partition.Card) error {
	f.Kernel.Show(c, f.Look)
	return nil
}

// Do writes or runs what a step says.
func (f Files) Do(ctx context.Context, _ partition.Card, s partition.Step) error {
	return f.Kernel.Do(ctx, s)
}

func others(c partition.Card) int {
	if c.Vendor == gpu.VendorNVIDIA {
		return 0
	}
	return 1
}

// Users are the processes that have files of a device open.
func Users(bus *sysfs.Bus, address string, nodes []string) []partition.Process {
	var list []partition.Process
	for _, h := range bus.Holders(gpu.Device{Address: address, Nodes: nodes}) {
		list = append(list, partition.Process{PID: h.PID, Command: h.Command})
	}
	return list
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
func (k *Kernel) Do(ctx context.Context, s partition.Step) error {
	switch {
	case k == nil:
	case s.Action == partition.ActionRun && fs.ValidPath(s.File):
		return k.to.Run(ctx, s.File, s.Arguments...)
	case s.Action == partition.ActionWrite && strings.HasPrefix(s.File, "sys/") && fs.ValidPath(s.File):
		return k.to.Write(s.File, s.Value)
	}
	return fmt.Errorf("%s is not done by the kernel's files", s)
}
