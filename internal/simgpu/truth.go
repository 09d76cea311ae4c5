// SPDX-License-Identifier: Apache-2.0

package simgpu

import (
	"fmt"

	"github.com/divvy-gpu/divvy/internal/simgpu/condition"
	"github.com/divvy-gpu/divvy/internal/simgpu/silicon"
	"github.com/divvy-gpu/divvy/internal/simgpu/simwire"
)

// observe answers what anyone may ask.
func (k *kernel) observe(r request, out *answer) error {
	h := r.header
	card := index(h.Card)
	switch h.Type {
	case simwire.Processes:
		return k.listProcesses(r, out)
	case simwire.Holders:
		return k.listHolders(h, out)
	}
	facts, used, processes, err := k.machine.Card(card)
	if err != nil {
		return err
	}
	parent, _ := k.division.parent(card)
	used, processes = k.usedOf(card, used, processes)
	if h.Type == simwire.Memory {
		free := facts.UsableBytes() - used
		if parent != card {
			free = k.machine.FreeBytes(card) // others may be in the same memory
		}
		total := facts.UsableBytes()
		if c := r.session.client; c != nil {
			k.place(c)
			free, total = min(free, k.machine.FreeFor(c.id, card)), min(total, k.machine.TotalFor(c.id, card))
		}
		out.header.Bytes, out.header.Offset, out.header.Object = free, total, used
		return nil
	}
	info := cardInfo(facts, k.config.PlainNames)
	info.UsedBytes, info.PeakUsedBytes, info.Processes = used, k.machine.PeakBytes(card), uint32(processes)
	info.Parent, info.Minor = uint32(parent), uint32(parent)
	if parent != card {
		info.Flags |= simwire.CardDevice
	}
	reading, err := k.instruments(parent, k.settle())
	if err != nil {
		return err
	}
	info.GPUPercent, info.MemoryPercent, info.PowerMW = uint32(reading.Percent), uint32(reading.MemoryPercent), reading.PowerMW
	out.payload, err = simwire.EncodeEntries([]simwire.CardInfo{info})
	return err
}

func cardInfo(c silicon.Card, plainName bool) simwire.CardInfo {
	name := c.Name
	if !plainName {
		name += " (simulated)"
	}
	part := c.Multiprocessor()
	info := simwire.CardInfo{
		UUID:                       c.UUID,
		TotalBytes:                 c.TotalMiB * silicon.MiB,
		ReservedBytes:              c.ReservedMiB * silicon.MiB,
		UsableBytes:                c.UsableBytes(),
		BAR1Bytes:                  c.BAR1MiB * silicon.MiB,
		L2Bytes:                    c.L2KiB << 10,
		Index:                      uint32(c.Index),
		Minor:                      uint32(c.Index),
		PCIDomain:                  c.PCIDomain,
		PCIBus:                     c.PCIBus,
		PCIID:                      c.PCIDevice<<16 | vendorID,
		PCISubsystem:               c.PCISubsystem<<16 | vendorID,
		Major:                      c.Major,
		MinorCC:                    c.Minor,
		Multiprocessors:            c.Multiprocessors,
		CoresPerMultiprocessor:     part.Cores,
		ThreadsPerMultiprocessor:   part.Threads,
		BlocksPerMultiprocessor:    part.Blocks,
		RegistersPerMultiprocessor: part.Registers,
		SharedPerMultiprocessor:    part.SharedBytes,
		SharedPerBlockOptin:        part.SharedBlockMost,
		SMClockMHz:                 c.MaxClockMHz,
		MemoryClockMHz:             c.MemoryClockMHz,
		BaseClockMHz:               c.IdleClockMHz,
		BusWidthBits:               c.BusWidthBits,
		PCIeGeneration:             c.PCIeGeneration,
		PCIeWidth:                  16,
		PowerLimitMW:               c.PowerLimitWatts * 1000,
		IdlePowerMW:                c.IdleWatts * 1000,
		PowerMW:                    c.IdleWatts * 1000,
		Temperature:                condition.IdleCelsius,
		SlowdownTemperature:        condition.SlowdownCelsius,
		ShutdownTemperature:        condition.ShutdownCelsius,
		Brand:                      uint32(c.Brand),
		Architecture:               uint32(c.Architecture),
		CopyEngines:                c.CopyEngines,
	}
	if c.ECC {
		info.Flags |= simwire.CardECC
	}
	if c.MIG {
		info.Flags |= simwire.CardMIG
	}
	if c.Unified {
		info.Flags |= simwire.CardUnified
	}
	simwire.SetText(info.Name[:], name)
	simwire.SetText(info.Serial[:], c.Serial)
	return info
}

const vendorID = 0x10de

// listProcesses gives a page of who holds what.
func (k *kernel) listProcesses(r request, out *answer) error {
	h := r.header
	card := index(h.Card)
	const room = simwire.PayloadBytes / simwire.ProcessSize
	var list []silicon.Usage
	switch {
	case card >= k.machine.Slots():
		return fmt.Errorf("GPU %d: %w", card, silicon.ErrNotFound)
	case h.Kind == 0:
		list, out.header.Cursor = k.machine.Processes(card, h.Cursor, room)
	case r.session.role != simwire.RoleControl:
		return errDenied
	default:
		list, out.header.Cursor = k.machine.Dead(h.Cursor, room)
		if len(list) == 0 {
			out.header.Cursor = 0
		}
	}
	infos := make([]simwire.ProcessInfo, len(list))
	for i, u := range list {
		infos[i] = k.processInfo(u)
	}
	out.header.Count = uint32(len(infos))
	var err error
	out.payload, err = simwire.EncodeEntries(infos)
	return err
}

func (k *kernel) listHolders(h simwire.Header, out *answer) error {
	card := index(h.Card)
	if card >= k.machine.Slots() {
		return fmt.Errorf("GPU %d: %w", card, silicon.ErrNotFound)
	}
	const room = simwire.PayloadBytes / simwire.HolderSize
	var list []silicon.Usage
	list, out.header.Cursor = k.machine.Processes(card, h.Cursor, room)
	if parent, ok := k.division.parent(card); ok {
		out.header.Kind = uint32(len(k.division.cards.GPUs(parent)))
	}
	holders := make([]simwire.HolderInfo, len(list))
	for i, u := range list {
		holders[i] = simwire.HolderInfo{Bytes: u.Bytes, PID: uint32(u.PID), Card: uint32(u.Card)}
	}
	out.header.Count = uint32(len(holders))
	var err error
	out.payload, err = simwire.EncodeEntries(holders)
	return err
}

func (k *kernel) processInfo(u silicon.Usage) simwire.ProcessInfo {
	info := simwire.ProcessInfo{
		Process: uint64(u.Process), PID: uint32(u.PID), Card: uint32(u.Card), Flags: simwire.ProcessCompute,
		Contexts: uint32(u.Contexts), Bytes: u.Bytes, PeakBytes: u.PeakBytes,
		Allocations: u.Allocations, Live: u.Live, Denials: u.Denials, KindBytes: u.KindBytes,
	}
	if u.Dead {
		info.Flags |= simwire.ProcessDead
		return info
	}
	if c, ok := k.clients[u.Process]; ok {
		if alive(c.pidfd) {
			info.Flags |= simwire.ProcessAlive
		}
		if c.session == nil {
			info.Flags |= simwire.ProcessDetached
		}
	}
	return info
}

// control answers what tests, benches and the demo ask.
func (k *kernel) control(r request, out *answer) error {
	h := r.header
	var err error
	switch h.Type {
	case simwire.Reset:
		k.machine.Reset()
		k.clock.forget()
	case simwire.Events:
		events, last := k.machine.Events(h.Cursor, simwire.PayloadBytes/simwire.EventSize)
		infos := make([]simwire.EventInfo, len(events))
		for i, e := range events {
			infos[i] = simwire.EventInfo{Number: e.Number, TimeNS: uint64(e.TimeNS), Process: uint64(e.Process),
				Bytes: e.Bytes, Kind: uint32(e.Kind), PID: uint32(e.PID), Card: uint32(e.Card)}
			simwire.SetText(infos[i].Text[:], e.Text)
		}
		out.header.Count, out.header.Cursor = uint32(len(infos)), last
		out.payload, err = simwire.EncodeEntries(infos)
	case simwire.Releases:
		releases, last := k.machine.Releases(h.Cursor, simwire.PayloadBytes/simwire.ReleaseSize)
		infos := make([]simwire.ReleaseInfo, len(releases))
		for i, r := range releases {
			infos[i] = simwire.ReleaseInfo{Number: r.Number, TimeNS: uint64(r.TimeNS), Process: uint64(r.Process),
				Bytes: r.Bytes, PID: uint32(r.PID)}
		}
		out.header.Count, out.header.Cursor = uint32(len(infos)), last
		out.payload, err = simwire.EncodeEntries(infos)
	}
	return err
}
