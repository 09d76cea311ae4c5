// SPDX-License-Identifier: Apache-2.0

package agent

import "sync"

const maxUserPart = 2 // one user but root and the agent's own gets at most one part in so many places

// places are a bounded number of places, and of each user a part of it.
type places struct {
	all chan struct{}
	own int // uid of the agent

	mutex sync.Mutex // guards users
	users map[int]int
}

func newPlaces(number, own int) *places {
	return &places{all: make(chan struct{}, number), own: own, users: map[int]int{}}
}

// enter takes a place for a user, if there is one.
func (p *places) enter(uid int) bool {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if uid != 0 && uid != p.own && p.users[uid] >= max(cap(p.all)/maxUserPart, 1) || !enter(p.all) {
		return false
	}
	p.users[uid]++
	return true
}

func (p *places) leave(uid int) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	leave(p.all)
	if p.users[uid]--; p.users[uid] == 0 {
		delete(p.users, uid)
	}
}
