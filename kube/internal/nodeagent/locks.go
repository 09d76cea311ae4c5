// SPDX-License-Identifier: Apache-2.0

package nodeagent

import "sync"

// Locks lets one call at a time work on what has a name. Calls for different names go on beside
// each other: one may wait for what another gives back. The zero value is ready.
type Locks struct {
	mu   sync.Mutex
	held map[string]chan struct{}
}

// Lock waits until nobody else works on what has this name; the function that it returns ends this.
func (l *Locks) Lock(name string) (unlock func()) {
	for {
		l.mu.Lock()
		other := l.held[name]
		if other == nil {
			if l.held == nil {
				l.held = map[string]chan struct{}{}
			}
			done := make(chan struct{})
			l.held[name] = done
			l.mu.Unlock()
			return func() {
				l.mu.Lock()
				defer l.mu.Unlock()
				delete(l.held, name)
				close(done)
			}
		}
		l.mu.Unlock()
		<-other
	}
}
