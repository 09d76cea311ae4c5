// SPDX-License-Identifier: Apache-2.0

package simgpu

import (
	"fmt"
	"os"
	"slices"

	"github.com/divvy-gpu/divvy/internal/mig"
	"github.com/divvy-gpu/divvy/internal/simgpu/partition"
	"github.com/divvy-gpu/divvy/internal/simgpu/silicon"
	"github.com/divvy-gpu/divvy/internal/simgpu/simwire"
	"github.com/divvy-gpu/divvy/internal/simgpu/timeline"
)

// division is MIG: which cards are divided, and which slot of the machine and
// place of the timeline each of their devices has. The kernel owns it.
type division struct {
	cards *partition.Cards
	facts []silicon.Card // of the cards
	first int            // slot; those of card i begin at first + i*partition.Units
	times []partTime     // by card
}

// partTime adds up what a divided card's devices did, each by its part of the card.
type partTime struct {
	lastNS [partition.Units]int64
	busyNS int64
}

func newDivision(machine *silicon.Machine, cards []silicon.Card, table *mig.Table) (*division, error) {
	d := &division{cards: partition.New(), facts: cards, first: machine.Slots(), times: make([]partTime, len(cards))}
	if table == nil {
		var err error
		if table, err = mig.Default(); err != nil {
			return nil, err
		}
	}
	any := false
	for _, c := range cards {
		product, ok := table.ByName(c.Name)
		if !ok || !c.MIG {
			product = nil
		}
		any = any || product != nil
		d.cards.Add(product, c.UUID, int(c.Multiprocessors))
	}
	if any {
		machine.AddSlots(partition.Units * len(cards))
	}
	return d, nil
}

// parent gives the card that an index is of: its own, or the one whose slot it is.
func (d *division) parent(index int) (int, bool) {
	if index < d.first {
		return index, index >= 0
	}
	card := (index - d.first) / partition.Units
	if card >= len(d.facts) || d.cards.Product(card) == nil {
		return -1, false
	}
	return card, true
}

// slots lists the indices of a card: its own and its slots'.
func (d *division) slots(card int) []int {
	list := []int{card}
	if d.cards.Product(card) != nil {
		for unit := range partition.Units {
			list = append(list, d.slot(card, unit))
		}
	}
	return list
}

func (d *division) slot(card, unit int) int { return d.first + card*partition.Units + unit }

// usedOf adds what is used of a divided card's parts to what is used of itself.
func (k *kernel) usedOf(card int, used uint64, processes int) (uint64, int) {
	if card >= k.machine.Cards() {
		return used, processes
	}
	for _, slot := range k.division.slots(card)[1:] {
		if _, more, by, err := k.machine.Card(slot); err == nil {
			used, processes = used+more, processes+by
		}
	}
	return used, processes
}

// cardTime is how long a card was busy, and how much of the last half second. A
// divided one is as busy as its devices, each for its part of the multiprocessors.
func (k *kernel) cardTime(card int) (busyNS int64, percent int) {
	busyNS, percent = k.clock.line.Card(card)
	if card >= k.machine.Cards() {
		return busyNS, percent
	}
	sum := &k.division.times[card]
	all := int64(max(k.division.facts[card].Multiprocessors, 1))
	for unit, slot := range k.division.slots(card)[1:] {
		device, _, _, err := k.machine.Card(slot)
		if err != nil {
			continue
		}
		part := int64(device.Multiprocessors)
		busy, now := k.clock.line.Card(slot)
		sum.busyNS += (busy - sum.lastNS[unit]) * part / all
		sum.lastNS[unit] = busy
		percent += int(int64(now) * part / all)
	}
	return busyNS + sum.busyNS, min(percent, 100)
}

// abort ends what a process runs on a card or its parts.
func (k *kernel) abort(c *client, card int, now int64) {
	for _, slot := range k.division.slots(card) {
		k.clock.line.Abort(timeline.ProcessID(c.id), slot, now)
	}
}

// mig answers what is asked of MIG.
func (k *kernel) mig(r request, out *answer) error {
	h := r.header
	if r.session.role == 0 {
		return errDenied
	}
	if h.Type == simwire.MIGUse {
		return k.useDevice(r, out)
	}
	card := index(h.Card)
	if card < 0 || card >= k.machine.Cards() {
		return fmt.Errorf("GPU %d: %w", card, silicon.ErrNotFound)
	}
	if k.division.cards.Product(card) == nil {
		return fmt.Errorf("GPU %d has no MIG: %w", card, partition.ErrUnsupported)
	}
	if h.Type == simwire.MIGList {
		return k.listMig(card, out)
	}
	if r.session.uid != 0 && r.session.uid != os.Geteuid() {
		return errDenied
	}
	k.settle()
	return k.changeMig(card, h, out)
}

// listMig tells all of a card's division at once, so that it is of one moment.
func (k *kernel) listMig(card int, out *answer) error {
	d := k.division.cards
	current, pending := d.Mode(card)
	profiles := k.migProfiles(card, current)
	gpus, computes := []simwire.MIGGPUInfo{}, []simwire.MIGComputeInfo{}
	for _, g := range d.GPUs(card) {
		gpus = append(gpus, simwire.MIGGPUInfo{Number: g.Number, ID: uint32(g.ID), Profile: uint32(d.Product(card).Profiles[g.Profile].ID),
			Start: uint32(g.Start), Computes: uint32(len(g.Computes))})
		for _, c := range g.Computes {
			computes = append(computes, simwire.MIGComputeInfo{UUID: c.UUID, Number: c.Number, GPUNumber: g.Number, GPU: uint32(g.ID), ID: uint32(c.ID),
				Profile: uint32(c.Profile), Start: uint32(c.Start), Slices: uint32(c.Slices), Card: uint32(k.division.slot(card, c.Unit))})
		}
	}
	out.header.Bytes, out.header.Offset = uint64(flag(current)), uint64(flag(pending))
	out.header.Count, out.header.Kind, out.header.Cursor = uint32(len(profiles)), uint32(len(gpus)), uint64(len(computes))
	first, err := simwire.EncodeEntries(profiles)
	if err != nil {
		return err
	}
	second, err := simwire.EncodeEntries(gpus)
	if err != nil {
		return err
	}
	third, err := simwire.EncodeEntries(computes)
	out.payload = slices.Concat(first, second, third)
	return err
}

// migProfiles are those that the driver tells of a card.
func (k *kernel) migProfiles(card int, current bool) []simwire.MIGProfileInfo {
	d := k.division.cards
	list := []simwire.MIGProfileInfo{}
	for i, f := range d.Product(card).Profiles {
		if f.NVML < 0 || !d.Visible(card) {
			continue
		}
		info := simwire.MIGProfileInfo{ID: uint32(f.ID), NVML: uint32(f.NVML), Slices: uint32(f.Slices), MemoryMiB: uint32(f.MemoryMiB),
			Multiprocessors: uint32(d.Multiprocessors(card, i, f.Slices)), Most: uint32(f.Most), Size: uint32(f.Size),
			CopyEngines: uint32(f.Copy), Decoders: uint32(f.Engines.Dec), Encoders: uint32(f.Engines.Enc),
			JPEGs: uint32(f.Engines.JPEG), OFAs: uint32(f.Engines.OFA)}
		for _, s := range f.Starts {
			info.Starts |= 1 << s
		}
		if current {
			info.Remaining = uint32(d.Remaining(card, i))
		}
		simwire.SetText(info.Name[:], f.Name)
		list = append(list, info)
	}
	return list
}

func (k *kernel) changeMig(card int, h simwire.Header, out *answer) error {
	d := k.division.cards
	start := partition.Anywhere
	if h.Offset != simwire.MIGAnywhere {
		start = int(min(h.Offset, 1<<20))
	}
	switch h.Kind {
	case simwire.MIGSetMode:
		return k.setMigMode(card, h.Bytes, out)
	case simwire.MIGCreateGPU:
		g, err := d.CreateGPU(card, int(min(h.Bytes, 1<<20)), start)
		out.header.Object = g.Number
		return err
	case simwire.MIGDestroyGPU:
		return d.DestroyGPU(card, h.Object)
	case simwire.MIGCreateCompute:
		made, err := d.CreateCompute(card, h.Object, int(min(h.Bytes, 1<<20)), start)
		if err != nil {
			return err
		}
		out.header.Object = made.Number
		return k.openDevice(card, made)
	case simwire.MIGDestroyCompute:
		for _, g := range d.GPUs(card) {
			for _, c := range g.Computes {
				if c.Number != h.Object {
					continue
				}
				if err := k.closeDevice(card, c.Unit); err != nil {
					return err
				}
			}
		}
		return d.DestroyCompute(card, h.Object)
	}
	return fmt.Errorf("change %d of MIG: %w", h.Kind, silicon.ErrInvalid)
}

// setMigMode divides a card, or makes it whole. Who holds it or a part of it puts
// that off until its next reset.
func (k *kernel) setMigMode(card int, mode uint64, out *answer) error {
	if mode > 1 {
		return fmt.Errorf("MIG mode %d: %w", mode, silicon.ErrInvalid)
	}
	current, _ := k.division.cards.Mode(card)
	on, inUse := mode == 1, k.divisionInUse(card)
	if inUse && current != on {
		// The mode stays as it is; that it is put off is no error.
		_ = k.division.cards.SetMode(card, on, true)
		return nil
	}
	if current != on {
		if err := k.emptyCard(card, on); err != nil {
			return err
		}
	}
	out.header.Count = 1
	return k.division.cards.SetMode(card, on, false)
}

func (k *kernel) divisionInUse(card int) bool {
	for _, slot := range k.division.slots(card) {
		if k.machine.InUse(slot) {
			return true
		}
	}
	return false
}

// emptyCard closes all devices of a card that nobody uses, and divides it or not.
func (k *kernel) emptyCard(card int, divided bool) error {
	for _, g := range k.division.cards.GPUs(card) {
		for _, c := range g.Computes {
			if err := k.closeDevice(card, c.Unit); err != nil {
				return err
			}
		}
	}
	return k.machine.Divide(card, divided)
}

// resetDivision is what a reset of the card does to it, unless it is in use.
func (k *kernel) resetDivision(card int) {
	current, pending := k.division.cards.Mode(card)
	if current == pending || k.divisionInUse(card) {
		return
	}
	if err := k.emptyCard(card, pending); err == nil {
		k.division.cards.Reset(card)
	}
}

// openDevice makes a device of a compute instance. The memory is its GPU
// instance's, which others may have opened before.
func (k *kernel) openDevice(card int, made partition.Compute) error {
	d := k.division
	for _, g := range d.cards.GPUs(card) {
		beside := -1
		mine := false
		for _, c := range g.Computes {
			if mine = mine || c.Number == made.Number; c.Number != made.Number {
				beside = d.slot(card, c.Unit)
			}
		}
		if !mine {
			continue
		}
		slot := d.slot(card, made.Unit)
		busy, _ := k.clock.line.Card(slot)
		d.times[card].lastNS[made.Unit] = busy
		return k.machine.OpenSlot(slot, d.device(card, g, made), beside)
	}
	return fmt.Errorf("compute instance %d: %w", made.Number, partition.ErrNotFound)
}

func (k *kernel) closeDevice(card, unit int) error {
	slot := k.division.slot(card, unit)
	k.cardTime(card)
	if err := k.machine.CloseSlot(slot); err != nil {
		return err
	}
	for _, c := range k.clients {
		if arena := c.arenas[slot]; arena != nil {
			k.contents.drop(arena)
			c.arenas[slot] = nil
		}
	}
	return nil
}

// device is what CUDA and NVML say of a compute instance.
func (d *division) device(card int, g partition.GPU, made partition.Compute) silicon.Card {
	product := d.cards.Product(card)
	f := product.Profiles[g.Profile]
	device := d.facts[card]
	device.Index, device.UUID = d.slot(card, made.Unit), made.UUID
	device.Name += " MIG " + d.cards.DeviceName(card, g, made)
	device.TotalMiB, device.ReservedMiB = uint64(f.MemoryMiB), 0
	device.Multiprocessors = uint32(d.cards.Multiprocessors(card, g.Profile, made.Slices))
	device.CopyEngines = uint32(f.Copy)
	device.BAR1MiB = device.BAR1MiB * uint64(f.Size) / uint64(product.Units)
	device.L2KiB = device.L2KiB * uint64(f.Size) / uint64(product.Units)
	device.MIG = false
	return device
}

// useDevice opens a device for a process, by its UUID.
func (k *kernel) useDevice(r request, out *answer) error {
	c := r.session.client
	if c == nil {
		return errDenied
	}
	if len(r.payload) != simwire.UUIDBytes {
		return fmt.Errorf("a UUID of %d bytes: %w", len(r.payload), silicon.ErrInvalid)
	}
	for card := range k.machine.Cards() {
		for _, g := range k.division.cards.GPUs(card) {
			for _, made := range g.Computes {
				if [16]byte(r.payload) == made.UUID {
					slot := k.division.slot(card, made.Unit)
					out.header.Card = uint32(slot)
					return k.machine.Use(c.id, slot)
				}
			}
		}
	}
	return fmt.Errorf("use a MIG device: %w", partition.ErrNotFound)
}
