// SPDX-License-Identifier: Apache-2.0

package partition

import "fmt"

// TechniqueReplicas is several names for one card.
const TechniqueReplicas = "replicas"

// ActionName makes a card have as many replicas as Value says.
const ActionName = "name"

// maxReplicas bounds the replicas of one card.
const maxReplicas = 256

// Replicas are names by which containers are given a card, each the whole of it:
// nothing limits who uses one, and nothing is counted (level booked). As a goal,
// how many; as a state, those there are, absent for none.
type Replicas struct {
	Count int `yaml:"count" json:"count"`
}

func (r *Replicas) validate() error {
	if r.Count < 0 || r.Count > maxReplicas {
		return fmt.Errorf("%d replicas, of %d at most", r.Count, maxReplicas)
	}
	return nil
}

func (r *Replicas) layout() string { return fmt.Sprintf("%d replicas", r.Count) }

func (r *Replicas) parts() []string {
	var names []string
	for n := range r.Count {
		names = append(names, fmt.Sprintf("replica %d", n+1))
	}
	return names
}

func (r *Replicas) lines() []string {
	return []string{fmt.Sprintf("%d replicas: names of the whole card without limits (level booked)", r.Count)}
}
