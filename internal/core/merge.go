// SPDX-License-Identifier: Apache-2.0

package core

import (
	"slices"
	"time"
)

// merged is what a client holds, that has closed its socket, of others of its process that
// have done so after it: however often a process attaches and hangs up, it has one place.
type merged struct {
	any   bool     // its page says nothing about what it is granted in all
	into  bool     // it is one of those others
	other ClientID // the last of the others that holds anything; 0: none does
}

// merge joins a client that has just closed its socket with what its process has besides in
// the share, if it holds nothing or that has closed its own socket, too.
func (c *Core) merge(now time.Time, cl *client) {
	i := slices.IndexFunc(c.byPID[cl.PID], func(other *client) bool {
		return other != cl && other.share == cl.share && other.same(cl.Process) && !other.frozen && !cl.frozen &&
			(other.state == Detached && !other.awaited() || other.state == Attached && cl.granted() == 0)
	})
	if i < 0 {
		return
	}
	into := c.byPID[cl.PID][i]
	cl.merged.into = true
	if cl.granted() > 0 {
		if !into.merged.any {
			into.merged.any = true
			into.own()
		}
		into.merged.other = cl.id
		for i, b := range cl.balances {
			to, bytes := into.balances[i], b.granted
			c.book(b, 0)
			c.book(to, to.granted+bytes)
			if bytes > 0 && to.gone {
				to.ends()
			}
		}
		c.clientChanged(into)
	}
	for i, b := range cl.balances {
		c.handOver(b, into.balances[i])
	}
	if into.state == Detached {
		into.left = cl.left // for so long it could take something
	}
	into.denials += cl.denials
	c.remove(now, cl)
}

// split takes apart again what merge has joined, when its process comes back.
func (c *Core) split(now time.Time, cl *client) {
	if !cl.merged.any {
		return
	}
	var rest uint64
	for _, b := range cl.balances {
		rest += b.granted - b.own
	}
	if id := cl.merged.other; rest > 0 && c.clients[id] == nil {
		other := &client{Process: cl.Process, id: id, share: cl.share, since: cl.since,
			merged: merged{any: true}, left: cl.left, ended: now}
		c.addClient(other)
		c.setState(other, Detached, true)
		for i, b := range cl.balances {
			to, bytes := other.balances[i], b.granted-b.own
			to.work.firstNs = b.work.firstNs
			c.book(b, b.own)
			c.book(to, bytes)
		}
		other.own()
		c.clientChanged(other)
	}
	cl.merged = merged{}
}

// own notes what a client is granted as its own.
func (cl *client) own() {
	for _, b := range cl.balances {
		b.own = b.granted
	}
}

// splitFor splits off the client with this token, if the process has one so.
func (c *Core) splitFor(now time.Time, id ClientID, process Process) {
	if c.clients[id] != nil {
		return
	}
	for _, cl := range c.byPID[process.PID] {
		if cl.merged.any && cl.merged.other == id && cl.same(process) {
			c.split(now, cl)
			cl.merged = merged{any: true} // its page has been closed long ago
			cl.own()
			return
		}
	}
}
