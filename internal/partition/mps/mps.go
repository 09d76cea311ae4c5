// SPDX-License-Identifier: Apache-2.0

// Package mps plans NVIDIA's Multi-Process Service on cards: one control daemon a
// card, with what each of its clients gets at most. A daemon's settings hold for
// servers that start later, so a change is a new daemon.
package mps

import (
	"fmt"

	"github.com/divvy-gpu/divvy/internal/partition"
)

// Technique is MPS.
type Technique struct{}

var _ partition.Technique = Technique{}

// Name is partition.TechniqueMPS.
func (Technique) Name() string { return partition.TechniqueMPS }

// On says whether a daemon runs.
func (Technique) On(c partition.Card) bool { return c.MPS != nil && c.MPS.Running }

// Aim sets the daemon. With force its clients are given up.
func (t Technique) Aim(c partition.Card, r partition.Rule, force bool) (partition.Card, error) {
	want := r.MPS.Daemon()
	if c.MPS == nil {
		if !want.Running {
			return c, nil
		}
		return c, fmt.Errorf("%w: nvidia-cuda-mps-control is not installed, or cannot serve %s", partition.ErrImpossible, c.Name)
	}
	if same(*c.MPS, *want) {
		return c, nil
	}
	if len(c.MPS.Clients) > 0 && !force {
		return c, fmt.Errorf("%w: the clients of the card's daemon would end: %s", partition.ErrInUse, partition.Describe(c.MPS.Clients))
	}
	c.MPS = want
	return c, nil
}

// same says whether two daemons are alike for those who come.
func same(a, b partition.Daemon) bool {
	a.Clients, b.Clients = nil, nil
	return !a.Running && !b.Running ||
		a.Running == b.Running && a.Multiuser == b.Multiuser && a.ActiveThreadPercentage == b.ActiveThreadPercentage && a.PinnedMemoryMiB == b.PinnedMemoryMiB
}

// Steps stops a daemon and starts another.
func (t Technique) Steps(from, to partition.Card) []partition.Step {
	if from.MPS == nil || to.MPS == nil || same(*from.MPS, *to.MPS) {
		return nil
	}
	var steps []partition.Step
	if from.MPS.Running {
		stop := partition.Step{Action: partition.ActionStop, Why: "no daemon is wanted"}
		if to.MPS.Running {
			stop.Why = "its settings hold for servers that start later"
		}
		if len(from.MPS.Clients) > 0 {
			stop.Value = partition.StopForced
		}
		steps = append(steps, stop)
	}
	if to.MPS.Running {
		steps = append(steps, partition.Step{
			Action: partition.ActionStart, Value: to.MPS.Value(),
			Why: "in compute mode EXCLUSIVE_PROCESS, which nvidia-smi sets, programs cannot miss it",
		})
	}
	return steps
}

// Busy words the daemon's clients.
func (Technique) Busy(c partition.Card, _ []partition.Step) string {
	if c.MPS == nil {
		return ""
	}
	return partition.Describe(c.MPS.Clients)
}
