// SPDX-License-Identifier: Apache-2.0

package core

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// thing is what the twin of TestNamedTwin knows of one memory: who holds it, and which
// descriptors are open.
type thing struct {
	number  uint64
	home    string
	bytes   uint64
	holders map[ClientID]int
	open    map[string]bool
}

// Memory with a name is charged once in each share that holds it, and in the share that
// made it as long as one of its descriptors is open: whoever makes, imports, releases,
// dies, closes, and whenever the agent starts anew.
func TestNamedTwin(t *testing.T) {
	const cardUUID, limit = "GPU-a", 64 << 20
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 7))
		pages := newFakePages()
		fresh := func() *Core {
			c := New(Config{MaxShares: 10, MaxClients: 1000, MaxShareClients: 1000, RestartGrace: time.Second}, []Card{{UUID: cardUUID, UsableBytes: 1 << 30}}, pages)
			pages.core = c
			return c
		}
		c := fresh()
		now := time.Unix(1000, 0)
		shares := map[string]uint64{} // plain memory of each
		for _, name := range []string{"a", "b"} {
			if _, err := c.CreateShare(now, Spec{Name: name, MemoryBytes: limit}, 0); err != nil {
				t.Fatal(err)
			}
			shares[name] = 0
		}
		clients := map[ClientID]string{}
		plain := map[ClientID]uint64{}
		var things []*thing
		next := ClientID(1)
		pick := func() ClientID { return shuffled(random, clients)[0] }
		wanted := func(share string) (sum uint64) {
			for id, name := range clients {
				if name == share {
					sum += plain[id]
				}
			}
			for _, one := range things {
				held := one.home == share && len(one.open) > 0
				for id := range one.holders {
					held = held || clients[id] == share
				}
				if held {
					sum += one.bytes
				}
			}
			return sum
		}
		check := func(what string) {
			t.Helper()
			for name := range shares {
				slot := c.byName[name].slots[0]
				var granted, used uint64
				for b := range slot.balances {
					granted += b.granted
					p := pages.pages[b.id]
					used += p.GrantedBytes - p.CreditBytes
					if p.GrantedBytes != b.granted {
						t.Fatalf("seed %d: %s: page of %d says %d, the ledger %d", seed, what, b.id, p.GrantedBytes, b.granted)
					}
				}
				if granted+slot.parked != slot.pool.granted || slot.pool.granted > limit {
					t.Fatalf("seed %d: %s: %s: %d granted, %d parked, pool %d", seed, what, name, granted, slot.parked, slot.pool.granted)
				}
				if want := wanted(name); used+slot.parked != want {
					t.Fatalf("seed %d: %s: %s uses %d, want %d", seed, what, name, used+slot.parked, want)
				}
			}
		}
		names := 0
		for range 2000 {
			now = now.Add(time.Millisecond)
			what := ""
			switch roll := random.IntN(20); {
			case roll < 2 || len(clients) == 0:
				name := []string{"a", "b"}[random.IntN(2)]
				if err := pages.attach(now, next, name, Process{PID: int(next), Start: 1}); err != nil {
					t.Fatal(err)
				}
				clients[next] = name
				what = "attach"
				next++
			case roll < 7: // makes
				id, bytes := pick(), uint64(1+random.IntN(8))<<20
				what = fmt.Sprint("make ", bytes, " by ", id)
				if c.Charge(now, id, Charge{Bytes: bytes, Call: "make"}).Granted {
					names++
					name := fmt.Sprint("d", names)
					one := &thing{home: clients[id], bytes: bytes, holders: map[ClientID]int{id: 1}, open: map[string]bool{name: true}}
					if one.number = c.Name(id, 0, Named{Bytes: bytes, Name: name, Open: true}); one.number == 0 {
						t.Fatal("no number")
					}
					c.Watched(name)
					things = append(things, one)
				}
			case roll < 8: // plain memory
				id, bytes := pick(), uint64(random.IntN(4))<<20
				what = "plain"
				if c.Charge(now, id, Charge{Bytes: bytes, Call: "plain"}).Granted {
					plain[id] += bytes
				}
			case roll < 12 && len(things) > 0: // imports
				id, one := pick(), things[random.IntN(len(things))]
				for _, name := range shuffled(random, one.open) {
					what = fmt.Sprint("import ", one.number, " by ", id)
					got, a := c.Import(now, id, name, "import")
					if a.Granted && got.Number != one.number {
						t.Fatalf("%+v %+v", got, a)
					}
					if a.Granted {
						one.holders[id]++
					}
					break
				}
			case roll < 16 && len(things) > 0: // releases
				one := things[random.IntN(len(things))]
				for _, id := range shuffled(random, one.holders) {
					what = fmt.Sprint("release ", one.number, " by ", id)
					if !c.ReleaseNamed(now, id, one.number) {
						t.Fatalf("seed %d: %s: not known", seed, what)
					}
					if one.holders[id]--; one.holders[id] == 0 {
						delete(one.holders, id)
					}
					break
				}
			case roll < 18 && len(things) > 0: // closes
				one := things[random.IntN(len(things))]
				for _, name := range shuffled(random, one.open) {
					what = fmt.Sprint("close ", one.number)
					c.Closed(now, name)
					delete(one.open, name)
					break
				}
			case roll < 19:
				id := pick()
				what = fmt.Sprint("end of ", id)
				c.Died(now, id)
				for c.ReleaseEnded(now, cardUUID, Account{At: now.Add(time.Microsecond)}) {
				}
				delete(clients, id)
				delete(plain, id)
				for _, one := range things {
					delete(one.holders, id)
				}
			case random.IntN(8) == 0: // all come back
				what = "restart"
				saved, had := c.Saved()
				c = fresh()
				c.Recover(now, saved, had)
				for _, id := range shuffled(random, clients) {
					if err := pages.comeBack(now, id, clients[id], Process{PID: int(id), Start: 1}); err != nil {
						t.Fatal(err)
					}
					for _, one := range things { // the others are still away
						if one.holders[id] == 0 || random.IntN(4) > 0 {
							continue
						}
						if !c.ReleaseNamed(now, id, one.number) {
							t.Fatalf("seed %d: release %d by %d: not known", seed, one.number, id)
						}
						if one.holders[id]--; one.holders[id] == 0 {
							delete(one.holders, id)
						}
					}
				}
				for _, one := range things {
					// Without a process of its share nobody sees their end any more.
					if !slices.Contains(slices.Collect(maps.Values(clients)), one.home) {
						clear(one.open)
					}
					for name := range one.open {
						c.Watched(name)
					}
				}
				c.settleAll(now)
			}
			check(what)
		}
		for _, one := range things {
			for name := range one.open {
				c.Closed(now, name)
			}
		}
		for id := range clients {
			c.Died(now, id)
		}
		for c.ReleaseEnded(now, cardUUID, Account{At: now.Add(time.Millisecond)}) {
		}
		if len(c.numbered)+len(c.byNamed) > 0 {
			t.Errorf("%d things and %d names are left", len(c.numbered), len(c.byNamed))
		}
	}
}

// shuffled are the keys of a map in an order that follows from the random numbers.
func shuffled[K cmp.Ordered, V any](random *rand.Rand, from map[K]V) []K {
	keys := slices.Sorted(maps.Keys(from))
	random.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	return keys
}

func (c *Core) settleAll(now time.Time) {
	for _, n := range c.numbered {
		c.settleNamed(now, n)
	}
}

// Who says that it has made more than it has gains nothing, nor does its share.
func TestNamedLies(t *testing.T) {
	pages := newFakePages()
	c := New(Config{MaxShares: 10, MaxClients: 10, MaxShareClients: 10}, []Card{{UUID: "GPU-a", UsableBytes: 1 << 30}}, pages)
	pages.core = c
	now := time.Unix(1000, 0)
	if _, err := c.CreateShare(now, Spec{Name: "s", MemoryBytes: 8 << 20}, 0); err != nil {
		t.Fatal(err)
	}
	for id := ClientID(1); id <= 2; id++ {
		if err := pages.attach(now, id, "s", Process{PID: int(id), Start: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if !c.Charge(now, 1, Charge{Bytes: 2 << 20}).Granted {
		t.Fatal("no room")
	}
	var numbers []uint64
	for _, name := range []string{"x", "y", "z"} {
		numbers = append(numbers, c.Name(1, 0, Named{Bytes: 1 << 40, Name: name, Open: true}))
		c.Watched(name)
	}
	if c.Name(2, 0, Named{Bytes: 1, Name: "x"}) != 0 || c.Name(2, 0, Named{Number: numbers[0], Name: "w"}) != 0 {
		t.Error("a name, or a number, is given to who does not have it")
	}
	if c.ReleaseNamed(now, 2, numbers[0]) {
		t.Error("released by who does not hold it")
	}
	for range 2000 {
		c.Name(1, 0, Named{Bytes: 1, Name: fmt.Sprint(len(c.byNamed)), Open: true})
	}
	if n := len(c.numbered); n != maxNamed {
		t.Errorf("%d things have a number", n)
	}
	if _, a := c.Import(now, 2, "x", "import"); !a.Granted {
		t.Error(a)
	}
	for _, number := range numbers {
		c.ReleaseNamed(now, 1, number)
	}
	slot := c.byName["s"].slots[0]
	if slot.pool.granted > 8<<20 {
		t.Errorf("%d bytes are granted", slot.pool.granted)
	}
	c.Died(now, 1)
	c.Died(now, 2)
	for c.ReleaseEnded(now, "GPU-a", Account{At: now.Add(time.Millisecond)}) {
	}
	if slot.pool.granted > 8<<20 {
		t.Errorf("%d bytes are granted", slot.pool.granted)
	}
}

// A share whose memory only a descriptor keeps stays until that is closed, though it was
// deleted.
func TestKeptShare(t *testing.T) {
	for _, remove := range []func(c *Core, now time.Time) error{
		func(c *Core, now time.Time) error { return c.DeleteShare(now, "s", false, 0) },
		func(c *Core, now time.Time) error { c.Release(now, "s"); return nil },
	} {
		pages := newFakePages()
		c := New(Config{MaxShares: 10, MaxClients: 10, MaxShareClients: 10}, []Card{{UUID: "GPU-a", UsableBytes: 1 << 30}}, pages)
		pages.core = c
		now := time.Unix(1000, 0)
		if _, err := c.CreateShare(now, Spec{Name: "s", MemoryBytes: 8 << 20, Ephemeral: true}, 0); err != nil {
			t.Fatal(err)
		}
		if err := c.Hold("s", 0); err != nil {
			t.Fatal(err)
		}
		if err := pages.attach(now, 1, "s", Process{PID: 1, Start: 1}); err != nil {
			t.Fatal(err)
		}
		if !c.Charge(now, 1, Charge{Bytes: 4 << 20}).Granted || c.Name(1, 0, Named{Bytes: 4 << 20, Name: "d", Open: true}) == 0 {
			t.Fatal("no room, or no number")
		}
		c.Watched("d")
		c.Died(now, 1)
		for c.ReleaseEnded(now, "GPU-a", Account{At: now.Add(time.Millisecond)}) {
		}
		if err := remove(c, now); err != nil {
			t.Fatal(err)
		}
		v, err := c.Share("s")
		if err != nil || v.UsedBytes != 4<<20 {
			t.Fatalf("it uses %d bytes: %v", v.UsedBytes, err)
		}
		c.Closed(now, "d")
		if _, err := c.Share("s"); err == nil {
			t.Error("it is still there")
		}
	}
}

// One user's programs give memory so many names, or hold so much that others made, and no
// more: others have places, and root always does.
func TestNamesOfOneUser(t *testing.T) {
	const greedy, other, root = ClientID(1), ClientID(2), ClientID(3)
	pages := newFakePages()
	c := New(Config{MaxShares: 100, MaxClients: 1000, MaxShareClients: 1000, AgentUID: -1}, []Card{{UUID: "GPU-a", UsableBytes: 1 << 40}}, pages)
	pages.core = c
	now := time.Unix(1000, 0)
	attach := func(id ClientID, share string, uid int) {
		t.Helper()
		if c.byName[share] == nil {
			if _, err := c.CreateShare(now, Spec{Name: share, Open: true}, 0); err != nil {
				t.Fatal(err)
			}
		}
		if err := pages.attach(now, id, share, Process{PID: int(id), UID: uid, Start: 1}); err != nil {
			t.Fatal(err)
		}
	}
	given := 0
	name := func(id ClientID, number uint64) uint64 {
		given++
		return c.Name(id, 0, Named{Number: number, Bytes: Unit, Name: fmt.Sprint("name ", given)})
	}
	names := func(id ClientID) (n int, last uint64) {
		for {
			number := name(id, 0)
			if number == 0 {
				return n, last
			}
			last = number
			for n++; n%maxNames > 0 && name(id, number) != 0; n++ {
			}
		}
	}
	attach(greedy, "open", 7)
	attach(other, "open", 8)
	attach(root, "roots", 0)
	n, _ := names(greedy)
	if n != mostNames/maxUserPart {
		t.Errorf("one user gave %d names of %d", n, mostNames)
	}
	if name(other, 0) == 0 || name(root, 0) == 0 {
		t.Error("others have no place")
	}
	for id, uid := ClientID(10), 20; id < 40; id, uid = id+1, uid+1 {
		attach(id, fmt.Sprint("s", id), uid)
		names(id)
	}
	if left := mostNames - c.names.all; left < mostNames/rootPart-1 || name(root, 0) == 0 {
		t.Errorf("users left %d names for root", left)
	}
	before := c.names
	c.Died(now, greedy)
	for c.ReleaseEnded(now, "GPU-a", Account{At: now}) {
	}
	if got := before.all - c.names.all; got != n || c.names.by[7] != 0 {
		t.Errorf("%d names went with their process, of %d", got, n)
	}
	c.Drain()
}
