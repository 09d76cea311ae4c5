// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"os"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/internal/core"
	"github.com/divvy-gpu/divvy/internal/event"
	"github.com/divvy-gpu/divvy/internal/socket"
)

const (
	// The driver is asked at once when a process ends, then as often as a release is
	// to be seen soon after: of one that comes soon, a few microseconds matter.
	releaseFast     = 20 * time.Millisecond // for so long the pauses are these:
	releaseFastPart = 8                     // one part in so many of the time since then,
	releaseFirst    = 50 * time.Microsecond // at least this,
	releaseMost     = 500 * time.Microsecond
	releaseLast     = 250 * time.Millisecond
	releaseGiveUp   = 10 * time.Second // on one that lives on: the next comparison finds it
	holdersAfter    = 100 * time.Millisecond
	// At most half of the fast time is spent asking, and after it one part in so many,
	// unless the driver is this slow.
	releaseAskPart = 4
	releaseAskMax  = 10 * time.Millisecond
	clientMemfd    = "memfd:divvy-client"

	// A dead process's socket is at its end when all was read, unless a child of
	// it holds the socket too.
	lastWords = 20 * time.Millisecond

	releasePatience = 5 * time.Second // with a driver that hangs
)

// reminder says when the driver is to be asked about a card. The loop sets it, and
// watchReleases follows it.
type reminder struct {
	card  string
	timer *leaseTimer   // goes off when the driver is to be asked
	ask   chan struct{} // holds one when it is to be asked now
}

// releaseWatch has the driver asked about one card for as long as somebody has
// ended whose memory it still holds.
type releaseWatch struct {
	reminder
	asking bool // the driver is to be asked now, or by the timer, or is being asked
	failed bool // it did not answer last time
}

func (l *loop) openReleases() error {
	for _, c := range l.cards {
		timer, err := newLeaseTimer()
		if err != nil {
			return err
		}
		l.releases[c.UUID] = &releaseWatch{reminder: reminder{card: c.UUID, timer: timer, ask: make(chan struct{}, 1)}}
	}
	return nil
}

// watchEnded has the driver asked about whoever has just ended.
func (l *loop) watchEnded() {
	for _, w := range l.releases {
		e, any := l.core.LastEnded(w.card, l.now.Add(-releaseGiveUp))
		if !any || w.asking && !e.Since.Equal(l.now) {
			continue
		}
		l.askAgain(w, 0)
	}
}

// askAgain has the driver asked after a pause.
func (l *loop) askAgain(w *releaseWatch, pause time.Duration) {
	w.asking = true
	if pause == 0 {
		w.askNow()
	} else if err := w.timer.set(monotonic() + pause); err != nil {
		l.cfg.Logger.Error("set the timer of releases", "card", w.card, "error", err)
	}
}

func (r reminder) askNow() {
	select {
	case r.ask <- struct{}{}:
	default: // it will be
	}
}

// rest takes back what the driver was still to be asked.
func (r reminder) rest() {
	_ = r.timer.set(0) // closed: the agent ends
	select {
	case <-r.ask:
	default:
	}
}

// awaitTimer has the driver asked whenever the timer goes off, until it is
// closed.
func (r reminder) awaitTimer() {
	for r.timer.wait() {
		r.askNow()
	}
}

// watchReleases asks the driver whenever it is to be asked.
func (d *driverWatch) watchReleases(ctx context.Context, r reminder) {
	for {
		select {
		case <-r.ask:
		case <-ctx.Done():
			return
		}
		account, took, err := d.driver.processes(ctx, r.card, releasePatience)
		for more := true; more; {
			if d.do(ctx, func(l *loop) {
				if more = err == nil && l.core.ReleaseEnded(l.now, r.card, account); !more {
					l.driverAnswered(l.releases[r.card], account.At, took, err)
				}
			}) != nil {
				return
			}
		}
	}
}

// driverAnswered notes that the driver has answered, or why it has not.
func (l *loop) driverAnswered(w *releaseWatch, at time.Time, took time.Duration, failed error) {
	if failed != nil && !w.failed {
		l.log(core.Event{Time: l.now, Kind: event.DriverAway, Card: w.card,
			Message: "the driver does not say who holds memory; what ended programs used stays booked: " + failed.Error()})
	}
	w.failed, w.asking = failed != nil, false
	l.awaitRelease(w, at, took)
}

// awaitRelease has the driver asked again while it holds memory of the ended, and
// looks for who keeps it. It was asked last at that time, and took so long.
func (l *loop) awaitRelease(w *releaseWatch, asked time.Time, took time.Duration) {
	newest := time.Duration(-1)
	if e, any := l.core.LastEnded(w.card, l.now.Add(-releaseGiveUp)); any {
		newest = l.now.Sub(e.Since)
	}
	for _, id := range l.core.Lingering(w.card, l.now.Add(-holdersAfter)) {
		l.findHolders(id)
	}
	switch {
	case newest < 0:
		w.rest()
	case l.now.Sub(asked) > newest && !w.failed:
		l.askAgain(w, 0) // somebody has ended since
	default:
		l.askAgain(w, releasePause(newest, took))
	}
}

// releasePause is how long the driver is left alone that holds memory of one who
// ended so long ago, and took so long to say so.
func releasePause(age, took time.Duration) time.Duration {
	if age < releaseFast {
		return max(releaseFirst, min(age/releaseFastPart, releaseMost), min(took, releaseAskMax))
	}
	// A release is then seen late by at most a twentieth of the time it took.
	return max(min(age/20, releaseLast), time.Millisecond, min((releaseAskPart-1)*took, releaseAskMax))
}

// findHolders looks once for the processes that keep a dead client's memory:
// children that inherited its driver also inherited its page.
func (l *loop) findHolders(id core.ClientID) {
	m := l.members[id]
	if m == nil || m.scanned {
		return
	}
	m.scanned = true
	inode := m.inode
	l.begin(func(ctx context.Context, d *daemon) {
		var pids []int
		if inode != 0 {
			pids, _ = d.table.Mapping(inode, clientMemfd)
		}
		holders := slices.DeleteFunc(pids, func(pid int) bool { return pid == os.Getpid() })
		_ = d.do(ctx, func(l *loop) { l.core.Held(l.now, id, holders) })
	})
}

// awaitDeath tells the core when a client's process has ended, a user's, and calls then after that;
// not where the client is off the ledger first, or the agent ends.
func (d *daemon) awaitDeath(ctx context.Context, user int, id core.ClientID, p *socket.Process, then func()) error {
	return p.Await(d.poller, func() {
		d.died(ctx, user, id, p)
		then()
	})
}

// died tells the core that a client's process has ended.
func (d *door) died(ctx context.Context, user int, id core.ClientID, p *socket.Process) {
	d.hearLastWords(ctx, user, id, p)
	_ = d.doFor(ctx, user, func(l *loop) {
		if m := l.members[id]; m != nil && m.process == p {
			if m.conn != nil {
				// A child may hold it open.
				m.conn.hangUp()
				m.conn = nil
			}
			m.dropWaiter()
			l.core.Died(l.now, id)
			l.clientEnded(m)
		}
	})
}

// hearLastWords lets the connection of a process that has died read what the
// process had sent before: its events would be lost otherwise.
func (d *door) hearLastWords(ctx context.Context, user int, id core.ClientID, p *socket.Process) {
	var last *connection
	_ = d.doFor(ctx, user, func(l *loop) {
		if m := l.members[id]; m != nil && m.process == p {
			last = m.conn
		}
	})
	if last == nil {
		return
	}
	patience := time.NewTimer(lastWords) // it may be waiting for room
	defer patience.Stop()
	select {
	case <-last.ended:
	case <-patience.C:
	case <-ctx.Done():
	}
}

// reconcile compares the ledger of every card with the driver, and looks how they are.
func (d *driverWatch) reconcile(ctx context.Context) {
	d.compareAll(ctx)
	d.examine(ctx)
}

// compareAll compares the ledger of every card with the driver.
func (d *driverWatch) compareAll(ctx context.Context) {
	d.eachCard(func(card string) {
		account, err := d.driver.account(ctx, card, answerFor)
		if err != nil {
			d.cfg.Logger.Debug("reconcile", "card", card, "error", err)
			return
		}
		d.compare(ctx, card, account)
	})
}
