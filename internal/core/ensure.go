// SPDX-License-Identifier: Apache-2.0

package core

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// EnsureShare makes a share for owner unless it is there already as asked for: then it
// returns that one and false. One of that name that is not as asked for is refused with
// kind Exists, and Differs says in what.
func (c *Core) EnsureShare(now time.Time, spec Spec, owner int) (view ShareView, made bool, err error) {
	s := c.byName[spec.Name]
	if s == nil {
		view, err = c.CreateShare(now, spec, owner)
		return view, err == nil, err
	}
	if failure := complete(&spec); failure != nil {
		return ShareView{}, false, failure
	}
	if s.revoked {
		return ShareView{}, false, refuse(Exists, "share %q is deleted and only waits for its programs to end", s.Name).
			hint("ask again, or under another name")
	}
	if differs := c.differs(s, &spec, owner); len(differs) > 0 {
		failure := refuse(Exists, "share %q exists already with another %s", s.Name, strings.Join(differs, ", "))
		failure.Differs = differs
		return ShareView{}, false, failure.hint("divvy share list --json shows it; divvy share delete %s", s.Name)
	}
	return c.viewShare(s), false, nil
}

// differs lists in what a share is not as asked for, in the words of the interface.
func (c *Core) differs(s *share, spec *Spec, owner int) (fields []string) {
	for _, f := range []struct {
		name string
		same bool
	}{
		{"gpu", c.sameCards(s, spec)},
		{"gpus", max(spec.GPUs, 1) == max(s.GPUs, 1) || spec.GPU != ""},
		{"among", within(s, spec.Among)},
		{"memoryBytes", spec.MemoryBytes == s.MemoryBytes},
		{"coresPercent", spec.CoresPercent == s.CoresPercent},
		{"policy", spec.Policy == s.Policy},
		{"weight", spec.Weight == s.Weight},
		{"priority", spec.Priority == s.Priority},
		{"tenant", spec.Tenant == s.Tenant},
		{"enforce", spec.Enforce == s.Enforce},
		{"threadsPercent", spec.ThreadsPercent == s.ThreadsPercent},
		{"exclusive", spec.Exclusive == s.Exclusive},
		{"ephemeral", spec.Ephemeral == s.Ephemeral},
		{"open", spec.Open == s.Open},
		{"joinUid", sameUser(spec.JoinUID, s.JoinUID)},
		{"labels", maps.Equal(spec.Labels, s.Labels)},
		{"ownerUid", owner == s.owner},
	} {
		if !f.same {
			fields = append(fields, f.name)
		}
	}
	return fields
}

// sameCards says whether a spec names the cards of a share, or both left the choice open.
func (c *Core) sameCards(s *share, spec *Spec) bool {
	if spec.GPU == s.GPU {
		return true
	}
	var cards []*card
	for selector := range strings.SplitSeq(spec.GPU, ",") {
		k, failure := c.find(strings.TrimSpace(selector))
		if failure != nil {
			return false
		}
		cards = append(cards, k)
	}
	return slices.EqualFunc(cards, s.slots, func(k *card, t *slot) bool { return k == t.card })
}

func within(s *share, among []string) bool {
	return len(among) == 0 || !slices.ContainsFunc(s.slots, func(t *slot) bool { return !slices.Contains(among, t.card.UUID) })
}

func sameUser(a, b *int) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}
