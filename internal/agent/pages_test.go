// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/core"
	"github.com/divvy-gpu/divvy/internal/wire"
)

// mortal is an agent without processes around it: core, pages and what is
// saved. It is killed after so many steps on pages and journal.
type mortal struct {
	*pages
	core    *core.Core
	now     time.Time
	shares  []core.SavedShare // saved
	clients []core.SavedClient
	steps   int // before it is killed
}

type killed struct{}

func (m *mortal) step() {
	if m.steps--; m.steps == 0 {
		panic(killed{})
	}
}

func (m *mortal) Recall(id core.ClientID, slot int, granted, most uint64) uint64 {
	n := m.pages.Recall(id, slot, granted, most)
	m.step()
	return n
}

// carryOut saves and then writes, as the agent does.
func (m *mortal) carryOut() core.Orders {
	orders := m.core.Drain()
	m.step()
	m.shares, m.clients = m.core.Saved()
	m.step()
	for _, pending := range m.unwritten {
		(&pages{unwritten: []*member{pending}}).write()
		m.step()
	}
	m.unwritten = m.unwritten[:0]
	return orders
}

func (m *mortal) start() {
	m.pages = &pages{of: map[core.ClientID]*member{}, clock: monotonic}
	m.core = core.New(core.Config{MaxShares: 10, MaxClients: 10, MaxShareClients: 10, RestartGrace: time.Second},
		[]core.Card{{UUID: testUUID, UsableBytes: gib}}, m)
}

// survivor is a process: what it truly uses, and its page.
type survivor struct {
	id   core.ClientID
	page *wire.ClientPage
	used uint64
}

func (s *survivor) process() core.Process { return core.Process{PID: int(s.id), Start: 1} }

// join attaches the process, or attaches it again.
func (s *survivor) join(t *testing.T, m *mortal) {
	t.Helper()
	page, err := wire.NewClientPage(uint64(s.id), 1)
	must(t, err)
	m.of[s.id] = &member{page: page}
	if s.page == nil {
		must(t, m.core.Attach(m.now, s.id, "s", s.process()))
	} else {
		_, used := s.page.SetAside(0)
		must(t, m.core.Reattach(m.now, s.id, "s", s.process(), []uint64{used}))
		s.page.Close()
	}
	s.page = page
}

// Wherever the agent is killed in a charge, journal and pages say what each
// process uses as soon as all are back: nothing is lost, nothing is counted
// twice, and no more than the limit has been granted.
func TestKilledAtEveryStep(t *testing.T) {
	const limit = 1000*wire.AllocationUnit + 7
	deaths := 0
	for seed := range uint64(400) {
		random := rand.New(rand.NewPCG(seed, 7))
		m := &mortal{now: time.Unix(1e9, 0)}
		m.start()
		_, err := m.core.CreateShare(m.now, core.Spec{Name: "s", MemoryBytes: limit}, 0)
		must(t, err)
		all := []*survivor{{id: 1}, {id: 2}, {id: 3}}
		for _, s := range all {
			s.join(t, m)
			m.carryOut()
		}
		for range 60 {
			s := all[random.IntN(len(all))]
			bytes := random.Uint64N(600*wire.AllocationUnit) + 1
			whole := (bytes + wire.AllocationUnit - 1) / wire.AllocationUnit * wire.AllocationUnit
			if random.IntN(2) == 0 && s.used > 0 {
				whole = min(whole, s.used)
				s.page.Give(0, whole)
				s.used -= whole
				continue
			}
			if s.page.Take(0, bytes) {
				s.used += whole
				continue
			}
			mark := s.page.Mark(0)
			m.steps = random.IntN(12) // 0: it lives
			granted, died := m.charge(s.id, bytes)
			paid := s.page.Mark(0) != mark
			if paid {
				s.used += whole
			}
			if !died && paid != granted {
				t.Fatalf("seed %d: granted %v, and the page says %v", seed, granted, paid)
			}
			if died {
				deaths++
				shares, clients := m.shares, m.clients
				m.steps = 0
				m.start()
				m.core.Recover(m.now, shares, clients)
				random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
				for _, s := range all {
					s.join(t, m)
					m.carryOut()
				}
			}
			m.check(t, all, limit)
		}
		for _, s := range all {
			s.page.Close()
		}
	}
	t.Logf("killed %d times", deaths)
	if deaths < 1000 {
		t.Errorf("killed %d times only", deaths)
	}
}

// charge asks for bytes and carries out what follows.
func (m *mortal) charge(id core.ClientID, bytes uint64) (granted, died bool) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(killed); !ok {
				panic(r)
			}
			died = true
		}
	}()
	granted = m.core.Charge(m.now, id, core.Charge{Bytes: bytes, Final: true}).Granted
	m.carryOut()
	m.steps = 0
	return granted, false
}

func (m *mortal) check(t *testing.T, all []*survivor, limit uint64) {
	t.Helper()
	var sum uint64
	views := map[core.ClientID]core.ClientView{}
	for _, v := range m.core.Clients() {
		views[v.ID] = v
		sum += v.GrantedBytes
	}
	for _, s := range all {
		if v := views[s.id]; v.UsedBytes != s.used || v.Frozen {
			t.Fatalf("process %d uses %d, the ledger says %+v", s.id, s.used, v)
		}
	}
	if sum > limit {
		t.Fatalf("%d granted of %d", sum, limit)
	}
}
