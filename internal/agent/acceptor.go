// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"net"
	"os"
	"time"

	"github.com/divvy-gpu/divvy/internal/socket"
)

const (
	maxAccepted = 1024
	acceptPause = 20 * time.Millisecond
	// While programs wait for turns the agent's threads go before all others: one that
	// never slept would keep the loop's from a processor.
	acceptBatch = 256
	breath      = time.Millisecond
)

// acceptor accepts connections, to the interface and to shares, and does no more at
// once: a process that connects and hangs up without end leaves no full queue in the
// kernel, in which everybody would wait. Accepted connections wait in a queue for what
// takes longer, a bounded number of them, of each uid a part, and users have turns.
type acceptor struct {
	limiter *limiter
	queue   *fairQueue[acceptedConn]
	pace    *pace // of dispatch
}

// acceptedConn is a connection in the queue.
type acceptedConn struct {
	socket.Accepted
	serve  func(c acceptedConn, payer int) // must not wait for anything
	refuse []byte                          // what the peer is sent when there are too many
	via    string                          // what it has connected to
}

func newAcceptor(own int) acceptor {
	return acceptor{newLimiter(maxAccepted, own), newFairQueue[acceptedConn](), newPace(own)}
}

// accept accepts connections until the listener is closed. It returns while nobody connects.
func (d *daemon) accept(ctx context.Context, listener *socket.Listener, refuse []byte, serve func(acceptedConn, int)) {
	again := func() { d.accept(ctx, listener, refuse, serve) }
	via := viaShare
	if listener == d.api {
		via = viaAPI
	}
	for n := 1; ; n++ {
		if n%acceptBatch == 0 && !listener.Idle() {
			pauseFor(ctx, breath)
		}
		accepted, err := listener.AcceptBy(time.Now().Add(quietFor))
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case errors.Is(err, os.ErrDeadlineExceeded):
			if listener.Await(d.poller, again) == nil {
				return
			}
		case err != nil:
			// Out of descriptors, as a rule: let some connections end.
			d.cfg.Logger.Warn("accept", "error", err)
			if !pauseFor(ctx, acceptPause) {
				return
			}
		case accepted.HungUp(): // nobody hears an answer
			accepted.Close()
		case d.acceptor.limiter.enter(accepted.Peer.UID):
			d.acceptor.queue.put(accepted.Peer.UID, acceptedConn{accepted, serve, refuse, via})
		default:
			d.audit.noteTurnedAway(accepted.Peer, accepted.Peer.UID, via, "")
			accepted.Refuse(refuse)
		}
	}
}

// dispatch serves accepted connections until the loop has ended.
func (d *daemon) dispatch() {
	later := time.NewTimer(0) // for who has connected very often
	defer later.Stop()
	for {
		select {
		case <-d.acceptor.queue.some:
		case <-later.C:
		case <-d.stopped:
			return
		}
		now := time.Now()
		c, wait, ok := d.acceptor.queue.takeOf(func(uid int) time.Duration { return d.acceptor.pace.wait(uid, now) })
		if !ok {
			if wait > 0 {
				later.Reset(wait)
			}
			continue
		}
		switch of := payer(d.table, &d.subordinates, d.uid, c.Peer); {
		case d.acceptor.limiter.unknown(c.Peer):
			c.Close()
		case of != c.Peer.UID && d.acceptor.pace.wait(of, now) > 0: // one of many ids of his
			d.audit.noteTurnedAway(c.Peer, of, c.via, "")
			c.Refuse(c.refuse)
		default:
			c.serve(c, of)
		}
		d.acceptor.limiter.leave(c.Peer.UID)
	}
}

// idle says whether no connection waits, or is about to be served.
func (a *acceptor) idle() bool { return len(a.limiter.all) == 0 }

// close closes the connections that still wait; nobody accepts any more.
func (a *acceptor) close() {
	for c, ok := a.queue.take(); ok; c, ok = a.queue.take() {
		c.Close()
	}
}
