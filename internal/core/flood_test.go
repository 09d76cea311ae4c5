// SPDX-License-Identifier: Apache-2.0

package core

import (
	"fmt"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/event"
)

// A user makes and deletes shares without end, and is refused at another's share: what is
// told of that is bounded, whosever the share is, and the other's events are all told.
func TestFloodOfSharesAndRefusals(t *testing.T) {
	const attacker, victim, rounds = 7, 8, 1000
	pages := newFakePages()
	c := New(Config{MaxShares: 10, MaxClients: 10, MaxShareClients: 10, AgentUID: -1}, []Card{{UUID: "GPU-a", UsableBytes: 1 << 40}}, pages)
	pages.core = c
	now := time.Unix(1000, 0)
	told := map[event.Kind]int{}
	drain := func() {
		for _, e := range c.Drain().Events {
			told[e.Kind]++
		}
	}
	for name, owner := range map[string]int{"his": victim, "root": 0} {
		if _, err := c.CreateShare(now, Spec{Name: name, Ephemeral: true, MemoryBytes: 1 << 30}, owner); err != nil {
			t.Fatal(err)
		}
	}
	drain()
	clear(told)
	most := 0
	for i := range rounds {
		now = now.Add(time.Millisecond)
		if _, err := c.CreateShare(now, Spec{Name: "x", Ephemeral: true}, attacker); err != nil {
			t.Fatal(err)
		}
		if err := c.DeleteShare(now, "x", false, attacker); err != nil {
			t.Fatal(err)
		}
		for _, share := range []string{"his", "root"} {
			if c.Attach(now, 1, share, Process{PID: 100 + i, UID: attacker, Start: 1}) == nil {
				t.Fatalf("a stranger may join %s", share)
			}
		}
		drain()
	}
	for _, n := range told {
		most += n
	}
	if bound := userBucketSize + userBucketPerSecond*rounds/1000 + 1; most > bound || most < userBucketSize {
		t.Errorf("told %v, at most %d of one user", told, bound)
	}
	if c.flood.dropped[attacker] == 0 || c.flood.dropped[victim] > 0 {
		t.Errorf("left out: %v", c.flood.dropped)
	}
	clear(told)
	for i := range 15 {
		if _, err := c.CreateShare(now, Spec{Name: "y", Ephemeral: true}, victim); err != nil {
			t.Fatal(err)
		}
		if err := c.DeleteShare(now, "y", false, victim); err != nil {
			t.Fatal(err)
		}
		if drain(); told[event.ShareDeleted] != i+1 {
			t.Errorf("the victim's events: %v", told)
		}
	}
}

// What any process of a share may cause without end, in a share of root that everybody may join,
// fills no log: what is told of each kind is bounded, whosever the share is, and what is left out is
// counted. The control is another share, of which all is told, and another kind.
func TestFloodOfAShare(t *testing.T) {
	const attacked, well, rounds = "attacked", "well", 2000
	kinds := []event.Kind{event.LeaseOverrun, event.EnforcementChanged}
	for n, owner := range []int{0, 7, 0, 7} {
		kind, other := kinds[n/2], kinds[1-n/2]
		t.Run(fmt.Sprintf("%s of uid %d", kind, owner), func(t *testing.T) {
			pages := newFakePages()
			c := New(Config{MaxShares: 10, MaxClients: 10, MaxShareClients: 10, AgentUID: -1}, []Card{{UUID: "GPU-a", UsableBytes: 1 << 40}}, pages)
			pages.core = c
			now := time.Unix(1000, 0)
			for _, share := range []string{attacked, well} {
				if _, err := c.CreateShare(now, Spec{Name: share, MemoryBytes: 1 << 30}, owner); err != nil {
					t.Fatal(err)
				}
			}
			c.Drain()
			told, left := map[string]int{}, 0
			tell := func(share string, kind event.Kind) {
				if c.MayTell(now, Event{Kind: kind, Share: share}) {
					told[share]++
				}
			}
			for i := range rounds {
				now = now.Add(5 * time.Millisecond)
				tell(attacked, kind)
				if i%(rounds/10) == 0 {
					tell(well, kind)
				}
				c.Tick(now)
			}
			if !c.MayTell(now, Event{Kind: other, Share: attacked}) {
				t.Errorf("%s is not told any more", other)
			}
			now = now.Add(tellDropped)
			c.Tick(now)
			for _, e := range c.Drain().Events {
				if e.Kind == event.EventsDropped && e.Share == attacked {
					var n int
					if _, err := fmt.Sscan(e.Message, &n); err != nil {
						t.Errorf("event %+v", e)
					}
					left += n
				}
			}
			if bound := shareBucketSize + shareBucketPerSecond*10 + 1; told[attacked] > bound || told[attacked] < shareBucketSize {
				t.Errorf("told %d times, at most %d", told[attacked], bound)
			}
			if told[attacked]+left != rounds || told[well] != 10 {
				t.Errorf("told %v, %d said to be left out of %d", told, left, rounds)
			}
		})
	}
}

// Of a process that is off the ledger by then it is not told that it lives on.
func TestNoNoticeOfWhoHasGone(t *testing.T) {
	pages := newFakePages()
	c := New(Config{MaxShares: 10, MaxClients: 10, MaxShareClients: 10}, []Card{{UUID: "GPU-a", UsableBytes: 1 << 40}}, pages)
	pages.core = c
	now := time.Unix(1000, 0)
	if _, err := c.CreateShare(now, Spec{Name: "s", Open: true}, 0); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		id := ClientID(i + 1)
		pages.pages[id] = &fakePage{}
		if err := c.Attach(now, id, "s", Process{PID: 1, UID: 7, Start: 1}); err != nil {
			t.Fatal(err)
		}
		c.Detach(now, id)
		now = now.Add(time.Millisecond)
		for c.ReleaseEnded(now, "GPU-a", Account{At: now}) {
		}
	}
	now = now.Add(time.Second)
	c.Tick(now)
	for _, e := range c.Drain().Events {
		if e.Kind == event.ClientDetached {
			t.Errorf("told %+v", e)
		}
	}
}

// One person with many user ids is one user also where programs are on no ledger. The control are
// ids of which nobody tells whose they are.
func TestFloodOfIDsOnNoLedger(t *testing.T) {
	const ids = 4 * userBucketSize
	for _, c := range []struct {
		payer *int
		want  int
	}{{new(7), userBucketSize}, {nil, ids}} {
		w := New(Config{MaxShares: 10, MaxClients: 10, MaxShareClients: 10, AgentUID: -1}, []Card{{UUID: "GPU-a", UsableBytes: 1 << 40}}, newFakePages())
		now := time.Unix(1000, 0)
		account := Account{At: now, UsedBytes: ids << 20, Owners: map[int]Owner{}}
		for pid := 1; pid <= ids; pid++ {
			account.Processes = append(account.Processes, Holding{PID: pid, Bytes: 1 << 20, Known: true})
			account.Owners[pid] = Owner{UID: 100000 + pid, Payer: c.payer}
		}
		w.Reconcile(now, "GPU-a", account)
		told := 0
		for _, e := range w.Drain().Events {
			if e.Kind == event.UnledgeredMemory {
				told++
			}
		}
		if told != c.want {
			t.Errorf("%d programs are told, want %d", told, c.want)
		}
	}
}
