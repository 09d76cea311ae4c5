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

// namespaces tells who made the user namespace of a process that is not in the agent's.
type namespaces interface {
	NamespaceOwner(pid int) (uid int, ok bool)
}

// payer is whose part of the connections a peer takes: who made the user namespace that it lives in, for
// one user may have many ids there; else itself.
func payer(table namespaces, peer socket.Peer) int {
	if peer.UID == 0 {
		return 0
	}
	if owner, ok := table.NamespaceOwner(peer.PID); ok && owner != 0 {
		return owner
	}
	return peer.UID
}
