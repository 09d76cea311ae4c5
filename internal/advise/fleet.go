// SPDX-License-Identifier: Apache-2.0

package advise

// Saving is what sharing saves on a fleet under one policy, as the planner
// computes it.
type Saving struct {
	Workload    string  `json:"workload"`
	Policy      string  `json:"policy"`
	CardsWhole  float64 `json:"cardsWhole"`
	CardsShared float64 `json:"cardsShared"`
}

// Percent is the part of the cards that is saved.
func (s Saving) Percent() float64 {
	if s.CardsWhole == 0 {
		return 0
	}
	return 100 * (s.CardsWhole - s.CardsShared) / s.CardsWhole
}

// BestSaving is the policy that takes the fewest cards, the first of those alike.
func BestSaving(all []Saving) (Saving, bool) {
	if len(all) == 0 {
		return Saving{}, false
	}
	best := all[0]
	for _, s := range all[1:] {
		if s.CardsShared < best.CardsShared {
			best = s
		}
	}
	return best, true
}

// Asked is what a job of a fleet asks for.
type Asked struct {
	Name   string
	Cards  int
	Part   float64 // of each card
	Linked bool
}

// Alone are jobs that should not share, and why.
type Alone struct {
	Workload string   `json:"workload"`
	Why      string   `json:"why"`
	Rule     string   `json:"rule"`
	Count    int      `json:"count"`
	Jobs     []string `json:"jobs"` // the first of them
}

// mostNamed is how many jobs are named.
const mostNamed = 10

// ShouldNotShare sorts out the jobs of a list that are better off alone.
func ShouldNotShare(workload string, jobs []Asked) []Alone {
	kinds := []Alone{
		{Workload: workload, Rule: "F-SEVERAL", Why: "several GPUs that work on one thing"},
		{Workload: workload, Rule: "W-TRAIN", Why: "all of a GPU"},
		{Workload: workload, Rule: "W-TUNE-LARGE", Why: "over half of a GPU"},
	}
	for _, j := range jobs {
		at := -1
		switch {
		case j.Cards > 1 || j.Linked:
			at = 0
		case j.Cards == 1 && j.Part >= 1:
			at = 1
		case j.Cards == 1 && j.Part > 0.5:
			at = 2
		}
		if at < 0 {
			continue
		}
		if kinds[at].Count++; kinds[at].Count <= mostNamed {
			kinds[at].Jobs = append(kinds[at].Jobs, j.Name)
		}
	}
	out := []Alone{}
	for _, k := range kinds {
		if k.Count > 0 {
			out = append(out, k)
		}
	}
	return out
}
