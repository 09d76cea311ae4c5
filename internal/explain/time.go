// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/event"
	terms "github.com/divvy-gpu/divvy/internal/share"
)

// taken is the time that neighbours of one kind had.
type taken struct {
	percent float64
	names   []string
	largest neighbour
}

func (t *taken) add(n neighbour) {
	if len(t.names) == 0 || n.own > t.largest.own {
		t.largest = n
	}
	t.percent += n.own
	t.names = append(t.names, n.Name)
}

// defaultQuantum is that of an agent that does not say it.
const defaultQuantum = 10 * time.Millisecond

// long is a kernel that the next share waits for: longer than an overrun of a lease is awaited.
func (e *explainer) long() time.Duration {
	quantum := time.Duration(e.now.Agent.QuantumNs)
	if quantum == 0 {
		quantum = defaultQuantum
	}
	return 2 * quantum
}

// isLong says whether a neighbour's kernels are, also beside its own, and words by what that shows.
func (e *explainer) isLong(n neighbour, its *api.SnapshotSlot) (bool, string) {
	card := its.CardUUID
	if kernel := time.Duration(value(n.slot.KernelNs)); kernel >= max(e.long(), 2*time.Duration(value(its.KernelNs))) && n.own > 0 {
		return true, "kernels of up to " + seconds(kernel)
	}
	for _, p := range n.Processes {
		for number, slot := range p.Cards {
			if number < len(n.Cards) && n.Cards[number].CardUUID == card && slot.StuckNs != nil {
				return true, "nothing of it has ended for " + seconds(time.Duration(*slot.StuckNs))
			}
		}
	}
	// Of one whose kernels are known to be short, work outlasts a lease where others run beside it;
	// only one of which nothing ends any more may have a longer one.
	if n.slot.KernelNs != nil && n.own >= takes {
		return false, ""
	}
	if n.overruns > 0 {
		return true, fmt.Sprintf("its work outlasted its leases %d times", n.overruns)
	}
	found := e.recent(event.LeaseOverrun, func(found api.Event) bool { return found.Share == n.Name && found.CardUUID == card })
	if found != nil && n.Clients > 0 {
		return true, "its work outlasted a lease" + told(found)
	}
	return false, ""
}

// time says what the subject waits for on one GPU, or that it has all of it.
func (e *explainer) time(of *api.SnapshotShare, number int, only *api.SnapshotProcess, card *api.SnapshotCard) {
	share := e.slot(of, number)
	its := share
	if only != nil {
		its = e.process(of, only, number)
	}
	if !share.known || !its.known {
		return
	}
	slot := &of.Cards[number]
	neighbours := e.neighbours(of, card.UUID)
	wanted := its.wait >= waits
	if !slot.Gated {
		sum := share.own
		for _, n := range neighbours {
			sum += n.own
		}
		wanted = its.launches+uint64(its.own) > 0 && sum >= fillsGPU
	}
	waited := fmt.Sprintf("its launches waited for %s of %s", percentText(its.wait), seconds(e.span))
	if slot.WaitingNs != nil {
		waited += fmt.Sprintf(" (one still does, for %s)", seconds(time.Duration(*slot.WaitingNs)))
	}
	if !slot.Gated {
		waited = fmt.Sprintf("the driver gives the GPU to programs in turns, and it had %s of %s", percentText(its.own), seconds(e.span))
	}
	found := len(e.causes)
	if wanted {
		e.quota(of, share, its, waited, card)
		e.others(of, slot, neighbours, waited, card)
		if only != nil {
			e.siblings(of, number, only, its, card)
		}
		if late := e.idle(card, func(idle api.IdleTime) uint64 { return idle.AgentLateNs + idle.ProcessLateNs }); late >= waits {
			e.add(Cause{Cause: HostLate, rank: rankTime, Percent: percent(late), CardUUID: card.UUID, Command: "divvy doctor",
				Evidence: fmt.Sprintf("the GPU stood idle for %s of %s because the host let the agent or the next program run too late", percentText(late), seconds(e.span))})
		}
		if slot.Gated && len(e.causes) == found && of.Policy == terms.Fixed && of.CoresPercent < 100 {
			e.quotaIs(of, share, its, waited, card)
		}
	}
	launches := its.launches+uint64(its.own) > 0
	if foreign, known := e.foreign(card); known && foreign >= waits && launches {
		e.unaccountedWith(card, rankTime, percent(foreign), fmt.Sprintf("%s of the time went to no share", percentText(foreign)))
	} else if launches && len(e.causes) == found && len(card.Unaccounted) > 0 && (its.own >= fillsGPU || !known) {
		e.unaccounted(card, rankPresent, "what its kernels take of the time is not known")
	}
	if !e.explained(rankQuota, rankTime) && its.own >= fillsGPU {
		e.add(Cause{Cause: GPUBusy, rank: rankBusy, Percent: percent(its.own), CardUUID: card.UUID, Command: "divvy devices",
			Evidence: fmt.Sprintf("its own kernels had the GPU for %s of %s, and its launches waited for %s: the GPU is as fast as that", percentText(its.own), seconds(e.span),
				percentText(its.wait))})
	}
}

// quota says that a fixed share has had its part.
func (e *explainer) quota(of *api.SnapshotShare, share, its figures, waited string, card *api.SnapshotCard) {
	if of.Policy == terms.Fixed && of.CoresPercent < 100 && 100*share.own >= fillsQuota*float64(of.CoresPercent) {
		e.quotaIs(of, share, its, waited, card)
	}
}

func (e *explainer) quotaIs(of *api.SnapshotShare, share, its figures, waited string, card *api.SnapshotCard) {
	command := fmt.Sprintf("divvy share set %s --policy weighted", of.Name) // no more is left to promise
	if left := 100 - card.CoresBooked; left > 0 {
		command = fmt.Sprintf("divvy share set %s --cores %d", of.Name, min(of.CoresPercent+left, 100))
	}
	e.add(Cause{Cause: FixedQuota, rank: rankQuota, Percent: percent(its.wait), CardUUID: card.UUID, Command: command,
		Evidence: fmt.Sprintf("policy fixed, %d %%: it had %s of the GPU, and %s", of.CoresPercent, percentText(share.own), waited)})
}

// weightOf is what a share without a fixed part counts as.
func weightOf(of *api.SnapshotShare) int {
	if of.Policy == terms.Weighted {
		return max(of.Weight, 1)
	}
	return 1
}

// others says who had the time that the subject waited.
func (e *explainer) others(of *api.SnapshotShare, slot *api.SnapshotSlot, neighbours []neighbour, waited string, card *api.SnapshotCard) {
	var higher, long, fixed, equal, heavier taken
	longest := ""
	for _, n := range neighbours {
		is, how := e.isLong(n, slot)
		switch {
		case n.Priority > of.Priority && n.own >= takes:
			higher.add(n)
		case is:
			if long.add(n); long.largest.Name == n.Name {
				longest = how
			}
		case n.own < takes, n.Priority < of.Priority && n.Policy != terms.Fixed:
			// who comes after this one keeps it from nothing but by one kernel
		case n.Policy == terms.Fixed:
			fixed.add(n)
		case of.Policy == terms.Fixed, of.Policy != terms.BestEffort && n.Policy == terms.BestEffort:
			// it gets what this one leaves
		case weightOf(n.SnapshotShare) == weightOf(of) && (n.Policy == terms.BestEffort) == (of.Policy == terms.BestEffort):
			equal.add(n)
		default:
			heavier.add(n)
		}
	}
	for _, c := range []struct {
		taken
		cause         Name
		who, but, set string
	}{
		{higher, HigherPriority, "shares of a higher priority", "", fmt.Sprintf("divvy share set %s --priority %d", of.Name, higher.priority())},
		{long, LongKernels, "neighbours whose kernels cannot be interrupted", longest, "divvy share pause " + long.name()},
		{fixed, FixedNeighbours, "shares with fixed parts", "", fmt.Sprintf("divvy share set %s --cores %d", fixed.name(), fixed.cores())},
		{equal, EqualSharing, "neighbours of the same weight", "", fmt.Sprintf("divvy share set %s --policy weighted --weight 2", of.Name)},
		{heavier, Weights, "neighbours by their weights", "", fmt.Sprintf("divvy share set %s --policy weighted --weight %d", of.Name, 2*heavier.weight())},
	} {
		if len(c.names) == 0 {
			continue
		}
		text := fmt.Sprintf("%s had %s of the GPU (%s", c.who, percentText(min(c.percent, 100)), words(c.names))
		if c.but != "" {
			text += ": " + c.but
		}
		if c.cause == HigherPriority {
			text += fmt.Sprintf(": priority %d, its own is %d", c.priority(), of.Priority)
		}
		e.add(Cause{Cause: c.cause, rank: rankTime, Percent: percent(min(c.percent, 100)), CardUUID: card.UUID, Command: c.set, Evidence: text + "), and " + waited})
	}
}

func (t *taken) name() string {
	if len(t.names) == 0 {
		return ""
	}
	return t.largest.Name
}

func (t *taken) priority() int {
	if len(t.names) == 0 {
		return 0
	}
	return t.largest.Priority
}

func (t *taken) weight() int {
	if len(t.names) == 0 {
		return 1
	}
	return weightOf(t.largest.SnapshotShare)
}

// cores is half of what the largest was promised.
func (t *taken) cores() int {
	if len(t.names) == 0 {
		return 1
	}
	return max(t.largest.CoresPercent/2, 1)
}

// siblings are the other processes of a process's share.
func (e *explainer) siblings(of *api.SnapshotShare, number int, only *api.SnapshotProcess, its figures, card *api.SnapshotCard) {
	sum, count := 0.0, 0
	for i := range of.Processes {
		if p := &of.Processes[i]; p.PID != only.PID {
			if f := e.process(of, p, number); f.own >= takes {
				sum += f.own
				count++
			}
		}
	}
	if count == 0 {
		return
	}
	e.add(Cause{Cause: SameShare, rank: rankTime, Percent: percent(min(sum, 100)), CardUUID: card.UUID,
		Command:  "divvy run --policy equal -- COMMAND", // a share of its own
		Evidence: fmt.Sprintf("%d other processes of its share had %s of the GPU, and it %s", count, percentText(min(sum, 100)), percentText(its.own))})
}
