// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"os"
	"time"

	"github.com/divvy-gpu/divvy/internal/core"
	"github.com/divvy-gpu/divvy/internal/socket"
)

const (
	releaseFast    = 20 * time.Millisecond // asked as fast as timers allow for so long
	releaseFirst   = 500 * time.Microsecond
	releaseLast    = 250 * time.Millisecond
	releaseGiveUp  = 10 * time.Second // on one that lives on: the next comparison finds it
	holdersAfter   = 100 * time.Millisecond
	releaseAskPart = 4                     // at most one part in so many is spent asking, after the fast time,
	releaseAskMax  = 10 * time.Millisecond // unless the driver is this slow
	clientMemfd    = "memfd:divvy-client"

	// A dead process's socket is at its end when all was read, unless a child of
	// it holds the socket too.
	lastWords = 20 * time.Millisecond

	releasePatience = 5 * time.Second // with a driver that hangs
)

// releaseWatch asks the driver about one card for as long as somebody has
// ended whose memory it still holds. It belongs to the loop.
type releaseWatch struct {
	kick chan struct{}
}

// watchEnded starts a watch, or hurries the one there is.
func (d *daemon) watchEnded(now time.Time) {
	for _, e := range d.core.EndedClients() {
		w := d.watched[e.Card]
		switch {
		case w == nil && !givenUp(now, e):
			w = &releaseWatch{kick: make(chan struct{}, 1)}
			d.watched[e.Card] = w
			d.task(func() { d.watchCard(e.Card, w) })
		case w != nil && e.Since.Equal(now):
			select {
			case w.kick <- struct{}{}:
			default:
			}
		}
	}
}

func givenUp(now time.Time, e core.EndedClient) bool {
	return e.State == core.Detached && now.Sub(e.Since) > releaseGiveUp
}

func (d *daemon) watchCard(card string, w *releaseWatch) {
	failed := false
	for {
		account, took, err := d.driver.account(d.quit, card, releasePatience)
		var pause time.Duration
		done := false
		stopped := d.do(d.quit, func(now time.Time) {
			if err == nil {
				d.core.ReleaseEnded(now, card, account)
			} else if !failed {
				d.log(core.Event{Time: now, Kind: "driver-away", Card: card,
					Message: "the driver does not say who holds memory; what ended programs used stays booked: " + err.Error()})
			}
			if pause = d.releasePause(now, card, took); pause == 0 {
				delete(d.watched, card)
				done = true
			}
		})
		failed = err != nil
		if stopped != nil || done {
			return
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-w.kick:
		case <-d.quit:
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// releasePause is how long to wait before the driver is asked again; 0: no more.
func (d *daemon) releasePause(now time.Time, card string, took time.Duration) time.Duration {
	newest := time.Duration(-1)
	for _, e := range d.core.EndedClients() {
		age := now.Sub(e.Since)
		if e.Card != card || givenUp(now, e) {
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
		return 0
	case newest < releaseFast:
		return releaseFirst
	}
	// A release is then seen late by at most a twentieth of the time it took.
	return max(min(newest/20, releaseLast), time.Millisecond, min((releaseAskPart-1)*took, releaseAskMax))
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
		account, _, err := d.driver.account(quit, c.UUID, releasePatience)
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
