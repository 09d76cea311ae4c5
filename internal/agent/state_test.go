// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"fmt"
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
	s, _, _, err := readState(path)
	must(t, err)
	members := &pages{of: map[core.ClientID]*member{}, clock: monotonic}
	c := core.New(core.Config{MaxShares: 10, MaxClients: 10, MaxShareClients: 10}, []core.Card{{UUID: testUUID, UsableBytes: gib}, {UUID: "GPU-other", UsableBytes: gib}}, members)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	save := func() {
		t.Helper()
		orders := c.Drain()
		must(t, s.save(c, orders))
	}
	for i := range 200 {
		name := string(rune('a' + i%3))
		_, _ = c.CreateShare(now, core.Spec{Name: name, MemoryBytes: 10 * mib, GPUs: 1 + i%2}, 5)
		save()
		id := core.ClientID(i + 1)
		page, err := wire.NewClientPage(uint64(id), 1)
		must(t, err)
		defer page.Close()
		members.of[id] = &member{page: page}
		if c.Attach(now, id, name, core.Process{PID: i + 1, Start: 3, Command: "x"}) == nil {
			for slot := range c.CardsOf(name) {
				c.Charge(now, id, core.Charge{Slot: slot, Bytes: uint64(i * (slot + 1)), Final: true})
			}
			number := c.Name(id, 0, core.Named{Bytes: uint64(i), Name: fmt.Sprint("one of ", i)})
			if i%3 == 0 {
				c.Name(id, 0, core.Named{Number: number, Name: fmt.Sprint("two of ", i)})
			}
			if i%5 == 0 {
				c.ReleaseNamed(now, id, number)
			}
			save()
			c.Import(now, id, fmt.Sprint("one of ", i-3), "cuIpcOpenMemHandle")
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
		again, was, lost, err := readState(path)
		must(t, err)
		if lost != 0 || !reflect.DeepEqual(sorted(was.shares), sorted(wantShares)) || !reflect.DeepEqual(sortedClients(was.clients), sortedClients(wantClients)) {
			t.Fatalf("the journal says\n%+v\n%+v\nthe core\n%+v\n%+v", was.shares, was.clients, wantShares, wantClients)
		}
		must(t, again.compact(c))
		must(t, again.journal.Close())
	}
}

// However many names a program gives its memory, the journal has all, and no record that is
// too long for it.
func TestManyNamesInTheJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	s, _, _, err := readState(path)
	must(t, err)
	members := &pages{of: map[core.ClientID]*member{}, clock: monotonic}
	c := core.New(core.Config{MaxShares: 10, MaxClients: 10, MaxShareClients: 10}, []core.Card{{UUID: testUUID, UsableBytes: gib}}, members)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	_, err = c.CreateShare(now, core.Spec{Name: "s", MemoryBytes: 10 * mib}, 5)
	must(t, err)
	page, err := wire.NewClientPage(1, 1)
	must(t, err)
	defer page.Close()
	members.of[1] = &member{page: page}
	must(t, c.Attach(now, 1, "s", core.Process{PID: 1, Start: 3}))
	const many = 16384
	number := uint64(0)
	for i := range many {
		if i%64 == 0 {
			number = 0
		}
		if number = c.Name(1, 0, core.Named{Number: number, Bytes: 512, Name: fmt.Sprintf("ipc %0128x", i)}); number == 0 {
			t.Fatalf("no place for name %d", i)
		}
	}
	must(t, s.save(c, c.Drain()))
	must(t, s.compact(c))
	must(t, s.journal.Close())
	s, was, _, err := readState(path)
	must(t, err)
	names := 0
	for _, n := range was.shares[0].Named {
		names += len(n.Names)
	}
	if names != many {
		t.Errorf("the journal has %d names of %d", names, many)
	}
	must(t, s.journal.Close())
}

// What an agent wrote that gave a share one GPU is still read.
func TestJournalOfOneGPU(t *testing.T) {
	was := replay([][]byte{
		[]byte(`{"share":{"Name":"s","GPU":"","MemoryBytes":1073741824,"CoresPercent":30,"Policy":"fixed","Weight":1,"Priority":0,"Tenant":"",` +
			`"Enforce":"","Ephemeral":false,"Open":false,"JoinUID":null,"Paused":false,"CardUUID":"` + testUUID + `","Owner":5,` +
			`"Created":"2026-01-01T00:00:00Z","Revoked":false,"Peak":7,"Denials":{"over-quota":2},"Launches":9,"BusyNs":11,"WaitNs":13}}`),
		[]byte(`{"client":{"PID":4,"UID":5,"Start":6,"Command":"x","Name":"x","ID":77,"Share":"s","Granted":1024,"Peak":8,"Denials":1,` +
			`"Since":"2026-01-01T00:00:00Z","FirstNs":3}}`),
		append([]byte{'g', 77, 0, 0, 0, 0, 0, 0, 0}, 0, 8, 0, 0, 0, 0, 0, 0),
	})
	pages := &pages{of: map[core.ClientID]*member{}, clock: monotonic}
	c := core.New(core.Config{MaxShares: 10, MaxClients: 10, MaxShareClients: 10}, []core.Card{{UUID: testUUID, UsableBytes: 2 * gib}}, pages)
	c.Recover(time.Unix(1, 0), was.shares, was.clients)
	v, err := c.Share("s")
	must(t, err)
	if len(v.Slots) != 1 || v.CardUUID != testUUID || v.LimitBytes != gib || v.PeakBytes != 8 || v.Denials != 2 || v.Launches != 9 ||
		v.CardTimeNs != 11 || v.WaitNs != 13 || v.Owner != 5 || v.UsedBytes != 2048 {
		t.Errorf("%+v", v)
	}
	if all := c.Clients(); len(all) != 1 || all[0].GrantedBytes != 2048 || all[0].ID != 77 {
		t.Errorf("%+v", all)
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
		c.Denials, c.Peak, c.Work = 0, 0, nil
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
	f.Add([]byte(`{"named":{"Share":"a","Number":3}}`), []byte(`{"share":{"Name":"a","Named":[{"Number":3}]}}`))
	f.Add([]byte(`{"client":{"ID":3,"Share":"a","More":[{"Granted":5}]}}`), encodeGranted(3, []uint64{1, 2, 3}))
	f.Fuzz(func(t *testing.T, one, two []byte) {
		was := replay([][]byte{one, two, one})
		names := map[string]bool{"": true}
		for _, s := range was.shares {
			if names[s.Name] {
				t.Fatalf("share %q twice, or without a name", s.Name)
			}
			names[s.Name] = true
		}
		ids := map[core.ClientID]bool{0: true}
		for _, c := range was.clients {
			if ids[c.ID] {
				t.Fatalf("client %d twice, or without a name", c.ID)
			}
			ids[c.ID] = true
		}
	})
}
