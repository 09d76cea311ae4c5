// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"
	"time"
)

// A user connects as often as he likes at first, and evenly then; who is quiet may do so again. Others
// do not notice, and root and the agent's own user never wait.
func TestPace(t *testing.T) {
	const own, one, other = 1000, 12001, 12002
	p, now := newPace(own), time.Unix(1000, 0)
	served := func(user int, span time.Duration) (n int) {
		for end := now.Add(span); ; n++ {
			wait := p.wait(user, now)
			if now = now.Add(wait); now.After(end) {
				now = end
				return n
			}
			if wait > 0 && p.wait(user, now) > 0 {
				t.Fatalf("user %d waits again after what it was to wait", user)
			}
		}
	}
	if n := served(one, time.Second); n != paceBurst+250 {
		t.Errorf("%d in the first second, want %d", n, paceBurst+250)
	}
	if n := served(one, time.Second); n != 250 {
		t.Errorf("%d in the next, want 250", n)
	}
	for _, user := range []int{other, own, 0} {
		for range paceBurst {
			if wait := p.wait(user, now); wait > 0 {
				t.Fatalf("user %d waits %v for another", user, wait)
			}
		}
	}
	if p.wait(own, now) > 0 || p.wait(0, now) > 0 {
		t.Error("root or the agent's own user waits")
	}
	now = now.Add(paceBurst * paceEvery)
	if n := served(one, 0); n != paceBurst {
		t.Errorf("%d at once after a pause, want %d", n, paceBurst)
	}
}

// Of many users only those are kept who have done something lately.
func TestPaceForgets(t *testing.T) {
	p, now := newPace(1000), time.Unix(1000, 0)
	for user := range 100 * paceUsers {
		p.wait(20000+user, now)
		now = now.Add(paceEvery)
	}
	if len(p.due) > paceUsers {
		t.Errorf("%d users are kept", len(p.due))
	}
}
