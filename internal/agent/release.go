// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"os"
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
	// One that is being ended has its socket closed before its driver's files: asked at
	// once, the driver would still hold everything, and be busy when it lets go.
	releaseDetached = 100 * time.Microsecond
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

// releaseWatch asks the driver about one card for as long as somebody has
// ended whose memory it still holds. All but the timer's descriptor belongs to
// the loop.
type releaseWatch struct {
	card   string
	timer  *leaseTimer   // goes off when the driver is to be asked
	ask    chan struct{} // holds one when it is to be asked now
	asking bool          // it is, or will be by the timer, or is being asked
	failed bool          // it did not answer last time
}

func (d *daemon) openReleases() error {
	for _, c := range d.cards {
		timer, err := newLeaseTimer()
		if err != nil {
			return err
		}
		d.releases = append(d.releases, &releaseWatch{card: c.UUID, timer: timer, ask: make(chan struct{}, 1)})
	}
	return nil
}

// watchEnded has the driver asked about whoever has just ended.
func (d *daemon) watchEnded(now time.Time) {
	for _, e := range d.core.EndedClients() {
		for _, w := range d.releases {
			if w.card != e.Card || givenUp(now, e) || w.asking && !e.Since.Equal(now) {
				continue
			}
			pause := time.Duration(0)
			if e.State == core.Detached && !w.asking {
				pause = releaseDetached
			}
			d.askAgain(w, pause)
		}
	}
}

func givenUp(now time.Time, e core.EndedClient) bool {
	return e.State == core.Detached && now.Sub(e.Since) > releaseGiveUp
}

// askAgain has the driver asked after a pause.
func (d *daemon) askAgain(w *releaseWatch, pause time.Duration) {
	w.asking = true
	if pause == 0 {
		w.askNow()
	} else if err := w.timer.set(monotonic() + pause); err != nil {
		d.cfg.Logger.Error("set the timer of releases", "card", w.card, "error", err)
	}
}

func (w *releaseWatch) askNow() {
	select {
	case w.ask <- struct{}{}:
	default: // it will be
	}
}

// rest takes back what the driver was still to be asked.
func (w *releaseWatch) rest() {
	_ = w.timer.set(0) // closed: the agent ends
	select {
	case <-w.ask:
	default:
	}
}

// awaitReleaseTimer has the driver asked whenever the timer goes off, until it is
// closed.
func (w *releaseWatch) awaitReleaseTimer() {
	for w.timer.wait() {
		w.askNow()
	}
}

// watchReleases asks the driver whenever it is to be asked.
func (d *daemon) watchReleases(w *releaseWatch) {
	for {
		select {
		case <-w.ask:
		case <-d.quit:
			return
		}
		account, took, err := d.driver.processes(d.quit, w.card, releasePatience)
		if d.do(d.quit, func(now time.Time) {
			if err == nil {
				d.core.ReleaseEnded(now, w.card, account)
			} else if !w.failed {
				d.log(core.Event{Time: now, Kind: event.DriverAway, Card: w.card,
					Message: "the driver does not say who holds memory; what ended programs used stays booked: " + err.Error()})
			}
			w.failed = err != nil
			w.asking = false
			d.awaitRelease(now, w, account.At, took)
		}) != nil {
			return
		}
	}
}

// awaitRelease has the driver asked again while it holds memory of the ended, and
// looks for who keeps it. It was asked last at that time, and took so long.
func (d *daemon) awaitRelease(now time.Time, w *releaseWatch, asked time.Time, took time.Duration) {
	newest := time.Duration(-1)
	for _, e := range d.core.EndedClients() {
		age := now.Sub(e.Since)
		if e.Card != w.card || givenUp(now, e) {
			continue
		}
		if newest < 0 || age < newest {
			newest = age
		}
		if e.State == core.Dead && age > holdersAfter {
			d.findHolders(e.ID)
		}
	}
	switch {
	case newest < 0:
		w.rest()
	case now.Sub(asked) > newest && !w.failed:
		d.askAgain(w, 0) // somebody has ended since
	default:
		d.askAgain(w, releasePause(newest, took))
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
func (d *daemon) findHolders(id core.ClientID) {
	m := d.members[id]
	if m == nil || m.scanned {
		return
	}
	m.scanned = true
	inode := m.inode
	d.task(func() {
		var pids []int
		if inode != 0 {
			pids, _ = d.table.Mapping(inode, clientMemfd)
		}
		holders := pids[:0]
		for _, pid := range pids {
			if pid != os.Getpid() {
				holders = append(holders, pid)
			}
		}
		_ = d.do(d.quit, func(now time.Time) { d.core.Held(now, id, holders) })
	})
}

// awaitDeath tells the core when a client's process has ended.
func (d *daemon) awaitDeath(id core.ClientID, p *socket.Process) {
	if p.Wait() != nil {
		return // closed: the client is off the ledger, or the agent ends
	}
	d.hearLastWords(id, p)
	_ = d.do(d.quit, func(now time.Time) {
		if m := d.members[id]; m != nil && m.process == p {
			if m.conn != nil {
				// A child may hold it open.
				_ = m.conn.conn.Close()
				m.conn = nil
			}
			d.dropWaiter(m)
			d.core.Died(now, id)
			d.clientEnded(m)
		}
	})
}

// hearLastWords lets the connection of a process that has died read what the
// process had sent before: its events would be lost otherwise.
func (d *daemon) hearLastWords(id core.ClientID, p *socket.Process) {
	var last *connection
	_ = d.do(d.quit, func(time.Time) {
		if m := d.members[id]; m != nil && m.process == p {
			last = m.conn
		}
	})
	if last == nil || last.conn.SetReadDeadline(time.Now().Add(lastWords)) != nil {
		return
	}
	patience := time.NewTimer(lastWords) // it may be waiting for room
	defer patience.Stop()
	select {
	case <-last.ended:
	case <-patience.C:
	case <-d.quit:
	}
}

func (d *daemon) dropWaiter(m *member) {
	if m.waiter != nil {
		close(m.waiter)
		m.waiter = nil
	}
}

// reconcile compares the ledger of every card with the driver.
func (d *daemon) reconcile(quit <-chan struct{}) {
	for _, c := range d.cards {
		account, err := d.driver.account(quit, c.UUID, releasePatience)
		if err != nil {
			d.cfg.Logger.Debug("reconcile", "card", c.UUID, "error", err)
			continue
		}
		if d.do(quit, func(now time.Time) {
			if d.core.Reconcile(now, c.UUID, account); d.core.Unsure() {
				d.wantReconcile(now)
			}
		}) != nil {
			return
		}
	}
	d.examine(quit)
}
