// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/core"
	"github.com/divvy-gpu/divvy/internal/socket"
)

// limiter bounds how many connections there are at once, and how many of them are one user's.
type limiter struct {
	all chan struct{}
	own int // uid of the agent

	mutex sync.Mutex // guards the rest
	users map[int]int
	sum   int // of users but root and the agent's
}

func newLimiter(number, own int) *limiter {
	return &limiter{all: make(chan struct{}, number), own: own, users: map[int]int{}}
}

// enter lets one more connection of a user in, if the bounds do.
func (l *limiter) enter(uid int) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if !l.trusted(uid) && !core.MayEnter(cap(l.all), l.users[uid], l.sum) || !enter(l.all) {
		return false
	}
	l.users[uid]++
	if !l.trusted(uid) {
		l.sum++
	}
	return true
}

func (l *limiter) leave(uid int) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	leave(l.all)
	if l.users[uid]--; l.users[uid] == 0 {
		delete(l.users, uid)
	}
	if !l.trusted(uid) {
		l.sum--
	}
}

func (l *limiter) trusted(uid int) bool { return core.Trusted(uid, l.own) }

// unknown says that nobody can tell any more whose a connection is: who connected has ended, and left it to
// another, perhaps, in a user namespace. The process is looked for after its payer was.
func (l *limiter) unknown(peer socket.Peer) bool {
	return peer.PID > 0 && !l.trusted(peer.UID) && errors.Is(unix.Kill(peer.PID, 0), unix.ESRCH)
}

// namespaces tells which user namespace a process is in that is not in the agent's, and who made it.
type namespaces interface {
	UserNamespace(pid int) (number uint64, owner int, ok bool)
}

// persons tells who has a user id.
type persons interface {
	person(uid int) int
}

// payer is whose part of the connections a peer takes: who made the user namespace that it lives in, for
// one user may have many ids there; of one that root made, all who live in it together; else who has its id.
func payer(table namespaces, persons persons, own int, peer socket.Peer) int {
	if core.Trusted(peer.UID, own) {
		return peer.UID
	}
	switch number, owner, ok := table.UserNamespace(peer.PID); {
	case !ok:
		return persons.person(peer.UID)
	case owner == 0:
		return core.OfNamespace(number)
	default:
		return persons.person(owner)
	}
}
