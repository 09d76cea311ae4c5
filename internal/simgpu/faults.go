// SPDX-License-Identifier: Apache-2.0

package simgpu

import (
	"fmt"
	"os"
	"slices"

	"github.com/divvy-gpu/divvy/internal/simgpu/condition"
	"github.com/divvy-gpu/divvy/internal/simgpu/silicon"
	"github.com/divvy-gpu/divvy/internal/simgpu/simwire"
	"github.com/divvy-gpu/divvy/internal/simgpu/timeline"
)

// hits is what faults have done to a process's contexts on one card.
type hits struct {
	count uint32
	error uint32 // CUresult of the last
}

// faults answers what has to do with the cards' condition.
func (k *kernel) faults(r request, out *answer) error {
	h := r.header
	if r.session.role == 0 {
		return errDenied
	}
	switch h.Type {
	case simwire.Notice:
		var err error
		out.file, err = duplicate(k.notice.file)
		return err
	case simwire.Health:
		return k.health(index(h.Card), out)
	case simwire.Incidents:
		return k.incidents(h, out)
	case simwire.Faulted:
		c := r.session.client
		if c == nil {
			return errDenied
		}
		card, ok := k.division.parent(index(h.Card))
		if !ok {
			return fmt.Errorf("GPU %d: %w", h.Card, silicon.ErrNotFound)
		}
		out.header.Count, out.header.Kind = c.hits[card].count, c.hits[card].error
		return nil
	case simwire.FaultReport:
		return k.report(r.session.client, h)
	case simwire.FaultList:
		if r.session.role != simwire.RoleControl {
			return errDenied
		}
		return k.listFaults(h, out)
	}
	if r.session.role != simwire.RoleControl || (r.session.uid != 0 && r.session.uid != os.Geteuid()) {
		return errDenied
	}
	if h.Type == simwire.FaultInject {
		return k.inject(h, out)
	}
	return k.clearFaults(index(h.Card), out)
}

// instruments takes those of a card to now, and reads them.
func (k *kernel) instruments(card int, now int64) (condition.Reading, error) {
	if card < 0 || card >= k.machine.Cards() {
		return condition.Reading{}, fmt.Errorf("GPU %d: %w", card, silicon.ErrNotFound)
	}
	before := k.condition.LastIncident()
	busy, percent := k.cardTime(card)
	reading, err := k.condition.Observe(card, now, busy, percent)
	if k.condition.LastIncident() != before {
		k.notice.happened()
	}
	return reading, err
}

func (k *kernel) health(card int, out *answer) error {
	r, err := k.instruments(card, k.settle())
	if err != nil {
		return err
	}
	out.header.Count = 1
	out.payload, err = simwire.EncodeEntries([]simwire.HealthInfo{{
		EnergyMJ: r.EnergyMJ, Reasons: r.Reasons,
		ECC:          [simwire.ECCCounters]uint64{r.CorrectedVolatile, r.CorrectedAggregate, r.UncorrectedVolatile, r.UncorrectedAggregate},
		LastIncident: r.LastIncident, Flags: healthFlags(r.Lost, r.NeedsReset),
		GPUPercent: uint32(r.Percent), MemoryPercent: uint32(r.MemoryPercent), Temperature: uint32(r.Celsius), MemoryTemperature: uint32(r.MemoryCelsius),
		PowerMW: r.PowerMW, SMClockMHz: r.SMClockMHz, MemoryClockMHz: r.MemoryClockMHz, Performance: uint32(r.Performance), FanPercent: uint32(r.FanPercent),
		RetiredSingle: r.RetiredSingle, RetiredDouble: r.RetiredDouble, RetiredPending: flag(r.RetiredPending),
		RemappedCorrectable: r.RemappedCorrectable, RemappedUncorrectable: r.RemappedUncorrected, RemapPending: flag(r.RemapPending),
		RemapFailed: flag(r.RemapFailed), SlowPercent: uint32(r.SlowPercent), PCIeReplays: r.PCIeReplays,
	}})
	return err
}

func flag(is bool) uint32 {
	if is {
		return 1
	}
	return 0
}

func healthFlags(lost, needsReset bool) uint32 {
	return flag(lost)*simwire.HealthLost | flag(needsReset)*simwire.HealthReset
}

func (k *kernel) incidents(h simwire.Header, out *answer) error {
	now := k.settle()
	for card := range k.machine.Cards() {
		if _, err := k.instruments(card, now); err != nil {
			return err
		}
	}
	if h.Cursor == simwire.Last {
		out.header.Cursor = k.condition.LastIncident()
		return nil
	}
	list, last := k.condition.Incidents(h.Cursor, simwire.PayloadBytes/simwire.IncidentSize)
	infos := make([]simwire.IncidentInfo, len(list))
	for i, e := range list {
		infos[i] = simwire.IncidentInfo{Number: e.Number, TimeNS: uint64(e.TimeNS), Data: e.Data, Type: uint32(e.Type), Card: uint32(e.Card), PID: uint32(e.PID)}
	}
	out.header.Count, out.header.Cursor = uint32(len(infos)), last
	var err error
	out.payload, err = simwire.EncodeEntries(infos)
	return err
}

func (k *kernel) listFaults(h simwire.Header, out *answer) error {
	list, last := k.condition.Faults(h.Cursor, simwire.PayloadBytes/simwire.FaultSize)
	infos := make([]simwire.FaultInfo, len(list))
	for i, f := range list {
		infos[i] = simwire.FaultInfo{Number: f.Number, TimeNS: uint64(f.TimeNS), Process: f.Process, Kind: uint32(f.Kind), XID: f.XID,
			Card: uint32(f.Card), PID: uint32(f.PID), Hit: uint32(f.Hit), Error: f.Error, Flags: flag(f.Active)*simwire.FaultActive | flag(f.Reported)*simwire.FaultReported}
	}
	out.header.Count, out.header.Cursor = uint32(len(infos)), last
	var err error
	out.payload, err = simwire.EncodeEntries(infos)
	return err
}

// inject carries out a fault: first on the programs, so that nobody is told of
// one that is not there yet.
func (k *kernel) inject(h simwire.Header, out *answer) error {
	f := condition.Fault{Card: index(h.Card), Kind: condition.Kind(h.Kind), XID: uint32(min(h.Bytes, 1<<31)), Count: uint64(h.Count)}
	now := k.settle()
	effect, err := k.condition.Look(f)
	if err != nil {
		return err
	}
	present := k.present(f.Card)
	var victim condition.Party
	switch effect.Scope {
	case condition.Nobody:
		present = nil
	case condition.Victim:
		if present, err = k.choose(present, int(min(h.Process, 1<<31)), f.Card); err != nil {
			return err
		}
		if len(present) == 1 {
			victim = condition.Party{Process: uint64(present[0].id), PID: present[0].pid}
		}
	}
	for _, c := range present {
		c.hits[f.Card] = hits{c.hits[f.Card].count + 1, effect.Error}
		k.abort(c, f.Card, now)
	}
	record, err := k.condition.Inject(now, f, victim, len(present))
	if err != nil {
		return err
	}
	k.publish()
	k.tell(f.Card)
	text := fmt.Sprintf("fault %d: %v", record.Number, f.Kind)
	if record.XID != 0 {
		text += fmt.Sprintf(", XID %d", record.XID)
	}
	k.machine.Note(now, silicon.Event{Kind: silicon.EventFault, Process: silicon.ProcessID(victim.Process), PID: victim.PID, Card: f.Card, Text: text})
	k.log.Warn("fault injected", "card", f.Card, "kind", f.Kind.String(), "xid", record.XID, "pid", victim.PID, "processes", len(present))
	out.header.Object, out.header.Count = record.Number, uint32(len(present))
	return nil
}

// maxReports bounds what one process can make the cards remember.
const maxReports = 64

// report is a process that says that its own kernel has faulted. Its kernels end;
// its library knows already.
func (k *kernel) report(c *client, h simwire.Header) error {
	if c == nil {
		return errDenied
	}
	if c.reports >= maxReports {
		return fmt.Errorf("process %d has reported %d faults: %w", c.id, c.reports, silicon.ErrLimit)
	}
	now, card := k.settle(), index(h.Card)
	victim := condition.Party{Process: uint64(c.id), PID: c.pid}
	if _, _, _, err := k.machine.Card(card); err != nil {
		return err
	}
	parent, _ := k.division.parent(card)
	if err := k.condition.Report(now, parent, uint32(min(h.Bytes, 1<<31)), victim, h.Kind); err != nil {
		return err
	}
	c.reports++
	k.clock.line.Abort(timeline.ProcessID(c.id), card, now)
	k.publish()
	k.notice.changed()
	return nil
}

// present lists the processes with a context on a card, in their order.
func (k *kernel) present(card int) []*client {
	var found []*client
	for cursor := uint64(0); ; {
		list, next := k.machine.Processes(-1, cursor, 256)
		for _, u := range list {
			parent, ok := k.division.parent(u.Card)
			if c := k.clients[u.Process]; ok && parent == card && c != nil && u.Contexts > 0 && !slices.Contains(found, c) {
				found = append(found, c)
			}
		}
		if next == 0 {
			return found
		}
		cursor = next
	}
}

// choose finds the victim: the process that is named, or the only one.
func (k *kernel) choose(present []*client, pid, card int) ([]*client, error) {
	if pid == 0 {
		if len(present) > 1 {
			return nil, fmt.Errorf("%d processes have contexts on GPU %d: which one is to be hit: %w", len(present), card, silicon.ErrInvalid)
		}
		return present, nil
	}
	for _, c := range present {
		if c.pid == pid {
			return []*client{c}, nil
		}
	}
	return nil, fmt.Errorf("process %d has no context on GPU %d: %w", pid, card, silicon.ErrNotFound)
}

// tell puts a card's condition where everybody sees it.
func (k *kernel) tell(card int) {
	for _, slot := range k.division.slots(card) {
		k.clock.line.Slow(slot, int64(k.condition.Slow(card)))
	}
	k.notice.setFlags(card, healthFlags(k.condition.State(card)))
	k.notice.changed()
}

func (k *kernel) clearFaults(card int, out *answer) error {
	now := k.settle()
	cleared, err := k.condition.Clear(now, card)
	if err != nil {
		return err
	}
	for i := range k.machine.Cards() {
		if card < 0 || card == i {
			k.resetDivision(i)
			k.tell(i)
		}
	}
	k.machine.Note(now, silicon.Event{Kind: silicon.EventFault, Card: card, Text: fmt.Sprintf("cleared: %d faults were in force", cleared)})
	k.log.Info("faults cleared", "card", card, "faults", cleared)
	out.header.Count = uint32(cleared)
	return nil
}
