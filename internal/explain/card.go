// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"strconv"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/event"
	"github.com/divvy-gpu/divvy/internal/size"
)

// card finds the causes of a GPU.
func (e *explainer) card(subject Subject) {
	c := e.cards[subject.Card]
	if c == nil {
		return
	}
	e.condition(c)
	e.hot(c)
	if c.Cordon != nil {
		e.cordoned(c, rankSlow, "; what is on it goes on")
	}
	if len(c.Unaccounted) > 0 {
		e.unaccounted(c, rankTime, "no share limits it")
	}
	busy, launches := e.sharesTime(c), uint64(0)
	for i := range e.now.Shares {
		of := &e.now.Shares[i]
		for number := range of.Cards {
			if of.Cards[number].CardUUID == c.UUID {
				e.stuck(of, number, nil)
				launches += e.slot(of, number).launches
			}
		}
	}
	if idle := e.idle(c, func(idle api.IdleTime) uint64 { return idle.IneligibleNs }); idle >= waits {
		e.add(Cause{Cause: FixedQuota, rank: rankQuota, Percent: percent(idle), CardUUID: c.UUID, Command: "divvy share list",
			Evidence: fmt.Sprintf("for %s of %s it stood idle because the shares that wanted it had used up their fixed parts", percentText(idle), seconds(e.span))})
	}
	if late := e.idle(c, func(idle api.IdleTime) uint64 { return idle.AgentLateNs + idle.ProcessLateNs }); late >= waits {
		e.add(Cause{Cause: HostLate, rank: rankTime, Percent: percent(late), CardUUID: c.UUID, Command: "divvy doctor",
			Evidence: fmt.Sprintf("for %s of %s it stood idle because the host let the agent or the next program run too late", percentText(late), seconds(e.span))})
	}
	if e.explained(rankBroken, rankStuck, rankSlow, rankQuota, rankTime) {
		return
	}
	if busy >= fillsGPU {
		e.add(Cause{Cause: GPUBusy, rank: rankBusy, Percent: percent(busy), CardUUID: c.UUID, Command: "divvy share list",
			Evidence: fmt.Sprintf("its %d shares had it for %s of %s", c.Shares, percentText(busy), seconds(e.span))})
		return
	}
	e.add(Cause{Cause: Nothing, rank: rankNothing, Percent: percent(busy), CardUUID: c.UUID, Command: "divvy ps",
		Evidence: fmt.Sprintf("it is well and takes work: %d launches of %d shares in %s had it for %s of the time", launches, c.Shares, seconds(e.span), percentText(busy))})
}

// conditions are the states of a GPU in which programs cannot use it.
var conditions = map[string]struct {
	cause Name
	kind  event.Kind
}{
	"lost":         {LostCard, event.CardLost},
	"needs-reset":  {NeedsReset, event.CardNeedsReset},
	"unresponsive": {Unresponsive, event.CardUnresponsive},
	"unshareable":  {Unshareable, event.CardUnshareable},
}

// condition says whether a GPU can be used.
func (e *explainer) condition(c *api.SnapshotCard) {
	is, unusable := conditions[c.Health]
	if !unusable {
		return
	}
	command := "nvidia-smi --gpu-reset -i " + c.UUID
	switch {
	case c.Health == "unshareable":
		command = "divvy partition show"
	case c.Simulated:
		command = "divvy simulate fault clear --gpu " + c.UUID
	}
	e.add(Cause{Cause: is.cause, rank: rankBroken, Percent: percent(100), CardUUID: c.UUID, Command: command,
		Evidence: fmt.Sprintf("%s (%s) is %s: %s%s", c.Name, short(c.UUID), c.Health, c.HealthDetail,
			told(e.last(is.kind, func(found api.Event) bool { return found.CardUUID == c.UUID })))})
}

// hot says whether a GPU is slowed down.
func (e *explainer) hot(c *api.SnapshotCard) {
	i := c.Instruments
	if i == nil || i.Slowed == nil {
		return
	}
	temperature := ""
	if i.TemperatureC != nil {
		temperature = fmt.Sprintf(" at %s C", strconv.FormatFloat(*i.TemperatureC, 'f', -1, 64))
	}
	if i.SMClockMHz != nil {
		temperature += fmt.Sprintf(", %s MHz", strconv.FormatFloat(*i.SMClockMHz, 'f', -1, 64))
	}
	command := fmt.Sprintf("divvy devices cordon %s --reason \"slowed down\"", c.UUID)
	if c.Simulated {
		command = "divvy simulate fault clear --gpu " + c.UUID
	}
	since := told(e.last(event.CardDegraded, func(found api.Event) bool { return found.CardUUID == c.UUID }))
	switch {
	case i.Slowed.Thermal:
		e.add(Cause{Cause: HotCard, rank: rankSlow, CardUUID: c.UUID, Command: command, Percent: e.slowedFor(c, func(s api.SlowedFor) uint64 { return s.ThermalNs }),
			Evidence: fmt.Sprintf("%s (%s) is slowed down by heat%s%s", c.Name, short(c.UUID), temperature, since)})
	case i.Slowed.Power:
		power := ""
		if i.PowerWatts != nil && i.PowerLimitWatts != nil {
			power = fmt.Sprintf(": %.0f W of %.0f W", *i.PowerWatts, *i.PowerLimitWatts)
		}
		e.add(Cause{Cause: PowerLimit, rank: rankTime, CardUUID: c.UUID, Command: command, Percent: e.slowedFor(c, func(s api.SlowedFor) uint64 { return s.PowerNs }),
			Evidence: fmt.Sprintf("%s (%s) is slowed down by its power%s%s%s", c.Name, short(c.UUID), power, temperature, since)})
	case i.Slowed.Hardware:
		e.add(Cause{Cause: HotCard, rank: rankSlow, CardUUID: c.UUID, Command: command, Percent: e.slowedFor(c, func(s api.SlowedFor) uint64 { return s.HardwareNs }),
			Evidence: fmt.Sprintf("%s (%s) is slowed down by its hardware%s%s", c.Name, short(c.UUID), temperature, since)})
	}
}

// cordoned says that a GPU takes no new share.
func (e *explainer) cordoned(c *api.SnapshotCard, rank rank, but string) {
	who := "a fault"
	if c.Cordon.UID != nil {
		who = "user " + strconv.Itoa(*c.Cordon.UID)
	}
	reason := ""
	if c.Cordon.Reason != "" {
		reason = ": " + c.Cordon.Reason
	}
	e.add(Cause{Cause: Cordoned, rank: rank, CardUUID: c.UUID, Command: "divvy devices uncordon " + c.UUID,
		Evidence: fmt.Sprintf("%s cordoned %s (%s) at %s%s; it takes no new share%s%s", who, c.Name, short(c.UUID), clock(c.Cordon.Since), reason, but,
			told(e.last(event.CardCordoned, func(found api.Event) bool { return found.CardUUID == c.UUID })))})
}

func heldUnaccounted(c *api.SnapshotCard) (sum uint64) {
	for _, s := range c.Unaccounted {
		sum += s.Bytes
	}
	return sum
}

// unaccounted says who holds memory of a GPU past all shares.
func (e *explainer) unaccounted(c *api.SnapshotCard, rank rank, why string) {
	held := heldUnaccounted(c)
	var full *float64
	if c.MemoryBytes > 0 {
		full = percent(100 * float64(held) / float64(c.MemoryBytes))
	}
	e.unaccountedWith(c, rank, full, why)
}

func (e *explainer) unaccountedWith(c *api.SnapshotCard, rank rank, percent *float64, why string) {
	largest := c.Unaccounted[0]
	for _, s := range c.Unaccounted {
		if s.Bytes > largest.Bytes {
			largest = s
		}
	}
	whose := ""
	if largest.UID != nil {
		whose = " of user " + strconv.Itoa(*largest.UID)
	}
	if largest.Container != "" {
		whose += " in " + largest.Container
	}
	others := ""
	if n := len(c.Unaccounted) - 1; n > 0 {
		others = fmt.Sprintf(" and %d more", n)
	}
	for _, found := range e.causes {
		if found.Cause == Stranger && found.CardUUID == c.UUID {
			return
		}
	}
	e.add(Cause{Cause: Stranger, rank: rank, Percent: percent, CardUUID: c.UUID, Command: "kill " + strconv.Itoa(largest.PID),
		Evidence: fmt.Sprintf("process %d (%s)%s uses %s (%s) under no share and holds %s%s: %s%s", largest.PID, largest.Command, whose, c.Name, short(c.UUID),
			size.Short(largest.Bytes), others, why,
			told(e.last(event.UnledgeredMemory, func(found api.Event) bool { return found.PID == largest.PID })))})
}

// unaccountedProcess explains a process that is under no share.
func (e *explainer) unaccountedProcess(pid int) {
	for i := range e.now.Cards {
		c := &e.now.Cards[i]
		for _, s := range c.Unaccounted {
			if s.PID != pid {
				continue
			}
			e.condition(c)
			e.hot(c)
			e.add(Cause{Cause: NotHeld, rank: rankUnheld, CardUUID: c.UUID, Command: fmt.Sprintf("divvy run --gpu %s -- COMMAND", c.UUID),
				Evidence: fmt.Sprintf("process %d (%s) holds %s of %s (%s) and is under no share: nothing of Divvy limits it%s", pid, s.Command, size.Short(s.Bytes), c.Name,
					short(c.UUID), told(e.last(event.UnledgeredMemory, func(found api.Event) bool { return found.PID == pid })))})
		}
	}
}
