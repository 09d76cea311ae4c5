// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
)

// figures are what a share, or a process of one, did on one GPU between the snapshots.
type figures struct {
	known    bool    // something of ours measures it, and there are two snapshots
	own      float64 // percent of the time that its kernels had the GPU
	wait     float64 // percent of the time that launches of it waited
	launches uint64
	overruns uint64
	denials  map[string]uint64 // by reason, of a share
}

// most is what one part of a time can be: several threads wait beside each other.
func most(p float64) float64 { return min(max(p, 0), 100) }

func part(ns uint64, span time.Duration) float64 {
	if span <= 0 {
		return 0
	}
	return 100 * float64(ns) / float64(span)
}

func more(now, before uint64) uint64 {
	if now < before {
		return 0
	}
	return now - before
}

// old is a share as it was in the snapshot before; what was made since had nothing then.
func (e *explainer) old(of *api.SnapshotShare) *api.SnapshotShare {
	if e.before == nil {
		return nil
	}
	for i := range e.before.Shares {
		if was := &e.before.Shares[i]; was.Name == of.Name && was.Created.Equal(of.Created) {
			return was
		}
	}
	return &api.SnapshotShare{}
}

// slot is what a share did on one of its GPUs.
func (e *explainer) slot(of *api.SnapshotShare, number int) figures {
	was := e.old(of)
	now := of.Cards[number]
	if was == nil || now.CardTimeNs == nil {
		return figures{}
	}
	before := api.SnapshotSlot{}
	if number < len(was.Cards) {
		before = was.Cards[number]
	}
	f := figures{known: true, own: most(part(more(*now.CardTimeNs, value(before.CardTimeNs)), e.span)), launches: more(value(now.Launches), value(before.Launches)),
		overruns: more(now.Overruns, before.Overruns), denials: map[string]uint64{}}
	f.wait = e.waited(more(value(now.WaitNs), value(before.WaitNs)), now.WaitingNs)
	for reason, n := range now.Denials {
		if n := more(n, before.Denials[reason]); n > 0 {
			f.denials[reason] = n
		}
	}
	return f
}

// waited is for how much of the time launches waited: those that have got their turn, or the one
// that waits still.
func (e *explainer) waited(ended uint64, still *uint64) float64 {
	return most(part(max(ended, min(value(still), uint64(e.span))), e.span))
}

// process is what one process did on one GPU of its share.
func (e *explainer) process(of *api.SnapshotShare, p *api.SnapshotProcess, number int) figures {
	was := e.old(of)
	if was == nil || number >= min(len(p.Cards), len(of.Cards)) || of.Cards[number].CardTimeNs == nil {
		return figures{}
	}
	now, before := p.Cards[number], api.ProcessSlot{}
	for _, old := range was.Processes {
		if old.PID == p.PID && old.Since.Equal(p.Since) && number < len(old.Cards) {
			before = old.Cards[number]
		}
	}
	f := figures{known: true, own: most(part(more(now.CardTimeNs, before.CardTimeNs), e.span)), launches: more(now.Launches, before.Launches)}
	var still *uint64 // which process waits is not told: the only one does
	if len(of.Processes) == 1 {
		still = of.Cards[number].WaitingNs
	}
	f.wait = e.waited(more(now.WaitNs, before.WaitNs), still)
	return f
}

func value(v *uint64) uint64 {
	if v == nil {
		return 0
	}
	return *v
}

// neighbour is another share on the same GPU.
type neighbour struct {
	*api.SnapshotShare
	figures
	slot *api.SnapshotSlot
}

// neighbours are the other shares on a GPU.
func (e *explainer) neighbours(of *api.SnapshotShare, card string) (all []neighbour) {
	for i := range e.now.Shares {
		other := &e.now.Shares[i]
		if other.Name == of.Name {
			continue
		}
		for number := range other.Cards {
			if other.Cards[number].CardUUID == card {
				all = append(all, neighbour{other, e.slot(other, number), &other.Cards[number]})
			}
		}
	}
	return all
}

// oldCard is a GPU as it was in the snapshot before; nil: there is none, or it has not the GPU.
func (e *explainer) oldCard(c *api.SnapshotCard) *api.SnapshotCard {
	if e.before == nil {
		return nil
	}
	for i := range e.before.Cards {
		if was := &e.before.Cards[i]; was.UUID == c.UUID {
			return was
		}
	}
	return nil
}

// slowedFor is for how much of the time a GPU's clocks were seen held down.
func (e *explainer) slowedFor(c *api.SnapshotCard, of func(api.SlowedFor) uint64) *float64 {
	now := slowedOf(c)
	was := slowedOf(e.oldCard(c))
	if was == nil || now == nil {
		return nil
	}
	return percent(most(part(more(of(*now), of(*was)), e.span)))
}

func slowedOf(c *api.SnapshotCard) *api.SlowedFor {
	if c == nil || c.Instruments == nil {
		return nil
	}
	return c.Instruments.SlowedFor
}

// idle is what a GPU's time was idle for between the snapshots, in percent.
func (e *explainer) idle(c *api.SnapshotCard, of func(api.IdleTime) uint64) float64 {
	was := e.oldCard(c)
	if was == nil || was.Time == nil || c.Time == nil {
		return 0
	}
	return most(part(more(of(c.Time.Idle), of(was.Time.Idle)), e.span))
}

// foreign is how much of a GPU's time went to unaccounted processes: what its driver says that it was busy,
// at both ends, less what its shares had; false: it is not known.
func (e *explainer) foreign(c *api.SnapshotCard) (float64, bool) {
	was := e.oldCard(c)
	if was == nil || len(c.Unaccounted) == 0 {
		return 0, false
	}
	for _, i := range []*api.Instruments{c.Instruments, was.Instruments} {
		if i == nil || i.BusyPercent == nil {
			return 0, false
		}
	}
	return max(min(*c.Instruments.BusyPercent, *was.Instruments.BusyPercent)-e.sharesTime(c), 0), true
}

// sharesTime is how much of a GPU's time its shares had.
func (e *explainer) sharesTime(c *api.SnapshotCard) float64 {
	was := e.oldCard(c)
	if was == nil {
		return 0
	}
	return most(part(more(c.ShareTimeNs, was.ShareTimeNs), e.span))
}
