// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"errors"
	"fmt"
	"math/rand"
	"os"
	"slices"
	"strconv"
	"testing"

	facts "github.com/divvy-gpu/divvy/internal/mig"
	"github.com/divvy-gpu/divvy/internal/partition"
)

// twin knows every layout that a product can have, by walking to all of them one
// instance at a time: slow, and obvious.
type twin struct {
	product *facts.Product
	byGoal  map[string][][]int // goal -> layouts, each a sorted list of spots
}

// spot numbers a profile at a start.
func spot(profile, start int) int { return profile*32 + start }

func newTwin(p *facts.Product) *twin {
	t := &twin{product: p, byGoal: map[string][][]int{}}
	seen := map[string]bool{}
	queue := [][]int{{}}
	for len(queue) > 0 {
		spots := queue[0]
		queue = queue[1:]
		goal := goalOf(spots)
		t.byGoal[goal] = append(t.byGoal[goal], spots)
		for i, f := range p.Profiles {
			for _, s := range f.Starts {
				next := append(slices.Clone(spots), spot(i, s))
				slices.Sort(next)
				if key := fmt.Sprint(next); !seen[key] && t.legal(next) {
					seen[key] = true
					queue = append(queue, next)
				}
			}
		}
	}
	return t
}

func goalOf(spots []int) string {
	var profiles []int
	for _, s := range spots {
		profiles = append(profiles, s/32)
	}
	slices.Sort(profiles)
	return fmt.Sprint(profiles)
}

// legal follows the words at the head of the table.
func (t *twin) legal(spots []int) bool {
	var taken [32]bool
	count := map[int]int{}
	compute, dec, enc, jpeg, ofa := 0, 0, 0, 0, 0
	for _, s := range spots {
		f := t.product.Profiles[s/32]
		for u := s % 32; u < s%32+f.Size; u++ {
			if taken[u] {
				return false
			}
			taken[u] = true
		}
		compute += f.Slices
		count[s/32]++
		if count[s/32] > f.Most {
			return false
		}
		dec, enc, jpeg, ofa = dec+f.Engines.Dec, enc+f.Engines.Enc, jpeg+f.Engines.JPEG, ofa+f.Engines.OFA
	}
	e := t.product.Engines
	return compute <= t.product.Slices && dec <= e.Dec && enc <= e.Enc && jpeg <= e.JPEG && ofa <= e.OFA
}

// fewest is the least number of instances to destroy for a goal, -1 where it is
// impossible; busy ones must stay.
func (t *twin) fewest(have []int, busy map[int]bool, goal string) int {
	best := -1
	for _, layout := range t.byGoal[goal] {
		stay := 0
		ok := true
		for _, s := range have {
			if slices.Contains(layout, s) {
				stay++
			} else if busy[s] {
				ok = false
			}
		}
		if destroyed := len(have) - stay; ok && (best < 0 || destroyed < best) {
			best = destroyed
		}
	}
	return best
}

// sequences is how many goal sequences each product gets.
func sequences(t *testing.T) int {
	if text := os.Getenv("DIVVY_GOAL_SEQUENCES"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	return 400
}

// TestGoalSequences leads every product through random goals, and compares each
// plan with the twin's: possible goals are reached with the fewest instances
// destroyed, impossible ones are refused.
func TestGoalSequences(t *testing.T) {
	table, err := facts.Default()
	if err != nil {
		t.Fatal(err)
	}
	n := sequences(t)
	for _, product := range table.Products() {
		t.Run(product.Key, func(t *testing.T) {
			tw := newTwin(product)
			r := rand.New(rand.NewSource(1))
			reached, refused, inUse := 0, 0, 0
			for range n {
				card := on(partition.Card{UUID: "GPU-twin", Name: product.Names[0]})
				for range 3 {
					goal, m := randomGoal(r, product)
					outcome := checkPlan(t, migPlanner(table), tw, &card, goal, m)
					switch outcome {
					case "":
						reached++
					case partition.RefusedInUse:
						inUse++
					default:
						refused++
					}
					used := slices.Clone(Of(card).Instances)
					for i := range used {
						used[i].Processes = nil
						if r.Intn(4) == 0 {
							used[i].Processes = []partition.Process{{PID: 1 + i}}
						}
					}
					card = on(card, used...)
				}
			}
			if reached == 0 || refused == 0 || inUse == 0 {
				t.Errorf("%d reached, %d impossible, %d in use: the test proves nothing", reached, refused, inUse)
			}
		})
	}
}

func randomGoal(r *rand.Rand, p *facts.Product) (string, Goal) {
	m := Goal{Enabled: true, Devices: map[string]int{}}
	var spots []int
	for range 1 + r.Intn(5) {
		i := r.Intn(len(p.Profiles))
		if r.Intn(2) == 0 {
			i = r.Intn(min(3, len(p.Profiles))) // small ones come first in the table
		}
		m.Devices[p.Profiles[i].Name]++
		spots = append(spots, spot(i, 0))
	}
	return goalOf(spots), m
}

// checkPlan plans for a card, compares, and leaves the card as planned.
func checkPlan(t *testing.T, planner partition.Planner, tw *twin, card *partition.Card, goal string, m Goal) string {
	t.Helper()
	var have []int
	busy := map[int]bool{}
	for _, i := range Of(*card).Instances {
		s := spot(tw.product.Index(i.Profile), i.Start)
		have = append(have, s)
		busy[s] = len(i.Processes) > 0
	}
	plan := planner.Card(*card, rule(m))
	want := tw.fewest(have, busy, goal)
	possible := tw.fewest(have, nil, goal)
	switch {
	case possible < 0 && plan.Refused != partition.RefusedImpossible,
		possible >= 0 && want < 0 && plan.Refused != partition.RefusedInUse,
		want >= 0 && plan.Refused != "",
		want >= 0 && plan.Destroyed != want:
		t.Fatalf("%s to %v: %q %q with %d destroyed; the twin: %d, without those in use %d",
			card.Layout(), m.Devices, plan.Refused, plan.Reason, plan.Destroyed, possible, want)
	}
	if plan.Refused != "" {
		if plan.Reason == "" || len(plan.Steps) > 0 {
			t.Fatalf("refused without a reason, or with steps: %+v", plan)
		}
		return plan.Refused
	}
	var after []int
	for _, i := range Of(plan.After).Instances {
		after = append(after, spot(tw.product.Index(i.Profile), i.Start))
	}
	if !tw.legal(after) || goalOf(after) != goal {
		t.Fatalf("%s to %v: planned %s", card.Layout(), m.Devices, plan.After.Layout())
	}
	for s := range busy {
		if busy[s] && !slices.Contains(after, s) {
			t.Fatalf("%s to %v: what is in use goes: %s", card.Layout(), m.Devices, plan.After.Layout())
		}
	}
	if reached := replay(t, *card, plan.Steps); reached.Layout() != plan.After.Layout() {
		t.Fatalf("the steps lead to %s, planned was %s", reached.Layout(), plan.After.Layout())
	}
	if again := planner.Card(plan.After, rule(m)); len(again.Steps) > 0 || again.Refused != "" {
		t.Fatalf("planned again: %+v", again)
	}
	*card = plan.After
	return ""
}

// replay takes steps on a card in memory.
func replay(t *testing.T, c partition.Card, steps []partition.Step) partition.Card {
	t.Helper()
	d := fake(c, fakeDriver{})
	for _, s := range steps {
		if err := d.Do(t.Context(), c.UUID, s); err != nil {
			t.Fatal(err)
		}
	}
	return d.now()
}

// FuzzGoals lets the fuzzer choose the goals of a sequence.
func FuzzGoals(f *testing.F) {
	table, err := facts.Default()
	if err != nil {
		f.Fatal(err)
	}
	twins := map[string]*twin{}
	for _, p := range table.Products() {
		if len(p.Profiles) <= 8 { // the twins of the others take seconds
			twins[p.Key] = newTwin(p)
		}
	}
	f.Add(uint8(3), []byte{1, 2, 0, 5, 0, 1, 1, 1, 0, 7})
	f.Fuzz(func(t *testing.T, which uint8, goals []byte) {
		p := table.Products()[int(which)%len(table.Products())]
		tw := twins[p.Key]
		if tw == nil || len(goals) > 60 {
			return
		}
		card := on(partition.Card{UUID: "GPU-fuzz", Name: p.Names[0]})
		m := Goal{Enabled: true, Devices: map[string]int{}}
		var spots []int
		for _, b := range goals {
			if b != 0 {
				i := int(b) % len(p.Profiles)
				m.Devices[p.Profiles[i].Name]++
				spots = append(spots, spot(i, 0))
				continue
			}
			checkPlan(t, migPlanner(table), tw, &card, goalOf(spots), m)
			m, spots = Goal{Enabled: true, Devices: map[string]int{}}, nil
		}
	})
}

var errFake = errors.New("fake failure")
