// SPDX-License-Identifier: Apache-2.0

package core

import "maps"

// GoneKey names what figures of shares that are gone are added up by.
type GoneKey struct {
	CardUUID string
	Tenant   string // as given; empty: Owner's
	Owner    int    // where no tenant was given
	Unnamed  bool   // shares whose names were made up
}

// Gone is what shares did that are gone.
type Gone struct {
	CardTimeNs, WaitNs, Launches, Overruns uint64
	DenialsBy                              map[Reason]uint64
}

// maxGone bounds how many sums are kept apart: whoever makes shares makes up tenants. The rest
// is added up under OtherTenants.
const maxGone = 1000

// OtherTenants stands for those of whom no sum of their own is kept.
const OtherTenants = "(others)"

// keepGone adds up what a share did that goes.
func (c *Core) keepGone(s *share) {
	for _, t := range s.slots {
		key := s.GoneKey(t.card.UUID, s.owner)
		if _, known := c.gone[key]; !known && len(c.gone) >= maxGone {
			key.Tenant, key.Owner = OtherTenants, 0
		}
		var v SlotView
		v.count(t)
		correction := t.before.and(t.since)
		g := c.gone[key]
		g.CardTimeNs += t.cardTimeOf(v)
		g.WaitNs += v.WaitNs
		g.Launches += v.Launches
		g.Overruns += correction.Overruns
		if g.DenialsBy == nil {
			g.DenialsBy = map[Reason]uint64{}
		}
		for reason, n := range t.denials {
			g.DenialsBy[reason] += n
		}
		c.gone[key] = g
	}
}

// cardTimeOf is what a slot used of its card in all, as far as is known here.
func (t *slot) cardTimeOf(v SlotView) uint64 {
	correction := t.before.and(t.since)
	return max(correction.SaidNs, uint64(max(int64(min(v.CardTimeNs, mostOfShare))-correction.OvercountNs, 0)))
}

// GoneKey is the sum to which a share's figures on a card go with it.
func (s Spec) GoneKey(cardUUID string, owner int) GoneKey {
	key := GoneKey{CardUUID: cardUUID, Tenant: s.Tenant, Unnamed: s.Unnamed && s.Ephemeral}
	if key.Tenant == "" {
		key.Owner = owner
	}
	return key
}

// Gone is what shares did that are gone since this agent began.
func (c *Core) Gone() map[GoneKey]Gone {
	all := make(map[GoneKey]Gone, len(c.gone))
	for key, g := range c.gone {
		g.DenialsBy = maps.Clone(g.DenialsBy)
		all[key] = g
	}
	return all
}

// ShareNames lists the shares in order of creation.
func (c *Core) ShareNames() []string {
	names := make([]string, len(c.shares))
	for i, s := range c.shares {
		names[i] = s.Name
	}
	return names
}
