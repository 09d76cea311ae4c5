// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"sync"

	"github.com/divvy-gpu/divvy/internal/core"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/socket"
)

// places are a bounded number of places, and of each user a part of it.
type places struct {
	all chan struct{}
	own int // uid of the agent

	mutex sync.Mutex // guards the rest
	users map[int]int
	sum   int // of users but root and the agent's
}

func newPlaces(number, own int) *places {
	return &places{all: make(chan struct{}, number), own: own, users: map[int]int{}}
}

// enter takes a place for a user, if there is one.
func (p *places) enter(uid int) bool {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if !p.trusted(uid) && !core.MayEnter(cap(p.all), p.users[uid], p.sum) || !enter(p.all) {
		return false
	}
	p.users[uid]++
	if !p.trusted(uid) {
		p.sum++
	}
	return true
}

func (p *places) leave(uid int) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	leave(p.all)
	if p.users[uid]--; p.users[uid] == 0 {
		delete(p.users, uid)
	}
	if !p.trusted(uid) {
		p.sum--
	}
}

func (p *places) trusted(uid int) bool { return core.Trusted(uid, p.own) }

// payer is whose places a peer takes: who made the user namespace that it lives in, for
// one user may have many ids there; else itself.
func payer(table process.Table, peer socket.Peer) int {
	if peer.UID == 0 {
		return 0
	}
	if owner, ok := table.NamespaceOwner(peer.PID); ok && owner != 0 {
		return owner
	}
	return peer.UID
}
