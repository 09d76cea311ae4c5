// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"maps"
	"time"

	"github.com/divvy-gpu/divvy/internal/core"
)

const (
	paceBurst = 1000                 // connections of a user that are served as they come, after a pause
	paceEvery = 4 * time.Millisecond // from one to the next of a user from then on
	paceUsers = 1024                 // of whom is kept what they have done lately, before who is quiet is forgotten
)

// pace is how often users may connect: root and the agent's own as often as they like, others
// evenly after a while. Who connects without end would else have all of the agent's time, and the
// agent has so much of it only before it is scheduled after its clients.
type pace struct {
	own int               // uid of the agent
	due map[int]time.Time // when a user would be done with what he did, evenly
}

func newPace(own int) *pace { return &pace{own, map[int]time.Time{}} }

// wait is how long a user has to wait for his next connection; 0: he has it.
func (p *pace) wait(user int, now time.Time) time.Duration {
	if core.Trusted(user, p.own) {
		return 0
	}
	due := p.due[user]
	if due.Before(now) {
		due = now
	}
	if wait := due.Sub(now) - (paceBurst-1)*paceEvery; wait > 0 {
		return wait
	}
	if len(p.due) >= paceUsers {
		maps.DeleteFunc(p.due, func(_ int, due time.Time) bool { return !due.After(now) })
	}
	p.due[user] = due.Add(paceEvery)
	return 0
}
