// SPDX-License-Identifier: Apache-2.0

// Package replicas is several names for one card, without limits: what others
// call time-slicing. Programs take turns as the driver likes, and the first to ask
// gets the memory. The names are CDI files in a folder.
package replicas

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/internal/cdi"
	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/partition"
)

// actionName makes a card have as many replicas as Value says.
const actionName = "name"

// maxReplicas bounds the replicas of one card.
const maxReplicas = 256

// Names are names by which containers are given a card, each the whole of it:
// nothing limits who uses one, and nothing is counted (level booked). As a goal,
// how many; as a state, those there are, absent for none.
type Names struct {
	Count int `yaml:"count" json:"count"`
}

func (n *Names) Validate() error {
	if n.Count < 0 || n.Count > maxReplicas {
		return fmt.Errorf("%d replicas, of %d at most", n.Count, maxReplicas)
	}
	return nil
}

func (n *Names) Layout(partition.Card) string { return fmt.Sprintf("%d replicas", n.Count) }

func (n *Names) Parts() []string {
	var names []string
	for i := range n.Count {
		names = append(names, fmt.Sprintf("replica %d", i+1))
	}
	return names
}

func (n *Names) Lines() []string {
	return []string{fmt.Sprintf("%d replicas: names of the whole GPU without limits (level booked)", n.Count)}
}

// Asking leaves them: a state without them says that there are none.
func (n *Names) Asking(partition.Division) partition.Division { return n }

// Technique is replicas.
type Technique struct {
	folder cdi.Folder
	offers func() (*cdi.Offers, error)
}

// New returns replicas in a folder, of what containers are offered; the zero
// Technique plans only.
func New(folder cdi.Folder, offers func() (*cdi.Offers, error)) Technique {
	return Technique{folder: folder, offers: offers}
}

func (Technique) Name() string { return partition.TechniqueReplicas }

func (Technique) About() partition.About {
	return partition.About{
		Want: func() partition.Want { return &Names{} }, Division: func() partition.Division { return &Names{} },
		Explanation: partition.Explanation{
			Title: "several programs on a GPU, without limits", Vendors: "all",
			Isolation: []string{"memory: none, the first takes all", "compute: the driver's time slices", "faults: as between any two programs", "side channels: not closed"},
			Cost:      "nothing",
			Needs:     "programs that trust each other",
			Excludes:  "a promise of any kind",
		},
	}
}

// Of is a card's replicas; nil: it has none.
func Of(c partition.Card) *Names { return partition.DivisionOf[*Names](c, partition.TechniqueReplicas) }

// numbers lists the numbers of a card's replicas.
func (t Technique) numbers(uuid string) ([]int, error) {
	devices, err := t.folder.Devices()
	var numbers []int
	for _, d := range devices {
		text, ok := strings.CutPrefix(d.ID, uuid+"-")
		if number, notNumber := strconv.Atoi(text); d.Class == cdi.ClassReplica && ok && notNumber == nil {
			numbers = append(numbers, number)
		}
	}
	return numbers, err
}

// Observe counts a card's names.
func (t Technique) Observe(_ context.Context, c *partition.Card) error {
	if t.offers == nil {
		return nil
	}
	numbers, err := t.numbers(c.UUID)
	if len(numbers) > 0 {
		*c = c.With(t.Name(), &Names{Count: len(numbers)})
	}
	return err
}

// On says whether a card has replicas.
func (Technique) On(c partition.Card) bool { return Of(c) != nil }

// Aim sets their number.
func (t Technique) Aim(c partition.Card, r partition.Rule, _ bool) (partition.Card, error) {
	if want := r.Wants[t.Name()].(*Names); want.Count > 0 {
		return c.With(t.Name(), &Names{Count: want.Count}), nil
	}
	return c.With(t.Name(), nil), nil
}

// Steps is one: names come and go without anybody's loss.
func (Technique) Steps(from, to partition.Card) []partition.Step {
	if count(from) == count(to) {
		return nil
	}
	value := strconv.Itoa(count(to))
	return []partition.Step{{
		Action: actionName, Value: value, Words: "name " + value + " replicas",
		Why: "it has " + strconv.Itoa(count(from)) + "; containers that run keep the GPU",
	}}
}

func count(c partition.Card) int {
	if n := Of(c); n != nil {
		return n.Count
	}
	return 0
}

// Busy is empty: a name that goes takes nothing from who uses the card.
func (Technique) Busy(partition.Card, []partition.Step) string { return "" }

func (t Technique) Do(_ context.Context, c partition.Card, s partition.Step) error {
	count, err := strconv.Atoi(s.Value)
	if err != nil || t.offers == nil {
		return fmt.Errorf("%q is no number of replicas", s.Value)
	}
	o, err := t.offers()
	if err != nil {
		return err
	}
	card := gpu.Card{UUID: c.UUID, PCIAddress: c.Address, Simulated: o.Driver != nil && o.Driver.Simulator != ""}
	for number := range count {
		if err := o.Whole(cdi.ClassReplica, replica(c.UUID, number+1), card); err != nil {
			return err
		}
	}
	numbers, err := t.numbers(c.UUID)
	for _, number := range numbers {
		if err == nil && (number < 1 || number > count) {
			err = t.folder.Remove(cdi.ClassReplica, replica(c.UUID, number))
		}
	}
	return err
}

func replica(uuid string, number int) string { return fmt.Sprintf("%s-%d", uuid, number) }
