// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"sync"
)

// queues have what is done about one name done one after the other, in the order in which it was
// asked for: enforcers know a share by its name, and another one may have it soon.
type queues struct {
	mutex sync.Mutex
	last  map[string]*place // of each name about which something is done
}

// place is one in the queue of a name. It has to end, whether it was waited for or not.
type place struct {
	of     *queues
	name   string
	before *place // nil: none, or it has ended
	ended  chan struct{}
}

func (q *queues) next(name string) *place {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	p := &place{of: q, name: name, before: q.last[name], ended: make(chan struct{})}
	if q.last == nil {
		q.last = map[string]*place{}
	}
	q.last[name] = p
	return p
}

// await waits until all before it have ended. errLeaving: ctx has ended first.
func (p *place) await(ctx context.Context) error {
	if p.before == nil {
		return nil
	}
	select {
	case <-p.before.ended:
		p.before = nil
		return nil
	case <-ctx.Done():
		return errLeaving
	}
}

// end lets the next one begin, as soon as all before this one have ended.
func (p *place) end() {
	if p.before == nil {
		p.leave()
		return
	}
	go func() {
		<-p.before.ended
		p.leave()
	}()
}

func (p *place) leave() {
	p.of.mutex.Lock()
	defer p.of.mutex.Unlock()
	if p.of.last[p.name] == p {
		delete(p.of.last, p.name)
	}
	close(p.ended)
}
