// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/core"
	"github.com/divvy-gpu/divvy/internal/wire"
)

// What the journal says after a history is what the core would say, but for
// counts.
func TestStateFollowsTheCore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	s, _, _, _, err := readState(path)
	must(t, err)
	members := &pages{of: map[core.ClientID]*member{}}
	c := core.New(core.Config{MaxShares: 10, MaxClients: 10, MaxShareClients: 10}, []core.Card{{UUID: testUUID, UsableBytes: gib}}, members)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	save := func() {
		t.Helper()
		orders := c.Drain()
		must(t, s.save(c, orders.SaveShares, orders.SaveClients))
	}
	for i := range 200 {
		name := string(rune('a' + i%3))
		_, _ = c.CreateShare(now, core.Spec{Name: name, MemoryBytes: 10 * mib}, 5)
		save()
		id := core.ClientID(i + 1)
		page, err := wire.NewClientPage(uint64(id), 1)
		must(t, err)
		defer page.Close()
		members.of[id] = &member{page: page}
		if c.Attach(now, id, name, core.Process{PID: i + 1, Start: 3, Command: "x"}) == nil {
			c.Charge(now, id, core.Charge{Bytes: uint64(i), Final: true})
			save()
			if i%2 == 0 {
				c.Died(now, id)
			}
		}
		if i%7 == 0 {
			_ = c.DeleteShare(now, name, true, 0)
		}
		save()
	}
	wantShares, wantClients := c.Saved()
	must(t, s.journal.Close())
	for range 2 {
		again, shares, clients, lost, err := readState(path)
		must(t, err)
		if lost != 0 || !reflect.DeepEqual(sorted(shares), sorted(wantShares)) || !reflect.DeepEqual(sortedClients(clients), sortedClients(wantClients)) {
			t.Fatalf("the journal says\n%+v\n%+v\nthe core\n%+v\n%+v", shares, clients, wantShares, wantClients)
		}
		must(t, again.compact(c))
		must(t, again.journal.Close())
	}
}

func sorted(shares []core.SavedShare) map[string]string {
	all := map[string]string{}
	for _, s := range shares {
		s.Denials, s.Peak, s.Launches = nil, 0, 0 // counts may be a little behind
		raw, _ := json.Marshal(s)
		all[s.Name] = string(raw)
	}
	return all
}

func sortedClients(clients []core.SavedClient) map[core.ClientID]string {
	all := map[core.ClientID]string{}
	for _, c := range clients {
		c.Denials, c.Peak = 0, 0
		raw, _ := json.Marshal(c)
		all[c.ID] = string(raw)
	}
	return all
}

// Records of whatever kind never give a share or client twice, or without a
// name.
func FuzzReplay(f *testing.F) {
	f.Add([]byte(`{"share":{"Name":"a"}}`), []byte(`{"shareGone":"a"}`))
	f.Add([]byte(`{"client":{"ID":3,"Share":"a"}}`), []byte(`{"clientGone":3}`))
	f.Fuzz(func(t *testing.T, one, two []byte) {
		shares, clients := replay([][]byte{one, two, one})
		names := map[string]bool{"": true}
		for _, s := range shares {
			if names[s.Name] {
				t.Fatalf("share %q twice, or without a name", s.Name)
			}
			names[s.Name] = true
		}
		ids := map[core.ClientID]bool{0: true}
		for _, c := range clients {
			if ids[c.ID] {
				t.Fatalf("client %d twice, or without a name", c.ID)
			}
			ids[c.ID] = true
		}
	})
}
