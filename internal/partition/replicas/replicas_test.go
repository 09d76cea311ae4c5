// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"testing"

	"github.com/divvy-gpu/divvy/internal/partition"
	"github.com/divvy-gpu/divvy/internal/partition/mig"
)

func TestPlan(t *testing.T) {
	planner := partition.Planner{Techniques: partition.Techniques{mig.Technique{}, Technique{}}}
	for _, c := range []struct {
		name      string
		has, want int
		mig       bool
		steps     int
		kept      int
		refused   string
	}{
		{"from none", 0, 4, false, 1, 0, ""},
		{"as it is", 4, 4, false, 0, 4, ""},
		{"more", 2, 4, false, 1, 2, ""},
		{"fewer", 4, 1, false, 1, 1, ""},
		{"none", 4, 0, false, 1, 0, ""},
		{"none from none", 0, 0, false, 0, 0, ""},
		{"of a divided GPU", 0, 2, true, 0, 0, partition.RefusedImpossible},
	} {
		card := partition.Card{UUID: "GPU-1", Name: "L4"}.With(partition.TechniqueMIG, &mig.State{On: c.mig})
		if c.has > 0 {
			card = card.With(partition.TechniqueReplicas, &Names{Count: c.has})
		}
		plan := planner.Card(card, partition.Rule{Wants: partition.Wants{partition.TechniqueReplicas: &Names{Count: c.want}}})
		if len(plan.Steps) != c.steps || plan.Kept != c.kept || plan.Refused != c.refused {
			t.Errorf("%s: %+v", c.name, plan)
		}
		for _, s := range plan.Steps {
			if s.Technique != partition.TechniqueReplicas || s.String() == "" || s.Why == "" {
				t.Errorf("%s: %+v", c.name, s)
			}
		}
	}
}
