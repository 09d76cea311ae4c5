// SPDX-License-Identifier: Apache-2.0

// Package urgency lets the process that it runs in go before others for as long as
// somebody waits for it: a turn on a card lasts milliseconds, and on a busy host a
// thread that has woken may wait for longer than that. It takes the best that the
// kernel lets it have, less while the process uses more of a processor than it was meant
// to, and nothing once it has used twice as much for a second, so that nobody can keep others
// from running by way of it.
package urgency

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	lookEvery = 100 * time.Millisecond
	restAfter = time.Second     // without work
	penalty   = 2 * time.Second // after too much of it
	// favouredFor is over how long the part of a favoured process counts. Others run beside it: where
	// it has much to do at once it may go on, or they would be done first with what it is asked for.
	favouredFor = time.Second
)

// level is how urgent a process is.
type level int

const (
	ordinary level = iota
	favoured       // it has more of the processors than others that want them, which run on
	urgent         // others wait
)

// Guard is the urgency of this process; a nil one leaves it as it is.
type Guard struct {
	most  time.Duration // processor time in a second
	apply func(level)

	mutex   sync.Mutex
	looked  moment                // the last time
	began   moment                // of the time for which a favoured process's part counts
	barred  [urgent + 1]time.Time // until when it may not be so urgent, for it had used too much
	is      level
	resting *time.Timer // ends in Rest
}

// moment is how much processor time was used until when.
type moment struct {
	at   time.Time
	used time.Duration
}

// part is how much of a processor was used since.
func (m moment) part(since moment) float64 {
	return float64(m.used-since.used) / float64(m.at.Sub(since.at))
}

// New returns the guard of a process that may use so many percent of one processor,
// 1 to 100, while others wait for it, and twice as many while it has more than others. It is an
// ordinary one until Keep is called.
func New(percent int) *Guard {
	return &Guard{most: time.Second * time.Duration(percent) / 100, apply: newLadder().set}
}

// Keep says that somebody waits for the process now: for a second from now it goes
// before others. It costs little; call it with each piece of work.
func (g *Guard) Keep(now time.Time) {
	if g == nil {
		return
	}
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if now.Sub(g.looked.at) < lookEvery {
		return
	}
	g.look(moment{now, processorTime()})
	if g.resting == nil {
		g.resting = time.AfterFunc(restAfter, g.Rest)
	} else {
		g.resting.Reset(restAfter)
	}
}

// look decides how urgent the process is until it is asked again.
func (g *Guard) look(now moment) {
	if g.is > ordinary && now.part(g.looked) > g.most.Seconds() {
		g.barred[urgent] = now.at.Add(penalty)
	}
	if passed := now.at.Sub(g.began.at); g.is == ordinary || passed >= favouredFor {
		if g.is > ordinary && now.part(g.began) > 2*g.most.Seconds() {
			g.barred[favoured] = now.at.Add(penalty)
		}
		g.began = now
	}
	g.looked = now
	was := g.is
	for g.is = urgent; now.at.Before(g.barred[g.is]); g.is-- {
	}
	if g.is > ordinary || was > ordinary {
		g.apply(g.is) // again: threads that are new begin as ordinary ones
	}
}

// Rest makes the process an ordinary one until the next Keep.
func (g *Guard) Rest() {
	if g == nil {
		return
	}
	g.mutex.Lock()
	defer g.mutex.Unlock()
	g.looked = moment{}
	if g.is > ordinary {
		g.is = ordinary
		g.apply(ordinary)
	}
}

// processorTime is what this process has used of all processors.
func processorTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
