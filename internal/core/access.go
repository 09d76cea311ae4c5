// SPDX-License-Identifier: Apache-2.0

package core

import "fmt"

// open says whether every user's processes may attach to a share: it was asked
// for, or an administrator declared the share and named nobody.
func (c *Core) open(s *share) bool {
	declared := !s.Ephemeral && c.trusted(s.owner)
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

// Parts of a table that users but root get: one of them at most half; of the last entries
// that they may have, only who has few, and the fewer the less is left; the rest is root's.
const (
	maxUserPart = 2
	rootPart    = 8
	lastPart    = 8
)

// MayEnter says whether a user but root, who has so many of all entries of a table, may
// have one more when all users but root have so many.
func MayEnter(all, has, users int) bool {
	left := all - all/rootPart - users
	return has < max(all/maxUserPart, 1) && left > 0 && (left > all/lastPart || has < max(left*left/all, 1))
}

// OfNamespace is the user that all who live in a user namespace of root's are together.
func OfNamespace(number uint64) int { return -int(number) }

// userName is what a user is called.
func userName(user int) string {
	if user < 0 {
		return fmt.Sprintf("user namespace %d", -user)
	}
	return fmt.Sprintf("uid %d", user)
}

// part counts what users have of a table.
type part struct {
	all, ofUsers int
	by           map[int]int
}

func (p *part) add(c *Core, user, n int) {
	if p.by == nil {
		p.by = map[int]int{}
	}
	p.all += n
	if !c.trusted(user) {
		p.ofUsers += n
	}
	if p.by[user] += n; p.by[user] == 0 {
		delete(p.by, user)
	}
}

func (p *part) mayEnter(c *Core, user, most int) bool {
	return p.all < most && (c.trusted(user) || MayEnter(most, p.by[user], p.ofUsers))
}

// Trusted says whether a user may do all that the agent can: root, and the agent's own.
func Trusted(uid, agent int) bool { return uid == 0 || uid == agent }

func (c *Core) trusted(uid int) bool { return Trusted(uid, c.config.AgentUID) }

// checkPart keeps one user from taking the room of all others.
func (c *Core) checkPart(user int) *Failure {
	if c.trusted(user) {
		return nil
	}
	has, users := 0, 0
	for _, s := range c.shares {
		if s.user() == user {
			has++
		}
		if !c.trusted(s.user()) {
			users++
		}
	}
	if MayEnter(c.config.MaxShares, has, users) {
		return nil
	}
	return refuse(NotAllowed, "%s has %d shares already", userName(user), has).hint("divvy share list")
}

// maxProcessClients is how often one process of a user but root may be a client: once, as a
// rule, and again for what it was before it became another program.
const maxProcessClients = 16

// checkConnections keeps one user, and one process, from taking the room of all others.
func (c *Core) checkConnections(s *share, process Process) string {
	user := process.user()
	own, has := len(c.byPID[process.PID]), c.attached.by[user]
	switch {
	case len(c.clients) >= c.config.MaxClients || len(s.clients.all) >= c.config.MaxShareClients:
		return fmt.Sprintf("%d in the share, %d in all", len(s.clients.all), len(c.clients))
	case c.trusted(user):
	case own >= maxProcessClients:
		return fmt.Sprintf("%d of this process", own)
	case !MayEnter(c.config.MaxClients, has, c.attached.ofUsers):
		return fmt.Sprintf("%d of %s, %d in all", has, userName(user), len(c.clients))
	}
	return ""
}
