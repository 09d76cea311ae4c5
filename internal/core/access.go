// SPDX-License-Identifier: Apache-2.0

package core

import "fmt"

// open says whether every user's processes may attach to a share: it was asked
// for, or an administrator declared the share and named nobody.
func (c *Core) open(s *share) bool {
	declared := !s.Ephemeral && (s.owner == 0 || s.owner == c.config.AgentUID)
	return s.Open || declared && s.JoinUID == nil
}

// mayJoin says whether the processes of uid may attach to a share.
func (c *Core) mayJoin(s *share, uid int) error {
	if c.open(s) || c.mayChange(s, uid) == nil || s.JoinUID != nil && *s.JoinUID == uid {
		return nil
	}
	return fmt.Errorf("%w: it belongs to uid %d, this is uid %d", ErrNotYours, s.owner, uid)
}

// MayJoin is mayJoin by the share's name.
func (c *Core) MayJoin(name string, uid int) error {
	s, failure := c.share(name)
	if failure != nil {
		return failure
	}
	return c.mayJoin(s, uid)
}

func checkAccess(spec *Spec) *Failure {
	switch {
	case spec.JoinUID == nil:
		return nil
	case spec.Open:
		return refuse(Usage, "a share is open to everybody, or for one user, not both")
	case *spec.JoinUID < 0:
		return refuse(Usage, "there is no user %d", *spec.JoinUID)
	}
	return nil
}

// maxUserPart: one user but root gets at most one part in so many of the shares.
const maxUserPart = 2

// checkPart keeps one user from taking the places of all others.
func (c *Core) checkPart(owner int) *Failure {
	if owner == 0 || owner == c.config.AgentUID {
		return nil
	}
	has := 0
	for _, s := range c.shares {
		if s.owner == owner {
			has++
		}
	}
	if has < max(c.config.MaxShares/maxUserPart, 1) {
		return nil
	}
	return refuse(NotAllowed, "uid %d has %d shares already", owner, has).hint("divvy share list")
}
