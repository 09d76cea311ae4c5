// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"

	"github.com/divvy-gpu/divvy/internal/partition"
	"github.com/divvy-gpu/divvy/internal/partition/mig"
)

// Create makes one MIG instance of a profile on a card, at a start or mig.Anywhere, for
// who has booked it, with a compute instance of all its slices. No other is touched: mig.ErrNoRoom says that it
// does not fit beside them, partition.ErrInUse that the card's mode is off and somebody
// uses the card or has a share of it. Where a step fails, the card is as it was; after a
// crash the next change of cards sees to it.
func (m *Machine) Create(ctx context.Context, j *Journal, id, profile string, start int) (mig.Instance, error) {
	t, err := m.mig()
	if err != nil {
		return mig.Instance{}, err
	}
	var made mig.Instance
	c, err := m.change(ctx, j, id, func(c partition.Card) (after partition.Card, err error) {
		after, made, err = t.Add(c, profile, start)
		return after, err
	})
	if err != nil {
		return mig.Instance{}, fmt.Errorf("create %s: %w", profile, err)
	}
	s := mig.Of(c)
	return s.Instances[s.Find(made)], nil // Apply has verified that it is there
}

// Remove destroys an instance that Create has made; one that is gone, or has another in
// its place, is no error. partition.ErrInUse: a program uses it.
func (m *Machine) Remove(ctx context.Context, j *Journal, id string, i mig.Instance) error {
	t, err := m.mig()
	if err != nil {
		return err
	}
	_, err = m.change(ctx, j, id, func(c partition.Card) (partition.Card, error) {
		after, _ := t.Drop(c, i)
		return after, nil
	})
	if err != nil {
		return fmt.Errorf("remove %s at %d: %w", i.Profile, i.Start, err)
	}
	return nil
}

// change leads one card to a state, after what an interrupted change began.
func (m *Machine) change(ctx context.Context, j *Journal, id string, to func(partition.Card) (partition.Card, error)) (partition.Card, error) {
	if _, err := m.Recover(ctx, j); err != nil {
		return partition.Card{}, err
	}
	c, err := m.Observe(ctx, id)
	if err != nil {
		return c, err
	}
	one := []partition.Card{c}
	if m.Shares != nil {
		if err := m.Shares(ctx, one); err != nil {
			return c, err
		}
	}
	after, err := to(one[0])
	if err != nil {
		return c, fmt.Errorf("GPU %s: %w", c.UUID, err)
	}
	plan := partition.Planner{Techniques: m.Techniques}.To(one[0], after, nil)
	if _, err := m.Apply(ctx, j, plan); err != nil {
		return c, err
	}
	return m.Observe(ctx, id)
}

// mig is the technique where it can be used.
func (m *Machine) mig() (mig.Technique, error) {
	for _, t := range m.Techniques {
		if own, ok := t.(mig.Technique); ok && m.driver != nil {
			return own, nil
		}
	}
	return mig.Technique{}, fmt.Errorf("%w: MIG is NVIDIA's driver's, which is not here or was not asked", partition.ErrImpossible)
}
