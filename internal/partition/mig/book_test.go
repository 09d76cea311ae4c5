// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"errors"
	"math/rand"
	"slices"
	"testing"

	"github.com/divvy-gpu/divvy/internal/partition"
)

// TestAddAndDrop: on every product, an instance is added wherever the twin finds any
// start for it, and those that are there stay where they are.
func TestAddAndDrop(t *testing.T) {
	table := products(t)
	technique := New(table, nil)
	for _, p := range table.Products() {
		tw := &twin{product: p}
		r := rand.New(rand.NewSource(3))
		card := on(partition.Card{UUID: "GPU-twin", Name: p.Names[0]})
		added, refused := 0, 0
		for range 500 {
			have := Of(card).Instances
			if len(have) > 0 && r.Intn(3) == 0 {
				gone := have[r.Intn(len(have))]
				after, ok := technique.Drop(card, gone)
				if card = after; !ok || len(Of(card).Instances) != len(have)-1 || Of(card).Find(gone) >= 0 {
					t.Fatalf("%s: dropped %+v of %+v, left %+v", p.Key, gone, have, Of(card).Instances)
				}
				continue
			}
			var spots []int
			for _, i := range have {
				spots = append(spots, spot(p.Index(i.Profile), i.Start))
			}
			i := r.Intn(len(p.Profiles))
			fits := slices.ContainsFunc(p.Profiles[i].Starts, func(s int) bool { return tw.legal(append(slices.Clone(spots), spot(i, s))) })
			after, made, err := technique.Add(card, p.Profiles[i].Name, Anywhere)
			if (err == nil) != fits || err != nil && !errors.Is(err, ErrNoRoom) {
				t.Fatalf("%s: %s beside %s: %v, the twin says %v", p.Key, p.Profiles[i].Name, card.Layout(), err, fits)
			}
			if err != nil {
				refused++
				continue
			}
			added++
			if !tw.legal(append(spots, spot(i, made.Start))) || slices.ContainsFunc(have, func(o Instance) bool { return Of(after).Find(o) < 0 }) {
				t.Fatalf("%s: %s became %s", p.Key, card.Layout(), after.Layout())
			}
			card = after
		}
		if added == 0 || refused == 0 {
			t.Errorf("%s: %d added, %d refused: the test proves nothing", p.Key, added, refused)
		}
	}
	if _, ok := technique.Drop(h100(Instance{Profile: "1g.10gb", Start: 0, Devices: []string{"MIG-2"}}), Instance{Profile: "1g.10gb", Start: 0, Devices: []string{"MIG-1"}}); ok {
		t.Error("another instance in the place of the one that was booked is dropped")
	}
}
