// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/cdi"
	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/partition"
)

// namedCards are cards with the names that a folder of CDI files has for them.
type namedCards struct {
	partitionCards
	app    *app
	folder cdi.Folder
	driver string                    // folder of NVIDIA's libraries; empty: what is installed
	known  map[string]partition.Card // by what they were asked for
}

// State observes all cards and their names.
func (n namedCards) State(ctx context.Context) (partition.State, error) {
	state, err := n.partitionCards.State(ctx)
	for i := range state.Cards {
		if err == nil {
			err = n.named(&state.Cards[i])
		}
	}
	return state, err
}

// Observe reads how a card is divided, and its names.
func (n namedCards) Observe(ctx context.Context, id string) (partition.Card, error) {
	card, err := n.partitionCards.Observe(ctx, id)
	if err == nil {
		err = n.named(&card)
	}
	return card, err
}

// replicas lists the numbers of a card's replicas.
func (n namedCards) replicas(uuid string) ([]int, error) {
	devices, err := n.folder.Devices()
	var numbers []int
	for _, d := range devices {
		text, ok := strings.CutPrefix(d.ID, uuid+"-")
		if number, notNumber := strconv.Atoi(text); d.Class == cdi.ClassReplica && ok && notNumber == nil {
			numbers = append(numbers, number)
		}
	}
	return numbers, err
}

func (n namedCards) named(c *partition.Card) error {
	n.known[c.ID()] = *c
	numbers, err := n.replicas(c.UUID)
	if len(numbers) > 0 {
		c.Replicas = &partition.Replicas{Count: len(numbers)}
	}
	return err
}

// Do gives a card as many names as a step says, or has its driver take the step.
func (n namedCards) Do(ctx context.Context, id string, step partition.Step) error {
	if step.Technique != partition.TechniqueReplicas {
		return n.partitionCards.Do(ctx, id, step)
	}
	count, err := strconv.Atoi(step.Value)
	if err != nil {
		return fmt.Errorf("%q is no number of replicas", step.Value)
	}
	card := n.known[id]
	o, err := n.offers()
	if err != nil {
		return err
	}
	for number := range count {
		whole := gpu.Card{UUID: card.UUID, PCIAddress: card.Address, Simulated: o.Driver != nil && o.Driver.Simulator != ""}
		if err := o.Whole(cdi.ClassReplica, replicaName(card.UUID, number+1), whole); err != nil {
			return err
		}
	}
	numbers, err := n.replicas(card.UUID)
	for _, number := range numbers {
		if err == nil && (number < 1 || number > count) {
			err = n.folder.Remove(cdi.ClassReplica, replicaName(card.UUID, number))
		}
	}
	return err
}

// offers is what containers can be given here.
func (n namedCards) offers() (*cdi.Offers, error) {
	v := api.Version{DriverDirectory: n.driver}
	if n.driver != "" {
		v.Simulator = n.app.getenv("DIVVY_SIMULATOR")
	}
	return n.app.offers(n.folder, v, n.driver == "")
}

func replicaName(uuid string, number int) string { return fmt.Sprintf("%s-%d", uuid, number) }
