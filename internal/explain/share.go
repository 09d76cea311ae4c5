// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/event"
	terms "github.com/divvy-gpu/divvy/internal/share"
	"github.com/divvy-gpu/divvy/internal/size"
)

// What is worth telling, in percent of the time or of memory.
const (
	waits      = 10 // launches that waited for so much of the time waited for something
	takes      = 2  // others who had so much took it
	fillsGPU   = 80
	fillsQuota = 85 // of its own part
	half       = 50
	nearlyAll  = 90
)

// share finds the causes of a share, or of one of its processes.
func (e *explainer) share(subject Subject) {
	if subject.Kind == Process && subject.Share == "" {
		e.unaccountedProcess(subject.PID)
		return
	}
	name := subject.Name
	if subject.Kind == Process {
		name = subject.Share
	}
	of := e.shares[name]
	if of == nil {
		return
	}
	var process *api.SnapshotProcess
	if subject.Kind == Process {
		for i := range of.Processes {
			if of.Processes[i].PID == subject.PID {
				process = &of.Processes[i]
			}
		}
		if process == nil {
			return
		}
	}
	e.state(of, process)
	e.unheld(of, process)
	for number := range of.Cards {
		card := e.cards[of.Cards[number].CardUUID]
		if card == nil {
			continue
		}
		e.condition(card)
		e.hot(card)
		e.stuck(of, number, process)
		e.memory(of, number, process, card)
		e.time(of, number, process, card)
		if card.Cordon != nil {
			e.cordoned(card, rankAside, "; this share and its programs go on")
		}
	}
	e.rest(of, process)
}

// state is what somebody did to the share.
func (e *explainer) state(of *api.SnapshotShare, process *api.SnapshotProcess) {
	ours := func(found api.Event) bool { return found.Share == of.Name }
	switch of.State {
	case "revoked":
		e.add(Cause{Cause: Deleted, Evidence: "the share is deleted, its programs get nothing more" + told(e.last(event.ShareRevoked, ours)),
			Command: "divvy share create " + of.Name, rank: rankState})
	case "paused":
		e.add(Cause{Cause: Paused, Evidence: "the share is paused: its launches wait" + told(e.last(event.SharePaused, ours)), Percent: percent(100),
			Command: "divvy share resume " + of.Name, rank: rankState})
	case "shrinking":
		for _, slot := range of.Cards {
			if slot.UsedBytes > slot.LimitBytes && slot.LimitBytes > 0 {
				e.add(Cause{Cause: Shrinking, Percent: percent(100 * float64(slot.UsedBytes) / float64(slot.LimitBytes)), CardUUID: slot.CardUUID,
					Evidence: fmt.Sprintf("its quota was lowered to %s and it uses %s: nothing is granted until it has freed %s%s", size.Short(slot.LimitBytes), size.Short(slot.UsedBytes),
						size.Short(slot.UsedBytes-slot.LimitBytes), told(e.last(event.ShareShrinking, ours))),
					Command: setMemory(of, slot.UsedBytes), rank: rankState})
			}
		}
	}
	for _, p := range processes(of, process) {
		if p.State == "detached" {
			e.add(Cause{Cause: Detached, rank: rankState, Command: "kill " + strconv.Itoa(p.PID),
				Evidence: fmt.Sprintf("process %d (%s) has closed its connection to the agent and gets nothing more until it is back%s", p.PID, p.Command,
					told(e.last(event.ClientDetached, func(found api.Event) bool { return found.PID == p.PID })))})
		}
	}
}

// processes are those of a subject.
func processes(of *api.SnapshotShare, only *api.SnapshotProcess) []*api.SnapshotProcess {
	if only != nil {
		return []*api.SnapshotProcess{only}
	}
	var all []*api.SnapshotProcess
	for i := range of.Processes {
		all = append(all, &of.Processes[i])
	}
	return all
}

func setMemory(of *api.SnapshotShare, bytes uint64) string {
	return fmt.Sprintf("divvy share set %s --mem %s", of.Name, size.Format((bytes+size.MiB-1)/size.MiB*size.MiB))
}

// unheld says that nothing of ours is in the way, for nothing of ours is in the programs.
func (e *explainer) unheld(of *api.SnapshotShare, only *api.SnapshotProcess) {
	why := ""
	if of.EnforcementWhy != "" {
		why = ": " + of.EnforcementWhy
	}
	for _, p := range processes(of, only) {
		if p.Enforcement == terms.Booked || p.Enforcement == "" && of.Enforcement == terms.Booked {
			e.add(Cause{Cause: NotHeld, rank: rankUnheld, Command: "divvy doctor",
				Evidence: fmt.Sprintf("process %d (%s) is held by nothing (level %s): what it uses is neither limited nor measured%s", p.PID, p.Command, terms.Booked, why)})
			return
		}
	}
	if of.Enforcement == terms.Booked {
		e.add(Cause{Cause: NotHeld, rank: rankUnheld, Command: "divvy doctor",
			Evidence: fmt.Sprintf("nothing enforces the share (level %s): what its programs use is neither limited nor measured%s", terms.Booked, why)})
	}
}

// stuck says what is in flight for so long that the agent told of it.
func (e *explainer) stuck(of *api.SnapshotShare, number int, only *api.SnapshotProcess) {
	for _, p := range processes(of, only) {
		if number >= len(p.Cards) || p.Cards[number].StuckNs == nil {
			continue
		}
		e.add(Cause{Cause: Stuck, rank: rankStuck, Percent: percent(100), CardUUID: of.Cards[number].CardUUID, Command: "kill " + strconv.Itoa(p.PID),
			Evidence: fmt.Sprintf("nothing that process %d (%s) launched has ended for %s%s", p.PID, p.Command, seconds(time.Duration(*p.Cards[number].StuckNs)),
				told(e.last(event.ClientStuck, func(found api.Event) bool { return found.PID == p.PID })))})
	}
}

// memory says what was refused lately, and why.
func (e *explainer) memory(of *api.SnapshotShare, number int, only *api.SnapshotProcess, card *api.SnapshotCard) {
	slot := &of.Cards[number]
	ours := func(found api.Event) bool {
		return found.Share == of.Name && (only == nil || found.PID == only.PID) && (found.CardUUID == "" || found.CardUUID == card.UUID)
	}
	full := func(bytes uint64) *float64 {
		if slot.LimitBytes == 0 {
			return nil
		}
		return percent(100 * float64(bytes) / float64(slot.LimitBytes))
	}
	if found := e.recent(event.DriverOutOfMemory, ours); found != nil && len(card.Unaccounted) > 0 {
		e.unaccounted(card, rankTaken, "the driver refused "+size.Short(found.Bytes)+" though the quota had room"+told(found))
	}
	denied := e.recent(event.Denied, ours)
	counts := e.slot(of, number).denials
	refused := denied != nil || only == nil && len(counts) > 0
	contexts := full(slot.ContextBytes)
	if contexts != nil && (*contexts >= nearlyAll || refused && *contexts >= half) {
		e.add(Cause{Cause: Contexts, rank: rankContexts, Percent: contexts, CardUUID: card.UUID, Command: setMemory(of, slot.LimitBytes+slot.ContextBytes),
			Evidence: fmt.Sprintf("the driver's contexts of %d processes take %s of %s%s", of.Clients, size.Short(slot.ContextBytes), size.Short(slot.LimitBytes), told(denied))})
	}
	if !refused || of.State == "shrinking" {
		return
	}
	asked := uint64(0)
	text := fmt.Sprintf("%s of %s are in use", size.Short(slot.UsedBytes), size.Short(slot.LimitBytes))
	if denied != nil {
		asked = denied.Bytes
		text = denied.Message + told(denied) + "; " + text
	} else {
		sum := uint64(0)
		for _, n := range counts {
			sum += n
		}
		text = fmt.Sprintf("%d allocations were refused in %s (%s); %s", sum, seconds(e.span), words(slices.Sorted(maps.Keys(counts))), text)
	}
	c := Cause{Cause: OverMemory, rank: rankMemory, Percent: full(slot.UsedBytes), CardUUID: card.UUID, Evidence: text, Command: setMemory(of, slot.LimitBytes+asked)}
	if !of.Promised {
		if held := heldUnaccounted(card); held > 0 && held >= asked {
			e.unaccounted(card, rankTaken, "the share has no promise of memory, and the GPU has no more left over")
		}
		c.Command = "divvy ps -o wide" // who has it
	} else if asked > card.FreeToBookBytes {
		c.Evidence += fmt.Sprintf("; the GPU has %s left to promise", size.Short(card.FreeToBookBytes))
		c.Command = "divvy share list" // whose promises could be lowered
	}
	e.add(c)
}

// rest says what is left where nothing limits it.
func (e *explainer) rest(of *api.SnapshotShare, only *api.SnapshotProcess) {
	if e.explained(rankBroken, rankState, rankStuck, rankTaken, rankContexts, rankMemory, rankUnheld, rankSlow, rankQuota, rankTime, rankPresent, rankBusy) {
		return
	}
	c := Cause{Cause: Nothing, rank: rankNothing}
	switch all := processes(of, only); {
	case len(all) == 0:
		c.Evidence, c.Command = "no program is attached to it", fmt.Sprintf("divvy run --share %s -- COMMAND", of.Name)
	case e.before == nil:
		c.Evidence, c.Command = "there is one snapshot only: nothing was measured in between", "divvy why "+of.Name
	default:
		busiest, had := all[0], figures{}
		for _, p := range all {
			for number := range p.Cards {
				if f := e.process(of, p, number); f.own >= had.own {
					busiest, had = p, f
				}
			}
		}
		c.Percent, c.Command = percent(had.own), "top -H -p "+strconv.Itoa(busiest.PID)
		does, but := "hardly launches", "; what it does besides is not the GPU's"
		if had.wait >= waits {
			does, but = "waits for turns", ", and no other process had it: its own processes take turns, or it came from nothing just now"
		}
		c.Evidence = fmt.Sprintf("process %d (%s) %s: %d launches in %s, which had the GPU for %s of the time and waited for %s%s",
			busiest.PID, busiest.Command, does, had.launches, seconds(e.span), percentText(had.own), percentText(had.wait), but)
	}
	e.add(c)
}
