// SPDX-License-Identifier: Apache-2.0

package core

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// slotTwin is the obvious ledger of shares with promises over two cards: what each process
// uses of each, of the dead until the card's driver lets go.
type slotTwin struct {
	limit    uint64
	used     [2]map[ClientID]uint64
	attached map[ClientID]bool
}

func (s *slotTwin) sum(slot int) (sum uint64) {
	for _, n := range s.used[slot] {
		sum += n
	}
	return sum
}

// TestTwinOfSlots plays random histories of shares over two cards on the ledger and on the
// obvious one: what is left on one card is no room on the other, each card's driver lets
// go by itself, and a restart forgets nothing of either.
func TestTwinOfSlots(t *testing.T) {
	cards := []Card{{UUID: "GPU-a", Name: "a", UsableBytes: 400 * Unit}, {UUID: "GPU-b", Name: "b", UsableBytes: 300 * Unit}}
	config := Config{MaxShares: 100, MaxClients: 100, MaxShareClients: 100, RestartGrace: time.Second, EphemeralGrace: time.Second, ShrinkDeadline: time.Second}
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 2))
		now := time.Unix(0, 0)
		pages := newFakePages()
		var log []string
		must := func(ok bool, format string, args ...any) {
			t.Helper()
			if !ok {
				t.Fatalf("seed %d: %s\nafter %q", seed, fmt.Sprintf(format, args...), log[max(0, len(log)-30):])
			}
		}
		pages.core = New(config, cards, pages)
		shares := map[string]*slotTwin{}
		next := ClientID(1)
		release := func(slot int) {
			account := Account{At: now}
			for _, s := range shares {
				for id := range s.used[slot] {
					if s.attached[id] {
						account.Processes = append(account.Processes, Holding{PID: process(id).PID})
					} else {
						delete(s.used[slot], id)
					}
				}
			}
			for pages.core.ReleaseEnded(now, cards[slot].UUID, account) {
			}
		}
		for range 300 {
			c := pages.core
			name := fmt.Sprintf("s%d", random.IntN(3))
			s := shares[name]
			slot := random.IntN(2)
			var ids []ClientID
			for id := ClientID(1); s != nil && id < next; id++ {
				if s.attached[id] {
					ids = append(ids, id)
				}
			}
			id := ClientID(0)
			if len(ids) > 0 {
				id = ids[random.IntN(len(ids))]
			}
			bytes := (random.Uint64N(60) + 1) * Unit
			what := random.IntN(100)
			log = append(log, fmt.Sprintf("%d %s %d slot %d bytes %d", what, name, id, slot, bytes))
			switch {
			case s == nil:
				limit := bytes + 20*Unit
				left := [2]uint64{cards[0].UsableBytes, cards[1].UsableBytes}
				for _, other := range shares {
					for i := range left {
						left[i] -= max(other.limit, other.sum(i))
					}
				}
				_, err := c.CreateShare(now, Spec{Name: name, GPUs: 2, MemoryBytes: limit}, 0)
				must((err == nil) == (limit <= left[0] && limit <= left[1]), "create: %v, left %v", err, left)
				if err == nil {
					shares[name] = &slotTwin{limit: limit, used: [2]map[ClientID]uint64{{}, {}}, attached: map[ClientID]bool{}}
				}
			case what < 10 || id == 0:
				must(pages.attach(now, next, name, process(next)) == nil, "attach")
				s.used[0][next], s.used[1][next], s.attached[next] = 0, 0, true
				next++
			case what < 55:
				answer, _ := pages.allocOn(now, id, slot, bytes)
				if answer.Waiting { // for who has just ended: nobody comes
					now = now.Add(comingFor)
					c.Tick(now)
					answer = c.Drain().Answers[0]
				}
				want := s.sum(slot)+bytes <= s.limit
				must(answer.Granted == want, "alloc: %+v, in use %d of %d", answer, s.sum(slot), s.limit)
				must(answer.Granted || answer.FreeBytes == less(s.limit, s.sum(slot)), "%d free", answer.FreeBytes)
				if want {
					s.used[slot][id] += bytes
				}
			case what < 75:
				bytes = min(bytes, s.used[slot][id])
				pages.freeOn(id, slot, bytes)
				s.used[slot][id] -= bytes
			case what < 85:
				c.Died(now, id)
				delete(s.attached, id)
				for i := range s.used {
					if s.used[i][id] == 0 {
						delete(s.used[i], id)
					}
				}
			case what < 93:
				release(slot)
			case what < 96:
				saved, clients := c.Saved()
				pages.core = New(config, cards, pages)
				pages.core.Recover(now, saved, clients)
				for name, s := range shares {
					for id := ClientID(1); id < next; id++ {
						_, first := s.used[0][id]
						_, second := s.used[1][id]
						switch {
						case s.attached[id]:
							must(pages.comeBack(now, id, name, process(id)) == nil, "return")
						case first || second:
							pages.core.Died(now, id)
						}
					}
				}
				must(pages.core.graceEnd.IsZero(), "all are back, and the core waits")
			default:
				_, err := c.ChangeShare(now, name, Change{MemoryBytes: &bytes}, 0)
				left := [2]uint64{cards[0].UsableBytes, cards[1].UsableBytes}
				for _, other := range shares {
					for i := range left {
						if other != s {
							left[i] -= max(other.limit, other.sum(i))
						}
					}
				}
				must((err == nil) == (bytes <= s.limit || bytes <= left[0] && bytes <= left[1]), "resize to %d: %v", bytes, err)
				if err == nil {
					s.limit = bytes
				}
			}
			now = now.Add(300 * time.Millisecond)
			pages.core.Tick(now)
			pages.core.Drain()
			must(pages.core.check() == nil, "%v", pages.core.check())
			for name, s := range shares {
				v, err := pages.core.Share(name)
				must(err == nil && v.Slots[0].UsedBytes == s.sum(0) && v.Slots[1].UsedBytes == s.sum(1) && v.UsedBytes == s.sum(0)+s.sum(1),
					"share %s: %+v, the twin has %+v", name, v, s)
			}
		}
	}
}
