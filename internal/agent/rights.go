// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/core"
	"github.com/divvy-gpu/divvy/internal/share"
)

// PriorityLimits is the highest priority that users may give their shares. Root and
// the agent's own user may give any. The zero value lets others give none.
type PriorityLimits struct {
	Users  map[int]int // by uid
	Others int
}

func (l PriorityLimits) of(uid int) int {
	if most, ok := l.Users[uid]; ok {
		return most
	}
	return l.Others
}

func (l PriorityLimits) validate() error {
	if err := share.Priority.Check(l.Others); err != nil {
		return fmt.Errorf("priority limit of all users: %w", err)
	}
	for uid, most := range l.Users {
		if err := share.Priority.Check(most); err != nil {
			return fmt.Errorf("priority limit of uid %d: %w", uid, err)
		}
	}
	return nil
}

// CommandLines says who is shown the command lines of others.
type CommandLines string

const (
	ShowNames CommandLines = "names" // one's own and, for root, all; of others' processes the name
	ShowAll   CommandLines = "all"   // everybody sees all
)

// trusted says whether who asks may do all that the agent can.
func (h handlers) trusted(peer asker) bool { return core.Trusted(peer.UID, h.uid) || peer.operator }

// rights is the user whose rights who asks has on shares.
func (h handlers) rights(peer asker) int {
	if peer.operator {
		return h.uid
	}
	return peer.UID
}

// mayHavePriority says whether a user may give a share this priority. What is out of
// range is for the ledger to refuse.
func (h handlers) mayHavePriority(peer asker, priority int) error {
	most := h.cfg.PriorityLimits.of(peer.UID)
	if h.trusted(peer) || priority <= most || share.Priority.Check(priority) != nil {
		return nil
	}
	e := &api.Error{Code: api.CodeNotAllowed, Message: fmt.Sprintf("priority %d: uid %d may have %d at most on this machine", priority, peer.UID, most)}
	e.Hint = fmt.Sprintf("an administrator allows more: divvy agent --priority-limit %d=%d", peer.UID, priority)
	return e
}

// commandFor is what a user is shown of the command line of a process.
func (h handlers) commandFor(peer asker, c core.ClientView) string {
	if h.trusted(peer) || peer.UID == c.UID {
		return c.Command
	}
	return c.Name
}
