// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"slices"
	"sync"
	"time"
)

// fairQueue is a queue that gives out what users wait for: of each user in the order in which
// it came, of the users in turn. So a user waits for one thing of each other, however
// many there are.
type fairQueue[T any] struct {
	some chan struct{} // has one while something waits, unless takeOf had nothing

	mutex sync.Mutex // guards the rest
	of    map[int][]T
	turns []int // the users that wait, who is next first
}

func newFairQueue[T any]() *fairQueue[T] {
	return &fairQueue[T]{some: make(chan struct{}, 1), of: map[int][]T{}}
}

func (f *fairQueue[T]) put(user int, what T) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if len(f.of[user]) == 0 {
		f.turns = append(f.turns, user)
	}
	f.of[user] = append(f.of[user], what)
	f.wakeLocked()
}

// take takes what is next, once some had one.
func (f *fairQueue[T]) take() (what T, ok bool) {
	what, _, ok = f.takeOf(func(int) time.Duration { return 0 })
	return what, ok
}

// takeOf is take where users may have to wait. ok false and a wait: all of them, for as long.
func (f *fairQueue[T]) takeOf(wait func(user int) time.Duration) (what T, least time.Duration, ok bool) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	for n, user := range f.turns {
		if late := wait(user); late > 0 {
			if least == 0 || late < least {
				least = late
			}
			continue
		}
		f.turns = slices.Delete(f.turns, n, n+1)
		waiting := f.of[user]
		what, waiting[0] = waiting[0], what
		if len(waiting) == 1 {
			delete(f.of, user)
		} else {
			f.of[user] = waiting[1:]
			f.turns = append(f.turns, user)
		}
		if len(f.turns) > 0 {
			f.wakeLocked()
		}
		return what, 0, true
	}
	return what, least, false
}

func (f *fairQueue[T]) wakeLocked() {
	select {
	case f.some <- struct{}{}:
	default:
	}
}
