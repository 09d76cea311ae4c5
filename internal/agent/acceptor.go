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
}

// acceptedConn is a connection in the queue.
type acceptedConn struct {
	socket.Accepted
	serve  func(c acceptedConn, payer int) // must not wait for anything
	refuse []byte                          // what the peer is sent when there are too many
}

func newAcceptor(own int) acceptor {
	return acceptor{newLimiter(maxAccepted, own), newFairQueue[acceptedConn]()}
}

// accept accepts connections until the listener is closed. It returns while nobody connects.
func (d *daemon) accept(ctx context.Context, listener *socket.Listener, refuse []byte, serve func(acceptedConn, int)) {
	again := func() { d.accept(ctx, listener, refuse, serve) }
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
		case d.acceptor.limiter.enter(accepted.Peer.UID):
			d.acceptor.queue.put(accepted.Peer.UID, acceptedConn{accepted, serve, refuse})
		default:
			via := viaShare
			if listener == d.api {
				via = viaAPI
			}
			d.audit.noteTurnedAway(accepted.Peer, accepted.Peer.UID, via, "")
			accepted.Refuse(refuse)
		}
	}
}

// dispatch serves accepted connections until the loop has ended.
func (d *daemon) dispatch() {
	for {
		select {
		case <-d.acceptor.queue.some:
			if c, ok := d.acceptor.queue.take(); ok {
				if of := payer(d.table, &d.subordinates, d.uid, c.Peer); d.acceptor.limiter.unknown(c.Peer) {
					c.Close()
				} else {
					c.serve(c, of)
				}
				d.acceptor.limiter.leave(c.Peer.UID)
			}
		case <-d.stopped:
			return
		}
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
