// SPDX-License-Identifier: Apache-2.0

// Package replicas plans several names for one card, without limits: what others
// call time-slicing. Programs take turns as the driver likes, and the first to ask
// gets the memory.
package replicas

import (
	"strconv"

	"github.com/divvy-gpu/divvy/internal/partition"
)

// Technique is replicas.
type Technique struct{}

var _ partition.Technique = Technique{}

// Name is partition.TechniqueReplicas.
func (Technique) Name() string { return partition.TechniqueReplicas }

// On says whether a card has replicas.
func (Technique) On(c partition.Card) bool { return c.Replicas != nil }

// Aim sets their number.
func (Technique) Aim(c partition.Card, r partition.Rule, _ bool) (partition.Card, error) {
	c.Replicas = nil
	if r.Replicas.Count > 0 {
		c.Replicas = &partition.Replicas{Count: r.Replicas.Count}
	}
	return c, nil
}

// Steps is one: names come and go without anybody's loss.
func (Technique) Steps(from, to partition.Card) []partition.Step {
	if count(from) == count(to) {
		return nil
	}
	return []partition.Step{{
		Action: partition.ActionName, Value: strconv.Itoa(count(to)),
		Why: "it has " + strconv.Itoa(count(from)) + "; containers that run keep the card",
	}}
}

func count(c partition.Card) int {
	if c.Replicas == nil {
		return 0
	}
	return c.Replicas.Count
}

// Busy is empty: a name that goes takes nothing from who uses the card.
func (Technique) Busy(partition.Card, []partition.Step) string { return "" }
